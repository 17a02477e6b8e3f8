"""Values of expressions in plain Python for the oracle: one value at a time, without arrays and without the engine.

Nothing of `spec.functions` is used. Exact numbers, times (in microseconds) and durations are fractions here, floats are
floats. Event times follow the contract's rule in plain Python numbers.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

from streamjoin_ds.duration import EPOCH, MICROSECOND
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Expression, Literal
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.join_parts import Calculated

__all__ = [
    "CHOOSING",
    "PLAIN",
    "cast_value",
    "chosen",
    "column_value",
    "event_time_ns",
    "event_time_us",
    "instant_us",
    "oracle_outputs",
    "oracle_value",
    "plain_value",
]

_UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_FIRST_NS, _END_NS = -62_135_596_800_000_000_000, 253_402_300_800_000_000_000  # the years 1 to 9999
_DAY_US = 86_400_000_000
_EXACT = Context(prec=400)
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
CHOOSING = ("case", "nullif", "coalesce", "greatest", "least")
_ABSENT: Mapping[str, Any] = defaultdict(lambda: None)
_MOST_DIGITS = 76  # digits before or after the point of an exact number, at most
_COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


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
        return Fraction((value - EPOCH.date()) // timedelta(microseconds=1))
    aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    since = aware - EPOCH
    whole = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return whole + Fraction(getattr(value, "nanosecond", 0), 1000)


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
    return EPOCH + timedelta(microseconds=math.floor(us))


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
    return Fraction((found - EPOCH) // timedelta(microseconds=1))


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


def _written(value: Any) -> Any:
    return cast_value(value, "string")


def _regexp_extract(text: str, pattern: str, group: Any = None) -> str:
    found = re.search(pattern, text)
    wanted = min(re.compile(pattern).groups, 1) if group is None else int(group)
    return (found[wanted] or "") if found else ""


def _pad(text: str, length: int, pad: str, *, before: bool) -> str:
    padded = list(text)
    for place in range(length - len(text) if pad else 0):
        padded.insert(place if before else len(padded), pad[place % len(pad)])
    return "".join(padded[: max(length, 0)])


def _split_part(text: str, separator: str, number: Any) -> str | None:
    parts = text.split(separator) if separator else [text]
    known = dict(zip([*range(1, len(parts) + 1), *range(-len(parts), 0)], parts * 2, strict=True))
    return None if number == 0 else known.get(int(number), "")


def _hex(value: Any) -> str | None:
    if isinstance(value, (str, bytes)):
        return "".join(f"{byte:02X}" for byte in (value.encode() if isinstance(value, str) else value))
    return f"{int(value) & (1 << 64) - 1:X}" if -(1 << 63) <= value < 1 << 63 else None


def _unhex(text: str) -> bytes | None:
    try:
        whole = int(text, 16) if text and text.isalnum() and text.isascii() else 0 if not text else None
    except ValueError:
        whole = None
    return None if whole is None else whole.to_bytes((len(text) + 1) // 2, "big")


def _json_value(text: str, path: str) -> str | None:
    try:
        value: Any = json.loads(text, parse_float=lambda number: number, parse_int=lambda number: number)
    except ValueError:
        return None
    try:
        for name, quoted, place in re.findall(r"""\.(\w+)|[.\[]+"([^"]*)"\]?|\[(\d+)\]""", path):
            value = value[int(place)] if place and isinstance(value, list) else value[name or quoted]
    except (KeyError, IndexError, TypeError):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def _element_at(values: Any, place: Any) -> Any:
    known = dict(zip([*range(1, len(values) + 1), *range(-len(values), 0)], [*values, *values], strict=True))
    return known.get(place)


def _to_timestamp(value: Any, form: str | None = None) -> Fraction | None:
    if not isinstance(value, str):
        seconds = Fraction(value) if isinstance(value, (int, Fraction)) or math.isfinite(value) else None
        return None if seconds is None else Fraction(math.floor(seconds * 10**6))
    try:
        read = datetime.fromisoformat(value) if form is None else datetime.strptime(value, form)
    except ValueError:
        return None
    moment = read if read.tzinfo else read.replace(tzinfo=timezone.utc)
    return Fraction((moment - EPOCH) // MICROSECOND)


def _make_timestamp(*parts: Any) -> Fraction | None:
    whole, micros = divmod(round(Fraction(parts[5]) * 10**6), 10**6)
    try:
        year, month, day, hour, minute = (int(part) for part in parts[:5])
        moment = datetime(year, month, day, hour, minute, int(whole), int(micros), tzinfo=timezone.utc)
    except ValueError:
        return None
    return Fraction((moment - EPOCH) // MICROSECOND)


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
    "concat": lambda *values: "".join(map(_written, values)),
    "rlike": lambda text, pattern: re.search(pattern, text) is not None,
    "regexp_extract": _regexp_extract,
    "length": len,
    "trim": lambda text, of=" ": text.strip(of) if of else text,
    "ltrim": lambda text, of=" ": text.lstrip(of) if of else text,
    "rtrim": lambda text, of=" ": text.rstrip(of) if of else text,
    "replace": lambda text, search, other="": other.join(text.split(search)) if search else text,
    "lpad": lambda text, length, pad=" ": _pad(_written(text), int(length), pad, before=True),
    "rpad": lambda text, length, pad=" ": _pad(_written(text), int(length), pad, before=False),
    "split_part": _split_part,
    "hex": _hex,
    "unhex": _unhex,
    "json_value": _json_value,
    "element_at": _element_at,
    "size": lambda values: Fraction(len(values)),
    "to_timestamp": _to_timestamp,
    "make_timestamp": _make_timestamp,
    "date_trunc": _date_trunc,
    "extract": _extract,
    "distance_m": _distance_m,
    "cast": cast_value,
    "try_cast": cast_value,
}


def oracle_outputs(join: Join, rows: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return what a join calculates for a result, by name; a stream that lacks is None in `rows`."""
    known = {name: row if row is not None else _ABSENT for name, row in rows.items()}
    return {one.name: oracle_value(join, one.expression, known) for one in join.select if isinstance(one, Calculated)}


def oracle_value(join: Join, expression: Expression, rows: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the value of an expression over one row of each stream; None where it is null or unknown.

    Whole numbers and decimals are fractions. So are times and durations, in microseconds. Pandas' timestamps and event
    times keep their parts of a microsecond.
    """
    if isinstance(expression, Literal):
        return plain_value(expression.value)
    if isinstance(expression, Column):
        return column_value(join, expression, rows[expression.stream])
    values = [oracle_value(join, argument, rows) for argument in expression.args]
    op, first = expression.op, values[0]
    if op in ("and", "or"):
        decisive = op == "or"
        return decisive if decisive in values else None if None in values else not decisive
    if op == "is_null":
        return first is None
    if op == "same":
        if None in values:
            return first is None and values[1] is None
        both = all(isinstance(value, float) and math.isnan(value) for value in values)
        return both or _compared("=", *values) is True
    if op == "in":
        found = [_compared("=", first, item) for item in values[1:]]
        return True if True in found else None if None in found else False
    if op == "between":
        ends = [_compared("<=", values[1], first), _compared("<=", first, values[2])]
        return False if False in ends else None if None in ends else True
    if op in CHOOSING:
        return chosen(op, values)
    if None in values:
        return None
    if op in PLAIN:
        return PLAIN[op](*values)
    if len(values) == 1:
        return not first if op == "not" else -first
    return _compared(op, *values) if op in _COMPARED else _computed(op, *values)


def column_value(join: Join, column: Column, row: Mapping[str, Any]) -> Any:
    """Return the value of a stream's column. An event time is exactly as it was written."""
    stream = join.members[join.member_names.index(column.stream)]
    if column.name != stream.time:
        return plain_value(row[column.name])
    found = event_time_ns(row[column.name], stream.time_unit)
    return None if found is None else Fraction(found, 1000)


def _compared(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            return None
    return bool(_COMPARED[op](left, right))


def _computed(op: str, left: Any, right: Any) -> Any:
    if op == "/" or isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if op in "/%":
        if right == 0:
            return None
        if op == "/":
            return left / right
        if isinstance(left, float):
            return math.nan if math.isinf(left) or math.isnan(left + right) else math.fmod(left, right)
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return left + right if op == "+" else left - right if op == "-" else left * right


def _inside(value: Any) -> Any:
    plain = plain_value(value)
    return "NaN" if isinstance(plain, float) and math.isnan(plain) else plain


def plain_value(value: Any) -> Any:
    """Return a value in the form in which it is computed: exact numbers and times as fractions.

    A list or struct becomes a tuple, in which null and NaN are equal to themselves.
    """
    if isinstance(value, (list, dict)):
        return tuple(map(_inside, value.values() if isinstance(value, dict) else value))
    if isinstance(value, timedelta):
        whole = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
        return whole + Fraction(getattr(value, "nanoseconds", 0), 1000)  # pandas' durations have nanoseconds
    if isinstance(value, time):
        return Fraction(((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)
    if isinstance(value, date):  # a datetime is a date, too
        return instant_us(value)
    if isinstance(value, Decimal) and (value.adjusted() >= _MOST_DIGITS or value.as_tuple().exponent < -_MOST_DIGITS):  # type: ignore[operator]
        return float(value)  # too many digits for an exact number
    return Fraction(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
