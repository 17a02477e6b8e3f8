"""Records of a source: those that become tuples, and the broken ones, which become rejects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import SEQ, TIMESTAMP, TS
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.inside import inside_schema, to_inside
from streamjoin_ds.spec.member.computed_columns import is_computed
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_text import StreamTimes
from streamjoin_ds.spec.time_zone import SeenTimes

__all__ = [
    "MAX_TEXT",
    "NO_TIME",
    "REJECT_SCHEMA",
    "Chunk",
    "RawRecords",
    "Reject",
    "inside_form",
    "record_text",
    "record_times",
    "rejects_table",
    "time_schema",
]

# Characters kept of a broken record's text. A longer text is cut, and says how many characters were left out.
MAX_TEXT = 4096
REJECT_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)


def record_times(raw: RawRecords, stream: Stream) -> SeenTimes:
    """Return the event times of all records in microseconds, and which of them have one.

    `raw.table` has the columns that `read_columns` says for the event time, as written. Nothing else is looked at, so a
    record that is broken in another column has its time here.
    """
    raw = raw if raw.timed is None else raw.timed

    def column(wanted: pa.Field) -> pa.Array:
        return _one_array(raw.table.column(wanted.name), wanted.type)

    wanted = time_schema(stream)
    if is_computed(stream, stream.time):
        found = to_inside(column, wanted, stream)
        seen = SeenTimes(found.ts, found.is_kept, found.gap_us)
    else:
        seen = StreamTimes(stream).us(*map(column, wanted))
    return seen.spread(raw.index, raw.count)


def time_schema(stream: Stream) -> pa.Schema:
    """Return the event time as a column of a schema, and that of its zones: all that a planner wants."""
    zones = [] if stream.zone_column is None else [pa.field(stream.zone_column, pa.string())]
    return pa.schema([pa.field(stream.time, TIMESTAMP), *zones])


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that is no tuple: its place, what is wrong with it, and its text.

    `line` counts from 1; in a Parquet file it is the row. It is 0 where a whole file is set aside (`set_aside`).
    `column` is empty where the record as a whole is wrong (number of fields, not JSON).
    """

    file: str
    line: int
    column: str
    reason: str
    text: str
    seq: int


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Records as read from a file, before event times are read and values are brought to the inside types.

    Attributes
    ----------
    table : pyarrow.Table
        The readable records. The time column is as written. The other columns are as read; `conformed` brings them to
        the inside types.
    count : int
        Number of records, readable or broken.
    index : numpy.ndarray of int64, or None
        The places of the readable records among the `count` records; None where all are readable.
    broken : sequence of (index, column, reason, text)
        The broken records.
    timed : RawRecords, optional
        The same records with the columns of the event time alone, where some are broken in other columns; None where
        these have no time.
    """

    table: pa.Table
    count: int
    index: np.ndarray | None = None
    broken: Sequence[tuple[int, str, str, str]] = ()
    timed: RawRecords | None = None

    def with_reason(self, reason: str | None, but: str = "") -> RawRecords:
        """Return the records with a reason for those that are broken as a whole; `but` stays, and None is none."""
        if reason is None or not self.broken:
            return self
        told = [(at, name, own if name or own == but else reason, text) for at, name, own, text in self.broken]
        return replace(self, broken=told)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a stream: `count` records from number `first_seq` on. Its tuples have the inside form.

    `before` is given in a stream of many partitions: for each tuple the largest event time before it in its partition,
    int64; the smallest int64 where there is none. `repeats` is given in a stream with a key of unique rows: for each
    tuple whether it repeats one before it. `lost_offsets` counts a topic's offsets that were gone before they were
    read; they are no records.
    """

    first_seq: int
    count: int
    tuples: pa.RecordBatch
    rejects: Sequence[Reject] = field(default=())
    before: np.ndarray | None = None
    repeats: np.ndarray | None = None
    lost_offsets: int = 0


def inside_form(
    raw: RawRecords,
    stream: Stream,
    schema: pa.Schema,
    first_seq: int,
    file: str,
    lines: np.ndarray,
    text_of: Callable[[int], str] | None = None,
    far: np.ndarray | None = None,
    later: np.ndarray | None = None,
) -> Chunk:
    """Return records as a chunk: tuples with event time, number and columns of the inside types, and rejects.

    A record is rejected if it has no event time, if a time in another column is out of range, or if it has a null in a
    column that allows none.

    Parameters
    ----------
    raw : RawRecords
        `raw.table` has the columns that are read for `schema` (`read_columns`).
    lines : numpy.ndarray of int64, shape (raw.count,)
        Line (from 1) of each record in `file`.
    text_of : callable, optional
        Returns the text of the record with a given index. Without it the text is put together from the columns.
    far : numpy.ndarray of bool, shape (raw.count,), optional
        Which records are too far ahead of their stream. They are rejected.
    later : numpy.ndarray of bool, shape (raw.count,), optional
        Which records have the later one of two meanings of their local time.
    """
    inner = inside_schema(schema, stream.time)
    index = np.arange(raw.count, dtype=np.int64) if raw.index is None else raw.index

    def column(wanted: pa.Field) -> pa.Array:
        return _one_array(raw.table.column(wanted.name), wanted.type)

    def said(place: int) -> str:
        return record_text(raw.table, place) if text_of is None else clipped(text_of(int(index[place])))

    brought = to_inside(column, schema, stream, later=None if later is None else later[index])
    if far is not None:
        brought.refuse(far[index], stream.time, "further ahead of those before it than max_ahead allows")
    ts, columns, broken = brought.ts, brought.columns, list(raw.broken)
    for mask, name, reason in brought.refused:
        broken += [(int(index[place]), name, reason, said(int(place))) for place in np.flatnonzero(mask)]
    if not brought.is_kept.all():
        kept = np.flatnonzero(brought.is_kept)
        columns = {name: values.take(pa.array(kept)) for name, values in columns.items()}
        ts, index = ts[kept], index[kept]
    columns |= {TS: pa.array(ts), SEQ: pa.array(index + first_seq)}
    tuples = pa.RecordBatch.from_arrays([columns[field.name] for field in inner], schema=inner)
    rejects = [Reject(file, int(lines[at]), name, reason, text, first_seq + at) for at, name, reason, text in broken]
    rejects.sort(key=lambda reject: reject.seq)
    return Chunk(first_seq, raw.count, tuples, rejects)


def _one_array(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)


def record_text(table: pa.Table, row: int) -> str:
    """Return a text for a record whose own text is not at hand: ``name=value`` of each column of `table`."""
    return clipped(", ".join(f"{name}={_value_text(table.column(name)[row])}" for name in table.column_names))


def _value_text(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):  # a time that Python's types cannot hold
        is_number = pa.types.is_timestamp(value.type) or pa.types.is_date(value.type)
        return f"{value.value} as {value.type}" if is_number else f"a {value.type} that cannot be shown"


def clipped(text: str) -> str:
    """Return the first `MAX_TEXT` characters of `text`, and how many more there were."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ... ({len(text) - MAX_TEXT} more characters)"


def rejects_table(rejects: Sequence[Reject]) -> pa.Table:
    """Return rejects as a table of `REJECT_SCHEMA`, the form in which they travel, in the order given."""
    columns = [[getattr(reject, name) for reject in rejects] for name in REJECT_SCHEMA.names]
    arrays = [pa.array(values, column.type) for values, column in zip(columns, REJECT_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=REJECT_SCHEMA)


def empty_as_null(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return `values` with a null for each empty text: an empty CSV field is null in columns of text too."""
    empty = pc.equal(values, "")
    return pc.if_else(empty, None, values) if pc.any(empty).as_py() else values
