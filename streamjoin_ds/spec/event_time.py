"""Event times: how they are made from a source's values, the order of records by them, and records from the future.

An event time is int64 microseconds UTC; a time outside the years 1 to 9999 is not valid::

    timestamps, dates      as they are; parts of a microsecond are cut off towards the past
    whole numbers          in the stream's unit; parts of a microsecond are cut off towards the past
    floats                 in the stream's unit; rounded to the nearest microsecond, ties to the even one (a float is
                           itself only the nearest to the number that was meant)

Every number is compared with the range before it is multiplied, so nothing overflows.

*The source's order* is one order of the records of all streams; every batch is a stretch of it. Records are ordered by
the *running maximum* of the event time in their own stream, then by the stream's number, then by their own number. A
record without an event time has the running maximum of the record before it. So within a stream the order is the
stream's own, and it is the same wherever it is cut into batches.

A record that was not there when a batch was planned comes after that batch. So where a stream lags behind the others,
the order depends on the batches. The offsets record these, so a replay has the same order.

A record that is further ahead of those before it than is allowed (`AheadLimit`) is refused and moves no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Int64, Mask

__all__ = [
    "DAY_US",
    "MAX_TS_US",
    "MIN_TS_US",
    "NO_TIME",
    "UNITS_US",
    "AheadLimit",
    "counted_times",
    "fine_times",
    "preceding",
    "running_maximum",
    "too_far_ahead",
]

# The years 1 to 9999, which Python, Spark and Delta can all show. Any other time is rejected.
MIN_TS_US = -62_135_596_800_000_000
MAX_TS_US = 253_402_300_799_999_999

UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
DAY_US = 86_400_000_000

_DAY_MS = 86_400_000

NO_TIME = INT64_MIN  # stands for "no event time": it is smaller than every event time
_PIECE_ROWS = 1 << 16  # records tested at once; only a piece with a record too far ahead is gone through one by one


def counted_times(values: pa.Array, unit: str) -> tuple[Int64, Mask]:
    """Return event times in microseconds, and which of them are valid.

    Parameters
    ----------
    values : pyarrow.Array
        Timestamps (without a zone: UTC), dates (midnight UTC), or integers and floats in `unit`.
    unit : {"s", "ms", "us", "ns"}
        The unit of numbers.

    Returns
    -------
    ts : ndarray, int64
        Microseconds UTC; 0 where not valid.
    valid : ndarray, bool
        False for nulls, NaN, times outside the years 1 to 9999, and all values of other types.
    """
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return counted_times(values.dictionary_decode(), unit)
    if types.is_floating(kind):
        return _of_floats(values, unit)
    if types.is_timestamp(kind):
        return _scaled(values.view(pa.int64()), kind.unit)
    if types.is_date32(kind):
        return _bounded(values.view(pa.int32()).cast(pa.int64()), DAY_US)
    if types.is_date64(kind):
        days = pa.array(_numbers(values.view(pa.int64())) // _DAY_MS, mask=_is_null(values))
        return _bounded(days, DAY_US)
    if types.is_integer(kind):
        return _scaled(_int64(values), unit)
    return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)


def fine_times(values: pa.Array, unit: str) -> tuple[Int64, Mask]:
    """Return the same event times in nanoseconds, as exact as they were written, and which of them are valid.

    ``ns // 1000`` is what `counted_times` gives. Times that an int64 cannot hold are not valid: it holds the years 1678
    to 2261.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return fine_times(values.dictionary_decode(), unit)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _numbers(values.view(pa.int64())), ~_is_null(values)
    if pa.types.is_integer(kind) and unit == "ns":
        whole = _int64(values)
        return _numbers(whole), ~_is_null(whole)
    ts, valid = counted_times(values, unit)
    valid &= (ts >= -(-INT64_MIN // 1000)) & (ts <= INT64_MAX // 1000)
    return np.where(valid, ts, 0) * 1000, valid


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    # `fill_null` alone takes as long as a push of one tuple.
    return np.asarray((values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False))


def _is_null(values: pa.Array) -> Mask:
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _int64(values: pa.Array) -> pa.Array:
    if pa.types.is_uint64(values.type):  # a number beyond int64 becomes null: in no unit is it a valid time
        values = pc.if_else(pc.greater(values, pa.scalar(INT64_MAX, pa.uint64())), None, values)
    return values.cast(pa.int64())


def _scaled(values: pa.Array, unit: str) -> tuple[Int64, Mask]:
    if unit == "ns":  # as nanoseconds every int64 lies in the years 1677 to 2262
        return _numbers(values) // 1000, ~_is_null(values)
    return _bounded(values, UNITS_US[unit])


def _bounded(values: pa.Array, factor: int) -> tuple[Int64, Mask]:
    """Return numbers times `factor`, and which products lie in the years 1 to 9999; the others are 0."""
    numbers = _numbers(values)
    valid = (numbers >= -(-MIN_TS_US // factor)) & (numbers <= MAX_TS_US // factor)
    if values.null_count:
        valid &= ~_is_null(values)
    return (numbers if valid.all() else np.where(valid, numbers, 0)) * factor, valid


def _of_floats(values: pa.Array, unit: str) -> tuple[Int64, Mask]:
    given = values.cast(pa.float64())
    numbers = np.asarray(given.fill_null(np.nan).to_numpy(zero_copy_only=False))
    factor = UNITS_US.get(unit, 0.001)
    with np.errstate(invalid="ignore"):
        near = (numbers >= MIN_TS_US / factor - 1) & (numbers <= MAX_TS_US / factor + 1)  # leaves out NaN and infinity
    numbers = np.where(near, numbers, 0.0)
    ts = _nearest_of_ns(numbers) if unit == "ns" else _nearest(numbers, UNITS_US[unit])
    valid = near & (ts >= MIN_TS_US) & (ts <= MAX_TS_US)
    return np.where(valid, ts, 0), valid


def _nearest(numbers: npt.NDArray[np.float64], factor: int) -> Int64:
    """Return the whole number nearest to each number times `factor`, ties to the even one.

    The factor is 1 or even. The product is computed as two floats whose sum is exact, so that it is rounded only once.
    """
    if factor == 1:
        return np.rint(numbers).astype(np.int64)
    whole = np.trunc(numbers)
    part = numbers - whole
    high = part.astype(np.float32).astype(np.float64)  # it has 24 bits, the rest 29: each times `factor` is exact
    upper, lower = high * factor, (part - high) * factor
    product = upper + lower
    error = lower - (product - upper)
    near = np.rint(product)
    apart = product - near
    near += ((apart == 0.5) & (error > 0)).astype(np.float64) - ((apart == -0.5) & (error < 0))
    return whole.astype(np.int64) * factor + near.astype(np.int64)


def _nearest_of_ns(numbers: npt.NDArray[np.float64]) -> Int64:
    """Return the microsecond nearest to each number of nanoseconds, ties to the even one."""
    is_beyond = np.abs(numbers) >= float(1 << 63)  # beyond int64: such floats are whole, and are rounded one by one
    floor = np.floor(np.where(is_beyond, 0.0, numbers))
    part = np.where(is_beyond, 0.0, numbers - floor)
    ts, rest = np.divmod(floor.astype(np.int64), 1000)
    is_over = (rest > 500) | ((rest == 500) & ((part > 0) | (ts % 2 == 1)))
    ts += is_over
    for place in np.flatnonzero(is_beyond).tolist():
        ts[place] = round(Fraction(int(numbers[place]), 1000))
    return ts


def running_maximum(times_us: Int64, valid: npt.NDArray[np.bool_] | None, before: int) -> Int64:
    """Return the largest event time up to each record, in microseconds.

    Parameters
    ----------
    times_us : ndarray, shape (n,), int64
        Event times in the stream's order.
    valid : ndarray, shape (n,), bool, or None
        Which records have an event time; None: all.
    before : int
        The largest event time before the first of these records; the smallest int64 if there is none.
    """
    known = times_us if valid is None else np.where(valid, times_us, before)
    running: Int64 = np.maximum.accumulate(np.maximum(known, before, dtype=np.int64))
    return running


def preceding(running: Sequence[Int64], stream: int, other: int) -> Int64:
    """Return how many records of stream `other` precede each record of `stream`, among the given records.

    Parameters
    ----------
    running : sequence of ndarray, shape (n_i,), int64
        For each stream the running maxima of a stretch of the order, ascending.
    stream, other : int
        Numbers of two streams.
    """
    side = "right" if other < stream else "left"
    counts: Int64 = np.searchsorted(running[other], running[stream], side)  # type: ignore[call-overload]
    return counts.astype(np.int64, copy=False)


class AheadLimit(Struct, frozen=True):
    """How far a record may be ahead of the largest event time before it in its stream.

    Attributes
    ----------
    max_us : int
        The most microseconds, > 0.
    is_measured : bool
        Whether the limit holds for every record. If not, the first one that moves the largest time is measured against
        nothing: the stream was idle, and time may have gone on meanwhile.
    """

    max_us: int
    is_measured: bool = True

    def after(self, before: int | None, largest: int | None) -> AheadLimit:
        """Return the limit after records that moved the largest time from `before` to `largest`."""
        return self if self.is_measured or largest == before else AheadLimit(self.max_us)


def too_far_ahead(times_us: Int64, valid: Mask | None, before: int, limit: AheadLimit) -> Mask:
    """Return which records are too far ahead; for the records after them such records do not count.

    Parameters
    ----------
    times_us : ndarray, shape (n,), int64
        Event times in the stream's order.
    valid : ndarray, shape (n,), bool, or None
        Which records have an event time; None: all.
    before : int
        The largest event time before the first of these records, in microseconds. The smallest int64: there is none,
        and the first record that has a time is measured against nothing.
    limit : AheadLimit
        How far a record may be ahead.

    Returns
    -------
    ndarray, shape (n,), bool
        True for a record that is too far ahead.
    """
    places = np.arange(len(times_us)) if valid is None else np.flatnonzero(valid)
    known = np.asarray(times_us, dtype=np.int64)[places]
    far = np.zeros(len(times_us), dtype=np.bool_)
    first, largest = 0, before
    if before == NO_TIME or not limit.is_measured:
        moving = np.flatnonzero(known > before)
        if not len(moving):
            return far
        first, largest = int(moving[0]) + 1, int(known[moving[0]])
    for begin in range(first, len(known), _PIECE_ROWS):
        piece = known[begin : begin + _PIECE_ROWS]
        running = np.maximum.accumulate(np.append(largest, piece))
        if (piece > np.minimum(running[:-1], INT64_MAX - limit.max_us) + limit.max_us).any():
            largest = _one_by_one(piece, largest, limit.max_us, far, places[begin : begin + _PIECE_ROWS])
        else:
            largest = int(running[-1])
    return far


def _one_by_one(times_us: Int64, largest: int, max_us: int, far: Mask, places: npt.NDArray[np.intp]) -> int:
    """Mark in `far` the records of a piece that are too far ahead; return the largest time after the piece."""
    marked = []
    for number, time_us in enumerate(times_us.tolist()):
        if time_us > largest + max_us:
            marked.append(number)
        elif time_us > largest:
            largest = time_us
    far[places[marked]] = True
    return largest
