"""The inside form, which tuples have inside this package, and rows brought to it.

::

    read                             inside
    ──────────────────────────       ───────────────────────────────────────────────────────────────────
    the event time                   ``_ts``, int64 microseconds
    a column of nanoseconds that     its microseconds under its own name, for the result; and ``_ns_<column>``,
      is compared                      int64, which is compared. For an event time only the second, and ``_ts``
    any other                        itself, with its `result_type`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.spec.columns import NANOSECONDS, SEQ, TIMESTAMP, TS, lacks_zone, without_zone, zones_of
from streamjoin_ds.spec.conforming import conformed
from streamjoin_ds.spec.event_time import counted_times, fine_times
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["NO_TIME_US", "InsideRows", "inside_schema", "nanoseconds_name", "table_to_inside", "to_inside"]

Mask = npt.NDArray[np.bool_]
NO_TIME_US = -(1 << 63)
"""What stands for the event time of a row of a table, which has none: it is before all event times."""
Times: TypeAlias = "Callable[[pa.Array, str], tuple[npt.NDArray[np.int64], Mask]]"


def nanoseconds_name(column: str) -> str:
    """Return the name of the inside column that holds a column's nanoseconds."""
    return f"_ns_{column}"


def inside_schema(schema: pa.Schema, time: str) -> pa.Schema:
    """Return the inside columns of tuples read with `schema`: ``_ts`` and ``_seq`` (int64), then the others."""
    fields = [pa.field(TS, pa.int64(), nullable=False), pa.field(SEQ, pa.int64(), nullable=False)]
    for read in schema:
        is_fine = read.type == NANOSECONDS
        if read.name != time:
            fields.append(read.with_type(TIMESTAMP) if is_fine else read)
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
    """

    ts: npt.NDArray[np.int64]
    is_timed: Mask
    is_kept: Mask
    columns: dict[str, pa.Array] = field(default_factory=dict)
    refused: list[tuple[Mask, str, str]] = field(default_factory=list)

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
    times: tuple[Times, Times] = (counted_times, fine_times),
) -> InsideRows:
    """Return rows brought to the inside form.

    Times are cut off to its units, and rows with a time out of range are refused.

    Parameters
    ----------
    column : callable
        Returns the values of a column of `schema` as they were read.
    schema : pyarrow.Schema
        One of `BoundJoin.read_schemas`.
    stream : Stream
        The stream of the rows.
    times : tuple of callable
        The functions that make event times in microseconds, and in nanoseconds, from a column.

    Raises
    ------
    SchemaDriftError
        Values of a column do not fit its type, or say no zone where it is declared in another one than UTC.
    """
    time, unit, whose = stream.time, stream.time_unit, f"stream {stream.name}"
    zones = zones_of(stream.schema)
    given = column(schema.field(time))
    if time in zones and lacks_zone(given.type):
        raise without_zone(time, whose, zones[time])
    ts, valid = times[0](given, unit)
    found = InsideRows(ts, valid, np.ones(len(ts), np.bool_))
    if not valid.all():
        found.refuse(~valid & _without(given), time, "no event time")
        found.refuse(~valid, time, no_time(zones.get(time)))
    for wanted in schema:
        name, is_fine = wanted.name, wanted.type == NANOSECONDS
        if name == time:
            if is_fine:
                fine, valid = times[1](given, unit)
                found.refuse(~valid, name, _out_of_range(wanted.type))
                found.columns[nanoseconds_name(name)] = pa.array(fine)
            continue
        _bring(found, wanted, column(wanted), whose, zones.get(name))
    return found


def no_time(zone: str | None) -> str:
    """Return why a value is no event time of a column that is declared in a foreign zone, or in none."""
    if zone is not None:
        return f"not an event time with an offset, which a column that is declared in the zone {zone} must have"
    return "not an event time in the years 1 to 9999"


def table_to_inside(
    column: Callable[[pa.Field], pa.Array], schema: pa.Schema, table: str, rows: int, declared: object = None
) -> InsideRows:
    """Return the rows of a table brought to the inside form; `ts` is `NO_TIME_US`, so a tuple's time is larger.

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
    found = InsideRows(np.full(rows, NO_TIME_US), np.ones(rows, np.bool_), np.ones(rows, np.bool_))
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
