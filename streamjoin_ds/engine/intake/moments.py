"""Python values that stand for a time in a dict, converted to microseconds or nanoseconds since 1970 UTC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US, UNITS_US, counted_times

__all__ = ["moment_ns", "plain_times"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_DAY_NS = 86_400_000_000_000
_UNITS_NS = {
    **{"W": 7 * _DAY_NS, "D": _DAY_NS, "h": 3_600_000_000_000, "m": 60_000_000_000},
    **{"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1},
}
_FINER = {"ps": 1_000, "fs": 1_000_000, "as": 1_000_000_000}  # how many of each unit a nanosecond has
# Years or months from 1970; beyond that no time is in range. NumPy's calendar would wrap round at 2^63 days.
_MOST_YEARS = 1 << 20


def plain_times(values: Sequence[Any], unit: str) -> list[int] | None:
    """Return values as microseconds if they are all `int`, all `float` or all `datetime`, and all in range; else None.

    Numbers are in `unit`. The answer is that of `moment_ns`, in less time.
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        found = [value // 1000 for value in values] if unit == "ns" else [value * UNITS_US[unit] for value in values]
    elif kinds == {datetime}:
        since = [value - (_NAIVE_EPOCH if value.tzinfo is None else _EPOCH) for value in values]
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
        since = value - (_NAIVE_EPOCH if value.tzinfo is None else _EPOCH)
        seconds = since.days * 86_400 + since.seconds
        return (seconds * 1_000_000 + since.microseconds) * 1000 + getattr(value, "nanosecond", 0)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * _DAY_NS
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
