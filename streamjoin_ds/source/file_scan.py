"""The planner's look ahead into files: event times and places of records that are there, not yet in a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.digest import RollingDigest, name_sum
from streamjoin_ds.source.event_time import event_times
from streamjoin_ds.source.file_watch import FileWatch, verify_prefix
from streamjoin_ds.source.line_blocks import LineBlocks, TextFormat
from streamjoin_ds.source.lines import Lines
from streamjoin_ds.source.listing import FileEntry, Location, is_gzip
from streamjoin_ds.source.parquet_rows import ParquetRows, content_digest
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.text import Text, open_text
from streamjoin_ds.spec.ahead import AheadLimit, too_far_ahead
from streamjoin_ds.spec.stream import Stream

__all__ = ["FileScan"]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records ahead: `start` is the position before them (its digest is kept apart, ready to be moved on)."""

    start: FilePosition
    digest: RollingDigest
    lines: Lines | None  # None for Parquet, whose places are row numbers
    running_max: np.ndarray
    file_ends: bool

    @property
    def count(self) -> int:
        return len(self.running_max)

    def position(self, records: int) -> FilePosition:
        """The position after so many of the records, at least one."""
        start, time = self.start, int(self.running_max[records - 1])
        if self.lines is None:
            whole = self.file_ends and records == self.count
            moved = replace(start, offset=start.offset + records, line=start.line + records, whole=whole)
            return replace(moved, seq=start.seq + records, time=time, digest=self.digest.text)
        end = int(self.lines.ends[records - 1])
        digest = self.digest.copy()
        digest.update(memoryview(self.lines.data)[:end])
        return replace(
            start,
            offset=start.offset + end,
            line=start.line + int(self.lines.numbers[records - 1]) + 1,
            seq=start.seq + records,
            time=time,
            whole=self.file_ends and end == len(self.lines.data),
            digest=digest.text,
        )


class FileScan:
    """Reads ahead of a position, as far as is asked for; the same process asks for the next batch, so it is kept.

    Parameters
    ----------
    stream : Stream
        Whose files.
    location : Location
        Where they are.
    ignore_missing : bool
        Whether files that were read to their end, and whose batches are done, may be removed.
    """

    def __init__(self, stream: Stream, location: Location, ignore_missing: bool) -> None:
        self._stream = stream
        self._location = location
        self._watch = FileWatch(stream, location, ignore_missing)
        self._frozen: dict[str, FileEntry] | None = None
        self._schema = pa.schema([pa.field(stream.time, pa.timestamp("us", tz="UTC"))])
        self._head: FilePosition | None = None  # where the pieces begin
        self._next: FilePosition | None = None  # what `advance` gave last
        self._pieces: deque[_Piece] = deque()
        self._skipped = 0  # records of the first piece that lie before the head
        self._ahead: AheadLimit | None = None
        self._is_measured = self._measures_next = True  # whether the record after the head is, and the next one read
        self._taken = 0  # records between `_head` and `_next`
        self._tail = FilePosition()
        self._digest = RollingDigest()
        self._gone: RollingDigest | None = None  # the digest after a file that need not be there any more
        self._text: Text | None = None
        self._stamp = (0, 0, 0)
        self._blocks: LineBlocks | None = None
        self._format: TextFormat | None = None
        self.held_back_bytes = 0

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        self._frozen = {entry.name: entry for entry in self._location.entries()}

    def running_max(self, start: FilePosition, limit: int, ahead: AheadLimit | None = None) -> np.ndarray:
        """Running maxima of the next records after `start`, at most `limit`."""
        is_measured = ahead is None or ahead.is_measured
        if start == self._next and start != self._head:
            self._drop()
        elif start != self._head or (self._is_measured and not is_measured and self._pieces):
            self._resume(start)
        if not is_measured and self._is_measured:
            self._is_measured = self._measures_next = False
        self._ahead = ahead
        entries = self._entries(start)
        ready = sum(piece.count for piece in self._pieces) - self._skipped
        while ready < limit:
            found = self._extend(entries)
            if not found:
                break
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
                self._taken, self._next = rows, piece.position(left)
                return self._next
            left -= piece.count
        raise AssertionError

    def _drop(self) -> None:
        """The head moves to where the last batch ended."""
        self._head, self._skipped = self._next, self._skipped + self._taken
        while self._pieces and self._skipped >= self._pieces[0].count:
            self._skipped -= self._pieces.popleft().count
        self._next, self._taken = None, 0
        self._is_measured = True

    def _resume(self, start: FilePosition) -> None:
        """Forget what is ahead and begin again at `start`, once what was read before it is seen to be the same."""
        self._close()
        self._pieces.clear()
        self._skipped, self._head, self._next, self._taken = 0, start, None, 0
        self._tail, self._digest = start, RollingDigest()
        self._is_measured = self._measures_next = True
        self.held_back_bytes, self._gone = 0, None
        self._watch.begin(start)
        if start.file:
            entry = self._watch.entry(start.file)
            if entry is None:  # gone, which was allowed: it was whole, so all that follows is in other files
                self._gone = RollingDigest.after(start.digest)
            else:
                self._digest = verify_prefix(self._location, entry, start)

    def _entries(self, start: FilePosition) -> Sequence[FileEntry]:
        """The files to be seen now, after what was read of them is known to be as it was."""
        tail = replace(self._tail, digest=self._digest.text) if self._tail.file else self._tail
        entries = self._watch.look(tail, start)
        if self._frozen is None:
            return entries
        seen = [(entry, self._frozen[entry.name]) for entry in entries if entry.name in self._frozen]
        return [replace(entry, size=min(entry.size, then.size)) for entry, then in seen]

    def _extend(self, entries: Sequence[FileEntry]) -> int:
        """Read one piece more; the records it has, 0 where there are no more now."""
        while True:
            later = next((entry for entry in entries if entry.name > self._tail.file), None)
            if self._tail.file:
                entry = next((entry for entry in entries if entry.name == self._tail.file), None)
                records = self._more_of(entry, later is not None) if entry is not None else 0
                if records:
                    return records
            if later is None or (self._tail.file and self.held_back_bytes):
                return 0
            self._go_on(later, entries)

    def _go_on(self, entry: FileEntry, entries: Sequence[FileEntry]) -> None:
        """The file that was read is at its end: begin the next one."""
        self._close()
        tail = self._tail
        if tail.file:
            done = next((known for known in entries if known.name == tail.file), None)
            size = done.size if done is not None else 0
            tail = replace(tail, files=tail.files + 1, names=name_sum([tail.file], tail.names))
            tail = replace(tail, sizes=name_sum([f"{self._tail.file}/{size}"], tail.sizes))
            self._digest = self._digest.next_file() if self._gone is None else self._gone
            self._gone = None
        self._tail = replace(tail, file=entry.name, offset=0, line=0, whole=False)
        self._watch.reading(entry)

    def _more_of(self, entry: FileEntry, superseded: bool) -> int:
        if self._location.format_of(entry) == "parquet":
            return self._more_rows(entry)
        return self._more_lines(entry, superseded)

    def _more_rows(self, entry: FileEntry) -> int:
        if entry.size == 0:
            return 0
        rows = ParquetRows(entry, self._schema, self._stream.time, self._stream.name)
        first = self._tail.offset
        if self._digest.offset == 0:
            self._digest.update(content_digest(entry))
        if first >= rows.count:
            return 0
        pieces = [event_times(times, self._stream.time_unit) for times in rows.times(first, rows.count)]
        ts, valid = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        running = self._running(ts, valid)
        self._pieces.append(_Piece(self._tail, self._digest.copy(), None, running, True))
        self._tail = replace(self._tail, offset=rows.count, line=rows.count, seq=self._tail.seq + len(running))
        return len(running)

    def _more_lines(self, entry: FileEntry, superseded: bool) -> int:
        complete = superseded or is_gzip(entry.name)
        limit = None if is_gzip(entry.name) else entry.size
        self.held_back_bytes = 0
        if entry.stamp != self._stamp:
            self._close()  # it grew, or another file is in its place: what is open knows nothing of that
        if self._text is None:
            self._text, self._stamp = open_text(entry.path), entry.stamp
        if self._format is None:
            kind = self._location.format_of(entry)
            self._format = TextFormat(kind, self._schema, self._stream, entry.path)
        if self._blocks is None:
            if not self._format.open(self._text, limit, complete):
                self.held_back_bytes = entry.size
                self._close()
                return 0
            if self._tail.offset == 0 and self._format.header_bytes:
                self._digest.update(self._text.read(0, self._format.header_bytes))
                self._tail = replace(self._tail, offset=self._format.header_bytes, line=1)
            self._blocks = LineBlocks(self._text, self._tail.offset, limit, entry.path)
        while True:
            data = self._blocks.next(complete)
            ended = self._blocks.ended
            if not data:
                self.held_back_bytes = self._blocks.held_bytes
                self._close()
                return 0
            lines = Lines.of(data)
            start, digest = self._tail, self._digest.copy()
            self._digest.update(data)
            self._tail = replace(start, offset=start.offset + len(data), line=start.line + lines.lines)
            if lines.count:
                raw = self._format.parse(lines, at_file_start=False)
                ts, valid = event_times(raw.table.column(0), self._stream.time_unit)
                if raw.index is not None:
                    all_ts, all_valid = np.zeros(lines.count, np.int64), np.zeros(lines.count, bool)
                    all_ts[raw.index], all_valid[raw.index] = ts, valid
                    ts, valid = all_ts, all_valid
                running = self._running(ts, valid)
                self._pieces.append(_Piece(start, digest, lines, running, ended and not self._blocks.held_bytes))
                self._tail = replace(self._tail, seq=start.seq + lines.count)
                return lines.count

    def _running(self, ts: np.ndarray, valid: np.ndarray) -> np.ndarray:
        if self._ahead is not None and valid.any():
            limit = AheadLimit(self._ahead.max_us, self._measures_next)
            valid = valid & ~too_far_ahead(ts, valid, self._tail.time, limit)
            self._measures_next = True
        running = np.where(valid, ts, self._tail.time)
        running[0] = max(int(running[0]), self._tail.time)
        np.maximum.accumulate(running, out=running)
        self._tail = replace(self._tail, time=int(running[-1]))
        return running

    def _close(self) -> None:
        if self._text is not None:
            self._text.__exit__()
        self._text, self._blocks, self._format = None, None, None
