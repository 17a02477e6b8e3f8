"""Bytes that full windows hold, by what holds them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

from streamjoin_ds.bench.figures.trial import Trial, TrialOutcome
from streamjoin_ds.bench.paths.side_process import load_psutil
from streamjoin_ds.engine import WindowJoin

__all__ = ["memory"]

_LOOKS = 64


def memory(filling: Callable[[], Iterator[WindowJoin]], trial: Trial) -> TrialOutcome:
    """MiB of runs, tails and of all that the process grew by, at the largest.

    Parameters
    ----------
    filling : callable
        Begins a join and pushes to it, giving it after each push, until its windows have been full for a while.
    trial : Trial
        Its process must be a fresh one.
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
        # What came and did not expire is there.
        counters = join.counters
        found, expected = join.state_rows, sum(counters["stored_rows"].values()) - counters["expired_rows"]
    return TrialOutcome({name: [value / 2**20] for name, value in largest.items()}, {}, found, expected, [])
