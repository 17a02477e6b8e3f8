"""The column of event times, and those of devices with clocks: which types they may have, and how times are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.columns import foreign_zone, is_text, names_hint, result_type
from streamjoin_ds.spec.member.computed_columns import Computing, computes_moments
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.nested_path import inner_hint, with_paths
from streamjoin_ds.spec.time_format import TimeForm
from streamjoin_ds.spec.time_start import check_time_start
from streamjoin_ds.spec.time_zone import zone_hint

__all__ = [
    "check_device_columns",
    "check_start",
    "check_time_column",
    "check_timezone",
    "check_zone_column",
    "checked_forms",
    "is_event_time",
    "time_hint",
    "with_made_time",
    "without_own_zone",
]


class Timed(Computing, Protocol):
    """What is asked of a stream here; each property is that of `Stream`."""

    @property
    def time_format(self) -> Any:
        """How event times are written."""

    @property
    def timezone(self) -> Any:
        """The zone of those that say no offset, or the column that holds it."""

    @property
    def zone_column(self) -> str | None:
        """That column."""

    @property
    def time_start(self) -> Any:
        """The time from which event times count."""

    @property
    def time_step(self) -> Any:
        """The time between two records that say none."""

    @property
    def device_columns(self) -> tuple[str, ...]:
        """The columns whose values have clocks of their own."""

    @property
    def source(self) -> Any:
        """Where the tuples come from."""

    @property
    def makes_times(self) -> bool:
        """Whether the source makes the event times, so that none is read."""


def check_device_columns(stream: Timed, schema: pa.Schema) -> None:
    """Refuse columns of `partition_by` that the stream lacks, or whose values name no device."""
    for column in stream.device_columns:
        if column not in schema.names:
            msg = f"stream {stream.name} has no column '{column}', which partition_by names"
            hint = f"partition_by is file, folder, or columns; {names_hint(column, schema.names, 'its columns are')}"
            raise ColumnError(msg, name=column, hint=hint)
        kind = schema.field(column).type
        if column == stream.time or not _names_devices(kind):
            what = "is the event time" if column == stream.time else f"is of the type {kind}"
            msg = f"column '{column}' of stream {stream.name} {what}, so partition_by cannot name it"
            raise ColumnError(msg, name=column, hint="name columns of texts, numbers, dates or booleans")


_TIMES = ("ts", "time", "timestamp", "datetime", "event_time")  # names that most event times have


def _names_devices(kind: pa.DataType) -> bool:
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    others = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_date)
    return any(is_it(kind) for is_it in (*texts, *others))


def check_time_column(schema: pa.Schema, stream: Timed) -> None:
    """Refuse a schema whose time column is missing or cannot be an event time."""
    schema = with_paths(schema, [stream.time])
    if stream.time not in schema.names:
        msg = f"stream {stream.name} has no column '{stream.time}'"
        hint = inner_hint(schema, stream.time) or names_hint(stream.time, schema.names, "its columns are")
        times = [field.name for field in schema if pa.types.is_timestamp(field.type) or field.name.lower() in _TIMES]
        if times and not hint.startswith("did you mean"):
            hint = f"did you mean '{times[0]}'? {hint}"
        raise ColumnError(msg, name=stream.time, hint=hint)
    if schema.names.count(stream.time) > 1:
        msg = f"stream {stream.name} has more than one column '{stream.time}'"
        raise ColumnError(msg, name=stream.time, hint="rename one of them in the input")
    kind = schema.field(stream.time).type
    if not (is_event_time(kind) or (stream.time_format is not None and is_text(kind))):
        msg = f"column '{stream.time}' of stream {stream.name} cannot be an event time: its type is {kind}"
        raise ColumnError(msg, name=stream.time, hint=time_hint(kind))


def without_own_zone(schema: pa.Schema, time: str) -> pa.Schema:
    """Return declared columns where the event time has no zone but UTC: `timezone` says it."""
    place = schema.get_field_index(time)
    if place < 0 or foreign_zone(schema.field(place).type) is None:
        return schema
    column = schema.field(place)
    return schema.set(place, column.with_type(pa.timestamp(column.type.unit, tz="UTC")))


def check_zone_column(schema: pa.Schema, stream: Timed) -> None:
    """Refuse a `timezone` that is neither a zone nor a column of texts."""
    if stream.timezone is not None and computes_moments(stream):
        msg = f"timezone of stream {stream.name} says nothing about its event time, which is computed as a timestamp"
        hint = "compute a text, time=\"day || ' ' || clock\", and say its form with time_format; or leave timezone out"
        raise ArgumentError(msg, name="timezone", hint=hint)
    column = stream.zone_column
    if column is None or (column in schema.names and is_text(result_type(schema.field(column).type, column))):
        return
    if column in schema.names:
        msg = f"timezone of stream {stream.name} names the column '{column}', which holds no texts"
        raise ColumnError(msg, name=column, hint="a column of zones holds names: EST, +01:00, Europe/Berlin")
    msg = f"timezone of stream {stream.name} is neither a zone nor one of its columns"
    raise ArgumentError(msg, name="timezone", hint=zone_hint(column, schema.names))


def check_start(stream: Timed) -> None:
    """Refuse a `time_start` or `time_step` that says nothing, or that the stream cannot have."""
    if stream.time_start is None and stream.time_step is None:
        return
    source, name = stream.source, "time_step" if stream.time_start is None else "time_start"
    if stream.makes_times:
        msg = f"stream {stream.name} reads no texts or numbers as times, so it cannot have {name}"
        raise ArgumentError(msg, name=name, hint="leave it out")
    lines = source.skip_lines if isinstance(source, Files) and source.format in ("auto", "csv") else None
    check_time_start(stream.time_start, stream.time_step, stream.name, lines)


def with_made_time(schema: pa.Schema, time: str) -> pa.Schema:
    """Return declared columns with that of event times, which `time_step` makes, as the first one."""
    return pa.schema([pa.field(time, pa.timestamp("us", tz="UTC")), *(one for one in schema if one.name != time)])


def time_hint(kind: pa.DataType) -> str:
    """Return what a column of a type that is no event time needs to become one."""
    if not is_text(kind):
        return "a timestamp, a date, or a number with time_unit"
    return "time_format says how the texts are written: '%d/%m/%Y %H:%M:%S', or iso for 2024-03-05T09:00:07Z"


def checked_forms(given: object, stream: Timed) -> tuple[str, ...] | None:
    """Return the forms of `time_format`, each checked; None where there is none."""
    if given is None:
        return None
    parts = given.split("|") if isinstance(given, str) else given
    forms = (
        [part.strip() for part in parts if isinstance(part, str) and part.strip()]
        if isinstance(parts, Iterable)
        else []
    )
    if not forms:
        msg = f"time_format of stream {stream.name} is neither a text nor a list of texts"
        raise ArgumentError(msg, name="time_format", hint="for example '%d/%m/%Y %H:%M:%S', or excel")
    if stream.makes_times:
        msg = f"stream {stream.name} reads no texts or numbers as times, so it cannot have time_format"
        raise ArgumentError(msg, name="time_format", hint="leave it out")
    for form in forms:
        if form != "iso":
            TimeForm.of(form)
    return tuple(forms)


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type can be an event time."""
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_integer(kind) or types.is_date(kind) or types.is_floating(kind))


def check_timezone(stream: Timed) -> None:
    """Refuse a `timezone` that is no text, or that the stream cannot have."""
    if stream.timezone is None:
        return
    if not isinstance(stream.timezone, str) or not stream.timezone.strip():
        msg = f"timezone of stream {stream.name} is not a text"
        raise ArgumentError(msg, name="timezone", hint="for example 'Europe/Berlin', '+01:00', or a column's name")
    if stream.makes_times:
        msg = f"stream {stream.name} has event times in UTC, so it cannot have timezone"
        raise ArgumentError(msg, name="timezone", hint="leave it out")
