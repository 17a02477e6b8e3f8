"""Aggregates whose columns' types are known: what each is over, and the type of its column in the result.

::

    function               over                                        gives
    ────────────────────   ─────────────────────────────────────────   ───────────────────────────────────
    count                  anything                                    bigint, never null
    sum                    integers; floats; decimal(p, s)             bigint; double; decimal(p + 10, s)
    avg                    integers, floats; decimal(p, s)             double; decimal(p + 4, s + 4)
    stddev, quantile       integers, floats, decimals                  double
    min, max, by of arg_   all but lists and structs                   the same
    first, last, arg_      anything                                    the same
    collect                anything                                    a list of it, never null

Types are Spark's. A decimal has at most 38 digits. What is calculated (``w.x - e.x``) has the type that it has as a
column of a result (`output_values`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.aggregate import Aggregate
from streamjoin_ds.spec.bound.bound_columns import column_type, column_type_compared
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, columns_of, expression_facts, normalised
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.node import Typed
from streamjoin_ds.spec.output_values import output_type

__all__ = ["BoundAggregate", "BoundArgument", "bound_aggregates"]


_HELD = ("stddev", "quantile", "collect")
_OF_NUMBERS = ("sum", "avg", "stddev", "quantile")
_WHOLE = Literal("decimal(20,0)")  # in which a uint64 is added up: an int64 has no room for it
_MOST_DIGITS = 38  # of a decimal in Spark and Delta


@dataclass(frozen=True, slots=True)
class BoundArgument:
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


@dataclass(frozen=True, slots=True)
class BoundAggregate:
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
            return pa.decimal128(min(kind.precision + 10, _MOST_DIGITS), kind.scale)
        if types.is_decimal(kind) and one.function == "avg":
            return pa.decimal128(min(kind.precision + 4, _MOST_DIGITS), min(kind.scale + 4, _MOST_DIGITS))
        return pa.int64() if one.function == "sum" and types.is_integer(kind) else pa.float64()
    ordered = arguments[-1].kind
    if one.function in ("min", "max", "arg_min", "arg_max") and types.is_nested(ordered):
        msg = f"'{one}' orders lists or structs"
        raise ColumnError(msg, name=one.name, hint="order by numbers, times, texts or booleans")
    return pa.list_(kind) if one.function == "collect" else kind
