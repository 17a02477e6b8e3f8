"""The trials that push tuples into an engine: fill its windows, check it, measure it; and a table of all kinds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from streamjoin_ds.engine.window_join import WindowJoin
from tests.bench.suites.figures.basic_window_trial import seal_sizes
from tests.bench.suites.figures.kernel_trials import basic_windows, chain, copying, nested_loop
from tests.bench.suites.figures.layout_trials import dropping, latency, offered, sustained
from tests.bench.suites.figures.memory_trial import memory
from tests.bench.suites.figures.pushes import Pushes, filled
from tests.bench.suites.figures.query_trials import changing, moving, reading_in_order
from tests.bench.suites.figures.step_trial import steps
from tests.bench.suites.figures.trial import Trial, TrialOutcome

__all__ = ["TRIALS", "drifting", "joining"]

_RANGES = 256  # ranges of keys into which new tuples are counted
_DRIFT_PHASES = (4, 10, 4)  # lengths in windows: the keys stay, move, stay
_SEGMENTS_A_WINDOW = 2  # points of the speed's curve for each window of tuples


def _checked(pushes: Pushes) -> tuple[int, int, tuple[int, int]]:
    """Do one push; return the matches that it found, the matches that there are, and the event time that it spans."""
    before, begin_us = pushes.matches, pushes.clock_us
    pushes.push()
    span = begin_us, pushes.clock_us
    return pushes.matches - before, pushes.workload.matches_of_push(*span), span


def joining(trial: Trial) -> TrialOutcome:
    """Measure tuples a second into full windows: sort, insert, join, merge, expiry, results gathered."""
    pushes = filled(trial)
    try:
        found, expected, span = _checked(pushes)
        names = ("rows_per_second", "push_us", "us", "matches_per_row", "loads_per_second", "stores_per_second")
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
            given = (rows / elapsed_s, statistics.median(took) * 1e6, elapsed_s * 1e6 / rows, matches / rows)
            for name, value in zip(names, (*given, loads / elapsed_s, stores / elapsed_s), strict=True):
                numbers[name].append(value)
        return TrialOutcome(numbers, {}, found, expected, [span])
    finally:
        pushes.close()


def _moved_bytes(join: WindowJoin, rows: int, matches: int, tested: int) -> tuple[float, float]:
    """Return the least bytes that a join loads and stores: keys of the pairs it tests, new tuples, result columns."""
    tuple_bytes = sum(field.type.bit_width for field in join.bound.tuple_schema(0)) / 8
    result_bytes = sum(field.type.bit_width for field in join.result_schema) / 8
    keys_bytes = 8 * len(join.bound.conditions)
    return (
        tested * keys_bytes + rows * tuple_bytes + matches * result_bytes,
        rows * tuple_bytes + matches * result_bytes,
    )


def drifting(trial: Trial) -> TrialOutcome:
    """Measure a self-join whose keys stay, move and stay: the speed along the way, and where new keys fall."""
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
    return TrialOutcome({"rows_per_second": whole}, curves, found, expected, spans)


def _falls(pushes: Pushes) -> np.ndarray:
    """Return how many keys of the next push fall into each range; the ranges cut the largest run into equal parts."""
    largest = max(pushes.joins[0].windows[0].runs, key=lambda run: run.rows)
    keys = np.sort(largest.tuples.column("x").to_numpy())
    edges = keys[np.arange(1, _RANGES) * len(keys) // _RANGES]
    first, last = pushes.workload.rows_within(0, pushes.clock_us, pushes.clock_us + pushes.span_us)
    fresh = pushes.workload.key_values(0, first, last)
    counts: np.ndarray = np.bincount(np.searchsorted(edges, fresh, "right"), minlength=_RANGES).astype(float)
    return counts


def _steps(trial: Trial) -> TrialOutcome:
    return steps(filled(trial))


def _memory(trial: Trial) -> TrialOutcome:
    def fill() -> Iterator[WindowJoin]:
        pushes = Pushes(trial)
        # Twice the window: the first half fills it; in the second half tuples also expire and runs are merged.
        while pushes.clock_us < 2 * max(trial.workload.windows_us):
            pushes.push()
            yield pushes.joins[0]

    return memory(fill, trial)


# By kind: the function that does a trial.
TRIALS: Mapping[str, Callable[[Trial], TrialOutcome]] = {
    "join": joining,
    "drift": drifting,
    "steps": _steps,
    "memory": _memory,
    "chain": chain,
    "nested-loop": nested_loop,
    "basic-windows": basic_windows,
    "copy": copying,
    "offered": offered,
    "sustained": sustained,
    "dropping": dropping,
    "latency": latency,
    "moving": moving,
    "changing": changing,
    "reading": reading_in_order,
    "seal-sizes": seal_sizes,
}
