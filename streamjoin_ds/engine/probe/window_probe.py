"""Finding the matches of a block of probes in one window: by one call, by several side by side, or run by run.

::

    few probes         one kernel over all runs                            no thread is woken for microseconds of work
    a batch            one kernel over all runs                            in parts: one for each group of neighbours
    a large batch,     a kernel for each run, one after the other          in parts: of neighbouring runs, of probes
    or runs to scan
    a bucket grid      one kernel, slice after slice of the probes         in parts: the pipeline cuts the probes

Whoever has threads asks for the parts, and gives each to `threads.scheduler` as a piece. Runs in an order that does not
serve the probes' conditions are seen in another (`run_view`). For one form of window all give the same pairs in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.probe.match_buffer import MatchBuffer
from streamjoin_ds.engine.probe.progress import PieceProgress
from streamjoin_ds.engine.probe.run_probe import RunByRunProbe, RunProbe
from streamjoin_ds.engine.reference.arguments import Column, Int32
from streamjoin_ds.engine.reference.kernel_objects import RunIndex, RunsProbe, Task
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run import Probed
from streamjoin_ds.engine.storage.run_set import RunSet, RunSetView
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.tuning import DEFAULT, ProbeTuning

__all__ = ["ProbeCursor", "WindowProbe"]


@dataclass(slots=True, eq=False)
class ProbeCursor:
    """Probes on their way through a window: matches are found by tasks, and given exactly a chunk at a time.

    Kernels differ in how far they fill a buffer, and where chunks are cut decides the order in which the results of
    three streams and more come.

    Attributes
    ----------
    kernel : RunsProbe or RunByRunProbe
    pairs : MatchBuffer
    run_set : RunSet or RunSetView
        What the pairs' runs are numbered in.
    chunk_rows : int
    row_count : int
        Of the runs that are met, where it is a part of a probing.
    used : int
        How many pairs are in the buffer.
    given : int
        How many of these were given as a chunk.
    """

    kernel: RunsProbe | RunByRunProbe
    pairs: MatchBuffer
    run_set: RunSet | RunSetView
    chunk_rows: int
    row_count: int = 0
    used: int = 0
    given: int = 0

    def filling(self) -> Task[int] | None:
        """A task that finds the next matches, and whose number `took` is to be told; None: there are no more."""
        if self.given:
            rows, given, used = self.pairs.rows, self.given, self.used
            rows[:, : used - given] = rows[:, given:used]
            self.used, self.given = used - given, 0
        if self.kernel.is_done:
            return None
        return self.kernel.filling(*self.pairs.room(self.used, self.chunk_rows))

    def took(self, written: int) -> tuple[Int32, Selection] | None:
        """A whole chunk of matches, if the last task has completed one; it is good until the next `filling`."""
        if isinstance(self.kernel, RunByRunProbe):
            self.kernel.took(written)
        self.used += written
        return self.whole_chunk()

    def whole_chunk(self) -> tuple[Int32, Selection] | None:
        """A whole chunk of matches, if there is one."""
        if self.used < self.chunk_rows:
            return None
        self.given = self.chunk_rows
        return self._first(self.given)

    def rest(self) -> tuple[Int32, Selection]:
        """The matches that are left when there are no more to be found."""
        return self._first(self.used)

    @property
    def tested_pairs(self) -> int:
        """Pairs that are done with."""
        kernel = self.kernel
        return kernel.tested_pairs if isinstance(kernel, RunByRunProbe) else kernel.candidates

    def _first(self, count: int) -> tuple[Int32, Selection]:
        """So many pairs from the buffer's beginning: positions of probes, and what they found."""
        probes, rows, places = self.pairs.rows[:, :count]
        return probes, Selection(*self.run_set.resolved(places, rows), places)


class WindowProbe:
    """Begins probings and ends them.

    Parameters
    ----------
    kernels : Kernels
    threads : int
        That parts of a probing are for.
    chunk_rows : int
        Pairs that are given at a time.
    tuning : ProbeTuning

    Attributes
    ----------
    candidates : int
        Pairs tested so far.
    """

    def __init__(self, kernels: Kernels, threads: int, chunk_rows: int, tuning: ProbeTuning = DEFAULT.probe) -> None:
        self._kernels, self._threads, self._tuning = kernels, threads, tuning
        self._chunk_rows = chunk_rows
        self._pairs: list[MatchBuffer] = []
        self.candidates = 0

    def begin(
        self,
        conditions: tuple[ProbeCondition, ...],
        columns: list[Column],
        count: int,
        window: Window,
    ) -> ProbeCursor:
        """Probes against all runs of a window."""
        run_set = window.run_set.seen_by(conditions)
        kernel = self._kernel(conditions, columns, count, window, run_set)
        return self._cursor(kernel, run_set)

    def has_groups(self, window: Window, count: int) -> bool:
        """Whether so many probes go through the runs of a window by one kernel, and each of its runs by itself."""
        return self._has_groups(window.before_tail, count)

    def _has_groups(self, sealed: Sequence[Probed], count: int) -> bool:
        is_batch = count <= self._tuning.batch_probes
        return bool(sealed) and is_batch and all(run.sort_layout.is_sorted for run in sealed)

    def begin_parts(
        self,
        conditions: tuple[ProbeCondition, ...],
        columns: list[Column],
        count: int,
        window: Window,
    ) -> list[ProbeCursor]:
        """Probes against all runs of a window, in parts whose pairs follow each other; of few pairs, one part."""
        has_groups = self.has_groups(window, count)
        if window.is_grid or (not has_groups and count <= self._tuning.few_probes):
            whole = self.begin(conditions, columns, count, window)
            whole.row_count = window.rows
            return [whole]
        if not has_groups:
            run_set = window.run_set.seen_by(conditions)
            kernels = self._run_probe(conditions, columns, count).in_parts(self._seen(window, run_set), self._threads)
            return [self._cursor(kernel, run_set, kernel.row_count) for kernel in kernels]
        runs, parts = window.runs, []
        for begin, end in pairwise(_edges(len(runs), self._threads * self._tuning.groups_per_thread)):
            run_set = window.run_set if end - begin == len(runs) else RunSet(runs[begin:end])
            seen = run_set.seen_by(conditions)
            last_rows = window.tail.rows or -1 if end == len(runs) else -1
            kernel = self._runs_probe(columns, seen.indexes(conditions), last_rows, count)
            rows = sum(run.rows for run in runs[begin:end])
            parts.append(self._cursor(kernel, seen, rows))
        return parts

    def matches(self, probing: ProbeCursor, mark: PieceProgress | None = None) -> Iterator[tuple[Int32, Selection]]:
        """All matches of a probing, found by this thread; then it is released."""
        while (task := probing.filling()) is not None:
            if (matched := probing.took(task.do())) is not None:
                if mark is not None:
                    mark.tested(probing.tested_pairs)
                yield matched
        if probing.used:
            yield probing.rest()
        self.end(probing)

    def end(self, probing: ProbeCursor) -> None:
        """Release the probing: count its candidates and keep its buffer for the next one."""
        self.candidates += probing.kernel.candidates
        self._pairs.append(probing.pairs)

    def _cursor(
        self, kernel: RunsProbe | RunByRunProbe, run_set: RunSet | RunSetView, row_count: int = 0
    ) -> ProbeCursor:
        try:
            pairs = self._pairs.pop()
        except IndexError:
            pairs = MatchBuffer(self._tuning)
        return ProbeCursor(kernel, pairs, run_set, self._chunk_rows, row_count)

    def _kernel(
        self,
        conditions: tuple[ProbeCondition, ...],
        columns: list[Column],
        count: int,
        window: Window,
        run_set: RunSet | RunSetView,
    ) -> RunsProbe | RunByRunProbe:
        """What fills buffers with probes, rows and runs."""
        runs = run_set.runs
        if not runs:
            return self._runs_probe(columns, [], -1, count)
        if window.is_grid:
            indexes, last_rows = run_set.indexes(conditions), window.tail.rows or -1
            return self._runs_probe(columns, indexes, last_rows, count, self._tuning.slice_probes)
        if count > self._tuning.few_probes and not self._has_groups(runs[: len(window.before_tail)], count):
            (kernel,) = self._run_probe(conditions, columns, count).in_parts(self._seen(window, run_set), 1)
            return kernel
        return self._runs_probe(columns, run_set.indexes(conditions), window.tail.rows or -1, count)

    @staticmethod
    def _seen(window: Window, run_set: RunSet | RunSetView) -> Sequence[Probed]:
        """The runs as probes see them now: the tail has grown since it came to the set."""
        sealed = len(window.before_tail)
        return (*run_set.runs[:sealed], *window.runs[sealed:])

    def _run_probe(self, conditions: tuple[ProbeCondition, ...], columns: list[Column], count: int) -> RunProbe:
        return RunProbe(self._kernels, conditions, columns, count, self._tuning)

    def _runs_probe(
        self,
        columns: list[Column],
        indexes: Sequence[RunIndex],
        last_rows: int,
        count: int,
        slice_probes: int | None = None,
    ) -> RunsProbe:
        return self._kernels.module.RunsProbe(
            columns,
            indexes,
            implementation=self._kernels.implementation,
            last_rows=last_rows,
            left_count=count,
            slice_probes=slice_probes,
        )


def _edges(count: int, groups: int) -> list[int]:
    """Where to cut `count` runs into groups of like number."""
    groups = min(groups, count)
    return [count * group // groups for group in range(groups + 1)]
