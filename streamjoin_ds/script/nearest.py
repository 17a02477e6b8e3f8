"""The nearest partners that a query asks for: ASOF JOIN and NEAREST BY, as `Nearest` has them.

::

    e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts)     a condition of ON, and nearest 1 by abs(e.ts - w.ts)
    e JOIN w EXACT NEAREST 3 BY DISTANCE value       nearest 3 by value
    e JOIN w EXACT NEAREST 3 BY SIMILARITY value     nearest 3 by -(value)
"""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.script.conditions import Conditions, Term
from streamjoin_ds.script.sql_text import Span, SqlText
from streamjoin_ds.script.statements import Input, Query, Ranking
from streamjoin_ds.spec import Call, Expression, Nearest
from streamjoin_ds.spec.expression.tree import streams_of

__all__ = ["nearest_of", "ranked_input", "written_join"]


def ranked_input(query: Query) -> Input | None:
    """Return the stream of which the nearest are asked for; None if all partners of all streams are."""
    return next((one for one in query.inputs if one.ranking is not None), None)


def written_join(text: SqlText, joined: Input) -> tuple[str, Span]:
    """Return the words by which a stream is joined, such as LEFT JOIN or NEAREST BY, and where they stand."""
    if joined.ranking is not None and not joined.ranking.is_match:
        return "NEAREST BY", joined.ranking.span
    return " ".join(text.slice(joined.how_span).upper().split()), joined.how_span


def nearest_of(text: SqlText, query: Query, reader: Conditions, streams: Sequence[str]) -> Nearest | None:
    """Return which partners make rows; None if all do.

    Parameters
    ----------
    text : SqlText
    query : Query
    reader : Conditions
        Reads the query's conditions.
    streams : sequence of str
        The query's streams.

    Raises
    ------
    SqlSyntaxError, ArgumentError
        It has no meaning; the error says where it stands.
    """
    joined = ranked_input(query)
    if joined is None or joined.ranking is None:
        return None
    ranking = joined.ranking
    if ranking.is_match:
        return Nearest(1, _between(text, ranking, reader, streams))
    value = reader.value(ranking.tokens)
    try:
        return Nearest(ranking.k, Call("neg", (value,)) if ranking.is_similarity else value)
    except StreamJoinError as error:
        raise text.located(error, ranking.span) from None


def _between(text: SqlText, ranking: Ranking, reader: Conditions, streams: Sequence[str]) -> Expression:
    """Return how far the two sides of a MATCH_CONDITION are apart."""
    _, terms, bounding = reader.read(ranking.tokens)
    found = [*terms, *bounding]
    hint = f"write MATCH_CONDITION ({streams[0]}.ts >= {streams[1]}.ts); further conditions stand after ON"
    if len(found) != 1 or not _is_match(found[0], streams):
        why = "MATCH_CONDITION is one comparison by >=, >, <= or < of a value of each stream"
        raise text.refused(ranking.span, why, hint, "MATCH_CONDITION")
    expression = found[0].expression
    assert isinstance(expression, Call), "it is a comparison"
    return Call("abs", (Call("-", expression.args),))


def _is_match(term: Term, streams: Sequence[str]) -> bool:
    expression = term.expression
    if not isinstance(expression, Call) or expression.op not in (">=", ">", "<=", "<"):
        return False
    return sorted(map(streams_of, expression.args)) == sorted((stream,) for stream in streams)
