"""Our full path: `StreamJoin.start` from source to committed Delta table, until the input ends."""

from __future__ import annotations

import time
from pathlib import Path

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream.commit import BatchSummary, watch
from tests.bench.suites.sides.side import Outcome, SideTask, first_trigger_s

__all__ = ["StreamJoinSide"]


class StreamJoinSide:
    """Our own side, in the session that every user of this package gets by default."""

    def __init__(self) -> None:
        self._spark = spark_session("python -m tests.bench")

    def run(self, task: SideTask) -> Outcome:
        """Do a task, as `Side.run`; the matches are counted in the committed table."""
        from deltalake import DeltaTable

        workload, given = task.load()
        # In Spark's own way each trigger takes one slice: this gives about as many batches.
        rows_per_batch = workload.max_rows_per_batch or -(-given.row_count(workload.slices) // workload.slices)
        table = Path(task.folder) / "matches"
        batches: list[BatchSummary] = []
        with watch(batches.append):
            query = workload.join.start(
                self._spark,
                table,
                Path(task.folder) / "checkpoint",
                available_now=True,
                max_rows_per_batch=rows_per_batch,
            )
            query.awaitTermination()
        seconds = time.time() - first_trigger_s(Path(task.folder) / "checkpoint")
        rows = sum(sum(batch.read.values()) for batch in batches)
        matches = scanned(DeltaTable(str(table))).count_rows()
        note = f"at most {rows_per_batch:,} rows a batch, Delta"
        return Outcome(rows, matches, seconds, len(batches), None, note)

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()
