"""Records of a source: their event times, those that become tuples, and the broken ones, which become rejects.

Event times follow the rule of `spec.event_time`. Here stands how a text or a number of an input is read by that rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import NANOSECONDS, SEQ, TIMESTAMP, TS, foreign_zone
from streamjoin_ds.spec.event_time import NO_TIME, counted_times, fine_times
from streamjoin_ds.spec.inside import inside_schema, to_inside
from streamjoin_ds.spec.member.stream import Stream

__all__ = [
    "MAX_TEXT",
    "NO_TIME",
    "REJECT_SCHEMA",
    "Chunk",
    "RawRecords",
    "Reject",
    "event_times",
    "event_times_ns",
    "inside_form",
    "no_timestamps",
    "record_text",
    "rejects_table",
    "times_of",
    "timestamps",
]

_INTEGER = r"^[+-]?[0-9]{1,19}$"
_WORD = r"^[A-Za-z]"  # no form of a time begins so
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_ZONED = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_DATED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{5,}(Z|[+-][0-9:]+)?)?$|[0-9.]+$")
# Forms that are nearly ISO 8601, and what makes them it: they have one meaning, so no option says it.
_NEARLY_ISO = (
    (r"^([0-9]{4})[/.]([0-9]{1,2})[/.]([0-9]{1,2})", r"\1-\2-\3"),  # 2024/03/05, 2024.3.5
    (r"^([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})", r"\1-\2-\3T\4:\5"),  # 20240305T090007
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2})([0-9]{2})", r"\1:\2"),
    (r"^([0-9]{4})-([0-9])-", r"\1-0\2-"),
    (r"^([0-9]{4}-[0-9]{2})-([0-9])([^0-9]|$)", r"\1-0\2\3"),
    (r"^([0-9-]{10}[T ])([0-9]):", r"\g<1>0\2:"),  # 9:00:07
    (r"(:[0-9]{2}),([0-9])", r"\1.\2"),  # 09:00:07,120
    (r"(:[0-9.]+) ?([+-][0-9:]+|Z)\[[^\]]*\]$", r"\1\2"),  # 09:00+01:00[Europe/Berlin]
    (r"(:[0-9.]+) ?\[?(?:UTC|GMT|Z|utc|gmt|z)\]?$", r"\1Z"),  # 09:00:07 UTC
    (r"(:[0-9.]+) ([+-][0-9]{2}(?::?[0-9]{2})?)$", r"\1\2"),  # 09:00:07 +0000
)
_FINE_FRACTION = {"us": r"(\.[0-9]{6})[0-9]+", "ns": r"(\.[0-9]{9})[0-9]+"}

Counted: TypeAlias = "Callable[[pa.Array, str], tuple[np.ndarray, np.ndarray]]"
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


def event_times(values: pa.Array, unit: str, *, zoned: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return event times in microseconds, and which of them are readable.

    Parameters
    ----------
    values : pyarrow.Array
        Values that `counted_times` takes, or texts. A text is ISO 8601 with ``Z``, an offset or nothing (UTC), or
        nearly that (`_NEARLY_ISO`), a date, or a number in `unit`. Parts of a microsecond are cut off (towards the
        past). A number with a point is read as a float.
    unit : {"s", "ms", "us", "ns"}
        The unit of numbers.
    zoned : bool
        Whether a time without an offset is not readable, as in a column that is declared in another zone than UTC.

    Returns
    -------
    ts : numpy.ndarray, int64
        Microseconds UTC; 0 where `valid` is False.
    valid : numpy.ndarray, bool
        False for nulls, unreadable texts and times outside the years 1..9999.
    """
    return _times(values, unit, "us", counted_times, zoned=zoned)


def event_times_ns(values: pa.Array, unit: str, *, zoned: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return event times in nanoseconds, read as by `event_times`; valid where an int64 holds them (`fine_times`)."""
    return _times(values, unit, "ns", fine_times, zoned=zoned)


def times_of(stream: Stream) -> tuple[Counted, Counted]:
    """Return the functions that read a stream's event times, in microseconds and in nanoseconds, for `to_inside`."""
    if stream.time_zone is None:
        return event_times, event_times_ns
    return partial(event_times, zoned=True), partial(event_times_ns, zoned=True)


def timestamps(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return a column of timestamps that were written as text; null where the text is null.

    Parameters
    ----------
    kind : pyarrow.DataType
        `TIMESTAMP` or `NANOSECONDS`; or one of these in another zone, as `as_declared` gives it.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no timestamp, or one that `kind` cannot hold, or has no offset where `kind` has another zone.
    """
    texts = texts.combine_chunks()
    ts, valid = _read_timestamps(texts, kind)
    if (~valid & texts.is_valid().to_numpy(zero_copy_only=False)).any():
        msg = "not a timestamp"
        raise pa.ArrowInvalid(msg)
    return pa.array(ts, mask=~valid).cast(kind)


def no_timestamps(texts: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Return the places of texts that `timestamps` refuses."""
    _, valid = _read_timestamps(texts, kind)
    return np.flatnonzero(~valid & texts.is_valid().to_numpy(zero_copy_only=False))


def _read_timestamps(texts: pa.Array, kind: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
    read = event_times_ns if kind.unit == "ns" else event_times
    return read(texts, "us", zoned=foreign_zone(kind) is not None)


def _times(values: pa.Array, unit: str, finest: str, counted: Counted, *, zoned: bool) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _times(values.dictionary_decode(), unit, finest, counted, zoned=zoned)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _texts(values.cast(pa.string()), unit, finest, counted, zoned=zoned)
    return counted(values, unit)


def _texts(texts: pa.Array, unit: str, finest: str, counted: Counted, *, zoned: bool) -> tuple[np.ndarray, np.ndarray]:
    utc, naive = (TIMESTAMP, pa.timestamp("us")) if finest == "us" else (NANOSECONDS, pa.timestamp("ns"))
    # A cast that fails writes an error for each text, which takes as long as reading ten good ones.
    if len(texts) and re.match(_WORD, texts[0].as_py() or ""):
        worded = np.asarray(pc.match_substring_regex(texts, _WORD).fill_null(False))
        return _beside_words(texts, worded, unit, finest, counted, zoned=zoned)
    # Nearly every column is written in one way: then one cast reads it whole.
    texts = _as_iso(texts, _rules_of((texts[0].as_py() or "").strip() if len(texts) else ""))
    for kind in (utc,) if zoned else (utc, naive):
        try:
            return counted(texts.cast(kind), finest)
        except pa.ArrowInvalid:  # noqa: PERF203 - two turns at most, a whole column each
            continue
    if pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():  # pc.all skips nulls
        return counted(_readable(texts, pa.int64()), unit)
    worded = np.asarray(pc.match_substring_regex(texts, _WORD).fill_null(False))
    if worded.any():
        return _beside_words(texts, worded, unit, finest, counted, zoned=zoned)
    trimmed = _as_iso(pc.utf8_trim_whitespace(texts), [*_NEARLY_ISO, (_FINE_FRACTION[finest], r"\1")])
    upper = pc.utf8_upper(trimmed)
    integer = pc.match_substring_regex(upper, _INTEGER).fill_null(False)
    number = pc.match_substring_regex(upper, _NUMBER).fill_null(False)
    dated = pc.match_substring_regex(upper, _DATED).fill_null(False)
    # A date alone ends in "-01", which is no offset: an offset needs a time of day before it.
    has_time = pc.greater(pc.utf8_length(upper).fill_null(0), 10)
    offset = pc.and_(pc.and_(dated, has_time), pc.match_substring_regex(upper, _ZONED).fill_null(False))
    ts, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for mask, kind, part in (
        (integer, pa.int64(), upper),
        # A float keeps all its digits: `trimmed` lacks those beyond the unit of a timestamp.
        (pc.and_not(number, integer), pa.float64(), pc.utf8_trim_whitespace(texts)),
        (offset, utc, upper),
        *(() if zoned else ((pc.and_not(dated, offset), naive, upper),)),
    ):
        where = np.flatnonzero(np.asarray(mask))
        if len(where):
            part_ts, part_valid = counted(_readable(part.take(pa.array(where)), kind), unit)
            ts[where], valid[where] = part_ts, part_valid
    return ts, valid


def _rules_of(text: str) -> list[tuple[str, str]]:
    """Return what makes a text ISO 8601, if anything has to be done."""
    rules: list[tuple[str, str]] = []
    for pattern, replacement in () if _ISO.match(text) else _NEARLY_ISO:
        before, text = text, re.sub(pattern, replacement, text)
        rules += [(pattern, replacement)] * (text != before)
    return rules


def _as_iso(texts: pa.Array, rules: Sequence[tuple[str, str]]) -> pa.Array:
    for pattern, replacement in rules:
        texts = pc.replace_substring_regex(texts, pattern, replacement.replace(r"\g<1>", r"\1"))
    return texts


def _beside_words(
    texts: pa.Array, worded: np.ndarray, unit: str, finest: str, counted: Counted, *, zoned: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return times of texts, where those that begin with a letter are none."""
    ts, valid = np.zeros(len(texts), np.int64), ~worded
    ts[~worded], valid[~worded] = _texts(texts.filter(pa.array(~worded)), unit, finest, counted, zoned=zoned)
    return ts, valid


def _readable(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts cast to `kind`, null where a text cannot be cast. Halve the texts until each bad one is alone."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        middle = len(texts) // 2
        return pa.concat_arrays([_readable(texts[:middle], kind), _readable(texts[middle:], kind)])


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
    """

    table: pa.Table
    count: int
    index: np.ndarray | None = None
    broken: Sequence[tuple[int, str, str, str]] = ()


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
) -> Chunk:
    """Return records as a chunk: tuples with event time, number and columns of the inside types, and rejects.

    A record is rejected if it has no event time, if a time in another column is out of range, or if it has a null in a
    column that allows none.

    Parameters
    ----------
    raw : RawRecords
        `raw.table` has the columns of `schema`.
    lines : numpy.ndarray of int64, shape (raw.count,)
        Line (from 1) of each record in `file`.
    text_of : callable, optional
        Returns the text of the record with a given index. Without it the text is put together from the columns.
    far : numpy.ndarray of bool, shape (raw.count,), optional
        Which records are too far ahead of their stream. They are rejected.
    """
    inner = inside_schema(schema, stream.time)
    index = np.arange(raw.count, dtype=np.int64) if raw.index is None else raw.index

    def column(wanted: pa.Field) -> pa.Array:
        return _one_array(raw.table.column(wanted.name), wanted.type)

    def said(place: int) -> str:
        return record_text(raw.table, place) if text_of is None else clipped(text_of(int(index[place])))

    brought = to_inside(column, schema, stream, times_of(stream))
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
