"""The columns of a query: those of its streams and tables, and those that the SELECT list asks for.

A join takes the selected columns in an order of its own; `SelectList` has their names in the list's order too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from streamjoin_ds.script.conditions import Conditions, Names, Term, column_of
from streamjoin_ds.script.sql_text import SqlText, Token
from streamjoin_ds.script.statements import Item, Query
from streamjoin_ds.spec import Stream, Table
from streamjoin_ds.spec.columns import names_hint, result_name
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.join_parts import Calculated, Selected
from streamjoin_ds.spec.nested_path import inner_path, plain_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Schemas", "SelectList"]


_WHOLE_OF_SPARK = {"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "decimal"}


class Schemas:
    """The columns of a query's streams and tables; a source is looked at only when it is asked for."""

    def __init__(
        self,
        members: Sequence[Stream | Table],
        frames: Mapping[str, DataFrame],
        infer: Callable[[Stream | Table], pa.Schema],
        shown: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Take `shown` as the columns of streams that are views, which have others besides."""
        self._members = {member.name: member for member in members}
        self._infer = infer
        self.frames, self.shown = frames, shown or {}

    @cached_property
    def declared(self) -> dict[str, list[str]]:
        """The columns of the streams over frames, and of those members whose columns were declared."""
        known = {name: list(frame.columns) for name, frame in self.frames.items()}
        known |= {
            name: list(stream.schema.names)
            for name, stream in self._members.items()
            if isinstance(stream.schema, pa.Schema)
        }
        for name, written in known.items():
            stream = self._members.get(name)
            if isinstance(stream, Stream) and stream.columns is not None:
                known[name] = [*(one for one in written if one not in stream.columns.names), *stream.columns.names]
        return known | {name: list(columns) for name, columns in self.shown.items()}

    def names(self, stream: str) -> list[str]:
        """Return the columns of a stream or table."""
        return self.declared[stream] if stream in self.declared else list(self._infer(self._members[stream]).names)

    def rounds(self, column: Column) -> bool:
        """Return whether sums of a column may be rounded: of all but whole numbers, dates and times."""
        if column.stream in self.frames:
            names = [
                field.dataType.typeName() for field in self.frames[column.stream].schema if field.name == column.name
            ]
            return not {*names} & _WHOLE_OF_SPARK
        schema = self._infer(self._members[column.stream])
        kind = schema.field(column.name).type if column.name in schema.names else pa.null()
        types = pa.types
        return not (types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind))

    def has_fine_times(self) -> bool:
        """Whether an event time has parts of a microsecond. DataFrames of Spark have none."""
        for stream in self._members.values():
            if not isinstance(stream, Stream) or stream.name in self.frames or stream.is_topic:
                continue
            kind = self._infer(stream).field(stream.time).type
            if pa.types.is_timestamp(kind) and kind.unit == "ns":
                return True
            if pa.types.is_integer(kind) and stream.time_unit == "ns":
                return True
        return False


class SelectList:
    """The SELECT list of a query.

    Parameters
    ----------
    text : SqlText
    query : Query
    names : Names
    schemas : Schemas
    """

    def __init__(self, text: SqlText, query: Query, names: Names, schemas: Schemas) -> None:
        self._text, self._query, self._names, self._schemas = text, query, names, schemas

    def selected(self, *, is_of_one: bool) -> tuple[list[Selected], tuple[str, ...], list[Term]]:
        """Return what is selected, the names of the results' columns in the order of the list, and what is calculated.

        Aggregates have their names alone. With `is_of_one` ``*`` is of the first stream.

        Raises
        ------
        SqlSyntaxError, PredicateSyntaxError
            An entry names no stream or column, or is not understood; the error says where it stands.
        """
        found: list[Selected] = []
        columns: list[str] = []
        calculated: list[Term] = []
        for item in self._query.items:
            if item.aggregate:
                columns.append(item.name or "")
                continue
            if item.tokens:
                expression = Conditions(self._text, self._names, {}).value(item.tokens)
                calculated.append(Term(expression, item.span))
                found.append(Calculated(item.name or "", expression))
                columns.append(item.name or "")
                continue
            if item.column is None:
                all_streams = self._names.streams[:1] if is_of_one else self._names.streams
                chosen = all_streams if item.stream is None else [self._stream(item)]
                found += [part for stream in chosen for part in self._all_of(stream)]
                if self._schemas.frames:
                    columns += [result_name(stream, name) for stream in chosen for name in self._schemas.names(stream)]
                continue
            stream, column = self.column(item)
            quoted = "`" + column.replace("`", "``") + "`"
            name = "" if item.name is None else " AS `" + item.name.replace("`", "``") + "`"
            found.append(f"{stream}.{quoted}{name}")
            is_inner = inner_path(column) is not None and column not in self._schemas.names(stream)
            columns.append(item.name or result_name(stream, plain_name(column) if is_inner else column))
        return found, tuple(columns), calculated

    def _all_of(self, stream: str) -> list[str]:
        """Return what selects all columns of a stream; a view names its own."""
        if stream not in self._schemas.shown:
            return [f"{stream}.*"]
        return [f"{stream}.`{name.replace('`', '``')}`" for name in self._schemas.shown[stream]]

    def column(self, item: Item) -> tuple[str, str]:
        """Return the stream and the column that an entry names.

        Raises
        ------
        SqlSyntaxError
            There is none, or several; the error says where it stands.
        """
        column = item.column or ""
        if item.stream is None:
            return column_of(self._text, self._names, Token("", column, "name", item.span))
        stream = self._stream(item)
        return stream, self._names.column(stream, column)

    def _stream(self, item: Item) -> str:
        stream = self._names.stream(item.stream or "")
        if stream is None:
            hint = names_hint(item.stream or "", list(self._names.streams), "the streams of this query are")
            why = f"'{item.stream}' is not a stream of this query"
            raise self._text.refused(item.span, why, hint, item.stream or "")
        return stream
