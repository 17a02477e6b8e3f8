"""A query whose first stream has partners in each of several others: LEFT SEMI JOIN or LEFT ANTI JOIN, repeated."""

from __future__ import annotations

from streamjoin_ds.script.conditions import Conditions
from streamjoin_ds.script.nearest import written_join
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import Query
from streamjoin_ds.spec.expression import streams_of

__all__ = ["check_pairs"]


def check_pairs(text: SqlText, query: Query, reader: Conditions) -> None:
    """Refuse a condition of an ON that is about a stream which is neither the first nor the joined one.

    Parameters
    ----------
    text : SqlText
    query : Query
        For which `Query.is_of_each` holds.
    reader : Conditions

    Raises
    ------
    SqlSyntaxError
        There is such a condition; the error says where it stands.
    """
    first = query.inputs[0].alias
    for one in query.inputs[1:]:
        _, terms, bounding = reader.read(one.on) if one.on else ([], [], [])
        for term in (*terms, *bounding):
            other = next((of for of in streams_of(term.expression) if of not in (first, one.alias)), None)
            if other is None:
                continue
            words, _ = written_join(text, one)
            why = f"the ON of {words} {one.alias} is about {first} and {one.alias}, and {other} is not there"
            hint = f"after {words} there is {first} alone; or join {other} and {one.alias} in a query of their own"
            raise text.refused(term.span, why, hint, other)
