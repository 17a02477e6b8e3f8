"""Calculated columns of a result, with their types."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamjoin_ds.spec.bound.bound_columns import column_type_compared
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import columns_of, expression_facts, normalised
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.node import Typed
from streamjoin_ds.spec.output_values import output_type, output_values
from streamjoin_ds.spec.selected import Calculated

__all__ = ["Output", "outputs_of"]


@dataclass(frozen=True, slots=True)
class Output:
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
