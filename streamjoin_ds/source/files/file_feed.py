"""Files as a feed: CSV, JSON lines and Parquet, plain or compressed, and spools; one file or a folder that grows.

A stream of files has one order of all of them. With ``partition_by`` each file, or each sub-folder, is a partition with
an order of its own.
"""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.place import is_local, local_path
from streamjoin_ds.errors import FileMissingError, OffsetError, StreamJoinError
from streamjoin_ds.source.feed import ArrayFrontier, Backlog, Frontier, StreamClock
from streamjoin_ds.source.files.file_names import is_label, with_row
from streamjoin_ds.source.files.file_scan import FileScan
from streamjoin_ds.source.files.file_watch import changed, late_names, missing, order_error, verify_segment
from streamjoin_ds.source.files.listing import FileEntry, Location, location_of
from streamjoin_ds.source.files.row_files import RowFile, content_digest
from streamjoin_ds.source.files.text import open_text
from streamjoin_ds.source.files.text_blocks import TextFormat
from streamjoin_ds.source.position import (
    FilePosition,
    Position,
    RollingDigest,
    SetAside,
    aside_chunk,
    asides_from,
    difference,
    name_sum,
)
from streamjoin_ds.source.records import NO_TIME, Chunk, inside_form, time_schema
from streamjoin_ds.spec.columns import SEQ, TS, as_declared
from streamjoin_ds.spec.event_time import AheadLimit, running_maximum, too_far_ahead
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["FileFeed", "FilePartitions", "partition_streams"]


class _Reading(Struct):
    """How far a file was read: the next record's number and place, and the digest there."""

    seq: int
    offset: int
    line: int
    state: str  # the digest as text
    start: FilePosition | None = None  # where the range begins, if that is in this file
    digest: RollingDigest | None = None  # the same digest, ready to be moved on; None before the first read


class FileFeed:
    """The feed of a stream's files in the stream's order (`FileOrder`), each from beginning to end.

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
        self._stream = stream
        self._schema = schema
        self._time_schema = time_schema(stream)
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
        # Local times depend on which of those before them count, so there it is decided with them.
        limit = ahead if self._stream.has_local_times else None
        for chunk in times.read(start, end, limit, files):
            places = chunk.tuples.column(SEQ).to_numpy() - start.seq
            running[places], known[places] = chunk.tuples.column(TS).to_numpy(), True
        if ahead is not None and limit is None:
            running[too_far_ahead(running, known, start.time, ahead)] = start.time
        return running_maximum(running, None, start.time)

    def split(self, start: FilePosition, end: FilePosition, parts: int) -> list[tuple[FilePosition, FilePosition]]:
        """See `Feed.split`: it is cut where the planner has read ahead; a batch that is planned anew has one range."""
        if end.seq == start.seq:
            return []
        cuts = self._scan.cuts(start, end, parts)
        return list(zip([start, *(after for _, after in cuts)], [*(before for before, _ in cuts), end], strict=True))

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
        clock = StreamClock.of(self._stream, start, ahead)
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
        self, entry: FileEntry, reading: _Reading, limit: int | None, clock: StreamClock | None
    ) -> Iterator[Chunk]:
        if limit is not None and limit <= reading.offset:
            return
        if reading.digest is None:
            begun = RollingDigest.at_start_of(reading.state)
            reading.digest = begun if reading.start is None else self._digest_at(entry, reading.start)
        read = self._rows if self._location.has_rows(entry) else self._lines
        for chunk in read(entry, reading, reading.digest, limit, clock):
            reading.seq += chunk.count
            yield chunk
        reading.offset, reading.state = limit or 0, reading.digest.text

    def _aside(self, aside: SetAside) -> Chunk:
        return aside_chunk(aside, self._location.path_of(aside.culprit), self._schema, self._stream.time)

    def _digest_at(self, entry: FileEntry, start: FilePosition) -> RollingDigest:
        if start.offset == 0:
            return RollingDigest.at_start_of(start.digest)
        if self._location.has_rows(entry):
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
        if surplus is None or (surplus and not self._stream.quarantines):
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
        self, entry: FileEntry, reading: _Reading, digest: RollingDigest, limit: int | None, clock: StreamClock | None
    ) -> Iterator[Chunk]:
        offset, line, seq = reading.offset, reading.line, reading.seq
        stream = self._stream
        folders = self._location.columns_of(entry.path, stream.time)
        kind = self._location.format_of(entry)
        form = TextFormat(kind, self._schema, stream, entry.path, folders)
        with open_text(entry) as text:
            if not form.open(text, complete=True):
                return  # empty: no header, no records
            if clock is not None:
                # The times alone, as the planner reads them: a record that is broken elsewhere has its time here.
                times = TextFormat(kind, self._time_schema, stream, entry.path, folders)
                times.open(text, complete=True)
            # With quarantine, the planner has decided what is set aside. Then a task must not take broken first records
            # for a drift of the schema: each is a reject by itself.
            at_start = offset == 0 and not stream.quarantines
            if offset == 0 and form.header_bytes:
                digest.update(text.read(0, form.header_bytes))
                offset, line = form.header_bytes, form.header_lines
            blocks = form.blocks(text, offset, limit)
            while data := blocks.next(complete=True):
                digest.update(data)
                lines = blocks.records(data)
                if lines.count:
                    raw = form.parse(lines, at_start)
                    far, later = (None, None) if clock is None else clock.judged(times.parse(lines, at_start))
                    at_start = False
                    numbers = lines.numbers + (line + 1)
                    yield inside_form(
                        raw, stream, self._schema, seq, entry.path, numbers, lines.record_text, far, later
                    )
                    seq += lines.count
                line += lines.lines

    def _rows(
        self, entry: FileEntry, reading: _Reading, digest: RollingDigest, limit: int | None, clock: StreamClock | None
    ) -> Iterator[Chunk]:
        offset, seq = reading.offset, reading.seq
        if entry.size == 0:
            return
        if offset == 0:
            digest.update(content_digest(entry))
        folders = self._location.columns_of(entry.path, self._stream.time)
        schema = as_declared(read_columns(self._stream, self._schema), self._stream.schema)
        row, schema = folders.row(schema, self._stream.name, entry.path), folders.rest(schema)
        timed = read_columns(self._stream, time_schema(self._stream)).names
        rows = RowFile(
            entry, self._location.format_of(entry), schema, self._stream.written_time, self._stream.name, timed
        )
        last = rows.count if limit is None else limit
        for first, found in rows.chunks(offset, last, schema.names):
            raw = with_row(found, row)
            numbers = np.arange(first + 1, first + raw.count + 1, dtype=np.int64)
            far, later = (None, None) if clock is None else clock.judged(raw)
            yield inside_form(raw, self._stream, self._schema, seq, entry.path, numbers, far=far, later=later)
            seq += raw.count


class FilePartitions:
    """The files, or the sub-folders, of a stream's folder (see `partitions.Inputs`).

    A file is read as it grows. The files of a sub-folder are read in the stream's order of files, as those of a stream
    of one order are. With ``sub_folders="read"`` a file may lie in any sub-folder, and the name of a sub-folder that is
    a partition may be a column. Names that begin with a point or an underscore are left out.

    Parameters
    ----------
    stream : Stream
        A stream with `partition_by`.
    schema : pyarrow.Schema
        See `FileFeed`.
    ignore_missing : bool
        Whether a partition that was read to its end may vanish.
    """

    threads = 1

    @property
    def looks(self) -> int:
        """See `partitions.Inputs.looks`.

        A sub-folder has several files. One whose own sub-folders are read, or on another machine, would take a walk.
        """
        if isinstance(self._folder, Location):
            return 256
        return 16 if not self._files.reads_sub_folders and is_local(self._folder.path) else 0

    def __init__(self, stream: Stream, schema: pa.Schema, *, ignore_missing: bool = False) -> None:
        self._stream, self._files = stream, stream.files
        self._schema = schema
        self._ignore_missing = ignore_missing
        self._leader: FilePartitions | None = None
        self._listed: Sequence[str] = ()
        self._folder: _SubFolders | Location
        if self._files.partition_by == "folder":
            self._folder = _SubFolders(stream)
        else:
            self._folder = location_of(stream)
        self._disk = files_at(self._folder.path)

    @property
    def passed_over(self) -> Sequence[str]:
        """The sub-folders beside files; the files beside sub-folders."""
        if self._leader is not None:
            return self._leader.passed_over
        return self._folder.folders if isinstance(self._folder, Location) else self._folder.files

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """See `partitions.Inputs.names`.

        Raises
        ------
        FileMissingError
            The folder is not there.
        """
        self._listed = self._folder.names(fresh=fresh) if self._leader is None else self._leader._listed
        return self._listed

    def follow(self, leader: FilePartitions) -> None:
        """See `partitions.Inputs.follow`."""
        self._leader = leader

    def feed(self, name: str) -> FileFeed:
        """See `partitions.Inputs.feed`.

        Raises
        ------
        OffsetError
            The name leads elsewhere: the offset was edited.
        """
        reads_sub_folders = self._files.reads_sub_folders
        if not name or not is_label(name) or ("/" in name and not reads_sub_folders):
            msg = f"the logged offset of stream {self._stream.name} is malformed: partitions"
            hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
            raise OffsetError(msg, name="partitions", hint=hint)
        own = _of_one_order(self._stream, self._folder.path_of(name))
        root = self._folder.path if reads_sub_folders else None
        return FileFeed(own, self._schema, ignore_missing=self._ignore_missing, root=root)

    def begins(self, names: Sequence[str], *, at_start: bool) -> Mapping[str, Position]:
        """See `partitions.Inputs.begins`: at their first record."""
        del at_start
        return dict.fromkeys(names, FilePosition())

    def begin_of(self, name: str, at: Position) -> Position:
        """See `partitions.Inputs.begin_of`."""
        del name, at
        return FilePosition()

    def stamp(self, name: str) -> int | None:
        """See `partitions.Inputs.stamp`: sizes, times of change and inodes."""
        path = self._folder.path_of(name)
        try:
            if isinstance(self._folder, Location):
                found = self._disk.stat(path)
                return _stamp(f"{found.st_size}/{found.st_mtime_ns}/{found.st_ino}")
            with os.scandir(path if os.path.isdir(path) else os.path.dirname(path)) as walk:
                files = sorted((one.name, one.stat()) for one in walk)
        except OSError:
            return None
        return _stamp("".join(f"{name}/{of.st_size}/{of.st_mtime_ns}/{of.st_ino}/" for name, of in files))

    def may_be_gone(self, at: Position) -> bool:
        """See `partitions.Inputs.may_be_gone`."""
        return self._ignore_missing and isinstance(at, FilePosition) and at.whole

    def gone(self, name: str) -> StreamJoinError:
        """See `partitions.Inputs.gone`."""
        path = self._folder.path_of(name)
        msg = f"the partition {path} of stream {self._stream.name} is not there any more"
        hint = "put it back as it was; with missing_files=ignore, one that was read to its end may be removed"
        return FileMissingError(msg, name=path, hint=hint)


def _stamp(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode()) >> 1  # int64 holds it


class _SubFolders:
    """The sub-folders of a folder, by name; ``/folder/*.csv`` means the files of that ending in each of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream.name
        source = stream.files.path
        path = str(local_path(source) or source) if source.startswith("file:") else source
        folder, last = os.path.split(path)
        self._pattern = last if "*" in last else ""
        self.path = (folder or ".") if self._pattern else path
        self.files: list[str] = []
        self._disk = files_at(self.path)

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        try:
            if is_local(self.path):  # each call lists
                with os.scandir(self.path) as walk:
                    found = [(one.name, one.is_dir()) for one in walk if not one.name.startswith((".", "_"))]
            else:
                listed = [
                    name for name in self._disk.names(self.path, fresh=fresh, new_last=False) if name[0] not in "._"
                ]
                found = [(name, stat.S_ISDIR(self._disk.stat(f"{self.path}/{name}").st_mode)) for name in listed]
        except OSError:
            msg = f"the input of stream {self._stream} is not there: {self.path}"
            hint = "give a folder that exists and can be read, with a sub-folder for each partition"
            raise FileMissingError(msg, name=self.path, hint=hint) from None
        self.files = sorted(name for name, is_folder in found if not is_folder)
        return sorted(name for name, is_folder in found if is_folder)

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name, self._pattern) if self._pattern else os.path.join(self.path, name)


def partition_streams(stream: Stream) -> Mapping[str, Stream]:
    """Return a stream of one order for each sub-folder of a stream with ``partition_by="folder"``, by its name."""
    folders = _SubFolders(stream)
    return {name: _of_one_order(stream, folders.path_of(name)) for name in folders.names()}


def _of_one_order(stream: Stream, path: str) -> Stream:
    """Return the stream of one of its partitions."""
    return replace(stream, source=replace(stream.files, path=path, partition_by=None))
