"""The policies of merging: which runs of a window are merged, and when. One is for memory, one for blocks.

::

    in memory    many levels of few     16 │ 16 │ 16 │ 4 │ 4 │ 1 │ 1 ┆ tail     fewest runs, a copy a level
    in blocks    one level of many      8 │ 8 │ 8 │ 8 │ 8 │ 8 │ 8 │ 1 │ 1 │ 1 │ 1 │ 1 ┆ tail

To copy a row in memory costs 25 to 90 ns, and to probe a further run 50 ns (measured). So merging in memory is
logarithmic (PIM-Tree's merge ratio). A window in blocks writes every copy to the disk. Its runs gather until there are
as many as there are merged runs. Then they are merged in one go into a run that stays until it expires whole (the basic
windows of CellJoin and DP-Join). Both numbers are about the square root of the batches in the window. So a row is
written twice at most, in windows of up to about 2 000 batches; in larger ones a part of the rows is written once more.

Both policies merge runs only while the merged run spans a small part of the window's positions (event times, or numbers
of a count window). So whole runs expire, and the exact test does the rest (coarse-grained disposal: PIM-Tree, section
3.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.tuning import DEFAULT, MergeTuning
from streamjoin_ds.errors import ArgumentError

__all__ = ["BlockMergePolicy", "DueMerge", "MergePolicy", "RatioMergePolicy", "chosen_merge_policy"]

_MIN_RATIO, _MAX_RATIO = 2, 1 << 20  # bounds of the option `merge_runs`, a number of runs


class DueMerge(NamedTuple):
    """Neighbouring runs that are to become one run.

    Attributes
    ----------
    runs : slice
        Their places among the window's sealed runs.
    level : int
        The level of the merged run: 1 where rows that were in a block are written again.
    """

    runs: slice
    level: int


class MergePolicy(Protocol):
    """The rule by which runs are merged and thinned out; its answers are a function of the arguments alone."""

    def due(self, runs: Sequence[Run], span: int) -> DueMerge | None:
        """Return the runs to be merged next; None: no merge is due.

        Parameters
        ----------
        runs : sequence of Run
            Sealed, oldest insertion first.
        span : int
            From the window's smallest position to its largest.
        """

    def ends(self, tail: Run) -> bool:
        """Whether a tail is large enough to be sealed although it still has room."""

    def thins(self, run: Run, runs: Sequence[Run], lowest_kept: int) -> bool:
        """Whether the live rows of a run that has mostly expired are copied into a smaller run."""

    def describe(self) -> str:
        """Return the rule in words, for `explain`."""


class RatioMergePolicy:
    """The policy of windows in memory, and of a forced ratio: `ratio` runs of like size are merged at once.

    A tuple is copied only into a run at least twice as large as the one it leaves. The runs that cannot be merged grow
    geometrically towards the old end, whatever the sizes of the batches.

    Parameters
    ----------
    ratio : int or None
        How many runs are merged, at least: 2 or more. None: `MergeTuning.ratio`.
    tuning : MergeTuning
    """

    def __init__(self, ratio: int | None = None, tuning: MergeTuning = DEFAULT.merging) -> None:
        self.ratio = tuning.ratio if ratio is None else ratio
        self._tuning = tuning

    def due(self, runs: Sequence[Run], span: int) -> DueMerge | None:
        """Return the newest and fewest neighbours that may be merged.

        They are at least `ratio` runs, of which none is larger than the others together.
        """
        for start in range(len(runs) - self.ratio, -1, -1):
            group = _Group(runs[start], span, self._tuning)
            for stop in range(start + 1, len(runs)):
                if not group.has_room(runs[stop]):
                    break
                group.add(runs[stop])
                if group.count >= self.ratio and 2 * group.largest <= group.rows and group.is_narrow:
                    return DueMerge(slice(start, stop + 1), max(run.level for run in runs[start : stop + 1]))
        return None

    def ends(self, tail: Run) -> bool:
        """Return False: a tail is sealed only when it is full."""
        del tail
        return False

    def thins(self, run: Run, runs: Sequence[Run], lowest_kept: int) -> bool:
        """Return True: live rows are always copied."""
        del run, runs, lowest_kept
        return True

    def describe(self) -> str:
        """Return the ratio in words."""
        return f"merge ratio {self.ratio}"


class BlockMergePolicy:
    """The policy of windows in blocks: runs are merged once, many at a time.

    ::

        runs             are merged when there are                                                  into
        ───────────────  ─────────────────────────────────────────────────────────────────────────  ───────
        not in a block   as many bytes as make one                                                  level 0
        of level 0       as many as there are of level 1: at least 4, at most 32; or, of a window   level 1
                         of a few batches, two or three that span a quarter of it
        of level 1       96 runs in all, in windows of more than 1 000 batches: 16 at a time        level 1

    Parameters
    ----------
    block_bytes : int
        Runs of so many bytes are written as blocks; smaller ones are written with every batch.
    extent : int
        What the window will span at least once it is full, in units of its position.
    tuning : MergeTuning
        The numbers above are its defaults.
    """

    def __init__(self, block_bytes: int, extent: int = 0, tuning: MergeTuning = DEFAULT.merging) -> None:
        self.block_bytes = block_bytes
        self._extent, self._tuning = extent, tuning
        self._inline, self._many = RatioMergePolicy(tuning=tuning), RatioMergePolicy(tuning.many_ratio, tuning)

    def due(self, runs: Sequence[Run], span: int) -> DueMerge | None:
        """Return runs that are in no block yet, else the oldest runs that were never merged, else merged ones."""
        span = max(span, self._extent)
        steps = (self._gathered, self._merged_once, self._merged_again)
        return next((found for step in steps if (found := step(runs, span)) is not None), None)

    def ends(self, tail: Run) -> bool:
        """Whether the tail is large enough for a block."""
        return tail.size_bytes >= self.block_bytes

    def thins(self, run: Run, runs: Sequence[Run], lowest_kept: int) -> bool:
        """Whether the run spans more than half of the live positions.

        Of a shorter run a copy costs more than the few dead rows.
        """
        first, last = run.position
        return 2 * (last - first) > max(other.position[1] for other in runs) - lowest_kept

    def describe(self) -> str:
        """Return the rule in words."""
        return f"runs merged once, {self._tuning.least_gathered} to {self._tuning.most_gathered} at a time"

    def _gathered(self, runs: Sequence[Run], span: int) -> DueMerge | None:
        """Return the newest runs, which are in no block yet, where they make one together or are many."""
        start = len(runs)
        while start and runs[start - 1].block is None:
            start -= 1
        fresh, most = runs[start:], self._tuning
        rows, size_bytes = sum(run.rows for run in fresh), sum(run.size_bytes for run in fresh)
        is_block = self.block_bytes <= size_bytes <= most.most_run_bytes and rows <= most.most_run_rows
        if is_block and len(fresh) > 1 and fresh[0].size_bytes < self.block_bytes:
            return DueMerge(slice(start, len(runs)), 0)
        found = self._inline.due(fresh, span) if size_bytes < self.block_bytes else None
        return None if found is None else DueMerge(slice(start + found.runs.start, start + found.runs.stop), 0)

    def _merged_once(self, runs: Sequence[Run], span: int) -> DueMerge | None:
        tuning = self._tuning
        higher = sum(run.level > 0 for run in runs)
        enough = min(max(higher, tuning.least_gathered), tuning.most_gathered)
        least_full = tuning.least_full if len(runs) <= tuning.few_runs else tuning.least_gathered
        for group, is_full in _groups(runs, span, tuning):
            if group.stop - group.start >= (least_full if is_full else enough):
                return DueMerge(group, 1)
        return None

    def _merged_again(self, runs: Sequence[Run], span: int) -> DueMerge | None:
        if len(runs) < self._tuning.many_runs:
            return None
        merged = max((place for place, run in enumerate(runs, 1) if run.level), default=0)
        found = self._many.due(runs[:merged], span)
        found = self._many.due(runs, span) if found is None else found
        return None if found is None else DueMerge(found.runs, 1)


def chosen_merge_policy(ratio: int | None, block_bytes: int | None, extent: int, tuning: MergeTuning) -> MergePolicy:
    """Return the policy for windows in blocks or in memory, or that of a forced ratio.

    Parameters
    ----------
    ratio : int or None
        The forced ratio (the option `merge_runs`); None: nothing is forced.
    block_bytes : int or None
        Bytes of the smallest block; None: the window stays in memory.
    extent : int
        Of the window, in units of its position.
    tuning : MergeTuning

    Raises
    ------
    ArgumentError
        The ratio is out of range.
    """
    if ratio is None and block_bytes is not None:
        return BlockMergePolicy(block_bytes, extent, tuning)
    if ratio is not None and not _MIN_RATIO <= ratio <= _MAX_RATIO:
        msg = "merge_runs is out of range"
        raise ArgumentError(msg, name="merge_runs", hint=f"{_MIN_RATIO} to {_MAX_RATIO}")
    return RatioMergePolicy(ratio, tuning)


class _Group:
    """Neighbouring runs that may be merged into one."""

    def __init__(self, run: Run, span: int, tuning: MergeTuning) -> None:
        self.count, self.rows, self.largest, self.size_bytes = 1, run.rows, run.rows, run.size_bytes
        self._oldest, self._newest = run.position
        self._longest = self._newest - self._oldest
        self._max_span, self._tuning = span // tuning.span_parts, tuning

    def has_room(self, run: Run) -> bool:
        """Whether the group together with this run is small enough to be merged in one go."""
        rows, size_bytes = self.rows + run.rows, self.size_bytes + run.size_bytes
        return rows <= self._tuning.most_run_rows and size_bytes <= self._tuning.most_run_bytes

    def add(self, run: Run) -> None:
        """Add a run to the group."""
        first, last = run.position
        self.count, self.rows = self.count + 1, self.rows + run.rows
        self.largest, self.size_bytes = max(self.largest, run.rows), self.size_bytes + run.size_bytes
        self._oldest, self._newest = min(self._oldest, first), max(self._newest, last)
        self._longest = max(self._longest, last - first)

    @property
    def is_narrow(self) -> bool:
        """Whether the group spans a small part of the window, or hardly more than its longest run."""
        return self._newest - self._oldest <= self._most_span

    @property
    def is_filled(self) -> bool:
        """Whether one more run would probably make the group span too much."""
        advance = (self._newest - self._oldest - self._longest) / max(self.count - 1, 1)
        return self._newest - self._oldest + advance > self._most_span

    @property
    def _most_span(self) -> float:
        return max(self._max_span, self._tuning.span_growth * self._longest)


def _groups(runs: Sequence[Run], span: int, tuning: MergeTuning) -> Iterator[tuple[slice, bool]]:
    """Yield the longest group of level 0 from each run on, oldest first, and whether one more run is too many."""
    for start, first in enumerate(runs):
        if first.level:
            continue
        group, stop, is_full = _Group(first, span, tuning), start + 1, False
        while stop < len(runs) and not runs[stop].level:
            is_full = not group.has_room(runs[stop])
            if is_full:
                break
            group.add(runs[stop])
            is_full = not group.is_narrow
            if is_full:
                break
            stop += 1
        yield slice(start, stop), is_full or group.is_filled
