"""The planner's look ahead into files: event times and places of records that are in no batch yet.

A piece is a stretch of a file that was read ahead, with the positions within it. Files after the scan's place are not
read: only their sizes are known.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import FileChangedError, FileFormatError, SchemaDriftError, StreamJoinError
from streamjoin_ds.source.files import file_watch
from streamjoin_ds.source.files.file_names import ROW_FORMATS, compression_of, with_row
from streamjoin_ds.source.files.file_watch import BadFile, FileWatch, FinishRule, holds, is_copy, verify_prefix
from streamjoin_ds.source.files.lines import Lines
from streamjoin_ds.source.files.listing import FileEntry, Location
from streamjoin_ds.source.files.row_files import RowFile, content_digest, row_columns
from streamjoin_ds.source.files.text import Text, is_plain, open_text
from streamjoin_ds.source.files.text_blocks import LineBlocks, SpoolBlocks, TextFormat
from streamjoin_ds.source.position import FilePosition, RollingDigest, SetAside, difference, name_sum, reason_of, sum_of
from streamjoin_ds.source.records import record_times, time_schema
from streamjoin_ds.spec.columns import as_declared
from streamjoin_ds.spec.common_types import is_alike
from streamjoin_ds.spec.event_time import AheadLimit
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_zone import OrderedTimes, SeenTimes, in_order

__all__ = ["PART_ROWS", "FileScan", "ScannedPiece", "UnreadFiles"]

PART_ROWS = 1 << 16  # fewest records of a part of a batch: a task takes as long as some ten thousand

_log = logging.getLogger(__name__)
# Sizes of waiting files that one look asks for, at most: each may be a request to an object store.
_ASKED_SIZES = 256
_lacking: set[tuple[str, str]] = set()  # of which columns of which folders it was said that a file lacks them
_ASKED_FILES = 16  # files before one of another type in which the join's type is looked for


class ScannedPiece(Struct, frozen=True):
    """Records that were read ahead, or one record that stands for what is set aside.

    `start` is the position before them. Its digest is in `digest`, ready to be moved on. `seeks` says whether they can
    be read without what lies before them in the file.
    """

    start: FilePosition
    digest: RollingDigest | None  # None where something is set aside
    lines: Lines | None  # None for Parquet, whose places are row numbers, and where something is set aside
    times: OrderedTimes
    file_ends: bool
    aside: SetAside | None = None  # what is set aside; the piece is then one record
    after: FilePosition | None = None  # the position after what is set aside
    seeks: bool = False

    @property
    def running_max(self) -> np.ndarray:
        """The running maxima of the records."""
        return self.times.running

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.times.ts)

    def position(self, records: int) -> FilePosition:
        """Return the position after the first `records` of the piece, at least one."""
        if self.after is not None:
            return self.after
        time, rhythm = int(self.running_max[records - 1]), self.times.rhythm_after(records)
        start = replace(self.start, rhythm=rhythm)
        assert self.digest is not None
        if self.lines is None:
            whole = self.file_ends and records == self.count
            moved = replace(start, offset=start.offset + records, line=start.line + records, whole=whole)
            return replace(moved, seq=start.seq + records, time=time, digest=self.digest.text)
        end = int(self.lines.ends[records - 1])
        open_line = self.lines.data[end - 1 : end] != b"\n"
        digest = self.digest.copy()
        digest.update(memoryview(self.lines.written or self.lines.data)[:end])
        return replace(
            start,
            offset=start.offset + end,
            line=start.line + int(self.lines.numbers[records - 1]) + (not open_line),
            seq=start.seq + records,
            time=time,
            whole=self.file_ends and end == len(self.lines.data),
            open_line=open_line,
            digest=digest.text,
        )


class UnreadFiles:
    """The files of a stream that were not read.

    Parameters
    ----------
    location : Location
        Where the files are.
    cut : callable
        Returns a file with no more than the size up to which it is to be read; None stays None.
    """

    def __init__(self, location: Location, cut: Callable[[FileEntry | None], FileEntry | None]) -> None:
        self._location = location
        self._cut = cut
        self._sizes: dict[str, int] = {}  # of files that were counted

    def size_bytes(self, end: FilePosition, names: Collection[str] | None) -> int:
        """Return the bytes of the files that were not read at a position.

        A compressed file or one of Parquet counts whole until it is read to its end. A file's size is asked once, but
        for the last file, which may grow; of a thousand files that wait some are asked at the next look.

        Parameters
        ----------
        end : FilePosition
            The position.
        names : collection of str, optional
            The files that count; by default all.
        """
        listed = self._location.names_listed
        later = listed[bisect_right(listed, end.file) :]
        self._sizes = {name: self._sizes[name] for name in later[:-1] if name in self._sizes}
        unread = asked = 0
        for name in later:
            if names is not None and name not in names:
                continue
            if name not in self._sizes:
                if asked == _ASKED_SIZES:
                    break
                asked += 1
                entry = self._cut(self._location.entry(name))
                self._sizes[name] = 0 if entry is None else entry.size
            unread += self._sizes[name]
        if end.file and not (end.closed or end.whole):
            entry = self._cut(self._location.entry(end.file))
            if entry is not None:
                is_plain = compression_of(entry.name) is None and not self._location.has_rows(entry)
                unread += max(entry.size - end.offset * is_plain, 0)
        return unread


class FileScan:
    """Reads ahead of a position, as far as is asked for.

    What was read ahead stays in memory, because the same process plans the next batch.

    Parameters
    ----------
    stream : Stream
        The stream that the files belong to.
    location : Location
        Where the files are.
    ignore_missing : bool
        Whether files that were read to their end, and whose batches are done, may be removed.
    columns : pyarrow.Schema
        The columns that travel. A file must have them all, or the folders that it lies in name them.
    clock : callable
        Returns the time in nanoseconds since 1970, by which a file is found to be finished. Only where a batch ends
        depends on it.
    """

    def __init__(
        self,
        stream: Stream,
        location: Location,
        ignore_missing: bool,
        columns: pa.Schema,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._stream = stream
        self._columns = columns
        self._quarantine = stream.quarantines
        self._unread: StreamJoinError | None = None  # why the Parquet rows after the tail cannot be read
        self._location = location
        self._ignore_missing = ignore_missing
        self._watch = FileWatch(stream, location, ignore_missing)
        self._frozen: tuple[frozenset[str], FileEntry | None] | None = None
        self._finish = FinishRule(stream.files.finished_after_us, clock, by_modification=location.order.by_modification)
        self._file: FileEntry | None = None  # the tail's file as it is now
        self._schema = time_schema(stream)
        self._head: FilePosition | None = None  # where the pieces begin
        self._next: FilePosition | None = None  # the position that `advance` returned last
        self._pieces: deque[ScannedPiece] = deque()
        self._skipped = 0  # records of the first piece that lie before the head
        self._ahead: AheadLimit | None = None
        self._is_measured = True  # whether `max_ahead` measures every event time after the head
        self._taken = 0  # records between `_head` and `_next`
        self._tail = FilePosition()
        self._digest = RollingDigest()
        # The digest after the tail's file, where `_resume` found the file gone, changed or set aside.
        self._gone: RollingDigest | None = None
        self._text: Text | None = None
        self._opened: object = None  # of what the text was opened, and whether it was complete
        self._blocks: LineBlocks | SpoolBlocks | None = None
        self._format: TextFormat | None = None
        self._ended: FileEntry | None = None  # an object that was read to its end: it does not grow
        self.held_back_bytes = 0
        self._saw_all = False  # whether there were no more records at the last look
        self._unread_files = UnreadFiles(location, self._cut)

    def freeze(self) -> None:
        """See `Feed.freeze`: keep to the files that are there now, and to the present end of the last one.

        The last file is the only one that may grow.
        """
        names = self._location.names(fresh=True)
        last = self._location.entry(names[-1]) if names else None
        self._frozen = (frozenset(names), last)
        self._finish.freeze()

    def running_max(self, start: FilePosition, limit: int, ahead: AheadLimit | None = None) -> np.ndarray:
        """Return the running maxima of the next records after `start`, at most `limit`."""
        is_measured = ahead is None or ahead.is_measured
        if start == self._next and start != self._head:
            self._drop()
        if start != self._head or (self._is_measured and not is_measured and self._pieces):
            self._resume(start)
        self._is_measured &= is_measured
        self._ahead = ahead
        self._finish.begin_look()
        self._look(start)
        ready = sum(piece.count for piece in self._pieces) - self._skipped
        self._saw_all = False
        while ready < limit and not self._saw_all:
            found = self._extend()
            self._saw_all = not found
            ready += found
        arrays = [piece.running_max for piece in self._pieces]
        if not arrays:
            return np.empty(0, np.int64)
        return np.concatenate(arrays)[self._skipped : self._skipped + limit]

    def advance(self, start: FilePosition, rows: int) -> FilePosition:
        """See `Feed.advance`."""
        assert start == self._head
        if rows == 0:
            return start
        left = rows + self._skipped
        for piece in self._pieces:
            if left <= piece.count:
                self._taken, self._next = rows, self._completed(piece.position(left), start)
                return self._next
            left -= piece.count
        raise AssertionError

    def cuts(self, start: FilePosition, end: FilePosition, parts: int) -> list[tuple[FilePosition, FilePosition]]:
        """Return where the batch that was planned last is cut into at most `parts` of about as many records.

        A cut is two positions of one place: where the records before it end, and where those after it begin, which may
        be the next file. Each part has `PART_ROWS` records and more. There is no cut within a file that can only be
        read from its beginning, none where a record is judged by those before it (`max_ahead`), and none in a range
        other than the last batch's.
        """
        if start != self._head or end != self._next or self._ahead is not None:
            return []
        most = max(-(-(end.seq - start.seq) // parts), PART_ROWS)
        found, wanted = [], start.seq + most
        for before, piece in pairwise(self._pieces):
            at = piece.start
            if at.seq < wanted or piece.digest is None or before.digest is None or end.seq - at.seq < PART_ROWS:
                continue
            if before.start.file == at.file and not piece.seeks:
                continue
            after = self._completed(replace(at, digest=piece.digest.text), start)
            found.append((self._completed(before.position(before.count), start), after))
            wanted = at.seq + most
        return found

    def unread_bytes(self, end: FilePosition, rows: int) -> int:
        """Return the bytes of the files that are there and were not read at a position, after which so many rows wait.

        Where all was looked at and none waits, there are none: what is left are headers, and marks of a spool. An
        unfinished last line does not count. See `UnreadFiles`.
        """
        if self._saw_all and not rows:
            return 0
        names = None if self._frozen is None else self._frozen[0]
        return max(self._unread_files.size_bytes(end, names) - self.held_back_bytes, 0)

    def _drop(self) -> None:
        """Move the head to where the last batch ended."""
        assert self._head is not None
        assert self._next is not None
        # If the batch moved the clock, all that follows is measured. What was read ahead was judged so already.
        self._is_measured |= self._next.time > self._head.time
        self._head, self._skipped = self._next, self._skipped + self._taken
        while self._pieces and self._skipped >= self._pieces[0].count:
            self._skipped -= self._pieces.popleft().count
        self._next, self._taken = None, 0

    def _resume(self, start: FilePosition) -> None:
        """Forget what was read ahead and begin again at `start`; check that what was read before it is unchanged."""
        self._close()
        self._pieces.clear()
        self._skipped, self._head, self._next, self._taken = 0, start, None, 0
        self._tail, self._digest = replace(start, aside=()), RollingDigest()
        self._is_measured = True
        self.held_back_bytes, self._gone, self._unread, self._ended = 0, None, None, None
        self._watch.begin(start)
        if start.closed:
            self._gone = RollingDigest.after(start.digest)
        elif start.file:
            entry = self._location.entry(start.file) if self._watch.seen(start.file) else None
            if entry is None:  # the file is gone, as it may: it was read to its end, so what follows is in other files
                self._gone = RollingDigest.after(start.digest)
            else:
                try:
                    self._digest = verify_prefix(self._location, entry, start)
                except (FileChangedError, FileFormatError) as error:
                    self._gone = RollingDigest.after(start.digest)
                    self._close_file(error)

    def _completed(self, end: FilePosition, start: FilePosition) -> FilePosition:
        """Return `end` with what was set aside since `start`, and with `kept` where files may be removed."""
        asides = [piece.aside for piece in self._pieces if piece.aside is not None]
        end = replace(end, aside=tuple(astuple(aside) for aside in asides if start.seq <= aside.seq < end.seq))
        if not self._ignore_missing:
            return end
        return replace(end, kept=start.kept if end.file == start.file else self._watch.kept_before(end.file))

    def _look(self, start: FilePosition) -> None:
        """Set `_file` to the tail's file as it is now; check that what was read has not changed."""
        tail = self._tail
        if tail.file and not tail.closed:
            tail = replace(tail, digest=self._digest.text)
        try:
            self._file = self._cut(self._watch.look(tail, start))
        except FileChangedError as error:
            self._close_file(error)
            self._file = self._location.entry(tail.file)
            if self._file is not None:
                self._watch.reading(self._file)
        for bad in self._watch.taken_bad():
            self._put_aside(bad.kind, bad.name, bad.error, bad)

    def _cut(self, entry: FileEntry | None) -> FileEntry | None:
        """Return `entry` with no more than the size at which `freeze` saw it, if it was the last file then."""
        last = self._frozen[1] if self._frozen is not None else None
        if entry is None or last is None or entry.name != last.name:
            return entry
        return replace(entry, size=min(entry.size, last.size))

    def _later(self) -> FileEntry | None:
        """Return the file after the tail's; None where there is none."""
        names = self._location.names_listed
        for place in range(bisect_right(names, self._tail.file), len(names)):
            name = names[place]
            if self._frozen is None or name in self._frozen[0]:
                entry = self._location.entry(name)
                if entry is not None:
                    return self._cut(entry) if self._may_begin(entry) else None
        return None

    def _may_begin(self, entry: FileEntry) -> bool:
        """Whether a file may be read from its beginning: one that must be whole only once it is finished."""
        must_be_whole = (
            self._location.order.by_modification
            or compression_of(entry.name) is not None
            or self._location.has_rows(entry)
        )
        return not must_be_whole or self._finish.is_finished(entry.mtime_ns)

    def _extend(self) -> int:
        """Read one more piece. Return its number of records; 0 where there are no more now."""
        while True:
            later = self._later()
            is_finished = self._file is None or self._finish.is_finished(self._file.mtime_ns)
            try:
                records = 0
                if self._file is not None and not self._tail.closed and self._file != self._ended:
                    records = self._more_of(self._file, later is not None and is_finished)
                    is_done = self._location.appears_whole and not (records or self.held_back_bytes)
                    self._ended = self._file if is_done and is_finished else None
            except (FileFormatError, SchemaDriftError, FileChangedError) as error:
                records = self._close_file(error)
            if records:
                return records
            if later is None or not is_finished or (self._tail.file and self.held_back_bytes):
                return 0
            self._refuse_twice(later)
            self._go_on(later)

    def _refuse_twice(self, later: FileEntry) -> None:
        """Refuse a file that is the tail's file under another name: it was renamed, or compressed."""
        tail = self._tail
        if not tail.offset or self._location.has_rows(later):
            return
        path = self._location.path_of(tail.file)
        if self._file is None or is_copy(os.path.basename(later.path), os.path.basename(path)):
            digest = self._digest if self._gone is None else None
            if holds(later, tail.digest if digest is None else digest.text, tail.offset):
                raise file_watch.read_twice(later, path)

    def _go_on(self, entry: FileEntry) -> None:
        """Begin the file `entry`: the file before it was read to its end."""
        self._close()
        tail = self._tail
        if tail.file:
            size = self._file.size if self._file is not None else 0
            tail = replace(tail, files=tail.files + 1, names=name_sum([tail.file], tail.names))
            tail = replace(tail, sizes=name_sum([f"{self._tail.file}/{size}"], tail.sizes))
            self._digest = self._digest.next_file() if self._gone is None else self._gone
            self._gone = None
        self._tail = replace(tail, file=entry.name, offset=0, line=0, whole=False, open_line=False, closed=False)
        self._file = entry
        self._watch.reading(entry)

    def _close_file(self, error: StreamJoinError) -> int:
        """Set the rest of the tail's file aside and return 1; raise the error where the stream does not quarantine."""
        if not self._quarantine:
            raise error
        self._close()
        self.held_back_bytes, self._unread = 0, None
        return self._put_aside("rest", self._tail.file, error, None)

    def _put_aside(self, kind: str, name: str, error: StreamJoinError, bad: BadFile | None) -> int:
        """Append one record that stands for what is set aside; return 1."""
        tail = self._tail
        if self._gone is None and tail.file:
            tail = replace(tail, digest=self._digest.text)
        column, reason = reason_of(error)
        aside = SetAside(tail.seq, tail.file, tail.offset, tail.line, name, kind, column, reason)
        after = replace(tail, seq=tail.seq + 1, set_aside=tail.set_aside + 1)
        if kind == "rest":
            after = replace(after, closed=True, whole=True)
        if bad is not None:
            sizes = difference(sum_of([tail.sizes, *bad.sizes]), sum_of(bad.sizes_before))
            names = name_sum(bad.names, tail.names)
            after = replace(after, files=tail.files + len(bad.names), names=names, sizes=sizes)
        _log.warning("stream %s: a bad file is set aside (%s): %s: %s", self._stream.name, kind, name, reason)
        none = in_order(SeenTimes.none(1), tail.time)
        self._pieces.append(ScannedPiece(tail, None, None, none, False, aside, after))
        self._tail = after
        return 1

    def _more_of(self, entry: FileEntry, superseded: bool) -> int:
        if self._unread is not None:
            raise self._unread
        if self._location.has_rows(entry):
            return self._more_rows(entry)
        return self._more_lines(entry, superseded)

    def _more_rows(self, entry: FileEntry) -> int:
        if entry.size == 0:
            return 0
        folders = self._location.columns_of(entry.path, self._stream.time)
        columns = as_declared(read_columns(self._stream, self._columns), self._stream.schema)
        row = folders.row(columns, self._stream.name, entry.path)  # what no column can hold is found now
        columns = folders.rest(columns)
        timed = folders.rest(read_columns(self._stream, self._schema))
        schema = columns if self._quarantine else timed
        # The file must have all columns, as a text must. Their values are read here only for quarantine: a task reads
        # them again.
        kind, time = self._location.format_of(entry), self._stream.written_time
        rows = RowFile(entry, kind, columns, time, self._stream.name, timed.names, self._origin_of)
        self._tell_lacking(rows.lacking, entry)
        first = self._tail.offset
        if first >= rows.count:
            if rows.count == 0 and self._digest.offset == 0:
                self._digest.update(content_digest(entry))
            return 0
        pieces = []
        try:
            for _, raw in rows.chunks(first, rows.count, schema.names):
                pieces.append(record_times(with_row(raw, row), self._stream))
        except FileFormatError as error:
            self._unread = error
            if not (self._quarantine and pieces):
                raise
        if first == 0:
            self._digest.update(content_digest(entry))
        seen = SeenTimes.joined(pieces)
        tail, times, count = self._tail, self._in_order(seen), len(seen.ts)
        self._pieces.append(ScannedPiece(tail, self._digest.copy(), None, times, self._unread is None))
        last = first + count
        self._tail = replace(self._tail, offset=last, line=last, seq=self._tail.seq + count)
        return count

    def _origin_of(self, column: pa.Field, entry: FileEntry) -> str | None:
        """Return the path of the first file before `entry` in which a column has its type; None: none was found."""
        names = self._location.names_listed
        for name in names[: min(bisect_left(names, entry.name), _ASKED_FILES)]:
            other = self._location.entry(name)
            try:
                kind = "" if other is None else self._location.format_of(other)
                schema = pa.schema([])
                if other is not None and kind in ROW_FORMATS:
                    schema, _ = row_columns(other.path, kind)
            except (pa.ArrowInvalid, OSError):
                continue
            place = schema.get_field_index(column.name)
            if other is not None and place >= 0 and is_alike(schema.field(place).type, column.type):
                return other.path
        return None

    def _tell_lacking(self, columns: Sequence[str], entry: FileEntry) -> None:
        """Say once of each column that a file lacks it, so that its values are null."""
        for name in columns:
            if (self._location.path, name) not in _lacking:
                _lacking.add((self._location.path, name))
                _log.warning(
                    "stream %s: a file has no column '%s', which is null in its records: %s",
                    *(self._stream.name, name, entry.path),
                )

    def _more_lines(self, entry: FileEntry, superseded: bool) -> int:
        # A frozen text ends where it is; a segment's end may be torn, as it is still written.
        is_segment = self._location.format_of(entry) == "spool"
        ends_here = self._frozen is not None and not is_segment and self._finish.is_finished(entry.mtime_ns)
        must_be_whole = compression_of(entry.name) is not None or self._location.order.by_modification
        complete = superseded or must_be_whole or ends_here or (self._location.appears_whole and not is_segment)
        limit = entry.size if compression_of(entry.name) is None else None
        self.held_back_bytes = 0
        if (entry.stamp, complete) != self._opened:
            self._close()  # the file grew, was replaced or is finished; what is open shows nothing of it
        if self._text is None:
            self._text = open_text(entry, limit=limit, complete=complete)
            self._opened = entry.stamp, complete
        if self._format is None:
            kind = self._location.format_of(entry)
            folders = self._location.columns_of(entry.path, self._stream.time)
            self._format = TextFormat(kind, self._schema, self._stream, entry.path, folders)
            # Find now what a task would find: once a batch with this file is logged, quarantine comes too late.
            whole = TextFormat(kind, self._columns, self._stream, entry.path, folders)
            whole.open(self._text, complete)
            self._tell_lacking(whole.lacking, entry)
        if self._blocks is None:
            if not self._format.open(self._text, complete):
                self.held_back_bytes = 0 if complete else entry.size
                self._close()
                return 0
            if self._tail.offset == 0 and self._format.header_bytes:
                self._digest.update(self._text.read(0, self._format.header_bytes))
                self._tail = replace(self._tail, offset=self._format.header_bytes, line=self._format.header_lines)
            self._blocks = self._format.blocks(
                self._text, self._tail.offset, limit if is_segment and not entry.decodings else None
            )
        while True:
            data = self._blocks.next(complete)
            ended = self._blocks.ended
            if not data:
                self.held_back_bytes = self._blocks.held_bytes + self._text.held_bytes
                self._close()
                return 0
            if self._tail.open_line and not data.startswith((b"\n", b"\r\n")) and data != b"\r":
                raise file_watch.continued(entry.path, self._tail.line + 1)
            lines = self._blocks.records(data)
            start, digest = self._tail, self._digest.copy()
            self._digest.update(data)
            self._tail = replace(
                start,
                offset=start.offset + len(data),
                line=start.line + lines.lines,
                open_line=not data.endswith(b"\n"),
            )
            if lines.count:
                raw = self._format.parse(lines, at_file_start=False)
                times = self._in_order(record_times(raw, self._stream))
                ends = ended and not self._blocks.held_bytes
                seeks = is_plain(self._text)
                self._pieces.append(ScannedPiece(start, digest, lines, times, ends, seeks=seeks))
                self._tail = replace(self._tail, seq=start.seq + lines.count)
                return lines.count

    def _in_order(self, seen: SeenTimes) -> OrderedTimes:
        assert self._head is not None
        limit = None
        if self._ahead is not None:
            limit = AheadLimit(self._ahead.max_us, self._is_measured).after(self._head.time, self._tail.time)
        rhythm = self._tail.rhythm if self._stream.has_local_times else None
        times = in_order(seen, self._tail.time, limit, rhythm)
        self._tail = replace(self._tail, time=int(times.running[-1]), rhythm=times.rhythm_after())
        return times

    def _close(self) -> None:
        if self._text is not None:
            self._text.__exit__()
        self._text, self._blocks, self._format = None, None, None
