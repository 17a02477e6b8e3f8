"""Streams that fall silent, and records from the future: the offsets decide, and the oracle is told their decisions."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.delay_bound import DelayBound
from streamjoin_ds.spec import Join, Stream, band, bind
from streamjoin_ds.spec.window import WindowLike
from streamjoin_ds.stream import commit as commit_room
from streamjoin_ds.testing.arrivals import batch_watermarks
from tests.support.clocked import Clocked
from tests.support.microbatch import MicroBatches

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
HOUR_US = 3_600_000_000


class Running(Clocked):
    """A join over files that grow batch by batch; the test sets its clocks."""

    def __init__(self, join: Join, folder: Path, layout: str = "1x2", exchange: str = "reference") -> None:
        self.folder = folder
        for stream in join.streams:
            Path(str(stream.source)).write_text("ts,x\n")
        self.rows: dict[str, list[dict[str, Any]]] = {str(stream.source): [] for stream in join.streams}
        self.put_s: dict[str, float] = {}
        bound = bind(join, dict.fromkeys(join.names, SCHEMA))
        layout_of = Layout.parse(layout, len(join.names))
        super().__init__(join, MicroBatches(bound, folder, layout_of, exchange, block_bytes=1 << 12))

    def put(self, name: str, *rows: tuple[int, int]) -> None:
        path = str(self.join.streams[self.join.names.index(name)].source)
        with open(path, "a") as file:
            file.writelines(f"{START_US + seconds * 1_000_000},{x}\n" for seconds, x in rows)
        self.rows[path] += [{"ts": START_US + seconds * 1_000_000, "x": x} for seconds, x in rows]
        self.put_s[path] = self.now_s

    def step(self) -> bool:
        """See `Clocked.step`; a stream that became idle was silent for its timeout when the planner began to look."""
        before = self.idle[-1] if self.idle else []
        silent_s = {path: self.now_s - put_s for path, put_s in self.put_s.items()}
        done = super().step()
        for stream in self.join.streams:
            if done and stream.name in self.idle[-1] and stream.name not in before:
                assert silent_s.get(str(stream.source), self.now_s) * 1e6 >= stream.idle_timeout_us
        return done

    def while_looking_at(self, name: str, happens: Callable[[], None]) -> None:
        """Let something happen, once, when the planner's next look comes to a stream and is through with those before.

        It may look at several side by side.
        """
        feeds = self.micro.reader.planner._tasks.feeds[: self.join.names.index(name) + 1]
        looked = [threading.Event() for _ in feeds]

        def looking(place: int, look: Callable[..., Any], *arguments: Any) -> Any:
            feeds[place].frontier = look
            if place == len(feeds) - 1:
                assert all(before.wait(60) for before in looked[:-1])
                happens()
            try:
                return look(*arguments)
            finally:
                looked[place].set()

        for place, feed in enumerate(feeds):
            feed.frontier = partial(looking, place, feed.frontier)

    @property
    def streams(self) -> dict[str, list[dict[str, Any]]]:
        return {stream.name: self.rows[str(stream.source)] for stream in self.join.streams}

    def check(self) -> None:
        """Assert that results, late tuples, rejects and punctuations are the oracle's."""
        ahead = self.check_results(self.streams)
        rejects = Counter((row["stream"], row["line"] - 2) for row in self.micro.companion("rejects").to_pylist())
        assert rejects == Counter((name, number) for name, numbers in ahead.items() for number in numbers)


def two(folder: Path, window: WindowLike = "10s", **facts: Any) -> Join:
    streams = [Stream("l", folder / "l.csv", schema=SCHEMA), Stream("r", folder / "r.csv", schema=SCHEMA, **facts)]
    return Join(streams, [band("l.x", "r.x", 1)], window)


def last(running: Running, table: str) -> list[Mapping[str, Any]]:
    rows = running.micro.companion(table).to_pylist()
    return [row for row in rows if row["batch_id"] == running.micro.batch_id - 1]


def test_a_silent_stream_lets_time_go_on_after_its_timeout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Running(two(tmp_path, idle_timeout="30s"), tmp_path)
    run.put("l", (0, 1), (5, 1))
    run.put("r", (1, 1))
    assert run.step()
    for second in range(10, 40, 10):
        run.now_s = second
        run.put("l", (second + 10, 1))
        assert run.step()
    assert run.idle == [[], [], [], ["r"]]
    assert [us and us - START_US for us in batch_watermarks(run.join, run.streams, run.ends, run.idle)] == [
        1_000_000, 1_000_000, 1_000_000, 40_000_000,
    ]  # fmt: skip
    metrics = run.micro.companion("metrics").to_pylist()
    held = {row["batch_id"]: (row["held_by"], row["held_us"]) for row in metrics}
    assert held == {0: (None, None), 1: ("r", 19_000_000), 2: ("r", 29_000_000), 3: (None, None)}
    assert "stream r is idle" in caplog.text

    run.put("r", (39, 1), (41, 1))
    run.put("l", (39, 1))
    assert run.step()
    assert run.idle[-1] == []
    assert sorted((row["stream"], row["seq"]) for row in last(run, "late")) == [("l", 5), ("r", 1)]
    assert "stream r is back" in caplog.text
    assert "1 tuples of stream r are late, because the watermark 2024-01-01T00:00:40" in caplog.text
    run.check()

    run.put("r", (38, 1), (37, 1))
    assert run.step()
    assert len(last(run, "late")) == 2
    assert caplog.text.count("are late, because the watermark") == 1, "it is told once"
    run.check()


def test_time_goes_on_without_a_record_and_stays_when_all_are_silent(tmp_path: Path) -> None:
    streams = [
        Stream(name, tmp_path / f"{name}.csv", schema=SCHEMA, idle_timeout=timeout)
        for name, timeout in (("l", "50s"), ("r", "30s"))
    ]
    run = Running(Join(streams, [band("l.x", "r.x", 1)], "10s"), tmp_path)
    run.put("l", (0, 1), (100, 1))
    run.put("r", (1, 1))
    assert run.step()
    run.now_s = 29
    assert not run.step()
    run.now_s = 31
    assert run.step()  # no record came, and yet more is complete now
    assert run.idle[-1] == ["r"]
    assert not run.step()
    run.now_s = 99
    assert not run.step()  # all streams are silent
    run.put("r", (99, 1), (101, 1))
    assert run.step()
    assert run.idle[-1] == ["l"]
    run.check()


@pytest.mark.parametrize("facts", [{}, {"partition_by": "x"}])
def test_a_stream_is_not_silent_while_another_is_looked_at(tmp_path: Path, facts: dict[str, Any]) -> None:
    """Nothing of the first stream was there when the look began; it is read once the second was looked at too."""
    streams = [
        Stream(name, tmp_path / f"{name}.csv", schema=SCHEMA, idle_timeout="30s", **facts) for name in ("l", "r")
    ]
    run = Running(Join(streams, [band("l.x", "r.x", 1)], "10s"), tmp_path)
    run.put("l", (0, 1))
    run.put("r", (0, 1))
    assert run.step()

    def takes_long() -> None:
        run.now_s = 40
        run.put("l", (30, 1))
        run.put("r", (50, 1))

    run.now_s = 1
    run.while_looking_at("r", takes_long)
    assert run.step()
    assert run.idle[-1] == []
    assert run.step()
    assert [row["late"] for row in last(run, "ledger")] == [0, 0]
    run.check()


def test_a_restart_does_not_count_the_time_that_nobody_looked(tmp_path: Path) -> None:
    run = Running(two(tmp_path, idle_timeout="30s"), tmp_path)
    run.put("l", (0, 1))
    run.put("r", (1, 1))
    assert run.step()
    run.now_s = 1000
    run.restart()
    run.put("l", (100, 1))
    assert run.step()
    assert run.idle[-1] == []
    run.now_s = 1031
    assert run.step()
    assert run.idle[-1] == ["r"]
    run.restart()
    run.put("l", (200, 1))
    assert run.step()
    assert run.idle[-1] == ["r"]  # the offset remembers it

    run.restart()
    run.micro.reader.planner._idleness.takes_what_is_there = True
    run.put("r", (200, 1))
    assert run.step()
    run.now_s += 40
    run.restart()
    run.micro.reader.planner._idleness.takes_what_is_there = True
    run.put("l", (300, 1))
    assert run.step()
    assert run.idle[-1] == ["r"]  # each run alone is too short: the silence that earlier runs saw counts
    run.check()


def test_a_replay_repeats_the_decision(tmp_path: Path) -> None:
    run = Running(two(tmp_path, idle_timeout="30s"), tmp_path)
    run.put("l", (0, 1))
    run.put("r", (1, 1))
    assert run.step()
    run.now_s = 40
    run.put("l", (50, 1))
    start, states = run.micro.offset, dict(run.micro.states)
    assert run.step()
    blobs = dict(run.micro.states)
    run.micro.states, run.now_s = states, 0
    run.restart()
    run.micro.cells(run.micro.exchanged(start, json.loads(json.dumps(run.micro.offset))))
    assert {cell: run.micro.states[cell][24:] for cell in blobs} == {cell: blob[24:] for cell, blob in blobs.items()}


def test_without_a_timeout_the_offset_is_what_it_was(tmp_path: Path) -> None:
    run = Running(two(tmp_path), tmp_path)
    run.put("l", (0, 1))
    assert run.step()
    assert set(run.micro.offset) == {"version", "streams", "layout", "blocks"}  # the blocks of these tests are small
    assert set(run.micro.offset["layout"]) == {"rates"}
    assert {row["held_by"] for row in last(run, "metrics")} == {"r"}


def test_who_holds_everything_up_is_said_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Running(two(tmp_path), tmp_path)
    run.put("r", (0, 1))
    for batch in range(21):
        run.put("l", (batch * 100, 1))
        assert run.step()
    told = [text for text in caplog.messages if "holds back the watermark: it has" in text]
    assert len(told) == 2
    assert "stream r holds back the watermark: it has sent nothing for 10 batches and is 16m 40s behind" in told[0]


def test_a_table_from_before_there_was_a_column_is_given_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        old = pa.schema(list(commit_room.METRICS_SCHEMA)[: commit_room.METRICS_SCHEMA.names.index("held_by")])
        patch.setattr("streamjoin_ds.sink.commit.METRICS_SCHEMA", old)
        patch.setattr(commit_room, "METRICS_SCHEMA", old)
        patch.setattr(commit_room, "_metrics", lambda *a, of=commit_room._metrics: [
            {name: row[name] for name in old.names} for row in of(*a)
        ])  # fmt: skip
        run = Running(two(tmp_path), tmp_path)
        run.put("l", (0, 1))
        assert run.step()
    commit_room.forget_committers()
    run.put("l", (1, 1))
    assert run.step()
    rows = scanned(DeltaTable(run.micro.plan.table_root + "_metrics")).to_table().to_pylist()
    assert {(row["batch_id"], row["held_by"]) for row in rows} == {(0, None), (1, "r")}
    told = {(row["batch_id"], row["layout"]) for row in rows}
    assert told == {(0, None), (1, str(run.micro.layout))}
    assert sum(row["shipped_rows"] or 0 for row in rows) == run.micro.layout.copies(0)


def test_a_bound_of_delays_changes_no_row_and_is_in_the_metrics(tmp_path: Path) -> None:
    run = Running(two(tmp_path, "3s"), tmp_path)
    run.micro.reader.planner._delay_bound = DelayBound(100_000, clock=lambda: run.now_s)
    run.put("l", *((second, second % 7) for second in range(1_500)))
    run.put("r", *((second, second % 5) for second in range(1_500)))
    while run.step():
        run.now_s += 0.2
    rows = run.micro.companion("metrics").sort_by("batch_id").to_pylist()
    told = {row["batch_id"]: (row["max_delay_us"], row["delay_us"], row["waiting_rows"]) for row in rows}
    assert told == {0: (100_000, None, 1_000), 1: (100_000, 200_000, 0)}
    run.check()


def test_without_a_bound_of_delays_the_metrics_say_nothing_of_them(tmp_path: Path) -> None:
    run = Running(two(tmp_path), tmp_path)
    run.put("l", (0, 1))
    assert run.step()
    assert "delay" not in run.micro.offset
    assert {(row["max_delay_us"], row["delay_us"], row["waiting_rows"]) for row in last(run, "metrics")} == {
        (None, None, None)
    }


def test_a_record_from_the_future_is_a_reject_and_moves_no_clock(tmp_path: Path) -> None:
    year_9999 = 251_000_000_000
    run = Running(two(tmp_path, max_ahead="1h"), tmp_path)
    run.put("l", (0, 1), (3601, 1))
    run.put("r", (1, 1), (year_9999, 1), (3601, 2), (7202, 1), (7201, 1))
    assert run.step()
    found = [(row["line"] - 2, row["column"], row["reason"]) for row in last(run, "rejects")]
    assert found == [(n, "ts", "further ahead of those before it than max_ahead allows") for n in (1, 3)]
    assert [row["rejected"] for row in last(run, "ledger") if row["stream"] == "r"] == [2]
    run.check()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("first", ["a record without a time", "a late record", "no room in the batch"])
def test_after_a_silence_the_first_time_that_moves_the_clock_is_measured_against_nothing(
    tmp_path: Path, first: str, restarts: bool
) -> None:
    """It does not matter when that time comes: it may be after the batch in which the stream is back."""
    run = Running(two(tmp_path, max_ahead="1h", idle_timeout="30s"), tmp_path)
    run.put("l", (0, 1))
    run.put("r", (0, 1))
    assert run.step()
    run.now_s = 40
    run.put("l", (20_000, 1))
    assert run.step()
    assert run.idle[-1] == ["r"]
    run.put("l", (20_001, 1), (20_002, 1))
    if first == "no room in the batch":
        run.put("r", (20_003, 1), (20_004, 1))
        limit = 2
    else:
        with open(tmp_path / "r.csv", "a") as file:
            file.write("never,1\n" if first == "a record without a time" else "-7,1\n")
        limit = 100
    run.micro.max_rows_per_batch = limit
    assert run.step()
    assert run.micro.offset["clocks"]["r"]["unmeasured"]
    if restarts:
        run.restart()
    if first != "no room in the batch":
        run.put("r", (20_003, 1), (20_004, 1))
    assert run.step()
    rejected = {row["reason"] for row in run.micro.companion("rejects").to_pylist()}
    assert "further ahead of those before it than max_ahead allows" not in rejected
    assert [row["stored"] for row in last(run, "ledger") if row["stream"] == "r"] == [2]
    assert "unmeasured" not in run.micro.offset["clocks"]["r"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(6, 24))]
)
def test_any_schedule_of_silence_futures_and_restarts(tmp_path: Path, seed: int) -> None:
    """The rows are the oracle's, given the decisions in the offsets, for any window, layout and way of the exchange."""
    dice = random.Random(seed)
    kind = dice.choice(("time", "count", "periodic"))
    window = {"time": "6s", "count": "last 4", "periodic": "every 2s for 4s"}[kind]
    names = ("l", "r", "t")[: dice.choice((2, 2, 3))]
    itself = dice.random() < 0.25
    facts: list[dict[str, Any]] = []
    for _ in names:
        options = {"delay": dice.choice(("0s", "2s")), "idle_timeout": dice.choice((None, "3s", "7s"))}
        facts.append(options | {"max_ahead": dice.choice((None, "9s"))})
    facts = [facts[0] for _ in facts] if itself else facts
    streams = [
        Stream(name, tmp_path / f"{'l' if itself else name}.csv", schema=SCHEMA, **options)
        for name, options in zip(names, facts, strict=True)
    ]
    join = Join(streams, [band("l.x", f"{name}.x", 1) for name in names[1:]], window)
    layout = dice.choice(("1x1", "1x2", "2x1")) + "x1" * (len(names) - 2)
    run = Running(join, tmp_path, layout, dice.choice(("reference", "packed")))
    sending = names[:1] if itself else names
    silent_until = dict.fromkeys(sending, 0)
    run.put(sending[0], (0, 0))
    for second in range(24):
        run.now_s += 1
        for name in sending:
            if dice.random() < 0.1:
                silent_until[name] = second + dice.choice((4, 9))
            for _ in range(dice.choice((0, 1, 2)) * (silent_until[name] <= second)):
                time = int(run.now_s) - dice.choice((0, 0, 1, 3, 20)) + (1000 * (dice.random() < 0.06))
                run.put(name, (time, dice.randrange(3)))
        if len(sending) > 1 and dice.random() < 0.15:
            late = dice.choice(sending[1:])

            def goes_on(seconds: int = dice.choice((0, 2, 8))) -> None:
                run.now_s += seconds
                for name in sending:
                    run.put(name, (int(run.now_s), dice.randrange(3)))

            run.while_looking_at(late, goes_on)
        run.step()
        if dice.random() < 0.15:
            run.restart()
    run.now_s += 100
    while run.step():
        pass
    run.check()
