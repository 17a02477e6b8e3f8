"""What a contestant does in its process: it fills the windows once, then does one run at a time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.core_lease import cores_to_lease
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.storage.bucket_grid.policy import BUCKET_ROWS
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.machine import resident_bytes
from streamjoin_ds.plan import Execution
from tests.bench.suites.engine.at_once import timed_joins
from tests.bench.suites.engine.feeds import (
    WorkloadFeed,
    band1d,
    band2d,
    band2d_counted,
    band2d_nearest,
    equal_keys,
    intervals,
    outside,
    periodic,
    product,
    three_streams,
)
from tests.bench.suites.engine.product import Product

__all__ = ["CASES", "Case", "Numbers", "make_case"]

# What a run measured: rates and times by name. "matches" is compared with the peer's.
Numbers = dict[str, float]

_WIDE = 100  # bands in which each tuple has many partners
_FILL_ROWS = 1 << 18  # tuples of each stream in a push while windows are filled


class Case(Protocol):
    """One contestant."""

    def run(self, pushes: int, compared: int) -> Numbers:
        """Do the next `pushes`, and return what was measured; "matches" counts the first `compared` of them."""


class _Batches:
    """Pushes batches of all streams into full windows: sort, insert, join, merge, expiry, results gathered."""

    def __init__(
        self, feed: WorkloadFeed, batch_rows: int, threads: int, bucket_rows: int | None = BUCKET_ROWS
    ) -> None:
        self._feed, self._batch_rows = feed, batch_rows
        cores = cores_to_lease()[:threads]
        self._join = WindowJoin(feed.bound, execution=Execution(threads=threads), bucket_rows=bucket_rows, cores=cores)
        self._place = _filled(self._join, feed)
        # Filling in large batches leaves other runs than small batches do: first some pushes of the real size.
        self.run(warm_pushes(feed, batch_rows), 0)

    def run(self, pushes: int, compared: int) -> Numbers:
        matches, compared_matches, elapsed_ns, slowest_ns = 0, 0, 0, 0
        for number in range(pushes):
            batches = self._feed.batches(self._place, self._batch_rows)
            self._place += self._batch_rows
            watermark_us = self._feed.time_us(self._place)
            began_ns = time.perf_counter_ns()
            for chunk in self._join.push(batches, watermark_us, [self._place] * len(batches)):
                matches += chunk.num_rows
            took_ns = time.perf_counter_ns() - began_ns
            elapsed_ns, slowest_ns = elapsed_ns + took_ns, max(slowest_ns, took_ns)
            if number < compared:
                compared_matches = matches
        rows, elapsed_s = pushes * self._batch_rows, elapsed_ns / 1e9
        streams = len(self._feed.bound.names)
        return {
            "rows_per_second": streams * rows / elapsed_s,
            "us_per_row": elapsed_s * 1e6 / rows / streams,
            "real_time": rows / self._feed.tuples_per_second / elapsed_s,
            "matches_per_second": matches / elapsed_s,
            "slowest_push_us": slowest_ns / 1e3,
            "matches": compared_matches,
        }


def warm_pushes(feed: WorkloadFeed, batch_rows: int) -> int:
    """Return how many pushes come before anything is measured: a thirtieth of the window, but 20 to 2 000."""
    return max(20, min(2_000, feed.window_rows // 30 // batch_rows))


def _filled(join: WindowJoin, feed: WorkloadFeed) -> int:
    """Fill all windows completely, and return the number of the next row."""
    # Where tuples wait for their horizon, what they may meet is kept for twice as long.
    place, rows = 0, feed.window_rows * (2 if feed.bound.decided else 1)
    while place < rows:
        count = min(_FILL_ROWS, rows - place)
        batches = feed.batches(place, count)
        place += count
        for _ in join.push(batches, feed.time_us(place), [place] * len(batches)):
            pass
    return place


class _AtOnce:
    """Joins all tuples of a window in one push into an empty join, run after run."""

    def __init__(self, feed: WorkloadFeed, threads: int) -> None:
        self._feed, self._cores, self._threads = feed, cores_to_lease()[:threads], threads
        self._batches = feed.batches(0, feed.window_rows)

    def run(self, pushes: int, compared: int) -> Numbers:
        return timed_joins(self._made, self._feed.window_rows, pushes, compared)

    def _made(self) -> Callable[[], int]:
        join = WindowJoin(
            self._feed.bound, execution=Execution(threads=self._threads), bucket_rows=BUCKET_ROWS, cores=self._cores
        )
        return lambda: sum(chunk.num_rows for chunk in join.push(self._batches))


class _Growing:
    """Pushes batches into a window that grows from empty to its full size, and measures the slowest push."""

    def __init__(self, feed: WorkloadFeed, batch_rows: int) -> None:
        self._feed, self._batch_rows = feed, batch_rows

    def run(self, pushes: int, compared: int) -> Numbers:
        feed, took_ns, matches, place = self._feed, [], 0, 0
        join = WindowJoin(feed.bound, bucket_rows=BUCKET_ROWS)
        while place < feed.window_rows:
            batches = {stream: feed.batch(stream, place, self._batch_rows) for stream in (0, 1)}
            place += self._batch_rows
            began_ns = time.perf_counter_ns()
            for chunk in join.push(batches, feed.time_us(place), (place, place)):
                matches += chunk.num_rows
            took_ns.append(time.perf_counter_ns() - began_ns)
        return {
            "slowest_push_ms": max(took_ns) / 1e6,
            "median_push_ms": float(np.median(took_ns)) / 1e6,
            "matches": matches,
        }


class _OneTuple:
    """Pushes one tuple at a time, of each stream in turn, and measures the time from the call to the matches."""

    def __init__(self, feed: WorkloadFeed) -> None:
        self._feed = feed
        self._join = WindowJoin(feed.bound, bucket_rows=BUCKET_ROWS)
        self._place = _filled(self._join, feed)
        self.run(5_000, 0)

    def run(self, pushes: int, compared: int) -> Numbers:
        count = max(1, pushes // 2)
        batches = [self._tuples(stream, count) for stream in (0, 1)]
        times_us = [self._feed.time_us(self._place + row) for row in range(count)]
        self._place += count
        took_ns, matches = [], 0
        gc.collect()
        for row in range(count):
            for stream in (0, 1):
                given = batches[stream][row]
                began_ns = time.perf_counter_ns()
                matches += self._push(stream, given, times_us[row])
                took_ns.append(time.perf_counter_ns() - began_ns)
        p50, p99 = np.percentile(took_ns, (50, 99)) / 1e3
        return {"p50_us": float(p50), "p99_us": float(p99), "longest_us": max(took_ns) / 1e3, "matches": matches}

    def _tuples(self, stream: int, count: int) -> list[Any]:
        batch = self._feed.batch(stream, self._place, count)
        return [batch.slice(row, 1) for row in range(count)]

    def _push(self, stream: int, given: Any, time_us: int) -> int:
        return sum([chunk.num_rows for chunk in self._join.push({stream: given}, time_us)])


class _OneDict(_OneTuple):
    """Does the same as `_OneTuple` through `JoinEngine`, with one dict a push."""

    def __init__(self, feed: WorkloadFeed) -> None:
        self._engine = JoinEngine(feed.bound)
        place = 0
        while place < feed.window_rows:
            count = min(_FILL_ROWS, feed.window_rows - place)
            self._engine.push({name: outside(feed.batch(s, place, count)) for s, name in enumerate(feed.bound.names)})
            place += count
        self._feed, self._place = feed, place
        self.run(5_000, 0)

    def _tuples(self, stream: int, count: int) -> list[Any]:
        rows: list[Any] = outside(self._feed.batch(stream, self._place, count)).to_pylist()
        return rows

    def _push(self, stream: int, given: Any, time_us: int) -> int:
        return int(self._engine.push({self._feed.bound.names[stream]: given}).num_rows)


class _Gather:
    """Probes one run, about 100 matches a probe, and measures how fast matches are gathered into result columns."""

    def __init__(self, feed: WorkloadFeed) -> None:
        self._feed = feed
        self._join = WindowJoin(feed.bound, bucket_rows=BUCKET_ROWS)
        for _ in self._join.push({1: feed.batch(1, 0, feed.window_rows)}):
            pass
        self._probes = feed.batch(0, 0, feed.window_rows // 92)
        self.run(3, 0)

    def run(self, pushes: int, compared: int) -> Numbers:
        matches, elapsed_ns = 0, 0
        for _ in range(pushes):
            results: Any = self._join.push({0: self._probes})
            began_ns = time.perf_counter_ns()
            # The results are not read to their end, so the probes do not enter the window.
            for chunk in results:
                matches += chunk.num_rows
                if chunk.num_rows < self._join.chunk_rows:
                    break
            elapsed_ns += time.perf_counter_ns() - began_ns
            results.close()
        return {"matches_per_second": matches / (elapsed_ns / 1e9), "matches": matches}


class _NestedLoop:
    """Runs the SIMD nested loop over two bands; its roof is the compares of the first band alone, on rows in L1."""

    def __init__(self, rows: int) -> None:
        self._native = load_kernels("auto").module
        chooser = np.random.default_rng(1)
        self._right = [chooser.integers(0, 10_000, rows) for _ in range(2)]
        self._left = [chooser.integers(0, 10_000, rows // 8) for _ in range(2)]
        self._out = np.empty((2, 1 << 16), dtype=np.int32)

    def run(self, pushes: int, compared: int) -> Numbers:
        from streamjoin_ds._kernels import native

        rates: Numbers = {}
        matches = set()
        widest = self._native.implementations()[-1]
        for name, kernel, options in (
            ("pairs", widest, {}),
            ("rolled", widest, {"unrolled": False}),
            ("scalar", "scalar", {}),
        ):
            share = 1 if name != "scalar" else 8
            left = [column[: len(column) // share].copy() for column in self._left]
            began_ns = time.perf_counter_ns()
            scan = self._native.Scan(left, self._right, [-10, -10], [10, 10], kernel, **options)
            found = 0
            while written := scan.fill(self._out[0], self._out[1]):
                found += written
            rates[f"{name}_per_second"] = scan.candidates / ((time.perf_counter_ns() - began_ns) / 1e9)
            if share == 1:
                matches.add(found)
        assert len(matches) == 1, "both forms of the loop find the same pairs"
        rates["roof_per_second"] = native.scan_roof(False, widest)
        rates["matches"] = float(matches.pop())
        return rates


class _Memory:
    """Measures the bytes that a live tuple takes when windows are full, merges included."""

    def __init__(self, feed: WorkloadFeed) -> None:
        self._feed = feed

    def run(self, pushes: int, compared: int) -> Numbers:
        feed = self._feed
        # The feed caches the values that it made last: fill the cache first, so that it does not count as growth.
        for place in range(0, 2 * feed.window_rows, _FILL_ROWS):
            feed.batch(0, place, _FILL_ROWS)
            feed.batch(1, place, _FILL_ROWS)
        gc.collect()
        before = resident_bytes()
        join = WindowJoin(feed.bound, bucket_rows=BUCKET_ROWS)
        place, peak = 0, 0
        while place < 2 * feed.window_rows:
            batches = {stream: feed.batch(stream, place, 5_117) for stream in (0, 1)}
            place += 5_117
            for _ in join.push(batches, feed.time_us(place)):
                pass
            if place > feed.window_rows:
                peak = max(peak, resident_bytes())
        live = 2 * min(feed.window_rows, place)
        widths = [sum(field.type.bit_width for field in feed.bound.tuple_schema(stream)) for stream in (0, 1)]
        return {
            "bytes_per_row": (peak - before) / live,
            # 8 bytes for the row's place, beside its time, number and attributes.
            "column_bytes_per_row": 8 + sum(widths) / 2 / 8,
        }


def _duckdb(seconds_a_batch: float) -> Callable[[int, int], Case]:
    def make(window_rows: int, threads: int) -> Case:
        from tests.bench.suites.engine.duckdb import DuckDBCase

        feed = band2d(window_rows)
        batch_rows = int(feed.tuples_per_second * seconds_a_batch)
        return DuckDBCase(feed, batch_rows, feed.window_rows + warm_pushes(feed, batch_rows) * batch_rows, threads)

    return make


def _duckdb_intervals(window_rows: int, threads: int) -> Case:
    from tests.bench.suites.engine.duckdb import DuckDBIntervals

    feed = intervals(window_rows)
    return DuckDBIntervals(feed, 1 << 13, feed.window_rows + warm_pushes(feed, 1 << 13) * (1 << 13), threads)


def _duckdb_intervals_at_once(window_rows: int, threads: int) -> Case:
    from tests.bench.suites.engine.duckdb import DuckDBAtOnce

    return DuckDBAtOnce(intervals(window_rows), threads)


def _polars_intervals_at_once(window_rows: int, threads: int) -> Case:
    from tests.bench.suites.engine.polars import PolarsAtOnce

    return PolarsAtOnce(intervals(window_rows), threads)


# By name: a function that makes a contestant, given the rows of a window and the threads.
CASES: Mapping[str, Callable[[int, int], Case]] = {
    "band2d-1s": lambda rows, threads: _Batches(band2d(rows), 5_117, threads),
    "band2d-10s": lambda rows, threads: _Batches(band2d(rows), 51_170, threads),
    "band2d-10ms": lambda rows, threads: _Batches(band2d(rows), 51, threads),
    "band2d-left": lambda rows, threads: _Batches(band2d(rows, how="left"), 5_117, threads),
    "band2d-full": lambda rows, threads: _Batches(band2d(rows, how="full"), 5_117, threads),
    "band2d-anti": lambda rows, threads: _Batches(band2d(rows, how="anti"), 5_117, threads),
    "band2d-nearest-1s": lambda rows, threads: _Batches(band2d_nearest(rows), 5_117, threads),
    "band2d-nearest": lambda rows, threads: _Batches(band2d_nearest(rows), 51_170, threads),
    # In sorted runs, which such wide bands find sooner than in a bucket grid.
    "band2d-wide": lambda rows, threads: _Batches(band2d(rows, band=_WIDE), 5_117, threads, None),
    "band2d-counted": lambda rows, threads: _Batches(band2d_counted(rows, _WIDE), 5_117, threads, None),
    "growing": lambda rows, threads: _Growing(band2d(rows), 1 << 13),
    "band1d": lambda rows, threads: _Batches(band1d(rows), 1 << 13, threads),
    "band1d-large": lambda rows, threads: _Batches(band1d(rows), 1 << 16, threads),
    "band1d-count": lambda rows, threads: _Batches(band1d(rows, counted=True), 1 << 13, threads),
    "periodic": lambda rows, threads: _Batches(periodic(rows), 1 << 13, threads),
    "three-streams": lambda rows, threads: _Batches(three_streams(rows), 1 << 13, threads),
    "equal-int": lambda rows, threads: _Batches(equal_keys(rows), 1 << 13, threads),
    "equal-pair": lambda rows, threads: _Batches(equal_keys(rows, (pa.int32(), pa.int64())), 1 << 13, threads),
    "equal-string": lambda rows, threads: _Batches(equal_keys(rows, (pa.string(),)), 1 << 13, threads),
    "one-tuple": lambda rows, threads: _OneTuple(band2d(rows, rows / 900)),
    "one-dict": lambda rows, threads: _OneDict(band2d(rows, rows / 900)),
    # About 100 of the window's rows lie within both bands: rows * (20 / domain)^2.
    "gather": lambda rows, threads: _Gather(band2d(rows, domain=int(20 * (rows / 100) ** 0.5))),
    "nested-loop": lambda rows, threads: _NestedLoop(rows),
    "product": lambda rows, threads: Product(product(rows), threads),
    "memory": lambda rows, threads: _Memory(band2d(rows)),
    "duckdb-1s": _duckdb(1.0),
    "duckdb-10ms": _duckdb(0.01),
    "intervals": lambda rows, threads: _Batches(intervals(rows), 1 << 13, threads),
    "intervals-at-once": lambda rows, threads: _AtOnce(intervals(rows), threads),
    "duckdb-intervals": _duckdb_intervals,
    "duckdb-intervals-at-once": _duckdb_intervals_at_once,
    "polars-intervals-at-once": _polars_intervals_at_once,
}


def make_case(name: str, window_rows: int, threads: int) -> Case:
    """Return a contestant, ready to run."""
    return CASES[name](window_rows, threads)
