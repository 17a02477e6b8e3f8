"""Which nulls keep a condition from being TRUE."""

from __future__ import annotations

from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal
from streamjoin_ds.spec.functions import FUNCTIONS, results_of

__all__ = ["rejecting_columns"]


def rejecting_columns(expression: Expression) -> frozenset[Column]:
    """Return the columns of a normalised condition that is not TRUE where one of them is null."""
    if not isinstance(expression, Call):
        return _nulling_columns(expression)
    if expression.op == "and":
        return frozenset().union(*map(rejecting_columns, expression.args))
    if expression.op == "or":
        return frozenset.intersection(*map(rejecting_columns, expression.args))
    if expression.op == "not" and isinstance(expression.args[0], Call) and expression.args[0].op == "is_null":
        return _nulling_columns(expression.args[0].args[0])
    return _nulling_columns(expression)


def _nulling_columns(expression: Expression) -> frozenset[Column]:
    """Return the columns any of which, where it is null, makes the whole expression null."""
    if isinstance(expression, Column):
        return frozenset((expression,))
    if isinstance(expression, Literal) or expression.op in ("is_null", "same"):
        return frozenset()
    rule = FUNCTIONS[expression.op].nulls if expression.op in FUNCTIONS else "any"
    if rule == "first":
        return _nulling_columns(expression.args[0])
    if rule != "any":
        chosen = results_of(expression.args) if rule == "results" else expression.args
        known = [_nulling_columns(one) for one in chosen if one != Literal(None)]
        return frozenset.intersection(*known) if known else frozenset()
    found = map(_nulling_columns, expression.args)
    # FALSE AND null is FALSE, TRUE OR null is TRUE: only a null in all operands makes such a condition null.
    return frozenset.intersection(*found) if expression.op in ("and", "or") else frozenset().union(*found)
