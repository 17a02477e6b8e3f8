"""What a query says of a tuple's partners: the nearest ones, one in each of several streams, or aggregates over all.

::

    e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts)     a condition of ON, and nearest 1 by abs(e.ts - w.ts)
    e JOIN w EXACT NEAREST 3 BY DISTANCE value       nearest 3 by value
    e JOIN w EXACT NEAREST 3 BY SIMILARITY value     nearest 3 by -(value)
    e LEFT SEMI JOIN w ... LEFT SEMI JOIN v ...      a partner in each of several streams; so LEFT ANTI JOIN
    SELECT aggregate(...) ... GROUP BY e.seq         `reduce` of a join

Each tuple of the first stream is a group. So GROUP BY names its ``seq``, or columns of it. What SQL or a join does not
allow of groups and aggregates is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from msgspec.structs import replace

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.script.conditions import Conditions, Names, Term
from streamjoin_ds.script.sql_text import Span, SqlText
from streamjoin_ds.script.statements import Input, Item, Query, Ranking
from streamjoin_ds.script.time_bounds import TimeBound
from streamjoin_ds.spec import Call, Expression, Nearest
from streamjoin_ds.spec.bound.terms import rejecting_columns
from streamjoin_ds.spec.expression.parser import parse_aggregate
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Aggregate, conjuncts, normalised, streams_of

__all__ = ["nearest_of", "ranked_input", "read_pairs", "reduction_of", "written_join"]

_SEQ = "seq"
ColumnOf = Callable[[Item], tuple[str, str]]


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


def reduction_of(
    text: SqlText, query: Query, names: Names, how: str, column_of: ColumnOf, time: str
) -> tuple[Aggregate, ...]:
    """Return the aggregates that a query asks for; none if it has no GROUP BY.

    Parameters
    ----------
    text : SqlText
    query : Query
    names : Names
    how : str
        How the first two streams are joined.
    column_of : callable
        Returns the stream and the column that an entry names.
    time : str
        The event time column of the first stream.

    Raises
    ------
    SqlSyntaxError
        It asks for what a join cannot do, or means something else over tables; the error says where it stands.
    """
    first = names.streams[0]
    if not query.aggregates and not query.group:
        return ()
    if not query.group:
        why, hint = "an aggregate needs GROUP BY", f"write GROUP BY {first}.{_SEQ} at the end: a row for each tuple"
        raise text.refused(query.aggregates[0].span, why, hint)
    if not query.aggregates:
        _check_aggregates(text, query, names)
        hint = "write LEFT SEMI JOIN for the tuples that have a partner, or select an aggregate: count(*) AS n"
        raise text.refused(query.group_span, "GROUP BY without an aggregate is not possible", hint, "GROUP BY")
    _check_columns(text, query, names, column_of, time)
    reader, found = Conditions(text, names, {}), []
    for item in query.aggregates:
        written = reader.written(item.aggregate)
        try:
            one = parse_aggregate(item.name or "", written)
        except StreamJoinError as error:
            raise text.located(error, item.span) from None
        if how == "left" and not _is_nothing_alone(one, names.streams[1]):
            _refuse_alone(text, item, one, names.streams[1])
        found.append(one)
    return tuple(found)


def _check_aggregates(text: SqlText, query: Query, names: Names) -> None:
    """Refuse a function in the SELECT list that is no aggregate, as one that is not known."""
    for item in query.items:
        if len(item.tokens) > 2 and item.tokens[0].is_name and item.tokens[1].value == "(":
            try:
                parse_aggregate(item.name or "", Conditions(text, names, {}).written(item.tokens))
            except StreamJoinError as error:
                raise text.located(error, item.span) from None


def _check_columns(text: SqlText, query: Query, names: Names, column_of: ColumnOf, time: str) -> None:
    first, grouped, has_seq = names.streams[0], set(), False
    for item in query.group:
        if _is_seq(item, names):
            has_seq = True
            continue
        stream, column = column_of(item)
        if stream != first:
            why = f"GROUP BY names a column of {stream}, and a row is about a tuple of {first}"
            raise text.refused(item.span, why, f"write GROUP BY {first}.{_SEQ}, or columns of {first}", column)
        grouped.add(column)
    for item in query.items:
        if item.tokens and not has_seq:
            why = "a calculated column is selected, but rows are not grouped by the tuple's number"
            raise text.refused(item.span, why, f"write GROUP BY {first}.{_SEQ}: a row for each tuple of {first}")
        if not (item.aggregate or item.tokens) and item.column is None and item.stream is None:
            why = f"a row is about a tuple of {first}, and has no columns of {names.streams[1]}"
            raise text.refused(item.span, why, f"select the columns of {first}: {first}.*")
        if item.aggregate or has_seq:
            continue
        if item.column is None:
            why = "all columns are selected, but rows are not grouped by all of them"
            raise text.refused(item.span, why, f"write GROUP BY {first}.{_SEQ}: a row for each tuple of {first}")
        stream, column = column_of(item)
        if stream == first and column not in grouped:
            why = f"{first}.{column} is selected, but rows are not grouped by it"
            raise text.refused(item.span, why, f"write GROUP BY {first}.{_SEQ}, or name the column there", column)
    if not has_seq and time not in grouped:
        why = f"a group of several tuples of {first} is not possible: it would be complete when the stream ends"
        hint = f"write GROUP BY {first}.{_SEQ}: a row for each tuple of {first}"
        hint = f"name {first}.{time} there too" if _has(names, first, _SEQ) else hint
        raise text.refused(query.group_span, why, hint)


def _is_seq(item: Item, names: Names) -> bool:
    """Whether an entry names the number of the first stream's tuples: no column of that name is there."""
    first, column = names.streams[0], (item.column or "").lower()
    if item.stream is None:
        return column in (_SEQ, f"{first}_{_SEQ}".lower()) and not names.with_column(item.column or "")
    return column == _SEQ and names.stream(item.stream) == first and not _has(names, first, column)


def _has(names: Names, stream: str, column: str) -> bool:
    return any(found == stream for found, _ in names.with_column(column))


def _is_nothing_alone(one: Aggregate, second: str) -> bool:
    """Whether an aggregate over a tuple's row without a partner, as SQL has it, is one over no partner."""
    return any(
        any(column.stream == second for column in rejecting_columns(normalised(argument))) for argument in one.args
    )


def _refuse_alone(text: SqlText, item: Item, one: Aggregate, second: str) -> NoReturn:
    why = f"with LEFT JOIN, {one} is also over the row of a tuple that has no partner"
    hint = f"name a column of {second}, which is null there: count({second}.ts) counts partners"
    raise text.refused(item.span, why, hint, item.name or "")
