"""Calculations of a bound join: columns of a result, aggregates over partners, the distance of the nearest ones.

A calculated column has the type that its expression has as a column (`expression.calculation`).

Aggregates have Spark's types. A decimal has at most 38 digits. What is calculated (``w.x - e.x``) has the type that it
has as a column of a result::

    function               over                                        gives
    ────────────────────   ─────────────────────────────────────────   ───────────────────────────────────
    count                  anything                                    bigint, never null
    sum                    integers; floats; decimal(p, s)             bigint; double; decimal(p + 10, s)
    avg                    integers, floats; decimal(p, s)             double; decimal(p + 4, s + 4)
    stddev, quantile       integers, floats, decimals                  double
    min, max, by of arg_   all but lists and structs                   the same
    first, last, arg_      anything                                    the same
    collect                anything                                    a list of it, never null

A distance is an expression whose values put pairs in order. Exact values are compared exactly, up to 32 digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError
from streamjoin_ds.spec.bound.bound_columns import column_type, column_type_compared
from streamjoin_ds.spec.columns import INT64_MAX, MOST_PRECISION, Float64, Int64, names_hint
from streamjoin_ds.spec.expression.calculation import output_type, output_values
from streamjoin_ds.spec.expression.evaluation import Evaluation, float_values
from streamjoin_ds.spec.expression.node import EXACT_FLOAT, Typed
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import (
    Aggregate,
    Call,
    Expression,
    Literal,
    columns_of,
    expression_facts,
    normalised,
)
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.spec.join_parts import Calculated, JoinParts

__all__ = [
    "BoundAggregate",
    "BoundArgument",
    "Distance",
    "Output",
    "bound_aggregates",
    "distance_of",
    "outputs_of",
]

_HELD = ("stddev", "quantile", "collect")
_OF_NUMBERS = ("sum", "avg", "stddev", "quantile")
_WHOLE = Literal("decimal(20,0)")  # in which a uint64 is added up: an int64 has no room for it
_ORDERED = ("number", "float", "interval", "timestamp", "date", "time", "nothing")
_PAST_INT64 = float(1 << 63)
_WHOLE_NUMBERS = pa.decimal256(76, 0)


class Output(Struct, frozen=True):
    """A calculated column of a result.

    Attributes
    ----------
    name : str
    node : Typed
        Its expression.
    kind : pyarrow.DataType
        Its type in the result.
    columns : tuple of Column
        The columns that it is made of.
    facts : str
        Its name, its normalised expression and the columns' types, as JSON.
    text : str
        The expression for people.
    """

    name: str
    node: Typed
    kind: pa.DataType
    columns: tuple[Column, ...]
    facts: str
    text: str

    def values(self, rows: int, column: Callable[[Column], pa.Array]) -> pa.Array:
        """Return its value for each row; `column` returns a column in the type in which it is compared."""
        return output_values(self.node, self.kind, rows, column)


def outputs_of(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> tuple[Output, ...]:
    """Return the calculated columns of a join, in the order in which they were selected; each once.

    Raises
    ------
    PredicateError
        Types do not go together, or a table has no such type.
    """
    found: dict[str, Output] = {}
    for one in join.select:
        if not isinstance(one, Calculated):
            continue
        expression = normalised(one.expression)
        kinds = {column: column_type_compared(join, schemas, column) for column in columns_of(expression)}
        node = typed_value(expression, kinds.__getitem__)
        kind = output_type(one.expression, node)
        facts = json.dumps([one.name, expression_facts(expression), [str(kind) for kind in kinds.values()]])
        found[facts] = Output(one.name, node, kind, tuple(kinds), facts, str(one.expression))
    return tuple(found.values())


class BoundArgument(Struct, frozen=True):
    """An expression that an aggregate is over, with its type.

    Attributes
    ----------
    text : str
        The normalised expression and its columns' types, as JSON: equal for arguments that are the same.
    stream : int or None
        The stream of a plain column; None for what is calculated.
    column : Column or None
        The plain column.
    typed : Typed or None
        What is calculated.
    kind : pyarrow.DataType
        The type of its values.
    columns : tuple of Column
        All its columns.
    """

    text: str
    stream: int | None
    column: Column | None
    typed: Typed | None
    kind: pa.DataType
    columns: tuple[Column, ...]


class BoundAggregate(Struct, frozen=True):
    """One column of a reduction, with its type.

    Attributes
    ----------
    name, function
        As in `Aggregate`.
    arguments : tuple of BoundArgument
    constant : float or None
        The share of a quantile, or the limit of collect.
    field : pyarrow.Field
        The column of the result.
    text : str
        As it was written.
    """

    name: str
    function: str
    arguments: tuple[BoundArgument, ...]
    constant: float | None
    field: pa.Field
    text: str

    @property
    def holds_values(self) -> bool:
        """Whether values of many partners are held until all are known."""
        return self.function in _HELD

    @property
    def facts(self) -> list[object]:
        """What of it can change a result, as plain JSON values."""
        return [self.name, self.function, [argument.text for argument in self.arguments], repr(self.constant)]


def bound_aggregates(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> tuple[BoundAggregate, ...]:
    """Return the aggregates of a join with their types.

    Raises
    ------
    ColumnError
        A column is not there, or an aggregate cannot be over its type.
    PredicateError
        An expression's types do not go together.
    """
    found = []
    for one in join.reduce:
        arguments = tuple(_argument(join, schemas, expression) for expression in one.args)
        if one.function in _OF_NUMBERS and pa.types.is_uint64(arguments[0].kind):
            arguments = (_argument(join, schemas, Call("cast", (one.args[0], _WHOLE))), *arguments[1:])
        kind = _result_kind(one, arguments)
        field = pa.field(one.name, kind, nullable=one.function not in ("count", "collect"))
        constant = None if one.constant is None else float(one.constant)
        found.append(BoundAggregate(one.name, one.function, arguments, constant, field, str(one)))
    return tuple(found)


def _argument(join: JoinParts, schemas: Mapping[str, pa.Schema], expression: Expression) -> BoundArgument:
    if isinstance(expression, Column):
        kind = column_type(join, schemas, expression)
        text = json.dumps([expression_facts(expression), str(kind)])
        return BoundArgument(text, join.member_names.index(expression.stream), expression, None, kind, (expression,))
    part = normalised(expression)
    columns = columns_of(part)
    kinds = {column: column_type_compared(join, schemas, column) for column in columns}
    typed = typed_value(part, kinds.__getitem__)
    text = json.dumps([expression_facts(part), [str(kind) for kind in kinds.values()]])
    return BoundArgument(text, None, None, typed, output_type(part, typed), columns)


def _result_kind(one: Aggregate, arguments: tuple[BoundArgument, ...]) -> pa.DataType:
    types = pa.types
    if one.function == "count":
        return pa.int64()
    kind = arguments[0].kind
    if one.function in _OF_NUMBERS:
        is_number = types.is_signed_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        if not is_number:
            msg = f"'{one}' is over values of type {kind}, which are no numbers"
            raise ColumnError(msg, name=one.name, hint=f"{one.function} takes integers, floats and decimals")
        if types.is_decimal(kind) and one.function == "sum":
            return pa.decimal128(min(kind.precision + 10, MOST_PRECISION), kind.scale)
        if types.is_decimal(kind) and one.function == "avg":
            return pa.decimal128(min(kind.precision + 4, MOST_PRECISION), min(kind.scale + 4, MOST_PRECISION))
        return pa.int64() if one.function == "sum" and types.is_integer(kind) else pa.float64()
    ordered = arguments[-1].kind
    if one.function in ("min", "max", "arg_min", "arg_max") and types.is_nested(ordered):
        msg = f"'{one}' orders lists or structs"
        raise ColumnError(msg, name=one.name, hint="order by numbers, times, texts or booleans")
    return pa.list_(kind) if one.function == "collect" else kind


class Distance(Struct, frozen=True):
    """What puts a tuple's partners in order.

    Attributes
    ----------
    value : Typed
        The expression: a number, a time or a duration.
    facts : str
        The normalised expression and its columns' types, as JSON.
    text : str
        The normalised expression for people.
    columns : tuple of Column
        All its columns.
    """

    value: Typed
    facts: str
    text: str
    columns: tuple[Column, ...]

    def values(self, rows: int, column: Callable[[Column], pa.Array]) -> tuple[Float64, Int64 | None]:
        """Return the distances of some pairs, in two parts: the first decides, then the second.

        Parameters
        ----------
        rows : int
            The number of pairs.
        column : callable
            As for `evaluation.holds`.

        Returns
        -------
        ndarray, shape (rows,), float64
            The distance rounded to float64, an exact one as the whole number of its last digits. NaN where it is
            null or NaN.
        ndarray, shape (rows,), int64, or None
            A number in the order of what is lacking there of an exact distance, itself rounded to float64: together
            that is 32 digits. None: nothing is lacking, for all pairs.
        """
        if self.value.family in ("float", "nothing"):
            return float_values(self.value, rows, column), None
        calculated = Evaluation(rows, column)
        found = calculated.array(calculated.value(self.value))
        if found.type != pa.int64():
            whole = pa.Array.from_buffers(_WHOLE_NUMBERS, rows, found.buffers(), found.null_count, found.offset)
            try:
                found = whole.cast(pa.int64())
            except pa.ArrowInvalid:
                return _of_large(whole)
        nulls = np.asarray(found.is_null().to_numpy(zero_copy_only=False)) if found.null_count else None
        exact = (found if nulls is None else found.fill_null(0)).to_numpy()
        near = exact.astype(np.float64)
        is_rounded = rows and max(near.max(), -near.min()) >= EXACT_FLOAT
        rest = _in_order(_rest(exact, near)) if is_rounded else None
        if nulls is not None:
            near[nulls] = np.nan
        return near, rest


def distance_of(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> Distance | None:
    """Return the distance of a nearest join with its columns' types; None of another join.

    Raises
    ------
    ArgumentError, ColumnError
        It names a stream or a column that is not there.
    PredicateError
        Its types do not go together, or its values have no distance: texts, truth values, lists.
    """
    if join.nearest is None:
        return None
    first, second = (Column(member.name, member.time) for member in join.members)
    written = join.nearest.distance(first, second)
    for column in columns_of(written):
        if column.stream not in join.member_names:
            names = join.member_names
            msg = f"the distance '{written}' names the stream '{column.stream}', which is not in the join"
            raise ArgumentError(msg, name="nearest_by", hint=names_hint(column.stream, names, "the streams are"))
    expression = normalised(written)
    columns = columns_of(expression)
    kinds = {column: column_type_compared(join, schemas, column) for column in columns}
    value = typed_value(expression, kinds.__getitem__)
    if value.family not in _ORDERED:
        msg = f"the distance '{written}' is of type {value.family}"
        raise PredicateError(msg, name="nearest_by", hint="give a number, a time or a duration: abs(e.x - w.x)")
    facts = json.dumps([expression_facts(expression), [str(kind) for kind in kinds.values()]])
    return Distance(value, facts, str(expression), columns)


def _rest(exact: Int64, near: Float64) -> Float64:
    """Return ``exact - near``, for float64 values next to int64 ones."""
    is_past = near >= _PAST_INT64  # near is 2^63 then, which int64 does not have
    held = np.where(is_past, 0.0, near).astype(np.int64)
    return np.where(is_past, exact - INT64_MAX - 1, exact - held).astype(np.float64)


def _of_large(whole: pa.Array) -> tuple[Float64, Int64]:
    """Return the two parts of whole numbers, some of which do not fit int64."""
    near, rest = np.full(len(whole), np.nan), np.zeros(len(whole))
    for place, found in enumerate(whole.to_pylist()):
        if found is not None:
            exact = int(found)
            near[place] = float(exact)
            rest[place] = float(exact - int(near[place]))
    return near, _in_order(rest)


def _in_order(rest: Float64) -> Int64:
    """Return whole numbers that are in the order of some float64 values: their bits, without the two zeros' sign."""
    bits = (rest + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ INT64_MAX, bits)
