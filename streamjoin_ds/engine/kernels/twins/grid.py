"""Runs in grid order: laid out by bucket and key, and met by sorted probes (the grid probe).

A run is laid out by bucket numbers, the order by them, the directory of the buckets that occur, and a gather by that
order. The grid probe joins sorted probes with such a run: a merge join in each neighbouring bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.objects import Bound, Column, End, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import (
    check_array,
    check_column,
    ends,
    float_bound,
    index,
    refuse,
    saturate,
)
from streamjoin_ds.engine.kernels.twins.scan import CheckedBand, PairJoin
from streamjoin_ds.engine.kernels.twins.threads import Task
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = [
    "FENCE_ROWS",
    "GridProbe",
    "bucket_directory",
    "bucket_range",
    "gather",
    "grid_buckets",
    "grid_order",
    "merge_order",
    "probe_buckets",
    "step_starts",
]

FENCE_ROWS = 32  # rows from one fence of a run to the next
_STEP_ROWS = 4  # rows of a step, at least, on the average over the steps
_MAX_STEP_ROWS = 32  # rows of a step, at most, on the average over the rows of a run
_BUCKET_LIMIT = 2**62  # bucket numbers of floats are clamped to this on either side of zero
_NAN_BUCKET = INT64_MAX


def grid_buckets(column: Column, width: Bound, offset: Bound) -> Int64:
    """Number each value's grid bucket, ``floor((x + offset) / width)``; monotone in x.

    Parameters
    ----------
    column : ndarray, shape (n,), float64 or int64, C-contiguous
    width : float or int, of the column's kind
        Finite and > 0.
    offset : float or int, of the column's kind
        Finite. Integers are added saturating at the ends of int64.

    Returns
    -------
    ndarray, shape (n,), int64
        Floats are clamped to +-2**62; NaN gets the largest int64, a bucket that no probe visits.
    """
    check_column(column, "column")
    if column.dtype.kind == "f":
        width_value, offset_value = float_bound(width, "width"), float_bound(offset, "offset")
        if not (0 < width_value < np.inf and np.isfinite(offset_value)):
            refuse("width must be finite and > 0, offset finite", "width")
        return float_buckets(column + np.float64(offset_value), width_value)
    width_int, offset_int = index(width, "width"), index(offset, "offset")
    if not (0 < width_int <= INT64_MAX and INT64_MIN <= offset_int <= INT64_MAX):
        refuse("width must be > 0, and width and offset within int64", "width")
    if offset_int >= 0:
        shifted = np.minimum(column, INT64_MAX - offset_int) + offset_int
    else:
        shifted = np.maximum(column, INT64_MIN - offset_int) + offset_int
    return np.asarray(shifted // np.int64(width_int), dtype=np.int64)


def probe_buckets(left_first: Column, lo: End, hi: End, width: Bound) -> Int64:
    """Number the first bucket in which a probe can find a match.

    It is the bucket of the smallest right value that can match. That value is exact for integers, and may be an ulp or
    so too small for floats: an index finds candidates, the exact test decides.

    Parameters
    ----------
    left_first : ndarray, shape (n_probe,), float64 or int64
        The probes' bucket attribute.
    lo, hi : float or int or None
        The attribute's band; None for both: an equality of floats.
    width : float or int
        The bucket width the run was laid out with (offset 0).

    Returns
    -------
    ndarray, shape (n_probe,), int64
    """
    check_column(left_first, "left_first")
    start, _ = bucket_range(left_first, lo, hi, width)
    return start


def grid_order(buckets: Int64 | None, second: Column) -> Int32:
    """Sort by (bucket, second): a stable permutation.

    Parameters
    ----------
    buckets : ndarray, shape (n,), int64, or None
        None: sort by ``second`` alone.
    second : ndarray, shape (n,), float64 or int64
        NaN comes last within its bucket; -0.0 and 0.0 are equal.

    Returns
    -------
    ndarray, shape (n,), int32
    """
    check_column(second, "second")
    if buckets is None:
        return np.argsort(second, kind="stable").astype(np.int32)
    check_array(buckets, "buckets", np.dtype(np.int64))
    if len(buckets) != len(second):
        refuse("buckets and second differ in length", "buckets")
    return np.lexsort((second, buckets)).astype(np.int32)


def grid_ordering(buckets: Int64 | None, second: Column) -> Task[Int32]:
    """`grid_order` as a task for a pool."""
    return Task(partial(grid_order, buckets, second))


def merge_order(buckets: Sequence[Int64] | None, seconds: Sequence[Column]) -> tuple[Int32, Int32]:
    """Return the order in which the rows of several runs, each sorted by (bucket, second), are one sorted run.

    Parameters
    ----------
    buckets : sequence of ndarray, shape (n_run,), int64, or None
        One for each run; None: the runs are sorted by ``second`` alone.
    seconds : sequence of ndarray, shape (n_run,), all float64 or all int64
        One for each run, and at least one; order of NaN and zeros as in `grid_order`.

    Returns
    -------
    run_numbers, rows : ndarray, shape (n,), int32
        The number of each row's run, and the row in that run. Of equal rows, the earlier run's comes first: the order
        is that of `grid_order` over the runs one behind the other.
    """
    if not seconds or (buckets is not None and len(buckets) != len(seconds)):
        refuse("there must be a second, and the buckets or none, of each run", "seconds")
    for run, second in enumerate(seconds):
        check_column(second, "seconds")
        if second.dtype != seconds[0].dtype:
            refuse("the runs differ in type", "seconds")
        if buckets is not None:
            check_array(buckets[run], "buckets", np.dtype(np.int64))
            if len(buckets[run]) != len(second):
                refuse("buckets and seconds differ in length", "buckets")
    order = grid_order(None if buckets is None else np.concatenate(buckets), np.concatenate(seconds))
    lengths = [len(second) for second in seconds]
    run_numbers = np.repeat(np.arange(len(seconds), dtype=np.int32), lengths)
    rows = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    return run_numbers[order], rows[order]


def step_starts(column: Column) -> Int32 | None:
    """Return where the steps of a sorted column begin. All are equally wide, and there is about one for 4 to 8 rows.

    Parameters
    ----------
    column : ndarray, shape (n,), float64 or int64, ascending

    Returns
    -------
    ndarray, shape (m + 1,), int32, or None
        First row at or after each step; the last entry is n. A value's step is ``(value - column[0]) >> shift`` for
        integers, with the smallest shift that makes ``n // 4`` steps or fewer, and
        ``int((value - column[0]) * ((m - 1) / (column[-1] - column[0])))`` for floats, of which there are ``n // 4``.
        None where steps help no probe: there are fewer than 8 rows, the column's ends are equal or infinite, or the
        values are so uneven that the step of a row has more than 32 rows, on the average over all rows.
    """
    check_column(column, "column")
    most = len(column) // _STEP_ROWS
    if most < 2 or not column[-1] > column[0]:
        return None
    if column.dtype.kind == "f":
        with np.errstate(over="ignore", divide="ignore"):
            span = column[-1] - column[0]
            scale = np.float64(most - 1) / span
        if not (np.isfinite(span) and np.isfinite(scale) and scale > 0):
            return None
        count = most
        with np.errstate(invalid="ignore"):
            steps = np.clip((column - column[0]) * scale, 0, most - 1).astype(np.int64)
    else:
        offsets = column.view(np.uint64) - column[:1].view(np.uint64)
        shift = max(0, int(offsets[-1]).bit_length() - most.bit_length())
        shift += int(offsets[-1]) >> shift >= most
        steps = (offsets >> np.uint64(shift)).astype(np.int64)
        count = int(steps[-1]) + 1
    starts: Int32 = np.searchsorted(steps, np.arange(count + 1), side="left").astype(np.int32)
    shared = np.diff(starts).astype(np.float64)
    return starts if float(np.sum(shared * shared)) <= _MAX_STEP_ROWS * float(len(column)) else None


def bucket_directory(sorted_buckets: Int64) -> tuple[Int64, Int64]:
    """List the buckets that occur and where each starts.

    Parameters
    ----------
    sorted_buckets : ndarray, shape (n,), int64, ascending

    Returns
    -------
    ids : ndarray, shape (m,), int64, strictly ascending
    starts : ndarray, shape (m + 1,), int64
        Bucket ``ids[k]`` holds rows ``starts[k]:starts[k + 1]``; the last entry is n.
    """
    check_array(sorted_buckets, "sorted_buckets", np.dtype(np.int64))
    if np.any(sorted_buckets[1:] < sorted_buckets[:-1]):
        refuse("sorted_buckets is not ascending", "sorted_buckets")
    ids, starts = np.unique(sorted_buckets, return_index=True)
    return ids, np.append(starts, len(sorted_buckets)).astype(np.int64)


def gather(column: Column, order: Int32, out: Column | None = None) -> Column:
    """Copy ``column[order]`` for any fixed-width dtype of 1, 2, 4, 8 or 16 bytes.

    Parameters
    ----------
    column : ndarray, shape (m,)
    order : ndarray, shape (n,), int32, each 0 <= order < m
    out : ndarray, shape (n,), of column's dtype, optional

    Returns
    -------
    ndarray, shape (n,)
        ``out``, where it is given.
    """
    if not isinstance(column, np.ndarray):
        refuse("column must be an ndarray", "column")
    check_array(column, "column", column.dtype)
    if column.dtype.itemsize not in (1, 2, 4, 8, 16) or column.dtype.hasobject:
        refuse("column items must have 1, 2, 4, 8 or 16 bytes", "column")
    check_array(order, "order", np.dtype(np.int32))
    if len(order) and (int(order.min()) < 0 or int(order.max()) >= len(column)):
        refuse("order points outside the column", "order")
    if out is None:
        return column[order]
    check_array(out, "out", column.dtype, writeable=True)
    if len(out) != len(order):
        refuse("out and order differ in length", "out")
    out[:] = column[order]
    return out


def bucket_range(left: Column, lo: End, hi: End, width: Bound) -> tuple[Int64, Int64]:
    """Return the numbers of the first and the last bucket in which each probe can find a match."""
    lo, hi = ends(lo, hi)
    if left.dtype.kind == "f":
        lo_value, hi_value = float_bound(lo, "lo"), float_bound(hi, "hi")
        width_value = float_bound(width, "width")
        if not 0 < width_value < np.inf:
            refuse("width must be finite and > 0", "width")
        with np.errstate(all="ignore"):
            # fl(l - r) <= hi implies l - r < next(hi); the subtraction here rounds once more, hence the second step.
            smallest = np.nextafter(left - np.nextafter(hi_value, np.inf), -np.inf)
            largest = np.nextafter(left - np.nextafter(lo_value, -np.inf), np.inf)
        smallest[np.isnan(smallest)] = -np.inf
        largest[np.isnan(largest)] = np.inf
        return float_buckets(smallest, width_value), float_buckets(largest, width_value)
    lo_int, hi_int, width_int = index(lo, "lo"), index(hi, "hi"), index(width, "width")
    if not 0 < width_int <= INT64_MAX:
        refuse("width must be > 0 and within int64", "width")
    return (
        np.array([saturate(value - hi_int) // width_int for value in left.tolist()], dtype=np.int64),
        np.array([saturate(value - lo_int) // width_int for value in left.tolist()], dtype=np.int64),
    )


def float_buckets(values: npt.NDArray[np.float64], width: float) -> Int64:
    with np.errstate(all="ignore"):
        quotient = np.floor(values / np.float64(width))
    missing = np.isnan(quotient)
    quotient = np.clip(np.where(missing, 0.0, quotient), -_BUCKET_LIMIT, _BUCKET_LIMIT)
    return np.where(missing, _NAN_BUCKET, quotient.astype(np.int64))


class GridProbe(PairJoin):
    """Join sorted probes with a run in grid order: a merge join in each neighbouring bucket.

    Parameters
    ----------
    left, right, lo, hi, implementation, left_count, right_count
        As in `Scan`. ``right`` is in the order of (``grid_buckets(right[first], width, 0)``, ``right[second]``);
        ``left`` is permuted by ``probe_order``.
    first : int
        The condition the buckets are made of; -1: the whole run is one bucket.
    second : int
        The condition a bucket is sorted by; -1: a bucket is scanned whole.
    width : float or int
        Bucket width, of the kind of ``right[first]``; ignored without ``first``.
    bucket_ids, bucket_starts : ndarray or None
        `bucket_directory` of the run; None only without ``first``.
    probe_order : ndarray, shape (n_probe,), int32
        ``grid_order(probe_buckets(...), left[second])`` of the unpermuted probes; ``probe_order[i]`` is the id that
        is written for probe i.
    fences : ndarray or None
        ``right[second][::FENCE_ROWS]``: what a compiled kernel searches in cache before it touches the run.
    steps : ndarray or None
        ``step_starts(right[second])``, for a run that is one bucket. A compiled kernel looks a probe's first row up in
        these, and need not search.
    past : int
        The condition whose left ends a probe's rows of a bucket, where a probe has two values: they are read up to the
        first where ``left[past] - right[second] < interval_lo``. It may compare another column of the run. -1: the
        condition ``second`` ends them itself.
    interval_lo : float
        Ignored without ``past``.

    Notes
    -----
    Order of the pairs: by probe (as permuted), bucket, row.
    """

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None,
        bucket_starts: Int64 | None,
        probe_order: Int32,
        fences: Column | None = None,
        steps: Int32 | None = None,
        implementation: str | None = None,
        left_count: int | None = None,
        right_count: int | None = None,
        past: int = -1,
        interval_lo: float = 0.0,
    ) -> None:
        check_array(probe_order, "probe_order", np.dtype(np.int32))
        if left_count is None and not left:
            left_count = len(probe_order)
        if right_count is None and not right and bucket_starts is not None and len(bucket_starts):
            right_count = int(bucket_starts[-1])
        band = CheckedBand(left, right, lo, hi, implementation, left_count, right_count)
        for name, choice in (("first", first), ("second", second), ("past", past)):
            if not -1 <= choice < len(band.left):
                refuse(f"{name} is not the number of a condition", name)
        check_interval(past, second, band.left)
        if len(probe_order) != band.probe_count:
            refuse("probe_order and left differ in length", "probe_order")
        self._band = band
        self._second, self._past, self._interval_lo = second, past, float_bound(interval_lo, "interval_lo")
        self._probe_order = probe_order
        if first >= 0:
            if bucket_ids is None or bucket_starts is None:
                refuse("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
            check_array(bucket_ids, "bucket_ids", np.dtype(np.int64))
            check_array(bucket_starts, "bucket_starts", np.dtype(np.int64))
            if len(bucket_starts) != len(bucket_ids) + 1 or int(bucket_starts[-1]) != band.run_count:
                refuse("bucket_starts does not fit bucket_ids and the run", "bucket_starts")
            self._ids, self._starts = bucket_ids, bucket_starts
            self._bucket_from, self._bucket_to = bucket_range(band.left[first], band.lo[first], band.hi[first], width)
        else:
            self._ids = np.zeros(1, dtype=np.int64)
            self._starts = np.array([0, band.run_count], dtype=np.int64)
            self._bucket_from = self._bucket_to = np.zeros(band.probe_count, dtype=np.int64)
        if steps is not None and first < 0 and second >= 0:
            check_steps(steps, band.right[second])
        check_probe_order(self._bucket_from, band.left[second] if second >= 0 else None)
        super().__init__(self._chunks())

    @property
    def candidates(self) -> int:
        """Pairs tested so far: the rows of each visited bucket that are within the probe's band of ``second``."""
        return self._candidates

    def _chunks(self) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        band = self._band
        from_slot = np.searchsorted(self._ids, self._bucket_from, side="left")
        to_slot = np.searchsorted(self._ids, self._bucket_to, side="right")
        for probe in range(band.probe_count):
            if not band.can_match(probe):
                continue
            for slot in range(int(from_slot[probe]), int(to_slot[probe])):
                begin, end = int(self._starts[slot]), int(self._starts[slot + 1])
                if self._second >= 0:
                    begin, end = band.sorted_range(self._second, probe, begin, end, self._past, self._interval_lo)
                self._candidates += end - begin
                yield int(self._probe_order[probe]), begin + np.flatnonzero(band.matches(probe, slice(begin, end)))


def check_interval(past: int, second: int, columns: Sequence[Column]) -> None:
    if past < 0:
        return
    if second < 0 or past == second or any(columns[number].dtype.kind != "f" for number in (past, second)):
        refuse("past must be another condition on floats than second", "past")


def check_steps(steps: Int32, column: Column) -> None:
    check_array(steps, "steps", np.dtype(np.int32))
    expected = step_starts(column)
    if expected is None or len(steps) != len(expected):
        refuse("steps does not fit the run", "steps", hint="step_starts(right[second])")


def check_probe_order(bucket_from: Int64, second: Column | None) -> None:
    ascending = bucket_from[1:] > bucket_from[:-1]
    same = bucket_from[1:] == bucket_from[:-1]
    if second is not None:
        same &= ~(second[1:] < second[:-1])
        if second.dtype.kind == "f":
            same &= ~(np.isnan(second[:-1]) & ~np.isnan(second[1:]))
    if not np.all(ascending | same):
        refuse(
            "the probes are not sorted by start bucket and second attribute",
            "left",
            hint="permute left by grid_order(probe_buckets(...), left[second])",
        )
