"""The peer of ``intervals`` that is Polars: `join_where` over all tuples of a window at once.

Its two first inequalities find the pairs, by its own IEJoin, and the others decide. Those on the interval come first,
since they find fewest. A join on grid cells, the best of three widths, took 0.96 times as long. No extra brings the
package: ``pip install polars`` before the measure.
"""

from __future__ import annotations

import os

import pyarrow as pa

from tests.bench.suites.engine.at_once import timed_joins
from tests.bench.suites.engine.feeds import WorkloadFeed

__all__ = ["PolarsAtOnce"]


class PolarsAtOnce:
    """Joins all tuples of a window of ``intervals`` in one call."""

    def __init__(self, feed: WorkloadFeed, threads: int) -> None:
        os.environ["POLARS_MAX_THREADS"] = str(threads)  # it is read when Polars is imported
        import polars

        self._rows = feed.window_rows
        batches = feed.batches(0, feed.window_rows)
        points, bounds = (polars.DataFrame(pa.Table.from_batches([batches[stream]])) for stream in (0, 1))
        bounds = bounds.rename({"_ts": "s_ts", "_seq": "s_seq"})
        column, window_us = polars.col, feed.bound.join.window.extent(0)
        self._found = points.lazy().join_where(
            bounds.lazy(),
            column("x") >= column("lo"),
            column("x") <= column("hi"),
            column("_ts") <= column("s_ts") + window_us,
            column("s_ts") <= column("_ts") + window_us,
        )

    def run(self, pushes: int, compared: int) -> dict[str, float]:
        """Do the join `pushes` times; see `timed_joins`."""
        return timed_joins(lambda: self._joined, self._rows, pushes, compared)

    def _joined(self) -> int:
        return int(self._found.collect().height)
