"""Event times for the oracle (`oracle`): the contract's rule in plain Python numbers."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["event_time_ns", "event_time_us", "instant_us"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_FIRST_NS, _END_NS = -62_135_596_800_000_000_000, 253_402_300_800_000_000_000  # the years 1 to 9999


def event_time_us(value: Any, unit: str = "us") -> int | None:
    """Return an event time in microseconds since 1970 UTC; None for a null, and for a time outside the years 1 to 9999.

    A number is in `unit`. Parts of a microsecond are cut off towards the past. A float is rounded to the nearest
    microsecond, and halfway between two to the even one.
    """
    found = event_time_ns(value, unit)
    return None if found is None else found // 1000


def event_time_ns(value: Any, unit: str) -> int | Fraction | None:
    """Return an event time in nanoseconds since 1970 UTC, exactly; for a float the nearest microsecond.

    None is returned where `event_time_us` returns None.
    """
    if value is None or value != value:
        return None
    found: int | Fraction
    if isinstance(value, date):  # a datetime is a date, too
        found = instant_us(value) * 1000
    elif isinstance(value, float):
        if math.isinf(value):
            return None
        found = round(Fraction(value) * _UNITS_NS[unit] / 1000) * 1000
    elif isinstance(value, Decimal):
        found = Fraction(value) * _UNITS_NS[unit]
    else:
        found = int(value) * _UNITS_NS[unit]
    return found if _FIRST_NS <= found < _END_NS else None


def instant_us(value: date) -> Fraction:
    """Return a date or a datetime in microseconds since 1970 UTC. A pandas timestamp keeps its nanoseconds."""
    if not isinstance(value, datetime):
        return Fraction((value - _EPOCH.date()) // timedelta(microseconds=1))
    aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    since = aware - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return whole + Fraction(getattr(value, "nanosecond", 0), 1000)
