"""The window of one stream: the runs that a tuple of another stream may still meet.

New tuples come as a run of their own. Runs of like size are merged four at a time, so a tuple is copied a logarithmic
number of times and a probe meets a logarithmic number of runs (PIM-Tree's merge ratio). A run is merged only while it
spans a small part of the window in time: then whole runs expire, and the exact time test does the rest (LLHJ's
coarse-grained disposal).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamjoin_ds.engine.run import Run, RunForm

__all__ = ["Window"]

_MERGE_RUNS = 4
_MAX_RUN_ROWS = 1 << 23
_MAX_RUN_BYTES = 1 << 29
_SPAN_PARTS = 4
_SPAN_GROWTH = 1.5
_MIN_LIVE_SHARE = 0.5


class Window:
    """Immutable list of runs, oldest insertion first; every change answers a new window.

    Parameters
    ----------
    form : RunForm
    runs : sequence of Run
    """

    __slots__ = ("form", "runs")

    def __init__(self, form: RunForm, runs: Sequence[Run] = ()) -> None:
        self.form = form
        self.runs = tuple(runs)

    @property
    def rows(self) -> int:
        """How many tuples, all runs together."""
        return sum(run.rows for run in self.runs)

    def inserted(self, run: Run) -> Window:
        """The window with one more run, before any merging."""
        return Window(self.form, (*self.runs, run)) if run.rows else self

    def merged(self) -> Window:
        """The window after the merges that are due."""
        runs = list(self.runs)
        if len(runs) < _MERGE_RUNS:
            return self
        span_us = max(run.newest_us for run in runs) - min(run.oldest_us for run in runs)
        while True:
            group = _due(runs, span_us // _SPAN_PARTS)
            if group is None:
                break
            runs[group] = [self.form.merged(runs[group])]
        return Window(self.form, runs) if len(runs) < len(self.runs) else self

    def expired(self, oldest_kept_us: int) -> Window:
        """The window without what is older than `oldest_kept_us`.

        Whole runs go when their newest tuple is older; a run that is mostly older is thinned out. What is left of
        older tuples the time rule refuses.
        """
        if all(run.oldest_us >= oldest_kept_us for run in self.runs):
            return self
        runs = []
        for run in self.runs:
            if run.newest_us < oldest_kept_us:
                continue
            if run.oldest_us < oldest_kept_us and _live_share(run, oldest_kept_us) < _MIN_LIVE_SHARE:
                mask = run.key(0) >= oldest_kept_us
                kept = int(np.count_nonzero(mask))
                runs.append(run.kept(mask) if kept < _MIN_LIVE_SHARE * run.rows else run)
            else:
                runs.append(run)
        return Window(self.form, runs)


def _live_share(run: Run, oldest_kept_us: int) -> float:
    """Share of a run's span that is not older; a guess that spares counting its rows."""
    return (run.newest_us - oldest_kept_us + 1) / (run.newest_us - run.oldest_us + 1)


def _due(runs: Sequence[Run], max_span_us: int) -> slice | None:
    """Neighbours that may be merged, the newest and fewest first: four at least, none larger than the others together.

    So a tuple is copied only into a run at least twice as large as the one it leaves, and runs that cannot be merged
    grow geometrically towards the old end, whatever the sizes of the batches.
    """
    for start in range(len(runs) - _MERGE_RUNS, -1, -1):
        rows = largest = size_bytes = longest_us = 0
        oldest_us, newest_us = runs[start].oldest_us, runs[start].newest_us
        for stop, run in enumerate(runs[start:], start + 1):
            rows, size_bytes = rows + run.rows, size_bytes + run.size_bytes
            if rows > _MAX_RUN_ROWS or size_bytes > _MAX_RUN_BYTES:
                break
            largest, longest_us = max(largest, run.rows), max(longest_us, run.newest_us - run.oldest_us)
            oldest_us, newest_us = min(oldest_us, run.oldest_us), max(newest_us, run.newest_us)
            narrow = newest_us - oldest_us <= max(max_span_us, _SPAN_GROWTH * longest_us)
            if stop - start >= _MERGE_RUNS and 2 * largest <= rows and narrow:
                return slice(start, stop)
    return None
