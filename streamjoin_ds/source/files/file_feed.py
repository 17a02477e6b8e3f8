"""Files as a feed: CSV, JSON lines and Parquet, plain or compressed, and spools; one file or a folder that grows."""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.backlog import Backlog
from streamjoin_ds.source.digest import RollingDigest, difference, name_sum
from streamjoin_ds.source.event_time import NO_TIME
from streamjoin_ds.source.feed import ArrayFrontier, Frontier
from streamjoin_ds.source.files.file_scan import FileScan
from streamjoin_ds.source.files.file_watch import changed, late_names, missing, order_error, verify_segment
from streamjoin_ds.source.files.folder_columns import with_row
from streamjoin_ds.source.files.listing import FileEntry, location_of
from streamjoin_ds.source.files.parquet_rows import ParquetRows, content_digest
from streamjoin_ds.source.files.text import open_text
from streamjoin_ds.source.files.text_blocks import TextFormat
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.read_clocks import AheadClock
from streamjoin_ds.source.records import Chunk, inside_form
from streamjoin_ds.source.set_aside import SetAside, aside_chunk, asides_from
from streamjoin_ds.spec.columns import SEQ, TS, as_declared
from streamjoin_ds.spec.event_time import AheadLimit, running_maximum, too_far_ahead
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["FileFeed"]

_TIME = pa.field("time", pa.timestamp("us", tz="UTC"))


@dataclass(slots=True)
class _Reading:
    """How far a file was read: the next record's number and place, and the digest there."""

    seq: int
    offset: int
    line: int
    state: str  # the digest as text
    start: FilePosition | None = None  # where the range begins, if that is in this file
    digest: RollingDigest | None = None  # the same digest, ready to be moved on; None before the first read


class FileFeed:
    """The feed of a stream's files in the stream's order (`file_order.FileOrder`), each from beginning to end.

    A file may grow at its end as long as no later file exists. Once one exists, the file counts as complete. Records
    are lines (rows of Parquet). They are numbered in their order, the broken ones too, so a tuple's number depends only
    on its place. While the last plain file may still grow, a last line without its newline is held back. Compressed
    files and Parquet files are complete when they appear.

    Parameters
    ----------
    stream : Stream
        A stream whose source is a path.
    schema : pyarrow.Schema
        The columns that travel, with their inside types, and the time column as a timestamp.
    ignore_missing : bool
        See `FileScan`.
    root : str, optional
        See `Location`.
    clock : callable
        See `FileScan`.
    """

    endless = False

    def __init__(
        self,
        stream: Stream,
        schema: pa.Schema,
        *,
        ignore_missing: bool = False,
        root: str | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        assert isinstance(stream.source, str)
        self._stream = stream
        self._schema = schema
        self._time_schema = pa.schema([_TIME.with_name(stream.time)])
        self._location = location_of(stream, root)
        self._ignore_missing = ignore_missing
        self._scan = FileScan(stream, self._location, ignore_missing, schema, clock)

    @property
    def held_back_bytes(self) -> int:
        """See `Feed.held_back_bytes`."""
        return self._scan.held_back_bytes

    @property
    def passed_over(self) -> Sequence[str]:
        """See `Feed.passed_over`."""
        return self._location.folders

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

    def time_before(self, position: FilePosition) -> int | None:
        """See `Feed.time_before`."""
        return None if position.time == NO_TIME else position.time

    def has_time(self, rows: int) -> bool:
        """See `Feed.has_time`."""
        return self._scan.has_time(rows)

    def backlog(self, end: FilePosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`: the bytes of all files that are there."""
        return replace(known, size_bytes=self._scan.unread_bytes(end, known.rows))

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        self._scan.freeze()

    def running_max(
        self,
        start: FilePosition,
        end: FilePosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """See `Feed.running_max`. Only the times are read, as the planner reads them, so the order is the same.

        A record that is broken in another column has its time here, though it is no tuple.
        """
        times = FileFeed(self._stream, self._time_schema, ignore_missing=self._ignore_missing)
        running = np.full(end.seq - start.seq, start.time, np.int64)
        known = np.zeros(len(running), np.bool_)
        for chunk in times.read(start, end, files=files):
            places = chunk.tuples.column(SEQ).to_numpy() - start.seq
            running[places], known[places] = chunk.tuples.column(TS).to_numpy(), True
        if ahead is not None:
            running[too_far_ahead(running, known, start.time, ahead)] = start.time
        return running_maximum(running, None, start.time)

    def split(self, start: FilePosition, end: FilePosition, parts: int) -> list[tuple[FilePosition, FilePosition]]:
        """See `Feed.split`: one task reads the whole range."""
        del parts
        return [(start, end)] if end.seq > start.seq else []

    def read(
        self,
        start: FilePosition,
        end: FilePosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`. The files must be those of which the positions were made.

        Raises
        ------
        FileMissingError, FileOrderError, FileChangedError
            A file is gone, has come or has changed.
        FileFormatError, SchemaDriftError
            A file cannot be read, or lacks a column.
        """
        entries = self._entries(start, end, files)
        asides = [] if end is None else asides_from(end.aside, start.seq, end.seq)
        seq, state = start.seq, start.digest
        clock = None if ahead is None else AheadClock(self._stream, start.time, ahead)
        for entry in entries:
            if entry.name == start.file:
                reading = _Reading(seq, start.offset, start.line, state, start)
            elif start.file or entry is not entries[0]:
                reading = _Reading(seq, 0, 0, RollingDigest.after(state).text)
            else:
                reading = _Reading(seq, 0, 0, state)
            closed = entry.name == start.file and start.closed
            for stop in [aside for aside in asides if aside.file == entry.name]:
                yield from self._read_to(entry, reading, stop.offset, clock)
                yield self._aside(stop)
                reading.seq, reading.line = reading.seq + 1, stop.line
                closed = closed or stop.kind == "rest"
            if not closed:
                yield from self._read_to(
                    entry, reading, end.offset if end is not None and entry.name == end.file else None, clock
                )
            seq, state = reading.seq, reading.state
        names = {entry.name for entry in entries}
        for stop in [aside for aside in asides if aside.file not in names]:  # in a file that may be gone
            yield self._aside(stop)
            seq += 1
        if end is not None and end != start and (state != end.digest or seq != end.seq):
            path = entries[-1].path if entries else self._location.path
            raise changed(path, "or another file of the same batch has changed since the batch was planned")

    def _read_to(
        self, entry: FileEntry, reading: _Reading, limit: int | None, clock: AheadClock | None
    ) -> Iterator[Chunk]:
        if limit is not None and limit <= reading.offset:
            return
        if reading.digest is None:
            begun = RollingDigest.at_start_of(reading.state)
            reading.digest = begun if reading.start is None else self._digest_at(entry, reading.start)
        read = self._rows if self._location.format_of(entry) == "parquet" else self._lines
        for chunk in read(entry, reading, reading.digest, limit, clock):
            reading.seq += chunk.count
            yield chunk
        reading.offset, reading.state = limit or 0, reading.digest.text

    def _aside(self, aside: SetAside) -> Chunk:
        return aside_chunk(aside, self._location.path_of(aside.culprit), self._schema, self._stream.time)

    def _digest_at(self, entry: FileEntry, start: FilePosition) -> RollingDigest:
        if start.offset == 0:
            return RollingDigest.at_start_of(start.digest)
        if self._location.format_of(entry) == "parquet":
            digest = RollingDigest.at_start_of(start.digest)
            digest.update(content_digest(entry))
            if digest.text != start.digest:
                raise changed(entry.path, "has changed since its first rows were read")
            return digest
        return verify_segment(entry, start)

    def files_between(self, start: FilePosition, end: FilePosition) -> tuple[str, ...]:
        """See `Feed.files_between`: the files that were there when the positions were made.

        Raises
        ------
        FileMissingError, FileOrderError
            A file is gone, or has come.
        """
        if start.file == end.file:
            return (end.file,) if end.file else ()
        # The planner has just listed them; a process that replays a batch has not.
        names = self._location.names_listed or self._location.names()
        late = {aside.culprit for aside in asides_from(end.aside, start.seq, end.seq) if aside.kind == "late"}
        between = names[bisect_left(names, start.file) : bisect_right(names, end.file)]
        found = [name for name in between if name not in late]
        may_be_gone = self._ignore_missing and start.whole
        for name in (start.file, end.file):
            if name and name not in found and not (name == start.file and may_be_gone):
                raise missing(self._location.path_of(name), self._stream)
        done = sorted({*found, start.file} - {"", end.file})
        expected = difference(difference(end.names, start.names), name_sum(late))
        if len(done) < end.files - start.files - len(late):
            raise missing(os.path.join(self._location.path, "(unknown)"), self._stream)
        surplus = late_names(done, expected, self._location)
        # With quarantine, the plan of the next batch finds files that came after this one was planned, and sets them
        # aside.
        if surplus is None or (surplus and self._stream.on_bad_file != "quarantine"):
            raise order_error(self._location.path_of(surplus[0] if surplus else "(unknown)"), self._stream)
        return tuple(name for name in found if name not in surplus)

    def _entries(
        self, start: FilePosition, end: FilePosition | None, files: Sequence[str] | None
    ) -> Sequence[FileEntry]:
        """Return the files of a range as they are now, the first and the last included."""
        if end is None:
            return [entry for entry in self._location.entries() if entry.name >= start.file]
        entries = []
        for name in self.files_between(start, end) if files is None else files:
            entry = self._location.entry(name)
            if entry is not None:
                entries.append(entry)
            elif not (self._ignore_missing and start.whole and name == start.file != end.file):
                raise missing(self._location.path_of(name), self._stream)
        return entries

    def _lines(
        self, entry: FileEntry, reading: _Reading, digest: RollingDigest, limit: int | None, clock: AheadClock | None
    ) -> Iterator[Chunk]:
        offset, line, seq = reading.offset, reading.line, reading.seq
        stream = self._stream
        folders = self._location.columns_of(entry.path, stream.time)
        form = TextFormat(self._location.format_of(entry), self._schema, stream, entry.path, folders)
        # Only the times, as the planner reads them: a record that is broken in another column has its time here.
        times = TextFormat(self._location.format_of(entry), self._time_schema, stream, entry.path)
        with open_text(entry.path) as text:
            if not form.open(text, None, complete=True):
                return  # empty: no header, no records
            if clock is not None:
                times.open(text, None, complete=True)
            # With quarantine, the planner has decided what is set aside. Then a task must not take broken first records
            # for a drift of the schema: each is a reject by itself.
            at_start = offset == 0 and stream.on_bad_file == "stop"
            if offset == 0 and form.header_bytes:
                digest.update(text.read(0, form.header_bytes))
                offset, line = form.header_bytes, form.header_lines
            blocks = form.blocks(text, offset, limit)
            while data := blocks.next(complete=True):
                digest.update(data)
                lines = blocks.records(data)
                if lines.count:
                    raw = form.parse(lines, at_start)
                    far = None if clock is None else clock.far(times.parse(lines, at_start))
                    at_start = False
                    numbers = lines.numbers + (line + 1)
                    yield inside_form(raw, stream, self._schema, seq, entry.path, numbers, lines.record_text, far)
                    seq += lines.count
                line += lines.lines

    def _rows(
        self, entry: FileEntry, reading: _Reading, digest: RollingDigest, limit: int | None, clock: AheadClock | None
    ) -> Iterator[Chunk]:
        offset, seq = reading.offset, reading.seq
        if entry.size == 0:
            return
        if offset == 0:
            digest.update(content_digest(entry))
        folders = self._location.columns_of(entry.path, self._stream.time)
        schema = as_declared(self._schema, self._stream.schema)
        row, schema = folders.row(schema, self._stream.name, entry.path), folders.rest(schema)
        rows = ParquetRows(entry, schema, self._stream.time, self._stream.name)
        last = rows.count if limit is None else limit
        for first, found in rows.chunks(offset, last, schema.names):
            raw = with_row(found, row)
            numbers = np.arange(first + 1, first + raw.count + 1, dtype=np.int64)
            far = None if clock is None else clock.far(raw)
            yield inside_form(raw, self._stream, self._schema, seq, entry.path, numbers, far=far)
            seq += raw.count
