"""Measures the memory of full windows: of runs, of tails, and of the whole process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

from streamjoin_ds.engine.window_join import WindowJoin
from tests.bench.suites.figures.trial import Trial, TrialOutcome
from tests.bench.suites.processes import load_psutil

__all__ = ["memory"]

_LOOKS = 64  # samples taken during the pushes, about


def memory(filling: Callable[[], Iterator[WindowJoin]], trial: Trial) -> TrialOutcome:
    """Return the largest MiB of runs, of tails, and of the growth of the whole process.

    Parameters
    ----------
    filling : callable
        Begins a join and pushes to it until its windows have been full for a while; it yields the join after each push.
    trial : Trial
        The trial; it must run in a fresh process.
    """
    process = load_psutil().Process()
    gc.collect()
    before = process.memory_info().rss
    largest = {"runs": 0, "tail": 0, "resident": 0}
    found = expected = 0
    every = max(2 * trial.workload.window_rows[0] // trial.push_rows // _LOOKS, 1)
    for number, join in enumerate(filling()):
        if number % every:
            continue
        runs = sum(run.size_bytes for window in join.windows for run in window.before_tail)
        tails = [window.tail.buffer for window in join.windows]
        tail = sum(values.nbytes for buffer in tails for values in buffer.values.values())
        given = {"runs": runs, "tail": tail, "resident": process.memory_info().rss - before}
        largest = {name: max(largest[name], value) for name, value in given.items()}
        # The tuples in the windows must be those that were stored and did not expire.
        counters = join.counters
        found, expected = join.state_rows, sum(counters["stored_rows"].values()) - counters["expired_rows"]
    return TrialOutcome({name: [value / 2**20] for name, value in largest.items()}, {}, found, expected, [])
