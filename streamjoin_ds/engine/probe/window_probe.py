"""Finding the matches of a block of probes in one window: by one call, by several side by side, or run by run.

::

    few probes         one kernel over all runs                            no thread is woken for microseconds of work
    a batch            a kernel over each group of neighbouring runs       on as many threads as there are
    a large batch,     a kernel for each slice of the probes, run by run   probes out of a run's reach are left out
    or runs to scan
    a bucket grid      one kernel, slice after slice of the probes         who has threads gives them several pieces

Runs in an order that does not serve the probes' conditions are seen in another (`run_view`). For one form of window all
give the same pairs in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.probe.match_buffer import MatchBuffer
from streamjoin_ds.engine.probe.parallel_probe import ParallelProbe
from streamjoin_ds.engine.probe.progress import PieceProgress
from streamjoin_ds.engine.probe.run_probe import RunByRunProbe, RunProbe
from streamjoin_ds.engine.reference.arguments import Column, Int32
from streamjoin_ds.engine.reference.kernel_objects import RunIndex, RunsProbe, Task
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run import Probed
from streamjoin_ds.engine.storage.run_set import RunSet, RunSetView
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window

__all__ = ["SLICE_PROBES", "ProbeCursor", "WindowProbe"]

_FEW_PROBES = 1024
_BATCH_PROBES = 1 << 16
# Groups of runs for each thread. With more than one, a thread that is done early takes another group.
_GROUPS_PER_THREAD = 2
_PLACES = 2
SLICE_PROBES = 2048


@dataclass(slots=True, eq=False)
class ProbeCursor:
    """Probes on their way through a window.

    Attributes
    ----------
    kernel : RunsProbe, ParallelProbe or RunByRunProbe
    pairs : MatchBuffer
    run_set : RunSet or RunSetView
        What the pairs' runs are numbered in.
    filled : int or None
        How many pairs are in the buffer already.
    """

    kernel: Any
    pairs: MatchBuffer
    run_set: RunSet | RunSetView
    filled: int | None = None

    def found(self) -> tuple[Int32, Selection]:
        """The pairs that are in the buffer."""
        return self.first(self.filled or 0)

    def first(self, count: int) -> tuple[Int32, Selection]:
        """So many pairs from the buffer's beginning: positions of probes, and what they found."""
        probes, rows, places = self.pairs.rows[:, :count]
        return probes, Selection(*self.run_set.resolved(places, rows), places)


class WindowProbe:
    """Finds matches, a chunk at a time; several threads may ask for those of different probes.

    Parameters
    ----------
    kernels : Kernels
    executor : concurrent.futures.Executor, optional
    threads : int
        Kernels that work side by side where there is an executor.
    chunk_rows : int
        Pairs that are given at a time.

    Attributes
    ----------
    candidates : int
        Pairs tested so far.
    """

    def __init__(self, kernels: Kernels, executor: Executor | None, threads: int, chunk_rows: int) -> None:
        self._kernels, self._executor, self._threads = kernels, executor, threads
        self._chunk_rows = chunk_rows
        self._pairs: list[MatchBuffer] = []
        self._counting = kernels.module.Gate()
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
        return ProbeCursor(self._probing(conditions, columns, count, window, run_set), self._buffer(), run_set)

    def has_parts(self, window: Window, count: int) -> bool:
        """Whether so many probes go through the runs of a window by one kernel, and each of its runs by itself."""
        return _has_parts(window.before_tail, count)

    def begin_parts(
        self,
        conditions: tuple[ProbeCondition, ...],
        columns: list[Column],
        count: int,
        window: Window,
    ) -> list[ProbeCursor]:
        """Probes against all runs of a window, some neighbouring ones a probing; only where it `has_parts`."""
        runs, parts = window.runs, []
        edges = _edges(len(runs), self._threads * _GROUPS_PER_THREAD)
        for begin, end in pairwise(edges):
            run_set = window.run_set if end - begin == len(runs) else RunSet(runs[begin:end])
            last_rows = window.tail.rows or -1 if end == len(runs) else -1
            kernel = self._runs_probe(columns, run_set.indexes(conditions), last_rows, count)
            parts.append(ProbeCursor(kernel, self._buffer(), run_set))
        return parts

    def matches(self, probing: ProbeCursor, mark: PieceProgress | None) -> Iterator[tuple[Int32, Selection]]:
        """Matches of the probes, exactly a chunk at a time.

        Kernels differ in how far they fill a buffer, and where chunks are cut decides the order in which the results of
        three streams and more come.
        """
        kernel, pairs, full = probing.kernel, probing.pairs, self._chunk_rows
        written, used = probing.filled, 0
        if written is None:
            written = kernel.fill(*pairs.room(0, full))
        while written:
            used += written
            if used >= full:
                if mark is not None:
                    mark.tested(getattr(kernel, "tested_pairs", kernel.candidates))
                yield probing.first(full)
                pairs.rows[:, : used - full] = pairs.rows[:, full:used]
                used -= full
            elif getattr(kernel, "is_done", False):
                break
            written = kernel.fill(*pairs.room(used, full))
        if used:
            yield probing.first(used)
        self.end(probing)

    def end(self, probing: ProbeCursor) -> None:
        """Release the probing: count its candidates and keep its buffer for the next one."""
        if self._executor is None:
            self.candidates += probing.kernel.candidates
        else:
            self._counting.through(self._count, probing.kernel.candidates)
        self._pairs.append(probing.pairs)

    def _count(self, candidates: int) -> None:
        self.candidates += candidates

    def filling(self, probing: ProbeCursor) -> Task[int]:
        """A task for a crew: the first pairs of a probing in bucket grids, into all the room its buffer has."""
        task: Task[int] = probing.kernel.filling(*probing.pairs.room(0, self._chunk_rows))
        return task

    def _buffer(self) -> MatchBuffer:
        try:
            return self._pairs.pop()
        except IndexError:
            return MatchBuffer()

    def _probing(
        self,
        conditions: tuple[ProbeCondition, ...],
        columns: list[Column],
        count: int,
        window: Window,
        run_set: RunSet | RunSetView,
    ) -> RunsProbe | ParallelProbe | RunByRunProbe:
        """What fills buffers with probes, rows and runs."""
        runs = run_set.runs
        if not runs:
            return self._runs_probe(columns, [], -1, count)
        if window.is_grid:
            indexes, last_rows = run_set.indexes(conditions), window.tail.rows or -1
            return self._runs_probe(columns, indexes, last_rows, count, SLICE_PROBES)
        sealed = len(window.before_tail)
        if count > _FEW_PROBES and not _has_parts(runs[:sealed], count):
            now = (*runs[:sealed], *window.runs[sealed:])  # the tail has grown since it came to the run_set
            return RunProbe(self._kernels, conditions, columns, count, self._executor, self._threads).over(now)
        indexes = run_set.indexes(conditions)
        last_rows = window.tail.rows or -1
        if count <= _FEW_PROBES or self._executor is None or len(runs) == 1:
            return self._runs_probe(columns, indexes, last_rows, count)
        edges = _edges(len(runs), self._threads * _GROUPS_PER_THREAD)
        groups = [
            (self._runs_probe(columns, indexes[begin:end], last_rows if end == len(runs) else -1, count), begin)
            for begin, end in pairwise(edges)
        ]
        return ParallelProbe(groups, self._executor, self._threads, outputs=3, moved=_PLACES)

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


def _has_parts(sealed: Sequence[Probed], count: int) -> bool:
    """As `WindowProbe.has_parts`."""
    return bool(sealed) and count <= _BATCH_PROBES and all(run.sort_layout.is_sorted for run in sealed)


def _edges(count: int, groups: int) -> list[int]:
    """Where to cut `count` runs into groups of like number."""
    groups = min(groups, count)
    return [count * group // groups for group in range(groups + 1)]
