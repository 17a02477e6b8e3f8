"""Values of expressions in plain Python for the oracle (`oracle`), without arrays and without the engine."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Expression, Literal
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.join_parts import Calculated
from streamjoin_ds.testing.functions import CHOOSING, PLAIN, chosen
from streamjoin_ds.testing.times import event_time_ns, event_time_us, instant_us

__all__ = ["column_value", "event_time_us", "oracle_outputs", "oracle_value", "plain_value"]

_ABSENT: Mapping[str, Any] = defaultdict(lambda: None)
_MOST_DIGITS = 76  # digits before or after the point of an exact number, at most


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
