"""Metrics of a join in Spark's own progress: ``observedMetrics`` of a `StreamingQueryProgress`, and of its listeners.

``numInputRows`` of the same progress is the sum of what was read too; `streamjoin_ds.stream.read_rows` says how, and
where it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["OBSERVED", "OBSERVED_METRICS", "observed"]


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

_COUNTS = ("read", "stored", "late", "rejected", "filtered", "duplicates", "lost_offsets")
_FACTS_DDL = (
    f"ledger ARRAY<STRUCT<{', '.join(f'{name}: BIGINT' for name in _COUNTS)}>>, largest_us ARRAY<BIGINT>, "
    "watermark_us BIGINT, matches BIGINT, candidates BIGINT, state_rows BIGINT, state_bytes BIGINT, "
    "backlog_rows BIGINT, backlog_us BIGINT"
)


def observed(reports: DataFrame) -> DataFrame:
    """Return the cells' reports, of which Spark observes `OBSERVED_METRICS` as they pass.

    Parameters
    ----------
    reports : pyspark.sql.DataFrame
        What the cells report, with the columns of `streamjoin_ds.cell.cell_report.REPORT_DDL`.
    """
    from pyspark.sql import functions as f

    facts = f.from_json(f.when(f.col("kind") == "cell", f.col("facts")), _FACTS_DDL)

    def summed(name: str) -> Column:
        of_streams = facts["ledger"][name]
        return f.sum(f.aggregate(of_streams, f.lit(0).cast("bigint"), lambda total, count: total + count))

    watermark_us = f.min(facts["watermark_us"])
    largest_us = f.max(f.array_max(facts["largest_us"]))
    metrics = [
        *(summed(name) for name in _COUNTS),
        *(f.sum(facts[name]) for name in ("matches", "candidates", "state_rows", "state_bytes")),
        f.timestamp_micros(watermark_us),
        (largest_us - watermark_us) / 1e6,
        f.max(facts["backlog_rows"]),
        f.max(facts["backlog_us"]) / 1e6,
    ]
    return reports.observe(OBSERVED, *(m.alias(name) for m, name in zip(metrics, OBSERVED_METRICS, strict=True)))
