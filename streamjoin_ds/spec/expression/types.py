"""Expressions whose columns' types are known: what can be compared, and how large a number can get.

::

    family               columns                               values inside
    ─────────────────    ──────────────────────────────────    ─────────────────────────────────────────────
    number               integers, decimals                    exact, of any size: int64, decimal256 where larger
    float                float32, float64                      float64
    timestamp, date,     timestamps, dates; differences of     microseconds, exact, of any size; of columns of
    interval             two of them, durations, INTERVALs       nanoseconds with three decimal places (`Typed.scale`)
    time                 times of day; of two the difference     the same
    boolean, string,     as they are                           as they are; text and bytes compare byte by byte
    binary
    list or struct       of one type, only equal or not        bytes (`nested_values`)

- ``+ - *``, ``%``, ``abs`` and unary minus of numbers are exact and never overflow. An expression that could need more
  than 76 digits (a product of four 64-bit columns) is refused when it is bound.
- ``/`` always gives float64, for integers too (as in Spark). ``x / 0`` and ``x % 0`` are null. ``%`` has the sign of
  its left side.
- Functions are in a table of their own (`functions`).
- A literal that needs more than 76 digits before or after the point (``1e100``) is a float64.
- Beside a float, a number becomes the nearest float64, also an int64 beyond 2^53 (as in Spark and DuckDB).
- A comparison is within one family, between number and float, or between date and timestamp (a date is its midnight
  UTC).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from fractions import Fraction
from typing import TypeAlias

import pyarrow as pa

from streamjoin_ds.duration import EPOCH, MICROSECOND
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.node import (
    EXACT,
    MOST_DIGITS,
    NESTED,
    TIMES,
    Typed,
    column_node,
    common_digits,
    is_null,
    refuse,
    refuse_size,
)
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import COMPARISONS, Call, Expression, Literal
from streamjoin_ds.spec.functions import FUNCTIONS, signed

__all__ = ["EXACT", "Typed", "typed_condition", "typed_value"]


TypeOf: TypeAlias = Callable[[Column], pa.DataType]


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
    root = typed_value(expression, type_of)
    if root.family not in ("boolean", "nothing"):
        refuse(expression, f"is of type {root.family}, not a condition", "compare it with something")
    return root


def typed_value(expression: Expression, type_of: TypeOf) -> Typed:
    """Return a normalised expression with types; arguments and errors as for `typed_condition`."""
    if isinstance(expression, Column):
        return column_node(expression, type_of(expression))
    if isinstance(expression, Literal):
        return _literal(expression)
    op, args = expression.op, tuple(typed_value(argument, type_of) for argument in expression.args)
    if op == "is_null":
        return Typed(op, "boolean", args)
    if op in ("and", "or", "not"):
        for argument in args:
            if argument.family not in ("boolean", "nothing"):
                refuse(
                    expression,
                    f"has a value of type {argument.family} where a condition belongs",
                    "compare it with something",
                )
        return Typed(op, "boolean", args)
    function = FUNCTIONS.get(op)
    if function is not None:
        if function.nulls == "any" and any(map(is_null, args)):
            return Typed("null", "nothing")
        return function.typed(expression, args)
    has_nothing = any(map(is_null, args))
    if op == "same" and has_nothing:
        return Typed(op, "boolean", args)
    if has_nothing:
        return Typed("null", "nothing")
    families = [argument.family for argument in args]
    if op == "same" or op in COMPARISONS:
        return _comparison(expression, args, families)
    if op == "neg":
        return signed(expression, args)
    return _arithmetic(expression, args, families)


def _literal(literal: Literal) -> Typed:
    value = literal.value
    if value is None:
        return Typed("null", "nothing")
    if isinstance(value, (bool, str)):
        return Typed("literal", "boolean" if isinstance(value, bool) else "string", value=value)
    if isinstance(value, timedelta):
        return _exact_literal("interval", value // MICROSECOND, 0)
    if isinstance(value, datetime):
        return _exact_literal("timestamp", (value - EPOCH) // MICROSECOND, 0)
    if isinstance(value, time):
        since = datetime.combine(EPOCH.date(), value, timezone.utc) - EPOCH
        return _exact_literal("time", since // MICROSECOND, 0)
    if isinstance(value, date):
        return _exact_literal("date", (value - EPOCH.date()).days * DAY_US, 0)
    if isinstance(value, int):
        return _exact_literal("number", value, 0)
    exponent = int(value.as_tuple().exponent)
    if value.adjusted() >= MOST_DIGITS or exponent < -MOST_DIGITS:  # it does not fit an exact number
        return Typed("literal", "float", value=float(value))
    scale = max(-exponent, 0)
    return _exact_literal("number", int(Fraction(value) * 10**scale), scale)


def _exact_literal(family: str, unscaled: int, scale: int) -> Typed:
    return Typed("literal", family, magnitude=abs(unscaled), scale=scale, value=unscaled)


def _comparison(expression: Call, args: tuple[Typed, ...], families: list[str]) -> Typed:
    left, right = families
    if set(families) == {"number", "float"}:
        return Typed(expression.op, "boolean", args)
    if left != right and not (left in TIMES and right in TIMES):
        refuse(expression, f"compares {left} with {right}", _hint_of_families(expression, families))
    if left in (NESTED, "boolean") and expression.op not in ("=", "<>", "same"):
        hint = "compare booleans, lists and structs with =, <> or IS [NOT] DISTINCT FROM"
        refuse(expression, f"compares {left} values by '{expression.op}'", hint)
    if args[0].shape != args[1].shape:
        hint = "both sides need the same types inside: cast one of them in the input"
        refuse(expression, f"compares {args[0].shape} with {args[1].shape}", hint)
    if left in EXACT:
        common_digits(expression, args)
    return Typed(expression.op, "boolean", args)


def _hint_of_families(expression: Call, families: list[str]) -> str:
    """Return what makes a comparison of two families possible."""
    if NESTED in families:
        return "compare a list or struct with another one of the same type"
    if "string" in families:
        place = families.index("string")
        text, other = str(expression.args[place]), families[1 - place]
        written = {
            "timestamp": "TIMESTAMP '2024-01-31 12:00:00'",
            "date": "DATE '2024-01-31'",
            "time": "TIME '12:00:00'",
            "interval": "INTERVAL 5 SECONDS",
        }
        if isinstance(expression.args[place], Literal) and other in written:
            return f"write {written[other]}"
        if isinstance(expression.args[place], Literal) and other in ("number", "float"):
            return "write a number without quotes"
        of_text = {
            "number": "DOUBLE) makes a number",
            "float": "DOUBLE) makes a number",
            "boolean": "BOOLEAN) makes a truth value",
            "timestamp": "TIMESTAMP) makes a time",
            "date": "DATE) makes a date",
        }
        if other in of_text:
            return f"CAST({text} AS {of_text[other]} of the text"
    if "interval" in families:
        return "write INTERVAL 5 SECONDS for a duration"
    return "cast one of them in the input"


def _arithmetic(expression: Call, args: tuple[Typed, ...], families: list[str]) -> Typed:
    op, (left, right) = expression.op, families
    numbers = {left, right} <= {"number", "float"}
    if numbers and (op == "/" or "float" in families):
        return Typed(op, "float", args)
    if numbers:
        return _exact(expression, "number", args)
    if op == "-" and ((left in TIMES and right in TIMES) or left == right == "time"):
        return _exact(expression, "interval", args)
    if op in ("+", "-") and right == "interval" and left in (*TIMES, "interval"):
        return _exact(expression, "interval" if left == "interval" else "timestamp", args)
    if op == "+" and left == "interval" and right in TIMES:
        return _exact(expression, "timestamp", args)
    if op == "*" and {left, right} == {"number", "interval"} and not args[left == "interval"].scale:
        return _exact(expression, "interval", args)
    hint = "calculate with numbers, add and subtract times and durations, multiply durations by whole numbers"
    refuse(expression, f"calculates {left} {op} {right}, which is not defined", hint)


def _exact(expression: Call, family: str, args: tuple[Typed, ...]) -> Typed:
    left, right = args
    if expression.op == "*":
        magnitude, scale = left.magnitude * right.magnitude, left.scale + right.scale
        needed = left.digits + right.digits + 1
    else:
        needed, scale = common_digits(expression, args), max(left.scale, right.scale)
        l_size, r_size = (side.magnitude * 10 ** (scale - side.scale) for side in args)
        magnitude = l_size + r_size if expression.op in ("+", "-") else min(l_size, r_size)
    node = Typed(expression.op, family, args, magnitude, scale)
    if max(needed, node.digits) > MOST_DIGITS:
        refuse_size(expression)
    return node
