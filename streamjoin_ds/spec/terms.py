"""Terms: conditions with their columns' types, for what no key finds exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.bound_columns import column_type_compared
from streamjoin_ds.spec.expression import (
    Call,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    expression_facts,
    normalised,
    rejecting_columns,
)
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.predicate import Band, Column
from streamjoin_ds.spec.typed import Typed, typed_condition

__all__ = ["Term", "band_condition", "terms_of"]


@dataclass(frozen=True, slots=True)
class Term:
    """A condition that must be TRUE, on one stream (a filter) or on several (it decides on what was found).

    Attributes
    ----------
    streams : tuple of int
        Numbers of the streams it is about, ascending.
    condition : Typed
    facts : str
        The normalised expression and its columns' types, as JSON.
    text : str
        The same for people.
    rejecting : tuple of Column
        Columns whose null keeps it from being TRUE.
    columns : tuple of Column
    """

    streams: tuple[int, ...]
    condition: Typed
    facts: str
    text: str
    rejecting: tuple[Column, ...]
    columns: tuple[Column, ...]


def band_condition(predicate: Band) -> Expression:
    """What a band asks for, as a condition; of equalities, and of bands with durations as their ends."""
    if predicate.is_equality:
        return Call("=", (predicate.left, predicate.right))
    ends = [Literal(end if isinstance(end, timedelta) else timedelta(0)) for end in (predicate.lo, predicate.hi)]
    return Call("between", (Call("-", (predicate.left, predicate.right)), *ends))


def terms_of(join: JoinParts, schemas: Mapping[str, pa.Schema], asked: Sequence[Expression]) -> list[Term]:
    """What is asked for, in its normal form and with types; each term once, whatever the order it was written in."""
    terms = {}
    for expression in asked:
        for part in conjuncts(normalised(expression)):
            columns = columns_of(part)
            if not columns:
                msg = f"a part of '{expression}' is about no stream"
                raise PredicateError(msg, name=str(expression)[:200], hint="name a column, for example 'e.altitude'")
            kinds = {column: column_type_compared(join, schemas, column) for column in columns}
            facts = json.dumps([expression_facts(part), [str(kind) for kind in kinds.values()]])
            streams = tuple(sorted({join.names.index(column.stream) for column in columns}))
            rejecting = tuple(sorted(rejecting_columns(part)))
            condition = typed_condition(part, kinds.__getitem__)
            terms[facts] = Term(streams, condition, facts, str(part), rejecting, columns)
    return [terms[facts] for facts in sorted(terms)]
