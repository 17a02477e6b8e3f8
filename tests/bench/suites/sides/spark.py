"""Spark's own way: one side is exploded into cells of a grid; a stream-stream join takes equal cells and near times.

It comes in two forms: as people write it, with cells as wide as eps (half a band), and tuned, with wider cells. A tuple
of the exploded side is kept once for each cell in which a partner can lie. So wide cells keep fewer copies, but give
more candidates.
"""

from __future__ import annotations

import time
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.spark.session import spark_session
from tests.bench.suites.paths.inputs import SlicedInput
from tests.bench.suites.sides.side import Outcome, SideTask, first_trigger_s
from tests.bench.suites.sides.sql import axes, band_condition
from tests.bench.suites.workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SparkSide", "TunedSparkSide"]

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_POLL_S = 0.1  # seconds between two looks at the sink's commits
# Spark's formats of the join's state, the newest first. Format 4 is behind a flag in Spark 4.2; it reads only the times
# in range.
_STATE_FORMATS = (4, 3, 2)


class SparkSide:
    """A local session on the same cores; state in RocksDB, results as Parquet files, which cost less than Delta."""

    def __init__(self) -> None:
        settings = {
            "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
            "spark.sql.streaming.join.stateFormatV4.enabled": "true",
            "spark.sql.shuffle.partitions": str(usable_core_count()),
        }
        self._spark = spark_session("python -m tests.bench: spark", delta=False, conf=settings)
        self._state_format: int | None = None

    def cell_widths(self, workload: Workload) -> int:
        """Return the width of a grid cell, in units of eps (half a band's width)."""
        return 1

    def run(self, task: SideTask) -> Outcome:
        """Do a task, as `Side.run`; the first run finds out which state format this Spark has."""
        workload, given = task.load()
        formats = _STATE_FORMATS if self._state_format is None else (self._state_format,)
        for number in formats:
            folder = Path(task.folder) / f"format-{number}"
            try:
                outcome = self._joined(task, workload, given, folder, number)
            except Exception as error:
                if number == formats[-1] or not _refuses_format(error):
                    raise
            else:
                self._state_format = number
                return outcome
        raise AssertionError

    def _joined(
        self, task: SideTask, workload: Workload, given: SlicedInput, folder: Path, state_format: int
    ) -> Outcome:
        self._spark.conf.set("spark.sql.streaming.join.stateFormatVersion", str(state_format))
        query = (
            self._result(workload, given, task.slices)
            .writeStream.format("parquet")
            .option("path", str(folder / "matches"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        finished = query.awaitTermination(task.limit_s)
        ended_wall = time.time()
        if not finished:
            finished = _await_batch(query, folder / "matches")
            query.stop()
        batches, committed_wall = _committed(folder / "matches")
        seconds = (ended_wall if finished else committed_wall) - first_trigger_s(folder / "checkpoint")
        # Spark reads only files that its sink has committed.
        matches = self._spark.read.parquet(str(folder / "matches")).count()
        # Spark ends with a batch without rows where its watermark has moved; such a batch takes no slice.
        slices = min(batches, task.slices)
        note = f"grid cells of {self.cell_widths(workload)} x eps, RocksDB, state format {state_format}"
        return Outcome(given.row_count(slices), matches, seconds, slices, given.ends_us[slices - 1], note)

    def _result(self, workload: Workload, given: SlicedInput, slices: int) -> DataFrame:
        from pyspark.sql import functions as sf

        join = workload.join
        grid = axes(join, self.cell_widths(workload))
        left, right = (self._stream(given, number, workload, slices) for number in range(2))
        names = join.names

        def column(stream: int) -> Any:
            return lambda name: f"`{names[stream]}_{name}`"

        for number, axis in enumerate(grid):
            own = f"CAST({axis.left_cell(column(0)(axis.left))} AS INT)"
            first, last = (f"CAST({text} AS INT)" for text in axis.right_cells(column(1)(axis.right)))
            left = left.withColumn(f"left_cell_{number}", sf.expr(own))
            right = right.withColumn(f"right_cell_{number}", sf.explode(sf.expr(f"sequence({first}, {last})")))
        times = [f"`{names[number]}_{stream.time}`" for number, stream in enumerate(join.streams)]
        conditions = [sf.col(f"left_cell_{number}") == sf.col(f"right_cell_{number}") for number in range(len(grid))]
        conditions += [sf.expr(band_condition(axis, column(0), column(1))) for axis in grid]
        for one, other, extent in ((0, 1, join.window.extent(1)), (1, 0, join.window.extent(0))):
            conditions.append(sf.expr(f"{times[one]} <= {times[other]} + INTERVAL '{extent / 1e6:.6f}' SECOND"))
        joined = left.join(right, reduce(and_, conditions))
        helpers = ("left_cell_", "right_cell_")
        return joined.select(*(f"`{name}`" for name in joined.columns if not name.startswith(helpers)))

    def _stream(self, given: SlicedInput, number: int, workload: Workload, slices: int) -> DataFrame:
        """Return a stream with one slice for each trigger; rows with null keys leave before they become state."""
        stream = workload.join.streams[number]
        files = given.files(stream.name, slices)
        folder = str(Path(files[0]).parent)
        schema = self._spark.read.parquet(files[0]).schema
        wanted = f"part-{{{','.join(f'{slice_number:05d}' for slice_number in range(slices))}}}.parquet"
        frame = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{wanted}")
        frame = frame.toDF(*(f"{stream.name}_{name}" for name in frame.columns))
        keys = [(axis.left, axis.right)[number] for axis in axes(workload.join, self.cell_widths(workload))]
        known = " AND ".join(f"`{stream.name}_{key}` IS NOT NULL" for key in keys)
        return frame.where(known).withWatermark(f"{stream.name}_{stream.time}", "0 seconds")

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()


class TunedSparkSide(SparkSide):
    """Spark's own way with the cells that were best by measurement."""

    def cell_widths(self, workload: Workload) -> int:
        """Return the width of the workload's best cells, in units of eps."""
        return workload.cell_widths


def _committed(table: Path) -> tuple[int, float]:
    """Return how many batches Spark's file sink has committed, and when it committed the last (wall clock)."""
    entries = [path for path in (table / "_spark_metadata").glob("[0-9]*")]
    numbers = {int(path.name.partition(".")[0]): path.stat().st_mtime for path in entries}
    return (max(numbers) + 1, numbers[max(numbers)]) if numbers else (0, 0.0)


def _await_batch(query: StreamingQuery, table: Path) -> bool:
    """Wait for the commit of the batch that is under way; return True if the query ended instead."""
    batches, _ = _committed(table)
    while _committed(table)[0] == batches:
        if not query.isActive:
            return bool(query.awaitTermination())
        time.sleep(_POLL_S)
    return False


def _refuses_format(error: Exception) -> bool:
    return "stateFormat" in str(error) or "state format" in str(error).lower()
