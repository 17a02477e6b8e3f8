"""Rows in the forms that users have, made into the inside form: event time in microseconds, number, travelling columns.

::

    table, batch, frame ──► columns brought to the inside types ───┐
                                                                   ├──► tuples of `BoundJoin.read_schema`
    dicts ──► numbers by a kernel, other values by Arrow ──────────┘    and rows that are no tuples

Times in dicts are any of Python's values that stand for one (`moment_ns`). Tables whose columns are in the inside form
already are taken as they are (`PlainTable`): a push of one tuple spends no time on conversions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, concatenated
from streamjoin_ds.engine.intake.moments import (
    TIMES_NS,
    TIMES_US,
    MomentTimes,
    as_written,
    in_range,
    moment_ns,
    plain_times,
)
from streamjoin_ds.engine.intake.received_rows import REJECTED, Mask, ReceivedRows, Rows, as_table
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.errors import ArgumentError, ColumnError, SchemaDriftError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import INT64_MIN, NANOSECONDS, SEQ, TS, is_text, says_no_zone, without_zone, zones_of
from streamjoin_ds.spec.event_time import (
    MAX_TS_US,
    MIN_TS_US,
    NO_TIME,
    AheadLimit,
    too_far_ahead,
)
from streamjoin_ds.spec.inside import InsideRows, holds_times, nanoseconds_name, to_inside
from streamjoin_ds.spec.key_values import item_values
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.time_column import is_event_time, time_hint
from streamjoin_ds.spec.nested_path import inner_column, inner_path, inner_value
from streamjoin_ds.spec.time_zone import SeenTimes, in_order

__all__ = ["PlainTable", "RowIntake"]

_BESIDE, _MIXED = "texts stand beside other times", "times without a zone stand beside others"


class PlainTable:
    """Where the columns of a stream lie in tables of one schema, if none of these columns needs a conversion.

    Such an event time is a timestamp in microseconds, or an int64 with this `time_unit`. Every other column has its
    inside type, which holds no times.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the tables.
    outside : pyarrow.Schema
        The columns that are read; one of `BoundJoin.read_schemas`.
    stream : Stream
    """

    __slots__ = ("_columns", "_schema", "_time", "is_plain")

    def __init__(self, schema: pa.Schema, outside: pa.Schema, stream: Stream) -> None:
        self._schema = schema
        self._time = schema.get_field_index(stream.time)  # -1: it is missing, or there twice
        self._columns = [(f.name, schema.get_field_index(f.name), f) for f in outside if f.name != stream.time]
        self.is_plain = (
            self._time >= 0
            and _in_microseconds(schema.field(self._time).type, stream)
            and not zones_of(stream.schema)
            and stream.columns is None
            and all(
                place >= 0 and schema.field(place).type == wanted.type and not holds_times(wanted.type)
                for _, place, wanted in self._columns
            )
        )

    def has(self, table: pa.Table) -> bool:
        """Whether the table has this schema."""
        return bool(table.schema.equals(self._schema))

    def columns(self, table: pa.Table) -> tuple[npt.NDArray[np.int64], dict[str, pa.Array]] | None:
        """Return the event times in microseconds and the other columns; None where a closer look is needed.

        It is needed in a table of several chunks, where an event time is null or out of range, and where there is
        a null that must not be.
        """
        times = table.column(self._time)
        if times.num_chunks != 1 or times.null_count:
            return None
        times_us: npt.NDArray[np.int64] = item_values(times.chunk(0))
        if not _are_in_range(times_us):
            return None
        made = {}
        for name, place, wanted in self._columns:
            column = table.column(place)
            if column.num_chunks != 1 or (not wanted.nullable and column.null_count):
                return None
            made[name] = column.chunk(0)
        return times_us, made


def _in_microseconds(kind: pa.DataType, stream: Stream) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us") and (stream.timezone is None or kind.tz is not None)
    return bool(pa.types.is_int64(kind)) and stream.time_unit == "us" and not (stream.time_format or stream.time_start)


def _are_in_range(times_us: npt.NDArray[np.int64]) -> bool:
    if len(times_us) == 1:  # a NumPy function takes longer than all of this
        return MIN_TS_US <= times_us.item() <= MAX_TS_US
    return not len(times_us) or bool(times_us.min() >= MIN_TS_US and times_us.max() <= MAX_TS_US)


class RowIntake:
    """The intake of one stream: it makes rows into tuples.

    Parameters
    ----------
    bound : BoundJoin
    stream : int
    module : KernelModule
    """

    def __init__(self, bound: BoundJoin, stream: int, module: KernelModule) -> None:
        self._bound, self._stream, self._module = bound, stream, module
        self._source = bound.join.streams[stream]
        self._outside = bound.written_schemas[stream]
        self._inside = bound.read_schema(stream)
        self._wanted = bound.read_schemas[stream]
        self._time = self._wanted.field(self._source.time)
        self._zones = zones_of(self._source.schema)
        self._plain = PlainTable(self._outside, self._outside, self._source)
        self._has_local_times = self._source.has_local_times
        self._has_clock = any((self._source.time_format, self._source.timezone, self._source.time_start))
        # In dicts, columns of times are made first, because a row may be refused for a value in them.
        self._times = [f for f in self._outside if f.name != self._time.name and holds_times(f.type)]
        self._tuple_names = bound.tuple_schema(stream).names
        self._stamped = bound.stamps(stream)
        fine = [nanoseconds_name(f.name) for f in self._outside if f.type == NANOSECONDS]
        own = {TS, SEQ, *self._stamped, *fine}
        # In dicts, a kernel writes the columns of numbers: event time, number and stamps first, then these.
        numbers = [field for field in self._inside if field.name not in own and _is_number(field.type)]
        self._numbers = [(field.name, field.type, bool(pa.types.is_floating(field.type))) for field in numbers]
        names = [TS, SEQ, *self._stamped, *(field.name for field in numbers)]
        self._number_schema = pa.schema([self._inside.field(name) for name in self._inside.names if name in names])
        self._has_numbers_only = len(names) == len(self._inside)
        widths = [self._inside.field(name).type.bit_width // 8 for name in names]
        self._form = module.RowsForm([widths], [names.index(name) for name in self._number_schema.names])

    def read(self, rows: Rows) -> ReceivedRows:
        """Read the event times of rows, and find the rows that are no tuples.

        Parameters
        ----------
        rows : pyarrow.Table, pyarrow.RecordBatch, a frame, list of dict, or dict
            In the stream's order. One dict is one row. Columns that do not travel are ignored; a column missing from a
            dict is null. In dicts an event time is a moment in any form (`moment_ns`), or a number in the stream's
            `time_unit`; numbers of float32 columns are rounded to the nearest.

        Raises
        ------
        ArgumentError
            Rows of no known form, or a column with more than 2 GiB of values.
        ColumnError
            The time column of a table has a type that cannot be an event time.
        SchemaDriftError
            A column is missing from a table, is there twice, or does not fit its type; or a time in a dict has a value
            that is no time.
        """
        found = as_table(rows, f"stream {self._source.name}", self._source.time)
        return self._read_table(found) if isinstance(found, pa.Table) else self._read_dicts(found)

    def _read_dicts(self, rows: list[Mapping[str, Any]]) -> ReceivedRows:
        name, is_fine = self._time.name, self._time.type == NANOSECONDS
        for column, zone in self._zones.items():
            if any(map(says_no_zone, self._values(rows, column))):
                raise without_zone(column, f"stream {self._source.name}", zone)
        if self._source.columns is not None:
            return self._compute_of_dicts(rows)
        given = self._values(rows, name)
        if self._has_clock:
            return self._read_written(rows, given)
        times_us = plain_times(given, self._source.time_unit)
        if times_us is not None and not self._times and not is_fine:
            return ReceivedRows(rows, len(rows), np.array(times_us, dtype=np.int64))
        moments = self._moments(given) if times_us is None or is_fine else [time * 1000 for time in times_us]
        times = MomentTimes(moments)
        made = {name: pa.array([None if moment is None else 0 for moment in moments], pa.int64())}
        return self._brought_dicts(rows, made, times)

    def _read_written(self, rows: list[Mapping[str, Any]], given: list[Any]) -> ReceivedRows:
        """Read dicts of a stream that says in which form or zone its event times are."""
        made = {self._time.name: self._time_column(given)}
        if (zone := self._source.zone_column) is not None:
            made[zone] = self._array(self._values(rows, zone), pa.string(), zone)
        return self._brought_dicts(rows, made, None)

    def _brought_dicts(
        self, rows: list[Mapping[str, Any]], made: dict[str, pa.Array], times: MomentTimes | None
    ) -> ReceivedRows:
        """Return dicts with the columns that are made, and with all others that are times."""
        far = []
        for timed in self._times:
            made[timed.name], out = self._payload_times(self._values(rows, timed.name), timed)
            far.append((out, timed.name))
        schema = pa.schema([self._wanted.field(name) for name in made])
        brought = to_inside(lambda wanted: made[wanted.name], schema, self._source, times)
        for out, column in far:
            brought.refuse(out, column, "a time out of range")
        return self._arrival(rows, brought)

    def _compute_of_dicts(self, rows: list[Mapping[str, Any]]) -> ReceivedRows:
        """Read dicts of a stream with computed columns: the written ones as a table, with times as timestamps."""
        written, far = [], []
        for field in self._outside:
            values = self._values(rows, field.name)
            if field.name == self._source.written_time and self._has_clock:
                written.append(self._time_column(values))
            elif field.name == self._source.written_time:
                unit, ends = (1, TIMES_NS) if field.type == NANOSECONDS else (1000, TIMES_US)
                counts, valid = in_range(self._moments(values), unit, ends)
                written.append(pa.array(counts, mask=~valid).cast(field.type))
            elif holds_times(field.type):
                array, out = self._payload_times(values, field)
                written.append(array)
                far.append((out, field.name))
            else:
                written.append(self._array(values, field.type, field.name))
        table = pa.table(written, names=self._outside.names)
        brought = self._brought(table)
        for out, column in far:
            brought.refuse(out, column, "a time out of range")
        return self._arrival(table, brought)

    def _brought(self, table: pa.Table) -> InsideRows:
        return to_inside(lambda wanted: self._column(table, wanted), self._wanted, self._source)

    def _read_table(self, table: pa.Table) -> ReceivedRows:
        if not self._plain.has(table):
            self._plain = PlainTable(table.schema, self._outside, self._source)
        plain = self._plain.columns(table) if self._plain.is_plain else None
        if plain is not None:
            return ReceivedRows(table, table.num_rows, plain[0], columns=plain[1])
        if self._source.written_time:
            self._check_time(self._column(table, self._time).type)
        return self._arrival(table, self._brought(table))

    def _check_time(self, kind: pa.DataType) -> None:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        may_be = is_event_time(kind) or (is_text(kind) and self._source.time_format is not None)
        if not (may_be or pa.types.is_null(kind)):
            name, stream = self._time.name, self._source.name
            msg = f"column '{name}' of stream {stream} cannot be an event time: its type is {kind}"
            raise ColumnError(msg, name=name, hint=time_hint(kind))

    def _arrival(self, rows: pa.Table | list[Mapping[str, Any]], brought: InsideRows) -> ReceivedRows:
        arrival = ReceivedRows(rows, len(brought.ts), brought.ts, columns=brought.columns, gap_us=brought.gap_us)
        if brought.refused:
            arrival.is_kept = brought.is_kept
            arrival.is_timed = None if brought.is_timed.all() else brought.is_timed
            arrival.refused = brought.refused
            arrival.rejected = self._gone(rows, brought.is_kept)
        return arrival

    def in_order(
        self, arrival: ReceivedRows, before: int | None, limit: AheadLimit | None, rhythm: tuple[int, ...]
    ) -> ReceivedRows:
        """Return the rows with that one of two meanings of their local times that the rows before them say."""
        if not self._has_local_times:
            return arrival
        timed = np.ones(arrival.count, np.bool_) if arrival.is_timed is None else arrival.is_timed
        seen = SeenTimes(arrival.times_us, timed, arrival.gap_us)
        ordered = in_order(seen, NO_TIME if before is None else before, limit, rhythm)
        arrival.times_us, arrival.rhythm = ordered.ts, ordered.rhythm_after()
        name = nanoseconds_name(self._time.name)
        if arrival.gap_us is not None and ordered.later is not None and name in arrival.columns:
            fine = arrival.columns[name].to_numpy(zero_copy_only=False)
            arrival.columns[name] = pa.array(fine + ordered.later * arrival.gap_us * 1000)
        return arrival

    def without_future(self, arrival: ReceivedRows, before: int | None, limit: AheadLimit) -> ReceivedRows:
        """Return the rows with those rejected that are too far ahead of their stream.

        A row is measured against the largest event time before it in the stream. For the first row that is `before`,
        where None stands for a stream without tuples.
        """
        far = too_far_ahead(arrival.times_us, arrival.is_timed, INT64_MIN if before is None else before, limit)
        if arrival.is_kept is None and not far.any():
            return arrival
        is_timed = ~far if arrival.is_timed is None else arrival.is_timed & ~far
        is_kept = ~far if arrival.is_kept is None else arrival.is_kept & ~far
        refused = [*arrival.refused, (far, self._time.name, "further ahead of those before it than max_ahead allows")]
        reasons = np.empty(arrival.count, dtype=object)
        for mask, _, reason in refused:
            reasons[mask] = reason
        gone = self._gone(arrival.rows, is_kept).append_column(REJECTED, pa.array(reasons[~is_kept], pa.string()))
        columns = arrival.columns
        return ReceivedRows(arrival.rows, arrival.count, arrival.times_us, is_timed, is_kept, columns, refused, gone)

    def _gone(self, rows: pa.Table | list[Mapping[str, Any]], is_kept: Mask) -> pa.Table:
        return _plain(self._table_of(rows) if isinstance(rows, list) else rows).filter(pa.array(~is_kept))

    def tuples(
        self, arrival: ReceivedRows, first_seq: int, stamps: Mapping[str, npt.NDArray[np.int64]]
    ) -> pa.RecordBatch:
        """Return the rows that are tuples, in the inside form; filters are not applied yet.

        Parameters
        ----------
        arrival : ReceivedRows
        first_seq : int
            Sequence number of the first row; rejected rows have numbers too.
        stamps : mapping of str to ndarray, shape (count,), int64
            The columns that the window asks for (`BoundJoin.stamps`).

        Returns
        -------
        pyarrow.RecordBatch
            Of ``bound.read_schema(stream)``.

        Raises
        ------
        SchemaDriftError
            A value of a dict does not fit the type of its column.
        """
        if isinstance(arrival.rows, list):
            return self._of_dicts(arrival, arrival.rows, first_seq, stamps)
        numbers = np.arange(first_seq, first_seq + arrival.count, dtype=np.int64)
        made = {TS: arrival.times_us, SEQ: numbers, **stamps}
        columns = {**arrival.columns, **{name: array_of(values, pa.int64()) for name, values in made.items()}}
        return self._kept(arrival, [columns[name] for name in self._inside.names])

    def _kept(self, arrival: ReceivedRows, columns: list[pa.Array]) -> pa.RecordBatch:
        if arrival.is_kept is None:
            return pa.RecordBatch.from_arrays(columns, schema=self._inside)
        kept = pa.array(arrival.is_kept)
        return pa.RecordBatch.from_arrays([column.filter(kept) for column in columns], schema=self._inside)

    def filtered(
        self, tuples: pa.RecordBatch, late: Mask, repeats: Mask | None
    ) -> tuple[pa.RecordBatch, Mask, Mask | None]:
        """Return the tuples that the stream's filters let through, and which of them are late, and which repeat one.

        The tuples have the columns that travel.
        """
        kept = self._bound.let_through(self._stream, tuples)
        if kept is None:
            return tuples if repeats is None else tuples.select(self._tuple_names), late, repeats
        repeats = None if repeats is None else repeats[kept]
        return tuples.filter(pa.array(kept)).select(self._tuple_names), late[kept], repeats

    def _of_dicts(
        self,
        arrival: ReceivedRows,
        rows: list[Mapping[str, Any]],
        first_seq: int,
        stamps: Mapping[str, npt.NDArray[np.int64]],
    ) -> pa.RecordBatch:
        gathered = self._module.ArrowRows(self._form, arrival.count)
        whole = [arrival.times_us.tolist(), list(range(first_seq, first_seq + arrival.count))]
        for number, values in enumerate([*whole, *(stamps[name].tolist() for name in self._stamped)]):
            gathered.put(number, values, floating=False)
        odd = dict(arrival.columns)
        for number, (name, kind, floating) in enumerate(self._numbers, len(self._stamped) + len(whole)):
            values = self._values(rows, name)
            if not gathered.put(number, values, floating=floating):
                odd[name] = self._array(values, kind, name)
        batch = pa.RecordBatch._import_from_c(gathered.exported(), self._number_schema)
        if not odd and self._has_numbers_only and arrival.is_kept is None:
            return batch
        columns = []
        for inside in self._inside:
            name = inside.name
            if name not in odd and self._number_schema.get_field_index(name) < 0:
                odd[name] = self._array(self._values(rows, name), inside.type, name)
            columns.append(odd[name] if name in odd else batch.column(name))
        return self._kept(arrival, columns)

    def _values(self, rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
        """Return the values of a column in dicts, null where a dict has none."""
        if inner_path(name) is not None:
            return [inner_value(row, name) for row in rows]
        return [row.get(name) for row in rows]

    def _moments(self, values: list[Any]) -> list[int | None]:
        try:
            return [moment_ns(value, self._source.time_unit) for value in values]
        except TypeError as error:
            raise self._no_time(str(error), is_text=isinstance(values[0], str)) from error

    def _no_time(self, why: str, *, is_text: bool) -> SchemaDriftError:
        msg = f"a value of column '{self._time.name}' of stream {self._source.name} is not an event time: {why}"
        hint = f"a datetime, a date, or a number in {self._source.time_unit}, the stream's time_unit"
        hint += "; time_format says how texts are written" if is_text else ""
        return SchemaDriftError(msg, name=self._time.name, hint=hint)

    def _time_column(self, values: list[Any]) -> pa.Array:
        """Return event times as a column, of a stream that says in which form or zone they are."""
        is_written = self._source.time_format is not None or self._source.time_start is not None
        written = [as_written(value) if is_written else None for value in values]
        if not any(text is None and value is not None for value, text in zip(values, written, strict=True)):
            return pa.array(written, pa.string())
        if any(text is not None for text in written):
            raise self._no_time(_BESIDE, is_text=False)
        known = [says_no_zone(value) for value in values if value is not None]
        if any(known) and not all(known):
            raise self._no_time(_MIXED, is_text=False)
        is_fine = self._time.type == NANOSECONDS
        counts, valid = in_range(self._moments(values), *((1, TIMES_NS) if is_fine else (1000, TIMES_US)))
        zone = "UTC" if not all(known) else None
        return pa.array(counts, mask=~valid).cast(pa.timestamp("ns" if is_fine else "us", tz=zone))

    def _payload_times(self, values: list[Any], wanted: pa.Field) -> tuple[pa.Array, Mask]:
        """Return a column of times, and a mask of the rows whose time is out of the type's range."""
        kind, far = wanted.type, np.zeros(len(values), np.bool_)
        try:
            return pa.array(values, kind), far
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            if not pa.types.is_timestamp(kind) or any(isinstance(value, (int, float)) for value in values):
                return self._array(values, kind, wanted.name), far
        try:  # moments in forms that Arrow does not know, or does not take side by side in one column
            moments = [moment_ns(value, "us") for value in values]
        except TypeError:
            return self._array(values, kind, wanted.name), far
        unit, ends = (1, TIMES_NS) if kind == NANOSECONDS else (1000, TIMES_US)
        counts, valid = in_range(moments, unit, ends)
        is_none = np.array([moment is None for moment in moments])
        return pa.array(counts, mask=~valid).cast(kind), ~valid & ~is_none

    def _table_of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return the columns that are read from dicts, as a table.

        Times are kept as they were given; where Arrow cannot hold them in one column, they are written as text.
        """
        columns = []
        for read in self._outside:
            values = self._values(rows, read.name)
            is_time = read == self._time or (read in self._times and not pa.types.is_nested(read.type))
            has_any = any(value is not None for value in values)
            columns.append(_as_given(values) if is_time and has_any else self._array(values, read.type, read.name))
        return pa.table(columns, names=self._outside.names)

    def _array(self, values: list[Any], kind: pa.DataType, name: str) -> pa.Array:
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            msg = f"a value of column '{name}' of stream {self._source.name} does not fit its type"
            raise SchemaDriftError(msg, name=name, hint=f"it must be {self._outside.field(name).type}") from error

    def _column(self, table: pa.Table, field: pa.Field) -> pa.Array:
        name, stream = field.name, self._source.name
        places = table.schema.get_all_field_indices(name)
        inner = None if places else inner_column(table, name)
        if inner is not None:
            return inner
        if not places:
            msg = f"rows of stream {stream} lack the column '{name}'"
            is_time = name == self._time.name
            hint = "it is the stream's event time" if is_time else f"it must be {field.type}"
            raise SchemaDriftError(msg, name=name, hint=hint)
        if len(places) > 1:
            msg = f"rows of stream {stream} have more than one column '{name}'"
            raise SchemaDriftError(msg, name=name, hint="rename one of them")
        try:
            return _joined(table.column(places[0]))
        except pa.ArrowInvalid as error:  # the offsets of one Arrow array have 32 bits
            msg = f"column '{name}' of stream {stream} has more than 2 GiB of values in one push"
            raise ArgumentError(msg, name=name, hint="push fewer rows at a time") from error


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array."""
    return concatenated(column.chunks) if column.num_chunks else pa.array([], column.type)


def _is_number(kind: pa.DataType) -> bool:
    """Whether a kernel can write Python's numbers as items of this type (`ArrowRows.put`)."""
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind))


def _as_given(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _plain(table: pa.Table) -> pa.Table:
    """Return a table that can be filtered: Arrow cannot filter views of strings or binary values."""
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for place, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
        if kind in plain:
            table = table.set_column(place, name, table.column(place).cast(plain[kind]))
    return table
