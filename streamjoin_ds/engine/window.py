"""The window of one stream: the runs that a tuple of another stream may still meet.

New tuples come as a run of their own. Runs of like size are merged four at a time, so a tuple is copied a logarithmic
number of times and a probe meets a logarithmic number of runs (PIM-Tree's merge ratio). A run is merged only while it
spans a small part of the window's positions (event times, or numbers of a count window): then whole runs expire, and
the exact test does the rest (LLHJ's coarse-grained disposal).
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
        span = int(max(run.position[1] for run in runs) - min(run.position[0] for run in runs))
        while True:
            group = _due(runs, span // _SPAN_PARTS)
            if group is None:
                break
            runs[group] = [self.form.merged(runs[group])]
        return Window(self.form, runs) if len(runs) < len(self.runs) else self

    def expired(self, lowest_kept: int) -> Window:
        """The window without positions below `lowest_kept`: event times, or numbers of a count window.

        Whole runs go when their newest tuple is below; a run that is mostly below is thinned out. What is left of older
        tuples the window's rule refuses.
        """
        if all(run.position[0] >= lowest_kept for run in self.runs):
            return self
        runs = []
        for run in self.runs:
            oldest, newest = run.position
            if newest < lowest_kept:
                continue
            if oldest < lowest_kept and _live_share(run, lowest_kept) < _MIN_LIVE_SHARE:
                mask = run.key(self.form.position_key) >= lowest_kept
                kept = int(np.count_nonzero(mask))
                runs.append(run.kept(mask) if kept < _MIN_LIVE_SHARE * run.rows else run)
            else:
                runs.append(run)
        return Window(self.form, runs)


def _live_share(run: Run, lowest_kept: int) -> float:
    """Share of a run's span that is not below; a guess that spares counting its rows."""
    oldest, newest = run.position
    return (newest - lowest_kept + 1) / (newest - oldest + 1)


def _due(runs: Sequence[Run], max_span: int) -> slice | None:
    """Neighbours that may be merged, the newest and fewest first: four at least, none larger than the others together.

    So a tuple is copied only into a run at least twice as large as the one it leaves, and runs that cannot be merged
    grow geometrically towards the old end, whatever the sizes of the batches.
    """
    for start in range(len(runs) - _MERGE_RUNS, -1, -1):
        rows = largest = size_bytes = 0
        longest: int | float = 0
        oldest, newest = runs[start].position
        for stop, run in enumerate(runs[start:], start + 1):
            rows, size_bytes = rows + run.rows, size_bytes + run.size_bytes
            if rows > _MAX_RUN_ROWS or size_bytes > _MAX_RUN_BYTES:
                break
            first, last = run.position
            largest, longest = max(largest, run.rows), max(longest, last - first)
            oldest, newest = min(oldest, first), max(newest, last)
            narrow = newest - oldest <= max(max_span, _SPAN_GROWTH * longest)
            if stop - start >= _MERGE_RUNS and 2 * largest <= rows and narrow:
                return slice(start, stop)
    return None
