"""The kernels' readable twins: what every compiled kernel must answer, in NumPy.

The names and the semantics are those of ``streamjoin_ds._kernels``, and the tests run the same cases over both. These
win every argument: they are short enough to be checked by eye. ``STREAMJOIN_DS_KERNEL=reference`` makes the package
run on them alone.

A *condition* compares column ``left[c]`` of the probes with column ``right[c]`` of the run, both float64 or both int64:
``lo[c] <= left - right <= hi[c]``, both ends included. Floats are subtracted in IEEE float64 and then compared, so NaN
and ``inf - inf`` never match. Integers are exact: what would overflow int64 is treated as the number it is.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from streamjoin_ds.errors import KernelError

__all__ = [
    "FENCE_ROWS",
    "SCAN_TILE_PROBES",
    "SCAN_TILE_ROWS",
    "GridProbe",
    "Scan",
    "bucket_directory",
    "cpu_features",
    "default_implementation",
    "gather",
    "grid_buckets",
    "grid_order",
    "implementations",
    "probe_buckets",
]

Column = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bound = int | float

SCAN_TILE_PROBES = 32
SCAN_TILE_ROWS = 1024
FENCE_ROWS = 32
_MAX_CONDITIONS = 16
_MIN_CAPACITY = 64
_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1
_BUCKET_LIMIT = 2**62
_NAN_BUCKET = _INT64_MAX


def implementations() -> tuple[str, ...]:
    """Name what can be run here: the twin alone."""
    return ("reference",)


def default_implementation() -> str:
    """Name what runs where no ``implementation`` is given."""
    return "reference"


def cpu_features() -> dict[str, bool]:
    """Report no CPU feature: the twin uses none itself."""
    return {}


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
    _check_column(column, "column")
    if column.dtype.kind == "f":
        width_value, offset_value = _float_bound(width, "width"), _float_bound(offset, "offset")
        if not (0 < width_value < np.inf and np.isfinite(offset_value)):
            _refuse("width must be finite and > 0, offset finite", "width")
        return _float_buckets(column + np.float64(offset_value), width_value)
    width_int, offset_int = _index(width, "width"), _index(offset, "offset")
    if not (0 < width_int <= _INT64_MAX and _INT64_MIN <= offset_int <= _INT64_MAX):
        _refuse("width must be > 0, and width and offset within int64", "width")
    if offset_int >= 0:
        shifted = np.minimum(column, _INT64_MAX - offset_int) + offset_int
    else:
        shifted = np.maximum(column, _INT64_MIN - offset_int) + offset_int
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
    _check_column(left_first, "left_first")
    start, _ = _bucket_range(left_first, lo, hi, width)
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
    _check_column(second, "second")
    if buckets is None:
        return np.argsort(second, kind="stable").astype(np.int32)
    _check_array(buckets, "buckets", np.dtype(np.int64))
    if len(buckets) != len(second):
        _refuse("buckets and second differ in length", "buckets")
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
    _check_array(sorted_buckets, "sorted_buckets", np.dtype(np.int64))
    if np.any(sorted_buckets[1:] < sorted_buckets[:-1]):
        _refuse("sorted_buckets is not ascending", "sorted_buckets")
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
        _refuse("column must be an ndarray", "column")
    _check_array(column, "column", column.dtype)
    if column.dtype.itemsize not in (1, 2, 4, 8, 16) or column.dtype.hasobject:
        _refuse("column items must have 1, 2, 4, 8 or 16 bytes", "column")
    _check_array(order, "order", np.dtype(np.int32))
    if len(order) and (int(order.min()) < 0 or int(order.max()) >= len(column)):
        _refuse("order points outside the column", "order")
    if out is None:
        return column[order]
    _check_array(out, "out", column.dtype, writeable=True)
    if len(out) != len(order):
        _refuse("out and order differ in length", "out")
    out[:] = column[order]
    return out


class Scan:
    """Nested-loop join of the probes with the run: every pair is tested (CellJoin, section 5).

    Parameters
    ----------
    left, right : list of ndarray, float64 or int64
        ``left[c]`` has shape (n_probe,), ``right[c]`` shape (n_run,).
    lo, hi : list of float or int
        One band per condition; NaN bounds are refused, ``lo > hi`` matches nothing. 0 to 16 conditions.
    implementation : str, optional
        None or "reference".
    left_count, right_count : int, optional
        n_probe and n_run; needed only where there is no condition to take them from.

    Notes
    -----
    Order of the pairs: by tile of 32 probes, tile of 1024 run rows, probe, row.
    """

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[Bound],
        hi: Sequence[Bound],
        implementation: str | None = None,
        *,
        left_count: int | None = None,
        right_count: int | None = None,
    ) -> None:
        self._band = _Band(left, right, lo, hi, implementation, left_count, right_count)
        self._candidates = 0
        self._output = _Output(self._chunks())

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""
        return self._candidates

    @property
    def implementation(self) -> str:
        """Name of the implementation in use."""
        return "reference"

    def fill(self, out_probe: Int32, out_run: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        return self._output.fill(out_probe, out_run)

    def _chunks(self) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        band = self._band
        for probe_tile in range(0, band.probe_count, SCAN_TILE_PROBES):
            probe_stop = min(probe_tile + SCAN_TILE_PROBES, band.probe_count)
            for run_tile in range(0, band.run_count, SCAN_TILE_ROWS):
                rows = np.arange(run_tile, min(run_tile + SCAN_TILE_ROWS, band.run_count))
                for probe in range(probe_tile, probe_stop):
                    if band.can_match(probe):
                        self._candidates += len(rows)
                        yield probe, rows[band.matches(probe, slice(run_tile, run_tile + SCAN_TILE_ROWS))]


class GridProbe:
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

    Notes
    -----
    Order of the pairs: by probe (as permuted), bucket, row.
    """

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[Bound],
        hi: Sequence[Bound],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None,
        bucket_starts: Int64 | None,
        probe_order: Int32,
        fences: Column | None = None,
        implementation: str | None = None,
        left_count: int | None = None,
        right_count: int | None = None,
    ) -> None:
        _check_array(probe_order, "probe_order", np.dtype(np.int32))
        if left_count is None and not left:
            left_count = len(probe_order)
        if right_count is None and not right and bucket_starts is not None and len(bucket_starts):
            right_count = int(bucket_starts[-1])
        band = _Band(left, right, lo, hi, implementation, left_count, right_count)
        for name, choice in (("first", first), ("second", second)):
            if not -1 <= choice < len(band.left):
                _refuse(f"{name} is not the number of a condition", name)
        if len(probe_order) != band.probe_count:
            _refuse("probe_order and left differ in length", "probe_order")
        self._band = band
        self._second = second
        self._probe_order = probe_order
        if first >= 0:
            if bucket_ids is None or bucket_starts is None:
                _refuse("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
            _check_array(bucket_ids, "bucket_ids", np.dtype(np.int64))
            _check_array(bucket_starts, "bucket_starts", np.dtype(np.int64))
            if len(bucket_starts) != len(bucket_ids) + 1 or int(bucket_starts[-1]) != band.run_count:
                _refuse("bucket_starts does not fit bucket_ids and the run", "bucket_starts")
            self._ids, self._starts = bucket_ids, bucket_starts
            self._bucket_from, self._bucket_to = _bucket_range(band.left[first], lo[first], hi[first], width)
        else:
            self._ids = np.zeros(1, dtype=np.int64)
            self._starts = np.array([0, band.run_count], dtype=np.int64)
            self._bucket_from = self._bucket_to = np.zeros(band.probe_count, dtype=np.int64)
        _check_probe_order(self._bucket_from, band.left[second] if second >= 0 else None)
        self._candidates = 0
        self._output = _Output(self._chunks())

    @property
    def candidates(self) -> int:
        """Pairs tested so far: the rows of each visited bucket that are within the probe's band of ``second``."""
        return self._candidates

    @property
    def implementation(self) -> str:
        """Name of the implementation in use."""
        return "reference"

    def fill(self, out_probe: Int32, out_run: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        return self._output.fill(out_probe, out_run)

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
                    begin, end = band.sorted_range(self._second, probe, begin, end)
                self._candidates += end - begin
                yield int(self._probe_order[probe]), begin + np.flatnonzero(band.matches(probe, slice(begin, end)))


class _Band:
    """The conditions, checked."""

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[Bound],
        hi: Sequence[Bound],
        implementation: str | None,
        left_count: int | None,
        right_count: int | None,
    ) -> None:
        if implementation not in (None, "reference"):
            _refuse("unknown implementation", "implementation", hint="reference")
        if not len(left) == len(right) == len(lo) == len(hi):
            _refuse("left, right, lo and hi differ in length", "left")
        if len(left) > _MAX_CONDITIONS:
            _refuse("more than 16 conditions", "left")
        self.left, self.right = list(left), list(right)
        self.probe_count = _common_length(self.left, "left", left_count)
        self.run_count = _common_length(self.right, "right", right_count)
        self.lo: list[Bound] = []
        self.hi: list[Bound] = []
        for left_column, right_column, lo_value, hi_value in zip(left, right, lo, hi, strict=True):
            if left_column.dtype.kind != right_column.dtype.kind:
                _refuse("left and right differ in type", "right")
            convert = _float_bound if left_column.dtype.kind == "f" else _index
            self.lo.append(convert(lo_value, "lo"))
            self.hi.append(convert(hi_value, "hi"))

    def can_match(self, probe: int) -> bool:
        """Tell whether any right value could match this probe."""
        for column, lo, hi in zip(self.left, self.lo, self.hi, strict=True):
            value = column[probe].item()
            if column.dtype.kind == "f":
                if np.isnan(value):
                    return False
            elif value - hi > _INT64_MAX or value - lo < _INT64_MIN:
                return False
        return True

    def matches(self, probe: int, rows: slice) -> npt.NDArray[np.bool_]:
        """Test one probe against some rows."""
        mask = np.ones(min(rows.stop, self.run_count) - rows.start, dtype=np.bool_)
        for condition in range(len(self.left)):
            over, under = self._outside(condition, probe, rows)
            mask &= ~(over | under)
            if self.left[condition].dtype.kind == "f":
                with np.errstate(all="ignore"):
                    mask &= ~np.isnan(self.left[condition][probe] - self.right[condition][rows])
        return mask

    def sorted_range(self, condition: int, probe: int, begin: int, end: int) -> tuple[int, int]:
        """Narrow ``begin:end``, sorted by the condition's column, to what is neither too small nor too large."""
        over, under = self._outside(condition, probe, slice(begin, end))
        kept = np.flatnonzero(~over)
        first = int(kept[0]) if len(kept) else end - begin
        below = np.flatnonzero(under[first:])
        return begin + first, begin + first + int(below[0]) if len(below) else end

    def _outside(self, condition: int, probe: int, rows: slice) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        left, right = self.left[condition], self.right[condition][rows]
        lo, hi = self.lo[condition], self.hi[condition]
        if left.dtype.kind == "f":
            with np.errstate(all="ignore"):
                difference = left[probe] - right
            return difference > hi, difference < lo
        value = left[probe].item()
        smallest, largest = max(value - hi, _INT64_MIN), min(value - lo, _INT64_MAX)
        return right < np.int64(min(smallest, _INT64_MAX)), right > np.int64(max(largest, _INT64_MIN))


class _Output:
    """Cuts a stream of chunks into buffers of any size."""

    def __init__(self, chunks: Iterator[tuple[int, npt.NDArray[np.intp]]]) -> None:
        self._chunks = chunks
        self._probe = 0
        self._rows: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def fill(self, out_probe: Int32, out_run: Int32) -> int:
        _check_array(out_probe, "out_probe", np.dtype(np.int32), writeable=True)
        _check_array(out_run, "out_run", np.dtype(np.int32), writeable=True)
        capacity = len(out_probe)
        if len(out_run) != capacity or capacity < _MIN_CAPACITY:
            _refuse("out_probe and out_run must be of one length, 64 at least", "out_probe")
        written = 0
        while written < capacity:
            if not len(self._rows):
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                self._probe, self._rows = chunk
            count = min(len(self._rows), capacity - written)
            out_probe[written : written + count] = self._probe
            out_run[written : written + count] = self._rows[:count]
            self._rows = self._rows[count:]
            written += count
        return written


def _bucket_range(left: Column, lo: Bound, hi: Bound, width: Bound) -> tuple[Int64, Int64]:
    """Number the first and the last bucket in which each probe can find a match."""
    if left.dtype.kind == "f":
        lo_value, hi_value = _float_bound(lo, "lo"), _float_bound(hi, "hi")
        width_value = _float_bound(width, "width")
        if not 0 < width_value < np.inf:
            _refuse("width must be finite and > 0", "width")
        with np.errstate(all="ignore"):
            # fl(l - r) <= hi implies l - r < next(hi); the subtraction here rounds once more, hence the second step.
            smallest = np.nextafter(left - np.nextafter(hi_value, np.inf), -np.inf)
            largest = np.nextafter(left - np.nextafter(lo_value, -np.inf), np.inf)
        smallest[np.isnan(smallest)] = -np.inf
        largest[np.isnan(largest)] = np.inf
        return _float_buckets(smallest, width_value), _float_buckets(largest, width_value)
    lo_int, hi_int, width_int = _index(lo, "lo"), _index(hi, "hi"), _index(width, "width")
    if not 0 < width_int <= _INT64_MAX:
        _refuse("width must be > 0 and within int64", "width")
    return (
        np.array([_saturate(value - hi_int) // width_int for value in left.tolist()], dtype=np.int64),
        np.array([_saturate(value - lo_int) // width_int for value in left.tolist()], dtype=np.int64),
    )


def _float_buckets(values: npt.NDArray[np.float64], width: float) -> Int64:
    with np.errstate(all="ignore"):
        quotient = np.floor(values / np.float64(width))
    missing = np.isnan(quotient)
    quotient = np.clip(np.where(missing, 0.0, quotient), -_BUCKET_LIMIT, _BUCKET_LIMIT)
    return np.where(missing, _NAN_BUCKET, quotient.astype(np.int64))


def _check_probe_order(bucket_from: Int64, second: Column | None) -> None:
    ascending = bucket_from[1:] > bucket_from[:-1]
    same = bucket_from[1:] == bucket_from[:-1]
    if second is not None:
        same &= ~(second[1:] < second[:-1])
        if second.dtype.kind == "f":
            same &= ~(np.isnan(second[:-1]) & ~np.isnan(second[1:]))
    if not np.all(ascending | same):
        _refuse(
            "the probes are not sorted by start bucket and second attribute",
            "left",
            hint="permute left by grid_order(probe_buckets(...), left[second])",
        )


def _saturate(value: int) -> int:
    return max(_INT64_MIN, min(value, _INT64_MAX))


def _common_length(columns: Sequence[Column], name: str, count: int | None) -> int:
    for column in columns:
        _check_column(column, name)
        if count is not None and len(column) != count:
            _refuse(f"the columns of {name} differ in length", name)
        count = len(column)
    if count is None:
        _refuse("without conditions the counts are needed", name, hint="pass left_count and right_count")
    if not 0 <= count <= 2**31 - 1:
        _refuse(f"{name} has more rows than int32 can number", name)
    return count


def _check_column(array: Column, name: str) -> None:
    if not isinstance(array, np.ndarray) or array.dtype not in (np.dtype(np.float64), np.dtype(np.int64)):
        _refuse(f"{name} must be a float64 or int64 ndarray", name)
    _check_array(array, name, array.dtype)


def _check_array(array: Column, name: str, dtype: np.dtype[Any], *, writeable: bool = False) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        _refuse(f"{name} must be an ndarray of {dtype}", name)
    if array.ndim != 1 or not array.flags.c_contiguous or not array.flags.aligned:
        _refuse(f"{name} must be one-dimensional, C-contiguous and aligned", name, hint="numpy.ascontiguousarray")
    if writeable and not array.flags.writeable:
        _refuse(f"{name} must be writeable", name)


def _float_bound(value: Bound, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if np.isnan(number):
        _refuse(f"{name} must be a number that float64 can hold", name)
    return number


def _index(value: Bound, name: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        _refuse(f"{name} must be an integer for an int64 column", name)


def _refuse(message: str, name: str, *, hint: str = "") -> NoReturn:
    text = message + "."
    raise KernelError(text, name=name, hint=hint) from None
