"""Spark's own join over two topics of JSON, by its own Kafka source, in a process of its own, as `topic_query` tells.

It is tuned as Spark's side of the other benchmarks is (`bench.sides.spark`): state in RocksDB, equal grid cells to find
pairs, results as Parquet files. Java compiles with both of its compilers, since the rows pass through it.
"""

from __future__ import annotations

import json
import sys
import time
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.spark.session import spark_session
from tests.bench.suites.processes import answers
from tests.bench.suites.sides.sql import axes, band_condition
from tests.bench.suites.topics.topic_load import TopicLoad

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["main"]

# A partition may be ahead of another by some messages, and Spark's watermark goes by the furthest.
_WATERMARK = "1 second"
_CELL_WIDTHS = 2  # of a grid cell, in units of eps
_SCHEMA = "ts LONG, number LONG, x INT, y INT"


def main(text: str) -> None:
    """Run the query that `text` describes, to its end."""
    import pyspark

    answer = answers()
    given = json.loads(text)
    folder, load = Path(given["folder"]), TopicLoad(**given["load"])
    settings = {
        "spark.jars.packages": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.join.stateFormatV4.enabled": "true",  # the newest: it reads only the times in range
        "spark.sql.streaming.join.stateFormatVersion": "4",
        "spark.sql.shuffle.partitions": str(usable_core_count()),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    session = spark_session("python -m tests.bench kafka: spark", delta=False, conf=settings)
    table = folder / "matches"
    query = (
        _joined(session, load, given["batch_rows"] // 2)
        .writeStream.format("parquet")
        .option("path", str(table))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ended_s = time.time()
    matches = session.read.parquet(str(table)).count()
    commits = sorted((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    times = [path.stat().st_mtime for path in commits] or [ended_s]
    read = {entry.batchId: entry.numInputRows for entry in query.recentProgress}
    for number, at_s in enumerate(times):
        found = matches if number == len(times) - 1 else 0
        answer({"at_s": at_s, "read": read.get(number, 0), "matches": found})
    session.stop()


def _joined(session: SparkSession, load: TopicLoad, offsets: int) -> DataFrame:
    from pyspark.sql import functions as sf

    grid = axes(load.join(), _CELL_WIDTHS)
    left, right = (_stream(session, load, side, offsets) for side in (0, 1))

    def column(side: str) -> Any:
        return lambda name: f"{side}_{name}"

    for number, axis in enumerate(grid):
        own = f"CAST({axis.left_cell(column('r')(axis.left))} AS INT)"
        first, last = (f"CAST({text} AS INT)" for text in axis.right_cells(column("s")(axis.right)))
        left = left.withColumn(f"left_cell_{number}", sf.expr(own))
        right = right.withColumn(f"right_cell_{number}", sf.explode(sf.expr(f"sequence({first}, {last})")))
    conditions = [sf.col(f"left_cell_{number}") == sf.col(f"right_cell_{number}") for number in range(len(grid))]
    conditions += [sf.expr(band_condition(axis, column("r"), column("s"))) for axis in grid]
    window = load.join().window.extent(0) / 1e6
    for one, other in (("r_ts", "s_ts"), ("s_ts", "r_ts")):
        conditions.append(sf.expr(f"{one} <= {other} + INTERVAL '{window:.6f}' SECOND"))
    joined = left.join(right, reduce(and_, conditions))
    return joined.select(*(name for name in joined.columns if "_cell_" not in name))


def _stream(session: SparkSession, load: TopicLoad, side: int, offsets: int) -> DataFrame:
    from pyspark.sql import functions as sf

    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", load.servers)
    source = source.option("subscribe", load.topics[side]).option("startingOffsets", "earliest")
    frame = source.option("maxOffsetsPerTrigger", offsets).load()
    row = frame.select(sf.from_json(frame["value"].cast("string"), _SCHEMA).alias("row")).select("row.*")
    row = row.withColumn("ts", sf.timestamp_micros("ts"))
    return row.toDF(*(f"{'rs'[side]}_{name}" for name in row.columns)).withWatermark(f"{'rs'[side]}_ts", _WATERMARK)


if __name__ == "__main__":
    main(sys.argv[1])
