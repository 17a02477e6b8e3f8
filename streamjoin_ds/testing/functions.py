"""Functions of expressions in plain Python, for the oracle: one value at a time, and nothing of `spec.functions`.

Exact numbers, times (in microseconds) and durations are fractions here, floats are floats (`values`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

__all__ = ["CHOOSING", "PLAIN", "cast_value", "chosen"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_US = 86_400_000_000
_EXACT = Context(prec=400)
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def _float(function: Callable[..., float]) -> Callable[..., float]:
    """Return a function over floats; where Python raises for an infinity or a value out of range, it is NaN."""

    def found(*values: Any) -> float:
        try:
            return function(*map(float, values))
        except ValueError:
            return math.nan

    return found


def _power(base: float, exponent: float) -> float:
    if (base == 1 and math.isnan(exponent)) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    try:
        is_plain = math.isfinite(base) and math.isfinite(exponent)
        return math.nan if is_plain and base < 0 and exponent % 1 else base**exponent
    except ZeroDivisionError:
        return -math.inf if math.copysign(1, base) < 0 and exponent % 2 == 1 else math.inf
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _ln(value: Any) -> float | None:
    return None if value <= 0 else math.log(float(value))


def _whole(to_whole: Callable[[Any], int]) -> Callable[[Any], Fraction | None]:
    def found(value: Any) -> Fraction | None:
        if isinstance(value, float) and not (math.isfinite(value) and -(2**63) <= to_whole(value) < 2**63):
            return None
        return Fraction(to_whole(value))

    return found


def _round(value: Any, places: Any = 0) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        number = Decimal(repr(value))
        return float(number.quantize(Decimal(1).scaleb(-int(places)), ROUND_HALF_UP, _EXACT)) + 0.0
    unit = Fraction(10) ** -int(places)
    size = math.floor(abs(value) / unit + Fraction(1, 2)) * unit
    return -size if value < 0 else size


def _substr(text: str, place: Any, length: Any = None) -> str:
    begin = int(place) - 1 if place > 0 else len(text) + int(place) if place < 0 else 0
    return "".join(one for at, one in enumerate(text) if at >= begin and (length is None or at < begin + int(length)))


def _like(text: str, pattern: str, escape: str = "\\") -> bool | None:
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape) or not letter:
                return None
            parts.append(re.escape(letter))
        else:
            parts.append(".*" if letter == "%" else "." if letter == "_" else re.escape(letter))
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _moment(us: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=math.floor(us))


def _date_trunc(unit: str, us: Any) -> Fraction:
    moment, unit = _moment(us), unit.lower()
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    found = {
        "year": lambda: midnight.replace(month=1, day=1),
        "quarter": lambda: midnight.replace(month=(midnight.month - 1) // 3 * 3 + 1, day=1),
        "month": lambda: midnight.replace(day=1),
        "week": lambda: midnight - timedelta(days=midnight.weekday()),
        "day": lambda: midnight,
        "hour": lambda: moment.replace(minute=0, second=0, microsecond=0),
        "minute": lambda: moment.replace(second=0, microsecond=0),
        "second": lambda: moment.replace(microsecond=0),
        "millisecond": lambda: moment.replace(microsecond=moment.microsecond // 1000 * 1000),
        "microsecond": lambda: moment,
    }[unit]()
    return Fraction((found - _EPOCH) // timedelta(microseconds=1))


def _extract(field: str, us: Any) -> Fraction:
    moment = _moment(us)
    second = Fraction(moment.second) + Fraction(moment.microsecond, 10**6)
    fields: dict[str, int | Fraction] = {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "week": moment.isocalendar()[1],
        "day": moment.day,
        "dayofweek": moment.isoweekday() % 7 + 1,
        "doy": moment.timetuple().tm_yday,
        "hour": moment.hour,
        "minute": moment.minute,
        "second": second,
    }
    return Fraction(fields[field])


def cast_value(value: Any, kind: str) -> Any:
    """Return a number, a truth value or a text of digits as another type; None where it cannot be."""
    if kind == "string":
        if isinstance(value, bool):
            return str(value).lower()
        return value if isinstance(value, str) else str(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if kind == "boolean":
            return {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}.get(word)
        if not re.fullmatch(r"[+-]?[0-9]+", word):
            return None
        value = Fraction(int(word))
    if kind == "boolean":
        return bool(value != 0)
    if kind in ("float", "double"):
        return float(value) if kind == "double" else _single(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = Fraction(value) if kind in _BITS else Fraction(repr(value))
    if kind in _BITS:
        whole = math.trunc(value)
        return Fraction(whole) if -(2 ** _BITS[kind]) <= whole < 2 ** _BITS[kind] else None
    precision, scale = map(int, re.findall(r"[0-9]+", kind))
    found = _round(Fraction(value), scale)
    return found if abs(found) * 10**scale < 10**precision else None


def _single(value: Any) -> float:
    """Return the float32 nearest to a number, ties to even: a multiple of the last bit that it has."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Fraction(value)
    exponent = -149  # of the last bit of the smallest numbers
    while abs(exact) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    found = round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent
    return float(found) if abs(found) < 1 << 128 else math.copysign(math.inf, found)


def _distance_m(lat_1: Any, lon_1: Any, lat_2: Any, lon_2: Any, model: str = "sphere") -> float | None:
    """Return a distance on a sphere; of the ellipsoid the tests ask GeographicLib."""
    lat_1, lon_1, lat_2, lon_2 = (float(value) for value in (lat_1, lon_1, lat_2, lon_2))
    if not (abs(lat_1) <= 90 and abs(lat_2) <= 90 and abs(lon_1) <= 360 and abs(lon_2) <= 360):
        return None
    if model != "sphere":
        raise NotImplementedError(model)
    degree = math.pi / 180
    north, east = math.sin((lat_1 - lat_2) * (degree / 2)), math.sin((lon_1 - lon_2) * (degree / 2))
    square = north * north + math.cos(lat_1 * degree) * math.cos(lat_2 * degree) * (east * east)
    return 2 * 6_371_008.8 * math.asin(math.sqrt(min(square, 1.0)))


def _order(value: Any) -> tuple[bool, Any]:
    """Return what numbers are ordered by: NaN is the greatest."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


def chosen(op: str, values: Sequence[Any]) -> Any:
    """Return what a function that may be given nulls says of some values: one of them, or null."""
    if op == "case":
        for place in range(0, len(values) - 1, 2):
            if values[place] is True:
                return values[place + 1]
        return values[-1] if len(values) % 2 else None
    if op == "nullif":
        return None if values[0] is not None and values[0] == values[1] else values[0]
    known = [value for value in values if value is not None]
    if not known or op == "coalesce":
        return known[0] if known else None
    return max(known, key=_order) if op == "greatest" else min(known, key=_order)


CHOOSING = ("case", "nullif", "coalesce", "greatest", "least")

PLAIN: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "sqrt": _float(math.sqrt),
    "power": _float(_power),
    "exp": _float(_exp),
    "ln": _ln,
    "sin": _float(math.sin),
    "cos": _float(math.cos),
    "tan": _float(math.tan),
    "atan2": _float(lambda y, x: math.atan2(y + 0.0, x + 0.0)),
    "radians": _float(lambda x: x * 0.017453292519943295),
    "degrees": _float(lambda x: x * 57.29577951308232),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "round": _round,
    "like": _like,
    "upper": lambda text: text.upper(),
    "lower": lambda text: text.lower(),
    "substr": _substr,
    "concat": lambda *texts: "".join(texts),
    "date_trunc": _date_trunc,
    "extract": _extract,
    "distance_m": _distance_m,
    "cast": cast_value,
}
