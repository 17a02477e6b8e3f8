"""The probe of a bucket grid: it looks at the buckets of the cells that a probe's band covers, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Column, End, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import INT64_MAX, INT64_MIN, MAX_CONDITIONS, ends, refuse
from streamjoin_ds.engine.kernels.twins.bucket import CELL_LIMIT, BucketGrid
from streamjoin_ds.engine.kernels.twins.grid import bucket_range

__all__ = ["BucketIndex", "BucketProbe"]

MAX_VISITS = 64  # cells of one probe; where its band covers more, the probe looks at all buckets

_ITEM_KINDS = ("f8", "f4", "i8", "i4")


class BucketIndex:
    """A bucket grid as `RunsProbe` takes it. A later probing also sees the rows that were inserted meanwhile.

    Parameters
    ----------
    grid : BucketGrid
    right : sequence of ndarray, float64, float32, int64 or int32
        For each condition, the grid's own column: the same array object.
    lo, hi : sequence of float or int or None
        As in `Scan`.
    keys : sequence of int
        For each key of the grid, the condition that serves it. -1: none does, and every probe looks at all buckets.
    """

    def __init__(
        self,
        grid: objects.BucketGrid,
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        keys: Sequence[int],
    ) -> None:
        if not isinstance(grid, BucketGrid):
            refuse("grid must be a BucketGrid", "grid")
        if not len(right) == len(lo) == len(hi):
            refuse("right, lo and hi differ in length", "right")
        if len(right) > MAX_CONDITIONS:
            refuse("more than 16 conditions", "right")
        if len(keys) != len(grid.keys) or any(not -1 <= number < len(right) for number in keys):
            refuse("keys must name a condition, or -1, for each key of the grid", "keys")
        served = [number for number in keys if number >= 0]
        if len(set(served)) < len(served):
            refuse("one condition cannot serve two keys", "keys")
        for column in right:
            if not any(column is mine for mine in grid.columns) or column.dtype.str[1:] not in _ITEM_KINDS:
                refuse("right must be columns of the grid", "right", hint="float64 or float32, int64 or int32")
        for number, (is_float, _) in zip(keys, grid.keys, strict=True):
            if number >= 0 and (right[number].dtype.kind == "f") != is_float:
                refuse("a key is of another type than its condition", "keys")
        self.grid, self.columns, self.keys = grid, list(right), list(keys)
        self.bands = [ends(*pair) for pair in zip(lo, hi, strict=True)]
        self.is_equality = [low is None for low in lo]
        # The probes' side has columns of these types.
        self.right = [np.empty(0, dtype=np.float64 if column.dtype.kind == "f" else np.int64) for column in right]

    @property
    def conditions(self) -> int:
        """Number of conditions."""
        return len(self.right)


class BucketProbe:
    """Probes against a bucket grid.

    Notes
    -----
    Order of the pairs: by probe, then by cell (ascending by the first key, then by the second), then by arrival in the
    cell's bucket. A probe looks at each bucket once. If its band covers more than 64 cells, or a key of the grid is
    served by no condition, it looks at all buckets in order.
    """

    def __init__(self, left: Sequence[Column], of: BucketIndex, count: int) -> None:
        self._left, self._of, self._count = left, of, count
        self._pairs = self._found()
        self.candidates = 0

    def fill(self, out_probe: Int32, out_row: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        written = 0
        for probe, row in self._pairs:
            out_probe[written], out_row[written] = probe, row
            written += 1
            if written == len(out_probe):
                break
        return written

    def _found(self) -> Iterator[tuple[int, int]]:
        of, grid = self._of, self._of.grid
        serves = bool(grid.keys) and min(of.keys) >= 0
        ranges: list[tuple[Int64, Int64]] = []
        for number, (is_float, width) in zip(of.keys, grid.keys, strict=True):
            if serves:
                start, end = bucket_range(self._left[number], *of.bands[number], width)
                if is_float:
                    start, end = np.clip(start, -CELL_LIMIT, CELL_LIMIT), np.clip(end, -CELL_LIMIT, CELL_LIMIT)
                ranges.append((start, end))
        for probe in range(self._count):
            spans = [range(int(first[probe]), int(last[probe]) + 1) for first, last in ranges]
            cells = 1
            for span in spans:
                cells *= max(0, span.stop - span.start)  # len() refuses more than an int64
            buckets = list(range(grid.buckets))
            if serves and cells <= MAX_VISITS:
                buckets = list(dict.fromkeys(grid.bucket_of(cell) for cell in product(*spans)))
            if self._is_dead(probe):
                continue
            for bucket in buckets:
                rows = grid.rows_of(bucket)
                self.candidates += len(rows)
                yield from ((probe, row) for row in rows if self._matches(probe, row))

    def _is_dead(self, probe: int) -> bool:
        """Whether no row could match this probe, whatever the row's values."""
        for left, (lo, hi) in zip(self._left, self._of.bands, strict=True):
            value = left[probe].item()
            if value != value:
                return True
            if left.dtype.kind == "i" and (lo > hi or value - hi > INT64_MAX or value - lo < INT64_MIN):
                return True
        return False

    def _matches(self, probe: int, row: int) -> bool:
        of = self._of
        for left, column, (lo, hi), is_equality in zip(self._left, of.columns, of.bands, of.is_equality, strict=True):
            # A Python number is a float64, or an integer without bounds.
            probed, found = left[probe].item(), column[row].item()
            if not (probed == found if is_equality else lo <= probed - found <= hi):
                return False
        return True
