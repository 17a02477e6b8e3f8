"""Rows of DataFrames are judged in their partitions' order: whatever the batches, the tasks and the cells."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Join, Stream, band
from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.cell.partition_clocks import PartitionClocks
from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.exchange.frame_packing import pack_frame
from streamjoin_ds.exchange.row_order import STEPS_SCHEMA, running_maximum, steps_of, times_before
from streamjoin_ds.plan import Layout, Plan
from streamjoin_ds.spec import bind
from streamjoin_ds.spec.event_time import NO_TIME

DELAY_US = 20
Row = tuple[int, int, int | None]  # partition, number, time
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("part", pa.int64()), ("off", pa.int64())])


def planned(folder: Path, layout: str, order: Sequence[str] = ("part", "off"), timeout: str | None = None) -> Plan:
    streams = [
        Stream(name, time="ts", time_unit="us", delay=f"{DELAY_US}us", idle_timeout=timeout) for name in ("l", "r")
    ]
    join = Join(streams, [band("l.x", "r.x", 1)], "50us")
    bound = bind(join, {"l": SCHEMA, "r": SCHEMA})
    grid = Layout.parse(layout, 2)
    return Plan(
        bound, grid, grid.cells, "packed", str(folder), str(folder / "m"), "j", foreign=True, durable=False,
        order_by=(tuple(order),) * 2, in_order=True,
    )  # fmt: skip


class Query:
    """The batches of one query: its tasks, its cells and their states."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.states, self.batch = plan, {}, 0  # type: ignore[var-annotated]
        self.results: Counter[tuple[int, int]] = Counter()
        self.late: dict[tuple[str, int], int] = {}
        self.reports: list[CellReport] = []

    def step(self, tasks: Sequence[Sequence[Sequence[Row]]], time_ms: int = 0) -> None:
        """Run one batch: for each stream the rows of each of its tasks."""
        by_cell = defaultdict(list)
        for stream, of_stream in enumerate(tasks):
            for rows in of_stream or [[]]:
                for sent in pack_frame(self.plan, stream)(batches_of(rows)):
                    for row in sent.to_pylist():
                        by_cell[row["cell"]].append(SimpleNamespace(**row))
        told = []
        for label, rows_of_cell in by_cell.items():
            number = self.plan.cell_of(label)
            cell = Cell(self.plan, number, self.states.get(number), TaskFacts(self.batch, "q", time_ms))
            files, report, self.states[number] = cell.run(rows_of_cell)
            told.append(CellReport.from_json(report.to_json()))
            for file in files:
                self.take(file)
        assert len(told) == self.plan.cells
        clocks = [(one.watermark_us, one.largest_us, one.idle, one.partitions) for one in told]
        assert clocks == [clocks[0]] * len(clocks), "every cell has the same clocks"
        self.reports = told
        self.batch += 1

    def take(self, file: Any) -> None:
        folder = {"matches": "m", "late": "m_late", "rejects": "m_rejects"}[file.table]
        table = pq.read_table(Path(self.plan.table_root).parent / folder / file.path)
        if file.table == "matches":
            self.results.update(zip(table["l_seq"].to_pylist(), table["r_seq"].to_pylist(), strict=True))
        elif file.table == "late":
            judges = table["largest_ts"].cast(pa.int64()).to_pylist()
            for stream, seq, judge in zip(table["stream"].to_pylist(), table["seq"].to_pylist(), judges, strict=True):
                assert (stream, seq) not in self.late
                self.late[stream, seq] = judge

    @property
    def watermark_us(self) -> int | None:
        found: int | None = self.reports[0].watermark_us
        return found


def batches_of(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """Return the rows of a task, in two batches of Arrow."""
    half = len(rows) // 2
    return [
        pa.record_batch(
            [
                pa.array([row[2] for row in some], pa.int64()),
                pa.array([x_of(row) for row in some], pa.int64()),
                pa.array([row[0] for row in some], pa.int64()),
                pa.array([row[1] for row in some], pa.int64()),
            ],
            schema=SCHEMA,
        )
        for some in (rows[:half], rows[half:])
    ]


def x_of(row: Row) -> int:
    return (row[0] * 7 + row[1] * 3) % 5


def expected(streams: Sequence[Sequence[Row]]) -> tuple[Counter[tuple[int, int]], dict[tuple[str, int], int]]:
    """Return results and late rows of rows that are given in each partition's order, whatever the batches."""
    late: dict[tuple[str, int], int] = {}
    kept: list[list[Row]] = []
    for name, rows in zip("lr", streams, strict=True):
        largest: dict[int, int] = {}
        kept.append([])
        for row in rows:
            part, number, time = row
            if time is None:
                continue
            if part in largest and time < largest[part] - DELAY_US:
                late[name, part << 40 | number] = largest[part]
            else:
                kept[-1].append(row)
            largest[part] = max(time, largest.get(part, time))
    results = Counter(
        (a[0] << 40 | a[1], b[0] << 40 | b[1])
        for a in kept[0]
        for b in kept[1]
        if abs((a[2] or 0) - (b[2] or 0)) <= 50 and abs(x_of(a) - x_of(b)) <= 1
    )
    return results, late


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[Row]], list[list[list[list[Row]]]], str]:
    """Return two streams, their batches and tasks, and a layout. Each partition is there from the first batch on."""
    count, partitions = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**32))
    random = np.random.default_rng(seed)
    streams, batches = [], [[[], []] for _ in range(count)]  # type: ignore[var-annotated]
    for stream in range(2):
        rows: list[Row] = []
        for part in range(partitions):
            lag = int(random.integers(0, 400)) * int(random.integers(0, 2))
            size, number, time = int(random.integers(count, 30)), 0, 1000 - lag
            ends = np.sort(random.integers(0, size + 1, count))
            ends = np.maximum(ends, 1)
            ends[-1] = size
            tasks = int(random.integers(1, 4))
            for n in range(size):
                number += int(random.integers(1, 3))  # numbers have gaps
                time += int(random.integers(0, 12))
                told = (
                    None
                    if n and random.random() < 0.05
                    else time - int(random.integers(0, 60)) * (random.random() < 0.3)
                )
                row = (part * 3, number, told)
                rows.append(row)
                batch = batches[int(np.searchsorted(ends, n, side="right"))][stream]
                while len(batch) < tasks:
                    batch.append([])
                whose = random.integers(0, tasks) if random.random() < 0.7 else 0
                batch[whose].append(row)
        streams.append(rows)
    for batch in batches:
        for of_stream in batch:
            for task in of_stream:
                random.shuffle(task)
    return streams, batches, draw(st.sampled_from(["1x1", "1x2", "2x2", "3x1"]))


@given(cases())
def test_the_same_rows_are_late_whatever_the_batches_tasks_and_cells(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[list[Row]], list[list[list[list[Row]]]], str]
) -> None:
    streams, batches, layout = case
    query = Query(planned(tmp_path_factory.mktemp("cells"), layout))
    for batch in batches:
        query.step(batch)
    results, late = expected(streams)
    assert query.late == late
    assert query.results == results


def test_a_partition_that_lags_loses_nothing_and_holds_the_watermark(tmp_path: Path) -> None:
    query = Query(planned(tmp_path, "1x2"))
    fast: list[Row] = [(0, n, 10_000 + 10 * n) for n in range(50)]
    slow: list[Row] = [(1, n, 10 * n) for n in range(50)]
    query.step([[fast[:25], slow[:25]], [fast[:25], slow[:25]]])
    assert query.watermark_us == 240 - DELAY_US
    query.step([[fast[25:], slow[25:]], [slow[25:], fast[25:]]])
    assert not query.late
    assert query.watermark_us == 490 - DELAY_US
    assert query.results == expected([fast + slow, fast + slow])[0]


def test_one_column_numbers_all_rows(tmp_path: Path) -> None:
    query = Query(planned(tmp_path, "1x2", ["off"]))
    rows: list[Row] = [(7, 0, 100), (7, 1, 200), (7, 2, 100), (7, 5, 185), (7, 6, None)]
    query.step([[rows[::2], rows[1::2]], [rows[1:2]]])
    assert query.late == {("l", 2): 200}
    query.step([[[(7, 9, 150), (7, 8, 300)]], []])
    assert query.late == {("l", 2): 200, ("l", 9): 300}
    # A smaller number in a later batch has all before it.
    query.step([[[(7, 7, 200)]], []])
    assert query.late["l", 7] == 300


def test_a_new_partition_is_judged_by_the_watermark(tmp_path: Path) -> None:
    query = Query(planned(tmp_path, "2x1"))
    query.step([[[(0, 0, 1000)]], [[(0, 0, 1000)]]])
    query.step([[[(0, 1, 1001), (1, 0, 979), (1, 1, 981)]], [[(0, 1, 1001)]]])
    assert query.late == {("l", 1 << 40): 980}
    assert sum(report.overtaken[0] for report in query.reports) == 1
    assert query.watermark_us == 980  # the new partition is at 981, but no watermark goes back


def test_a_silent_partition_becomes_idle_comes_back_and_is_forgotten(tmp_path: Path) -> None:
    query = Query(planned(tmp_path, "1x2", timeout="10s"))
    both: list[Row] = [(0, 0, 100), (1, 0, 100)]
    query.step([[both], [both]], 1_000_000)
    for n, (time_ms, watermark) in enumerate(
        [(1_050_000, 80), (1_059_999, 80), (1_060_000, 300 + 3 - DELAY_US)], start=1
    ):
        # A long pause alone is no silence: it counts from the first batch without the partition's rows.
        query.step([[[(0, n, 300 + n)]], [[(0, n, 300 + n), (1, n, 300 + n)]]], time_ms)
        assert query.watermark_us == watermark
    (state, *_) = query.states.values()
    assert b'"numbers":[0]' in state
    query.step([[[(1, 1, 282), (1, 2, 290), (0, 9, 310)]], [[(0, 9, 310), (1, 9, 310)]]], 1_060_001)
    assert query.late == {("l", 1 << 40 | 1): 283}
    assert query.watermark_us == 283  # partition 1 is at 290


def test_an_idle_partition_ahead_of_the_watermark_is_remembered(tmp_path: Path) -> None:
    query = Query(planned(tmp_path, "1x2", timeout="10s"))
    query.step([[[(0, 0, 100), (1, 0, 1000)]], [[(0, 0, 100)]]], 0)
    for n, time_ms in enumerate((1, 20_000, 40_000), start=1):
        query.step([[[(0, n, 200)]], [[(0, n, 100 + n)]]], time_ms)
    assert query.watermark_us == 103 - DELAY_US
    query.step([[[(1, 1, 979), (1, 2, 980)]], []], 40_001)
    assert query.late == {("l", 1 << 40 | 1): 1000}


def test_a_silent_stream_becomes_idle(tmp_path: Path) -> None:
    query = Query(planned(tmp_path, "1x2", timeout="10s"))
    query.step([[[(0, 0, 100)]], []], 0)
    assert query.watermark_us is None
    query.step([[[(0, 1, 200)]], []], 9_999)
    assert query.watermark_us is None
    query.step([[[(0, 2, 300)]], []], 10_000)
    assert query.watermark_us == 280
    assert query.reports[0].idle == [1]
    query.step([[[(0, 3, 400)]], [[(0, 0, 279), (0, 1, 280)]]], 10_001)
    assert query.late == {("r", 0): 280}
    assert query.reports[0].idle == []
    assert query.watermark_us == 280


def test_a_timeout_counts_from_the_second_batch_on() -> None:
    """A batch that is done again after a restart with another timeout decides as it did."""
    steps = pa.table([[5], [100]], schema=STEPS_SCHEMA)
    clock = StreamClock(DELAY_US, 100, by_partition=True)
    facts: dict[str, Any] | None = None
    for time_ms, timeout_us, is_idle in ((0, None, False), (1, 5000, False), (9, 1000, True), (9, None, True)):
        clocks = PartitionClocks(40, timeout_us, facts)
        if facts is None:
            clocks.hear(steps)
        clocks.advance(clock, time_ms)
        assert clocks.is_idle is clock.idle is is_idle
        facts = json.loads(json.dumps(clocks.to_facts()))
    clocks = PartitionClocks(40, 1, facts)
    clocks.advance(clock, 99)
    assert not clocks.is_idle


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(-50, 50)), max_size=200), st.integers(1, 8))
def test_running_maxima(rows: list[tuple[int, int]], width: int) -> None:
    rows.sort(key=lambda row: row[0] // width)
    partitions = np.array([row[0] // width for row in rows], np.int64)
    times = np.array([NO_TIME if row[1] == 50 else row[1] for row in rows], np.int64)
    largest: dict[int, int] = {}
    found = []
    for part, time in zip(partitions.tolist(), times.tolist(), strict=True):
        largest[part] = max(time, largest.get(part, NO_TIME))
        found.append(largest[part])
    assert running_maximum(partitions, times).tolist() == found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 50)), max_size=80), st.data())
def test_steps_tell_what_all_rows_tell(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Of unique numbers, dealt to tasks in any way: before each row lies what lies there in all rows."""
    by_seq = {part << 8 | number: time for part, number, time in rows}
    whose = {seq: data.draw(st.integers(0, 2)) for seq in by_seq}
    told = []
    own: dict[int, int] = {}
    for task in range(3):
        seqs = np.array([seq for seq in by_seq if whose[seq] == task], np.int64)
        before, steps = steps_of(seqs, np.array([by_seq[seq] for seq in seqs.tolist()], np.int64), 8)
        assert steps.num_rows <= len(seqs)
        assert {seq >> 8 for seq in steps["seq"].to_pylist()} == {seq >> 8 for seq in seqs.tolist()}
        own |= dict(zip(seqs.tolist(), before.tolist(), strict=True))
        told.append(steps)
    steps = pa.concat_tables(told).sort_by("seq")
    seqs = steps["seq"].to_numpy()
    running = running_maximum(seqs >> 8, steps["largest_us"].to_numpy())
    for seq in by_seq:
        known = max(own[seq], int(times_before(seqs, running, 8, np.array([seq]))[0]))
        assert known == max((t for s, t in by_seq.items() if s < seq and s >> 8 == seq >> 8), default=NO_TIME)


def test_a_stretch_in_order_is_one_step() -> None:
    seqs = np.arange(1000, dtype=np.int64) + (3 << 40)
    _, steps = steps_of(seqs, np.arange(1000, dtype=np.int64), 40)
    assert steps.to_pylist() == [{"seq": 999 + (3 << 40), "largest_us": 999}]
