"""A few probes against all runs of a window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.contract import MAX_CONDITIONS
from streamjoin_ds.engine.kernels.objects import Bound, Column, End, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, common_length, ends, float_bound, own, refuse
from streamjoin_ds.engine.kernels.twins.bucket import BucketIndex, BucketProbe
from streamjoin_ds.engine.kernels.twins.grid import (
    FENCE_ROWS,
    GridProbe,
    check_interval,
    check_steps,
    gather,
    grid_order,
    probe_buckets,
)
from streamjoin_ds.engine.kernels.twins.scan import Scan, counting_pairs
from streamjoin_ds.engine.kernels.twins.threads import Task

__all__ = ["SCAN_PAIRS", "SCAN_ROWS_ALONE", "RunIndex", "RunsProbe"]

# Up to so many pairs of probes and rows a run is scanned, whatever its order; with a single probe, up to so many rows.
SCAN_PAIRS = 4096
SCAN_ROWS_ALONE = 256


class RunIndex:
    """All that probing a run needs and no probe changes.

    Parameters
    ----------
    right, lo, hi, first, second, width, bucket_ids, bucket_starts, fences, steps, right_count, past, interval_lo
        As in `GridProbe`. A run without ``first`` and ``second`` is scanned.
    zone : sequence of (smallest, largest), optional
        For each condition's column. Where all probes are out of their reach, the run is passed over.
    """

    def __init__(
        self,
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None = None,
        bucket_starts: Int64 | None = None,
        fences: Column | None = None,
        steps: Int32 | None = None,
        zone: Sequence[tuple[Bound, Bound]] | None = None,
        right_count: int | None = None,
        past: int = -1,
        interval_lo: float = 0.0,
    ) -> None:
        if not len(right) == len(lo) == len(hi):
            refuse("right, lo and hi differ in length", "right")
        if len(right) > MAX_CONDITIONS:
            refuse("more than 16 conditions", "right")
        for name, choice in (("first", first), ("second", second), ("past", past)):
            if not -1 <= choice < len(right):
                refuse(f"{name} is not the number of a condition", name)
        check_interval(past, second, right)
        self.rows = common_length(right, "right", right_count)
        if first >= 0 and (bucket_ids is None or bucket_starts is None):
            refuse("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
        if second >= 0 and fences is not None and len(fences) != -(-self.rows // FENCE_ROWS):
            refuse("fences does not fit the run", "fences")
        if steps is not None and first < 0 and second >= 0:
            check_steps(steps, right[second])
        self.right, self.lo, self.hi = list(right), list(lo), list(hi)
        self.first, self.second, self.width = first, second, width
        self.past, self.interval_lo = past, float_bound(interval_lo, "interval_lo")
        self.bucket_ids, self.bucket_starts, self.zone = bucket_ids, bucket_starts, zone

    @property
    def conditions(self) -> int:
        """Number of conditions."""
        return len(self.right)

    def may_match(self, ranges: Sequence[tuple[Bound, Bound]]) -> bool:
        """Whether probes with these smallest and largest values may reach the run."""
        if self.zone is None:
            return True
        with np.errstate(invalid="ignore", over="ignore"):
            return not any(
                probe[1] - run[0] < lo or probe[0] - run[1] > hi
                for probe, run, (lo, hi) in zip(ranges, self.zone, map(ends, self.lo, self.hi), strict=True)
            )


class RunsProbe:
    """A few probes against many runs, one after the other.

    Parameters
    ----------
    left : sequence of ndarray, shape (n_probe,), float64 or int64
        One column for each condition.
    indexes : sequence of RunIndex or BucketIndex
    last_rows : int
        Rows of the last run, which may be fewer than its columns have room for. -1: its columns are full.
    slice_probes : int, optional
        How many probes go through all runs before the next ones do. None: all of them.

    Notes
    -----
    Order of the pairs: by slice, then by run. Within a bucket grid the order is that of `BucketProbe`. Within a run it
    is that of `Scan` where the run has no order or there are few pairs (up to `SCAN_PAIRS`; for a single probe, up to
    `SCAN_ROWS_ALONE` rows), else that of `GridProbe`.
    """

    def __init__(
        self,
        left: Sequence[Column],
        indexes: Sequence[objects.RunIndex],
        *,
        implementation: str | None = None,
        last_rows: int = -1,
        left_count: int | None = None,
        slice_probes: int | None = None,
    ) -> None:
        self._all, self._last_rows = list(left), last_rows
        self._indexes: list[RunIndex | BucketIndex] = [
            of if isinstance(of, BucketIndex) else own(of, RunIndex, "indexes") for of in indexes
        ]
        if len(left) > MAX_CONDITIONS:
            refuse("more than 16 conditions", "left")
        self._end = common_length(left, "left", left_count)
        if slice_probes is not None and slice_probes < 1:
            refuse("slice_probes is out of range", "slice_probes", hint="1 or more, or None")
        self._slice_probes = slice_probes or max(self._end, 1)
        for index in self._indexes:
            if len(index.right) != len(left):
                refuse("left and the indexes differ in their conditions", "left")
            if any(mine.dtype != theirs.dtype for mine, theirs in zip(left, index.right, strict=True)):
                refuse("left and right differ in type", "left")
        if last_rows >= 0:
            last = self._indexes[-1] if self._indexes else None
            if not isinstance(last, RunIndex) or last_rows > last.rows or last.first >= 0 or last.second >= 0:
                refuse("last_rows does not fit the last run", "last_rows")
        self._kernel: Scan | GridProbe | BucketProbe | None = None
        self.candidates = 0
        self._begin_slice(0)

    def _begin_slice(self, begin: int) -> None:
        self._begin, end = begin, min(begin + self._slice_probes, self._end)
        self._left, self._count = [column[begin:end] for column in self._all], end - begin
        self._intervals = [(column.min().item(), column.max().item()) for column in self._left] if self._count else []
        self._run = -1

    @property
    def count(self) -> int:
        """How many probes there are."""
        return self._end

    @property
    def run_rows(self) -> list[int]:
        """How many rows each run has; of a bucket grid, how many there is room for."""
        return [len(one.grid.columns[0]) if isinstance(one, BucketIndex) else one.rows for one in self._indexes]

    @property
    def is_done(self) -> bool:
        """Whether there are no more pairs."""
        is_last = self._begin + self._count >= self._end
        return self._kernel is None and is_last and (self._run + 1 >= len(self._indexes) or not self._count)

    def filling(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> Task[int]:
        """`fill` as a task for a pool."""
        return Task(partial(self.fill, out_probe, out_row, out_run))

    def counting(
        self, out_counts: Int64, sums: objects.PartnerSums | None = None, run_number: int = 0, first: int = 0
    ) -> Task[None]:
        """Return a task that adds to each probe's count how many pairs it has; no pairs are written then.

        Parameters
        ----------
        out_counts : ndarray, shape (n_probe,), int64
        sums : PartnerSums, optional
            It takes the pairs: the group of a probe is its number and `first`.
        run_number : int
            The number of the first run, among those whose columns the sums have.
        first : int
        """
        if len(out_counts) < self._end:
            refuse("out_counts has fewer rows than there are probes", "out_counts")
        return counting_pairs(self.fill, out_counts, sums, run_number, first)

    def fill(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> int:
        """Write the next pairs and the number of each one's run; 0 means there are no more."""
        for name, out in (("out_probe", out_probe), ("out_row", out_row), ("out_run", out_run)):
            check_array(out, name, np.dtype(np.int32), writeable=True)
        if not len(out_probe) == len(out_row) == len(out_run):
            refuse("the outputs must be of one length, 64 at least", "out_probe")
        while True:
            if self._kernel is not None:
                count = self._kernel.fill(out_probe, out_row)
                if count:
                    out_run[:count] = self._run
                    out_probe[:count] += np.int32(self._begin)
                    return count
                self.candidates += self._kernel.candidates
                self._kernel = None
            if self._run + 1 >= len(self._indexes) or not self._count:
                if self._begin + self._count >= self._end:
                    return 0
                self._begin_slice(self._begin + self._count)
                continue
            self._run += 1
            self._kernel = self._entered(self._indexes[self._run])

    def _entered(self, index: RunIndex | BucketIndex) -> Scan | GridProbe | BucketProbe | None:
        if isinstance(index, BucketIndex):
            return BucketProbe(self._left, index, self._count)
        rows = self._last_rows if self._run == len(self._indexes) - 1 and self._last_rows >= 0 else index.rows
        if not rows or not index.may_match(self._intervals):
            return None
        scanned = SCAN_ROWS_ALONE if self._count == 1 else SCAN_PAIRS // self._count
        if rows <= scanned or (index.first < 0 and index.second < 0):
            right = [column[:rows] for column in index.right]
            return Scan(self._left, right, index.lo, index.hi, left_count=self._count, right_count=rows)
        buckets = None
        if index.first >= 0:
            first = index.first
            buckets = probe_buckets(self._left[first], index.lo[first], index.hi[first], index.width)
        within = self._left[index.second] if index.second >= 0 else np.zeros(self._count, dtype=np.int64)
        order = grid_order(buckets, within)
        return GridProbe(
            [gather(column, order) for column in self._left],
            index.right,
            index.lo,
            index.hi,
            first=index.first,
            second=index.second,
            width=index.width,
            bucket_ids=index.bucket_ids,
            bucket_starts=index.bucket_starts,
            probe_order=order,
            past=index.past,
            interval_lo=index.interval_lo,
        )
