"""Our full path, under Spark and without it, from source to committed Delta table, until the input ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream.commit import BatchSummary, watch
from streamjoin_ds.stream.join import StreamJoin
from tests.bench.suites.sides.side import Outcome, SideTask, first_trigger_s

__all__ = ["LocalSide", "StreamJoinSide"]


class LocalSide:
    """Our own side in one process, without Spark."""

    def run(self, task: SideTask) -> Outcome:
        """Do a task, as `Side.run`; the matches are counted in the committed table."""
        from deltalake import DeltaTable

        workload, given = task.load()
        # In Spark's own way each trigger takes one slice: this gives about as many batches.
        rows_per_batch = workload.max_rows_per_batch or -(-given.row_count(workload.slices) // workload.slices)
        table = Path(task.folder) / "matches"
        batches: list[BatchSummary] = []
        with watch(batches.append):
            checkpoint = Path(task.folder) / "checkpoint"
            query = self._started(workload.join, table, checkpoint, rows_per_batch)
            query.awaitTermination()
        seconds = time.time() - first_trigger_s(checkpoint)
        rows = sum(sum(batch.read.values()) for batch in batches)
        matches = scanned(DeltaTable(str(table))).count_rows()
        note = f"at most {rows_per_batch:,} rows a batch, Delta"
        return Outcome(rows, matches, seconds, len(batches), None, note)

    def close(self) -> None:
        """Do nothing: a run leaves nothing behind."""

    def _started(self, join: StreamJoin, table: Path, checkpoint: Path, most: int) -> Any:
        return join.run_local(table, checkpoint, available_now=True, max_rows_per_batch=most)


class StreamJoinSide(LocalSide):
    """Our own side, in a session as `streamjoin run` makes it."""

    def __init__(self) -> None:
        self._spark = spark_session("python -m tests.bench", quick_compiler=True)

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()

    def _started(self, join: StreamJoin, table: Path, checkpoint: Path, most: int) -> Any:
        return join.start(self._spark, table, checkpoint, available_now=True, max_rows_per_batch=most)
