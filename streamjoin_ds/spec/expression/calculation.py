"""Expressions as columns: their types, their values, and the rows for which SQL would have failed.

A calculated column has a type that a Delta table holds::

    family               column of the result
    ─────────────────    ────────────────────────────────────────────────────────────────────────────
    whole number         BIGINT; DECIMAL(p, 0) where it may need 67 bits or more, as of a product
    number with places   DECIMAL(p, s), of at most 38 digits
    float                DOUBLE
    timestamp, date      TIMESTAMP in microseconds UTC, DATE
    interval             BIGINT, in microseconds: a Delta table has no durations
    boolean, string      as they are; binary too

A CAST that is the whole expression has the type that it names. A value that its type cannot hold is null.

Where there is no place for a row that has no value, such as a condition, what cannot be calculated is null. A computed
column of a stream has one: a `Calculation` tells such rows, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import MOST_PRECISION, TIMESTAMP, Mask
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.evaluation import Evaluation
from streamjoin_ds.spec.expression.node import Typed, Values, refuse, wide
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Expression
from streamjoin_ds.spec.functions import CALCULATED
from streamjoin_ds.spec.functions.times import fitting, microseconds

__all__ = ["Calculation", "output_type", "output_values"]

_MOST_BITS = 66  # of whole numbers that are BIGINT: sums of several columns of 64 bits
_PLAIN_TYPES = {
    "float": pa.float64(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
    "interval": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
}
_CASTS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "float": pa.float32()}


def output_type(expression: Expression, node: Typed) -> pa.DataType:
    """Return the type that an expression has as a column of a result.

    Raises
    ------
    PredicateError
        A table has no such type.
    """
    if node.op in ("cast", "try_cast") and node.args[1].value in _CASTS:
        return _CASTS[str(node.args[1].value)]
    if node.family in _PLAIN_TYPES:
        return _PLAIN_TYPES[node.family]
    if node.family != "number":
        kind = {"nothing": "a NULL without a type", "time": "a time of day"}.get(node.family, f"a {node.family}")
        refuse(
            expression, f"is {kind}, which cannot be a calculated column", "select the column itself, or leave it out"
        )
    if not node.scale and node.magnitude.bit_length() <= _MOST_BITS and not _is_decimal_cast(node):
        return pa.int64()
    digits = max(len(str(node.magnitude)), node.scale, 1)
    if digits > MOST_PRECISION:
        hint = "write CAST(... AS DECIMAL(38, 6)) or CAST(... AS DOUBLE)"
        refuse(expression, f"may need {digits} digits, and a DECIMAL has {MOST_PRECISION}", hint)
    return pa.decimal128(digits, node.scale)


def _is_decimal_cast(node: Typed) -> bool:
    return node.op in ("cast", "try_cast") and str(node.args[1].value).startswith("decimal")


def output_values(node: Typed, kind: pa.DataType, rows: int, column: Callable[[Column], pa.Array]) -> pa.Array:
    """Return an expression's values as a column of a result.

    Parameters
    ----------
    node : Typed
    kind : pyarrow.DataType
        As `output_type` says.
    rows, column
        As for `evaluation.holds`.
    """
    return _as_column(node, kind, Evaluation(rows, column))


def _as_column(node: Typed, kind: pa.DataType, found: Evaluation) -> pa.Array:
    if node.family in ("timestamp", "interval"):
        return microseconds(node, found).cast(kind)
    if node.family == "date":
        days = pc.divide(microseconds(node, found), DAY_US)
        return days.cast(pa.int32(), safe=False).cast(kind)
    values = found.array(found.value(node))
    if node.family != "number":
        return values if values.type == kind else values.cast(kind, safe=False)
    if values.type == pa.int64() and not node.scale and not pa.types.is_decimal(kind):
        return values.cast(kind)
    exact = wide(values, node)
    if pa.types.is_decimal(kind):
        return exact.cast(kind)
    return fitting(exact).cast(kind)


class Calculation(Evaluation):
    """Calculates expressions for some rows, and tells for which of them SQL would have failed.

    A row fails where an operation whose operands are known has no value (`Function.is_partial`). An operand that does
    not count fails nothing: the branch of a CASE that is not chosen, what follows the first known value of coalesce, or
    what stands beside FALSE in an AND.
    """

    def __init__(self, count: int, column: Callable[[Column], pa.Array]) -> None:
        super().__init__(count, column)
        self._values: dict[int, Values] = {}  # by the node's identity
        self.reasons: list[tuple[Mask, str]] = []

    def value(self, node: Typed) -> Values:
        """See `Evaluation.value`; each node is calculated once."""
        if id(node) not in self._values:
            self._values[id(node)] = super().value(node)
        return self._values[id(node)]

    def column_of(self, node: Typed, kind: pa.DataType) -> tuple[pa.Array, list[tuple[Mask, str]]]:
        """Return an expression's values as a column (`output_values`), and which rows fail for which reason."""
        self.reasons = []
        values = _as_column(node, kind, self)
        counts = np.ones(self.count, np.bool_)
        if _may_fail(node):
            self._judge(node, counts)
        if values.null_count and node.family in ("number", "timestamp", "interval"):
            lost = np.asarray(values.is_null()) & ~self._is_null(node)
            self._note(lost, counts, f"a value that does not fit {kind}")
        return values, self.reasons

    def _note(self, mask: Mask, counts: Mask, reason: str) -> None:
        mask = mask & counts
        if mask.any():
            self.reasons.append((mask, reason))

    def _judge(self, node: Typed, counts: Mask) -> None:
        """Note which rows of those that count fail in a node."""
        if node.op in ("and", "or"):
            for argument in node.args:  # an operand that fails is unknown, so it decides nothing
                counts = counts & ~self._is(argument, node.op == "or")
            for argument in node.args:
                self._judge(argument, counts)
        elif node.op == "case":
            for place in range(0, len(node.args) // 2 * 2, 2):
                self._judge(node.args[place], counts)
                chosen = self._is(node.args[place], True)
                self._judge(node.args[place + 1], counts & chosen)
                counts = counts & ~chosen
            if len(node.args) % 2:
                self._judge(node.args[-1], counts)
        elif node.op == "coalesce":
            for argument in node.args:
                self._judge(argument, counts)
                counts = counts & self._is_null(argument)
        else:
            for argument in node.args:
                if _may_fail(argument):
                    self._judge(argument, counts)
            reason = _reason(node)
            if reason:
                lost = self._is_null(node)
                for argument in node.args if lost.any() else ():
                    lost = lost & ~self._is_null(argument)
                self._note(lost, counts, reason)

    def _is(self, node: Typed, truth: bool) -> Mask:
        values = self.array(self.value(node))
        return np.asarray(pc.fill_null(values if truth else pc.invert(values), False))

    def _is_null(self, node: Typed) -> Mask:
        values = self.value(node)
        if isinstance(values, pa.Scalar):
            return np.full(self.count, not values.is_valid)
        return np.asarray(values.is_null()) if values.null_count else np.zeros(self.count, np.bool_)


def _may_fail(node: Typed) -> bool:
    return bool(_reason(node)) or any(map(_may_fail, node.args))


def _reason(node: Typed) -> str:
    """Return why an operation has no value although its operands are known; empty where that is no failure."""
    if node.op in ("/", "%"):
        return "a division by zero"
    function = CALCULATED.get(node.op)
    if function is None or function.is_partial or function.nulls != "any":
        return ""
    return function.fails(node)
