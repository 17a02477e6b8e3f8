"""Terms: conditions with their columns' types, for all that keys cannot decide exactly.

A term also says which nulls keep its condition from being TRUE (`rejecting_columns`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import NoReturn

import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.bound.bound_columns import check_nested_times, column_type_compared
from streamjoin_ds.spec.expression.evaluation import holds
from streamjoin_ds.spec.expression.node import Typed
from streamjoin_ds.spec.expression.predicate import Band, Column
from streamjoin_ds.spec.expression.tree import (
    COMPARISONS,
    Call,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    expression_facts,
    normalised,
)
from streamjoin_ds.spec.expression.types import typed_condition
from streamjoin_ds.spec.functions import FUNCTIONS, results_of
from streamjoin_ds.spec.join_parts import JoinParts

__all__ = ["Term", "band_condition", "constant_truth", "rejecting_columns", "terms_of"]


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


class Term(Struct, frozen=True):
    """A condition that must be TRUE: on one stream (a filter), or on several (a residual).

    Attributes
    ----------
    streams : tuple of int
        Numbers of the streams whose columns are in it, ascending.
    condition : Typed
        The condition itself.
    facts : str
        The normalised expression and its columns' types, as JSON.
    text : str
        The normalised expression for people.
    rejecting : tuple of Column
        Columns whose null keeps the condition from being TRUE.
    columns : tuple of Column
        All its columns.
    """

    streams: tuple[int, ...]
    condition: Typed
    facts: str
    text: str
    rejecting: tuple[Column, ...]
    columns: tuple[Column, ...]


def band_condition(predicate: Band, *, of_times: bool) -> Expression:
    """Return a band as a condition. Ends that were written as floats are the numbers that their digits say.

    The columns are such that an infinity of one has no equal in the other.
    """
    if predicate.has_no_width:
        return Call("=", (predicate.left, predicate.right))
    ends: list[Expression] = []
    for end in (predicate.lo, predicate.hi):
        if of_times:
            ends.append(Literal(end if isinstance(end, timedelta) else timedelta(0)))
        else:
            ends.append(Literal(Decimal(repr(end)) if isinstance(end, float) else end))
    return Call("between", (Call("-", (predicate.left, predicate.right)), *ends))


def _compared_alone(expression: Expression) -> Iterator[Column]:
    """Give the columns that are a side of a comparison."""
    if isinstance(expression, Call):
        for argument in expression.args:
            if isinstance(argument, Column) and expression.op in (*COMPARISONS, "same"):
                yield argument
            yield from _compared_alone(argument)


def constant_truth(part: Expression) -> bool:
    """Return whether a condition without columns is TRUE."""

    def none(column: Column) -> NoReturn:
        raise AssertionError(column)

    return bool(holds(typed_condition(normalised(part), none), 1, none)[0])


def _condition(part: Expression, kinds: Mapping[Column, pa.DataType], written: Expression) -> Typed:
    """Return a part of a condition with types. An error about its one form shows what was written, too."""
    try:
        return typed_condition(part, kinds.__getitem__)
    except PredicateError as error:
        text = str(written)
        if str(part) in text:
            raise
        msg = f"{error.message}, in '{text if len(text) <= 200 else text[:200] + '...'}'"
        raise PredicateError(msg, name=error.name, hint=error.hint) from None


def terms_of(join: JoinParts, schemas: Mapping[str, pa.Schema], asked: Sequence[Expression]) -> list[Term]:
    """Return the terms of conditions, normalised and with types; each once, in an order that does not depend on theirs.

    Raises
    ------
    PredicateError
        A part of a condition names no column, or its types do not go together.
    """
    terms = {}
    for expression in asked:
        for part in conjuncts(normalised(expression)):
            columns = columns_of(part)
            for column in _compared_alone(part):
                check_nested_times(join, schemas, column)
            if not columns:
                if constant_truth(part):
                    continue
                msg = f"'{expression}' holds for no tuple"
                raise PredicateError(msg, name=str(expression)[:200], hint="name a column, for example 'e.altitude'")
            kinds = {column: column_type_compared(join, schemas, column) for column in columns}
            facts = json.dumps([expression_facts(part), [str(kind) for kind in kinds.values()]])
            streams = tuple(sorted({join.member_names.index(column.stream) for column in columns}))
            rejecting = tuple(sorted(rejecting_columns(part)))
            condition = _condition(part, kinds, expression)
            terms[facts] = Term(streams, condition, facts, str(part), rejecting, columns)
    return [terms[facts] for facts in sorted(terms)]
