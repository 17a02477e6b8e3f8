"""Functions of values in a list, and in a text of JSON: element_at, size, json_value."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.columns import compared_type
from streamjoin_ds.spec.expression.node import NESTED, Typed, Values, column_node, refuse
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, by_row, checked, constant
from streamjoin_ds.spec.nested_values import is_list

__all__ = ["PARTS", "json_part", "json_path"]

_STEP = re.compile(r"""\.([A-Za-z_][\w-]*)|\.?\["([^"]+)"\]|\[([0-9]{1,9})\]|\."([^"]+)\"""")


def _list(expression: Call, node: Typed) -> pa.DataType:
    """Return the type of the lists of a column."""
    if node.nested is None or not is_list(node.nested):
        refuse(expression, f"has a {node.family} where a list belongs", f"{expression.op}() takes a column of lists")
    return node.nested


def _element(expression: Call, args: tuple[Typed, ...]) -> Typed:
    kind = _list(expression, args[0])
    checked(expression, args[1:], "number")
    if args[1].scale:
        refuse(expression, "has a place that is no whole number", "write CAST(... AS INT)")
    assert args[0].column is not None
    try:
        node = column_node(args[0].column, compared_type(kind.value_type, args[0].column.name))
    except ColumnError:
        node = Typed("column", NESTED)
    if node.family == NESTED:
        refuse(expression, f"has elements of type {kind.value_type}", "name a value inside them: e.values[0].v")
    return replace(node, op=expression.op, args=args, column=None)


def _elements(node: Typed, rows: Rows) -> Values:
    """Return the elements at places that count from 1, or from the end; null where there is none."""
    given = rows.written(node.args[0])
    lists = given.cast(pa.list_(given.type.value_type))
    wanted = rows.array(rows.value(node.args[1]))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[:-1]
    usable = wanted.cast(pa.float64(), safe=False) if wanted.type != pa.int64() else wanted
    asked = pc.fill_null(usable, 0).to_numpy(zero_copy_only=False)
    asked = np.clip(asked, -(1 << 40), 1 << 40).astype(np.int64)
    places = np.where(asked > 0, asked - 1, lengths + asked)
    there = (asked != 0) & (places >= 0) & (places < lengths)
    found = lists.flatten().take(pa.array(np.where(there, begins + places, 0), mask=~there))
    return rows.in_family(node, found.cast(compared_type(found.type, "")))


def _size(expression: Call, args: tuple[Typed, ...]) -> Typed:
    _list(expression, args[0])
    return Typed(expression.op, "number", args, 1 << 31)


def _sizes(node: Typed, rows: Rows) -> Values:
    return pc.list_value_length(rows.written(node.args[0])).cast(pa.int64())


def _json(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], "string")
    if json_path(str(constant(expression, args[1], "string", "a path"))) is None:
        refuse(
            expression, "has a path that cannot be read", 'write $.name, $.list[0] or $["a name"], one after the other'
        )
    return Typed(expression.op, "string", args)


def json_path(text: str) -> list[str | int] | None:
    """Return the names and the places of a path, ``$.values[0].v``; None where it is none."""
    found: list[str | int] = []
    place = 1
    while text[:1] == "$" and place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            return None
        found.append(int(step[3]) if step[3] else step[1] or step[2] or step[4])
        place = step.end()
    return found if text[:1] == "$" else None


def _json_values(node: Typed, rows: Rows) -> Values:
    path = json_path(str(node.args[1].value)) or []
    return by_row(lambda text: json_part(text, path), pa.string(), [rows.array(rows.value(node.args[0]))])


def json_part(text: str, path: list[str | int]) -> str | None:
    """Return a text, number or truth value inside a text of JSON as a text; None for anything else."""
    try:
        value: Any = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


PARTS = (
    Function("element_at", "element_at(list, place)", _element, _elements, 2, 2, is_condition=True, is_partial=True),
    Function("size", "size(list)", _size, _sizes, aliases=("cardinality",)),
    Function("json_value", "json_value(x, '$.name[0]')", _json, _json_values, 2, 2, is_partial=True),
)
