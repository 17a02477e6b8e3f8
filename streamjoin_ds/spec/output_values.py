"""Values of expressions as columns of a result: the types that a Delta table holds, and arrays of them.

::

    family               column of the result
    ─────────────────    ────────────────────────────────────────────────────────────────────────────
    whole number         BIGINT; DECIMAL(p, 0) where it may need 67 bits or more, as of a product
    number with places   DECIMAL(p, s), of at most 38 digits
    float                DOUBLE
    timestamp, date      TIMESTAMP in microseconds UTC, DATE
    interval             BIGINT, in microseconds: a Delta table has no durations
    boolean, string      as they are; binary too

A CAST that is the whole expression has the type that it names. A value that its type cannot hold is null.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.evaluation import Rows
from streamjoin_ds.spec.expression.node import INT64_MAX, INT64_MIN, decimal, wide
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Expression
from streamjoin_ds.spec.functions.times import microseconds
from streamjoin_ds.spec.node import Typed, refuse

__all__ = ["output_type", "output_values"]

_MOST_BITS = 66  # of whole numbers that are BIGINT: sums of several columns of 64 bits
_MOST_PRECISION = 38  # of a DECIMAL
_PLAIN = {
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
    if node.op == "cast" and node.args[1].value in _CASTS:
        return _CASTS[str(node.args[1].value)]
    if node.family in _PLAIN:
        return _PLAIN[node.family]
    if node.family != "number":
        kind = {"nothing": "a NULL without a type", "time": "a time of day"}.get(node.family, f"a {node.family}")
        refuse(
            expression, f"is {kind}, which cannot be a calculated column", "select the column itself, or leave it out"
        )
    if not node.scale and node.magnitude.bit_length() <= _MOST_BITS and not _is_decimal_cast(node):
        return pa.int64()
    digits = max(len(str(node.magnitude)), node.scale, 1)
    if digits > _MOST_PRECISION:
        hint = "write CAST(... AS DECIMAL(38, 6)) or CAST(... AS DOUBLE)"
        refuse(expression, f"may need {digits} digits, and a DECIMAL has {_MOST_PRECISION}", hint)
    return pa.decimal128(digits, node.scale)


def _is_decimal_cast(node: Typed) -> bool:
    return node.op == "cast" and str(node.args[1].value).startswith("decimal")


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
    found = Rows(rows, column)
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
    fits = pc.and_(*(compare(exact, pa.scalar(decimal(end, 0))) for compare, end in _ENDS))
    return pc.if_else(fits, exact, pa.scalar(None, exact.type)).cast(kind)


_ENDS = ((pc.greater_equal, INT64_MIN), (pc.less_equal, INT64_MAX))
