"""What Spark tells a task about the batch that it works for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TaskFacts"]


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The batch and the query that a task works for.

    Attributes
    ----------
    batch_id : int
    query_id : str
    time_ms : int
        When Spark planned the batch, in milliseconds since 1970. It stands in Spark's offset log, so a batch that is
        done again has the time that it had before.
    """

    batch_id: int
    query_id: str
    time_ms: int = 0

    @classmethod
    def current(cls, time_ms: int = 0) -> TaskFacts:
        """Return what Spark tells the running task; `time_ms` is what its state tells."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a cell function runs in a task"
        batch_id, query_id = (
            context.getLocalProperty(key) for key in ("streaming.sql.batchId", "sql.streaming.queryId")
        )
        return cls(int(batch_id or 0), query_id or "", time_ms)
