"""Evaluation of typed conditions and values on columns, whole arrays at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Mask
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.node import (
    EXACT,
    NESTED,
    PLAIN,
    Typed,
    Values,
    decimal,
    exactly,
    in_one_scale,
    is_null,
    nearest_floats,
    nulls,
    unscaled,
    wide,
)
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.functions import CALCULATED
from streamjoin_ds.spec.functions.globe import within
from streamjoin_ds.spec.nested_values import encoded

__all__ = ["Evaluation", "float_values", "holds"]


_COMPARED = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}
# The product "days since 1970 times microseconds of a day", for any date32.
_DATE = Typed(
    "*",
    "date",
    (Typed("column", "number", magnitude=1 << 31), Typed("literal", "number", magnitude=DAY_US, value=DAY_US)),
    magnitude=DAY_US << 31,
)


def holds(condition: Typed, rows: int, column: Callable[[Column], pa.Array]) -> Mask:
    """Return for which rows a condition is TRUE; FALSE and unknown are not TRUE.

    Parameters
    ----------
    condition : Typed
        The condition.
    rows : int
        The number of rows.
    column : callable
        Returns the `rows` values of a column, in the type to which the condition was bound. Timestamps may also be
        int64 in their unit.

    Returns
    -------
    ndarray of bool, shape (rows,)
        True where the condition is TRUE.
    """
    found = Evaluation(rows, column).value(condition)
    if isinstance(found, pa.Scalar):
        return np.full(rows, found.as_py() is True)
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def float_values(node: Typed, rows: int, column: Callable[[Column], pa.Array]) -> npt.NDArray[np.float64]:
    """Return an expression's values as float64, NaN for null; times are in microseconds.

    Parameters
    ----------
    node : Typed
        An expression of a number, a time or a duration.
    rows, column
        As for `holds`.
    """
    if node.op == "column" and node.family in ("float", "number"):
        assert node.column is not None
        plain = column(node.column)
        if not plain.null_count and not pa.types.is_decimal(plain.type):
            return np.ascontiguousarray(plain.to_numpy(zero_copy_only=False), dtype=np.float64)
    found = Evaluation(rows, column)
    values = found.as_float(node)
    if isinstance(values, pa.Scalar):
        return np.full(rows, np.nan if not values.is_valid else values.as_py())
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


class Evaluation:
    """Calculates expressions for some rows.

    Parameters
    ----------
    count : int
        How many rows there are.
    column : callable
        As for `holds`.
    """

    def __init__(self, count: int, column: Callable[[Column], pa.Array]) -> None:
        self.count = count
        self._column = column
        self._nested: dict[Column, pa.Array] = {}

    def value(self, node: Typed) -> Values:
        """Return the node's values.

        Floats are float64. Exact families are decimal256, or int64 that hold the value times 10**scale. Lists and
        structs are bytes.
        """
        if node.op == "column":
            return self._of_column(node)
        if node.op == "literal":
            return _of_literal(node)
        if node.op == "null":
            return pa.scalar(None, pa.bool_())
        if node.op in ("and", "or"):
            return reduce(pc.and_kleene if node.op == "and" else pc.or_kleene, map(self.value, node.args))
        if node.op == "not":
            return pc.invert(self.value(node.args[0]))
        if node.op == "is_null":
            inner = node.args[0]
            is_plain = inner.family == NESTED and inner.column is not None
            return pc.is_null(self._column(inner.column) if is_plain else self.value(inner))  # type: ignore[arg-type]
        if node.op == "same":
            return self._same(node)
        if node.op in ("<", "<=") and node.args[0].op == "distance_m" and node.args[1].op == "literal":
            return within(node, self)
        if node.op in _COMPARED:
            return self._compared(node)
        if node.op in CALCULATED:
            return CALCULATED[node.op].values(node, self)
        return self._exact(node) if node.family in EXACT else self._float(node)

    def _of_column(self, node: Typed) -> Values:
        assert node.column is not None
        values = self._column(node.column)
        if node.shape:
            if node.column not in self._nested:
                self._nested[node.column] = encoded(values)
            return self._nested[node.column]
        return self.in_family(node, values)

    def written(self, node: Typed) -> pa.Array:
        """Return the values of a column as they are: lists as lists."""
        assert node.column is not None
        return self._column(node.column)

    def in_family(self, node: Typed, values: pa.Array) -> Values:
        """Return values of a column's type in the form of a node's family."""
        if node.family == "float":
            return values.cast(pa.float64())
        if node.family in ("timestamp", "interval", "time"):
            return values.cast(pa.int64())
        if node.family == "date":
            days = values.cast(pa.int32()).cast(pa.int64())
            return exactly(_DATE, [days, pa.scalar(DAY_US)], _DATE.args)
        if node.family == "number":
            is_wide = pa.types.is_decimal(values.type) or pa.types.is_uint64(values.type)
            return values.cast(pa.decimal256(node.digits, node.scale) if is_wide else pa.int64())
        return values

    def _compared(self, node: Typed) -> Values:
        left, right = node.args
        compare = _COMPARED[node.op]
        if left.family in EXACT and right.family in EXACT:
            sides = [self.value(left), self.value(right)]
            return compare(*(in_one_scale(sides, node.args) or map(wide, sides, node.args)))
        if "float" not in (left.family, right.family):
            return compare(self.value(left), self.value(right))
        sides = [self._as_float(left), self._as_float(right)]
        result = compare(*sides)
        for side in sides:
            missing = pc.is_nan(side)
            if isinstance(side, pa.Scalar) or pc.any(missing).as_py():
                result = pc.if_else(missing, pa.scalar(None, pa.bool_()), result)
        return result

    def _same(self, node: Typed) -> Values:
        """Return where two values are the same: equal, both null, or both NaN; it is never unknown."""
        left, right = node.args
        lacks = [pc.is_null(self.value(side)) for side in node.args]
        if "nothing" in (left.family, right.family):
            return pc.and_(*lacks)
        found = pc.or_(pc.and_(*lacks), pc.fill_null(self._compared(replace(node, op="=")), False))
        if left.family == right.family == "float":
            return pc.or_(found, pc.and_(*(pc.fill_null(pc.is_nan(self.value(side)), False) for side in node.args)))
        return found

    def _float(self, node: Typed) -> Values:
        sides = [self._as_float(argument) for argument in node.args]
        if node.op in PLAIN:
            return PLAIN[node.op](*sides)
        left, right = sides
        right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)
        if node.op == "/":
            return pc.divide(left, right)
        left, right = self.array(left), self.array(right)
        with np.errstate(invalid="ignore"):
            rest = np.fmod(left.fill_null(0.0).to_numpy(), right.fill_null(1.0).to_numpy())
        return pa.array(rest, mask=nulls(left) | nulls(right))

    def _exact(self, node: Typed) -> Values:
        values = [self.value(argument) for argument in node.args]
        if node.op == "%":
            return self._remainder(node, *values)
        return exactly(node, values, node.args)

    def _remainder(self, node: Typed, left: Values, right: Values) -> Values:
        left, right = self.array(left), self.array(right)
        if left.type == right.type == pa.int64():
            divisor = right.fill_null(0).to_numpy()
            divisor = np.where(divisor == -1, 1, divisor)  # the remainder is 0 for both, but INT64_MIN / -1 overflows
            usable = np.where(divisor == 0, 1, divisor)
            rest = np.fmod(left.fill_null(0).to_numpy(), usable)
            return pa.array(rest, mask=nulls(left) | nulls(right) | (divisor == 0))
        found: list[Decimal | None] = []
        for dividend, divisor in zip(left.to_pylist(), right.to_pylist(), strict=True):
            if dividend is None or not divisor:
                found.append(None)
                continue
            l_value, r_value = (unscaled(value, node.scale) for value in (dividend, divisor))
            rest = abs(l_value) % abs(r_value)
            found.append(decimal(-rest if l_value < 0 else rest, node.scale))
        return pa.array(found, pa.decimal256(node.digits, node.scale))

    def as_float(self, node: Typed) -> Values:
        """Return the values of a node of any family of numbers and times as float64."""
        if node.family in ("float", "number"):
            return self._as_float(node)
        values = self.value(node)
        if values.type == pa.int64():  # times that are whole numbers of 10**-scale microseconds
            return pc.divide(pc.cast(values, pa.float64(), safe=False), float(10**node.scale))
        return self._as_float(node)

    def floats(self, node: Typed) -> pa.Array:
        """Return the values of a number or a float as an array of float64."""
        return self.array(self._as_float(node))

    def alike(self, nodes: Sequence[Typed], result: Typed) -> list[Values]:
        """Return the values of several nodes in the form of `result`, which holds all of them."""
        known = [node for node in nodes if not is_null(node)]
        if result.family == "float":
            found = [self._as_float(node) for node in known]
        elif result.family in EXACT:
            values = [self.value(node) for node in known]
            kind = pa.decimal256(result.digits, result.scale)
            found = in_one_scale(values, known) or [wide(*one).cast(kind) for one in zip(values, known, strict=True)]
        else:
            found = [self.value(node) for node in known]
        missing = pa.scalar(None, found[0].type)
        places = iter(found)
        return [missing if is_null(node) else next(places) for node in nodes]

    def _as_float(self, node: Typed) -> Values:
        values = self.value(node)
        if node.family == "float":
            return values
        if isinstance(values, pa.Scalar):
            return _float_scalar(values)
        if values.type == pa.int64():
            return values.cast(pa.float64(), safe=False)
        return pa.array(nearest_floats(values), mask=nulls(values) if values.null_count else None)

    def array(self, values: Values) -> pa.Array:
        """Return values as an array with one for each row."""
        return pa.repeat(values, self.count) if isinstance(values, pa.Scalar) else values


def _of_literal(node: Typed) -> pa.Scalar:
    if node.family in EXACT:
        if node.scale == 0 and INT64_MIN <= int(node.value) <= INT64_MAX:
            return pa.scalar(node.value, pa.int64())
        return pa.scalar(decimal(int(node.value), node.scale), pa.decimal256(node.digits, node.scale))
    return pa.scalar(node.value, pa.float64() if node.family == "float" else None)


def _float_scalar(value: pa.Scalar) -> pa.Scalar:
    plain = value.as_py()
    return pa.scalar(None if plain is None else float(plain), pa.float64())
