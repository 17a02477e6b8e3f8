"""Functions of numbers: roots, powers, logarithms, angles, and rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import INT64_MAX, Float64
from streamjoin_ds.spec.expression.node import (
    MOST_DIGITS,
    PLAIN,
    Typed,
    Values,
    exactly,
    narrow,
    nulls,
    refuse,
    refuse_size,
    wide,
)
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, by_row, checked, constant, floats

__all__ = ["NUMBERS", "signed"]


_TO_RADIANS, _TO_DEGREES = 0.017453292519943295, 57.29577951308232
_MOST_PLACES = 30  # of round()
_CONTEXT = Context(prec=400)  # room for every digit of a float64 and of its places
_SURE = 2.0**40  # below this a float64 times a power of ten is known well enough to see that it is no tie


def signed(expression: Call, args: tuple[Typed, ...]) -> Typed:
    """Return the node of ``abs`` or of a minus: it is as large as its operand."""
    (inner,) = args
    if inner.family not in ("number", "float", "interval"):
        hint = "- and abs() take numbers and durations"
        refuse(expression, f"needs a number or a duration, not {inner.family}", hint)
    return Typed(expression.op, inner.family, args, inner.magnitude, inner.scale)


def _absolute(node: Typed, rows: Rows) -> Values:
    if node.family == "float":
        return PLAIN["abs"](rows.floats(node.args[0]))
    return exactly(node, [rows.value(node.args[0])], node.args)


def _by(function: Callable[..., Values]) -> Callable[[Typed, Rows], Values]:
    """Return the evaluation of a function of Arrow over float64."""
    return lambda node, rows: function(*(rows.floats(argument) for argument in node.args))


def _exp(values: pa.Array) -> pa.Array:
    found = getattr(pc, "exp", None)  # Arrow has had it since version 20
    return found(values) if found else by_row(_exp_of, pa.float64(), [values])


def _exp_of(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _ln(values: pa.Array) -> pa.Array:
    return pc.ln(pc.if_else(pc.less_equal(values, 0.0), pa.scalar(None, pa.float64()), values))


def _power(base: pa.Array, exponent: pa.Array) -> pa.Array:
    """Return powers as Java and Spark have them: 1 to NaN, and 1 or -1 to an infinity, is NaN, where C has 1."""
    found = pc.power(base, exponent)
    is_one, is_unit = pc.equal(base, 1.0), pc.equal(pc.abs(base), 1.0)
    is_nan = pc.or_(pc.and_(is_one, pc.is_nan(exponent)), pc.and_(is_unit, pc.is_inf(exponent)))
    return pc.if_else(is_nan, math.nan, found)


def _angle(y: pa.Array, x: pa.Array) -> pa.Array:
    """Return angles as Spark has them, to which -0.0 is 0.0."""
    return pc.atan2(pc.add(y, 0.0), pc.add(x, 0.0))


def _whole(expression: Call, args: tuple[Typed, ...]) -> Typed:
    """Return the node of ``floor`` or ``ceil``: a whole number, of a float one of 64 bits."""
    checked(expression, args, "number", "float")
    (inner,) = args
    magnitude = INT64_MAX + 1 if inner.family == "float" else inner.magnitude // 10**inner.scale + bool(inner.scale)
    return Typed(expression.op, "number", args, magnitude)


def _wholes(node: Typed, rows: Rows) -> Values:
    (inner,) = node.args
    to_whole = pc.floor if node.op == "floor" else pc.ceil
    if inner.family == "float":
        return whole_numbers(to_whole(rows.floats(inner)))
    values = rows.array(rows.value(inner))
    if not inner.scale:
        return values
    digits = min(inner.digits + 1, MOST_DIGITS)
    return narrow(to_whole(wide(values, inner).cast(pa.decimal256(digits, inner.scale))).cast(pa.decimal256(digits, 0)))


def whole_numbers(values: pa.Array) -> pa.Array:
    """Return whole float64 as int64; null where they are NaN or do not fit."""
    numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    fits = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    return pa.array(np.where(fits, numbers, 0.0).astype(np.int64), mask=~fits)


def _rounded(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], "number", "float")
    places = _places(expression, args)
    inner = args[0]
    if inner.family == "float":
        return Typed(expression.op, "float", args)
    scale = min(inner.scale, max(places, 0))
    magnitude = inner.magnitude // 10 ** (inner.scale - scale) + 10 ** max(0, -places)
    node = Typed(expression.op, "number", args, magnitude, scale)
    if max(node.digits, inner.digits + 1) > MOST_DIGITS:
        refuse_size(expression)
    return node


def _places(expression: Call, args: tuple[Typed, ...]) -> int:
    if len(args) == 1:
        return 0
    places = int(constant(expression, args[1], "number", "a whole number of places"))
    if abs(places) > _MOST_PLACES:
        refuse(expression, f"rounds to more than {_MOST_PLACES} places", "give fewer places")
    return places


def _roundings(node: Typed, rows: Rows) -> Values:
    inner = node.args[0]
    places = _places(Call(node.op, ()), node.args)
    if inner.family == "float":
        values = rows.floats(inner)
        numbers = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False), dtype=np.float64)
        return pa.array(_half_up(numbers, places), mask=nulls(values))
    values = rows.array(rows.value(inner))
    if places >= inner.scale:
        return values
    kind = pa.decimal256(max(node.digits, inner.digits + 1), inner.scale)
    found = pc.round(wide(values, inner).cast(kind), places, round_mode="half_towards_infinity")
    return (
        narrow(found.cast(pa.decimal256(node.digits, 0)))
        if not node.scale
        else found.cast(pa.decimal256(node.digits, node.scale))
    )


def _half_up(numbers: Float64, places: int) -> Float64:
    """Return numbers rounded to places of their shortest decimal text; half goes away from zero.

    Where the product with a power of ten is far from a tie, its digits are the text's; else the text is asked.
    """
    size = np.abs(numbers)
    factor = 10.0 ** abs(places)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = size * factor if places >= 0 else size / factor
        whole = np.floor(scaled + 0.5)
        found = np.copysign(whole / factor if places >= 0 else whole * factor, numbers)
        sure = (scaled < _SURE) & (np.abs(scaled - np.floor(scaled) - 0.5) > 1e-3)
    if abs(places) > 22:  # powers of ten that float64 holds exactly
        sure[:] = False
    found = np.where(np.isfinite(numbers), found, numbers)
    for place in np.flatnonzero(~sure & np.isfinite(numbers)):
        found[place] = _text_rounded(float(numbers[place]), places)
    return found + 0.0


def _text_rounded(number: float, places: int) -> float:
    return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _CONTEXT))


NUMBERS = (
    Function("abs", "abs(x)", signed, _absolute),
    Function("sqrt", "sqrt(x)", floats, _by(pc.sqrt)),
    Function("power", "power(x, y)", floats, _by(_power), 2, 2, aliases=("pow",)),
    Function("exp", "exp(x)", floats, _by(_exp)),
    Function("ln", "ln(x)", floats, _by(_ln), is_partial=True),
    Function("sin", "sin(x)", floats, _by(pc.sin)),
    Function("cos", "cos(x)", floats, _by(pc.cos)),
    Function("tan", "tan(x)", floats, _by(pc.tan)),
    Function("atan2", "atan2(y, x)", floats, _by(_angle), 2, 2),
    Function("radians", "radians(x)", floats, _by(lambda x: pc.multiply(x, _TO_RADIANS))),
    Function("degrees", "degrees(x)", floats, _by(lambda x: pc.multiply(x, _TO_DEGREES))),
    Function("floor", "floor(x)", _whole, _wholes),
    Function("ceil", "ceil(x)", _whole, _wholes, aliases=("ceiling",)),
    Function("round", "round(x [, places])", _rounded, _roundings, 1, 2),
)
