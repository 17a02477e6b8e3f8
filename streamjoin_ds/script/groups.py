"""Reads aggregates in a SELECT list, and GROUP BY."""

from __future__ import annotations

from streamjoin_ds.script.cursor import Cursor
from streamjoin_ds.script.statements import Item
from streamjoin_ds.spec.expression.tree import AGGREGATE_NAMES

__all__ = ["aggregate_item", "grouped_columns"]

_NO_COLUMNS = ("ALL", "ROLLUP", "CUBE", "GROUPING SETS", "GROUPING")


def aggregate_item(cursor: Cursor) -> Item | None:
    """Return the aggregate that comes next, ``avg(w.x) AS mean_x``; None if none does.

    Raises
    ------
    SqlSyntaxError
        It has no name, or is not ended.
    """
    if cursor.next is None or cursor.next.value.lower() not in AGGREGATE_NAMES or cursor.after() != "(":
        return None
    begin, depth, first = cursor.place, 0, cursor.span
    while cursor.next is not None and cursor.word != ";":
        depth += (cursor.word == "(") - (cursor.word == ")")
        last = cursor.take()
        if last.word == ")" and depth == 0:
            break
    else:
        cursor.refuse(")")
    tokens = tuple(cursor.text.tokens[begin : cursor.place])
    span = first.to(last.span)
    if cursor.word in ("OVER", "FILTER"):
        hint = "an aggregate is over all partners of a tuple; write a condition after ON"
        raise cursor.text.refused(cursor.span, f"{cursor.word} is not possible here", hint, cursor.word)
    if not cursor.took("AS"):
        cursor.refuse("AS and a name: a table's column is not named as the aggregate is written")
    name = cursor.name("the column's name in the results")
    if cursor.word not in (",", "FROM"):
        cursor.refuse(", or FROM")
    return Item(None, None, name.value, span, aggregate=tokens)


def grouped_columns(cursor: Cursor) -> tuple[Item, ...]:
    """Return the columns after GROUP BY, ``stream.column`` or ``column``.

    Raises
    ------
    SqlSyntaxError
        What stands there is no column.
    """
    found = []
    while True:
        if cursor.word in _NO_COLUMNS:
            hint = "write GROUP BY e.seq: each tuple of the first stream is a group"
            raise cursor.text.refused(cursor.span, f"GROUP BY {cursor.word} is not possible", hint, cursor.word)
        first = cursor.name("a column of the first stream, or its seq")
        stream, column, span = None, first.value, first.span
        if cursor.took("."):
            second = cursor.name("a column's name, or seq")
            stream, column, span = first.value, second.value, span.to(second.span)
        found.append(Item(stream, column, None, span))
        if not cursor.took(","):
            return tuple(found)
