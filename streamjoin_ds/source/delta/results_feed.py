"""The results of another join as a feed: those that are complete, by event time, then by the tuples' numbers.

A punctuation says up to which event time a join's matches are complete. Results before it are read in one order, which
is the same however the other join cut its batches, and whoever compacts its table. So no result is late here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.delta.results import EVENT_TIME
from streamjoin_ds.errors import FileChangedError, TableChangedError
from streamjoin_ds.source.backlog import Backlog
from streamjoin_ds.source.delta.positions import ResultsPosition
from streamjoin_ds.source.delta.result_files import ResultFiles, mixed, read_results, row_hashes, times_of
from streamjoin_ds.source.event_time import NO_TIME
from streamjoin_ds.source.feed import ArrayFrontier, Frontier
from streamjoin_ds.source.read_clocks import AheadClock
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form
from streamjoin_ds.spec.event_time import AheadLimit, running_maximum, too_far_ahead
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["ResultsFeed"]

_PIECE_ROWS = 1 << 17  # rows in one chunk, at most


class ResultsFeed:
    """The feed of a table of matches.

    Parameters
    ----------
    stream : Stream
        A stream whose source is the table.
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
        self._path = path
        self._files: ResultFiles | None = None
        self._is_frozen = False
        self._head: ResultsPosition | None = None  # where `_times` begins
        self._next: ResultsPosition | None = None  # the position that `advance` returned last
        self._times = np.empty(0, np.int64)  # event times that were read ahead
        self._hashes = np.empty(0, np.uint64)  # of these results
        self._loaded_us = NO_TIME  # all results before this time are read ahead
        self._taken = 0  # rows between `_head` and `_next`
        self._running = np.empty(0, np.int64)  # as `frontier` gave it

    def initial(self) -> ResultsPosition:
        """See `Feed.initial`."""
        return ResultsPosition()

    def position(self, facts: object) -> ResultsPosition:
        """See `Feed.position`."""
        return ResultsPosition.from_facts(facts, self._stream.name)

    def frontier(self, start: ResultsPosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`.

        Raises
        ------
        TableChangedError
            The table is not the one that was read so far.
        """
        files = self._open(start)
        if not self._is_frozen:
            files.forward()
        if start == self._next and start != self._head:
            self._times, self._hashes = self._times[self._taken :], self._hashes[self._taken :]
            self._head, self._next = start, None
        elif start != self._head:
            self._times, self._hashes = np.empty(0, np.int64), np.empty(0, np.uint64)
            self._head, self._next, self._loaded_us = start, None, start.at
        complete_us = files.complete_us
        while complete_us is not None and len(self._times) < limit and self._loaded_us < complete_us:
            end_us = files.horizon(self._loaded_us, limit - len(self._times))
            names = files.names(self._loaded_us, end_us - 1)
            found = read_results(self._path, names, self._loaded_us, end_us - 1, [EVENT_TIME])
            if self._loaded_us == start.at:
                found = self._without_ties(found, start)
            self._times = np.concatenate([self._times, times_of(found)])
            self._hashes = np.concatenate([self._hashes, row_hashes(found)])
            self._loaded_us = end_us
        self._running = self._running_max(self._times[:limit], start, ahead)
        return ArrayFrontier(self._running)

    def advance(self, start: ResultsPosition, rows: int) -> ResultsPosition:
        """See `Feed.advance`."""
        assert start == self._head
        assert self._files is not None
        self._taken, self._next = rows, start
        if rows:
            times = self._times[:rows]
            at = int(times[-1])
            ties = rows - int(np.searchsorted(times, at)) + (start.ties if at == start.at else 0)
            digest = _folded(start.digest, self._hashes[:rows], start.seq)
            table, time = self._files.table_id, int(self._running[rows - 1])
            self._next = replace(start, at=at, ties=ties, seq=start.seq + rows, time=time, digest=digest, table=table)
        return self._next

    def time_before(self, position: ResultsPosition) -> int | None:
        """See `Feed.time_before`."""
        return None if position.time == NO_TIME else position.time

    def has_time(self, rows: int) -> bool:
        """See `Feed.has_time`: every result has an event time."""
        return rows > 0

    def backlog(self, end: ResultsPosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`: what the frontier says."""
        del end
        return known

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        if self._files is None:
            self._files = ResultFiles(self._path)
        self._files.forward()
        self._is_frozen = True

    def files_between(self, start: ResultsPosition, end: ResultsPosition) -> tuple[str, ...]:
        """See `Feed.files_between`: the files that hold the results now."""
        return () if end.seq == start.seq else tuple(self._open(end).names(start.at, end.at))

    def running_max(
        self,
        start: ResultsPosition,
        end: ResultsPosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """See `Feed.running_max`."""
        names = self.files_between(start, end) if files is None else files
        found = read_results(self._path, list(names), start.at, end.at, [EVENT_TIME])
        times = times_of(self._without_ties(found, start))
        return self._running_max(times[: end.seq - start.seq], start, ahead)

    def split(
        self, start: ResultsPosition, end: ResultsPosition, parts: int
    ) -> list[tuple[ResultsPosition, ResultsPosition]]:
        """See `Feed.split`: one task reads the whole range."""
        del parts
        return [(start, end)] if end.seq > start.seq else []

    def read(
        self,
        start: ResultsPosition,
        end: ResultsPosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`.

        Raises
        ------
        FileChangedError
            The table no longer holds the results that the batch was planned with.
        FileMissingError, FileFormatError
            A file is gone, or cannot be read.
        """
        if end is None:
            self.freeze()
            end = self.advance(start, self.frontier(start, 1 << 62, ahead).rows)
        if end.seq == start.seq:
            return
        names = self.files_between(start, end) if files is None else files
        found = read_results(self._path, list(names), start.at, end.at, self._schema.names)
        count = end.seq - start.seq
        found = self._without_ties(found, start).slice(0, count)
        if _folded(start.digest, row_hashes(found), start.seq) != end.digest:
            raise self._changed()
        found = found.select(self._schema.names)
        clock = None if ahead is None else AheadClock(self._stream, start.time, ahead)
        for first in range(0, count, _PIECE_ROWS):
            piece = found.slice(first, _PIECE_ROWS).combine_chunks()
            raw = RawRecords(piece, piece.num_rows)
            far = None if clock is None else clock.far(raw)
            numbers = np.arange(first + 1, first + raw.count + 1, dtype=np.int64) + start.seq
            yield inside_form(raw, self._stream, self._schema, start.seq + first, self._path, numbers, far=far)

    def _open(self, at: ResultsPosition) -> ResultFiles:
        if self._files is None:
            self._files = ResultFiles(self._path)
        if at.table and at.table != self._files.table_id:
            msg = f"the table {self._path} is not the one that stream {self._stream.name} has read so far"
            hint = "put it back, or begin with a new checkpoint and a new table"
            raise TableChangedError(msg, name=self._path, hint=hint)
        return self._files

    def _without_ties(self, found: pa.Table, start: ResultsPosition) -> pa.Table:
        """Return the results from `start` on: those that were read have its event time, and come first."""
        if start.ties > int(np.searchsorted(times_of(found), start.at, side="right")):
            raise self._changed()
        return found.slice(start.ties)

    def _running_max(self, times: np.ndarray, start: ResultsPosition, ahead: AheadLimit | None) -> np.ndarray:
        valid = None if ahead is None else ~too_far_ahead(times, None, start.time, ahead)
        return running_maximum(times, valid, start.time)

    def _changed(self) -> FileChangedError:
        msg = f"the table {self._path} no longer holds the results that were read: some were deleted or changed"
        return FileChangedError(msg, name=self._path, hint="restore it (RESTORE TABLE) to before they were changed")


def _folded(digest: str, hashes: np.ndarray, first_seq: int) -> str:
    """Return the digest of some results and of those after them; it does not depend on where they are cut."""
    numbers = np.arange(first_seq, first_seq + len(hashes), dtype=np.uint64)
    total = int(mixed(hashes ^ mixed(numbers)).sum(dtype=np.uint64))
    return f"{(int(digest, 16) + total) % (1 << 64):016x}"
