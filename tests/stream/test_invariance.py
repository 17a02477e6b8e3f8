"""Batching, layout, way of the exchange, and order of arrival within the delay must not change a row.

Every run goes through the real source, cells and commit (`tests.support.microbatch`) and is compared with the contract
in plain Python (`streamjoin_ds.testing`), never with another run: results value for value, late tuples with the largest
time before them, the ledger's sums, and the punctuations.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.tuning import ProbeTuning, TailTuning, Tuning
from streamjoin_ds.plan import DEFAULT_EXECUTION, EXCHANGES, Execution, Layout
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Band, Column, Generator, Join, Stream, TimeWindow, bind, equal
from streamjoin_ds.spec.expression.tree import Call, columns_of
from streamjoin_ds.testing.arrivals import late_rows, shuffled_within
from streamjoin_ds.testing.oracle import oracle_join
from streamjoin_ds.testing.values import event_time_us
from tests.engine.scenarios import INT64_MAX, INT64_MIN, TABLE_DOMAINS, Scenario, scenarios
from tests.source.feeds import segment
from tests.support.examples import examples
from tests.support.further import further
from tests.support.microbatch import MicroBatches

LEDGER = ("read", "stored", "late", "rejected", "filtered", "null_keys")
TWO_STREAMS = ("1x1", "1x2", "2x1", "2x2", "2x3")
EXECUTIONS = (DEFAULT_EXECUTION, Execution(threads=3), Execution(index="scan", merge_runs=2))
THREE_STREAMS = ("1x2x1", "2x1x2")


@dataclass(frozen=True)
class Way:
    """How a join is carried out; none of it may change a row."""

    layout: str
    exchange: str
    batch_rows: int
    block_bytes: int = 0  # runs of at least so many bytes are blocks
    tailed_rows: int = 0  # batches of at most so many rows go to the tail
    execution: Execution = DEFAULT_EXECUTION


@st.composite
def ways(draw: st.DrawFn, layouts: tuple[str, ...]) -> Way:
    batch_rows = draw(st.sampled_from((1, 4, 7, 10, 13, 16, 20, 1_000)))
    block_bytes = draw(st.sampled_from((0, 200, 1 << 40)))
    tailed_rows = draw(st.sampled_from((0, 3, 1_024)))
    layout, exchange = draw(st.sampled_from(layouts)), draw(st.sampled_from(EXCHANGES))
    return Way(layout, exchange, batch_rows, block_bytes, tailed_rows, draw(st.sampled_from(EXECUTIONS)))


def few(count: int) -> Any:
    """Return settings with few examples and no shrinking.

    Each example is whole runs with files and commits, tens of milliseconds a batch.
    """
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    return settings(examples(count), phases=phases, suppress_health_check=list(HealthCheck))


def run(scenario: Scenario, way: Way, folder: Path) -> MicroBatches:
    """Write the streams as Parquet files in small row groups, and join them."""
    streams = []
    for stream in scenario.join.streams:
        path = folder / f"{stream.name}.parquet"
        pq.write_table(scenario.tables[stream.name], path, row_group_size=5)
        streams.append(replace(stream, source=path))
    join = Join(streams, scenario.join.predicates, scenario.join.window)
    bound = bind(join, {stream.name: stream.schema for stream in streams})
    batches = MicroBatches(
        bound,
        folder / folder.name,
        Layout.parse(way.layout, len(streams)),
        way.exchange,
        way.batch_rows,
        block_bytes=way.block_bytes,
        execution=way.execution,
    )
    with pytest.MonkeyPatch.context() as patch:
        tail = TailTuning(most_arrived_rows=way.tailed_rows)
        # With few probes, too, threads are used where there are some.
        patch.setattr(CellWindows, "tuning", Tuning(tail=tail, probe=ProbeTuning(few_probes=4)))
        batches.run()
    return batches


def values_of(table: pa.Table) -> Counter[str]:
    """Return rows as a bag of texts: NaN equals itself, -0.0 is not 0.0, times are microseconds."""
    names = sorted(name for name in table.column_names if name != "batch_id")
    columns = [table[name] for name in names]
    columns = [c.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(c.type) else c.to_pylist() for c in columns]
    return Counter(repr(row) for row in zip(*columns, strict=True)) if table.num_rows else Counter()


def expected_rows(rows: list[dict[str, Any]]) -> Counter[str]:
    def plain(value: Any) -> Any:
        return event_time_us(value) if hasattr(value, "hour") else value

    listed = [{**row, "event_time": row["event_time_us"]} for row in rows]
    names = sorted(name for name in (listed[0] if listed else {}) if name != "event_time_us")
    return Counter(repr(tuple(plain(row[name]) for name in names)) for row in listed)


def expected_late(scenario: Scenario) -> Counter[tuple[str, int, int, int]]:
    """Return the late tuples: stream, number, time, and the largest time before it in its own stream."""
    late: Counter[tuple[str, int, int, int]] = Counter()
    for stream in scenario.join.streams:
        times = scenario.tables[stream.name]["t"].to_pylist()
        for number in late_rows(scenario.join, stream.name, scenario.tables[stream.name]):
            largest = max(time for time in times[:number] if time is not None)
            late[stream.name, number, times[number], largest] += 1
    return late


def _is_about_nulls(condition: Call) -> bool:
    """Whether a condition is IS [NOT] DISTINCT FROM."""
    (inner, *_) = condition.args
    negated = condition.op == "not" and isinstance(inner, Call) and inner.op == "same"
    return negated or condition.op == "same"


def expected_ledger(scenario: Scenario) -> dict[str, dict[str, int]]:
    sums = {}
    # Compared columns. A null in one of them, or a NaN in one of a band, keeps the tuple out of every result. A null of
    # IS [NOT] DISTINCT FROM does not: it is not distinct from a null, and distinct from a value.
    compared: dict[str, list[tuple[str, bool]]] = {name: [] for name in scenario.join.names}
    for predicate in scenario.join.predicates:
        if isinstance(predicate, Call) and _is_about_nulls(predicate):
            continue
        columns = (predicate.left, predicate.right) if isinstance(predicate, Band) else columns_of(predicate)
        for column in columns:
            compared[column.stream].append((column.name, isinstance(predicate, Band)))
    for name in scenario.join.names:
        rows = scenario.tables[name].to_pylist()
        late = set(late_rows(scenario.join, name, rows))
        stored = [row for number, row in enumerate(rows) if number not in late and row["t"] is not None]
        empty = sum(
            any(row[key] is None or (in_band and row[key] != row[key]) for key, in_band in compared[name])
            for row in stored
        )
        rejected = sum(row["t"] is None for row in rows)
        sums[name] = {
            "read": len(rows),
            "stored": len(stored),
            "late": len(late),
            "rejected": rejected,
            "filtered": 0,
            "null_keys": empty,
        }
    return sums


def assert_contract(batches: MicroBatches, scenario: Scenario) -> None:
    """Assert that results, late tuples, ledger and punctuations are what the contract says of these streams."""
    if not any(table.num_rows for table in scenario.tables.values()):
        assert batches.batch_id == 0
        return
    matches = batches.matches()
    assert values_of(matches) == expected_rows(oracle_join(scenario.join, scenario.tables))
    late = batches.companion("late")
    times = (late[name].cast(pa.int64()).to_pylist() for name in ("ts", "largest_ts"))
    assert Counter(zip(late["stream"].to_pylist(), late["seq"].to_pylist(), *times, strict=True)) == expected_late(
        scenario
    )
    assert ledger_sums(batches) == expected_ledger(scenario)
    assert_punctuations(batches)


def ledger_sums(batches: MicroBatches) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for row in batches.companion("ledger").to_pylist():
        stream = sums.setdefault(row["stream"], dict.fromkeys(LEDGER, 0))
        for name in stream:
            stream[name] += row[name]
    return sums


def assert_punctuations(batches: MicroBatches) -> None:
    """Assert that each batch has its punctuation, which never goes back, and that no later result is older than it."""
    given_by_batch = batches.companion("punctuations").sort_by("batch_id").to_pylist()
    assert [row["batch_id"] for row in given_by_batch] == list(range(batches.batch_id))
    matches = batches.matches()
    earliest: dict[int, int] = {}
    for batch, time in zip(
        matches["batch_id"].to_pylist(), matches["event_time"].cast(pa.int64()).to_pylist(), strict=True
    ):
        earliest[batch] = min(time, earliest.get(batch, time))
    largest = -math.inf
    for row in given_by_batch:
        assert earliest.get(row["batch_id"], math.inf) >= largest
        if row["punctuation"] is not None:
            punctuation = event_time_us(row["punctuation"])
            assert punctuation is not None
            assert punctuation >= largest
            largest = punctuation
        else:
            assert largest == -math.inf


@st.composite
def with_missing_times(draw: st.DrawFn, base: st.SearchStrategy[Scenario]) -> Scenario:
    """Draw streams in which some tuples have no event time: they are numbered, rejected and counted."""
    scenario = draw(base)
    chooser = random.Random(draw(st.integers(0, 2**32)))
    tables = {}
    for name, table in scenario.tables.items():
        times = [None if chooser.random() < 0.05 else time for time in table["t"].to_pylist()]
        tables[name] = table.set_column(0, table.schema.field(0), pa.array(times, pa.int64()))
    return Scenario(scenario.join, tables)


@few(8)
@given(data=st.data())
def test_two_streams_in_any_way_give_the_contracts_rows(data: st.DataObject) -> None:
    scenario = data.draw(
        with_missing_times(scenarios(streams=(2, 2), rows=20, domains=TABLE_DOMAINS, extreme_times=False))
    )
    for way in data.draw(st.lists(ways(TWO_STREAMS), min_size=1, max_size=2)):
        with tempfile.TemporaryDirectory() as folder:
            assert_contract(run(scenario, way, Path(folder)), scenario)


@pytest.mark.slow
@few(5)
@given(data=st.data())
def test_three_streams_in_any_way_give_the_contracts_rows(data: st.DataObject) -> None:
    scenario = data.draw(
        with_missing_times(scenarios(streams=(3, 3), rows=15, domains=TABLE_DOMAINS, extreme_times=False))
    )
    with tempfile.TemporaryDirectory() as folder:
        assert_contract(run(scenario, data.draw(ways(THREE_STREAMS)), Path(folder)), scenario)


@few(6)
@given(
    scenario=scenarios(
        streams=(2, 2),
        rows=20,
        domains=TABLE_DOMAINS,
        delays=(10, 40),
        extreme_times=False,
        kinds=("time", "periodic"),
    ),
    way=ways(TWO_STREAMS),
    seed=st.integers(0, 2**32),
)
def test_any_order_of_arrival_within_the_delay_gives_the_same_rows(scenario: Scenario, way: Way, seed: int) -> None:
    in_order, arriving = {}, {}
    for stream in scenario.join.streams:
        table = scenario.tables[stream.name].sort_by("t")
        in_order[stream.name] = table
        arriving[stream.name] = table.take(shuffled_within(table["t"].to_pylist(), stream.delay_us, seed))
    numbers = [f"{name}_seq" for name in scenario.join.names]
    expected = [
        {name: value for name, value in row.items() if name not in numbers}
        for row in oracle_join(scenario.join, in_order)
    ]
    with tempfile.TemporaryDirectory() as folder:
        batches = run(Scenario(scenario.join, arriving), way, Path(folder))
        assert values_of(batches.matches().drop_columns(numbers)) == expected_rows(expected)
        assert batches.companion("late").num_rows == 0
        assert_punctuations(batches)


EDGE_FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, None, 5e-324, 1e308, 0.1 + 0.2, 0.3]
EDGE_INTEGERS = [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX, None, 0, 1]


def edges(predicate: Band) -> Scenario:
    """Return streams in which every edge value meets every other at one event time, and none outside the window."""
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("n", pa.int64())])
    columns = [pa.array([7] * 10 + [9] * 10), pa.array(EDGE_FLOATS * 2), pa.array(EDGE_INTEGERS * 2)]
    table = pa.Table.from_arrays(columns, schema=schema)
    streams = [Stream(name, time="t", schema=schema) for name in ("l", "r")]
    return Scenario(Join(streams, [predicate], TimeWindow((1, 1))), {"l": table, "r": table})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "lo", "hi", "matches"),
    [
        ("x", 0, 0, 16),  # the two zeros match each other; an infinity does not match itself: inf - inf is NaN
        ("x", None, None, 20),  # but each of the two is equal to itself
        ("x", -0.0, -0.0, 16),
        ("x", -1e-16, 1e-16, 28),
        ("x", 0.0, 1.7976931348623157e308, 44),
        ("n", 0, 0, 26),
        ("n", 1, 1, 16),
        ("n", -INT64_MAX, 0, 72),
        ("n", -INT64_MAX, INT64_MAX, 118),
    ],
)
def test_edges(column: str, lo: float | None, hi: float | None, matches: int, tmp_path: Path) -> None:
    sides = Column("l", column), Column("r", column)
    scenario = edges(equal(*sides) if lo is None or hi is None else Band(*sides, lo, hi))
    for number, exchange in enumerate(EXCHANGES):
        folder = tmp_path / f"{tmp_path.name}-{exchange}"
        folder.mkdir()
        batches = run(scenario, Way(("1x2", "2x2", "1x1")[number], exchange, (9, 1_000, 40)[number]), folder)
        assert_contract(batches, scenario)
        assert batches.matches().num_rows == matches


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize(
    "window", ["l=5us,r=2us", "l=last 17,r=last 9", "l=every 2us for 5us,r=every 2us for 3us lag 1"]
)
@pytest.mark.parametrize("suffix", ["csv", "json", "csv.gz", "spool"])
def test_text_files_give_the_contracts_rows(
    suffix: str, window: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files have what text can hold: integers and floats to the last bit, gaps, equal times, and late tuples.

    Several tasks read a batch of a plain file, from cuts within it on.
    """
    monkeypatch.setattr("streamjoin_ds.source.files.text_blocks.BLOCK_BYTES", 256)
    monkeypatch.setattr("streamjoin_ds.source.files.file_scan.PART_ROWS", 1)
    chooser = random.Random(suffix)
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("n", pa.int64())])
    integers = [None, INT64_MIN, INT64_MAX, *range(-3, 4)]
    tables = {}
    for name in ("l", "r"):
        rows = [
            {
                "t": n // 2 - chooser.choice((0, 0, 0, 3, 9)) + 10,
                "x": chooser.random() / 3,
                "n": chooser.choice(integers),
            }
            for n in range(40)
        ]
        tables[name] = pa.Table.from_pylist(rows, schema=schema)
        text = _csv(rows) if "csv" in suffix else "".join(json.dumps(row) + "\n" for row in rows)
        data = segment(text.encode().splitlines()) if suffix == "spool" else text.encode()
        (tmp_path / f"{name}.{suffix}").write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    streams = [Stream(name, tmp_path / f"{name}.{suffix}", "t", "4us", schema) for name in ("l", "r")]
    on = [Band(Column("l", "x"), Column("r", "x"), -0.1, 0.05), Band(Column("l", "n"), Column("r", "n"), -1, 1)]
    join = Join(streams, on, window)
    bound = bind(join, {"l": schema, "r": schema})
    scenario = Scenario(join, tables)
    assert expected_late(scenario).total() > 3
    assert len(oracle_join(join, tables)) > 12
    for layout, batch_rows in (("2x1", 13), ("1x1", 1_000)):
        batches = MicroBatches(
            bound, tmp_path / f"{tmp_path.name}-{batch_rows}", Layout.parse(layout, 2), "packed", batch_rows,
            options={"parts": "3"},
        )  # fmt: skip
        batches.run()
        assert_contract(batches, scenario)


def _csv(rows: list[dict[str, Any]]) -> str:
    lines = [",".join("" if value is None else repr(value) for value in row.values()) for row in rows]
    return "\n".join(["t,x,n", *lines, ""])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "exchange", "batch_rows", "window"),
    [
        ("1x1", "packed", 5_000, "3s"),
        ("2x2", "reference", 250, "3s"),
        ("1x2", "packed", 90, "last 60"),
        ("2x1", "packed", 5_000, "i=every 2s for 1s,o=every 2s for 3s lag -1"),
        *further(
            ("1x2", "packed", 90, "3s"),
            ("1x1", "packed", 5_000, "i=last 70,o=last 40"),
            ("2x2", "reference", 250, "last 60"),
            ("2x1", "packed", 90, "every 1s for 3s"),
        ),
    ],
)
def test_generated_sensors_give_the_contracts_rows(
    layout: str, exchange: str, batch_rows: int, window: str, tmp_path: Path
) -> None:
    """The streams have what `streamjoin demo` joins, in small: disorder, late and NaN readings, gaps."""
    parameters = {"rate": 25, "rows": 450, "disorder": "2s", "late": 0.01, "nan": 0.02, "gaps": 0.05}
    streams = [
        Stream(name, Generator("sensor", {**parameters, "seed": seed}), "t", "2s") for seed, name in enumerate("io")
    ]
    join = Join(streams, [Band(Column("i", "temperature"), Column("o", "temperature"), -0.5, 0.5)], window)
    schemas = {stream.name: infer_schema(stream) for stream in streams}
    bound = bind(join, schemas)
    tables = {}
    for number, stream in enumerate(streams):
        feed = open_feed(stream, bound.schemas[number])
        made = pa.Table.from_batches([chunk.tuples for chunk in feed.read(feed.initial(), None)])
        tables[stream.name] = made.rename_columns(
            ["t" if name == "_ts" else name for name in made.column_names]
        ).drop_columns("_seq")
    scenario = Scenario(join, tables)
    assert expected_late(scenario).total() > 3
    batches = MicroBatches(bound, tmp_path, Layout.parse(layout, 2), exchange, batch_rows, options={"parts": "3"})
    batches.run()
    assert batches.matches().num_rows > 500
    assert_contract(batches, scenario)
