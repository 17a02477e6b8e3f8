"""Records: what a stretch of a source's text or rows becomes, the good and the broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.source.event_time import event_times
from streamjoin_ds.spec.bound import SEQ, TS
from streamjoin_ds.spec.stream import Stream

__all__ = ["MAX_TEXT", "REJECT_SCHEMA", "Chunk", "RawRecords", "Reject", "inside_form", "rejects_table", "tuple_schema"]

# Of a broken record so much is kept; a longer one says how much was left out.
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


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that is no tuple: where it stands (`line` from 1; of Parquet the row), what is wrong, and its text.

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
    """Records as read from a file, before the event time and the types of the house.

    Attributes
    ----------
    table : pyarrow.Table
        The readable ones: the time column as written, the others as read.
    index : numpy.ndarray of int64, or None
        Which of the `count` records those are; None where all.
    broken : sequence of (index, column, reason, text)
        The others.
    """

    table: pa.Table
    count: int
    index: np.ndarray | None = None
    broken: Sequence[tuple[int, str, str, str]] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a stream: `count` records from `first_seq` on; the tuples among them in the inside form."""

    first_seq: int
    count: int
    tuples: pa.RecordBatch
    rejects: Sequence[Reject] = field(default=())


def tuple_schema(schema: pa.Schema, time: str) -> pa.Schema:
    """The inside form of a stream's tuples: ``_ts``, ``_seq``, then the columns without the time column."""
    inner = [pa.field(TS, pa.int64(), nullable=False), pa.field(SEQ, pa.int64(), nullable=False)]
    return pa.schema([*inner, *(column for column in schema if column.name != time)])


def inside_form(
    raw: RawRecords,
    stream: Stream,
    schema: pa.Schema,
    first_seq: int,
    file: str,
    lines: np.ndarray,
    text_of: Callable[[int], str] | None = None,
    far: np.ndarray | None = None,
) -> Chunk:
    """Stamp records with event time and number; those that have none, or lack what may not be null, are rejected.

    Parameters
    ----------
    raw : RawRecords
        `raw.table` has the columns of `schema`, of its types but for the time column.
    lines : numpy.ndarray of int64, shape (raw.count,)
        Line (from 1) of each record in `file`.
    text_of : callable, optional
        The text of the record with this index; where there is none, it is put together from the columns.
    far : numpy.ndarray of bool, shape (raw.count,), optional
        Which records are too far ahead of their stream: they are rejected.
    """
    inner = tuple_schema(schema, stream.time)
    index = np.arange(raw.count, dtype=np.int64) if raw.index is None else raw.index
    times = raw.table.column(stream.time).combine_chunks()
    ts, valid = event_times(times, stream.time_unit)
    broken = list(raw.broken)

    def said(place: int) -> str:
        return _record_text(raw.table, place) if text_of is None else clipped(text_of(int(index[place])))

    if not valid.all():
        for place in np.flatnonzero(~valid):
            empty = not times[place].is_valid or (pa.types.is_string(times.type) and not times[place].as_py().strip())
            reason = "no event time" if empty else "not an event time in the years 1 to 9999"
            broken.append((int(index[place]), stream.time, reason, said(int(place))))
    if far is not None:
        beyond = far[index] & valid
        reason = "further ahead of its stream than max_ahead allows"
        broken += [(int(index[p]), stream.time, reason, said(int(p))) for p in np.flatnonzero(beyond)]
        valid &= ~beyond
    for column in inner:
        values = raw.table.column(column.name) if column.name not in (TS, SEQ) else None
        if values is not None and not column.nullable and values.null_count:
            missing = np.asarray(values.is_null()) & valid
            reason = "null in a column that is declared never to be"
            broken += [(int(index[p]), column.name, reason, said(int(p))) for p in np.flatnonzero(missing)]
            valid &= ~missing
    table = raw.table
    if not valid.all():
        kept = np.flatnonzero(valid)
        table, ts, index = table.take(pa.array(kept)), ts[kept], index[kept]
    columns = [pa.array(ts), pa.array(index + first_seq)]
    columns += [_one_array(table.column(column.name), column.type) for column in list(inner)[2:]]
    rejects = [
        Reject(file, int(lines[at]), column, reason, text, first_seq + at) for at, column, reason, text in broken
    ]
    rejects.sort(key=lambda reject: reject.seq)
    return Chunk(first_seq, raw.count, pa.RecordBatch.from_arrays(columns, schema=inner), rejects)


def _one_array(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)


def _record_text(table: pa.Table, row: int) -> str:
    """A record whose own text is no longer at hand, as ``name=value`` of the columns that travel."""
    values = table.slice(row, 1).to_pylist()[0]
    return clipped(", ".join(f"{name}={value}" for name, value in values.items()))


def clipped(text: str) -> str:
    """At most `MAX_TEXT` characters, and how many more there were."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ... ({len(text) - MAX_TEXT} more characters)"


def rejects_table(rejects: Sequence[Reject]) -> pa.Table:
    """Rejects in the form in which they travel: `REJECT_SCHEMA`, in the stream's order."""
    columns = [[getattr(reject, name) for reject in rejects] for name in REJECT_SCHEMA.names]
    arrays = [pa.array(values, column.type) for values, column in zip(columns, REJECT_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=REJECT_SCHEMA)


def empty_as_null(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """An empty field of a CSV file is a null, in columns of text too."""
    empty = pc.equal(values, "")
    return pc.if_else(empty, None, values) if pc.any(empty).as_py() else values
