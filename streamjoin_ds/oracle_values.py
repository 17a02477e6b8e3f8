"""Values of expressions in plain Python, for the oracle (`testing`): no arrays, nothing of the engine."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from streamjoin_ds.spec.expression import Expression, Literal
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.predicate import Column

__all__ = ["event_time_us", "oracle_value"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_DIGITS = 76
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def oracle_value(join: Join, expression: Expression, rows: Mapping[str, Mapping[str, Any]]) -> Any:
    """Value of an expression over one row of each stream; None where it is null or unknown.

    Whole numbers and decimals are fractions, so are times and durations, in microseconds.
    """
    if isinstance(expression, Literal):
        return _plain(expression.value)
    if isinstance(expression, Column):
        stream = join.streams[join.names.index(expression.stream)]
        value = rows[stream.name][expression.name]
        return _plain(event_time_us(value, stream.time_unit) if expression.name == stream.time else value)
    values = [oracle_value(join, argument, rows) for argument in expression.args]
    op, first = expression.op, values[0]
    if op in ("and", "or"):
        decisive = op == "or"
        return decisive if decisive in values else None if None in values else not decisive
    if op == "is_null":
        return first is None
    if op == "in":
        found = [_compared("=", first, item) for item in values[1:]]
        return True if True in found else None if None in found else False
    if op == "between":
        ends = [_compared("<=", values[1], first), _compared("<=", first, values[2])]
        return False if False in ends else None if None in ends else True
    if None in values:
        return None
    if len(values) == 1:
        return not first if op == "not" else abs(first) if op == "abs" else -first
    return _compared(op, *values) if op in _COMPARED else _computed(op, *values)


def event_time_us(value: Any, unit: str = "us") -> int | None:
    """Microseconds since 1970 UTC of an event time; None of a null."""
    if value is None:
        return None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()) // timedelta(microseconds=1)
    return int(value) // 1000 if unit == "ns" else int(value) * _UNITS[unit]


_COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


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


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1))
    if isinstance(value, date):  # and moments, which are dates to Python
        return Fraction(event_time_us(value) or 0)
    if isinstance(value, Decimal) and (value.adjusted() >= _MOST_DIGITS or value.as_tuple().exponent < -_MOST_DIGITS):  # type: ignore[operator]
        return float(value)  # no exact number has so many digits
    return Fraction(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value
