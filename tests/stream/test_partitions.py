"""Streams of many partitions: late, watermark and silence for each of them, whatever the batches."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, FileMissingError, WindowError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source import partitions
from streamjoin_ds.source.files.file_feed import FilePartitions
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.spec import Join, Stream, band, bind
from tests.support.examples import examples
from tests.support.microbatch import MicroBatches
from tests.support.partitioned import Partitioned

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])


class Devices(Partitioned):
    """Stream `l` is written by many devices, stream `r` is one file; a test writes what they send."""

    def __init__(
        self,
        folder: Path,
        by: str = "file",
        window: Any = "10s",
        layout: str = "1x2",
        exchange: str = "reference",
        options: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        self.folder, self.by = folder, by
        (folder / "l").mkdir()
        (folder / "r.csv").write_text("ts,x\n")
        self.rows: dict[str, dict[str, list[dict[str, Any]]]] = {"l": {}, "r": {"": []}}
        left = Stream("l", folder / "l", schema=SCHEMA, partition_by=by, **facts)
        join = Join([left, Stream("r", folder / "r.csv", schema=SCHEMA)], [band("l.x", "r.x", 1)], window)
        bound, grid = bind(join, dict.fromkeys(join.names, SCHEMA)), Layout.parse(layout, 2)
        super().__init__(join, MicroBatches(bound, folder, grid, exchange, options=dict(options or {})))

    def put(self, device: str, *rows: tuple[float, int]) -> None:
        """Have a device send rows of second and key; the device "" is stream `r`."""
        text = "".join(f"{START_US + int(s * 1_000_000)},{x}\n" for s, x in rows)
        path, stream, name = self.folder / "r.csv", "r", ""
        if device:
            stream, name = "l", f"{device}.csv" if self.by == "file" else device
            path = self.folder / "l" / (name if self.by == "file" else f"{device}/{len(self.rows['l'].get(name, []))}")
            if self.by == "folder":
                path.parent.mkdir(exist_ok=True)
                path = path.with_name(f"{int(path.name):06d}.csv")
        if not path.exists():
            path.write_text("ts,x\n")
        with path.open("a") as file:
            file.write(text)
        kept = self.rows[stream].setdefault(name, [])
        kept += [{"ts": START_US + int(s * 1_000_000), "x": x} for s, x in rows]

    @property
    def punctuation_s(self) -> float | None:
        """The newest punctuation, in seconds after the start."""
        rows = self.micro.companion("punctuations").sort_by("batch_id")["punctuation"].cast(pa.int64()).to_pylist()
        return None if rows[-1] is None else (rows[-1] - START_US) / 1e6

    def partitions(self) -> dict[str, Any]:
        return dict(self.micro.offset["streams"]["l"]["partitions"])


@pytest.mark.parametrize("by", ["file", "folder"])
def test_lateness_is_judged_in_each_partition(tmp_path: Path, by: str) -> None:
    run = Devices(tmp_path, by)
    run.put("a", (0, 1), (100, 1), (99, 1))
    run.put("b", (1, 1), (2, 1), (1, 1))
    run.put("", (0, 1), (100, 1))
    assert run.step()
    late = Counter((row["stream"], row["seq"]) for row in run.micro.companion("late").to_pylist())
    assert late == {("l", 2): 1, ("l", (1 << 40) + 2): 1}
    assert run.punctuation_s == 2  # that of the slower device
    run.put("b", (200, 1))
    assert run.step()
    assert run.punctuation_s == 100
    run.check(run.rows)


def test_a_new_partition_joins_and_what_is_older_than_the_watermark_is_late(tmp_path: Path) -> None:
    run = Devices(tmp_path)
    run.put("b", (0, 1), (50, 1))
    run.put("", (50, 1))
    assert run.step()
    assert run.punctuation_s == 50
    run.put("a", (49, 1), (51, 1))
    run.put("b", (90, 1))
    run.put("", (90, 1))
    assert run.step()
    assert {name: at["number"] for name, at in run.partitions().items()} == {"b.csv": 0, "a.csv": 1}
    assert run.punctuation_s == 51
    late = run.micro.companion("late").to_pylist()
    assert [(row["seq"], row["largest_ts"].timestamp()) for row in late] == [(1 << 40, START_US / 1e6 + 50)]
    run.check(run.rows)


def test_a_silent_partition_lets_time_go_on_after_its_timeout_and_comes_back(tmp_path: Path) -> None:
    run = Devices(tmp_path, idle_timeout="30s")
    run.put("a", (0, 1))
    run.put("b", (1, 1))
    run.put("", (0, 1), (100, 1))
    assert run.step()
    for now_s in (20, 29, 31):
        run.now_s = now_s
        run.put("b", (now_s, 1))
        assert run.step()
    assert run.punctuation_s == 31
    assert run.partitions()["a.csv"]["clock"]["idle"]
    run.restart()
    run.put("b", (32, 1))
    assert run.step()
    assert run.partitions()["a.csv"]["clock"]["idle"]  # the offset remembers it
    run.put("a", (31, 1), (40, 1))
    assert run.step()
    assert "idle" not in run.partitions()["a.csv"]["clock"]
    assert run.punctuation_s == 32
    run.check(run.rows)


def test_time_goes_on_without_a_record(tmp_path: Path) -> None:
    run = Devices(tmp_path, idle_timeout="30s")
    run.put("a", (0, 1))
    run.put("", (0, 1), (100, 1))
    assert run.step()
    run.now_s = 10
    run.put("b", (50, 1))
    assert run.step()
    assert run.punctuation_s == 0
    run.now_s = 29
    assert not run.step()
    run.now_s = 31
    assert run.step()
    assert run.punctuation_s == 50
    assert not run.step()
    run.check(run.rows)


def test_a_replay_repeats_the_decisions(tmp_path: Path) -> None:
    run = Devices(tmp_path, idle_timeout="30s")
    run.put("a", (0, 1))
    run.put("b", (1, 1))
    run.put("", (0, 1))
    assert run.step()
    run.now_s = 40
    run.put("b", (50, 1), (49, 1))
    run.put("c", (51, 1))
    start, states = run.micro.offset, dict(run.micro.states)
    assert run.step()
    blobs = dict(run.micro.states)
    run.micro.states, run.now_s = states, 0
    run.put("c", (52, 1))
    run.put("aa", (0, 1))
    run.restart()
    run.micro.cells(run.micro.exchanged(start, json.loads(json.dumps(run.micro.offset))))
    assert {cell: run.micro.states[cell][24:] for cell in blobs} == {cell: blob[24:] for cell, blob in blobs.items()}


@pytest.mark.parametrize("freezes", [False, True])
@pytest.mark.parametrize("ignores", [False, True])
def test_a_partition_that_vanishes_is_refused_by_name_or_lets_time_go_on(
    tmp_path: Path, ignores: bool, freezes: bool
) -> None:
    run = Devices(tmp_path, options={"missing_files": "ignore"} if ignores else {})
    run.put("a", (0, 1))
    run.put("b", (1, 1))
    run.put("", (0, 1), (100, 1))
    assert run.step()
    (tmp_path / "l" / "a.csv").unlink()
    run.put("b", (60, 1))
    if freezes:  # a run that takes what is there and stops
        run.restart()
        run.micro.reader.planner.freeze()
    if not ignores:
        with pytest.raises(FileMissingError, match="the partition") as caught:
            run.step()
        assert caught.value.name.endswith("a.csv")
        return
    assert run.step()
    assert run.punctuation_s == 60
    run.restart()
    run.put("b", (61, 1))
    assert run.step()
    run.check(run.rows)


def test_numbers_and_rows_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    """A batch is a prefix by event time: a device that is far ahead waits, and nothing is late but in its own order."""
    found = []
    for rows in (3, 7, 1000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        run = Devices(folder)
        run.micro.max_rows_per_batch = rows
        for second in range(40):
            run.put("slow", (second / 4, 1))
            run.put("fast", (second, 1), (second - 1, 1))
            run.put("", (second / 2, 1))
        run.put("empty")
        while run.step():
            if rows == 3 and len(run.offsets) == 8:
                newest = [run.partitions()[f"{name}.csv"]["time"] for name in ("slow", "fast")]
                assert abs(newest[0] - newest[1]) < 2_000_000
        run.check(run.rows)
        matches = run.micro.matches().to_pylist()
        late = run.micro.companion("late").to_pylist()
        found.append((Counter((r["l_seq"], r["r_seq"]) for r in matches), Counter(r["seq"] for r in late)))
    assert found[0] == found[1] == found[2]


def test_a_record_that_is_broken_elsewhere_tells_the_time_of_its_partition(tmp_path: Path) -> None:
    found = []
    for rows in (1, 1000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        run = Devices(folder)
        run.micro.max_rows_per_batch = rows
        text = "".join(f"{START_US + s * 1_000_000},{x}\n" for s, x in ((0, 1), (10, "no"), (9, 1), (11, 1)))
        (folder / "l" / "a.csv").write_text(f"ts,x\n{text}")
        run.put("", (0, 1), (11, 1))
        while run.step():
            pass
        assert run.punctuation_s == 11
        assert run.micro.companion("rejects").num_rows == 1
        found.append([row["seq"] for row in run.micro.companion("late").to_pylist()])
    assert found == [[2], [2]]


def test_only_an_offset_with_partitions_has_the_new_version(tmp_path: Path) -> None:
    run = Devices(tmp_path)
    run.put("a", (0, 1))
    run.put("", (0, 1))
    assert run.step()
    assert run.micro.offset["version"] == 11  # 7, but that its blocks are of another size than usual
    assert set(run.partitions()["a.csv"]) == {"number", "at", "time"}


@pytest.mark.parametrize(
    ("facts", "window", "name"),
    [
        ({"partition_by": []}, "1s", "partition_by"),
        ({"source": "gen:band2d?side=r&rate=1&rows=1"}, "1s", "partition_by"),
        ({"on_bad_file": "quarantine"}, "1s", "on_bad_file"),
        ({}, "last 3", "window"),
        ({"source": "r/"}, "1s", "partition_by"),
    ],
)
def test_what_partitions_cannot_have_is_refused_by_name(facts: dict[str, Any], window: str, name: str) -> None:
    with pytest.raises((ArgumentError, WindowError)) as caught:
        Join([Stream("l", **{"source": "l/", "partition_by": "file", **facts}), Stream("r", "r/")], (), window)
    assert caught.value.name == name


def test_an_exchange_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        Devices(tmp_path, exchange="rows")
    assert caught.value.name == "exchange"


@pytest.mark.slow
@examples(12)
@given(st.integers(0, 1 << 32))
def test_any_number_of_partitions_any_batches_and_any_restarts(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Results, late tuples, punctuations and ledger are the oracle's, given the decisions in the offsets.

    Whether partitions are forgotten, and when it is seen that they go on, changes nothing.
    """
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "_TOGETHER", dice.choice((1, 1, 2, 64)))
        patch.setattr(FilePartitions, "looks", dice.choice((1, 2, 256)))
        _any_partitions(tmp_path_factory.mktemp("devices"), dice)


def _any_partitions(folder: Path, dice: random.Random) -> None:
    facts = {"delay": dice.choice(("0s", "2s")), "idle_timeout": dice.choice((None, "3s", "7s"))}
    facts["max_ahead"] = dice.choice((None, "5s"))
    window = dice.choice(("6s", "every 2s for 4s"))
    options = {"parts": str(dice.choice((1, 2, 5)))}
    layout = dice.choice(("1x1", "1x2", "2x1", "2x2"))
    by, way = dice.choice(("file", "folder")), dice.choice(("reference", "packed"))
    run = Devices(folder, by, window, layout, way, options, **facts)
    run.micro.max_rows_per_batch = dice.choice((1, 3, 10, 1000))
    devices = [f"d{number}" for number in range(dice.choice((1, 2, 4, 7)))]
    joins = {device: dice.choice((0, 0, 0, 9)) for device in devices}
    silent_until = dict.fromkeys(devices, 0)
    skew = {device: dice.choice((0, 0, -4)) for device in devices}
    for second in range(20):
        run.now_s = second
        for device in ["", *devices]:
            if dice.random() < 0.1:
                silent_until[device] = second + dice.choice((4, 9))
            if second < max(joins.get(device, 0), silent_until.get(device, 0)):
                continue
            for _ in range(dice.choice((0, 1, 2))):
                time = second + skew.get(device, 0) - dice.choice((0, 0, 1, 3))
                time += 1_000 * (facts["max_ahead"] is not None and dice.random() < 0.1)
                run.put(device, (time, dice.randrange(3)))
        run.step()
        if dice.random() < 0.15:
            run.restart()
    run.now_s = 100
    for _ in range(9):  # a plan may look at one that is forgotten alone, and find nothing
        while run.step():
            pass
    run.check(run.rows)


def test_who_holds_everything_up_is_named(tmp_path: Path) -> None:
    run = Devices(tmp_path)
    run.put("a", (0, 1))
    run.put("b", (1, 1))
    run.put("", (0, 1))
    assert run.step()
    run.put("b", (30, 1))
    run.put("", (40, 1))
    assert run.step()
    metrics = {row["batch_id"]: row for row in run.micro.companion("metrics").to_pylist()}
    assert (metrics[1]["held_by"], metrics[1]["held_us"]) == ("l/a.csv", 40_000_000)
    position = PartitionedPosition.from_facts(run.micro.offset["streams"]["l"], "l")
    assert (position.held_by, position.idle) == ("a.csv", ())


@pytest.mark.parametrize("by", ["file", "folder"])
def test_a_record_from_the_future_of_its_partition_is_a_reject_and_moves_no_clock(tmp_path: Path, by: str) -> None:
    year_9999 = 251_000_000_000
    run = Devices(tmp_path, by, max_ahead="1h")
    run.put("a", (0, 1), (3_600, 1), (year_9999, 1), (7_201, 1), (7_200, 2))
    run.put("b", (50_000, 1), (50_001, 1))  # further ahead than the other partition, and not of its own
    run.put("", (0, 1), (3_600, 1))
    assert run.step()
    rejects = [(row["line"] - 2, row["column"], row["reason"]) for row in run.micro.companion("rejects").to_pylist()]
    assert rejects == [(n, "ts", "further ahead of those before it than max_ahead allows") for n in (2, 3)]
    assert run.punctuation_s == 3_600
    run.put("b", (year_9999, 1), (50_002, 1))
    run.put("a", (7_300, 1))
    run.restart()
    assert run.step()
    run.check(run.rows)


def test_after_its_silence_a_partition_is_measured_against_nothing_until_its_clock_moves(tmp_path: Path) -> None:
    run = Devices(tmp_path, max_ahead="1h", idle_timeout="30s")
    run.put("a", (0, 1))
    run.put("b", (0, 1))
    run.put("", (0, 1))
    assert run.step()
    run.now_s = 40
    run.put("b", (20_000, 1), (1_000, 1))  # this one was not silent: the other one is
    run.put("", (1, 1))
    assert run.step()
    assert run.partitions()["a.csv"]["clock"]["idle"]
    with (tmp_path / "l" / "a.csv").open("a") as file:
        file.write("never,1\n")
    run.rows["l"]["a.csv"].append({"ts": None, "x": 1})
    assert run.step()
    assert run.partitions()["a.csv"]["clock"]["unmeasured"]
    run.put("a", (-9, 1))  # late, and so moves no clock
    assert run.step()
    assert run.partitions()["a.csv"]["clock"]["unmeasured"]
    run.restart()
    run.put("a", (30_000, 1), (90_000, 1))
    assert run.step()
    assert "unmeasured" not in run.partitions()["a.csv"]["clock"]
    assert counts(run, "rejected") == 3
    run.check(run.rows)


def counts(run: Devices, what: str) -> int:
    """Return a sum of the ledger of stream `l`."""
    return sum(row[what] for row in run.micro.companion("ledger").to_pylist() if row["stream"] == "l")
