"""CAST: values of one type as another, as Spark has it in ANSI mode; what cannot be cast is null.

Texts become numbers, truth values and times, and these become texts. The functions that read a text return None where
it is not valid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.duration import EPOCH, MICROSECOND
from streamjoin_ds.spec.columns import MOST_PRECISION
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.node import (
    MOST_DIGITS,
    Typed,
    Values,
    common_digits,
    decimal,
    narrow,
    nearest_singles,
    nulls,
    refuse,
    wide,
)
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, by_row, constant
from streamjoin_ds.spec.functions.numbers import whole_numbers
from streamjoin_ds.spec.functions.times import microseconds

__all__ = [
    "CASTS",
    "CAST_TYPES",
    "WRITABLE",
    "date_us",
    "double_text",
    "float_of",
    "instant_us",
    "number_of",
    "text_of",
    "time_text",
    "truth_of",
]

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
# The types that CAST knows, with the bits of whole numbers; decimal(p, s) besides.
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
CAST_TYPES = (*_BITS, "float", "double", "decimal(p, s)", "string", "boolean", "date", "timestamp")
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FROM = {
    "number": ("number", "float", "string", "boolean", "timestamp"),
    "float": ("number", "float", "string", "boolean", "timestamp"),
    "string": ("number", "float", "string", "boolean", "timestamp", "date"),
    "boolean": ("number", "float", "string", "boolean"),
    "date": ("string", "timestamp", "date"),
    "timestamp": ("string", "timestamp", "date"),
}
WRITABLE = _FROM["string"]  # the families of which a text is made
_EXACT = Context(prec=400)


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
    return (moment - EPOCH) // MICROSECOND - _zone_us(parts.get("zone") or "Z")


def _zone_us(zone: str) -> int:
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    return (1 if zone[0] == "+" else -1) * (hours * 60 + minutes) * 60_000_000


def time_text(us: int, *, is_date: bool) -> str | None:
    """Return a day or an instant as text, an instant without the zeros at the end of its second."""
    try:
        moment = EPOCH + timedelta(microseconds=us)
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


def _cast(expression: Call, args: tuple[Typed, ...]) -> Typed:
    kind = str(constant(expression, args[1], "string", "a type"))
    family, magnitude, scale = _type(expression, kind)
    inner = args[0]
    if inner.family not in _FROM[family]:
        hint = f"{kind} can be made of {', '.join(_FROM[family])}"
        refuse(expression, f"casts {inner.family} to {kind}, which is not defined", hint)
    if inner.family == "number" and family == "number":
        common_digits(expression, (inner, Typed(expression.op, family, (), magnitude, scale)))
    return Typed(expression.op, family, args, magnitude, scale)


def _type(expression: Call, kind: str) -> tuple[str, int, int]:
    """Return a type's family, its largest magnitude, and its scale."""
    if kind in _BITS:
        return "number", 1 << (_BITS[kind] - 1), 0
    if kind in ("float", "double"):
        return "float", 0, 0
    if kind in ("string", "boolean"):
        return kind, 0, 0
    if kind == "timestamp":
        return kind, 1 << 63, 0
    if kind == "date":
        return kind, DAY_US << 31, 0
    found = _DECIMAL.fullmatch(kind)
    if found is None or not 1 <= int(found[1]) <= MOST_PRECISION or int(found[2]) > int(found[1]):
        hint = f"types are {', '.join(CAST_TYPES)}, with p from 1 to {MOST_PRECISION} and s from 0 to p"
        refuse(expression, "casts to a type that is not known", hint)
    return "number", 10 ** int(found[1]) - 1, int(found[2])


def _casted(node: Typed, rows: Rows) -> Values:
    inner, kind = node.args[0], str(node.args[1].value)
    if node.family == "number":
        return _to_number(node, inner, kind, rows)
    if node.family == "float":
        found = _to_float(inner, rows)
        return _to_single(found, inner, rows) if kind == "float" else found
    if node.family == "boolean":
        return _to_boolean(inner, rows)
    if node.family == "string":
        return text_of(inner, rows)
    return _to_time(node, inner, rows)


def _to_number(node: Typed, inner: Typed, kind: str, rows: Rows) -> Values:
    is_whole = kind in _BITS
    if inner.family == "string":
        values = rows.array(rows.value(inner))
        found = by_row(
            lambda text: _fitting(number_of(text, is_whole=is_whole), node, is_whole=is_whole),
            _decimals(node),
            [values],
        )
        return narrow(found) if is_whole else found
    if inner.family == "float":
        numbers = rows.floats(inner)
        if is_whole:
            return _in_range(whole_numbers(pc.trunc(numbers)), node)
        return by_row(lambda number: _fitting(_of_float(number), node, is_whole=False), _decimals(node), [numbers])
    if inner.family == "boolean":
        found = rows.array(rows.value(inner)).cast(pa.int8()).cast(pa.int64())
        return (
            found
            if is_whole
            else by_row(lambda one: _fitting(Decimal(one), node, is_whole=False), _decimals(node), [found])
        )
    if inner.family == "timestamp":
        micros = microseconds(inner, rows)
        if not is_whole:
            return by_row(lambda us: _fitting(decimal(us, 6), node, is_whole=False), _decimals(node), [micros])
        seconds = pc.subtract(micros, _modulo(micros, 1_000_000))
        return _in_range(pc.divide(seconds, 1_000_000), node)
    values = rows.array(rows.value(inner))
    if is_whole and values.type == pa.int64() and not inner.scale:
        return _in_range(values, node)
    return _of_exact(wide(values, inner), inner, node, is_whole=is_whole)


def _of_exact(exact: pa.Array, inner: Typed, node: Typed, *, is_whole: bool) -> Values:
    """Return decimals as another type of numbers: whole ones cut off what is behind the point, others round it."""
    if inner.scale > node.scale:
        mode = "towards_zero" if is_whole else "half_towards_infinity"
        exact = exact.cast(pa.decimal256(inner.digits + 1, inner.scale))
        exact = pc.round(exact, node.scale, round_mode=mode)
    if (inner.magnitude + 1) * 10**node.scale > (node.magnitude - is_whole) * 10**inner.scale:
        least, most = (pa.scalar(decimal(end, node.scale)) for end in (-node.magnitude, node.magnitude - is_whole))
        fits = pc.and_(pc.greater_equal(exact, least), pc.less_equal(exact, most))
        exact = pc.if_else(fits, exact, pa.scalar(None, exact.type))
    exact = exact.cast(_decimals(node))
    return narrow(exact) if is_whole else exact


def _decimals(node: Typed) -> pa.DataType:
    return pa.decimal256(node.digits, node.scale)


def _modulo(values: pa.Array, divisor: int) -> pa.Array:
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(plain % divisor, pa.int64())


def _in_range(values: pa.Array, node: Typed) -> pa.Array:
    """Return whole numbers, null where they are not in the range of a type of whole numbers."""
    fits = pc.and_(pc.greater_equal(values, -node.magnitude), pc.less_equal(values, node.magnitude - 1))
    return pc.if_else(fits, values, pa.scalar(None, pa.int64()))


def _fitting(number: Decimal | None, node: Typed, *, is_whole: bool) -> Decimal | None:
    """Return a number as a type holds it; None where it does not."""
    if number is None or not number.is_finite() or number.adjusted() > MOST_DIGITS:
        return None
    found = number.quantize(Decimal(1).scaleb(-node.scale), ROUND_HALF_UP, _EXACT)
    unscaled = int(found.scaleb(node.scale, _EXACT))
    return found if -node.magnitude <= unscaled <= node.magnitude - is_whole else None


def _of_float(number: float) -> Decimal | None:
    return Decimal(repr(number)) if math.isfinite(number) else None


def _to_float(inner: Typed, rows: Rows) -> pa.Array:
    if inner.family in ("number", "float"):
        return rows.floats(inner)
    if inner.family == "timestamp":
        return pc.divide(pc.cast(microseconds(inner, rows), pa.float64(), safe=False), 1e6)
    values = rows.array(rows.value(inner))
    if inner.family == "boolean":
        return values.cast(pa.float64())
    return by_row(float_of, pa.float64(), [values])


def _to_single(floats: pa.Array, inner: Typed, rows: Rows) -> pa.Array:
    """Return what CAST AS FLOAT gives, as float64: of numbers and texts the nearest float32."""
    if inner.family not in ("number", "string"):
        return floats.cast(pa.float32(), safe=False).cast(pa.float64())
    given = rows.array(rows.value(inner))
    found = nearest_singles(
        floats.fill_null(0.0).to_numpy(zero_copy_only=False), lambda place: _fraction(given[place].as_py())
    )
    return pa.array(found, mask=nulls(floats))


def _fraction(given: int | Decimal | str) -> Fraction:
    number = number_of(given, is_whole=False) if isinstance(given, str) else given
    assert number is not None
    return Fraction(number)


def _to_boolean(inner: Typed, rows: Rows) -> pa.Array:
    values = rows.array(rows.value(inner))
    if inner.family == "boolean":
        return values
    if inner.family == "string":
        return by_row(truth_of, pa.bool_(), [values])
    return pc.not_equal(rows.floats(inner), 0.0)  # NaN is not 0


def text_of(inner: Typed, rows: Rows) -> pa.Array:
    """Return values as texts; those that are texts as they are."""
    if inner.family in ("date", "timestamp"):
        to_text: Callable[[Any], Any] = lambda us: time_text(us, is_date=inner.family == "date")  # noqa: E731
        return by_row(to_text, pa.string(), [microseconds(inner, rows)])
    values = rows.array(rows.value(inner))
    if inner.family == "string":
        return values
    if inner.family == "boolean":
        return pc.if_else(values, "true", "false")
    if inner.family == "float":
        return by_row(double_text, pa.string(), [values])
    if inner.scale or values.type != pa.int64():
        return by_row(lambda number: f"{number:f}", pa.string(), [wide(values, inner)])
    return values.cast(pa.string())


def _to_time(node: Typed, inner: Typed, rows: Rows) -> pa.Array:
    if inner.family == "string":
        read = date_us if node.family == "date" else instant_us
        return by_row(read, pa.int64(), [rows.array(rows.value(inner))])
    found = microseconds(inner, rows)
    return pc.subtract(found, _modulo(found, DAY_US)) if node.family == "date" else found


CASTS = (
    Function(
        "cast",
        "CAST(x AS type)",
        _cast,
        _casted,
        2,
        2,
        is_condition=True,
        reason="a value that cannot be cast to {1}",
    ),
    Function("try_cast", "TRY_CAST(x AS type)", _cast, _casted, 2, 2, is_condition=True, is_partial=True),
)
