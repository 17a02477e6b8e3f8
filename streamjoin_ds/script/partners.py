"""What GROUP BY and aggregates ask for: `reduce` of a join, and what of them SQL or a join does not allow.

Each tuple of the first stream is a group. So GROUP BY names its ``seq``, or columns of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.script.conditions import Conditions, Names
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import Item, Query
from streamjoin_ds.spec.bound.terms import rejecting_columns
from streamjoin_ds.spec.expression.parser import parse_aggregate
from streamjoin_ds.spec.expression.tree import Aggregate, normalised

__all__ = ["reduction_of"]


_SEQ = "seq"

ColumnOf = Callable[[Item], tuple[str, str]]


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
