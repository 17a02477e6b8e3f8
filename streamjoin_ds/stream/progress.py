"""What Spark's own progress says of a join: ``observedMetrics`` and ``numInputRows`` of a `StreamingQueryProgress`.

The listeners of a query get both. ``numInputRows`` is the sum of what was read. Spark counts the rows of a source's
scan. Those of ``format("sensors")`` in a join stand for blocks, one for each block and cell, and a Python data source
cannot send Spark another number. So the scan's own metric is set here, after its tasks and before Spark reads it:
``foreachBatch`` runs between the two. Rates a second follow from it.

pyspark has no public way to that metric. This file alone uses private names of Spark's Java side: the twin of a
DataFrame, and the list of running queries behind it. Where one is missing (Spark Connect, another version of Spark),
Spark's number stays what it is, and nothing else changes: ``observedMetrics`` and the ledger have the right one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from streamjoin_ds.cell.cell_report import MEASURED_COUNTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OBSERVED", "OBSERVED_METRICS", "observed", "tell_read_rows"]

OBSERVED = "streamjoin"
"""The name under which the metrics stand in ``observedMetrics``."""

OBSERVED_METRICS = (
    "input_rows",
    "stored_rows",
    "late_rows",
    "rejected_rows",
    "filtered_rows",
    "duplicate_rows",
    "lost_offsets",
    "matches",
    "candidates",
    "state_rows",
    "state_bytes",
    "watermark",
    "watermark_lag_s",
    "backlog_rows",
    "backlog_s",
)
"""Names of the metrics of a batch, all streams and cells together.

``input_rows`` is the sum of the stored, late, rejected, filtered and duplicate ones. ``lost_offsets`` counts offsets of
topics that were gone before they were read; they are none of these. ``matches`` are the rows of the cells; those that
the commit puts together from several cells are in the metrics table.

``watermark`` is a timestamp, null where there is none yet. ``watermark_lag_s`` is how far the furthest stream's largest
event time is ahead of it, in seconds. ``backlog_rows`` and ``backlog_s`` are what the source knew and left for later
batches (`streamjoin_ds.source.feed`): records, and how far the newest is ahead of what is read, in seconds of event
time. They are null where Spark plans the batches.
"""

_log = logging.getLogger(__name__)

_METRIC = "numOutputRows"  # of a scan, of which Spark takes `numInputRows`


def observed(reports: DataFrame) -> DataFrame:
    """Return the cells' reports, of which Spark observes `OBSERVED_METRICS` as they pass.

    Parameters
    ----------
    reports : pyspark.sql.DataFrame
        What the cells report, with the columns of `streamjoin_ds.cell.cell_report.REPORT_DDL`.
    """
    from pyspark.sql import functions as f

    sums = len(MEASURED_COUNTS) + 4
    watermark_us, largest_us, backlog_rows, backlog_us = (f.col("measured")[sums + place] for place in range(4))
    least_us = f.min(watermark_us)
    metrics = [
        *(f.sum(f.col("measured")[place]) for place in range(sums)),
        f.timestamp_micros(least_us),
        (f.max(largest_us) - least_us) / 1e6,
        f.max(backlog_rows),
        f.max(backlog_us) / 1e6,
    ]
    return reports.observe(OBSERVED, *(m.alias(name) for m, name in zip(metrics, OBSERVED_METRICS, strict=True)))


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
