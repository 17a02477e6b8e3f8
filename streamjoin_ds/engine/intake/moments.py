"""Event times as Python's values: datetimes, dates, numbers, and NumPy's and pandas' forms of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.duration import EPOCH
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Mask
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US, UNITS_US, counted_times
from streamjoin_ds.spec.time_zone import SeenTimes

__all__ = ["TIMES_NS", "TIMES_US", "MomentTimes", "as_written", "in_range", "moment_ns", "plain_times"]

_NAIVE_EPOCH = datetime(1970, 1, 1)
_DAY_NS = 86_400_000_000_000
_UNITS_NS = {
    **{"W": 7 * _DAY_NS, "D": _DAY_NS, "h": 3_600_000_000_000, "m": 60_000_000_000},
    **{"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1},
}
_FINER = {"ps": 1_000, "fs": 1_000_000, "as": 1_000_000_000}  # how many of each unit a nanosecond has
# Years or months from 1970; beyond that no time is in range. NumPy's calendar would wrap round at 2^63 days.
_MOST_YEARS = 1 << 20

TIMES_US, TIMES_NS = (MIN_TS_US, MAX_TS_US), (INT64_MIN, INT64_MAX)


def plain_times(values: Sequence[Any], unit: str) -> list[int] | None:
    """Return values as microseconds if they are all `int`, all `float` or all `datetime`, and all in range; else None.

    Numbers are in `unit`. The answer is that of `moment_ns`, in less time.
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        found = [value // 1000 for value in values] if unit == "ns" else [value * UNITS_US[unit] for value in values]
    elif kinds == {datetime}:
        since = [value - (_NAIVE_EPOCH if value.tzinfo is None else EPOCH) for value in values]
        found = [(span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds for span in since]
    elif kinds == {float}:
        times, valid = counted_times(pa.array(values, pa.float64()), unit)
        return times.tolist() if valid.all() else None
    else:
        return None
    return found if min(found) >= MIN_TS_US and max(found) <= MAX_TS_US else None


def moment_ns(value: Any, unit: str) -> int | None:
    """Return a moment as nanoseconds since 1970 UTC, an integer of any size; None where the value is missing.

    Parameters
    ----------
    value : object
        A datetime (without a zone: UTC), a date (midnight UTC), or NumPy's or pandas' form of these. Or a number in
        `unit`. Whole and decimal numbers are exact; parts of a nanosecond are cut off towards the past. A float becomes
        the nearest microsecond (ties to the even one). None, NaN and NaT are missing values. A moment that is far out
        of range may come as 2^100 or -2^100.
    unit : {"s", "ms", "us", "ns"}

    Raises
    ------
    TypeError
        The value is none of these.
    """
    if value is None or (isinstance(value, (float, np.floating, datetime, np.datetime64)) and value != value):
        return None
    if isinstance(value, datetime):
        since = value - (_NAIVE_EPOCH if value.tzinfo is None else EPOCH)
        seconds = since.days * 86_400 + since.seconds
        return (seconds * 1_000_000 + since.microseconds) * 1000 + getattr(value, "nanosecond", 0)
    if isinstance(value, date):
        return (value - EPOCH.date()).days * _DAY_NS
    if isinstance(value, np.datetime64):
        return _of_numpy(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value) * _UNITS_NS[unit]
    if isinstance(value, (float, np.floating)):
        return _of_float(float(value), unit)
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        is_far = not value.is_finite() or value.adjusted() > 30  # as an integer it could be larger than memory
        return math.floor(Fraction(value) * _UNITS_NS[unit]) if not is_far else (1 << 100) * (-1) ** value.is_signed()
    msg = f"a value of type {type(value).__name__} is not a time"
    raise TypeError(msg)


def _of_float(value: float, unit: str) -> int:
    times, valid = counted_times(pa.array([value]), unit)
    return int(times[0]) * 1000 if valid[0] else (1 << 100) if value > 0 else -(1 << 100)


def as_written(value: Any) -> str | None:
    """Return a text, or a number as it is written; None for what is neither, or missing."""
    if isinstance(value, (float, np.floating)) and value == value:
        return str(int(value)) if float(value).is_integer() else str(float(value))
    if isinstance(value, (str, int, np.integer, Decimal)) and not isinstance(value, bool) and value == value:
        return str(value)
    return None


def _of_numpy(value: np.datetime64) -> int:
    unit, multiple = np.datetime_data(value.dtype)
    count = int(value.astype(np.int64)) * multiple
    if unit in _FINER:
        return count // _FINER[unit]
    if unit in _UNITS_NS:
        return count * _UNITS_NS[unit]
    if abs(count) > _MOST_YEARS:
        return (1 << 100) if count > 0 else -(1 << 100)
    return int(value.astype("datetime64[D]").astype(np.int64)) * _DAY_NS


def in_range(
    moments: Sequence[int | None], unit_ns: int, ends: tuple[int, int], *_: object
) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return moments in a unit, cut off towards the past, and which of them are there and between the ends.

    The others come as 0.
    """
    counts = [None if moment is None else moment // unit_ns for moment in moments]
    low, high = ends
    valid = [count is not None and low <= count <= high for count in counts]
    return np.array([c if v else 0 for c, v in zip(counts, valid, strict=True)], dtype=np.int64), np.array(
        valid, dtype=np.bool_
    )


class MomentTimes:
    """Event times that are known already, as nanoseconds (see `inside.Times`)."""

    zone_column = None

    def __init__(self, moments: Sequence[int | None]) -> None:
        self._moments = moments

    def us(self, values: pa.Array, zones: pa.Array | None) -> SeenTimes:
        """Return them in microseconds."""
        return SeenTimes(*in_range(self._moments, 1000, TIMES_US))

    def ns(self, values: pa.Array, zones: pa.Array | None, later: Mask | None) -> tuple[npt.NDArray[np.int64], Mask]:
        """Return them in nanoseconds."""
        return in_range(self._moments, 1, TIMES_NS)

    def refused(self, values: pa.Array, zones: pa.Array | None) -> list[tuple[Mask, str]]:
        """Return none: all that are none are out of range."""
        return []
