"""Formats of messages that need no registry: JSON and CSV, packed structs, bytes; and what all formats share.

Lines of JSON or CSV are parsed together, and no message touches another. A reader of JSON lines merges ``{"a":1`` with
a neighbour ``,"b":2}`` and makes two records of ``{..}{..}``; where both happen, even the number of records is right.
So frames say which messages are exactly one JSON object, each as one line. A framed message begins with a brace that
its last byte closes, and has no line end inside a text. So a reader makes one record of it, or fails.
`frame_objects` is the readable twin of ``kafka/frames.c``.

A packed struct has little-endian fields in the order of the declared columns, without gaps.

Messages that hold many records are unfolded before: each record is a message of its own (`Unfolding`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.csv_lines import CsvLines
from streamjoin_ds.source.files.decoders import Blanks
from streamjoin_ds.source.files.inner_records import message_records
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import LineFormat, Lines, parse_lines
from streamjoin_ds.source.files.metric_lines import line_words
from streamjoin_ds.source.records import RawRecords, clipped
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.nested_path import METRIC_LINES, RecordsForm, records_form

__all__ = [
    "FRAMED",
    "FRAME_REASONS",
    "NO_VALUE",
    "RECORD",
    "CsvMessages",
    "FixedMessages",
    "JsonMessages",
    "MessageFormat",
    "RawMessages",
    "Unfolding",
    "byte_ends",
    "bytes_or_text",
    "frame_objects",
    "framed",
    "is_null",
    "message_text",
    "utf8_values",
    "value_text",
]

Unframed: TypeAlias = "tuple[pa.BinaryArray, dict[int, tuple[str, str]]]"
NO_VALUE = "a message without a value"
RECORD = "record"  # the column of unfolded messages that is the record's place in its message
_UNFOLDED_BYTES = 64 << 20  # of records that are unfolded at a time
FRAMED, _EMPTY, _NO_OBJECT, _OPEN, _MORE, _CONTROL = range(6)
FRAME_REASONS = {
    _EMPTY: "an empty message",
    _NO_OBJECT: "not a JSON object",
    _OPEN: "the JSON object does not end",
    _MORE: "more than one JSON object",
    _CONTROL: "a line end inside a text",
}
_BLANKS = b" \t\r\n"
# A text with its escapes; else a bracket, a line end, or a quote that begins a text without an end.
_TOKEN = re.compile(rb'"(?:[^"\\\r\n]|\\[^\r\n])*"|["{}\[\]\r\n]')


class MessageFormat(Protocol):
    """Reads the values of messages."""

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """Return the records of messages: one for each, readable or broken."""


def value_text(value: bytes | None) -> str:
    """Return a message's bytes as text where they are UTF-8, else as ``0x`` and hexadecimal digits."""
    if value is None:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "0x" + value.hex()


def message_text(value: bytes | None) -> str:
    """Return a message's `value_text` for a reject, which is cut where it is long."""
    return clipped(value_text(value))


def is_null(values: pa.Array) -> np.ndarray:
    """Return which values are null."""
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def utf8_values(values: pa.BinaryArray) -> tuple[pa.StringArray, list[int]]:
    """Return bytes as texts, and the places of those that are not UTF-8, which are null among the texts."""
    try:
        return values.cast(pa.string()), []
    except pa.ArrowInvalid:
        broken = [place for place, value in enumerate(values.to_pylist()) if value is not None and not _is_utf8(value)]
    is_good = np.ones(len(values), np.bool_)
    is_good[broken] = False
    masked = pc.if_else(pa.array(is_good), values, pa.scalar(None, values.type))
    return masked.cast(pa.string()), broken


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(maxsize=1)
def _native() -> Any:
    try:
        return import_module("streamjoin_ds._kernels.messages")
    except ImportError:  # a package that was not compiled
        return None


def framed(values: pa.BinaryArray) -> tuple[bytes, np.ndarray]:
    """Return the framed ones of some messages, a line each, and what each message is (`FRAMED`, `FRAME_REASONS`)."""
    data, ends = byte_ends(values)
    frame = frame_objects if _native() is None else _native().frame_objects
    lines, found = frame(data, ends)
    return lines.tobytes(), found


def byte_ends(values: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of an array (uint8), and where in them each value begins (int32; the last ends where they do).

    A null is an empty value.
    """
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1] if ends else np.zeros(1)
    return np.frombuffer(data or b"", np.uint8), np.ascontiguousarray(offsets, np.int32)


def frame_objects(data: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return framed messages, a line each (uint8), and what each message is (int8).

    Message ``i`` is ``data[ends[i]:ends[i + 1]]``. Blanks around it are left out, and line ends between its values
    become blanks.
    """
    text, lines, found = data.tobytes(), [], np.zeros(len(ends) - 1, np.int8)
    for number, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        message = text[begin:end].strip(_BLANKS)
        found[number] = _frame(message)
        if found[number] == FRAMED:
            lines.append(_TOKEN.sub(lambda token: b" " if token[0] in b"\r\n" else token[0], message) + b"\n")
    return np.frombuffer(b"".join(lines), np.uint8), found


def _frame(message: bytes) -> int:
    if not message:
        return _EMPTY
    if not message.startswith(b"{"):
        return _NO_OBJECT
    depth = 0
    for token in _TOKEN.finditer(message):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return FRAMED if token.end() == len(message) else _MORE
        elif token[0] == b'"':
            rest = message[token.end() :]
            return _CONTROL if b"\n" in rest or b"\r" in rest else _OPEN
    return _OPEN


class Unfolding:
    """Makes a message of each record that a message holds: all it has but the value is its message's.

    Parameters
    ----------
    form : RecordsForm
        Where the records are.
    unframed : callable, optional
        Returns messages without a frame of a registry, and what is wrong with those that have none, by place.
    """

    def __init__(self, form: RecordsForm, unframed: Callable[[pa.BinaryArray], Unframed] | None = None) -> None:
        self.form, self._unframed = form, unframed

    @classmethod
    def of(
        cls, stream: Stream, format: str, unframed: Callable[[pa.BinaryArray], Unframed] | None = None
    ) -> Unfolding | None:
        """Return it for the messages of a stream in a format; None where each is one record.

        Raises
        ------
        ArgumentError
            The stream has `records`, and its messages are no JSON.
        """
        records = getattr(stream.source, "records", None)
        form = METRIC_LINES.get(format) if records is None else records_form(records)
        if records is not None and (format != "json" or form in METRIC_LINES.values()):
            msg = f"records of stream {stream.name} names no place in messages of the format {format}"
            hint = f"leave records out, and set format={records if records in METRIC_LINES else 'json'} in the URL"
            raise ArgumentError(msg, name="records", hint=hint)
        return None if form is None else cls(form, unframed)

    @property
    def no_record(self) -> str | None:
        """Why what lies where a record should is none; None where `MessageFormat` says it better."""
        return line_words(self.form.kind)

    def lines(self, values: pa.BinaryArray) -> Iterator[list[bytes | None]]:
        """Yield the records of each message: JSON objects, or what is none, maybe with the reason before it."""
        given, lacking = (values, {}) if self._unframed is None else self._unframed(values)
        for place, value in enumerate(given.to_pylist()):
            if place in lacking:
                yield [f"{lacking[place][1]}: {value_text(values[place].as_py())}".encode()]
            else:
                yield [None] if value is None else [*message_records(value, self.form)]

    def unfolded(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the records of messages, those of one message together, with the column `RECORD` (int64, from 0)."""
        found: list[bytes | None] = []
        counts, first, size_bytes = [0] * 0, 0, 0
        for place, lines in enumerate(self.lines(messages.column("value"))):
            found += lines
            counts.append(len(lines))
            size_bytes += sum(len(line) for line in lines if line is not None)
            if size_bytes >= _UNFOLDED_BYTES:
                yield _with_records(messages.slice(first, len(counts)), found, counts)
                found, counts, first, size_bytes = [], [], place + 1, 0
        if found:
            yield _with_records(messages.slice(first, len(counts)), found, counts)


def _with_records(messages: pa.RecordBatch, lines: list[bytes | None], counts: list[int]) -> pa.RecordBatch:
    """Return a message for each record, where each of some messages has so many."""
    of_message = np.array(counts, np.int64)
    repeated = messages.take(pa.array(np.repeat(np.arange(len(counts)), of_message)))
    place = messages.schema.get_field_index("value")
    repeated = repeated.set_column(place, messages.schema.field(place), pa.array(lines, pa.binary()))
    before = np.cumsum(of_message) - of_message
    numbers = np.arange(len(lines), dtype=np.int64) - np.repeat(before, of_message)
    return repeated.append_column(RECORD, pa.array(numbers))


class JsonMessages:
    """Messages that are JSON objects, as `JsonLines` reads them. A message may be written over several lines.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns to read, with their inside types.
    time : str
        The time column.
    nested : collection of str
        Those columns that are paths into other ones.
    unframed : callable, optional
        Returns messages without a frame of a registry, and what is wrong with those that have none, by place.
    """

    def __init__(
        self,
        schema: pa.Schema,
        time: str,
        nested: Collection[str] = (),
        unframed: Callable[[pa.BinaryArray], Unframed] | None = None,
    ) -> None:
        self._made, self._unframed = partial(JsonLines, schema, time, nested), unframed
        # It remembers how the times were written last, which spares a try and changes no result.
        self._whole = self._made()

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        given, lacking = (values, {}) if self._unframed is None else self._unframed(values)
        data, found = framed(given)
        broken = {int(place): ("", FRAME_REASONS[int(found[place])]) for place in np.flatnonzero(found != FRAMED)}
        broken |= {int(place): ("", NO_VALUE) for place in np.flatnonzero(is_null(values))}
        broken |= lacking
        if not broken:
            try:
                table = self._whole.parse(data)
                if table.num_rows == len(values):
                    return RawRecords(table, len(values))
            except pa.ArrowInvalid:  # one of them is broken: found by the way that tells which
                pass
        return _records(data, np.flatnonzero(found == FRAMED), broken, self._made(), values)


class CsvMessages:
    """Messages that are lines of CSV, as `CsvLines` reads them, without a header. A line end may follow.

    Parameters
    ----------
    header : sequence of str
        The columns of a message, in order.
    schema : pyarrow.Schema
        The columns to read, with their inside types.
    stream : Stream
        The stream: its time column and its dialect.
    """

    def __init__(self, header: Sequence[str], schema: pa.Schema, stream: Stream) -> None:
        dialect = CsvDialect.of(stream.source)
        self._form = CsvLines(list(header), schema, stream.written_time, stream.name, "a message", dialect)
        self._blanks = Blanks.of(stream.source)

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        given = values.to_pylist()
        lines = [None if value is None else value.removesuffix(b"\n").removesuffix(b"\r") for value in given]
        broken = {}
        for place, line in enumerate(lines):
            if line is None:
                broken[place] = ("", NO_VALUE)
            elif not (line if self._blanks is None else line.strip(b" \t")):
                broken[place] = ("", "an empty message")
            elif b"\n" in line or b"\r" in line:
                broken[place] = ("", "a line end inside the message")
        kept = np.setdiff1d(np.arange(len(lines)), np.fromiter(broken, np.int64, len(broken)))
        data = b"".join(lines[place] + b"\n" for place in kept.tolist())
        data = data if self._blanks is None else self._blanks.lines(data)
        return _records(data, kept, broken, self._form, values)


def _records(
    data: bytes, kept: np.ndarray, broken: dict[int, tuple[str, str]], form: LineFormat, values: pa.BinaryArray
) -> RawRecords:
    """Return the records of messages: `kept` of them are the lines of `data`, the others are broken already."""
    lines = Lines.of(data)
    assert lines.count == len(kept)
    raw = parse_lines(lines, form, file="", at_file_start=False)
    index = kept.astype(np.int64) if raw.index is None else kept[raw.index].astype(np.int64)
    for place, column, reason, _ in raw.broken:
        broken[int(kept[place])] = (column, reason)
    told = [
        (place, column, reason, message_text(values[place].as_py()))
        for place, (column, reason) in sorted(broken.items())
    ]
    return RawRecords(raw.table, len(values), index if told else None, told)


class FixedMessages:
    """Messages of one length.

    A whole number, a float and a boolean (a byte, 0 or 1) lie as in C; a timestamp is an int64 in its unit, a date32 an
    int32 of days, a date64 an int64 of milliseconds. Bytes of fixed length stay bytes. There are no nulls.

    Parameters
    ----------
    declared : pyarrow.Schema
        All columns of a message.
    names : sequence of str
        The columns to read.

    Raises
    ------
    ColumnError
        A column has a type without a fixed length.
    """

    def __init__(self, declared: pa.Schema, names: list[str]) -> None:
        self._columns = [declared.field(name) for name in names]
        self._record = np.dtype([(field.name, _field_type(field)) for field in declared])

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        data, ends = byte_ends(values)
        size = self._record.itemsize
        lengths = np.diff(ends)
        is_good = (lengths == size) & ~is_null(values)
        broken = [
            (
                int(place),
                "",
                _reason(int(lengths[place]), size, values[int(place)]),
                message_text(values[int(place)].as_py()),
            )
            for place in np.flatnonzero(~is_good)
        ]
        if broken:
            data, ends = byte_ends(values.filter(pa.array(is_good)))
        records = np.frombuffer(data[ends[0] : ends[-1]], self._record)
        index = np.flatnonzero(is_good)
        for field in self._columns:
            if pa.types.is_boolean(field.type):
                wrong = records[field.name] > 1
                for place in index[wrong].tolist():
                    text = message_text(values[place].as_py())
                    broken.append((place, field.name, "a boolean that is neither 0 nor 1", text))
                index, records = index[~wrong], records[~wrong]
        table = pa.table(
            [_column(records[field.name], field.type) for field in self._columns], pa.schema(self._columns)
        )
        return RawRecords(table, len(values), index if broken else None, sorted(broken))


def _reason(length: int, size: int, value: pa.Scalar) -> str:
    return f"{length} bytes instead of {size}" if value.is_valid else NO_VALUE


def _field_type(field: pa.Field) -> str:
    kind, types = field.type, pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).newbyteorder("<").str)
    if types.is_boolean(kind):
        return "u1"
    if types.is_timestamp(kind) or types.is_date64(kind):
        return "<i8"
    if types.is_date32(kind):
        return "<i4"
    if types.is_fixed_size_binary(kind):
        return f"V{kind.byte_width}"
    msg = f"column '{field.name}' cannot be a field of fixed length: its type is {kind}"
    hint = "a whole number, a float, bool, a timestamp, a date, or fixed_size_binary"
    raise ColumnError(msg, name=field.name, hint=hint)


def _column(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    # A field of a packed struct lies with gaps, maybe not aligned: Arrow wants it in one piece.
    whole = np.ascontiguousarray(values)
    if pa.types.is_boolean(kind):
        return pa.array(whole == 1)
    if pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole.tobytes())])
    numbers = pa.array(whole)
    return numbers if numbers.type == kind else numbers.view(kind)


class RawMessages:
    """Messages that are not looked into. A message without a value is a null.

    Parameters
    ----------
    schema : pyarrow.Schema
        At most one column, of bytes or text.

    Raises
    ------
    ColumnError
        There are several columns, or one of another type.
    """

    def __init__(self, schema: pa.Schema) -> None:
        for place, field in enumerate(schema):
            if place or not bytes_or_text(field.type):
                msg = f"a raw message cannot be column '{field.name}'"
                raise ColumnError(msg, name=field.name, hint="declare one column of binary or string for the value")
        self._schema = schema

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        if not len(self._schema):
            return RawRecords(pa.table({"": values}).select([]), len(values))
        field = self._schema.field(0)
        if not pa.types.is_string(field.type):
            return RawRecords(pa.table([values], pa.schema([field])), len(values))
        texts, wrong = utf8_values(values)
        table = pa.table([texts], pa.schema([field]))
        if not wrong:
            return RawRecords(table, len(values))
        broken = [(place, field.name, "not UTF-8", message_text(values[place].as_py())) for place in wrong]
        index = pa.array(sorted(set(range(len(values))) - set(wrong)), pa.int64())
        return RawRecords(table.take(index), len(values), index.to_numpy(), broken)


def bytes_or_text(kind: pa.DataType) -> bool:
    """Whether a type can hold a message's bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))
