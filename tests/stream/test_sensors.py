"""The data source inside Spark: batch, streaming, limits, commits.

These tests are slow, so they are few; the other tests of the source need no Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamjoin_ds.spark.release import has_admission
from streamjoin_ds.stream.sensors import SensorsDataSource
from tests.exchange.test_exchange import planned
from tests.source.feeds import csv_text, rows, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLIGHTS = Path(__file__).parents[3] / "shared" / "data" / "swiss_flights"
ROWS = {"eastbound": 60_015, "westbound": 79_083}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(SensorsDataSource)
    return spark


@pytest.mark.shared
@pytest.mark.skipif(not FLIGHTS.is_dir(), reason="needs ../shared/data")
def test_flights_as_a_table_and_as_a_stream(session: SparkSession, tmp_path: Path) -> None:
    table = session.read.format("sensors").load(str(FLIGHTS / "eastbound.csv.gz"))
    assert table.count() == ROWS["eastbound"]
    assert dict(table.dtypes)["latitude"] == "double"
    assert dict(table.dtypes)["ts"] == "timestamp"
    stream = (
        session.readStream.format("sensors")
        .option("max_rows_per_batch", "20000")
        .load(str(FLIGHTS / "westbound.csv.gz"))
    )
    query = (
        stream.writeStream.format("memory")
        .queryName("westbound")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sizes == ([20_000, 20_000, 20_000, 19_083] if has_admission() else [20_000])  # (docs/platforms.md)
    assert session.table("westbound").count() == (ROWS["westbound"] if has_admission() else 20_000)


def test_a_stream_goes_on_where_it_stopped(session: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    write(inbox / "1.csv", rows(5))
    seen: list[int] = []

    def run() -> None:
        stream = session.readStream.format("sensors").load(str(inbox))
        writer = stream.writeStream.foreachBatch(lambda frame, _: seen.extend(r["_seq"] for r in frame.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True)
        writer.start().awaitTermination(60)

    run()
    assert sorted(seen) == [0, 1, 2, 3, 4]
    with (inbox / "1.csv").open("a") as file:
        file.write(csv_text(rows(1, 5), header=False))
    write(inbox / "2.csv", rows(2, 6))
    run()
    assert sorted(seen) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_exchange_rows_in_spark_and_blocks_gone_after_commit(session: SparkSession, tmp_path: Path) -> None:
    plan = planned(tmp_path)
    frame = (
        session.readStream.format("sensors").option("plan", plan.to_json()).option("max_rows_per_batch", "40").load()
    )
    read: dict[int, int] = {}
    blocks: dict[int, int] = {}

    def look(batch, number: int) -> None:  # type: ignore[no-untyped-def]
        read[number] = sum(row["read"] for row in batch.collect())
        blocks[number] = len(list(Path(plan.block_root, "exchange").iterdir()))

    query = (
        frame.writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
    )
    query.start().awaitTermination(120)
    assert list(read.values()) == ([40, 40, 40, 22] if has_admission() else [40])
    assert max(blocks.values()) <= 2 * blocks[0] + 2  # the blocks of a batch are gone when the next batch has been read
