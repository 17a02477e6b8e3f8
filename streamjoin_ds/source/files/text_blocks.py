"""Cuts a text into blocks of whole lines or frames, and reads the records in the file's format."""

from __future__ import annotations

import pyarrow as pa

from streamjoin_ds.errors import FileFormatError, SchemaDriftError
from streamjoin_ds.source.files.csv_lines import CsvLines, csv_header
from streamjoin_ds.source.files.folder_columns import NO_COLUMNS, FolderColumns, with_row
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import LineFormat, Lines, first_line, parse_lines
from streamjoin_ds.source.files.spool_records import SPOOL_COLUMNS, SpoolBlocks, SpoolRecords, parse_spooled
from streamjoin_ds.source.files.text import Text
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.columns import as_declared
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spool.frame import HEADER_BYTES, header_facts

__all__ = ["BLOCK_BYTES", "MAX_LINE_BYTES", "LineBlocks", "TextFormat"]


BLOCK_BYTES = 4 << 20  # bytes that are read at a time
MAX_LINE_BYTES = 64 << 20  # bytes of a line, at most
_HEADER_BYTES = 1 << 16  # bytes in which a header is looked for first
_DRIFT_RECORDS = 3  # records without an event time that tell that a file has no time column, at least


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
    """

    def __init__(self, text: Text, offset: int, limit: int | None, path: str) -> None:
        self._text = text
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
                msg = f"a line of {self._path} is longer than {MAX_LINE_BYTES} bytes"
                raise FileFormatError(msg, name=self._path, hint="check the format: each record must be one line")
            cut = len(self._rest) if self.ended and complete else self._rest.rfind(b"\n") + 1
            cut = cut if long is None else long
            if cut or self.ended:
                block, self._rest = self._rest[:cut], self._rest[cut:]
                return block
            if self._fault is not None:
                raise self._fault

    def records(self, block: bytes) -> Lines:
        """Return the records of a block."""
        return Lines.of(block)

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
        The columns to parse.
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
        self._kind = kind
        schema = as_declared(schema, stream.schema)
        self._row = folders.row(schema, stream.name, path)
        schema = folders.rest(schema)
        self._schema = schema
        self._time, self._stream, self._delimiter = stream.time, stream.name, stream.delimiter
        self._path = path
        self.header_bytes = self.header_lines = 0
        self._form: LineFormat | None = JsonLines(schema, stream.time) if kind == "json" else None
        self._salt = 0
        self._payload = JsonLines(pa.schema([c for c in schema if c.name not in SPOOL_COLUMNS]), stream.time)

    def open(self, text: Text, limit: int | None, complete: bool) -> bool:
        """Read the header, if the format has one. Return False where there is no whole header yet."""
        if self._form is not None:
            return True
        if self._kind == "spool":
            return self._open_segment(text, complete)
        size, head = _HEADER_BYTES, b""
        while True:
            head = text.read(0, size if limit is None else min(size, limit))
            line = first_line(head)
            if line is None and text.fault is not None:
                raise text.fault
            if line is not None or len(head) < size or size >= MAX_LINE_BYTES:
                break
            size *= 16
        if line is None and not (complete and head):
            return False
        line = head if line is None else line
        header = csv_header(line, self._path, self._delimiter)
        self._form = CsvLines(header, self._schema, self._time, self._stream, self._path, self._delimiter)
        self.header_bytes, self.header_lines = len(line), 1
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
        return LineBlocks(text, offset, limit, self._path)

    def parse(self, lines: Lines, at_file_start: bool) -> RawRecords:
        """Return the records of these lines; see `lines.parse_lines`."""
        if isinstance(lines, SpoolRecords):
            raw = parse_spooled(lines, self._payload, self._schema, file=self._path, at_file_start=at_file_start)
        else:
            assert self._form is not None
            raw = parse_lines(lines, self._form, file=self._path, at_file_start=at_file_start)
        if self._kind != "csv" and self._time not in SPOOL_COLUMNS and at_file_start and lines.count >= _DRIFT_RECORDS:
            times = raw.table.column(self._time)
            if len(times) and times.null_count == len(times) and f'"{self._time}"'.encode() not in lines.data:
                msg = f"the file {self._path} of stream {self._stream} has no column '{self._time}'"
                raise SchemaDriftError(
                    msg, name=self._time, hint="name the column of the event time with time; every record needs it"
                )
        return with_row(raw, self._row)
