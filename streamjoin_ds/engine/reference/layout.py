"""Laying runs out: bucket numbers, the order by them, the directory of buckets, gathering by an order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.reference.arguments import (
    INT64_MAX,
    INT64_MIN,
    Bound,
    Column,
    Int32,
    Int64,
    check_array,
    check_column,
    float_bound,
    index,
    refuse,
    saturate,
)

__all__ = ["FENCE_ROWS", "bucket_directory", "bucket_range", "gather", "grid_buckets", "grid_order", "probe_buckets"]

FENCE_ROWS = 32
_BUCKET_LIMIT = 2**62
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


def probe_buckets(left_first: Column, lo: Bound, hi: Bound, width: Bound) -> Int64:
    """Number the first bucket in which a probe can find a match.

    It is the bucket of the smallest right value that can match: exact for integers, one ulp too small at most for
    floats (an index finds candidates, the exact test decides).

    Parameters
    ----------
    left_first : ndarray, shape (n_probe,), float64 or int64
        The probes' bucket attribute.
    lo, hi : float or int
        The attribute's band.
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
        ``out`` where given.
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


def bucket_range(left: Column, lo: Bound, hi: Bound, width: Bound) -> tuple[Int64, Int64]:
    """Number the first and the last bucket in which each probe can find a match."""
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
