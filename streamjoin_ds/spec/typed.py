"""Expressions whose columns' types are known: what can be compared, and how large a number can get.

::

    family               columns                               values inside
    ─────────────────    ──────────────────────────────────    ─────────────────────────────────────────────
    number               integers, decimals                    exact, of any size: int64, decimal256 where larger
    float                float32, float64                      float64
    timestamp, date,     timestamps, dates; differences of     microseconds, exact, of any size; of columns of
    interval             two of them, durations, INTERVALs       nanoseconds with three decimal places (`Typed.scale`)
    time                 times of day, only compared             microseconds
    boolean, string,     as they are                           as they are; text and bytes compare byte by byte
    binary

- ``+ - *``, ``%``, ``abs`` and unary minus of numbers are exact and never overflow. An expression that could need more
  than 76 digits (a product of four 64-bit columns) is refused when it is bound.
- ``/`` always gives float64, for integers too (as in Spark). ``x / 0`` and ``x % 0`` are null. ``%`` has the sign of
  its left side.
- ``sqrt`` gives float64, NaN for a number below zero.
- A literal that needs more than 76 digits before or after the point (``1e100``) is a float64.
- Beside a float, a number becomes the nearest float64, also an int64 beyond 2^53 (as in Spark and DuckDB).
- A comparison is within one family, between number and float, or between date and timestamp (a date is its midnight
  UTC).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import NoReturn, TypeAlias

import pyarrow as pa

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.columns import NANOSECONDS
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression import COMPARISONS, Call, Expression, Literal, columns_of
from streamjoin_ds.spec.predicate import Column

__all__ = ["EXACT", "Typed", "typed_condition"]

EXACT = ("number", "timestamp", "date", "interval", "time")

_MOST_DIGITS = 76  # most digits of an exact number: those of decimal256
_TIMES = ("timestamp", "date")
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

TypeOf: TypeAlias = Callable[[Column], pa.DataType]


@dataclass(frozen=True, slots=True)
class Typed:
    """A node of an expression with its type.

    Attributes
    ----------
    op : str
        An operator of `Call`, or "column", "literal", "null" (a null of any type).
    family : str
        The family of its values (see the module); "nothing" for a null.
    args : tuple of Typed
        The operands.
    magnitude, scale : int
        For exact families: ``abs(value) * 10**scale <= magnitude``, and that product is a whole number.
    column : Column or None
        The column of the operator "column".
    value : bool, int, float or str
        The value of a literal; an exact one as the whole number ``value * 10**scale``.
    """

    op: str
    family: str
    args: tuple[Typed, ...] = ()
    magnitude: int = 0
    scale: int = 0
    column: Column | None = None
    value: bool | int | float | str = False

    @property
    def digits(self) -> int:
        """Decimal digits that hold every value of an exact node; if its scale is 0, at least 19, as any int64 needs."""
        return max(len(str(self.magnitude)), self.scale, 1 if self.scale else 19)


def typed_condition(expression: Expression, type_of: TypeOf) -> Typed:
    """Return a normalised condition with types.

    Parameters
    ----------
    expression : Expression
        The condition.
    type_of : callable
        Returns the type in which a column is compared (`compared_type`); for an event time a timestamp.

    Raises
    ------
    PredicateError
        An operator does not take these types, a number could have more than 76 digits, or it is no condition.
    """
    root = _typed(expression, type_of)
    if root.family not in ("boolean", "nothing"):
        _refuse(expression, f"is of type {root.family}, not a condition", "compare it with something")
    return root


def _typed(expression: Expression, type_of: TypeOf) -> Typed:
    if isinstance(expression, Column):
        return _column(expression, type_of(expression))
    if isinstance(expression, Literal):
        return _literal(expression)
    op, args = expression.op, tuple(_typed(argument, type_of) for argument in expression.args)
    if op == "is_null":
        return Typed(op, "boolean", args)
    if op in ("and", "or", "not"):
        for argument in args:
            if argument.family not in ("boolean", "nothing"):
                _refuse(
                    expression,
                    f"has a value of type {argument.family} where a condition belongs",
                    "compare it with something",
                )
        return Typed(op, "boolean", args)
    has_nothing = any(argument.family == "nothing" for argument in args)
    if op == "same" and has_nothing:
        return Typed(op, "boolean", args)
    if has_nothing:
        return Typed("null", "nothing")
    families = [argument.family for argument in args]
    if op == "same" or op in COMPARISONS:
        return _comparison(expression, args, families)
    if len(args) == 1:
        if families[0] not in ("number", "float", "interval"):
            _refuse(
                expression, f"needs a number or a duration, not {families[0]}", "- and abs() take numbers and durations"
            )
        if op == "sqrt":
            if families[0] == "interval":
                _refuse(expression, "needs a number, not interval", "sqrt() takes numbers")
            return Typed(op, "float", args)
        return Typed(op, families[0], args, args[0].magnitude, args[0].scale)
    return _arithmetic(expression, args, families)


def _column(column: Column, kind: pa.DataType) -> Typed:
    types = pa.types
    if types.is_integer(kind):
        bits = kind.bit_width - (not types.is_uint64(kind))  # smaller ones without a sign have become signed ones
        return Typed("column", "number", magnitude=1 << bits, column=column)
    if types.is_decimal(kind):
        return Typed("column", "number", magnitude=10**kind.precision - 1, scale=kind.scale, column=column)
    if types.is_timestamp(kind):
        return Typed("column", "timestamp", magnitude=1 << 63, scale=3 if kind == NANOSECONDS else 0, column=column)
    if types.is_date(kind):
        return Typed("column", "date", magnitude=DAY_US << 31, column=column)
    if types.is_duration(kind):
        return Typed("column", "interval", magnitude=1 << 63, column=column)
    if types.is_time(kind):
        return Typed("column", "time", magnitude=DAY_US, column=column)
    plain = {
        "float": types.is_floating,
        "boolean": types.is_boolean,
        "string": types.is_string,
        "binary": types.is_binary,
    }
    family = next((family for family, is_of in plain.items() if is_of(kind)), "list or struct")
    return Typed("column", family, column=column)


def _literal(literal: Literal) -> Typed:
    value = literal.value
    if value is None:
        return Typed("null", "nothing")
    if isinstance(value, (bool, str)):
        return Typed("literal", "boolean" if isinstance(value, bool) else "string", value=value)
    if isinstance(value, timedelta):
        return _exact_literal("interval", value // _MICROSECOND, 0)
    if isinstance(value, datetime):
        return _exact_literal("timestamp", (value - _EPOCH) // _MICROSECOND, 0)
    if isinstance(value, date):
        return _exact_literal("date", (value - _EPOCH.date()).days * DAY_US, 0)
    if isinstance(value, int):
        return _exact_literal("number", value, 0)
    exponent = int(value.as_tuple().exponent)
    if value.adjusted() >= _MOST_DIGITS or exponent < -_MOST_DIGITS:  # it does not fit an exact number
        return Typed("literal", "float", value=float(value))
    scale = max(-exponent, 0)
    return _exact_literal("number", int(Fraction(value) * 10**scale), scale)


def _exact_literal(family: str, unscaled: int, scale: int) -> Typed:
    return Typed("literal", family, magnitude=abs(unscaled), scale=scale, value=unscaled)


def _comparison(expression: Call, args: tuple[Typed, ...], families: list[str]) -> Typed:
    left, right = families
    if set(families) == {"number", "float"}:
        return Typed(expression.op, "boolean", args)
    if left != right and not (left in _TIMES and right in _TIMES):
        hints = {
            "string": "write TIMESTAMP '2024-01-31 12:00:00' or DATE '2024-01-31' for a time",
            "interval": "write INTERVAL 5 SECONDS for a duration",
        }
        hint = next((text for family, text in hints.items() if family in families), "cast one of them in the input")
        _refuse(expression, f"compares {left} with {right}", hint)
    if left == "list or struct" or (left == "boolean" and expression.op not in ("=", "<>", "same")):
        _refuse(
            expression,
            f"compares {left} values by '{expression.op}'",
            "compare booleans with = or <>, and no lists or structs",
        )
    if left in EXACT:
        _common(expression, args)
    return Typed(expression.op, "boolean", args)


def _arithmetic(expression: Call, args: tuple[Typed, ...], families: list[str]) -> Typed:
    op, (left, right) = expression.op, families
    numbers = {left, right} <= {"number", "float"}
    if numbers and (op == "/" or "float" in families):
        return Typed(op, "float", args)
    if numbers:
        return _exact(expression, "number", args)
    if op == "-" and left in _TIMES and right in _TIMES:
        return _exact(expression, "interval", args)
    if op in ("+", "-") and right == "interval" and left in (*_TIMES, "interval"):
        return _exact(expression, "interval" if left == "interval" else "timestamp", args)
    if op == "+" and left == "interval" and right in _TIMES:
        return _exact(expression, "timestamp", args)
    if op == "*" and {left, right} == {"number", "interval"} and not args[left == "interval"].scale:
        return _exact(expression, "interval", args)
    hint = "calculate with numbers, add and subtract times and durations, multiply durations by whole numbers"
    _refuse(expression, f"calculates {left} {op} {right}, which is not defined", hint)


def _exact(expression: Call, family: str, args: tuple[Typed, ...]) -> Typed:
    left, right = args
    if expression.op == "*":
        magnitude, scale = left.magnitude * right.magnitude, left.scale + right.scale
        needed = left.digits + right.digits + 1
    else:
        needed, scale = _common(expression, args), max(left.scale, right.scale)
        l_size, r_size = (side.magnitude * 10 ** (scale - side.scale) for side in args)
        magnitude = l_size + r_size if expression.op in ("+", "-") else min(l_size, r_size)
    node = Typed(expression.op, family, args, magnitude, scale)
    if max(needed, node.digits) > _MOST_DIGITS:
        _refuse_size(expression)
    return node


def _common(expression: Call, args: tuple[Typed, ...]) -> int:
    """Return how many digits both sides need in one scale, and one more; refuse an expression that needs too many."""
    scale = max(side.scale for side in args)
    needed = max(side.digits - side.scale for side in args) + scale + 1
    if needed > _MOST_DIGITS:
        _refuse_size(expression)
    return needed


def _refuse_size(expression: Expression) -> NoReturn:
    why = f"could need a number of more than {_MOST_DIGITS} digits"
    _refuse(expression, why, "divide, which calculates in float64, or move a factor to the other side")


def _refuse(expression: Expression, why: str, hint: str) -> NoReturn:
    text = str(expression)
    msg = f"'{text if len(text) <= 200 else text[:200] + '...'}' {why}"
    name = str((*columns_of(expression), text[:200])[0])
    raise PredicateError(msg, name=name, hint=hint)
