"""Columns of a bound join: their types inside this package, which of them travel, which are in the result."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.columns import (
    NANOSECONDS,
    OTHER_NAME,
    SEQ,
    TIMESTAMP,
    TS,
    carried_type,
    check_result_name,
    compared_type,
    names_hint,
    result_name,
)
from streamjoin_ds.spec.expression.predicate import Column, renamed
from streamjoin_ds.spec.inside import nanoseconds_name
from streamjoin_ds.spec.join_parts import Calculated, JoinParts
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.nested_path import inner_hint, inner_path, is_inner, plain_name
from streamjoin_ds.spec.nested_values import has_fine_times, is_nested, type_text
from streamjoin_ds.spec.row_kind import RANK
from streamjoin_ds.spec.window import WINDOW_ID, PeriodicWindow

__all__ = [
    "ResultColumn",
    "check_nested_times",
    "column_type",
    "column_type_compared",
    "result_columns",
    "travelling_columns",
]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result and the stream and column it comes from."""

    name: str
    stream: int
    column: str


def column_type(join: JoinParts, schemas: Mapping[str, pa.Schema], column: Column) -> pa.DataType:
    """Return the type of a column in a result; an event time is a timestamp there, whatever it was in the file."""
    kind = _given_type(join, schemas, column)
    return TIMESTAMP if _is_time(join, column) else carried_type(kind, str(column))


def column_type_compared(join: JoinParts, schemas: Mapping[str, pa.Schema], column: Column) -> pa.DataType:
    """Return the type in which a column is compared.

    It is `NANOSECONDS` if the column has them, also for an event time in whole numbers of nanoseconds.
    """
    kind = _given_type(join, schemas, column)
    if not _is_time(join, column):
        return compared_type(kind, str(column))
    unit = join.members[join.member_names.index(column.stream)].time_unit
    is_fine = kind.unit == "ns" if pa.types.is_timestamp(kind) else pa.types.is_integer(kind) and unit == "ns"
    return NANOSECONDS if is_fine else TIMESTAMP


def check_nested_times(join: JoinParts, schemas: Mapping[str, pa.Schema], column: Column) -> None:
    """Refuse a compared column of lists or structs with times in nanoseconds: these travel as microseconds.

    Raises
    ------
    ColumnError
        It is one; two different values would become equal.
    """
    kind = _given_type(join, schemas, column)
    if is_nested(kind) and has_fine_times(kind):
        msg = f"'{column}' has the type {type_text(kind)}; times in nanoseconds inside it cannot be compared"
        raise ColumnError(
            msg, name=str(column), hint="cast them to microseconds in the input, or compare other columns"
        )


def _is_time(join: JoinParts, column: Column) -> bool:
    return column.name == join.members[join.member_names.index(column.stream)].time


def _kind_of(join: JoinParts, column: Column) -> str:
    return "stream" if column.stream in join.names else "table"


def _given_type(join: JoinParts, schemas: Mapping[str, pa.Schema], column: Column) -> pa.DataType:
    schema = schemas[column.stream]
    if schema.get_field_index(column.name) < 0:
        msg = f"{_kind_of(join, column)} {column.stream} has no column '{column.name}'"
        named, path = [field.name for field in schema if not is_inner(field)], inner_path(column.name)
        asked = column.name if path is None or path[0] in named else path[0]
        hint = inner_hint(schema, column.name) or names_hint(asked, named, "its columns are")
        raise ColumnError(msg, name=str(column), hint=hint)
    return schema.field(column.name).type


def result_columns(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> tuple[ResultColumn, ...]:
    """Return the selected columns of streams, in the order of the streams; other names of columns are checked too.

    Raises
    ------
    ColumnError
        A column is not there, two names collide, or Delta refuses a name or a type.
    """
    found: dict[ResultColumn, None] = {}
    for text in join.select:
        if isinstance(text, Calculated):
            continue
        written, given = renamed(text)
        stream, _, name = written.partition(".")
        own = next(one for one in join.members if one.name == stream)
        declared = own.schema.names if isinstance(own.schema, pa.Schema) else ()
        nested = own.nested
        # A path that is declared is a column like any other.
        every = [column for column in schemas[stream].names if column not in nested or column in declared]
        for column in every if name == "*" else [Column.of(written).name]:
            column_type(join, schemas, Column(stream, column))
            usual = result_name(stream, plain_name(column) if column in nested else column)
            found[ResultColumn(given or usual, join.member_names.index(stream), column)] = None
    columns = sorted(found, key=lambda column: column.stream)
    taken = ["event_time", "batch_id", *(f"{name}_seq" for name in join.member_names)]
    taken += [WINDOW_ID] if isinstance(join.window, PeriodicWindow) else []
    taken += [RANK] if join.nearest is not None and join.nearest.k > 1 else []
    folded = {name.lower(): "a column that every result has" for name in taken}
    named = [(result.name, f"{join.member_names[result.stream]}.{result.column}") for result in columns]
    named += [(one.name, str(one.expression)) for one in dict.fromkeys(join.select) if isinstance(one, Calculated)]
    named += [(one.name, f"'{one}'") for one in join.reduce]
    for name, source in named:
        check_result_name(name, source)
        if name.lower() in folded:
            msg = f"the result column '{name}' of {source} collides with {folded[name.lower()]}"
            raise ColumnError(msg, name=name, hint=f"{OTHER_NAME}; Delta ignores case")
        folded[name.lower()] = source
    return tuple(columns)


def travelling_columns(
    join: JoinParts, schemas: Mapping[str, pa.Schema], selected: Set[tuple[str, str]], compared: Set[tuple[str, str]]
) -> tuple[pa.Schema, ...]:
    """Return for each stream and table the needed columns, and event times; compared ones have their `compared_type`.

    Parameters
    ----------
    join : JoinParts
        The join.
    schemas : mapping of a stream's or table's name to pyarrow.Schema
        Columns of the sources.
    selected, compared : set of (stream name, column name)
        The columns that are needed.

    Raises
    ------
    ColumnError
        A needed column has a name that this package uses itself.
    """
    travelling = []
    for number, member in enumerate(join.members):
        wanted = {column for name, column in selected | compared if name == member.name}
        own: tuple[str, ...] = (TS, SEQ)
        if isinstance(member, Stream):
            wanted.add(member.time)
            own = (*own, *join.window.stamps(number, join.names))
        fields = []
        for field in schemas[member.name]:
            if field.name not in wanted:
                continue
            type_of = column_type_compared if (member.name, field.name) in compared else column_type
            kind = type_of(join, schemas, Column(member.name, field.name))
            fields.append(pa.field(field.name, kind, field.nullable))
            own = (*own, nanoseconds_name(field.name)) if kind == NANOSECONDS else own
        for name in own:
            if name in wanted:
                msg = f"column '{name}' of {member.name} has a name that the join itself uses"
                raise ColumnError(msg, name=name, hint="rename the column, or leave it out with select")
        travelling.append(pa.schema(fields))
    return tuple(travelling)
