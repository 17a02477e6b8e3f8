"""A Delta table as a feed: the rows that its versions add, in the order of the versions, files and rows.

Before a table is read it is found out whether a stream is over a Delta table, whether its rows are read by version or
as the results of another join (`streamjoin_ds.source.delta.results_feed`), and which columns it has.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.place import local_path
from streamjoin_ds.delta.table_state import EVENT_TIME, JOIN_ID_KEY, TableState
from streamjoin_ds.errors import ArgumentError, FileChangedError, FileFormatError
from streamjoin_ds.source.delta.change_log import Beginning, ChangeLog, VersionPosition
from streamjoin_ds.source.delta.data_file import DataFile, FileRows, place_of
from streamjoin_ds.source.feed import ArrayFrontier, Backlog, Frontier, StreamClock
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form, record_times, time_schema
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.files import Files, refused_option
from streamjoin_ds.spec.member.source import DeltaRows, given_options
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_zone import OrderedTimes, SeenTimes, in_order

__all__ = ["DeltaFeed", "holds_matches", "table_path", "table_schema", "with_table"]


def table_path(stream: Stream) -> str | None:
    """Return the folder of the table that a stream is over; None where it is over none.

    Raises
    ------
    FileFormatError
        The stream's format is that of a table, and there is none.
    """
    source = stream.source
    if not isinstance(source, DeltaRows) and not (isinstance(source, Files) and source.format == "auto"):
        return None
    local = local_path(source.path)
    path = source.path.rstrip("/") if local is None else os.path.normpath(str(local))
    if _has_log(path):
        return path
    if isinstance(source, DeltaRows):
        msg = f"the input of stream {stream.name} is no Delta table: {path}"
        raise FileFormatError(msg, name=path, hint="give the folder that holds _delta_log")
    return None


def _has_log(path: str) -> bool:
    if "*" in path.rpartition("/")[2]:
        return False
    try:
        return stat.S_ISDIR(files_at(path).stat(f"{path}/_delta_log").st_mode)
    except ArgumentError:  # what reads it refuses it by name
        return False
    except OSError:
        return False


def with_table(stream: Stream) -> Stream:
    """Return the stream with the rows of its table as its source, where there is a table, and what it is was not said.

    A process that is told need not read the table's log to know it.

    Raises
    ------
    ArgumentError
        The stream has options that a table's rows cannot have, or the table holds the matches of a join, and the stream
        has options that do not fit them.
    """
    path, source = table_path(stream), stream.source
    if path is None or not isinstance(source, (Files, DeltaRows)) or source.format != "auto":
        return stream
    if isinstance(source, Files):
        for name in given_options(source):
            # The delimiter may be given to all streams at once.
            if name != "delimiter" and not (name == "partition_by" and source.device_columns):
                raise _refused(stream.name, name)
    if not holds_matches(path):
        return replace(stream, source=_rows_of(source, "delta"))
    given = [name for name in given_options(source) if name not in ("format", "delimiter")]
    if stream.time != EVENT_TIME:
        given.append("time")
    if given:
        msg = f"the input of stream {stream.name} holds the matches of a join, which are read by {EVENT_TIME}"
        left_out = "" if given[0] == "time" else f"leave {given[0]} out and "
        hint = f"{left_out}set time={EVENT_TIME}; or set format=delta, to read rows as versions added them"
        raise ArgumentError(msg, name=given[0], hint=hint)
    return replace(stream, source=_rows_of(source, "results"))


def holds_matches(path: str) -> bool:
    """Whether a Delta table holds the matches of a join."""
    state = TableState(path)
    return JOIN_ID_KEY in state.configuration and EVENT_TIME in state.columns().schema.names


def _rows_of(source: Files | DeltaRows, form: str) -> DeltaRows:
    if isinstance(source, Files):
        return DeltaRows(source.path, form, partition_by=source.device_columns or None)
    return replace(source, format=form)


def _refused(stream: str, name: str) -> ArgumentError:
    """Return the error for an option of files that a stream over a table has."""
    what = "is over a Delta table"
    why = {"on_bad_file": ", whose files cannot be set aside", "partition_by": ", which has one order of files"}
    error = refused_option(stream, name, what + why.get(name, ", whose log says what is read"))
    if name == "on_bad_file":
        error.hint = "set on_bad_file=stop for it: a damaged table is to be restored"
    return error


def table_schema(stream: Stream, path: str) -> pa.Schema:
    """Return the columns of a table: those declared, or all that it has.

    Raises
    ------
    TableError
        There is no table, or it needs another reader.
    FileFormatError
        The stream reads results, and the table holds none.
    """
    state = TableState(path)
    columns = state.columns().schema
    if stream.reads_results and (JOIN_ID_KEY not in state.configuration or EVENT_TIME not in columns.names):
        msg = f"the input of stream {stream.name} does not hold the matches of a join: {path}"
        raise FileFormatError(msg, name=path, hint="set format=delta, or give the table that the join writes")
    return stream.schema if isinstance(stream.schema, pa.Schema) else columns


class _Piece(Struct, frozen=True):
    """Rows of a file that were read ahead: the position before them, and their event times."""

    start: VersionPosition
    seen: SeenTimes
    mark: str  # of the file
    file_ends: bool

    @property
    def count(self) -> int:
        """How many rows it has."""
        return len(self.seen.ts)

    def position(self, rows: int) -> VersionPosition:
        """Return the position after the first `rows` rows, but for its `time`."""
        at, row, seq = self.start, self.start.row + rows, self.start.seq + rows
        if not (self.file_ends and rows == self.count):
            return replace(at, row=row, seq=seq, mark=self.mark)
        return replace(at, file=at.file + 1, row=0, seq=seq, mark="", digest=_folded(at.digest, self.mark))


class DeltaFeed:
    """The feed of a Delta table.

    A stream begins with the rows of the table when the first batch is planned, or with the changes of a version that
    the stream names. Then it follows the table's versions. A replay reads files that the table has removed since, as
    long as VACUUM leaves them.

    Parameters
    ----------
    stream : Stream
        A stream whose source is a table.
    path : str
        The table's folder.
    schema : pyarrow.Schema
        The columns that travel, with their inside types, and the time column as a timestamp.
    """

    endless = False
    held_back_bytes = 0
    passed_over: Sequence[str] = ()

    def __init__(self, stream: Stream, path: str, schema: pa.Schema) -> None:
        self._stream = stream
        self._schema = schema
        self._written = read_columns(stream, schema)
        wanted = time_schema(stream)
        self._time_schema = read_columns(stream, wanted.set(0, schema.field(stream.time)))
        self.path = path
        self.beginning = Beginning()
        self._log: ChangeLog | None = None
        self._last: int | None = None  # the version beyond which nothing is read
        self._head: VersionPosition | None = None  # where the pieces begin
        self._next: VersionPosition | None = None  # the position that `advance` returned last
        self._tail = VersionPosition()  # where they end
        self._pieces: deque[_Piece] = deque()
        self._reading: Iterator[_Piece] = iter(())
        self._skipped = 0  # rows of the first piece that lie before the head
        self._taken = 0  # rows between `_head` and `_next`
        self._ordered: OrderedTimes | None = None  # as `frontier` gave it

    def initial(self) -> VersionPosition:
        """See `Feed.initial`."""
        return VersionPosition()

    def position(self, facts: object) -> VersionPosition:
        """See `Feed.position`."""
        return VersionPosition.from_facts(facts, self._stream.name)

    def frontier(self, start: VersionPosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`.

        Raises
        ------
        StreamJoinError
            There are no more rows, and the table's next version is refused (see `ChangeLog`).
        """
        if start == self._next and self._log is not None:
            self._drop()
        elif start != self._head or self._log is None:
            self._resume(start)
        assert self._log is not None
        if self._last is None:
            self._log.forward()
        ready = sum(piece.count for piece in self._pieces) - self._skipped
        while ready < limit and (piece := self._read_on()) is not None:
            self._pieces.append(piece)
            ready += piece.count
        if not ready and self._log.refusal is not None:
            raise self._log.refusal
        self._ordered = self._in_order(self._times(limit), start, ahead)
        return ArrayFrontier(self._ordered.running)

    def advance(self, start: VersionPosition, rows: int) -> VersionPosition:
        """See `Feed.advance`. The position tells too at which version the stream begins."""
        assert self._log is not None
        assert start == self._head
        left, at = rows + self._skipped, self._tail
        if left < sum(piece.count for piece in self._pieces):
            for piece in self._pieces:
                if left < piece.count:
                    break
                left -= piece.count
            at = piece.position(left) if left else piece.start
        elif not self._log.files or self._log.files[-1].place < at.place:  # all that is known was read
            at = replace(at, version=self._log.next_version, file=0)
        assert self._ordered is not None
        time = int(self._ordered.running[rows - 1]) if rows else start.time
        self._taken, self._next = rows, replace(at, time=time, rhythm=self._ordered.rhythm_after(rows))
        return self._next

    def time_before(self, position: VersionPosition) -> int | None:
        """See `Feed.time_before`."""
        return None if position.time == NO_TIME else position.time

    def backlog(self, end: VersionPosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`: what the frontier says."""
        del end
        return known

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        self._last = TableState(self.path).version
        self._log = self._head = self._next = None

    def files_between(self, start: VersionPosition, end: VersionPosition) -> tuple[str, ...]:
        """See `Feed.files_between`: each text is a `DataFile`."""
        return tuple(file.to_text() for file in self._files(start, end))

    def running_max(
        self,
        start: VersionPosition,
        end: VersionPosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """See `Feed.running_max`."""
        found = [record_times(raw, self._stream) for _, _, raw in self._records(start, end, files, self._time_schema)]
        return self._in_order(SeenTimes.joined(found), start, ahead).running

    def _in_order(self, seen: SeenTimes, start: VersionPosition, ahead: AheadLimit | None) -> OrderedTimes:
        return in_order(seen, start.time, ahead, start.rhythm if self._stream.has_local_times else None)

    def split(
        self, start: VersionPosition, end: VersionPosition, parts: int
    ) -> list[tuple[VersionPosition, VersionPosition]]:
        """See `Feed.split`: one task reads the whole range."""
        del parts
        return [(start, end)] if end.seq > start.seq else []

    def read(
        self,
        start: VersionPosition,
        end: VersionPosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`.

        Raises
        ------
        FileMissingError
            VACUUM has removed a file.
        FileChangedError, FileFormatError
            A file is not what it was when the batch was planned, or cannot be read.
        SchemaDriftError
            A column has another type.
        """
        clock = StreamClock.of(self._stream, start, ahead)
        seq = start.seq
        for path, numbers, raw in self._records(start, end, files, self._written):
            far, later = (None, None) if clock is None else clock.judged(raw)
            yield inside_form(raw, self._stream, self._schema, seq, path, numbers, far=far, later=later)
            seq += raw.count

    # ------------------------------------------------------------------ what a task reads

    def _records(
        self, start: VersionPosition, end: VersionPosition | None, files: Sequence[str] | None, schema: pa.Schema
    ) -> Iterator[tuple[str, np.ndarray, RawRecords]]:
        """Yield the records of a range in pieces: the file, the rows' numbers in it, and the records."""
        if files is not None:
            found = [DataFile.from_text(text) for text in files]
        elif end is not None:
            found = self._files(start, end)
        else:
            found = self._log_from(start).files
        digest, mark, seq = start.digest, start.mark, start.seq
        path = self.path
        for file in found:
            rows = FileRows(self.path, file, schema, self._stream.time, self._stream.name)
            path = rows.path
            first = start.row if start.is_decided and file.place == start.place else 0
            if first and mark != rows.mark:
                raise self._changed(path)
            is_last = end is not None and file.place == end.place
            last = end.row if end is not None and is_last else rows.count
            for numbers, raw in rows.chunks(first, last):
                yield path, numbers, raw
                seq += raw.count
            mark = rows.mark if is_last else ""
            digest = digest if is_last else _folded(digest, rows.mark)
        if end is not None and end.seq > start.seq and (digest, mark, seq) != (end.digest, end.mark, end.seq):
            raise self._changed(path)

    def _files(self, start: VersionPosition, end: VersionPosition) -> list[DataFile]:
        if not start.is_decided:
            start = replace(start, begin=end.begin, snapshot=end.snapshot, table=end.table, version=end.begin)
        if not end.is_decided or end.seq == start.seq:
            return []
        log = self._log
        if log is None or log.begin != start.begin or log.first > start.place or end.version > log.next_version:
            log = ChangeLog(self._stream, self.path, self._written, start, Beginning())
        return log.between(start, end)

    def _log_from(self, start: VersionPosition) -> ChangeLog:
        log = ChangeLog(self._stream, self.path, self._written, start, self.beginning, self._last)
        if log.refusal is not None:
            raise log.refusal
        return log

    def _changed(self, path: str) -> FileChangedError:
        msg = f"the file {path} of a table, or another one of the same batch, is not what it was when it was planned"
        return FileChangedError(msg, name=path, hint="restore the table's files from a copy: nothing may rewrite them")

    # ------------------------------------------------------------------ what the planner reads ahead

    def _drop(self) -> None:
        """Move the head to where the last batch ended."""
        assert self._next is not None
        assert self._log is not None
        self._head, self._skipped = self._next, self._skipped + self._taken
        while self._pieces and self._skipped >= self._pieces[0].count:
            self._skipped -= self._pieces.popleft().count
        self._next, self._taken = None, 0
        if not self._pieces:
            self._tail = self._head if self._tail.place <= self._head.place else self._tail
        self._log.drop_before(self._head.place)

    def _resume(self, start: VersionPosition) -> None:
        """Forget what was read ahead, and begin again at `start`."""
        self._log = ChangeLog(self._stream, self.path, self._written, start, self.beginning, self._last)
        self._pieces.clear()
        self._reading = iter(())
        self._head, self._next, self._skipped, self._taken = start, None, 0, 0
        self._tail = start
        if not start.is_decided:
            begin, snapshot = self._log.begin, self._log.has_snapshot
            self._tail = replace(start, begin=begin, snapshot=snapshot, table=self._log.table_id, version=begin)

    def _read_on(self) -> _Piece | None:
        """Return the next rows; None where there are none now."""
        assert self._log is not None
        while True:
            piece = next(self._reading, None)
            if piece is not None:
                self._tail = piece.position(piece.count)
                return piece
            files = self._log.files
            number = bisect_left(files, self._tail.place, key=place_of)
            if number == len(files):
                return None
            self._begin(files[number])

    def _begin(self, file: DataFile) -> None:
        """Begin to read the times of a file; the tail moves past one without rows."""
        rows = FileRows(self.path, file, self._time_schema, self._stream.time, self._stream.name)
        first = self._tail.row if file.place == self._tail.place else 0
        if first and rows.mark != self._tail.mark:
            raise self._changed(rows.path)
        start = replace(self._tail, version=file.version, file=file.number, row=first, mark="")
        if first >= rows.count:
            self._tail = replace(start, file=file.number + 1, row=0, digest=_folded(start.digest, rows.mark))
        else:
            self._reading = self._pieces_of(rows, start)

    def _pieces_of(self, rows: FileRows, start: VersionPosition) -> Iterator[_Piece]:
        at = start.row
        for _, raw in rows.chunks(start.row, rows.count):
            seen = record_times(raw, self._stream)
            place = replace(start, row=at, seq=start.seq + at - start.row, mark=rows.mark if at else "")
            at += raw.count
            yield _Piece(place, seen, rows.mark, at == rows.count)

    def _times(self, limit: int) -> SeenTimes:
        """Return the event times of the next rows that were read ahead."""
        found = SeenTimes.joined([piece.seen for piece in self._pieces])
        return found.part(self._skipped, self._skipped + limit)


def _folded(digest: str, mark: str) -> str:
    """Return the digest of some files' marks and of one more."""
    return xxhash.xxh3_64_hexdigest(f"{digest}.{mark}".encode())
