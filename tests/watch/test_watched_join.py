"""What is shown of a join is what its tables say, wherever one begins to look."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.watch.match_picture import MatchPicture, plain_rows
from streamjoin_ds.watch.table_tail import TableTail
from streamjoin_ds.watch.watched_join import OUTCOMES, WatchedJoin
from tests.watch.conftest import ROWS, Crowded, Joined


def clock() -> Iterator[float]:
    second = 0.0
    while True:
        yield second
        second += 10


def looked(checkpoint: str) -> WatchedJoin:
    seconds = clock()
    join = WatchedJoin(checkpoint, lambda: next(seconds))
    join.poll()
    return join


def rows_of(path: str) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(path).to_pyarrow_table()).to_pylist()


def check_against_tables(facts: dict[str, Any], table: str) -> None:
    ledger, metrics, commits = (rows_of(f"{table}_{name}") for name in ("ledger", "metrics", "punctuations"))
    for name, stream in facts["streams"].items():
        for column in ("read", *OUTCOMES, "null_keys"):
            assert stream[column] == sum(row[column] for row in ledger if row["stream"] == name), column
    assert facts["totals"] == {"batches": len(commits), "matches": len(rows_of(table))}
    newest = max(row["batch_id"] for row in commits)
    assert facts["last"]["batch_id"] == newest
    cells = sorted((row for row in metrics if row["batch_id"] == newest), key=lambda row: row["cell"])
    assert facts["cells"] == [{name: row[name] for name in facts["cells"][0]} for row in cells]
    points = [dict(zip(facts["columns"], point, strict=True)) for point in facts["points"]]
    assert sum(point["batches"] for point in points) == len(commits)
    assert sum(point["matches"] for point in points) == len(rows_of(table))
    assert sum(point["a"] for point in points) == facts["streams"]["a"]["read"]
    assert sum(point["cells_ms"] for point in points) == sum(
        max(row["duration_ms"] for row in metrics if row["batch_id"] == batch) for batch in range(newest + 1)
    )


def test_numbers_are_those_of_the_tables(joined: Joined) -> None:
    facts = looked(joined.checkpoint).facts()
    json.dumps(facts, allow_nan=False)
    check_against_tables(facts, joined.table)
    assert facts["streams"]["a"]["late"] == ROWS // 100
    assert facts["join"]["name"] == "near"
    assert [reason[2] for reason in facts["rejects"]["reasons"]] == [1, 1]
    assert facts["late"]["sample"] == 2 * ROWS // 100
    assert all(0 < low <= high for low, *_, high in facts["late"]["quantiles_us"].values())


def test_who_followed_sees_what_a_newcomer_sees(tmp_path: Path) -> None:
    run = Joined(tmp_path)
    seconds = clock()
    follower = WatchedJoin(run.checkpoint, lambda: next(seconds))
    follower.poll()
    assert follower.facts()["join"] is None, "there is no checkpoint yet"
    run.run()
    follower.poll()
    before = follower.facts()
    for name in ("a", "b"):
        with (tmp_path / f"{name}.csv").open("a") as file:
            file.writelines(f"{1_700_000_100_000_000 + k},50,8\n" for k in range(20))
    run.run()
    follower.poll()
    facts = follower.facts()
    assert facts["totals"]["batches"] > before["totals"]["batches"]
    assert facts["problem"] is None
    check_against_tables(facts, run.table)
    newcomer = looked(run.checkpoint).facts()
    assert {**facts, "matches": 0} == {**newcomer, "matches": 0}
    newest = facts["points"][-1][0]
    assert follower.facts(newest)["points"] == facts["points"][-1:]


class Reader:
    """Has of the facts what a page has: it puts together what it is told, and asks for what is new."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.points: dict[int, list[int]] = {}

    def ask(self, join: WatchedJoin) -> set[str]:
        """Ask once; return which parts were told."""
        return self.take(join.told(max(self.points, default=2) - 2, self.facts.get("seen", "")))

    def take(self, text: bytes) -> set[str]:
        """Put an answer to what is there; return which parts were told."""
        told = json.loads(text)
        self.facts |= told
        self.points |= {point[0]: point for point in told.get("points", ())}
        self.facts["points"] = sorted(self.points.values())
        return set(told)

    def check(self, join: WatchedJoin) -> None:
        """Compare it with all that is there."""
        assert {**self.facts, "seen": ""} == {**json.loads(json.dumps(join.facts())), "seen": ""}


def test_pages_are_told_what_is_new_alone(tmp_path: Path) -> None:
    run = Joined(tmp_path)
    seconds = clock()
    join = WatchedJoin(run.checkpoint, lambda: next(seconds))
    first, second = Reader(), Reader()
    join.poll()
    first.ask(join)
    first.check(join)
    run.run()
    join.poll()
    assert {"join", "last", "cells", "matches", "late"} <= first.ask(join)
    for reader in (first, second):
        reader.ask(join)
        reader.check(join)
        assert reader.ask(join) == {"seen", "has_ended", "problem"}
    (tmp_path / "a.csv").open("a").write("1700000100000000,10,1\n")  # no partner, not late
    run.run()
    join.poll()
    assert not {"join", "late", "rejects", "matches"} & first.ask(join)
    first.check(join)
    other = looked(run.checkpoint)  # the page's process was started again
    second.ask(other)
    second.check(other)
    join.end(0.0)
    first.ask(join)
    assert first.facts["has_ended"]


def test_what_tables_have_of_a_batch_that_is_not_committed_waits(tmp_path: Path) -> None:
    run = Joined(tmp_path)
    run.run()
    *_, last = sorted(Path(f"{run.table}_punctuations/_delta_log").glob("*.json"))
    last.rename(tmp_path / "aside")
    seconds = clock()
    join = WatchedJoin(run.checkpoint, lambda: next(seconds))
    join.poll()
    before = join.facts()
    (tmp_path / "aside").rename(last)
    join.poll()
    after = join.facts()
    assert after["totals"]["batches"] == before["totals"]["batches"] + 1
    assert after["streams"]["a"]["read"] > before["streams"]["a"]["read"]
    check_against_tables(after, run.table)
    newcomer = looked(run.checkpoint).facts()
    assert {**after, "matches": 0} == {**newcomer, "matches": 0}


def test_a_table_that_fails_once_is_read_at_the_next_look(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no batch is new only the punctuations are asked for, unless the look before could not read all tables."""
    asked, poll = [], TableTail.poll

    def failing_once(own: TableTail, *batches: int) -> list[pa.Table]:
        asked.append(own.path.removeprefix(joined.table))
        if asked.count("_metrics") == 1 and asked[-1] == "_metrics":
            msg = "a file cannot be read"
            raise TableError(msg, name=own.path)
        return poll(own, *batches)

    monkeypatch.setattr(TableTail, "poll", failing_once)
    join = looked(joined.checkpoint)
    assert join.problem == "a file cannot be read"
    join.poll()
    assert join.problem is None
    check_against_tables(join.facts(), joined.table)
    asked.clear()
    join.poll()
    assert asked == ["_punctuations"]


def test_of_a_large_file_only_the_first_rows_are_read(joined: Joined) -> None:
    for rows in (1, 7, 10_000):
        for table in TableTail(joined.table, most_rows=rows).poll():
            assert 0 < table.num_rows <= rows


def test_compaction_changes_no_number(tmp_path: Path) -> None:
    run = Joined(tmp_path)
    run.run()
    seconds = clock()
    follower = WatchedJoin(run.checkpoint, lambda: next(seconds))
    follower.poll()
    before = follower.facts()
    for table in ("_ledger", "_metrics", "_punctuations", ""):
        assert compact(f"{run.table}{table}").files_removed
    follower.poll()
    assert follower.facts() == before
    newcomer = looked(run.checkpoint).facts()
    assert {**newcomer, "matches": 0} == {**before, "matches": 0}


def test_tables_that_are_gone_are_said_and_come_again(tmp_path: Path) -> None:
    run = Joined(tmp_path)
    run.run()
    seconds = clock()
    follower = WatchedJoin(run.checkpoint, lambda: next(seconds))
    follower.poll()
    log = Path(f"{run.table}_ledger/_delta_log")
    log.rename(tmp_path / "aside")
    follower.poll()
    (tmp_path / "aside").rename(log)
    follower.poll()
    follower.poll()
    assert follower.problem is None
    check_against_tables(follower.facts(), run.table)


def test_coordinates_make_a_map(joined: Joined) -> None:
    picture = looked(joined.checkpoint).facts()["matches"]["picture"]
    assert (picture["kind"], picture["streams"]) == ("map", ["a", "b"])
    assert all(len(point) == 4 and abs(point[0] - point[2]) <= 0.0201 for point in picture["points"])


@pytest.mark.parametrize(
    ("on", "axes"), [("abs(a.x - b.y) <= 3", 2), ("abs(a.x - b.y) <= 3 AND abs(a.z - b.z) <= 1", 2)]
)
def test_bands_make_a_plot_of_differences(on: str, axes: int) -> None:
    from streamjoin_ds.spec import Join, Stream, bind

    kinds = {"ts": "timestamp[us, tz=UTC]", "x": "double", "y": "double", "z": "int64"}
    join = Join([Stream(name, schema=kinds, time="ts") for name in ("a", "b")], on=on, window="1s")
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("y", pa.float64()), ("z", pa.int64())])
    picture = MatchPicture.of(bind(join, {"a": schema, "b": schema}))
    matches = pa.table({"a_x": [1.0, None, float("nan")], "b_y": [3.0, 1.0, 1.0], "a_z": [4, 4, 4], "b_z": [4, 4, 4]})
    facts = picture.facts(matches)
    assert facts is not None
    assert len(facts["axes"]) == axes
    names = [axis["name"] for axis in facts["axes"]]  # in the order in which the conditions are decided
    assert facts["axes"][names.index("a_x - b_y")]["low"] == -3
    (point,) = facts["points"]
    assert dict(zip(names, point, strict=True)) == {"a_x - b_y": -2.0} | ({"a_z - b_z": 0} if "z" in on else {"a_x": 1})


def test_rows_are_what_json_can_say() -> None:
    table = pa.table({"f": [float("nan")], "i": [1 << 60], "b": [b"\xff"], "l": [[1.5, None]], "s": [{"x": 1}]})
    assert plain_rows(table) == [["nan", str(1 << 60), "/w==", [1.5, None], {"x": 1}]]
    times = pa.table({"t": pa.array([0, 1, -1, None], pa.timestamp("us", "UTC"))})
    written = ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z", None]
    assert plain_rows(times) == [[text] for text in written]


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.0, 0.4), (0.01, 1.0), (9.0, 1.5)])
def test_looks_that_cost_more_are_fewer(tmp_path: Path, cost_s: float, pause_s: float) -> None:
    now_s, asked = [0.0], count(1)
    join = WatchedJoin(str(tmp_path / "none.ckpt"), lambda: now_s[0], lambda: next(asked) * cost_s)
    asked_by = []
    for second in (0.0, pause_s - 0.01, pause_s + 0.01):
        now_s[0] = second
        join.poll()
        asked_by.append(next(asked))
    assert asked_by == [3, 4, 7]  # each look asks twice


@pytest.mark.slow
@pytest.mark.parametrize(("cells", "partitions"), [(1, 0), (100, 1_000)])
def test_a_page_that_is_open_costs_little(tmp_path: Path, cells: int, partitions: int) -> None:
    """A hundredth of two cores is 20 ms a second, and a page asks once a second. The least is of a quiet moment."""
    run = Crowded(tmp_path, cells, partitions)
    join = looked(run.checkpoint)
    reader, costs = Reader(), []
    for _ in range(15):
        run.commit()
        began_s = time.thread_time()
        join.poll()
        told = join.told(max(reader.points, default=2) - 2, reader.facts.get("seen", ""))
        costs.append(time.thread_time() - began_s)
        reader.take(told)
        assert reader.facts["last"]["batch_id"] == run.batch
        assert len(reader.facts["cells"]) == cells
    reader.check(join)
    assert min(costs) < 0.030  # other tests run beside it
