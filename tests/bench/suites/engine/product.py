"""Measures a product far too large to finish: how fast results come, how much memory it takes, and its progress."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.tuning import CHUNK_ROWS
from streamjoin_ds.machine import resident_bytes
from tests.bench.suites.engine.feeds import WorkloadFeed, outside

__all__ = ["Product"]


class Product:
    """One push of all rows of both streams, in which every pair matches, read a chunk at a time, run after run.

    Parameters
    ----------
    feed : WorkloadFeed
        `feeds.product`; its window holds all rows.
    threads : int
        Threads of the engine.
    """

    def __init__(self, feed: WorkloadFeed, threads: int) -> None:
        self._feed, self._threads = feed, threads
        self._rows = {name: outside(feed.batch(s, 0, feed.window_rows)) for s, name in enumerate(feed.bound.names)}
        input_bytes = sum(table.nbytes for table in self._rows.values())
        row_bytes = sum(field.type.bit_width for field in feed.bound.result_schema if field.name != "batch_id") / 8
        self._held_mib = (input_bytes + CHUNK_ROWS * row_bytes) / 2**20
        self._begin()

    def _begin(self) -> None:
        self._engine = JoinEngine(self._feed.bound, threads=self._threads)
        self._chunks: Iterator[pa.Table] = self._engine.push_chunks(self._rows)
        self._found, self._before, self._peak = 0, resident_bytes(), 0

    def run(self, pushes: int, compared: int) -> dict[str, float]:
        """Read the next `pushes` chunks of results; a product that has ended is begun anew."""
        found, elapsed_ns = 0, 0
        for _ in range(pushes):
            began_ns = time.perf_counter_ns()
            chunk = next(self._chunks, None)
            elapsed_ns += time.perf_counter_ns() - began_ns
            if chunk is None:
                self._begin()
                continue
            found += chunk.num_rows
            self._found += chunk.num_rows
            self._peak = max(self._peak, resident_bytes())
        return {
            "rows_per_second": found / (elapsed_ns / 1e9),
            "grown_mib": max(self._peak - self._before, 0) / 2**20,
            "held_mib": self._held_mib,
            "progress": 100 * self._engine.progress.fraction,
            "found": 100 * self._found / self._feed.window_rows**2,
        }
