"""The statements of a text, as they were written: nothing is looked up, and no type is known yet."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from msgspec import Struct, field

from streamjoin_ds.script.sql_text import Span, Token

__all__ = ["Explained", "Input", "Item", "Option", "Query", "Ranking", "Statement", "StreamStatement", "Value"]

Value = str | int | float | bool


class Option(Struct, frozen=True):
    """``name = value``, after SET or in WITH; `span` is where the name stands."""

    name: str
    value: Value
    span: Span


class StreamStatement(Struct, frozen=True):
    """``CREATE STREAM name (columns) WITH (options)``, or ``CREATE TABLE``: a table beside streams; or ``CREATE VIEW``.

    Attributes
    ----------
    name : str
    columns : pyarrow.Schema or None
        None where they are left to the source.
    options : mapping
        Those of a view are its stream's.
    span : Span
        Where the name stands.
    is_table : bool
    computed : mapping of str to str
        The computed columns, as an expression is read.
    where : tuple of str
        The conditions of views.
    shown : tuple of str, or None
        The columns of a view; None: all of its stream.
    """

    name: str
    columns: pa.Schema | None
    options: Mapping[str, Option]
    span: Span
    is_table: bool = False
    computed: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = None


class Item(Struct, frozen=True):
    """One entry of a SELECT list: ``*``, ``e.*``, or a column or an expression and the name it gets.

    Parameters
    ----------
    stream : str or None
        None: ``*``, or a column without its stream.
    column : str or None
        None: all columns, or an expression.
    name : str or None
        What stands after AS.
    span : Span
        Where the entry stands.
    tokens : tuple of Token
        Those of an expression.
    aggregate : tuple of Token
        The tokens of an aggregate, ``avg(w.x)``; `stream` and `column` are None then. Empty: it is none.
    """

    stream: str | None
    column: str | None
    name: str | None
    span: Span
    tokens: tuple[Token, ...] = ()
    aggregate: tuple[Token, ...] = ()


class Ranking(Struct, frozen=True):
    """Which partners are the nearest: ``EXACT NEAREST k BY DISTANCE value``, or ``MATCH_CONDITION (left >= right)``.

    Parameters
    ----------
    k : int
        How many partners a row is made of.
    tokens : tuple of Token
        The distance, or the condition of an ASOF JOIN.
    span : Span
        Where it stands.
    is_match : bool
        Whether it is the condition of an ASOF JOIN.
    is_similarity : bool
        Whether the largest value is the nearest.
    """

    k: int
    tokens: tuple[Token, ...]
    span: Span
    is_match: bool = False
    is_similarity: bool = False


class Input(Struct, frozen=True):
    """A stream in FROM or JOIN.

    Parameters
    ----------
    source : tuple of str
        The name of a stream, a table or a view, part by part.
    alias : str
        Its name in this query.
    how : str
        How it is joined: "inner", "left", "right", "full", "semi" or "anti".
    on : tuple of Token
        The condition after ON.
    span, how_span : Span
        Where the name stands, and the words of the join.
    ranking : Ranking or None
        Which partners of a tuple make rows, if not all.
    """

    source: tuple[str, ...]
    alias: str
    how: str
    on: tuple[Token, ...]
    span: Span
    how_span: Span
    ranking: Ranking | None = None


class Query(Struct, frozen=True):
    """``SELECT items FROM inputs WHERE where GROUP BY group``, all its tokens, and where GROUP BY stands."""

    items: tuple[Item, ...]
    inputs: tuple[Input, ...]
    where: tuple[Token, ...]
    tokens: tuple[Token, ...]
    group: tuple[Item, ...]
    group_span: Span

    @property
    def aggregates(self) -> tuple[Item, ...]:
        """The entries of the SELECT list that are aggregates."""
        return tuple(item for item in self.items if item.aggregate)

    @property
    def is_of_each(self) -> bool:
        """Whether it is ``FROM e LEFT SEMI JOIN w ... LEFT SEMI JOIN z ...``, or the same with ANTI."""
        hows = {one.how for one in self.inputs[1:]}
        is_ranked = any(one.ranking is not None for one in self.inputs)
        return len(self.inputs) > 2 and not is_ranked and (hows in ({"semi"}, {"anti"}))


class Statement(Struct, frozen=True):
    """A query: ``INSERT INTO table WITH (options) SELECT ...``, or a SELECT alone.

    Parameters
    ----------
    query : Query
        What is selected.
    table : str or None
        The table's name or path; None: a SELECT alone.
    is_path : bool
        Whether `table` was written as a path.
    span : Span
        Where the table stands, or the word SELECT.
    options : mapping of str to Option
        The options of WITH, and those set before the statement.
    own_options : mapping of str to Option
        Those of WITH.
    """

    query: Query
    table: str | None
    is_path: bool
    span: Span
    options: Mapping[str, Option] = field(default_factory=dict)
    own_options: Mapping[str, Option] = field(default_factory=dict)


class Explained(Struct, frozen=True):
    """``EXPLAIN`` and a statement."""

    statement: Statement
