"""Rows as people have them, made into the inside form: event time in microseconds, numbers, travelling columns.

::

    table, batch, frame ──► columns cast ─────────────────────────┐
                                                                  ├──► tuples of `BoundJoin.read_schema`
    dicts ──► numbers by a kernel, other values by Arrow ─────────┘    and rows without an event time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.engine.columns import array_of, concatenated, item_values
from streamjoin_ds.engine.keys import INT64_MAX, INT64_MIN
from streamjoin_ds.errors import ArgumentError, ColumnError, SchemaDriftError
from streamjoin_ds.spec.ahead import AheadLimit, too_far_ahead
from streamjoin_ds.spec.bound import SEQ, TS, BoundJoin
from streamjoin_ds.spec.stream import Stream

__all__ = ["REJECTED", "Arrival", "Intake", "Rows"]

# A table, a batch, a pandas frame, a list of dicts, or one dict.
Rows = Any

REJECTED = "_rejected"
"""The column of rejected rows that says why, of streams with `max_ahead`."""

_UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAIVE_EPOCH = datetime(1970, 1, 1)


@dataclass(slots=True)
class Arrival:
    """Rows of one stream as they were handed over, and when they happened.

    Attributes
    ----------
    rows : pyarrow.Table, or list of dict
    count : int
    times_us : ndarray, shape (count,), int64
        0 where `is_timed` is false.
    is_timed : ndarray, shape (count,), bool, or None
        Which rows have an event time that counts; None: all.
    far : ndarray, shape (count,), bool, or None
        Which of the others are too far ahead of their stream; None: nobody asked.
    """

    rows: pa.Table | list[Mapping[str, Any]]
    count: int
    times_us: npt.NDArray[np.int64]
    is_timed: npt.NDArray[np.bool_] | None = None
    far: npt.NDArray[np.bool_] | None = None

    @property
    def known_us(self) -> npt.NDArray[np.int64]:
        """The event times that there are."""
        return self.times_us if self.is_timed is None else self.times_us[self.is_timed]

    @property
    def rejected(self) -> pa.Table | None:
        """The rows that have no event time that counts, as they were handed over; None: there are none.

        Where it was asked who is too far ahead, `REJECTED` says why a row is here.
        """
        if self.is_timed is None:
            return None
        assert not isinstance(self.rows, list), "dicts are kept as such only where all have an event time"
        gone = self.rows.filter(pa.array(~self.is_timed))
        if self.far is None:
            return gone
        reasons = np.where(
            self.far[~self.is_timed], "further ahead of its stream than max_ahead allows", "no event time"
        )
        return gone.append_column(REJECTED, pa.array(reasons, pa.string()))


class Intake:
    """Makes rows of one stream into tuples.

    Parameters
    ----------
    bound : BoundJoin
    stream : int
    module : module
        The kernels.
    """

    def __init__(self, bound: BoundJoin, stream: int, module: Any) -> None:
        self._bound, self._stream, self._module = bound, stream, module
        self._source = bound.join.streams[stream]
        self._outside = bound.read_schemas[stream]
        self._inside = bound.read_schema(stream)
        kind = self._outside.field(self._source.time).type
        self._has_moments = pa.types.is_timestamp(kind) and kind.unit == "us"
        self._tuple_names = bound.tuple_schema(stream).names
        self._stamped = bound.stamps(stream)
        own = {TS, SEQ, *self._stamped}
        self._travelling = [field for field in self._inside if field.name not in own]
        # Of dicts: numbers are put down by a kernel, in this order after the columns of the house.
        numbers = [field for field in self._travelling if _is_number(field.type)]
        self._numbers = [(field.name, field.type, bool(pa.types.is_floating(field.type))) for field in numbers]
        names = [TS, SEQ, *self._stamped, *(field.name for field in numbers)]
        self._number_schema = pa.schema([self._inside.field(name) for name in self._inside.names if name in names])
        self._has_numbers_only = len(names) == len(self._inside)
        widths = [self._inside.field(name).type.bit_width // 8 for name in names]
        self._form = module.RowsForm([widths], [names.index(name) for name in self._number_schema.names])

    def read(self, rows: Rows) -> Arrival:
        """Look at rows, as far as their event times.

        Parameters
        ----------
        rows : pyarrow.Table, pyarrow.RecordBatch, pandas.DataFrame, list of dict, or dict
            In the stream's order. One dict is one row. Columns that do not travel are ignored; a column missing from a
            dict is null.

        Raises
        ------
        ArgumentError
            Rows of no known form.
        SchemaDriftError
            There is no time column, or a value of a dict does not fit.
        """
        if isinstance(rows, dict):  # a push of one tuple: the same as a list of it, known sooner
            return self._read_dicts([rows])
        if isinstance(rows, pa.RecordBatch):
            return self._read_table(pa.Table.from_batches([rows]))
        if isinstance(rows, pa.Table):
            return self._read_table(rows)
        if hasattr(rows, "__dataframe__") and hasattr(rows, "columns"):
            return self._read_table(pa.Table.from_pandas(rows, preserve_index=False))
        if isinstance(rows, Mapping):
            return self._read_dicts([rows])
        if isinstance(rows, Sequence) and all([isinstance(row, Mapping) for row in rows]):
            return self._read_dicts(list(rows))
        msg = f"rows of stream {self._source.name} are neither a table nor dicts"
        hint = "an Arrow table or batch, a pandas frame, a list of dicts"
        raise ArgumentError(msg, name=self._source.name, hint=hint)

    def _read_dicts(self, rows: list[Mapping[str, Any]]) -> Arrival:
        times_us = self._plain_times([row.get(self._source.time) for row in rows])
        if times_us is None:
            return self._read_table(self._table_of(rows))
        return Arrival(rows, len(rows), np.array(times_us, dtype=np.int64))

    def _read_table(self, table: pa.Table) -> Arrival:
        times = _event_times(self._column(table, self._source.time, "it is the stream's event time"), self._source)
        is_timed = times.is_valid().to_numpy(zero_copy_only=False) if times.null_count else None
        return Arrival(
            table, table.num_rows, item_values(times if is_timed is None else pc.fill_null(times, 0)), is_timed
        )

    def without_future(self, arrival: Arrival, before: int | None, limit: AheadLimit) -> Arrival:
        """The rows less those that are too far ahead of the largest event time before them in their stream."""
        far = too_far_ahead(arrival.times_us, arrival.is_timed, INT64_MIN if before is None else before, limit)
        if arrival.is_timed is None and not far.any():
            return arrival
        is_timed = ~far if arrival.is_timed is None else arrival.is_timed & ~far
        rows = self._table_of(arrival.rows) if isinstance(arrival.rows, list) else arrival.rows
        return Arrival(rows, arrival.count, arrival.times_us, is_timed, far)

    def tuples(self, arrival: Arrival, first_seq: int, stamps: Mapping[str, npt.NDArray[np.int64]]) -> pa.RecordBatch:
        """Those rows that have an event time, in the inside form, not filtered yet.

        Parameters
        ----------
        arrival : Arrival
        first_seq : int
            Number of the first row; rows without an event time have numbers too.
        stamps : mapping of str to ndarray, shape (count,), int64
            The columns that the window asks for (`BoundJoin.stamps`).

        Returns
        -------
        pyarrow.RecordBatch
            Of ``bound.read_schema(stream)``.

        Raises
        ------
        SchemaDriftError
            A travelling column is missing or cannot be had with its type.
        """
        if isinstance(arrival.rows, list):
            return self._of_dicts(arrival, arrival.rows, first_seq, stamps)
        numbers = np.arange(first_seq, first_seq + arrival.count, dtype=np.int64)
        made = {TS: arrival.times_us, SEQ: numbers, **stamps}
        columns = {name: array_of(values, pa.int64()) for name, values in made.items()}
        for field in self._travelling:
            column = self._column(arrival.rows, field.name, f"it must be {field.type}")
            columns[field.name] = _joined(_cast(column, field, self._source.name))
        tuples = pa.RecordBatch.from_arrays([columns[name] for name in self._inside.names], schema=self._inside)
        return tuples if arrival.is_timed is None else tuples.filter(pa.array(arrival.is_timed))

    def filtered(
        self, tuples: pa.RecordBatch, late: npt.NDArray[np.bool_]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The tuples that the stream's filters let through, in the inside form, and which of them are late."""
        kept = self._bound.let_through(self._stream, tuples)
        if kept is None:
            return tuples, late
        return tuples.filter(pa.array(kept)).select(self._tuple_names), late[kept]

    def _of_dicts(
        self,
        arrival: Arrival,
        rows: list[Mapping[str, Any]],
        first_seq: int,
        stamps: Mapping[str, npt.NDArray[np.int64]],
    ) -> pa.RecordBatch:
        gathered = self._module.Rows(self._form, arrival.count)
        whole = [arrival.times_us.tolist(), list(range(first_seq, first_seq + arrival.count))]
        for number, values in enumerate([*whole, *(stamps[name].tolist() for name in self._stamped)]):
            gathered.put(number, values, floating=False)
        odd: dict[str, pa.Array] = {}
        for number, (name, kind, floating) in enumerate(self._numbers, len(self._stamped) + len(whole)):
            values = [row.get(name) for row in rows]
            if not gathered.put(number, values, floating=floating):
                odd[name] = self._array(values, kind, name)
        batch = pa.RecordBatch._import_from_c(gathered.exported(), self._number_schema)
        if not odd and self._has_numbers_only:
            return batch
        columns = []
        for field in self._inside:
            if field.name not in odd and self._number_schema.get_field_index(field.name) < 0:
                odd[field.name] = self._array([row.get(field.name) for row in rows], field.type, field.name)
            columns.append(odd[field.name] if field.name in odd else batch.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self._inside)

    def _plain_times(self, values: list[Any]) -> list[int] | None:
        """Event times in microseconds of values that are all integers or all moments; None: Arrow must look at them."""
        kinds = set(map(type, values))
        if kinds == {int}:
            unit = self._source.time_unit
            if unit == "ns":
                return [value // 1000 for value in values] if _fit_int64(values) else None
            times_us = [value * _UNITS_US[unit] for value in values]
            return times_us if _fit_int64(times_us) else None
        if kinds == {datetime} and self._has_moments:
            since = [value - (_NAIVE_EPOCH if value.tzinfo is None else _EPOCH) for value in values]
            return [(span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds for span in since]
        return None

    def _table_of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """All that is read of dicts, as a table."""
        columns, names = [], []
        for field in self._outside:
            values = [row.get(field.name) for row in rows]
            kind = field.type
            if field.name == self._source.time and any(type(value) is int for value in values):
                kind = pa.int64()
            if field.name == self._source.time and any(type(value) is date for value in values):
                kind = pa.date32()
            columns.append(self._array(values, kind, field.name))
            names.append(field.name)
        return pa.table(columns, names=names)

    def _array(self, values: list[Any], kind: pa.DataType, name: str) -> pa.Array:
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            msg = f"a value of column '{name}' of stream {self._source.name} does not fit its type"
            raise SchemaDriftError(msg, name=name, hint=f"it must be {self._outside.field(name).type}") from error

    def _column(self, table: pa.Table, name: str, hint: str) -> pa.ChunkedArray:
        if name not in table.schema.names:
            msg = f"rows of stream {self._source.name} lack the column '{name}'"
            raise SchemaDriftError(msg, name=name, hint=hint)
        return table.column(name)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """One array of all chunks."""
    return concatenated(column.chunks) if column.num_chunks else pa.array([], column.type)


def _is_number(kind: pa.DataType) -> bool:
    """Whether a kernel puts Python's numbers down as this type."""
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind))


def _fit_int64(values: list[int]) -> bool:
    return not (min(values) < INT64_MIN or max(values) > INT64_MAX)


def _event_times(chunks: pa.ChunkedArray, stream: Stream) -> pa.Array:
    """Event times as int64 microseconds UTC; null where there is none or it is out of range.

    Timestamps without a zone are UTC; nanoseconds are cut off towards the past; integers are in the stream's unit.
    """
    types = pa.types
    column = _joined(chunks.cast(chunks.type.value_type) if types.is_dictionary(chunks.type) else chunks)
    kind = column.type
    if types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, pa.scalar(86_400_000_000))
    unit = stream.time_unit
    if types.is_timestamp(kind):
        unit = kind.unit
        column = column.view(pa.int64())
    elif types.is_integer(kind):
        column = column if types.is_int64(kind) else column.cast(pa.int64())
    else:
        msg = f"column '{stream.time}' of stream {stream.name} cannot be an event time: its type is {kind}"
        raise ColumnError(msg, name=stream.time, hint="a timestamp, a date, or an integer with time_unit")
    if unit == "us":
        return column
    if unit == "ns":
        values = pc.fill_null(column, 0).to_numpy() // 1000
        return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
    factor = _UNITS_US[unit]
    reach = pa.scalar(INT64_MAX // factor)
    inside = pc.and_(pc.less_equal(column, reach), pc.greater_equal(column, pc.negate(reach)))
    return pc.multiply(pc.if_else(inside, column, pa.scalar(None, pa.int64())), pa.scalar(factor))


def _cast(column: pa.ChunkedArray, field: pa.Field, stream: str) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        # Only nanoseconds may lose digits, cut off to the microseconds that a Delta table has.
        return column.cast(field.type, safe=not pa.types.is_timestamp(column.type))
    except pa.ArrowException as error:
        msg = f"column '{field.name}' of stream {stream} comes as {column.type}, which does not fit"
        raise SchemaDriftError(msg, name=field.name, hint=f"it must be {field.type}") from error
