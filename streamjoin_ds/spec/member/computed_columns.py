"""Computed columns of a stream: expressions over the columns that are written, which are columns like any other.

::

    what is read (`read_columns`)        the stream's columns (`all_columns`)
    ─────────────────────────────        ─────────────────────────────────────────────────────────────
    the written columns that are         those that are written, but for a name that is computed anew;
     wanted, or that an expression        then those that are computed
     of a wanted one reads

They are computed where rows come to the inside form (`inside.to_inside`), before anything else is made of a tuple:
event time, keys, conditions, `unique`. So a file, a topic, a table, a frame and rows that are pushed have them alike.
An expression reads what is written; a name that is computed alone stands for its expression. A row that SQL would fail
to compute is rejected, with its column and the reason. The event time is a timestamp in an expression, unless it is
itself computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError
from streamjoin_ds.spec.columns import (
    NANOSECONDS,
    SEQ,
    TIMESTAMP,
    TS,
    Mask,
    compared_type,
    marked_needed,
    names_hint,
    needed_columns,
    schema_from_text,
    schema_text,
)
from streamjoin_ds.spec.expression.calculation import Calculation, output_type
from streamjoin_ds.spec.expression.node import Typed
from streamjoin_ds.spec.expression.predicate import Column, renamed, sql_parts
from streamjoin_ds.spec.expression.tree import (
    Call,
    Expression,
    Literal,
    columns_of,
    expression_facts,
    expression_from,
    normalised,
    streams_of,
)
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.spec.nested_path import with_paths

__all__ = [
    "TIME_NAME",
    "ComputedColumns",
    "all_columns",
    "checked_columns",
    "computed_values",
    "computes_moments",
    "is_computed",
    "read_columns",
    "tried_columns",
    "with_stated",
    "with_time",
    "with_written",
]

TIME_NAME = "ts"  # the column that a time makes which is an expression
_EXPRESSION = re.compile(r"[('\"`]|\|\|")  # what a name hardly has: a text with none of it is the name of a column


@dataclass(frozen=True, slots=True)
class ComputedColumns:
    """The computed columns of a stream.

    Attributes
    ----------
    expressions : tuple of (str, Expression)
        Their names, in the order in which they were given, and what they are.
    stated : pyarrow.Schema
        The types that the stream's `schema` states of some of them.
    written : pyarrow.Schema or None
        The written columns that the expressions read, in the types in which they read them; None until the stream's
        columns are known.
    time_text : str
        What was given as the stream's `time`, where that is an expression, which makes the column `TIME_NAME`. A
        written column of this very name is meant all the same.
    """

    expressions: tuple[tuple[str, Expression], ...]
    stated: pa.Schema
    written: pa.Schema | None = None
    time_text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(name for name, _ in self.expressions)

    @property
    def needed(self) -> tuple[str, ...]:
        """The written columns that they read, each once."""
        return tuple(dict.fromkeys(column.name for _, one in self.expressions for column in columns_of(one)))

    def __hash__(self) -> int:
        return hash((self.expressions, str(self.stated), str(self.written), self.time_text))

    def to_facts(self) -> list[object]:
        """Return them as plain JSON values; `from_facts` makes them of these again."""
        written = None if self.written is None else schema_text(self.written)
        expressions = [[name, expression_facts(one)] for name, one in self.expressions]
        return [expressions, schema_text(self.stated), written, self.time_text]

    @classmethod
    def from_facts(cls, facts: Any) -> ComputedColumns:
        """Return what `to_facts` described."""
        expressions, stated, written, time_text = facts
        read = tuple((name, expression_from(one)) for name, one in expressions)
        return cls(read, schema_from_text(stated), None if written is None else schema_from_text(written), time_text)

    def identity(self, names: Collection[str]) -> list[object]:
        """Return what of columns of these names a result depends on, as plain JSON values."""
        stated = {field.name: str(field.type) for field in self.stated}
        kinds = {field.name: str(field.type) for field in self.written or ()}
        return [
            [name, _facts(one), stated.get(name), [kinds[column.name] for column in columns_of(one)]]
            for name, one in self.expressions
            if name in names
        ]


class Computing(Protocol):
    """What is asked of a stream here; each property is that of `Stream`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def time(self) -> str:
        """The column of the event time."""

    @property
    def written_time(self) -> str:
        """The same; empty where it is computed."""

    @property
    def time_unit(self) -> str:
        """The unit of an event time that is a number."""

    @property
    def schema(self) -> Any:
        """The declared columns."""

    @property
    def columns(self) -> ComputedColumns | None:
        """The computed columns."""


def _facts(expression: Expression) -> list[object]:
    return expression_facts(normalised(expression, fails=True))


def checked_columns(given: object, stream: str) -> ComputedColumns | None:
    """Return the computed columns that were given for a stream: a mapping of names to expressions, or texts.

    A text has an expression and a name, ``speed_kn * 0.514444 AS speed_ms``, with commas between several.

    Raises
    ------
    ArgumentError
        It is no such mapping, or names a column as the package itself names one.
    PredicateError
        An expression is not understood, or names another stream.
    """
    if given is None or isinstance(given, ComputedColumns):
        return given
    hint = "for example {'speed_ms': 'speed_kn * 0.514444'}, or 'speed_kn * 0.514444 AS speed_ms'"
    if isinstance(given, str) or (isinstance(given, Sequence) and all(isinstance(one, str) for one in given)):
        given = _named([given] if isinstance(given, str) else given, stream)
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in given):
        msg = f"columns of stream {stream} is no mapping of names to expressions"
        raise ArgumentError(msg, name="columns", hint=hint)
    for name in given:
        if name in (TS, SEQ):
            msg = f"columns of stream {stream} names a column '{name}', which the join itself uses"
            raise ArgumentError(msg, name="columns", hint="give it another name")
    expressions = tuple((name, _expression(one, name, stream)) for name, one in given.items())
    return ComputedColumns(expressions, pa.schema([])) if given else None


def with_time(
    columns: ComputedColumns | None, time: str, declared: Collection[str], stream: str
) -> ComputedColumns | None:
    """Return a stream's computed columns and the one that its `time` is, where that is an expression; None: it is none.

    An expression has a bracket, ``||`` or a quote, and is no column alone. Any other text is the name of a column, and
    so is one that is `declared`.

    Raises
    ------
    ArgumentError
        Another computed column has its name.
    """
    if time in declared or not _EXPRESSION.search(time):
        return None
    # Imported here: a worker is sent facts, and needs no SQL parser.
    from streamjoin_ds.spec.expression.parser import parse_value

    try:
        expression = parse_value(time, stream)
    except PredicateError:
        return None
    if not isinstance(expression, Call):
        return None
    known = () if columns is None else columns.expressions
    if TIME_NAME in dict(known):
        msg = f"the time of stream {stream} is an expression, and columns has a column '{TIME_NAME}' beside it"
        raise ArgumentError(
            msg, name="time", hint=f"an expression as time makes the column {TIME_NAME}: rename the other"
        )
    stated = pa.schema([]) if columns is None else columns.stated
    return ComputedColumns(((TIME_NAME, expression), *known), stated, time_text=time)


def tried_columns(columns: ComputedColumns | None) -> set[str]:
    """Return the columns that are cast by TRY_CAST in computed ones, as they are."""
    found: set[str] = set()
    parts: list[Expression] = [] if columns is None else [one for _, one in columns.expressions]
    while parts:
        part = parts.pop()
        if isinstance(part, Call):
            parts += part.args
            found.update(one.name for one in part.args[:1] if part.op == "try_cast" and isinstance(one, Column))
    return found


def _named(texts: Sequence[str], stream: str) -> dict[str, str]:
    """Return the expressions in texts by their names."""
    found: dict[str, str] = {}
    for part in (part for text in texts for part in sql_parts(text)):
        expression, name = renamed(part)
        is_named = name is not None and (part.endswith("`") or ")" not in name)  # the AS of a CAST names nothing
        if not is_named or name is None:
            msg = f"columns of stream {stream} has an expression without a name"
            raise ArgumentError(msg, name="columns", hint="write speed_kn * 0.514444 AS speed_ms")
        if name in found:
            msg = f"columns of stream {stream} names '{name}' twice"
            raise ArgumentError(msg, name="columns", hint="give each column once")
        found[name] = expression
    return found


def _expression(given: object, name: str, stream: str) -> Expression:
    if isinstance(given, str):
        # Imported here: a worker is sent facts, and needs no SQL parser.
        from streamjoin_ds.spec.expression.parser import parse_value

        return parse_value(given, stream)
    if not isinstance(given, (Column, Literal, Call)):
        msg = f"column '{name}' of stream {stream} must be an expression, not {type(given).__name__}"
        raise ArgumentError(msg, name="columns", hint="a text, for example 'speed_kn * 0.514444'")
    for other in streams_of(given):
        if other != stream:
            msg = f"column '{name}' of stream {stream} names the stream '{other}'"
            raise ArgumentError(msg, name="columns", hint="a computed column is made of columns of its own stream")
    return given


def is_computed(stream: Computing, name: str) -> bool:
    """Whether a column of a stream is computed."""
    return stream.columns is not None and name in stream.columns.names


def with_stated(stream: Computing) -> tuple[pa.Schema | None, ComputedColumns]:
    """Return a stream's declared columns without those that it does not read, and the computed ones with their types.

    What `schema` says of a name that an expression reads is the type of the written column.
    """
    assert stream.columns is not None
    computed, declared = stream.columns, stream.schema
    if not isinstance(declared, pa.Schema):
        return declared, computed
    stated = [field for field in declared if field.name in computed.names and field.name not in computed.needed]
    if not stated:
        return declared, computed
    names = {field.name for field in stated}
    kept = [field for field in declared if field.name not in names]
    return pa.schema(kept), replace(computed, stated=pa.schema(stated))


def with_written(stream: Computing, written: pa.Schema) -> ComputedColumns | None:
    """Return a stream's computed columns with the types of the written ones that they read.

    Raises
    ------
    ColumnError
        There is no such column, or computed columns are made of each other.
    """
    if stream.columns is None:
        return None
    expressions = dict(stream.columns.expressions)
    written = with_paths(written, stream.columns.needed)
    if stream.columns.written is not None:  # it was bound before: what it reads no more, it does not need
        names = {*written.names}
        expressions = {name: one for name, one in expressions.items() if names >= {c.name for c in columns_of(one)}}
    if stream.columns.time_text in written.names:
        expressions[TIME_NAME] = Column(stream.name, stream.columns.time_text)
    elif stream.columns.time_text and TIME_NAME in written.names:
        msg = f"the time of stream {stream.name} is an expression, and the stream has a column '{TIME_NAME}' already"
        hint = (
            f"name it: columns={{'at': \"...\"}} and time='at'; or columns={{'{TIME_NAME}': \"...\"}} takes its place"
        )
        raise ColumnError(msg, name=TIME_NAME, hint=hint)

    def written_out(expression: Expression, names: tuple[str, ...]) -> Expression:
        """Return an expression with those of computed columns in their places; `names` are open."""
        if isinstance(expression, Call):
            return Call(expression.op, tuple(written_out(argument, names) for argument in expression.args))
        if not isinstance(expression, Column) or expression.name in written.names:
            return expression
        if expression.name in names:
            msg = f"column '{expression.name}' of stream {stream.name} is computed of itself, and is not written"
            raise ColumnError(msg, name=expression.name, hint=names_hint(expression.name, written.names, "written are"))
        if expression.name in expressions:
            return written_out(expressions[expression.name], (*names, expression.name))
        msg = f"stream {stream.name} has no column '{expression.name}', of which '{names[0]}' is computed"
        raise ColumnError(msg, name=expression.name, hint=names_hint(expression.name, written.names, "written are"))

    made = tuple((name, written_out(one, (name,))) for name, one in expressions.items())
    computed = replace(stream.columns, expressions=made)
    fields = [pa.field(name, _read_type(stream, written.field(name))) for name in computed.needed]
    return replace(computed, written=pa.schema(fields))


def _read_type(stream: Computing, column: pa.Field) -> pa.DataType:
    """Return the type in which expressions read a written column."""
    kind = column.type
    if column.name != stream.written_time:
        return compared_type(kind, f"{stream.name}.{column.name}")
    is_fine = (
        kind.unit == "ns" if pa.types.is_timestamp(kind) else pa.types.is_integer(kind) and stream.time_unit == "ns"
    )
    return NANOSECONDS if is_fine else TIMESTAMP


def all_columns(stream: Computing, written: pa.Schema) -> pa.Schema:
    """Return all columns of a stream: those written, but for names that are computed, then the computed ones.

    Raises
    ------
    ColumnError, PredicateError
        A column is not there, or the types of an expression do not go together.
    """
    needed = () if stream.columns is None else stream.columns.needed
    written = with_paths(written, [stream.time, *needed])
    computed = with_written(stream, written)
    if computed is None:
        return written
    kept = [field for field in written if field.name not in computed.names]
    made = (pa.field(name, _made_of(computed, name, name == stream.time).kind) for name in computed.names)
    return pa.schema([*kept, *made])


def computes_moments(stream: Computing) -> bool:
    """Whether the event time of a stream is computed as a timestamp, which says its moment; the columns are known."""
    computed = stream.columns
    if computed is None or computed.written is None or stream.time not in computed.names:
        return False
    made = _made_of(computed, stream.time, False)
    return bool(pa.types.is_timestamp(made.kind))


def read_columns(stream: Computing, wanted: pa.Schema) -> pa.Schema:
    """Return the columns that a source has to read: written ones that are wanted, or that wanted ones are made of."""
    if stream.columns is None or not len(wanted):  # nothing is wanted of a stream whose columns are not known yet
        return wanted
    computed = stream.columns
    assert computed.written is not None
    needed = {column.name for own, one in computed.expressions if own in wanted.names for column in columns_of(one)}
    kept = [field for field in wanted if field.name not in computed.names]
    names = {field.name for field in kept}
    kinds = {field.name: field.type for field in computed.written if field.name in needed}
    kept = [field.with_type(kinds.get(field.name, field.type)) for field in kept]
    found = pa.schema([*kept, *(field for field in computed.written if field.name in needed - names)])
    there = {*needed_columns(wanted), stream.time}
    made_of = {column.name for own, one in computed.expressions if own in there for column in columns_of(one)}
    return marked_needed(found, made_of)


@dataclass(frozen=True, slots=True)
class _Made:
    """What makes one column: its expression with types, and the type of its values; a plain column has no node."""

    expression: Expression
    node: Typed | None
    kind: pa.DataType


@lru_cache(maxsize=1024)  # needed for every column in every batch
def _made_of(computed: ComputedColumns, name: str, is_time: bool) -> _Made:
    assert computed.written is not None
    expression = normalised(dict(computed.expressions)[name], fails=True)
    kinds = {field.name: field.type for field in computed.written}
    if name in computed.stated.names:
        wanted = computed.stated.field(name).type
        expression = _cast_to(expression, wanted, name)
    if isinstance(expression, Column):
        kind, node = kinds[expression.name], None
    else:
        node = typed_value(expression, lambda column: kinds[column.name])
        kind = output_type(expression, node)
    if is_time and pa.types.is_decimal(kind):
        expression = Call("cast", (expression, Literal("double")))
        node = typed_value(expression, lambda column: kinds[column.name])
        kind = pa.float64()
    if is_time and pa.types.is_string(kind):
        kind = TIMESTAMP  # its texts are read as those of a written column are
    return _Made(expression, node, kind)


_CASTS = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.bool_(): "boolean",
    pa.date32(): "date",
}


def _cast_to(expression: Expression, wanted: pa.DataType, name: str) -> Expression:
    """Return the expression as the type that `schema` states of its column."""
    kind = _CASTS.get(wanted)
    if pa.types.is_timestamp(wanted):
        kind = "timestamp"
    elif pa.types.is_decimal(wanted):
        kind = f"decimal({wanted.precision}, {wanted.scale})"
    if kind is None:
        msg = f"the computed column '{name}' is declared as {wanted}, to which nothing is cast"
        raise ColumnError(msg, name=name, hint="leave it out of schema, or write a CAST into its expression")
    return Call("cast", (expression, Literal(kind)))


def computed_values(
    stream: Computing, wanted: pa.Schema, rows: int, column: Callable[[str], pa.Array]
) -> tuple[dict[str, pa.Array], list[tuple[Mask, str, str]]]:
    """Return the computed columns among those wanted, and the rows that fail: a mask, the column, and the reason.

    Parameters
    ----------
    stream : Stream
    wanted : pyarrow.Schema
    rows : int
    column : callable
        Returns the values of a written column, in the type in which expressions read it.
    """
    found: dict[str, pa.Array] = {}
    failed: list[tuple[Mask, str, str]] = []
    calculation = Calculation(rows, lambda asked: column(asked.name))
    for field in wanted:
        if not is_computed(stream, field.name):
            continue
        assert stream.columns is not None
        made = _made_of(stream.columns, field.name, field.name == stream.time)
        if made.node is None:
            assert isinstance(made.expression, Column)
            found[field.name] = column(made.expression.name)
            continue
        kind = made.kind if made.node.family != "string" else pa.string()
        found[field.name], reasons = calculation.column_of(made.node, kind)
        failed += [(mask, field.name, reason) for mask, reason in reasons]
    return found, failed
