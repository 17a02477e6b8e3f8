"""Measures what a tuple costs by the rows of a tail when it is sealed, and asks the cost model for the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from streamjoin_ds.engine.cost_model import SEAL_ROWS, USUAL_COSTS, tuple_ns, unmerged_ns
from streamjoin_ds.engine.sizing import fitted_costs
from streamjoin_ds.engine.tuning import DEFAULT, TailTuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from tests.bench.suites.figures.trial import Trial, TrialOutcome

__all__ = ["NEVER", "seal_sizes"]

NEVER = 1 << 20  # a merge ratio with which no runs are merged
_TRIED = tuple(1 << n for n in range(8, 15))  # rows of a tail that are tried
_LEAST_TAILS = 2  # a window has so many tails at least
_MOST_RUNS = 128  # runs of a window that is not merged, at most
_MEASURED_SHARE = 8  # a measurement pushes the window's rows divided by this, or more


def seal_sizes(trial: Trial) -> TrialOutcome:
    """Measure the CPU time of a tuple for each size of a tail, in pushes of `push_rows` tuples of each stream.

    The outcome has the numbers ``measured_rows`` and ``predicted_rows``, the best size by measurement and by the model,
    and the curves ``measured``, ``predicted`` and ``predicted_best``, microseconds by rows. The model knows only what
    depends on the sizes of runs. The rest is one number, the median difference, which is added to it.
    """
    window_rows, is_merged = trial.workload.window_rows[0], trial.merge_runs < NEVER
    tried = [rows for rows in _TRIED if rows * _LEAST_TAILS <= window_rows]
    tried = [rows for rows in tried if is_merged or window_rows <= rows * _MOST_RUNS]
    costs = fitted_costs(trial.workload.bound(), trial.kernel) or USUAL_COSTS

    def model_ns(rows: float) -> float:
        if is_merged:
            return tuple_ns(costs, rows, trial.merge_runs, window_rows)
        return unmerged_ns(costs, rows, window_rows)

    engines = [_Engine(trial, rows) for rows in tried]
    checks = [engine.checked() for engine in engines]
    # In turns, so that a slow moment of the machine is one of all sizes.
    runs_ns = [[engine.tuple_ns() for engine in engines] for _ in range(trial.runs)]
    medians_ns = [statistics.median(values) for values in zip(*runs_ns, strict=True)]
    rest_ns = statistics.median(measured - model_ns(rows) for rows, measured in zip(tried, medians_ns, strict=True))
    best = _best(model_ns, window_rows)
    curves = {
        "measured": [(float(rows), ns / 1e3) for rows, ns in zip(tried, medians_ns, strict=True)],
        "predicted": [(float(rows), (model_ns(rows) + rest_ns) / 1e3) for rows in tried],
        "predicted_best": [(float(best), (model_ns(best) + rest_ns) / 1e3)],
    }
    bests = [float(min(zip(values, tried, strict=True))[1]) for values in runs_ns]
    numbers = {"measured_rows": bests, "predicted_rows": [float(best)] * trial.runs}
    found, expected = (sum(values) for values in zip(*(check[:2] for check in checks), strict=True))
    return TrialOutcome(numbers, curves, found, expected, [check[2] for check in checks])


def _best(model_ns: Callable[[float], float], window_rows: int) -> int:
    return min((rows for rows in (*_TRIED, *SEAL_ROWS) if rows <= window_rows), key=model_ns)


class _Engine:
    """An engine whose windows are full, with tails of one size."""

    def __init__(self, trial: Trial, rows: int) -> None:
        tuning = replace(DEFAULT, tail=TailTuning(rows, rows))
        bound = trial.workload.bound()
        execution = Execution(trial.kernel, merge_runs=trial.merge_runs)
        self._join = WindowJoin(bound, execution=execution, tuning=tuning)
        self._workload, self._push_rows = trial.workload, trial.push_rows
        self._clock_us = 0
        window_rows = trial.workload.window_rows[0]
        # Whole tails make the same runs as small pushes do, in less time.
        while self._clock_us < window_rows:
            self._push(rows)
        self._pushes = max(window_rows // _MEASURED_SHARE, 2 * rows) // trial.push_rows + 1

    def _push(self, rows: int) -> tuple[int, int]:
        """Push so many tuples of each stream; return the matches, and the nanoseconds that this thread worked."""
        begin_us, self._clock_us = self._clock_us, self._clock_us + rows
        batches = {stream: self._workload.batch(stream, begin_us, self._clock_us) for stream in (0, 1)}
        began_ns = time.thread_time_ns()
        found = sum([chunk.num_rows for chunk in self._join.push(batches, self._clock_us)])
        return found, time.thread_time_ns() - began_ns

    def checked(self) -> tuple[int, int, tuple[int, int]]:
        """Do one push; return the matches that it found, those that there are, and the event time that it spans."""
        begin_us = self._clock_us
        found, _ = self._push(self._push_rows)
        span_us = begin_us, self._clock_us
        return found, self._workload.matches_of_push(*span_us), span_us

    def tuple_ns(self) -> float:
        """Return the CPU time of a tuple."""
        took_ns = sum(self._push(self._push_rows)[1] for _ in range(self._pushes))
        return took_ns / (2 * self._push_rows * self._pushes)
