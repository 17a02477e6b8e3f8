"""The inside form, which tuples have inside this package, and rows brought to it.

::

    read                             inside
    ──────────────────────────       ───────────────────────────────────────────────────────────────────
    the event time                   ``_ts``, int64 microseconds
    a column of nanoseconds that     its microseconds under its own name, for the result; and ``_ns_<column>``,
     is compared                      int64, which is compared. For an event time only the second, and ``_ts``
    any other                        itself, with its `result_type`

Columns are brought to the types that they have inside (`conformed`): nothing overflows or is rounded silently. A row
with a time out of range, or a null where none is allowed, is refused with its column and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.spec.columns import NANOSECONDS, SEQ, TIMESTAMP, TS, Mask, lacks_zone, without_zone, zones_of
from streamjoin_ds.spec.event_time import DAY_US, MAX_TS_US, MIN_TS_US, NO_TIME, counted_times, fine_times
from streamjoin_ds.spec.member.computed_columns import computed_values, read_columns
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.nested_values import is_list
from streamjoin_ds.spec.time_text import StreamTimes
from streamjoin_ds.spec.time_zone import SeenTimes

__all__ = [
    "InsideRows",
    "conformed",
    "holds_times",
    "inside_schema",
    "nanoseconds_name",
    "table_to_inside",
    "to_inside",
]

"""What stands for the event time of a row of a table, which has none: it is before all event times."""


class Times(Protocol):
    """What makes event times of values."""

    @property
    def zone_column(self) -> str | None:
        """The column whose values are wanted too, as it holds zones."""

    def us(self, values: pa.Array, zones: pa.Array | None, /) -> SeenTimes:
        """Return event times in microseconds."""

    def ns(self, values: pa.Array, zones: pa.Array | None, later: Mask | None, /) -> tuple[npt.NDArray[np.int64], Mask]:
        """Return event times in nanoseconds, and which are valid."""

    def refused(self, values: pa.Array, zones: pa.Array | None, /) -> list[tuple[Mask, str]]:
        """Return which values are no event times for a reason of their own, and the reason."""


def holds_times(kind: pa.DataType) -> bool:
    """Whether values of a type are, or hold, timestamps or dates."""
    types = pa.types
    if types.is_list(kind):
        return holds_times(kind.value_type)
    if types.is_struct(kind):
        return any(holds_times(field.type) for field in kind)
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def conformed(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Return a column brought to the type that it has inside this package, and the rows with a time out of range.

    Parameters
    ----------
    values : pyarrow.Array
        The column as it was read.
    kind : pyarrow.DataType
        A type of `compared_type` or `result_type`. Times are cut off to its unit, towards the past.

    Returns
    -------
    array : pyarrow.Array
        The values; null where a time is out of range.
    out_of_range : ndarray of bool, shape (n,), or None
        Rows with a time outside the years 1 to 9999 (for nanoseconds: 1678 to 2261), also inside a list or struct;
        None if there is none.

    Raises
    ------
    pyarrow.ArrowException
        The values do not fit: they are of another type, or digits would be lost (float64 for float32).
    """
    if values.type == kind and not holds_times(kind):
        return values, None
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if types.is_timestamp(kind) and (types.is_timestamp(values.type) or types.is_date(values.type)):
        return _as_timestamps(values, kind)
    if types.is_date32(kind) and types.is_date(values.type):
        return _as_dates(values)
    if types.is_list(kind) and holds_times(kind) and is_list(values.type):
        return _as_lists(values, kind)
    if types.is_struct(kind) and holds_times(kind) and types.is_struct(values.type):
        return _as_structs(values, kind)
    if values.type == kind:
        return values, None
    if _loses_digits(values.type, kind):
        msg = f"a conversion from {values.type} to {kind} would lose digits"
        raise pa.ArrowInvalid(msg)
    cast = values.cast(kind, safe=not types.is_timestamp(values.type))
    return conformed(cast, kind) if holds_times(kind) else (cast, None)  # a cast to times may be out of range


def _loses_digits(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's cast from one type to another would round silently."""
    types = pa.types
    if types.is_list(kind) and is_list(given):
        return _loses_digits(given.value_type, kind.value_type)
    if types.is_struct(kind) and types.is_struct(given):
        names = [field.name for field in given]
        return any(_loses_digits(given.field(f.name).type, f.type) for f in kind if names.count(f.name) == 1)
    if types.is_floating(given):
        return bool(types.is_floating(kind) and kind.bit_width < given.bit_width) or types.is_decimal(kind)
    return bool(types.is_decimal(given) and types.is_floating(kind))


def _nothing_or(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def _as_timestamps(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    given = values.type
    if kind == TIMESTAMP and pa.types.is_timestamp(given) and given.unit == "us":
        ends = pc.min_max(values.view(pa.int64()))
        low, high = ends["min"], ends["max"]
        if not low.is_valid or (low.as_py() >= MIN_TS_US and high.as_py() <= MAX_TS_US):
            return values.view(kind), None
    if kind.unit == "ns" and pa.types.is_timestamp(given) and given.unit == "ns":
        return values.view(kind), None
    times, valid = (fine_times if kind.unit == "ns" else counted_times)(values, "us")
    out = ~valid & np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    return pa.array(times, mask=None if valid.all() else ~valid).cast(kind), _nothing_or(out)


def _as_dates(values: pa.Array) -> tuple[pa.Array, Mask | None]:
    ts, valid = counted_times(values, "us")
    days = pa.array((ts // DAY_US).astype(np.int32), mask=None if valid.all() else ~valid)
    return days.cast(pa.date32()), _nothing_or(~valid & np.asarray(values.is_valid().to_numpy(zero_copy_only=False)))


def _as_lists(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    rows = len(values)
    plain = values.cast(pa.list_(values.type.value_type)) if not pa.types.is_list(values.type) else values
    items, out = conformed(plain.flatten(), kind.value_type)
    lengths = np.asarray(pc.list_value_length(plain).fill_null(0).to_numpy(zero_copy_only=False))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    missing = plain.is_null() if plain.null_count else None
    made = pa.ListArray.from_arrays(offsets, items, type=kind, mask=missing)
    if out is None:
        return made, None
    parents = np.repeat(np.arange(rows), lengths)
    return made, np.isin(np.arange(rows), parents[out])


def _as_structs(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    children = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    out = np.zeros(len(values), np.bool_)
    made = []
    for wanted in kind:
        if wanted.name not in children:
            msg = f"a struct lacks the field {wanted.name}"
            raise pa.ArrowInvalid(msg)
        child, child_out = conformed(children[wanted.name], wanted.type)
        out |= False if child_out is None else child_out
        made.append(child)
    missing = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(made, fields=list(kind), mask=missing), _nothing_or(out)


def nanoseconds_name(column: str) -> str:
    """Return the name of the inside column that holds a column's nanoseconds."""
    return f"_ns_{column}"


def inside_schema(schema: pa.Schema, time: str) -> pa.Schema:
    """Return the inside columns of tuples read with `schema`: ``_ts`` and ``_seq`` (int64), then the others."""
    fields = [pa.field(TS, pa.int64(), nullable=False), pa.field(SEQ, pa.int64(), nullable=False)]
    for read in schema:
        is_fine = read.type == NANOSECONDS
        if read.name != time:
            fields.append(pa.field(read.name, TIMESTAMP if is_fine else read.type, read.nullable))
        if is_fine:
            nullable = read.nullable and read.name != time
            fields.append(pa.field(nanoseconds_name(read.name), pa.int64(), nullable))
    return pa.schema(fields)


@dataclass(slots=True)
class InsideRows:
    """Rows brought to the inside form, and among them those that cannot become tuples.

    Attributes
    ----------
    ts : ndarray, shape (n,), int64
        Event times in microseconds; 0 where `is_timed` is false.
    is_timed : ndarray, shape (n,), bool
        Rows with an event time.
    is_kept : ndarray, shape (n,), bool
        Rows that are tuples.
    columns : dict of str to pyarrow.Array
        The columns of `inside_schema` but for ``_ts`` and ``_seq``.
    refused : list of (mask, column, reason)
        Why the other rows are no tuples; each of them is in one of the masks.
    gap_us : ndarray, shape (n,), int64, or None
        How much later the other meaning of an event time is (`SeenTimes`).
    """

    ts: npt.NDArray[np.int64]
    is_timed: Mask
    is_kept: Mask
    columns: dict[str, pa.Array] = field(default_factory=dict)
    refused: list[tuple[Mask, str, str]] = field(default_factory=list)
    gap_us: npt.NDArray[np.int64] | None = None

    def refuse(self, mask: Mask, column: str, reason: str) -> None:
        """Refuse the rows of a mask that are still kept."""
        mask = mask & self.is_kept
        if mask.any():
            self.refused.append((mask, column, reason))
            self.is_kept = self.is_kept & ~mask


def to_inside(
    column: Callable[[pa.Field], pa.Array],
    schema: pa.Schema,
    stream: Stream,
    times: Times | None = None,
    later: Mask | None = None,
) -> InsideRows:
    """Return rows brought to the inside form.

    Times are cut off to its units, and rows with a time out of range are refused.

    Parameters
    ----------
    column : callable
        Returns the values of a written column as they were read: those of `read_columns`.
    schema : pyarrow.Schema
        One of `BoundJoin.read_schemas`.
    stream : Stream
        The stream of the rows; its computed columns are made here.
    times : Times, optional
        What makes event times of a column; by default as the stream says (`StreamTimes`).
    later : ndarray of bool, optional
        Which rows have the later one of an event time's two meanings; by default none has.

    Raises
    ------
    SchemaDriftError
        Values of a column do not fit its type, or say no zone where it is declared in another one than UTC.
    """
    time, whose, times = stream.time, f"stream {stream.name}", times or StreamTimes(stream)
    zones = zones_of(stream.schema)
    failed: list[tuple[Mask, str, str]] = []
    if stream.columns is not None:
        column, failed = _with_computed(column, schema, stream, times)
    given = column(schema.field(time))
    if time in zones and lacks_zone(given.type):
        raise without_zone(time, whose, zones[time])
    named = None if times.zone_column is None else column(schema.field(times.zone_column))
    seen = times.us(given, named)
    ts, valid = seen.ts if later is None or seen.gap_us is None else seen.ts + seen.gap_us * later, seen.valid
    found = InsideRows(ts, valid, np.ones(len(ts), np.bool_), gap_us=seen.gap_us)
    for mask, name, reason in failed:
        found.refuse(mask, name, reason)
    if not valid.all():
        found.refuse(~valid & _without(given), time, "no event time")
        for mask, reason in times.refused(given, named):
            found.refuse(mask, time, reason)
        found.refuse(~valid, time, no_time(zones.get(time), stream.time_forms))
    for wanted in schema:
        name, is_fine = wanted.name, wanted.type == NANOSECONDS
        if name == time:
            if is_fine:
                fine, valid = times.ns(given, named, later)
                found.refuse(~valid, name, _out_of_range(wanted.type))
                found.columns[nanoseconds_name(name)] = pa.array(fine)
            continue
        _bring(found, wanted, column(wanted), whose, zones.get(name))
    return found


def _with_computed(
    column: Callable[[pa.Field], pa.Array], schema: pa.Schema, stream: Stream, times: Times
) -> tuple[Callable[[pa.Field], pa.Array], list[tuple[Mask, str, str]]]:
    """Return what gives written and computed columns, and the rows that fail: a mask, the column, the reason."""
    read = read_columns(stream, schema)
    given = {field.name: column(field) for field in read}
    rows = len(next(iter(given.values()))) if given else 0
    failed: list[tuple[Mask, str, str]] = []
    known: dict[str, pa.Array] = {}
    assert stream.columns is not None
    assert stream.columns.written is not None
    kinds = {field.name: field.type for field in stream.columns.written}

    def operand(name: str) -> pa.Array:
        if name not in known:
            known[name], out = _operand(given[name], kinds[name], stream, times, is_time=name == stream.written_time)
            if out is not None:
                failed.append((out, name, _out_of_range(kinds[name])))
        return known[name]

    made, wrong = computed_values(stream, schema, rows, operand)
    return lambda wanted: made[wanted.name] if wanted.name in made else given[wanted.name], [*failed, *wrong]


def _operand(
    values: pa.Array, kind: pa.DataType, stream: Stream, times: Times, *, is_time: bool
) -> tuple[pa.Array, Mask | None]:
    """Return a written column as expressions read it; an event time is a timestamp, and null where there is none."""
    if is_time:
        seen = times.us(values, None)
        ts, valid = times.ns(values, None, None) if kind == NANOSECONDS else (seen.ts, seen.valid)
        return pa.array(ts, mask=None if valid.all() else ~valid).cast(kind), None
    try:
        return conformed(values, kind)
    except pa.ArrowException as error:
        msg = f"values of a column of stream {stream.name} come as {values.type}, which does not fit"
        raise SchemaDriftError(msg, name=stream.name, hint=f"it must be {kind}") from error


def no_time(zone: str | None, forms: Sequence[str] = ()) -> str:
    """Return why a value is no event time of a column that is declared in a foreign zone, or in none."""
    if forms:
        return f"not an event time of the form {' or '.join(forms)} in the years 1 to 9999"
    if zone is not None:
        return f"not an event time with an offset, which a column that is declared in the zone {zone} must have"
    return "not an event time in the years 1 to 9999"


def table_to_inside(
    column: Callable[[pa.Field], pa.Array], schema: pa.Schema, table: str, rows: int, declared: object = None
) -> InsideRows:
    """Return the rows of a table brought to the inside form; `ts` is `NO_TIME`, so a tuple's time is larger.

    Parameters
    ----------
    column, schema
        As for `to_inside`.
    table : str
        The table's name.
    rows : int
    declared : pyarrow.Schema, optional
        The columns as the table declares them.

    Raises
    ------
    SchemaDriftError
        As for `to_inside`.
    """
    zones = zones_of(declared)
    found = InsideRows(np.full(rows, NO_TIME), np.ones(rows, np.bool_), np.ones(rows, np.bool_))
    for wanted in schema:
        _bring(found, wanted, column(wanted), f"table {table}", zones.get(wanted.name))
    return found


def _bring(found: InsideRows, wanted: pa.Field, values: pa.Array, whose: str, zone: str | None) -> None:
    """Add the values of a column, and refuse those that are out of range or null where they must not be."""
    name, is_fine = wanted.name, wanted.type == NANOSECONDS
    if zone is not None and lacks_zone(values.type):
        raise without_zone(name, whose, zone)
    try:
        values, out = conformed(values, wanted.type)
    except pa.ArrowException as error:
        msg = f"values of column '{name}' of {whose} come as {values.type}, which does not fit"
        raise SchemaDriftError(msg, name=name, hint=f"it must be {wanted.type}") from error
    if out is not None:
        found.refuse(out, name, _out_of_range(wanted.type))
    if not wanted.nullable and values.null_count:
        missing = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
        found.refuse(missing, name, "null in a column that is declared to have no nulls")
    found.columns[name] = _whole_microseconds(values) if is_fine else values
    if is_fine:
        found.columns[nanoseconds_name(name)] = values.view(pa.int64())


def _without(times: pa.Array) -> Mask:
    """Return for which rows no event time was written at all."""
    if pa.types.is_floating(times.type):
        missing = pc.is_null(times, nan_is_null=True)
    elif pa.types.is_string(times.type):
        missing = pc.equal(pc.utf8_trim_whitespace(times), "").fill_null(True)
    else:
        missing = times.is_null()
    return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _out_of_range(kind: pa.DataType) -> str:
    years = "1678 to 2261, which nanoseconds can hold" if kind == NANOSECONDS else "1 to 9999"
    return f"a time outside the years {years}"


def _whole_microseconds(nanoseconds: pa.Array) -> pa.Array:
    """Return timestamps in nanoseconds as timestamps in microseconds, cut off towards the past."""
    ts, valid = counted_times(nanoseconds, "ns")
    return pa.array(ts, mask=None if valid.all() else ~valid).cast(TIMESTAMP)
