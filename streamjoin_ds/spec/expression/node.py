"""Nodes of expressions with their types, and arrays of the exact numbers that are their values.

A node says how large an exact number can get, so its values always have room: int64, or decimal256 where they are
larger. An expression that could need more than 76 digits is refused. Where a number becomes a float, it is the nearest
float, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.columns import NANOSECONDS, Float64, Mask
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, columns_of
from streamjoin_ds.spec.nested_values import is_nested, shape_text

__all__ = [
    "EXACT",
    "EXACT_FLOAT",
    "MOST_DIGITS",
    "NESTED",
    "PLAIN",
    "TIMES",
    "Typed",
    "Values",
    "column_node",
    "common",
    "common_digits",
    "decimal",
    "exactly",
    "in_one_scale",
    "is_null",
    "narrow",
    "nearest_floats",
    "nearest_singles",
    "nulls",
    "refuse",
    "refuse_size",
    "unscaled",
    "wide",
]

NESTED = "list or struct"  # the family of values that are only equal or not
EXACT = ("number", "timestamp", "date", "interval", "time")
TIMES = ("timestamp", "date")
MOST_DIGITS = 76  # most digits of an exact number: those of decimal256
# An Arrow array with a value for each row, or one Arrow scalar for all rows.
Values: TypeAlias = Any
EXACT_FLOAT = 1 << 53  # whole numbers up to this are exact in float64
PLAIN = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "neg": pc.negate, "abs": pc.abs}
_CHECKED = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
    "abs": pc.abs_checked,
}
_EXACT_SCALE = 22  # in float64 so are the powers of ten up to this one
_SMALLEST_SINGLE = 2.0**-126  # of float32 with all its bits
_DIGITS = Context(prec=10_000)  # more digits than any constant can have: nothing is rounded


class Typed(Struct, frozen=True):
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
    shape : str
        Of a column of lists or structs: the type that those must have with which it is compared (`shape_text`).
    nested : pyarrow.DataType or None
        Of such a column: its type.
    """

    op: str
    family: str
    args: tuple[Typed, ...] = ()
    magnitude: int = 0
    scale: int = 0
    column: Column | None = None
    value: bool | int | float | str = False
    shape: str = ""
    nested: pa.DataType | None = None

    @property
    def digits(self) -> int:
        """Decimal digits that hold every value of an exact node; if its scale is 0, at least 19, as any int64 needs."""
        return max(len(str(self.magnitude)), self.scale, 1 if self.scale else 19)


def column_node(column: Column, kind: pa.DataType) -> Typed:
    """Return the node of a column of a type (`compared_type`)."""
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
        return Typed("column", "interval", magnitude=1 << 63, scale=3 if kind.unit == "ns" else 0, column=column)
    if types.is_time(kind):
        scale = 3 if kind.unit == "ns" else 0
        return Typed("column", "time", magnitude=DAY_US * 10**scale, scale=scale, column=column)
    plain = {
        "float": types.is_floating,
        "boolean": types.is_boolean,
        "string": types.is_string,
        "binary": types.is_binary,
    }
    family = next((family for family, is_of in plain.items() if is_of(kind)), NESTED)
    if not is_nested(kind):
        return Typed("column", family, column=column)
    return Typed("column", family, column=column, shape=shape_text(kind), nested=kind)


def is_null(node: Typed) -> bool:
    """Whether a node is a null of any type."""
    return node.family == "nothing"


def common_digits(expression: Expression, args: Sequence[Typed]) -> int:
    """Return how many digits both sides need in one scale, and one more; refuse an expression that needs too many."""
    scale = max(side.scale for side in args)
    needed = max(side.digits - side.scale for side in args) + scale + 1
    if needed > MOST_DIGITS:
        refuse_size(expression)
    return needed


def common(expression: Call, args: tuple[Typed, ...], values: Sequence[Typed]) -> Typed:
    """Return the node of a function whose result is one of some values: it has the type that holds all of them.

    Parameters
    ----------
    expression : Call
        The function.
    args : tuple of Typed
        All its operands.
    values : sequence of Typed
        Those of which its result is one.

    Raises
    ------
    PredicateError
        They have no type in common.
    """
    known = [value for value in values if not is_null(value)]
    families = {value.family for value in known}
    if not known:
        return Typed("null", "nothing")
    if families <= {"number", "float"} and "float" in families:
        return Typed(expression.op, "float", args)
    family = "timestamp" if families == set(TIMES) else known[0].family
    if families == {NESTED}:
        refuse(expression, "chooses among lists or structs", "compare their columns with = or IS [NOT] DISTINCT FROM")
    if len(families) > 1 and families != set(TIMES):
        hint = "write CAST(... AS ...), so that they have one type"
        refuse(expression, f"gives values of several types: {', '.join(sorted(families))}", hint)
    if family not in EXACT:
        return Typed(expression.op, family, args)
    common_digits(expression, known)
    scale = max(value.scale for value in known)
    magnitude = max(value.magnitude * 10 ** (scale - value.scale) for value in known)
    return Typed(expression.op, family, args, magnitude, scale)


def refuse_size(expression: Expression) -> NoReturn:
    """Refuse an expression whose numbers could need too many digits."""
    why = f"could need a number of more than {MOST_DIGITS} digits"
    refuse(expression, why, "CAST one AS DOUBLE, divide, which gives a float64 too, or move a factor to the other side")


def refuse(expression: Expression, why: str, hint: str) -> NoReturn:
    """Refuse an expression, whose text begins the message."""
    text = str(expression)
    msg = f"'{text if len(text) <= 200 else text[:200] + '...'}' {why}"
    name = str((*columns_of(expression), text[:200])[0])
    raise PredicateError(msg, name=name, hint=hint)


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


def nearest_floats(values: pa.Array) -> Float64:
    """Return the float64 that are nearest to decimals, ties to even; what stands for a null is any number.

    Where float64 holds the digits and the power of ten, their quotient is rounded once. Else the decimal's text is
    read, which is slower. Arrow's own cast multiplies by a power of ten that is rounded already.
    """
    if not len(values):
        return np.empty(0)
    words = values.type.bit_width // 64
    digits = np.frombuffer(values.buffers()[1], np.int64)[values.offset * words :][: len(values) * words]
    low = digits[::words].copy()
    found: Float64 = low / float(10**values.type.scale)
    is_exact = (low >= -EXACT_FLOAT) & (low <= EXACT_FLOAT) & (values.type.scale <= _EXACT_SCALE)
    low >>= 63
    for word in range(1, words):
        is_exact &= digits[word::words] == low
    if not is_exact.all():
        rest = np.flatnonzero(~is_exact & ~nulls(values))
        texts = values.take(pa.array(rest)).cast(pa.string())
        found[rest] = texts.cast(pa.float64()).to_numpy()
    return found


def nearest_singles(floats: Float64, exact: Callable[[int], Fraction]) -> Float64:
    """Return the float32 that are nearest to numbers, ties to even, as float64.

    Parameters
    ----------
    floats : ndarray, shape (n,), float64
        The float64 that are nearest to the numbers.
    exact : callable
        Returns one of the numbers, by its place.

    Notes
    -----
    To round the float64 again is right but where it lies halfway between two float32. Then the number itself says to
    which side it lies, and the float64 next to it on that side is rounded.
    """
    size, found = np.abs(floats), floats
    bits: npt.NDArray[np.int64] = np.ascontiguousarray(floats).view(np.int64)
    halfway = (bits & ((1 << 29) - 1)) == 1 << 28
    small = size < _SMALLEST_SINGLE
    if small.any():
        halfway[small] = np.fmod(np.ldexp(size[small], 150), 2.0) == 1.0  # odd halves of the smallest float32
    for place in np.flatnonzero(halfway & np.isfinite(floats)).tolist():
        number, near = exact(place), Fraction(float(floats[place]))
        if number != near:
            found = found.copy() if found is floats else found
            found[place] = np.nextafter(floats[place], np.inf if number > near else -np.inf)
    with np.errstate(over="ignore", under="ignore"):
        return found.astype(np.float32).astype(np.float64)
