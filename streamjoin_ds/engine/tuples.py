"""Rows as people have them, made into the inside form: event time in microseconds, numbers, travelling columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import ArgumentError, ColumnError, SchemaDriftError
from streamjoin_ds.spec.bound import SEQ, TS, BoundJoin
from streamjoin_ds.spec.stream import Stream

__all__ = ["Rows", "as_table", "event_times", "filtered", "stamped", "time_column"]

# A table, a batch, a pandas frame, a list of dicts, or one dict.
Rows = Any

_UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


def as_table(rows: Rows, bound: BoundJoin, stream: int) -> pa.Table:
    """A table of what was handed over.

    Parameters
    ----------
    rows : pyarrow.Table, pyarrow.RecordBatch, pandas.DataFrame, list of dict, or dict
        One dict is one row. Columns that do not travel are ignored; a column missing from a dict is null.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Mapping):
        rows = [rows]
    if hasattr(rows, "__dataframe__") and hasattr(rows, "columns"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return _of_dicts(rows, bound, stream)
    msg = f"rows of stream {bound.names[stream]} are neither a table nor dicts"
    raise ArgumentError(msg, name=bound.names[stream], hint="an Arrow table or batch, a pandas frame, a list of dicts")


def event_times(column: pa.ChunkedArray, stream: Stream) -> pa.ChunkedArray:
    """Event times as int64 microseconds UTC; null where there is none or it is out of range.

    Timestamps without a zone are UTC; nanoseconds are cut off towards the past; integers are in the stream's unit.
    """
    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, pa.scalar(86_400_000_000))
    unit = stream.time_unit
    if types.is_timestamp(kind):
        unit = kind.unit
        column = column.cast(pa.int64())
    elif types.is_integer(kind):
        column = column.cast(pa.int64())
    else:
        msg = f"column '{stream.time}' of stream {stream.name} cannot be an event time: its type is {kind}"
        raise ColumnError(msg, name=stream.time, hint="a timestamp, a date, or an integer with time_unit")
    if unit == "us":
        return column
    if unit == "ns":
        values = pc.fill_null(column, 0).to_numpy() // 1000
        return pa.chunked_array([pa.array(values, mask=column.is_null().to_numpy())])
    factor = _UNITS_US[unit]
    reach = pa.scalar(((1 << 63) - 1) // factor)
    inside = pc.and_(pc.less_equal(column, reach), pc.greater_equal(column, pc.negate(reach)))
    return pc.multiply(pc.if_else(inside, column, pa.scalar(None, pa.int64())), pa.scalar(factor))


def time_column(table: pa.Table, stream: Stream) -> pa.ChunkedArray:
    """The column of event times of rows as they were handed over; `SchemaDriftError` where there is none."""
    if stream.time not in table.schema.names:
        msg = f"rows of stream {stream.name} lack the column '{stream.time}'"
        raise SchemaDriftError(msg, name=stream.time, hint="it is the stream's event time")
    return table.column(stream.time)


def stamped(
    table: pa.Table,
    bound: BoundJoin,
    stream: int,
    first_seq: int,
    stamps: Mapping[str, npt.NDArray[np.int64]] | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Tuples in the inside form, and the rows that have no event time.

    Parameters
    ----------
    table : pyarrow.Table
        In the stream's order.
    first_seq : int
        Number of the first row; rows without an event time have numbers too.
    stamps : mapping of str to ndarray, shape (rows,), int64, optional
        The columns that the window asks for (`BoundJoin.stamps`).

    Returns
    -------
    tuples : pyarrow.Table
        Of ``bound.read_schema(stream)``: not filtered yet.
    rejected : pyarrow.Table
        Rows as they were handed over.

    Raises
    ------
    SchemaDriftError
        A travelling column is missing or cannot be had with its type.
    """
    source = bound.join.streams[stream]
    schema = bound.read_schema(stream)
    for field in bound.read_schemas[stream]:
        if field.name not in table.schema.names:
            msg = f"rows of stream {source.name} lack the column '{field.name}'"
            raise SchemaDriftError(msg, name=field.name, hint=f"it must be {field.type}")
    times = event_times(time_column(table, source), source)
    numbers = pa.chunked_array([pa.array(np.arange(first_seq, first_seq + table.num_rows, dtype=np.int64))])
    columns = {TS: times, SEQ: numbers}
    columns |= {name: pa.chunked_array([pa.array(values)]) for name, values in (stamps or {}).items()}
    for field in schema:
        if field.name not in columns:
            columns[field.name] = _cast(table.column(field.name), field, source.name)
    present = times.is_valid()
    rejected = table.slice(0, 0) if times.null_count == 0 else table.filter(pc.invert(present))
    tuples = pa.table([columns[field.name] for field in schema], names=schema.names)
    if rejected.num_rows:
        tuples = tuples.filter(present)
    return pa.Table.from_arrays(tuples.columns, schema=schema), rejected


def filtered(
    tuples: pa.Table, late: npt.NDArray[np.bool_], bound: BoundJoin, stream: int
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """The tuples that the stream's filters let through, in the inside form, and which of them are late."""
    if not bound.filters[stream]:
        return tuples, late
    batch = tuples.combine_chunks().to_batches()
    kept = bound.let_through(stream, batch[0]) if batch else np.zeros(0, dtype=np.bool_)
    return tuples.filter(pa.array(kept)).select(bound.tuple_schema(stream).names), late[kept]


def _cast(column: pa.ChunkedArray, field: pa.Field, stream: str) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        # Only nanoseconds may lose digits, cut off to the microseconds that a Delta table has.
        return column.cast(field.type, safe=not pa.types.is_timestamp(column.type))
    except pa.ArrowException as error:
        msg = f"column '{field.name}' of stream {stream} comes as {column.type}, which does not fit"
        raise SchemaDriftError(msg, name=field.name, hint=f"it must be {field.type}") from error


def _of_dicts(rows: Sequence[Mapping[str, Any]], bound: BoundJoin, stream: int) -> pa.Table:
    source = bound.join.streams[stream]
    columns, names = [], []
    for field in bound.read_schemas[stream]:
        values = [row.get(field.name) for row in rows]
        kind = field.type
        if field.name == source.time and any(type(value) is int for value in values):
            kind = pa.int64()
        if field.name == source.time and any(type(value) is date for value in values):
            kind = pa.date32()
        try:
            columns.append(pa.array(values, kind))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            msg = f"a value of column '{field.name}' of stream {source.name} does not fit its type"
            raise SchemaDriftError(msg, name=field.name, hint=f"it must be {field.type}") from error
        names.append(field.name)
    return pa.table(columns, names=names)
