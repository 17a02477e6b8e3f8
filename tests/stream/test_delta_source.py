"""Joins over Delta tables: one that grows and is optimized, and the results of one join as the input of the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.checkpoint.inspection import inspected
from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.reader import complete, ordered, scanned
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Join, bind
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.testing.oracle import oracle_join
from streamjoin_ds.testing.values import event_time_us
from tests.support.microbatch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_US = 1_704_067_200_000_000
READING = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64()), ("y", pa.float64())])


def readings(first: int, last: int, step: int) -> pa.Table:
    """Return readings a second apart, every seventh two seconds older than its place says."""
    numbers = range(first, last)
    times = [START_US + (n - 2 * (n % 7 == 6)) * 1_000_000 for n in numbers]
    columns = [times, [n * step % 11 for n in numbers], [n / 4 for n in numbers]]
    return pa.table([pa.array(v, one.type) for v, one in zip(columns, READING, strict=True)], schema=READING)


def grow(folder: Path, first: int, last: int) -> None:
    """Append readings to each table as one version."""
    for name, step in (("l", 3), ("r", 7)):
        write_deltalake(str(folder / name), readings(first, last, step), mode="append")


def near(folder: Path, window: str = "6s", **more: Any) -> StreamJoin:
    streams = [Stream(name, folder / name, delay="1s", **more) for name in ("l", "r")]
    return StreamJoin(streams, on="abs(l.x - r.x) <= 1", window=window)


def batches_of(join: StreamJoin, folder: Path, rows: int, layout: str = "1x2") -> MicroBatches:
    streams = {stream.name: infer_schema(stream) for stream in join.streams}
    bound = bind(Join(join.streams, join.predicates, join.window, join.select), streams)
    return MicroBatches(bound, folder, Layout.parse(layout, 2), max_rows_per_batch=rows)


def rows_of(table: pa.Table) -> list[str]:
    """Return rows as texts, without their batches, sorted."""
    found = table.drop_columns(["batch_id"]).to_pylist()
    return sorted(repr(sorted((name, plain(value)) for name, value in row.items())) for row in found)


def plain(value: Any) -> Any:
    return event_time_us(value) if hasattr(value, "hour") else value


def by_oracle(join: StreamJoin, tables: dict[str, Any]) -> list[str]:
    results = oracle_join(Join(join.streams, join.predicates, join.window, join.select), tables)
    found = [{**row, "event_time": row["event_time_us"]} for row in results]
    return sorted(
        repr(sorted((name, plain(value)) for name, value in row.items() if name != "event_time_us")) for row in found
    )


def whole(last: int) -> dict[str, pa.Table]:
    return {"l": readings(0, last, 3), "r": readings(0, last, 7)}


@pytest.mark.parametrize(("window", "rows", "layout"), [("6s", 17, "2x1"), ("6s", 500, "1x2"), ("last 9", 23, "1x2")])
def test_a_growing_table_is_joined_as_the_oracle_joins_it(tmp_path: Path, window: str, rows: int, layout: str) -> None:
    grow(tmp_path, 0, 60)
    run = batches_of(near(tmp_path, window), tmp_path / "query", rows, layout)
    while run.step():
        pass
    for first in (60, 90):
        grow(tmp_path, first, first + 30)
        for name in ("l", "r"):
            DeltaTable(str(tmp_path / name)).optimize.compact()
        while run.step():
            pass
    if window == "6s":
        assert rows_of(run.matches()) == by_oracle(near(tmp_path, window), whole(120))
    assert len(rows_of(run.matches())) > 100
    ledger = run.companion("ledger").to_pylist()
    assert sum(row["read"] for row in ledger) == 240
    # The version at which the stream begins was decided once, so the ledger keeps each position.
    assert all("position" in json.loads(row["decided"]) for row in ledger)


def test_a_self_join_of_a_table_leaves_out_each_row_with_itself(tmp_path: Path) -> None:
    grow(tmp_path, 0, 40)
    streams = [Stream(name, tmp_path / "l", delay="1s") for name in ("a", "b")]
    join = StreamJoin(streams, on="abs(a.x - b.x) <= 1", window="6s")
    run = batches_of(join, tmp_path / "query", 13)
    run.run()
    table = readings(0, 40, 3)
    assert rows_of(run.matches()) == by_oracle(join, {"a": table, "b": table})


def chained(folder: Path, **more: Any) -> StreamJoin:
    """Return the join of the first join's results with the readings of r."""
    streams = [Stream("m", folder / "matches", time="event_time", **more), Stream("q", folder / "r", delay="1s")]
    return StreamJoin(streams, on="abs(m.l_y - q.y) <= 0.5", window="4s", select=["m.l_y", "m.r_x", "q.y"])


def chained_rows(folder: Path, last: int) -> list[str]:
    """Return the second join's rows as the oracle finds them over the first one's complete results, in their order."""
    first = ordered(complete(str(folder / "matches")))
    assert first.num_rows > 50
    join = chained(folder)
    kept = {"m_l_y", "m_r_x", "q_y", "m_seq", "q_seq", "event_time"}
    rows = by_oracle_rows(join, {"m": first.drop_columns(["batch_id"]), "q": readings(0, last, 7)})
    return sorted(repr(sorted((name, plain(row[name])) for name in kept)) for row in rows)


def by_oracle_rows(join: StreamJoin, tables: dict[str, Any]) -> list[dict[str, Any]]:
    results = oracle_join(Join(join.streams, join.predicates, join.window), tables)
    return [{**row, "event_time": row["event_time_us"]} for row in results]


@pytest.mark.parametrize(("first_rows", "second_rows"), [(20, 1_000), (1_000, 15), (33, 7)])
def test_results_are_the_next_joins_input(tmp_path: Path, first_rows: int, second_rows: int) -> None:
    """No row of the second join depends on how either join was cut into batches; nothing of the first is late."""
    grow(tmp_path, 0, 80)
    first = batches_of(near(tmp_path), tmp_path, first_rows)
    for _ in range(3):
        first.step()
    second = batches_of(chained(tmp_path), tmp_path / "second", second_rows)
    while second.step():
        pass
    grow(tmp_path, 80, 110)
    while first.step():
        pass
    DeltaTable(str(tmp_path / "matches")).optimize.compact()
    while second.step():
        pass
    assert rows_of(second.matches()) == chained_rows(tmp_path, 110)
    late = second.companion("late").to_pylist()
    assert {row["stream"] for row in late} <= {"q"}


def test_what_explain_says_of_tables(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    said = near(tmp_path).explain()
    assert "table       l: begins with the rows that it has, then by version; deletes and updates stop" in said
    said = near(tmp_path, starting_version="latest", on_change="ignore").explain()
    assert "table       r: begins after its newest version, then by version; deletes and updates are ignored" in said


def test_options_of_tables_are_delta_s(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    path = str(tmp_path / "l")
    given = {"path": path, "startingVersion": "0", "on_change": "Ignore"}
    (stream,) = SourceOptions.parse(given).streams
    assert (stream.source.starting_version, stream.source.on_change, stream.source.format) == (0, "ignore", "delta")
    (stream,) = SourceOptions.parse({"path": path, "startingTimestamp": "2026-01-31"}).streams
    assert stream.source.starting_timestamp == "2026-01-31T00:00:00+00:00"


@pytest.mark.delta
@pytest.mark.long
def test_a_chain_of_joins_over_a_table_that_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Spark appends, deletes before the start, optimizes and appends again; each start goes on where the last ended."""

    def append(first: int, last: int) -> None:
        for name, step in (("l", 3), ("r", 7)):
            frame = spark.createDataFrame(readings(first, last, step).to_pandas())
            writer = frame.coalesce(1).write.format("delta").mode("append")
            writer.option("delta.enableDeletionVectors", "true").save(str(tmp_path / name))

    def run(join: StreamJoin, name: str) -> None:
        query = join.start(
            spark, tmp_path / name, tmp_path / f"{name}-ckpt", available_now=True, max_rows_per_batch=70, cells=2
        )
        query.awaitTermination()

    append(0, 60)
    # A deletion vector marks these rows before the stream begins; they are put back behind the others.
    spark.sql(f"DELETE FROM delta.`{tmp_path}/l` WHERE y >= 14")
    frame = spark.createDataFrame(readings(56, 60, 3).to_pandas())
    frame.coalesce(1).write.format("delta").mode("append").save(str(tmp_path / "l"))
    assert list((tmp_path / "l").glob("deletion_vector_*"))
    run(near(tmp_path), "matches")
    run(chained(tmp_path), "second")
    append(60, 90)
    for name in ("l", "r"):
        spark.sql(f"OPTIMIZE delta.`{tmp_path}/{name}`")
    append(90, 120)
    run(near(tmp_path), "matches")
    run(chained(tmp_path), "second")
    matches = scanned(DeltaTable(str(tmp_path / "matches"))).to_table()
    assert rows_of(matches) == by_oracle(near(tmp_path), whole(120))
    second = scanned(DeltaTable(str(tmp_path / "second"))).to_table()
    assert rows_of(second) == chained_rows(tmp_path, 120)
    told = inspected(lambda: spark, str(tmp_path / "matches-ckpt")).next_versions
    assert told == {name: DeltaTable(str(tmp_path / name)).version() + 1 for name in ("l", "r")}
    rows = spark.read.format("sensors").option("time", "ts").load(str(tmp_path / "l")).collect()
    assert len(rows) == 120
