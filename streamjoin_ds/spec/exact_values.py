"""Arrays of exact numbers: int64, or decimal256 where they are larger, and what is calculated with them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.node import Typed

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "PLAIN",
    "Mask",
    "Values",
    "decimal",
    "exactly",
    "in_one_scale",
    "narrow",
    "nulls",
    "unscaled",
    "wide",
]

Mask: TypeAlias = "npt.NDArray[np.bool_]"
# An Arrow array with a value for each row, or one Arrow scalar for all rows.
Values: TypeAlias = Any

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

PLAIN = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "neg": pc.negate, "abs": pc.abs}
_CHECKED = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
    "abs": pc.abs_checked,
}
_DIGITS = Context(prec=10_000)  # more digits than any constant can have: nothing is rounded


def exactly(node: Typed, values: Sequence[Values], args: Sequence[Typed]) -> Values:
    """Return the result of an exact operation: int64, or decimal256 if the result of any row does not fit int64."""
    sides = in_one_scale(values, args) if node.op != "*" else values
    if sides and all(side.type == pa.int64() for side in sides):
        try:
            return _CHECKED[node.op](*sides)
        except pa.ArrowInvalid:  # an overflow of int64: compute in decimal256 instead
            pass
    return PLAIN[node.op](*map(wide, values, args)).cast(pa.decimal256(node.digits, node.scale))


def in_one_scale(values: Sequence[Values], args: Sequence[Typed]) -> list[Values] | None:
    """Return int64 values brought to the largest of their scales; None if some are not int64, or do not fit it."""
    if any(value.type != pa.int64() for value in values):
        return None
    scale = max(argument.scale for argument in args)
    try:
        return [
            value if argument.scale == scale else pc.multiply_checked(value, 10 ** (scale - argument.scale))
            for value, argument in zip(values, args, strict=True)
        ]
    except pa.ArrowInvalid:
        return None


def wide(values: Values, node: Typed) -> Values:
    """Return a node's values as decimal256."""
    kind = pa.decimal256(node.digits, node.scale)
    if not node.scale or values.type != pa.int64():
        return values.cast(kind)
    if isinstance(values, pa.Scalar):
        return pa.scalar(None if not values.is_valid else decimal(values.as_py(), node.scale), kind)
    whole = values.cast(pa.decimal256(node.digits, 0))  # the digits are right; the type below only moves the point
    return pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count, whole.offset)


def nulls(array: pa.Array) -> Mask:
    """Return where an array is null."""
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))


def decimal(unscaled: int, scale: int) -> Decimal:
    """Return ``unscaled / 10**scale``."""
    return Decimal(unscaled).scaleb(-scale, _DIGITS)


def unscaled(value: int | Decimal, scale: int) -> int:
    """Return ``value * 10**scale``, which is a whole number."""
    return int(Decimal(value).scaleb(scale, _DIGITS))


def narrow(values: Values) -> Values:
    """Return whole numbers as int64 where all fit it; else as they are."""
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values
