"""The reader of a SELECT list and of GROUP BY: columns, all columns, expressions with a name, and aggregates."""

from __future__ import annotations

from streamjoin_ds.script.sql_text import Cursor, Span, SqlText, Token
from streamjoin_ds.script.statements import Item
from streamjoin_ds.spec.expression.tree import AGGREGATE_NAMES
from streamjoin_ds.spec.nested_path import path_text

__all__ = ["aggregate_item", "grouped_columns", "select_item"]

_NO_COLUMNS = ("ALL", "ROLLUP", "CUBE", "GROUPING SETS", "GROUPING")
_FORMS = ("CASE", "CAST", "TRY_CAST", "INTERVAL", "DATE", "TIMESTAMP", "NOT", "NULL", "TRUE", "FALSE")
_ENDS = ("", ";", ",", "FROM")


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


def select_item(text: SqlText, cursor: Cursor) -> Item:
    """Read one entry.

    Raises
    ------
    SqlSyntaxError
        It is none, or an expression has no name.
    """
    if cursor.word == "*":
        span = cursor.take().span
        if cursor.word in ("EXCEPT", "REPLACE"):
            cursor.refuse(", or FROM; name the columns that are wanted")
        return Item(None, None, None, span)
    aggregate = aggregate_item(cursor)
    if aggregate is not None:
        return aggregate
    if cursor.next is None or cursor.word in (";", ",", "FROM"):
        cursor.refuse("a column: stream.column, stream.* or *, or an expression AS name")
    return _column(cursor) if _is_column(cursor) else _expression(text, cursor)


def _is_column(cursor: Cursor) -> bool:
    """Whether the entry is ``column``, ``stream.column`` or ``stream.*``, with or without a name for it."""
    if cursor.next is None or not cursor.next.is_name:
        return False
    if cursor.after() == ".":
        end = 3
        if cursor.after(2) == "*":
            return True
    elif cursor.word in _FORMS and cursor.after() not in (",", "FROM", "AS"):
        return False
    else:
        end = 1
    while (sign := cursor.peek(end)) is not None and sign.word in (".", "["):
        end += 2 if sign.word == "." else 3
    after = cursor.peek(end)
    return after is None or after.word in (*_ENDS[1:], "AS") or after.is_name


def _column(cursor: Cursor) -> Item:
    first = cursor.take()
    stream, column, span = None, first.value, first.span
    if cursor.took("."):
        if cursor.word == "*":
            return Item(first.value, None, None, span.to(cursor.take().span))
        second = cursor.name("a column's name or *")
        stream, column, span = first.value, second.value, span.to(second.span)
    column, span = _inside(cursor, column, span)
    name = None
    if cursor.took("AS"):
        name = cursor.name("the column's name in the results")
    elif cursor.next is not None and cursor.next.is_name and cursor.word not in ("FROM", "INTO"):
        name = cursor.take()
    if cursor.word not in (",", "FROM"):
        cursor.refuse(", or FROM")
    return Item(stream, column, None if name is None else name.value, span)


def _inside(cursor: Cursor, column: str, span: Span) -> tuple[str, Span]:
    """Return a column, or the path into it that follows."""
    parts: list[str | int] = [column]
    while cursor.word in (".", "["):
        if cursor.took("."):
            part = cursor.name("the name of a field")
            parts.append(part.value)
            span = span.to(part.span)
            continue
        cursor.take()
        place = cursor.take()
        if not place.value.isdecimal() or cursor.word != "]":
            cursor.refuse("the place of an element, such as [0]")
        parts.append(int(place.value))
        span = span.to(cursor.take().span)
    return (column if len(parts) == 1 else path_text(parts)), span


def _expression(text: SqlText, cursor: Cursor) -> Item:
    found: list[Token] = []
    depth = 0
    while cursor.next is not None and (depth or cursor.word not in (";", ",", "FROM", "AS")):
        if cursor.word == ";":
            break
        depth += (cursor.word == "(") - (cursor.word == ")")
        if depth < 0:
            cursor.refuse(", or FROM")
        found.append(cursor.take())
    if depth:
        cursor.refuse(")")
    span = found[0].span.to(found[-1].span) if found else cursor.span
    if not cursor.took("AS"):
        why = "this expression has no name in the results"
        raise text.refused(span, why, f"write {text.slice(span)[:60]} AS name")
    name = cursor.name("the expression's name in the results")
    if cursor.word not in (",", "FROM"):
        cursor.refuse(", or FROM")
    return Item(None, None, name.value, span, tuple(found))
