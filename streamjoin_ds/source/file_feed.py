"""Files as a feed: CSV, JSON lines and Parquet, plain or gz, one file or a folder that grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.digest import RollingDigest, name_sum
from streamjoin_ds.source.event_time import event_times
from streamjoin_ds.source.feed import ArrayFrontier, Frontier
from streamjoin_ds.source.file_scan import FileScan
from streamjoin_ds.source.file_watch import changed, missing, order_error, verify_segment
from streamjoin_ds.source.line_blocks import LineBlocks, TextFormat
from streamjoin_ds.source.lines import Lines
from streamjoin_ds.source.listing import FileEntry, Location
from streamjoin_ds.source.parquet_rows import ParquetRows, content_digest
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form
from streamjoin_ds.source.text import open_text
from streamjoin_ds.spec.ahead import AheadLimit, too_far_ahead
from streamjoin_ds.spec.bound import SEQ, TS
from streamjoin_ds.spec.order import running_maximum
from streamjoin_ds.spec.stream import Stream

__all__ = ["FileFeed"]

_TIME = pa.field("time", pa.timestamp("us", tz="UTC"))


class FileFeed:
    """A stream's files, in the order of their names, each from its beginning to its end.

    A file may grow at its end as long as no later one exists; then it counts as complete. Records are lines (rows of
    Parquet) and are numbered as they come, the broken ones too, so that a tuple's number depends on nothing but its
    place. While the last plain file may still grow, a last line without its newline is held back. Compressed files and
    Parquet files are complete when they appear.

    Parameters
    ----------
    stream : Stream
        Its source is a path.
    schema : pyarrow.Schema
        The columns that travel, with their types inside the house; the time column as a timestamp.
    ignore_missing : bool
        See `FileScan`.
    """

    endless = False

    def __init__(self, stream: Stream, schema: pa.Schema, *, ignore_missing: bool = False) -> None:
        assert isinstance(stream.source, str)
        self._stream = stream
        self._schema = schema
        self._time_schema = pa.schema([_TIME.with_name(stream.time)])
        self._location = Location(stream.source, stream.format, stream.name)
        self._ignore_missing = ignore_missing
        self._scan = FileScan(stream, self._location, ignore_missing)

    @property
    def held_back_bytes(self) -> int:
        """See `Feed.held_back_bytes`."""
        return self._scan.held_back_bytes

    def initial(self) -> FilePosition:
        """See `Feed.initial`."""
        return FilePosition()

    def position(self, facts: object) -> FilePosition:
        """See `Feed.position`."""
        return FilePosition.from_facts(facts, self._stream.name)

    def frontier(self, start: FilePosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`."""
        return ArrayFrontier(self._scan.running_max(start, limit, ahead))

    def advance(self, start: FilePosition, rows: int) -> FilePosition:
        """See `Feed.advance`."""
        return self._scan.advance(start, rows)

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        self._scan.freeze()

    def running_max(self, start: FilePosition, end: FilePosition, ahead: AheadLimit | None = None) -> np.ndarray:
        """See `Feed.running_max`: the times alone are read, as the planner did, so that it is the same order.

        A record that is broken in another column has its time here, and is not among the tuples.
        """
        times = FileFeed(self._stream, self._time_schema, ignore_missing=self._ignore_missing)
        running = np.full(end.seq - start.seq, start.time, np.int64)
        known = np.zeros(len(running), np.bool_)
        for chunk in times.read(start, end):
            places = chunk.tuples.column(SEQ).to_numpy() - start.seq
            running[places], known[places] = chunk.tuples.column(TS).to_numpy(), True
        if ahead is not None:
            running[too_far_ahead(running, known, start.time, ahead)] = start.time
        return running_maximum(running, None, start.time)

    def split(self, start: FilePosition, end: FilePosition, parts: int) -> list[tuple[FilePosition, FilePosition]]:
        """See `Feed.split`: files are read by one task, from front to back."""
        del parts
        return [(start, end)] if end.seq > start.seq else []

    def read(self, start: FilePosition, end: FilePosition | None, ahead: AheadLimit | None = None) -> Iterator[Chunk]:
        """See `Feed.read`; the bytes must be those of which the positions were made.

        Raises
        ------
        FileMissingError, FileOrderError, FileChangedError
            They are not.
        FileFormatError, SchemaDriftError
            A file cannot be read, or lacks a column.
        """
        entries = self._files_between(start, end)
        seq = start.seq
        clock = None if ahead is None else _AheadClock(self._stream, start.time, ahead)
        digest: RollingDigest | None = None
        for entry in entries:
            offset, line = 0, 0
            if entry.name == start.file:
                offset, line = start.offset, start.line
                digest = self._digest_at(entry, start)
            elif digest is not None:
                digest = digest.next_file()
            else:
                digest = RollingDigest.after(start.digest) if start.file else RollingDigest()
            limit = end.offset if end is not None and entry.name == end.file else None
            reading = self._rows if self._location.format_of(entry) == "parquet" else self._lines
            for chunk in reading(entry, offset, line, limit, seq, digest, clock):
                seq += chunk.count
                yield chunk
        if end is not None and end != start and (digest is None or digest.text != end.digest or seq != end.seq):
            path = entries[-1].path if entries else self._location.path
            raise changed(path, "or one read with it is not what it was when the batch was planned")

    def _digest_at(self, entry: FileEntry, start: FilePosition) -> RollingDigest:
        if self._location.format_of(entry) == "parquet":
            digest = RollingDigest.at_start_of(start.digest)
            digest.update(content_digest(entry))
            if digest.text != start.digest:
                raise changed(entry.path, "is not what it was when its first rows were read")
            return digest
        return verify_segment(entry, start)

    def _files_between(self, start: FilePosition, end: FilePosition | None) -> Sequence[FileEntry]:
        """The files of a range, first and last included; exactly those that were there when it was planned."""
        entries = [entry for entry in self._location.entries() if entry.name >= start.file]
        if end is None:
            return entries
        entries = [entry for entry in entries if entry.name <= end.file]
        names = {entry.name for entry in entries}
        may_be_gone = self._ignore_missing and start.whole and start.file != end.file
        for name in (start.file, end.file):
            if name and name not in names and not (name == start.file and may_be_gone):
                raise missing(path=f"{self._location.path}/{name}", stream=self._stream)
        done = [name for name in sorted(names | {start.file}) if name and name < end.file]
        expected = f"{(int(end.names, 16) - int(start.names, 16)) % (1 << 64):016x}"
        if len(done) < end.files - start.files:
            raise missing(path=f"(unknown) in {self._location.path}", stream=self._stream)
        if name_sum(done) != expected:
            surplus = f"{(int(name_sum(done), 16) - int(expected, 16)) % (1 << 64):016x}"
            late = next((name for name in done if name_sum([name]) == surplus), "(unknown)")
            raise order_error(path=f"{self._location.path}/{late}", stream=self._stream)
        return entries

    def _lines(
        self,
        entry: FileEntry,
        offset: int,
        line: int,
        limit: int | None,
        seq: int,
        digest: RollingDigest,
        clock: _AheadClock | None,
    ) -> Iterator[Chunk]:
        stream = self._stream
        form = TextFormat(self._location.format_of(entry), self._schema, stream, entry.path)
        # The times alone, as the planner reads them: a record that is broken in another column has its time.
        times = TextFormat(self._location.format_of(entry), self._time_schema, stream, entry.path)
        with open_text(entry.path) as text:
            if not form.open(text, None, complete=True):
                return  # empty: no header, no records
            if clock is not None:
                times.open(text, None, complete=True)
            at_start = offset == 0
            if at_start and form.header_bytes:
                digest.update(text.read(0, form.header_bytes))
                offset, line = form.header_bytes, 1
            blocks = LineBlocks(text, offset, limit, entry.path)
            while data := blocks.next(complete=True):
                digest.update(data)
                lines = Lines.of(data)
                if lines.count:
                    raw = form.parse(lines, at_start)
                    far = None if clock is None else clock.far(times.parse(lines, at_start))
                    at_start = False
                    numbers = lines.numbers + (line + 1)
                    yield inside_form(raw, stream, self._schema, seq, entry.path, numbers, lines.record_text, far)
                    seq += lines.count
                line += lines.lines

    def _rows(
        self,
        entry: FileEntry,
        offset: int,
        line: int,
        limit: int | None,
        seq: int,
        digest: RollingDigest,
        clock: _AheadClock | None,
    ) -> Iterator[Chunk]:
        if entry.size == 0:
            return
        if offset == 0:
            digest.update(content_digest(entry))
        rows = ParquetRows(entry, self._schema, self._stream.time, self._stream.name)
        last = rows.count if limit is None else limit
        for first, raw in rows.chunks(offset, last, self._schema.names):
            numbers = np.arange(first + 1, first + raw.count + 1, dtype=np.int64)
            far = None if clock is None else clock.far(raw)
            yield inside_form(raw, self._stream, self._schema, seq, entry.path, numbers, far=far)
            seq += raw.count
        del line


class _AheadClock:
    """Tells of one chunk of records after the other which are too far ahead of their stream."""

    def __init__(self, stream: Stream, before: int, limit: AheadLimit) -> None:
        self._stream, self._largest, self._limit = stream, before, limit

    def far(self, raw: RawRecords) -> np.ndarray:
        """Which of the chunk's records are; moves on past it."""
        ts, valid = event_times(raw.table.column(self._stream.time).combine_chunks(), self._stream.time_unit)
        if raw.index is not None:
            all_ts, all_valid = np.zeros(raw.count, np.int64), np.zeros(raw.count, bool)
            all_ts[raw.index], all_valid[raw.index] = ts, valid
            ts, valid = all_ts, all_valid
        far = too_far_ahead(ts, valid, self._largest, self._limit)
        if valid.any():
            self._largest = int(running_maximum(ts, valid & ~far, self._largest)[-1])
            self._limit = AheadLimit(self._limit.max_us)
        return far
