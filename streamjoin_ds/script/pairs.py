"""A query whose first stream has partners in each of several others: LEFT SEMI JOIN or LEFT ANTI JOIN, repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamjoin_ds.script.conditions import Conditions, Term
from streamjoin_ds.script.nearest import written_join
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import Query
from streamjoin_ds.script.time_bounds import TimeBound
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, conjuncts, normalised, streams_of

__all__ = ["read_pairs"]


def read_pairs(
    text: SqlText, query: Query, reader: Conditions, times: Mapping[str, str]
) -> tuple[list[TimeBound], list[Term], list[Term]]:
    """Read the conditions of such a query as `Conditions.read` does, each about the first stream and the joined one.

    Of LEFT ANTI JOIN a condition on the first stream alone, or on none, takes the partners in the joined stream. So it
    is said to be about that stream too: ``e.n > 1`` becomes ``e.n > 1 OR w.ts IS NULL``, as no event time is null.

    Parameters
    ----------
    text : SqlText
    query : Query
        For which `Query.is_of_each` holds.
    reader : Conditions
    times : mapping of stream name to column
        The streams' event times.

    Raises
    ------
    SqlSyntaxError
        A condition is about a stream that is not there; the error says where it stands.
    """
    first = query.inputs[0].alias
    bounds: list[TimeBound] = []
    terms: list[Term] = []
    bounding: list[Term] = []
    for one in query.inputs[1:]:
        more, own, also = reader.read(one.on) if one.on else ([], [], [])
        bounds, bounding = bounds + more, bounding + also
        for term in (*own, *also):
            other = next((of for of in streams_of(term.expression) if of not in (first, one.alias)), None)
            if other is not None:
                words, _ = written_join(text, one)
                why = f"the ON of {words} {one.alias} is about {first} and {one.alias}, and {other} is not there"
                hint = f"after {words} there is {first} alone; or join {other} and {one.alias} in a query of their own"
                raise text.refused(term.span, why, hint, other)
        never = Call("is_null", (Column(one.alias, times[one.alias]),))
        for term in own:
            # A condition that is about both may be several, of which one is not: NOT (w.x > 1 OR e.n > 1).
            parts = conjuncts(normalised(term.expression)) if one.how == "anti" else []
            if all(one.alias in streams_of(part) for part in parts):
                terms.append(term)
                continue
            of_pair = (part if one.alias in streams_of(part) else Call("or", (part, never)) for part in parts)
            terms += [replace(term, expression=expression) for expression in of_pair]
    return bounds, terms, bounding
