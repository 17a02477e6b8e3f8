"""What is done for each kind of trial that pushes tuples into an engine: fill its windows, check it, measure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.bench.figures.kernel_trials import basic_windows, chain, copying, nested_loop
from streamjoin_ds.bench.figures.memory_trial import memory
from streamjoin_ds.bench.figures.step_trial import steps
from streamjoin_ds.bench.figures.trial import Outcome, Trial
from streamjoin_ds.engine import WindowJoin

__all__ = ["TRIALS", "Pushes", "drifting", "filled", "joining"]

_STRETCH_ROWS = 1 << 16
_FILL_PARTS = 8
_MOST_FILL_ROWS = 1 << 18
_MOST_WARM_S = 0.5
_RANGES = 256
_DRIFT_PHASES = (4, 10, 4)
_SEGMENTS_A_WINDOW = 2


class Pushes:
    """The trial's tuples, push by push, and the engine or engines that take them."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.workload = trial, trial.workload
        options: dict[str, Any] = {"kernel": trial.kernel, "index": trial.index, "merge_runs": trial.merge_runs}
        options |= {"threads": trial.threads if trial.cells == 1 else 1, "bucket_rows": 1 if trial.in_grid else None}
        self.joins = [WindowJoin(trial.workload.bound(), **options) for _ in range(trial.cells)]
        self._executor = ThreadPoolExecutor(trial.cells) if trial.cells > 1 else None
        self.clock_us = 0
        # What is older is left out: before windows are full, what would have expired by then.
        self.oldest_us = (0, 0)
        self.span_us = trial.push_rows * min(trial.workload.steps_us)
        self._stretches: dict[int, tuple[int, pa.RecordBatch]] = {}
        self.matches = 0
        self.rows = 0

    def close(self) -> None:
        """End its threads."""
        if self._executor is not None:
            self._executor.shutdown()

    def push(self, span_us: int | None = None) -> float:
        """Push the next span of event time; gives the seconds it took the engine, its tuples being ready."""
        begin_us, end_us = self.clock_us, self.clock_us + (span_us or self.span_us)
        batches = {stream: self._batch(stream, begin_us, end_us) for stream in (0, 1)}
        began = time.perf_counter()
        if self._executor is None:
            found = _pushed(self.joins[0], batches, end_us)
        else:
            cells = enumerate(self.joins)
            found = sum(self._executor.map(lambda cell: _pushed(cell[1], self._dealt(batches, cell[0]), end_us), cells))
        elapsed_s = time.perf_counter() - began
        self.clock_us = end_us
        self.matches += found
        self.rows += sum(batch.num_rows for batch in batches.values())
        return elapsed_s

    def _dealt(self, batches: Mapping[int, pa.RecordBatch], cell: int) -> dict[int, pa.RecordBatch]:
        """What a cell is given: all of stream r, and every so many-th tuple of s."""
        mine = batches[1].column(1).to_numpy() % len(self.joins) == cell
        return {0: batches[0], 1: batches[1].filter(pa.array(mine))}

    def _batch(self, stream: int, begin_us: int, end_us: int) -> pa.RecordBatch:
        first, last = self.workload.rows_within(stream, max(begin_us, self.oldest_us[stream]), end_us)
        last = max(first, last)
        start, rows = self._stretches.get(stream, (0, None))
        if rows is None or first < start or last > start + rows.num_rows:
            start, rows = first, self.workload.batch(stream, first, max(last, first + _STRETCH_ROWS))
            self._stretches[stream] = start, rows
        return rows.slice(first - start, last - first)


def _pushed(join: WindowJoin, batches: Mapping[int, pa.RecordBatch], watermark_us: int) -> int:
    return sum([chunk.num_rows for chunk in join.push(batches, watermark_us)])


def filled(trial: Trial) -> Pushes:
    """An engine with full windows, warm."""
    pushes = Pushes(trial)
    windows_us = trial.workload.windows_us
    longest_us = max(windows_us)
    pushes.oldest_us = longest_us - windows_us[0], longest_us - windows_us[1]
    fill_us = pushes.span_us
    if not trial.is_steady:
        fill_us = max(fill_us, min(_MOST_FILL_ROWS * min(trial.workload.steps_us), longest_us // _FILL_PARTS))
    while pushes.clock_us < longest_us:
        pushes.push(fill_us)
    warm_s = 0.0
    for _ in range(20):
        warm_s += pushes.push()
        if warm_s > min(_MOST_WARM_S, 2 * trial.run_s):
            break
    return pushes


def _checked(pushes: Pushes) -> tuple[int, int, tuple[int, int]]:
    """A push: matches that were found, matches there are, and the event time it spans."""
    before, begin_us = pushes.matches, pushes.clock_us
    pushes.push()
    span = begin_us, pushes.clock_us
    return pushes.matches - before, pushes.workload.matches_of_push(*span), span


def joining(trial: Trial) -> Outcome:
    """Tuples a second into full windows: sort, insert, join, merge, expiry, results gathered."""
    pushes = filled(trial)
    try:
        found, expected, span = _checked(pushes)
        names = ("rows_per_second", "push_us", "matches_per_row", "loads_per_second", "stores_per_second")
        numbers: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(trial.runs):
            took: list[float] = []
            rows, matches = pushes.rows, pushes.matches
            tested = sum(join.counters["candidates"] for join in pushes.joins)
            while not took or sum(took) < trial.run_s:
                took.append(pushes.push())
            rows, matches, elapsed_s = pushes.rows - rows, pushes.matches - matches, sum(took)
            tested = sum(join.counters["candidates"] for join in pushes.joins) - tested
            loads, stores = _moved_bytes(pushes.joins[0], rows, matches, tested)
            given = (rows / elapsed_s, statistics.median(took) * 1e6, matches / rows, loads / elapsed_s)
            for name, value in zip(names, (*given, stores / elapsed_s), strict=True):
                numbers[name].append(value)
        return Outcome(numbers, {}, found, expected, [span])
    finally:
        pushes.close()


def _moved_bytes(join: WindowJoin, rows: int, matches: int, tested: int) -> tuple[float, float]:
    """Bytes that a join cannot do without: keys of the pairs it tests, new tuples, result columns."""
    tuple_bytes = sum(field.type.bit_width for field in join.bound.tuple_schema(0)) / 8
    result_bytes = sum(field.type.bit_width for field in join.result_schema) / 8
    keys_bytes = 8 * len(join.bound.conditions)
    return (
        tested * keys_bytes + rows * tuple_bytes + matches * result_bytes,
        rows * tuple_bytes + matches * result_bytes,
    )


def drifting(trial: Trial) -> Outcome:
    """A self-join whose keys stay, move and stay: speed along the way, and where new keys fall meanwhile."""
    window = trial.workload.window_rows[0]
    starts = np.cumsum((1, *_DRIFT_PHASES)) * window
    spans: list[tuple[int, int]] = []
    found = expected = 0
    speeds: list[list[float]] = []
    shares = np.zeros(_RANGES)
    for run in range(trial.runs):
        pushes = Pushes(trial)
        while pushes.clock_us < starts[0]:
            pushes.push()
        segments = []
        for _ in range(sum(_DRIFT_PHASES) * _SEGMENTS_A_WINDOW):
            elapsed_s, rows, stop_us = 0.0, pushes.rows, pushes.clock_us + window // _SEGMENTS_A_WINDOW
            # In the first run, one push in the middle of each phase is counted.
            if run == 0 and any(pushes.clock_us == start + window for start in starts[:3]):
                more = _checked(pushes)
                found, expected, spans = found + more[0], expected + more[1], [*spans, more[2]]
                rows = pushes.rows
            while pushes.clock_us < stop_us:
                if run == 0 and starts[1] <= pushes.clock_us < starts[2]:
                    shares += _falls(pushes)
                elapsed_s += pushes.push()
            segments.append((pushes.rows - rows) / max(elapsed_s, 1e-9))
        speeds.append(segments)
        pushes.close()
    medians = [statistics.median(values) for values in zip(*speeds, strict=True)]
    places = [(number + 1) / _SEGMENTS_A_WINDOW for number in range(len(medians))]
    sorted_shares = np.sort(shares / shares.sum())[::-1] * _RANGES
    curves = {
        "rows_per_second": list(zip(places, medians, strict=True)),
        "inserts": [(100 * (n + 1) / _RANGES, float(share)) for n, share in enumerate(sorted_shares)],
    }
    whole = [statistics.harmonic_mean(values) for values in speeds]
    return Outcome({"rows_per_second": whole}, curves, found, expected, spans)


def _falls(pushes: Pushes) -> np.ndarray:
    """How many of the next push's keys fall into each of the ranges that cut the largest run into equal parts."""
    largest = max(pushes.joins[0].windows[0].runs, key=lambda run: run.rows)
    keys = np.sort(largest.tuples.column("x").to_numpy())
    edges = keys[np.arange(1, _RANGES) * len(keys) // _RANGES]
    first, last = pushes.workload.rows_within(0, pushes.clock_us, pushes.clock_us + pushes.span_us)
    fresh = pushes.workload.key_values(0, first, last)
    counts: np.ndarray = np.bincount(np.searchsorted(edges, fresh, "right"), minlength=_RANGES).astype(float)
    return counts


def _steps(trial: Trial) -> Outcome:
    return steps(filled(trial))


def _memory(trial: Trial) -> Outcome:
    def fill() -> Iterator[WindowJoin]:
        pushes = Pushes(trial)
        # Twice the window: the first fills it, the second has merges and expiry under way.
        while pushes.clock_us < 2 * max(trial.workload.windows_us):
            pushes.push()
            yield pushes.joins[0]

    return memory(fill, trial)


# By kind.
TRIALS: Mapping[str, Callable[[Trial], Outcome]] = {
    "join": joining,
    "drift": drifting,
    "steps": _steps,
    "memory": _memory,
    "chain": chain,
    "nested-loop": nested_loop,
    "basic-windows": basic_windows,
    "copy": copying,
}
