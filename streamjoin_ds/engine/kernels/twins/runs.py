"""A few probes against all runs of a window, and gathering over runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

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

__all__ = ["SCAN_PAIRS", "SCAN_ROWS_ALONE", "RunColumns", "RunIndex", "RunsProbe"]

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
    def is_done(self) -> bool:
        """Whether there are no more pairs."""
        is_last = self._begin + self._count >= self._end
        return self._kernel is None and is_last and (self._run + 1 >= len(self._indexes) or not self._count)

    def filling(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> Task[int]:
        """`fill` as a task for a pool."""
        return Task(partial(self.fill, out_probe, out_row, out_run))

    def counting(self, out_counts: Int64) -> Task[None]:
        """Return a task that adds to each probe's count how many pairs it has; no pairs are written then."""
        if len(out_counts) < self._end:
            refuse("out_counts has fewer rows than there are probes", "out_counts")

        def fill(out_probe: Int32, out_row: Int32) -> int:
            return self.fill(out_probe, out_row, np.empty_like(out_row))

        return counting_pairs(fill, out_counts)

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


class RunColumns:
    """The same columns of several runs, to be gathered from.

    Parameters
    ----------
    runs : sequence of sequence of ndarray
        Run by run, column by column; items of 1, 2, 4, 8 or 16 bytes.
    """

    def __init__(self, runs: Sequence[Sequence[Column]]) -> None:
        if not runs or any(len(columns) != len(runs[0]) for columns in runs):
            refuse("runs differ in their number of columns", "runs")
        for columns in runs:
            for column, first in zip(columns, runs[0], strict=True):
                check_array(column, "runs", first.dtype)
                if len(column) != len(columns[0]):
                    refuse("columns of a run differ in length", "runs")
                if column.dtype.itemsize not in (1, 2, 4, 8, 16) or column.dtype.hasobject:
                    refuse("column items must have 1, 2, 4, 8 or 16 bytes", "runs")
        self._runs = [list(columns) for columns in runs]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """The dtype of each column."""
        return [column.dtype for column in self._runs[0]]

    @property
    def item_bytes(self) -> list[int]:
        """Bytes of an item of each column."""
        return [column.dtype.itemsize for column in self._runs[0]]

    def gathering(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> Task[None]:
        """`gather` as a task for a pool."""
        return Task(partial(self.gather, run_numbers, rows, outs))

    def gather(self, run_numbers: Int32 | int | None, rows: Int32, outs: Sequence[Column | None]) -> None:
        """Write row ``rows[i]`` of run ``run_numbers[i]`` to item i of each column's out, if it has one.

        Parameters
        ----------
        run_numbers : ndarray, shape (n,), int32, or int, or None
            The number of each row's run. An int: the run of all rows. None: all rows are of run 0.
        """
        check_array(rows, "rows", np.dtype(np.int32))
        if len(outs) != len(self._runs[0]):
            refuse("there must be an out for each column", "outs")
        if run_numbers is None or isinstance(run_numbers, int):
            run_numbers = np.full(len(rows), run_numbers or 0, np.int32)
        if len(run_numbers) != len(rows):
            refuse("run_numbers and rows differ in length", "run_numbers")
        lengths = np.array([len(columns[0]) if columns else 0 for columns in self._runs], dtype=np.int64)
        inside = (run_numbers >= 0) & (run_numbers < len(self._runs)) & (rows >= 0)
        if not np.all(inside) or not np.all(rows < lengths[run_numbers]):
            refuse("rows or run_numbers point outside the runs", "rows")
        for column, out in enumerate(outs):
            if out is None:
                continue
            if len(out) != len(rows) or out.dtype.itemsize != self._runs[0][column].dtype.itemsize:
                refuse("out and rows differ in length", "outs")
            for run_number in np.unique(run_numbers):
                chosen = run_numbers == run_number
                out.view(self._runs[run_number][column].dtype)[chosen] = self._runs[run_number][column][rows[chosen]]
