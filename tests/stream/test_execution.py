"""Threads, index, order and merge ratio of the cells: no row depends on them, and a restart may change each of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Generator, Stream, StreamJoin
from streamjoin_ds.blocks import Cache
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.tuning import ProbeTuning, TailTuning, ThreadTuning, Tuning
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.plan import DEFAULT_EXECUTION, Execution, Layout
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import bind
from streamjoin_ds.stream.query_options import QueryOptions
from tests.support.microbatch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("a", "b", "c")
EXECUTIONS = (
    Execution(threads=2),
    Execution("scalar", 3, index="scan", order="c,a,b"),
    Execution(index=["a.temperature", "b.ts", "b.temperature"], merge_runs=2),
    Execution("reference", merge_runs=50, order=["b", "c", "a"]),
    DEFAULT_EXECUTION,
)


def three_sensors(rows: int = 160) -> StreamJoin:
    streams = [
        Stream(name, Generator("sensor", {"rows": rows, "rate": 40, "seed": seed}), time="ts", delay="1s")
        for seed, name in enumerate(NAMES)
    ]
    near = ["abs(a.temperature - b.temperature) <= 0.6", "abs(b.temperature - c.temperature) <= 0.6"]
    return StreamJoin(streams, near, "2s")


def joined(folder: Path, executions: tuple[Execution, ...]) -> list[str]:
    """Return all matches; each batch has the next of these executions, as if a restart came before it."""
    join = three_sensors()
    bound = bind(join, {stream.name: infer_schema(stream) for stream in join.streams})
    batches = MicroBatches(bound, folder, Layout.parse("1x2x1", 3), max_rows_per_batch=90)
    batches.reader.prepareForTriggerAvailableNow()
    rest = cycle(executions)
    while batches.step():
        batches.plan = replace(batches.plan, execution=next(rest))
    return rows_of(batches.matches())


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(str, table.drop_columns(["batch_id"]).to_pylist()))


@pytest.fixture
def many_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use all threads for batches of any size, and make small batches runs too."""
    monkeypatch.setattr(run_store, "worker_cache", Cache(1 << 30))
    probe, threads = ProbeTuning(few_probes=4, least_part_ns=100.0), ThreadTuning(worth_ns=1)
    tuning = Tuning(tail=TailTuning(most_arrived_rows=0), probe=probe, threads=threads)
    monkeypatch.setattr(CellWindows, "tuning", tuning)


@pytest.mark.slow
@pytest.mark.usefixtures("many_small_pieces")
def test_no_row_depends_on_the_execution_nor_on_its_changes(tmp_path: Path) -> None:
    expected = joined(tmp_path / "plain", (DEFAULT_EXECUTION,))
    assert len(expected) > 300
    for number, execution in enumerate(EXECUTIONS[:-1]):
        assert joined(tmp_path / str(number), (execution,)) == expected
    assert joined(tmp_path / "changing", EXECUTIONS) == expected


@pytest.mark.usefixtures("many_small_pieces")
@pytest.mark.parametrize(("execution", "expected"), [(DEFAULT_EXECUTION, {1}), (Execution(threads=3, pin=False), {3})])
def test_the_metrics_say_how_many_threads_a_cell_had(tmp_path: Path, execution: Execution, expected: set[int]) -> None:
    join = three_sensors(60)
    bound = bind(join, {stream.name: infer_schema(stream) for stream in join.streams})
    batches = MicroBatches(bound, tmp_path, Layout.parse("1x2x1", 3), max_rows_per_batch=90, execution=execution)
    batches.run()
    told = batches.companion("metrics").to_pylist()
    assert {row["cell"] for row in told} == {0, 1}
    assert {row["threads"] for row in told} == expected


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"threads": 0}, ArgumentError, "threads"),
        ({"threads": 1000}, ArgumentError, "threads"),
        ({"merge_runs": 1}, ArgumentError, "merge_runs"),
        ({"order": "a,b"}, ArgumentError, "order"),
        ({"order": ["a", "b", "c", "c"]}, ArgumentError, "order"),
        ({"index": {"z": "scan"}}, ArgumentError, "index"),
        ({"index": "a.temperature,a.ts,a.humidity"}, ColumnError, "humidity"),
        ({"index": ["a.temperature", "a.temperature"]}, ArgumentError, "index"),
        ({"kernel": "mmx"}, ArgumentError, "kernel"),
    ],
)
def test_what_the_engine_would_refuse_is_refused_before_anything_runs(
    options: dict[str, Any], error: type[Exception], name: str
) -> None:
    with pytest.raises(error) as caught:
        three_sensors().explain(execution=Execution(**options))
    assert caught.value.name == name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_delay": "soon"}, "max_delay"),
        ({"max_delay": "0s"}, "max_delay"),
        ({"max_delay": "1s", "trigger": "1s"}, "max_delay"),
        ({"max_delay": "1s", "trigger": "1500ms"}, "max_delay"),
    ],
)
def test_a_bound_of_delays_that_nothing_can_keep_is_refused(options: dict[str, str], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        QueryOptions(**options)  # type: ignore[arg-type]
    assert caught.value.name == name
    assert QueryOptions(max_delay="1s", trigger="500ms").max_delay == "1s"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.delta
def test_a_bound_of_delays_cuts_batches_otherwise_and_gives_the_same_rows_on_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    join = StreamJoin(
        [Stream(side, Generator("band2d", {"side": side, "rate": 2000, "rows": 12_000, "seed": 3})) for side in "rs"],
        "abs(r.x - s.a) <= 60 AND abs(r.y - s.b) <= 60",
        "2s",
    )
    found, batches = [], []
    for max_delay in (None, "1s"):
        to, checkpoint = tmp_path / f"m{max_delay}", tmp_path / f"c{max_delay}"
        query = join.start(spark, to, checkpoint, layout="1x2", available_now=True, max_delay=max_delay)
        query.awaitTermination()
        found.append(rows_of(scanned(DeltaTable(str(to))).to_table()))
        metrics = scanned(DeltaTable(f"{to}_metrics")).to_table()
        batches.append(metrics.group_by("batch_id").aggregate([("max_delay_us", "max")]).sort_by("batch_id"))
    assert len(found[0]) > 1000
    assert found[1] == found[0]
    assert batches[0]["max_delay_us_max"].to_pylist() == [None]
    assert len(batches[1]) >= 3, "the first two have 2 000 rows each"
    assert set(batches[1]["max_delay_us_max"].to_pylist()) == {1_000_000}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.delta
def test_any_number_of_threads_gives_the_same_rows_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = 12_000
    join = StreamJoin(
        [Stream(side, Generator("band2d", {"side": side, "rate": 2000, "rows": rows, "seed": 3})) for side in "rs"],
        "abs(r.x - s.a) <= 60 AND abs(r.y - s.b) <= 60",
        "2s",
    )
    found = []
    for threads in (1, 2, 3):
        to, checkpoint = tmp_path / f"m{threads}", tmp_path / f"c{threads}"
        query = join.start(
            spark, to, checkpoint, threads=threads, layout="1x2", available_now=True, max_rows_per_batch=8000
        )
        query.awaitTermination()
        found.append(rows_of(scanned(DeltaTable(str(to))).to_table()))
    assert len(found[0]) > 1000
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.delta
def test_a_restart_may_change_all_of_it_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    expected = joined(tmp_path / "expected", (DEFAULT_EXECUTION,))
    join, to = three_sensors(), tmp_path / "matches"
    for number, execution in enumerate(EXECUTIONS):
        query = join.start(
            spark, to, tmp_path / "checkpoint", layout="1x2x1", max_rows_per_batch=90, execution=execution
        )
        is_last = number == len(EXECUTIONS) - 1
        while not is_last and len(query.recentProgress) < 2 and query.isActive:
            query.awaitTermination(0.1)  # type: ignore[arg-type]
        if is_last:
            query.processAllAvailable()
        query.stop()
        assert query.exception() is None
    assert rows_of(scanned(DeltaTable(str(to))).to_table()) == expected
