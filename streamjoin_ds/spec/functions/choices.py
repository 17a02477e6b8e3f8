"""Functions that give one of their operands: CASE, coalesce, nullif, greatest, least."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from streamjoin_ds.spec.expression.node import Typed, Values, common, is_null, refuse
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows

__all__ = ["CHOICES", "results_of"]

Operand = TypeVar("Operand")

_MOST = 64  # most operands of one function


def results_of(args: Sequence[Operand]) -> list[Operand]:
    """Return the results among the operands of a CASE: what follows each condition, and what stands after ELSE."""
    return [*args[1::2], *(args[-1:] if len(args) % 2 else ())]


def _chosen(expression: Call, args: tuple[Typed, ...]) -> Typed:
    return common(expression, args, args)


def _ordered(expression: Call, args: tuple[Typed, ...]) -> Typed:
    node = common(expression, args, args)
    if node.family == "boolean":
        refuse(expression, "compares boolean values by size", f"{expression.op}() takes numbers, times and text")
    return node


def _case(expression: Call, args: tuple[Typed, ...]) -> Typed:
    for condition in args[: len(args) // 2 * 2 : 2]:
        if condition.family not in ("boolean", "nothing"):
            why = f"has a value of type {condition.family} after WHEN, where a condition belongs"
            refuse(expression, why, "compare it with something")
    return common(expression, args, results_of(args))


def _cases(node: Typed, rows: Rows) -> Values:
    count = len(node.args) // 2
    found = rows.alike(results_of(node.args), node)
    chosen = found[count] if len(found) > count else pa.scalar(None, found[0].type)
    for place in range(count - 1, -1, -1):
        truth = rows.value(node.args[2 * place])
        chosen = pc.if_else(pc.fill_null(truth, False), found[place], chosen)
    return chosen


def _nullif(expression: Call, args: tuple[Typed, ...]) -> Typed:
    """Return the node of ``nullif(a, b)``; it holds the comparison as a third operand."""
    left, right = args
    if is_null(left) or is_null(right):
        return left
    common(expression, args, args)  # or they cannot be compared
    return replace(left, op=expression.op, args=(left, Typed("=", "boolean", args)), column=None, value=False)


def _nullifs(node: Typed, rows: Rows) -> Values:
    value = rows.array(rows.value(node.args[0]))
    return pc.if_else(pc.fill_null(rows.value(node.args[1]), False), pa.scalar(None, value.type), value)


def _coalesced(node: Typed, rows: Rows) -> Values:
    return pc.coalesce(*map(rows.array, rows.alike(node.args, node)))


def _greatest(node: Typed, rows: Rows) -> Values:
    return reduce(
        lambda one, other: _better(one, other, of_greatest=True), map(rows.array, rows.alike(node.args, node))
    )


def _least(node: Typed, rows: Rows) -> Values:
    return reduce(
        lambda one, other: _better(one, other, of_greatest=False), map(rows.array, rows.alike(node.args, node))
    )


def _better(one: pa.Array, other: pa.Array, *, of_greatest: bool) -> pa.Array:
    """Return the greater or lesser of two: the one that is not null; NaN is above all other numbers."""
    is_better = pc.greater(other, one) if of_greatest else pc.less(other, one)
    if pa.types.is_floating(one.type):
        above, below = (other, one) if of_greatest else (one, other)
        is_better = pc.or_(is_better, pc.and_(pc.is_nan(above), pc.invert(pc.is_nan(below))))
    takes_other = pc.or_kleene(pc.is_null(one), pc.fill_null(is_better, False))
    return pc.if_else(takes_other, other, one)


CHOICES = (
    Function(
        "case",
        "CASE WHEN condition THEN x ... [ELSE y] END",
        _case,
        _cases,
        2,
        2 * _MOST + 1,
        "results",
        is_condition=True,
    ),
    Function(
        "coalesce", "coalesce(x, y, ...)", _chosen, _coalesced, 1, _MOST, "all", ("ifnull", "nvl"), is_condition=True
    ),
    Function("nullif", "nullif(x, y)", _nullif, _nullifs, 2, 2, "first", is_condition=True),
    Function("greatest", "greatest(x, y, ...)", _ordered, _greatest, 2, _MOST, "all"),
    Function("least", "least(x, y, ...)", _ordered, _least, 2, _MOST, "all"),
)
