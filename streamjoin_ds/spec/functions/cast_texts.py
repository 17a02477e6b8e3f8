"""Texts as numbers, truth values and times, and back, as CAST has them. Each is None where a text is not valid."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from decimal import Decimal

__all__ = ["date_us", "double_text", "float_of", "instant_us", "number_of", "time_text", "truth_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_SPACE = "".join(map(chr, range(33)))  # what is cut off both ends
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_LETTERS = 400  # of a number
_SPECIAL = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DATE = r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2}))?)?"
_DATE_TEXT = re.compile(_DATE + r"(?:(?<=-..-..)[ T].*|(?<=-.-..)[ T].*|(?<=-..-.)[ T].*|(?<=-.-.)[ T].*)?", re.DOTALL)
_TIME = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?)?"
    r" ?(?P<zone>Z|UTC|GMT|[+-][0-9]{1,2}(?::?[0-9]{2})?)?"
)
_INSTANT = re.compile(_DATE + rf"(?:[ T](?:{_TIME})?)?")


def number_of(text: str, *, is_whole: bool) -> Decimal | None:
    """Return the number in a text, which may have blanks around it; a whole one has digits alone."""
    text, form = text.strip(_SPACE), _WHOLE if is_whole else _NUMBER
    return Decimal(text) if len(text) <= _MOST_LETTERS and form.fullmatch(text) else None


def float_of(text: str) -> float | None:
    """Return the float64 in a text; it may be NaN or infinite."""
    text = text.strip(_SPACE)
    bare = text.lower().removeprefix("-") if text[:1] == "-" else text.lower().removeprefix("+")
    if bare in _SPECIAL and (bare != "nan" or text.lower() == bare):
        return -_SPECIAL[bare] if text[:1] == "-" else _SPECIAL[bare]
    return float(text) if len(text) <= _MOST_LETTERS and _NUMBER.fullmatch(text) else None


def truth_of(text: str) -> bool | None:
    """Return the truth value in a text."""
    word = text.strip(_SPACE).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def date_us(text: str) -> int | None:
    """Return the day in a text, ``2024-01-31`` or the beginning of an instant, as microseconds since 1970."""
    found = _DATE_TEXT.fullmatch(text.strip(_SPACE))
    return None if found is None else _us(found, {})


def instant_us(text: str) -> int | None:
    """Return the instant in a text, ``2024-01-31 12:00:00.5``, as microseconds since 1970; without a zone it is UTC."""
    found = _INSTANT.fullmatch(text.strip(_SPACE))
    return None if found is None else _us(found, found.groupdict())


def _us(found: re.Match[str], parts: dict[str, str | None]) -> int | None:
    fraction = ((parts.get("fraction") or "") + "000000")[:6]
    try:
        moment = datetime(
            int(found["year"]),
            int(found["month"] or 1),
            int(found["day"] or 1),
            int(parts.get("hour") or 0),
            int(parts.get("minute") or 0),
            int(parts.get("second") or 0),
            int(fraction),
            tzinfo=timezone.utc,
        )
    except ValueError:
        return None
    return (moment - _EPOCH) // _MICROSECOND - _zone_us(parts.get("zone") or "Z")


def _zone_us(zone: str) -> int:
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    return (1 if zone[0] == "+" else -1) * (hours * 60 + minutes) * 60_000_000


def time_text(us: int, *, is_date: bool) -> str | None:
    """Return a day or an instant as text, an instant without the zeros at the end of its second."""
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None
    text = f"{moment:%m-%d}" if is_date else f"{moment:%m-%d %H:%M:%S}"
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond and not is_date else ""
    return f"{moment.year:04}-{text}{fraction}"


def double_text(number: float) -> str:
    """Return a float64 as Java and Spark write it: ``1.0``, ``1.0E10``, ``NaN``, ``-Infinity``."""
    if math.isnan(number) or math.isinf(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    place = len(digits) + int(exponent) if number else 1  # digits before the point
    minus = "-" if sign else ""
    if -3 < place <= 7:
        whole = text[:place].ljust(place, "0") if place > 0 else "0"
        rest = text[place:] if place > 0 else "0" * -place + text
        return f"{minus}{whole}.{rest or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{place - 1}"
