"""Trials of kernels and runs alone, without pushes: the nested loop, basic windows, a chain of runs, copying."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.probe.window_probe import WindowProbe
from streamjoin_ds.engine.storage.conditions import oriented
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.tuning import CHUNK_ROWS
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from streamjoin_ds.source.synthetic_rows import words
from tests.bench.suites.engine.feeds import band2d
from tests.bench.suites.figures.trial import Trial, TrialOutcome

__all__ = ["basic_windows", "chain", "copying", "nested_loop"]

_DOMAIN, _EPS = 10_000, 10
_UNIT_BLOCK = 4  # probes of the paper's unit block
_BUFFER_ROWS = 1 << 16  # matches that a kernel writes in one call
_COLD_BYTES = 1 << 28  # least memory that is copied from: far more than any cache holds
_COPIES, _COPIED_BYTES = 4096, 1 << 26  # most copies of a round, and about the most bytes of all of them
_RATE = 500.0  # tuples a second


def _repeated(trial: Trial, once: Callable[[], float]) -> list[float]:
    """Return the mean time of `once` in seconds for each run; a run repeats it until the run is long enough."""
    once()
    means = []
    for _ in range(trial.runs):
        elapsed_s, count = 0.0, 0
        while elapsed_s < trial.run_s:
            elapsed_s += once()
            count += 1
        means.append(elapsed_s / count)
    return means


def nested_loop(trial: Trial) -> TrialOutcome:
    """Run `push_rows` probes against one basic window of `size` bytes of one float attribute.

    The outcome has the time of a unit block of four probes, and that time for each byte. A kernel with ``rolled`` after
    its name is not unrolled.
    """
    rows = max(trial.size // 8, 1)
    seed = trial.workload.seed
    left, right = (
        (words(seed, f"figures.scan.{side}", 0, count) % np.uint64(_DOMAIN)).astype(np.float64)
        for side, count in (("l", trial.push_rows), ("r", rows))
    )
    kernel, _, form = trial.kernel.partition(" ")
    kernels = load_kernels(kernel)
    out = np.empty((2, _BUFFER_ROWS), dtype=np.int32)
    found = 0

    def once() -> float:
        nonlocal found
        found = 0
        began = time.perf_counter()
        scan = kernels.module.Scan(
            [left], [right], [-float(_EPS)], [float(_EPS)], kernels.implementation, unrolled=form != "rolled"
        )
        while written := scan.fill(out[0], out[1]):
            found += written
        return time.perf_counter() - began

    means = _repeated(trial, once)
    ordered = np.sort(right)
    ends = np.searchsorted(ordered, left + _EPS, "right"), np.searchsorted(ordered, left - _EPS, "left")
    blocks = trial.push_rows / _UNIT_BLOCK
    nanoseconds = [mean * 1e9 / blocks for mean in means]
    numbers = {"ns": nanoseconds, "ns_per_byte": [value / (8 * rows) for value in nanoseconds]}
    return TrialOutcome(numbers, {}, found, int((ends[0] - ends[1]).sum()), [])


def copying(trial: Trial) -> TrialOutcome:
    """Copy `size` bytes at a time from memory that no cache holds into a buffer, as the Cell's DMA transfers did."""
    size = max(trial.size, 8)
    cold = np.ones(max(_COLD_BYTES, 2 * size), dtype=np.uint8)
    buffer = np.empty(size, dtype=np.uint8)
    # Places all over the memory, in an order that no prefetcher foresees.
    count = max(min(_COPIES, _COPIED_BYTES // size), 16)
    starts = (
        (words(trial.workload.seed, "figures.copy", 0, count) % np.uint64(len(cold) - size)).astype(np.int64).tolist()
    )
    empty_s = min(_copy_all(cold, buffer, starts, 0) for _ in range(5))
    numbers = [
        max(mean - empty_s, 0.0) / len(starts)
        for mean in _repeated(trial, lambda: _copy_all(cold, buffer, starts, size))
    ]
    bytes_per_second = [size / max(seconds, 1e-12) for seconds in numbers]
    copied = int(buffer.sum())
    return TrialOutcome({"ns": [s * 1e9 for s in numbers], "bytes_per_second": bytes_per_second}, {}, copied, size, [])


def _copy_all(cold: np.ndarray, buffer: np.ndarray, starts: list[int], size: int) -> float:
    target = buffer.data[:size]
    source = cold.data
    began = time.perf_counter()
    for start in starts:
        target[:] = source[start : start + size]
    return time.perf_counter() - began


def basic_windows(trial: Trial) -> TrialOutcome:
    """Scan a window of two attributes, cut into basic windows of `size` bytes, with `push_rows` probes at a time."""
    window_rows = trial.workload.window_rows[0]
    feed = band2d(window_rows, _RATE)
    join = WindowJoin(feed.bound, execution=Execution(kernel=trial.kernel, index="scan"))
    tuples = feed.batch(1, 0, window_rows)
    step = max(trial.size // 16, 1)
    runs = [join.forms[1].sealed(tuples.slice(begin, step)) for begin in range(0, window_rows, step)]
    stack = RunSet(runs)
    conditions = oriented(feed.bound, [0], 1)
    indexes = stack.indexes(conditions)
    probes = feed.batch(0, window_rows, trial.push_rows)
    columns = _columns(join.forms[0], probes, [condition.probe_key for condition in conditions])
    out = np.empty((3, _BUFFER_ROWS), dtype=np.int32)
    found = 0

    def once() -> float:
        nonlocal found
        found = 0
        began = time.perf_counter()
        probing = join.kernels.module.RunsProbe(columns, indexes, implementation=join.kernels.implementation)
        while written := probing.fill(out[0], out[1], out[2]):
            found += written
        return time.perf_counter() - began

    means = _repeated(trial, once)
    numbers = {"us": [mean * 1e6 / trial.push_rows for mean in means]}
    return TrialOutcome(numbers, {}, found, _brute_count(probes, tuples, feed.window_rows), [])


def _columns(form: RunForm, tuples: pa.RecordBatch, keys: list[int]) -> list[Any]:
    return [np.ascontiguousarray(form.key_of(tuples, key)) for key in keys]


def _brute_count(probes: pa.RecordBatch, tuples: pa.RecordBatch, window_rows: int) -> int:
    """Return the number of matches by testing every pair: two bands, and a window of so many tuples at `_RATE`."""
    left, right = ([batch.column(n).to_numpy() for n in (0, 2, 3)] for batch in (probes, tuples))
    window_us = int(window_rows * 1e6 / _RATE)
    found = 0
    for time_us, x, y in zip(*left, strict=True):
        holds = (np.abs(right[1].astype(np.int64) - int(x)) <= _EPS) & (
            np.abs(right[2].astype(np.float64) - float(y)) <= _EPS
        )
        found += int(np.count_nonzero(holds & (np.abs(right[0] - time_us) <= window_us)))
    return found


def chain(trial: Trial) -> TrialOutcome:
    """Search a window of `size` runs of equal length with `push_rows` probes at a time; nothing is inserted."""
    workload, window_rows = trial.workload, trial.workload.window_rows[1]
    join = WindowJoin(workload.bound(), execution=Execution(trial.kernel, trial.threads, index=trial.index))
    tuples = workload.batch(1, 0, window_rows)
    step = -(-window_rows // trial.size)
    runs = [join.forms[1].sealed(tuples.slice(begin, step)) for begin in range(0, window_rows, step)]
    conditions = oriented(workload.bound(), [0], 1)
    probes = workload.batch(0, window_rows, window_rows + trial.push_rows)
    columns = _columns(join.forms[0], probes, [condition.probe_key for condition in conditions])
    window = Window(join.forms[1], runs)
    finder = WindowProbe(join.kernels, 1, CHUNK_ROWS)
    found = 0

    def once() -> float:
        nonlocal found
        began = time.perf_counter()
        found = sum(
            [len(places) for places, _ in finder.matches(finder.begin(conditions, columns, trial.push_rows, window))]
        )
        return time.perf_counter() - began

    means = _repeated(trial, once)
    begin_us, end_us = window_rows, window_rows + trial.push_rows
    expected = workload.matches_of_probes(0, begin_us, end_us, begin_us)
    return TrialOutcome({"rows_per_second": [trial.push_rows / mean for mean in means]}, {}, found, expected, [])
