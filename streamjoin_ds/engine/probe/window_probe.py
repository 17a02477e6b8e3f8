"""The matches of probes in one window: found by one call, by several side by side, or run by run.

::

    few probes         one kernel over all runs                            no thread is woken for microseconds of work
    a batch            one kernel over all runs                            in parts: groups of runs, pieces of a run
    a large batch,     a kernel for each run, one after the other          in parts: some runs, pieces of a run
    runs to scan, or
    intervals with
    one end
    a bucket grid      one kernel, slice after slice of the probes         in parts: the pipeline cuts the probes

A caller with threads asks for the parts, which are of like cost (`like_shares`), and gives each to the scheduler as a
piece. A run whose order does not serve the probes' conditions is seen in another order (`RunView`). In parts or not, a
window of one form gives the same pairs in the same order. Kernels write the pairs to a buffer that later probings use
again (`MatchBuffer`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct

from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import Column, Int32, Int64, PartnerSums, RunIndex, RunsProbe, Task
from streamjoin_ds.engine.probe.probe_batch import PieceProgress
from streamjoin_ds.engine.probe.run_probe import Neighbours, RunByRunProbe, RunProbe, Stretch, like_shares, tiles_of
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run import Probed
from streamjoin_ds.engine.storage.run_set import RunSet, RunSetView
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.tuning import DEFAULT, ProbeTuning

__all__ = ["MIN_FREE", "MatchBuffer", "ProbeCursor", "WindowProbe"]

# The least room, in pairs, that a kernel is given. It writes whole registers, and stops when less room is left.
MIN_FREE = 64


class MatchBuffer:
    """A buffer of found pairs: probe, row and run of each. It grows up to a chunk, and later pushes use it again.

    Parameters
    ----------
    tuning : ProbeTuning

    Attributes
    ----------
    rows : ndarray, shape (3, capacity), int32
        Probes, rows of the run, numbers of the run.
    """

    def __init__(self, tuning: ProbeTuning) -> None:
        self._growth = tuning.pairs_growth
        self.rows: Int32 = np.empty((3, max(tuning.first_pairs, MIN_FREE)), dtype=np.int32)
        self._whole: tuple[Int32, Int32, Int32] | None = None  # the room of an empty buffer, which each push asks for

    def room(self, used: int, chunk_rows: int) -> tuple[Int32, Int32, Int32]:
        """Return the free room behind the first `used` pairs, for `MIN_FREE` pairs at least.

        A buffer that is more than half full grows, up to a chunk and `MIN_FREE`.
        """
        if not used and self._whole is not None:
            return self._whole
        capacity = self.rows.shape[1]
        if capacity - used < MIN_FREE or capacity < min(2 * used, chunk_rows + MIN_FREE):
            grown = np.empty((3, min(self._growth * capacity, chunk_rows + MIN_FREE)), dtype=np.int32)
            grown[:, :used] = self.rows[:, :used]
            self.rows, self._whole = grown, None
        end = min(self.rows.shape[1], chunk_rows + MIN_FREE)
        free = self.rows[0, used:end], self.rows[1, used:end], self.rows[2, used:end]
        if not used:
            self._whole = free
        return free


class ProbeCursor(Struct, eq=False):
    """Probes on their way through a window: tasks find the matches, which are given exactly a chunk at a time.

    Kernels differ in how far they fill a buffer. With three streams and more the cuts between chunks decide the order
    of the results, so a chunk must not depend on the kernel.

    Attributes
    ----------
    kernel : RunsProbe or RunByRunProbe
    pairs : MatchBuffer
    run_set : RunSet or RunSetView
        The set in which the pairs' runs are numbered.
    chunk_rows : int
    row_count : int
        Rows of the runs that the probes meet, if this was made by `WindowProbe.begin_parts`.
    used : int
        How many pairs are in the buffer.
    given : int
        How many of these pairs were given as a chunk.
    """

    kernel: RunsProbe | RunByRunProbe
    pairs: MatchBuffer
    run_set: RunSet | RunSetView
    chunk_rows: int
    row_count: int = 0
    used: int = 0
    given: int = 0

    def filling(self) -> Task[int] | None:
        """Return a task that finds the next matches; tell `took` how many it wrote. None: there are no more."""
        if self.given:
            rows, given, used = self.pairs.rows, self.given, self.used
            rows[:, : used - given] = rows[:, given:used]
            self.used, self.given = used - given, 0
        if self.kernel.is_done:
            return None
        return self.kernel.filling(*self.pairs.room(self.used, self.chunk_rows))

    def counting(self, out_counts: Int64, sums: PartnerSums | None = None) -> Iterator[Task[None]]:
        """Yield tasks that add to each probe's count how many pairs it has, in place of `filling`; do each at once.

        They give the pairs to the sums, which have columns of `run_set`.
        """
        if isinstance(self.kernel, RunByRunProbe):
            yield from self.kernel.counting(out_counts, sums)
        else:
            yield self.kernel.counting(out_counts, sums)

    def count(self, written: int) -> None:
        """Count the pairs that the last task wrote."""
        if isinstance(self.kernel, RunByRunProbe):
            self.kernel.took(written)
        self.used += written

    def took(self, written: int) -> tuple[Int32, Selection] | None:
        """Count what the last task wrote; return a chunk of matches if there is a whole one, valid until `filling`."""
        self.count(written)
        return self.whole_chunk()

    @property
    def is_one_task(self) -> bool:
        """Whether one task finds all matches, where the buffer has room for them."""
        return not isinstance(self.kernel, RunByRunProbe) or self.kernel.is_one_task

    def whole_chunk(self) -> tuple[Int32, Selection] | None:
        """Return a whole chunk of matches, if there is one; it is valid until the next `filling`."""
        if self.used < self.chunk_rows:
            return None
        self.given = self.chunk_rows
        return self._first(self.given)

    def rest(self) -> tuple[Int32, Selection]:
        """Return the matches in the buffer, which are the last ones when there are no more to be found."""
        return self._first(self.used)

    @property
    def tested_pairs(self) -> int:
        """How many pairs are done: tested, or left out with their run."""
        kernel = self.kernel
        return kernel.tested_pairs if isinstance(kernel, RunByRunProbe) else kernel.candidates

    def _first(self, count: int) -> tuple[Int32, Selection]:
        """Return the first `count` pairs of the buffer: positions of probes, and the tuples they found."""
        probes, rows, places = self.pairs.rows[:, :count]
        return probes, Selection(*self.run_set.resolved(places, rows))


class WindowProbe:
    """The maker of probings: it chooses their kernels, and keeps their buffers for the next ones.

    Parameters
    ----------
    kernels : Kernels
    threads : int
    chunk_rows : int
        How many pairs are given at a time.
    tuning : ProbeTuning

    Attributes
    ----------
    threads : int
        How many threads a probing is cut into parts for.
    candidates : int
        Pairs tested so far.
    """

    def __init__(self, kernels: Kernels, threads: int, chunk_rows: int, tuning: ProbeTuning = DEFAULT.probe) -> None:
        self._kernels, self.threads, self._tuning = kernels, threads, tuning
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
        """Begin to probe all runs of a window."""
        run_set = window.run_set.seen_by(conditions)
        kernel = self._kernel(conditions, columns, count, window, run_set)
        return self._cursor(kernel, run_set)

    def has_groups(self, window: Window, count: int) -> bool:
        """Whether one kernel takes so many probes through several runs, so that groups of runs can be parts."""
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
        """Begin to probe all runs of a window, in parts whose pairs follow each other.

        A bucket grid is one part, and so are few probes.
        """
        has_groups = self.has_groups(window, count) and not _has_one_end(conditions)
        if window.is_grid or (not has_groups and count <= self._tuning.few_probes):
            whole = self.begin(conditions, columns, count, window)
            whole.row_count = window.rows
            return [whole]
        run_set = window.run_set.seen_by(conditions)
        runs = self._seen(window, run_set)
        if not has_groups:
            probes = self._run_probe(conditions, columns, count)
            parts: list[Sequence[Stretch | Neighbours]] = [*self._cut(probes, runs, self._tuning.parts_per_thread)]
        else:
            # The kernel over several runs leaves out no probe, and scans small runs by a rule of its own. So must the
            # kernel that meets a piece of one run, for the same pairs in the same order, and as many tested.
            tuning = replace(self._tuning, trim_share=0.0, scan_pairs=self._kernels.module.SCAN_PAIRS)
            probes = RunProbe(self._kernels, conditions, columns, count, tuning)
            cut = self._cut(probes, runs, self._tuning.groups_per_thread)
            parts = [self._neighbours(part, conditions, columns, count, window, runs) for part in cut]
        kernels = [RunByRunProbe(probes, runs, part) for part in parts]
        return [self._cursor(kernel, run_set, kernel.row_count) for kernel in kernels]

    def _cut(self, probes: RunProbe, runs: Sequence[Probed], parts_per_thread: int) -> list[list[Stretch]]:
        """Return parts of like cost, fewer than are wanted where they would be too small to be worth a thread."""
        costs, tuning = probes.costs(runs), self._tuning
        worth = int(sum(costs) / tuning.least_part_ns)
        parts = max(min(self.threads * parts_per_thread, worth), 1)
        return like_shares(costs, parts, tiles_of(probes.count), tuning.snap_share)

    def _neighbours(
        self,
        part: Sequence[Stretch],
        conditions: tuple[ProbeCondition, ...],
        columns: list[Column],
        count: int,
        window: Window,
        runs: Sequence[Probed],
    ) -> list[Stretch | Neighbours]:
        """Return a part with one kernel for all runs that it has whole."""
        whole = [stretch.run_number for stretch in part if stretch.is_whole]
        if not whole:
            return list(part)
        begin, end = whole[0], whole[-1] + 1
        before = [stretch for stretch in part if stretch.run_number < begin]
        after = [stretch for stretch in part if stretch.run_number >= end]
        run_set = window.run_set.seen_by(conditions)
        last_rows = window.tail.rows or -1 if end == len(runs) else -1
        kernel = self._runs_probe(columns, run_set.indexes(conditions)[begin:end], last_rows, count)
        group = Neighbours(begin, kernel, sum(run.rows for run in runs[begin:end]))
        return [*before, group, *after]

    def matches(self, probing: ProbeCursor, mark: PieceProgress | None = None) -> Iterator[tuple[Int32, Selection]]:
        """Yield all matches of a probing, found by this thread; then release the probing."""
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
        """Return the kernel for a probing that is not cut into parts, as the table above says."""
        runs = run_set.runs
        if not runs:  # no probe needs a look
            return self._runs_probe([column[:0] for column in columns], [], -1, 0)
        if window.is_grid:
            indexes, last_rows = run_set.indexes(conditions), window.tail.rows or -1
            return self._runs_probe(columns, indexes, last_rows, count, self._tuning.slice_probes)
        if count > self._tuning.few_probes and not (
            self._has_groups(runs[: len(runs) - _tails(window)], count) and not _has_one_end(conditions)
        ):
            seen = self._seen(window, run_set)
            whole = [Stretch(number) for number in range(len(seen))]
            return RunByRunProbe(self._run_probe(conditions, columns, count), seen, whole)
        return self._runs_probe(columns, run_set.indexes(conditions), window.tail.rows or -1, count)

    @staticmethod
    def _seen(window: Window, run_set: RunSet | RunSetView) -> Sequence[Probed]:
        """Return the runs as probes see them now; the set may hold the tail with fewer rows than it has now."""
        tails = _tails(window)
        return (*run_set.runs[: len(run_set.runs) - tails], *window.runs[len(window.runs) - tails :])

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


def _tails(window: Window) -> int:
    """Return how many of a window's runs are its tail: one or none."""
    return len(window.runs) - len(window.before_tail)


def _has_one_end(conditions: Sequence[ProbeCondition]) -> bool:
    """Whether an interval among the conditions has one end.

    It may have half of all pairs. One kernel over several runs would not say how far it is in a run.
    """
    numbers = [condition.interval_number for condition in conditions if condition.interval_number >= 0]
    return any(numbers.count(number) == 1 for number in numbers)
