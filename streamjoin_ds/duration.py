"""Durations: from what a user writes (``"15s"``, ``"15 minutes"``, a timedelta) to whole microseconds, and back."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from streamjoin_ds.errors import ArgumentError

__all__ = ["EPOCH", "MAX_DURATION_US", "MICROSECOND", "Duration", "duration_text", "duration_us", "signed_duration"]

Duration = str | timedelta
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_NAMES = {
    "microsecond": "us",
    "millisecond": "ms",
    "msec": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "hr": "h",
    "day": "d",
    "week": "w",
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)")
_MAX_TEXT = 200  # most characters of a duration

# Ten thousand years: far beyond any window, and ts +- window stays within int64 in the years 1 to 9999.
MAX_DURATION_US = 10_000 * 366 * _UNITS_US["d"]


def duration_us(value: object, name: str) -> int:
    """Return a duration in microseconds.

    Parameters
    ----------
    value : str or datetime.timedelta
        ``"15s"``, ``"1h 30m"``, ``"15 minutes"``, ``"250 ms"``; a number needs its unit.
    name : str
        What the duration is for, as errors name it.

    Returns
    -------
    int
        Microseconds, from 0 to ten thousand years.

    Raises
    ------
    ArgumentError
        The duration has no unit or an unknown one, is negative or too long, or is not whole microseconds.
    """
    hint = "a number with a unit (us, ms, s, m, h, d, w), for example '15s', '1h 30m' or '15 minutes'"
    if isinstance(value, timedelta):
        total = Fraction(value // timedelta(microseconds=1))
        is_whole = timedelta(microseconds=int(total)) == value  # pandas' durations have nanoseconds
    elif isinstance(value, str):
        total = _parsed(value, name, hint)
        is_whole = total.denominator == 1
    else:
        msg = f"{name} must be a duration, not {type(value).__name__}"
        raise ArgumentError(msg, name=name, hint=hint)
    if not is_whole or not 0 <= total <= MAX_DURATION_US:
        msg = f"{name} must be whole microseconds between 0 and 10000 years"
        raise ArgumentError(msg, name=name, hint=hint)
    return int(total)


def signed_duration(text: str, name: str) -> timedelta:
    """Return a duration that may have one sign before it: ``"-5s"``; errors are those of `duration_us`."""
    stripped = text.strip()
    size = timedelta(microseconds=duration_us(stripped[1:] if stripped[:1] in ("+", "-") else stripped, name))
    return -size if stripped.startswith("-") else size


def _parsed(text: str, name: str, hint: str) -> Fraction:
    total, position = Fraction(0), 0
    stripped = text.strip()
    while position < len(stripped) or not stripped:
        part = _PART.match(stripped, position) if len(stripped) <= _MAX_TEXT else None
        unit = _unit(part.group(2)) if part else None
        if part is None or unit is None:
            msg = f"{name} is not a duration"
            raise ArgumentError(msg, name=name, hint=hint)
        total += Fraction(part.group(1)) * _UNITS_US[unit]
        position = part.end()
    return total


def _unit(word: str) -> str | None:
    if word in _UNITS_US:
        return word
    lower = word.lower()
    if lower == "m":
        return None  # the word is "M": elsewhere that is a month, whose length varies
    singular = lower[:-1] if len(lower) > 2 and lower.endswith("s") else lower
    return lower if lower in _UNITS_US else _NAMES.get(singular)


def duration_text(microseconds: int) -> str:
    """Return the exact text of a duration in the largest units that fit, weeks excepted: ``"15m"`` for 900000000."""
    if microseconds == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, microseconds = divmod(microseconds, _UNITS_US[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)
