"""Blocks of a text: whole lines of a file, or whole frames of a spool's segment, and their records.

A text is cut into blocks of whole lines or frames, and each block's records are read in the file's format. The frames
of a spool hold messages, whose payloads are JSON objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ColumnError, FileFormatError, SchemaDriftError
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.csv_lines import CsvHead, CsvLines
from streamjoin_ds.source.files.decoders import MAX_LINE_BYTES, too_long
from streamjoin_ds.source.files.file_names import NO_COLUMNS, FolderColumns, with_row
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import LineFormat, Lines, parse_lines
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.files.metric_lines import LINE_FORMATS, line_words
from streamjoin_ds.source.files.text import Text, open_text
from streamjoin_ds.source.records import RawRecords, clipped
from streamjoin_ds.spec.columns import TIMESTAMP, as_declared
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.nested_path import inner_path
from streamjoin_ds.spool.segment import FRAME_COLUMNS, HEADER_BYTES, Frames, header_facts, torn_segment, walk

__all__ = [
    "BLOCK_BYTES",
    "MAX_LINE_BYTES",
    "SPOOL_COLUMNS",
    "LineBlocks",
    "SpoolBlocks",
    "SpoolRecords",
    "TextFormat",
    "parse_spooled",
    "payload_lines",
    "segment_payloads",
]

_READ_BYTES = 4 << 20  # bytes that are read at a time
_OPEN, _CLOSE = b"{}"

# Columns that come of the frame and not of the payload, with the types in which they are read.
SPOOL_COLUMNS = dict(zip(FRAME_COLUMNS, (TIMESTAMP, pa.string(), pa.int64(), pa.bool_(), pa.int32()), strict=True))
BLOCK_BYTES = 4 << 20  # bytes that are read at a time
_HEADER_BYTES = 1 << 16  # bytes in which a header is looked for first
_DRIFT_RECORDS = 3  # records without an event time that tell that a file has no time column, at least


@dataclass(frozen=True, slots=True)
class SpoolRecords(Lines):
    """The records of a stretch of a segment: `Lines` by frames. The bytes of a record end where the next one begins.

    Attributes
    ----------
    frames : Frames
        What the records hold.
    """

    frames: Frames

    @classmethod
    def among(cls, data: bytes, frames: Frames) -> SpoolRecords:
        """Return the records that were found in these bytes."""
        count = len(frames.starts)
        starts = np.array(frames.starts, np.int64)
        ends = np.append(starts[1:], len(data)) if count else starts
        return cls(data, starts, ends, np.arange(count, dtype=np.int64), count, b"", frames)

    def record_text(self, record: int) -> str:
        """Return one record's payload as text. Bytes that are not UTF-8 are replaced."""
        return self.frames.payloads[record].decode("utf-8", "replace")


class SpoolBlocks:
    """Cuts a segment into blocks of whole frames, as `LineBlocks` cuts a text into lines.

    Of a segment that is still written only what lies before a mark is given: what comes after may be torn, and a power
    cut may take it.

    Parameters
    ----------
    text : Text
        Where the bytes come from.
    salt : int
        The segment's salt.
    offset : int
        Byte at which to begin, the first of a frame.
    limit : int or None
        Byte before which to stop; None to stop at the segment's end.
    path : str
        The segment's path, for errors.
    """

    def __init__(self, text: Text, salt: int, offset: int, limit: int | None, path: str) -> None:
        self._text, self._salt, self._limit, self._path = text, salt, limit, path
        self._at = self._read_to = offset
        self._rest = b""
        self._frames = Frames()
        self.ended = False

    @property
    def held_bytes(self) -> int:
        """Number of bytes after the last mark, once the end was reached."""
        return len(self._rest)

    def next(self, complete: bool) -> bytes:
        """Return the next block; empty at the end. Of a `complete` segment all whole frames are given.

        Raises
        ------
        FileFormatError
            A complete segment ends in the middle of a frame. The frames before that place are given first.
        """
        while True:
            if not self.ended:
                want = _READ_BYTES if self._limit is None else min(_READ_BYTES, self._limit - self._read_to)
                self.ended = self._read(want) < _READ_BYTES
            found = walk(self._rest, self._salt, self._at, ended=self.ended)
            if not found.end and self._rest and self.ended and complete:
                found = self._damaged_to_the_limit()
            if not complete:
                found.cut_at_mark()
            if found.end:
                block, self._rest = self._rest[: found.end], self._rest[found.end :]
                self._at += found.end
                self._frames = found
                return block
            if self.ended:
                if complete and self._rest:
                    raise torn_segment(self._path, self._at)
                return b""

    def _read(self, size: int) -> int:
        data = self._text.read(self._read_to, size) if size > 0 else b""
        self._read_to += len(data)
        self._rest += data
        return len(data)

    def _damaged_to_the_limit(self) -> Frames:
        """Return the rest as one damaged record, where a valid frame follows at the limit: it is after the limit."""
        size = len(self._rest)
        while True:
            ended = self._read(_READ_BYTES) < _READ_BYTES
            found = walk(self._rest, self._salt, self._at, ended=ended, limit=size)
            if found.end or ended:
                self._rest = self._rest[:size]
                return found

    def records(self, block: bytes) -> SpoolRecords:
        """Return the records of the block that `next` returned last."""
        return SpoolRecords.among(block, self._frames)


def payload_lines(payloads: list[bytes]) -> Lines:
    """Return payloads as lines, one each. A line end within a payload becomes a tab, which means the same in JSON."""
    text = b"\n".join(payloads) + b"\n" if payloads else b""
    if text.count(b"\n") != len(payloads) or b"\r" in text:
        payloads = [payload.replace(b"\n", b"\t").replace(b"\r", b"\t") for payload in payloads]
        text = b"\n".join(payloads) + b"\n"
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)) + 1)
    starts = np.append(np.zeros(1, np.int64), ends[:-1])[: len(payloads)]
    return Lines(text, starts, ends, np.arange(len(payloads), dtype=np.int64), len(payloads), b"")


def parse_spooled(
    records: SpoolRecords, form: JsonLines, schema: pa.Schema, *, file: str, at_file_start: bool
) -> RawRecords:
    """Return records with the columns of `schema`: those of the payload by `form`, the others of the frame.

    A payload that is no JSON object is broken, and so are bytes that do not fit their checksum.

    Raises
    ------
    SchemaDriftError
        See `parse_lines`.
    ColumnError
        A column of the frame is asked for in a type that it cannot have.
    """
    frames = records.frames
    broken = [
        (place, "", reason, clipped(records.record_text(place))) for place, reason in sorted(frames.damaged.items())
    ]
    index = np.setdiff1d(np.arange(records.count, dtype=np.int64), np.fromiter(frames.damaged, np.int64))
    table = pa.table({})
    if any(column.name not in SPOOL_COLUMNS for column in schema):
        payloads = frames.payloads if not broken else [frames.payloads[place] for place in index.tolist()]
        lines = payload_lines(payloads)
        suspects = _no_objects(lines)
        for place in suspects:
            column, reason = form.reason(payloads[place])
            broken.append((int(index[place]), column, reason, clipped(records.record_text(int(index[place])))))
        if suspects:
            kept = np.setdiff1d(np.arange(lines.count, dtype=np.int64), np.array(suspects, np.int64))
            index, payloads = index[kept], [payloads[place] for place in kept.tolist()]
            lines = payload_lines(payloads)
        raw = parse_lines(lines, form, file=file, at_file_start=at_file_start)
        broken += [
            (int(index[place]), column, reason, clipped(records.record_text(int(index[place]))))
            for place, column, reason, _ in raw.broken
        ]
        index = index if raw.index is None else index[raw.index]
        table = raw.table
    columns = [_of_frame(frames, index, c) if c.name in SPOOL_COLUMNS else table.column(c.name) for c in schema]
    made = pa.table(columns, names=schema.names)
    return RawRecords(made, records.count, None if len(index) == records.count else index, sorted(broken))


def _no_objects(lines: Lines) -> list[int]:
    """Return the lines that do not begin with ``{`` and end with ``}``, blanks aside.

    A broken payload could go on in the next one, and two objects in one payload would make up for the lost row. Of
    payloads that begin and end so, none can go on in the next: an object cannot follow another without a comma.
    """
    text = np.frombuffer(lines.data, np.uint8)
    if not lines.count:
        return []
    first = text[lines.starts] == _OPEN
    last = text[np.maximum(lines.ends - 2, lines.starts)] == _CLOSE
    found = []
    for place in np.flatnonzero(~(first & last)).tolist():
        payload = lines.text(place, place + 1).strip(b" \t\r\n")
        if not (payload.startswith(b"{") and payload.endswith(b"}")):
            found.append(place)
    return found


def _of_frame(frames: Frames, index: np.ndarray, column: pa.Field) -> pa.Array:
    kind = SPOOL_COLUMNS[column.name]
    places = index.tolist()
    if column.name == "spool_topic":
        topics = frames.topics()
        values = pa.array([topics[place].decode("utf-8", "replace") for place in places], kind)
    elif column.name in ("spool_retained", "spool_qos"):
        told, part = frames.deliveries(), int(column.name == "spool_qos")
        values = pa.array([None if (one := told[place]) is None else one[part] for place in places], kind)
    else:
        numbers = frames.received_us() if column.name == "spool_received" else frames.numbers()
        values = pa.array([numbers[place] for place in places], pa.int64()).cast(kind)
    try:
        return values.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        msg = f"the column '{column.name}' of a spool cannot have the type {column.type}"
        raise ColumnError(msg, name=column.name, hint=f"its type is {kind}") from None


class LineBlocks:
    """Cuts a text into blocks of whole lines.

    Parameters
    ----------
    text : Text
        Where the bytes come from.
    offset : int
        Byte at which to begin, the first of a line.
    limit : int or None
        Byte before which to stop; None to stop at the text's end.
    path : str
        The file's path, for errors.
    comment : str, optional
        What a line begins with that is no record.
    """

    def __init__(self, text: Text, offset: int, limit: int | None, path: str, comment: str | None = None) -> None:
        self._text = text
        self._comment = comment
        self._read_to = offset
        self._limit = limit
        self._path = path
        self._rest = b""
        self._fault: FileFormatError | None = None
        self.ended = False

    @property
    def held_bytes(self) -> int:
        """Number of bytes after the last newline, once the end was reached."""
        return len(self._rest)

    def next(self, complete: bool) -> bytes:
        """Return the next block; empty at the end. Give a last line without a newline only if the text is `complete`.

        Raises
        ------
        FileFormatError
            A line has more than `MAX_LINE_BYTES`, or the text cannot be read any further. The lines before that place
            are given first.
        """
        while True:
            if not self.ended and self._fault is None:
                want = BLOCK_BYTES if self._limit is None else min(BLOCK_BYTES, self._limit - self._read_to)
                data = self._text.read(self._read_to, want) if want > 0 else b""
                self._fault = self._text.fault if want > 0 else None
                self._read_to += len(data)
                self.ended = len(data) < BLOCK_BYTES and self._fault is None
                self._rest += data
            long = self._long_line()
            if long == 0:
                raise too_long(self._path)
            cut = len(self._rest) if self.ended and complete else self._rest.rfind(b"\n") + 1
            cut = cut if long is None else long
            if cut or self.ended:
                block, self._rest = self._rest[:cut], self._rest[cut:]
                return block
            if self._fault is not None:
                raise self._fault

    def records(self, block: bytes) -> Lines:
        """Return the records of a block."""
        return Lines.of(block, self._comment)

    def _long_line(self) -> int | None:
        """Return where in the bytes not yet given the first line that is too long begins; None where there is none.

        The line that is found is the same wherever reading began.
        """
        begin = 0
        while len(self._rest) - begin > MAX_LINE_BYTES:
            end = self._rest.rfind(b"\n", begin, begin + MAX_LINE_BYTES + 1)
            if end < 0:
                return begin
            begin = end + 1
        return None


class TextFormat:
    """The format of one file's records. CSV and a spool need the file's header, which `open` reads.

    Parameters
    ----------
    kind : {"csv", "json", "spool"}
        The file's format.
    schema : pyarrow.Schema
        The columns that are wanted; those are parsed that `read_columns` says.
    stream : Stream
        The stream: its time column and its delimiter.
    path : str
        The file's path, for errors.
    folders : FolderColumns
        The columns that the file's folders name: the file need not have them.

    Raises
    ------
    SchemaDriftError
        A folder names a value that its column cannot have.
    """

    def __init__(
        self, kind: str, schema: pa.Schema, stream: Stream, path: str, folders: FolderColumns = NO_COLUMNS
    ) -> None:
        # The messages of a spool whose records lie inside of them come as lines of JSON.
        self._kind = "json" if (kind == "spool" and stream.files.records is not None) or kind in LINE_FORMATS else kind
        self._no_record = line_words(kind if stream.files.records is None else stream.files.records_form.kind)
        schema = as_declared(read_columns(stream, schema), stream.schema)
        self._row = folders.row(schema, stream.name, path)
        schema = folders.rest(schema)
        self._schema = schema
        self._time, self._stream, self._files = stream.written_time, stream.name, stream.files
        self._declared = folders.rest(stream.schema).names if isinstance(stream.schema, pa.Schema) else []
        self._made = [] if stream.time_step is None else [stream.time]
        # What a record with an event time says in JSON: the innermost key of a path.
        path_to = inner_path(self._time) if self._time in stream.nested else None
        self._time_key = (
            self._time if path_to is None else [p for p in (path_to[0], *path_to[1]) if isinstance(p, str)][-1]
        )
        self._path = path
        self.header_bytes = self.header_lines = 0
        self._form: LineFormat | None = None
        if self._kind == "json":
            self._form = JsonLines(schema, self._time, stream.nested)
        elif self._kind == "spool":
            payload = pa.schema([column for column in schema if column.name not in SPOOL_COLUMNS])
            self._payload, self._salt = JsonLines(payload, self._time, stream.nested), 0

    @property
    def lacking(self) -> list[str]:
        """The columns that the file's header lacks, once `open` has read it."""
        return self._form.lacking if isinstance(self._form, CsvLines) else []

    def open(self, text: Text, complete: bool) -> bool:
        """Read the header, if the format has one. Return False where there is no whole header yet."""
        if self._form is not None:
            return True
        if self._kind == "spool":
            return self._open_segment(text, complete)
        size = _HEADER_BYTES
        while True:
            data = text.read(0, size)
            is_all = len(data) < size or size >= MAX_LINE_BYTES
            head = CsvHead.of(
                data,
                self._files,
                self._declared,
                self._path,
                complete=complete and is_all and text.fault is None,
                made=self._made,
            )
            if head is None and text.fault is not None:
                raise text.fault
            if head is not None or is_all:
                break
            size *= 16
        if head is None:
            return False
        dialect = CsvDialect.of(self._files)
        names = head.names_for(self._schema.names)
        self._form = CsvLines(names, self._schema, self._time, self._stream, self._path, dialect)
        self.header_bytes, self.header_lines = head.size_bytes, head.lines
        return True

    def _open_segment(self, text: Text, complete: bool) -> bool:
        head = text.read(0, HEADER_BYTES)
        facts = header_facts(head)
        if facts is None:
            if not head or (len(head) < HEADER_BYTES and not complete):
                return False
            msg = f"the file {self._path} of stream {self._stream} is no segment of a spool, or its header is damaged"
            raise FileFormatError(msg, name=self._path, hint="restore the file, or set the format of the stream")
        self._salt, self.header_bytes = facts[0], HEADER_BYTES
        return True

    def blocks(self, text: Text, offset: int, limit: int | None) -> LineBlocks | SpoolBlocks:
        """Return the blocks of whole records from a byte on; `open` was called and returned True."""
        if self._kind == "spool":
            return SpoolBlocks(text, self._salt, offset, limit, self._path)
        return LineBlocks(text, offset, limit, self._path, self._files.comment if self._kind == "csv" else None)

    def parse(self, lines: Lines, at_file_start: bool) -> RawRecords:
        """Return the records of these lines; see `lines.parse_lines`."""
        if isinstance(lines, SpoolRecords):
            raw = parse_spooled(lines, self._payload, self._schema, file=self._path, at_file_start=at_file_start)
        else:
            assert self._form is not None
            raw = parse_lines(lines, self._form, file=self._path, at_file_start=at_file_start)
            raw = raw.with_reason(self._no_record)
        is_read = self._time in self._schema.names and self._time not in SPOOL_COLUMNS
        if self._kind != "csv" and is_read and at_file_start and lines.count >= _DRIFT_RECORDS:
            times = raw.table.column(self._time)
            if len(times) and times.null_count == len(times) and f'"{self._time_key}"'.encode() not in lines.data:
                msg = f"the file {self._path} of stream {self._stream} has no column '{self._time}'"
                raise SchemaDriftError(
                    msg, name=self._time, hint="name the column of the event time with time; every record needs it"
                )
        return with_row(raw, self._row)


def segment_payloads(entry: FileEntry, stream: Stream, most: int) -> list[bytes]:
    """Return the payloads in the first `most` bytes of a segment of a spool; none that is damaged."""
    form = TextFormat("spool", pa.schema([]), stream, entry.path)
    found: list[bytes] = []
    with open_text(entry) as text:
        if form.open(text, complete=False):
            blocks = form.blocks(text, form.header_bytes, most)
            while data := blocks.next(complete=False):
                records = blocks.records(data)
                assert isinstance(records, SpoolRecords)
                payloads = enumerate(records.frames.payloads)
                found += [payload for place, payload in payloads if place not in records.frames.damaged]
    return found
