"""Records that a batch read, for ``numInputRows`` of Spark's own progress.

Spark counts the rows of a source's scan. Those of ``format("sensors")`` in a join stand for blocks, one for each block
and cell, and a Python data source cannot tell Spark another number. So the scan's own metric is set here, after its
tasks and before Spark reads it: ``foreachBatch`` runs between the two. Rates a second follow from it.

pyspark has no public way to that metric. This file alone uses private names of Spark's Java side: the twin of a
DataFrame, and the list of running queries behind it. Where one is missing (Spark Connect, another version of Spark),
Spark's number stays what it is, and nothing else changes: ``observedMetrics`` and the ledger have the right one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["tell_read_rows"]

_log = logging.getLogger(__name__)

_METRIC = "numOutputRows"  # of a scan, of which Spark takes `numInputRows`


def tell_read_rows(frame: DataFrame, query_id: str, rows: int) -> bool:
    """Have Spark's progress say how many records the running batch read; return whether it does.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        The batch, as ``foreachBatch`` has it, after its rows were collected.
    query_id : str
        The query's id, which it keeps over restarts.
    rows : int
        Records that were read, of all streams: they are one source to Spark.
    """
    java_frame = getattr(frame, "_jdf", None)
    if java_frame is None:  # Spark Connect
        return False
    try:
        metrics = _scan_metrics(java_frame, query_id)
        if len(metrics) == 1:
            metrics[0].set(rows)
    except Exception as error:  # whatever a version of Spark lacks: a display must not stop a batch
        _log.debug("numInputRows counts blocks: %s", type(error).__name__)
        return False
    return len(metrics) == 1


def _scan_metrics(java_frame: Any, query_id: str) -> list[Any]:
    """Return the counts of rows of the scans of a query's running batch, as Java objects."""
    running = java_frame.sparkSession().sharedState().activeStreamingQueries().values()
    query = next(one for one in running if one.id().toString() == query_id)
    leaves = query.lastExecution().executedPlan().collectLeaves()
    found = []
    for place in range(leaves.size()):
        metrics = leaves.apply(place).metrics()
        if metrics.contains(_METRIC):
            found.append(metrics.apply(_METRIC))
    return found
