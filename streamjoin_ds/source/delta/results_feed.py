"""The results of another join as a feed: those that are complete, by event time, then by the tuples' numbers.

A punctuation says up to which event time a join's matches are complete. Results before it are read in one order, which
is the same however the other join cut its batches, and whoever compacts its table. So no result is late here. They are
read by ranges of event time from the files that the table of matches has now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.delta.table_state import EVENT_TIME, TableState, file_path, order_columns, punctuation_us
from streamjoin_ds.errors import (
    FileChangedError,
    FileFormatError,
    FileMissingError,
    LogCleanedError,
    TableChangedError,
    TableError,
)
from streamjoin_ds.source.delta.change_log import ResultsPosition, stated_bounds, stated_rows
from streamjoin_ds.source.feed import ArrayFrontier, Backlog, Frontier, StreamClock
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form
from streamjoin_ds.spec.columns import INT64_MAX, TIMESTAMP
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, running_maximum, too_far_ahead
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["ResultFiles", "ResultsFeed", "mixed", "read_results", "row_hashes", "times_of"]

_STATED_US = 1000  # what the log states of a time may be cut off to milliseconds
_PIECE_ROWS = 1 << 17  # rows in one chunk, at most


class ResultFiles:
    """The table of a join's matches, followed as it grows.

    Parameters
    ----------
    path : str
        The table's folder.

    Attributes
    ----------
    complete_us : int or None
        All results with an older event time are there; None: none is known to be.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._state = TableState(path, with_files=True)
        self.complete_us: int | None = None
        self._bounds: dict[str, tuple[int, int, int]] = {}  # by file: smallest and largest event time, rows
        self._note()

    @property
    def table_id(self) -> str:
        """The id that the table got when it was made."""
        return self._state.table_id

    def forward(self) -> None:
        """Take in what is new.

        Raises
        ------
        TableChangedError
            The table was deleted, or replaced by another.
        TableError
            An entry cannot be read.
        """
        before = self._state.version
        try:
            for _ in self._state.forward():
                pass
        except LogCleanedError:  # the results are in the table all the same
            self._state, self._bounds = TableState(self._path, with_files=True), {}
        if self._state.version != before:
            self._note()

    def names(self, low_us: int, high_us: int) -> list[str]:
        """Return the files that may hold results with ``low_us <= event_time <= high_us``, oldest results first."""
        found = [(low, name) for name, (low, high, _) in self._bounds.items() if high >= low_us and low <= high_us]
        return [name for _, name in sorted(found)]

    def horizon(self, low_us: int, rows: int) -> int:
        """Return an event time before which there are about `rows` complete results from `low_us` on, or all.

        It is never newer than `complete_us`, and the results before it can be read without those after it.
        """
        assert self.complete_us is not None
        count = 0
        for high, more in sorted((high, more) for _, high, more in self._bounds.values() if high >= low_us):
            count += more
            if count >= rows or high >= self.complete_us:
                return min(high + 1, self.complete_us)
        return self.complete_us

    def _note(self) -> None:
        self.complete_us = punctuation_us(self._state.configuration, self._state.transactions)
        live = self._state.files
        self._bounds = {name: bounds for name, bounds in self._bounds.items() if name in live}
        for name in live.keys() - self._bounds.keys():
            add = live[name]
            if add.get("deletionVector"):
                msg = f"the table {self._path} has deletion vectors, which a table of results must not have"
                hint = "REORG TABLE ... APPLY (PURGE) removes them; or read the table with format=delta"
                raise TableError(msg, name=self._path, hint=hint)
            low, high = stated_bounds(add, EVENT_TIME)
            latest = INT64_MAX - 1 if high is None else high + _STATED_US
            self._bounds[name] = (NO_TIME if low is None else low, latest, stated_rows(add))


def read_results(table: str, names: list[str], low_us: int, high_us: int, columns: list[str]) -> pa.Table:
    """Return columns of the results with ``low_us <= event_time <= high_us``, in the results' order.

    The columns by which they are ordered come too.

    Parameters
    ----------
    table : str
        The table's folder.
    names : list of str
        The files that may hold such results, as the log writes their paths.
    columns : list of str
        The columns.

    Raises
    ------
    FileMissingError, FileFormatError
        A file is gone, or cannot be read.
    """
    parts = []
    for name in names:
        path = file_path(table, name)
        try:
            with pq.ParquetFile(files_at(path).input(path), pre_buffer=not is_local(path)) as file:
                orders = order_columns(file.schema_arrow.names)
                wanted = [*columns, *(order for order in orders if order not in columns)]
                all_groups = ((number, file.metadata.row_group(number)) for number in range(file.num_row_groups))
                groups = [number for number, group in all_groups if _overlaps(group, low_us, high_us)]
                part = file.read_row_groups(groups, columns=wanted, use_threads=False).select(wanted)
        except FileNotFoundError:
            msg = f"the file {path} is gone before its results were read"
            hint = "restart the join: the table holds the results in other files now"
            raise FileMissingError(msg, name=path, hint=hint) from None
        except (pa.ArrowInvalid, OSError, KeyError):
            msg = f"the file {path} of a table of results cannot be read"
            raise FileFormatError(msg, name=path, hint="restore it from a copy of the table") from None
        times = times_of(part)
        inside = (times >= low_us) & (times <= high_us)
        parts.append(part if inside.all() else part.filter(pa.array(inside)))
    if not parts:
        return pa.table({EVENT_TIME: pa.array([], TIMESTAMP)})
    found = pa.concat_tables(parts)
    keys = [(name, "ascending") for name in order_columns(found.column_names)]
    return found.take(pc.sort_indices(found, sort_keys=keys)).combine_chunks()


def times_of(results: pa.Table) -> np.ndarray:
    """Return the event times of results, in microseconds UTC."""
    times: np.ndarray = results.column(EVENT_TIME).cast(pa.int64()).to_numpy()
    return times


def row_hashes(results: pa.Table) -> np.ndarray:
    """Return a hash of each result, uint64, from its event time, its tuples' numbers and its window."""
    hashes = np.zeros(results.num_rows, np.uint64)
    for name in order_columns(results.column_names):
        column = results.column(name)
        if name == EVENT_TIME or pa.types.is_integer(column.type):
            numbers = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
            hashes = mixed(hashes ^ numbers.view(np.uint64))
    return hashes


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers (uint64) with their bits mixed: Stafford's mix 13 after a step of SplitMix64."""
    found = numbers + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    last: np.ndarray = found ^ (found >> np.uint64(31))
    return last


def _overlaps(group: pq.RowGroupMetaData, low_us: int, high_us: int) -> bool:
    """Whether a row group may hold results of a range, as far as its statistics tell."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == EVENT_TIME:
            stated = column.statistics
            if stated is None or not stated.has_min_max:
                return True
            low, high = (pa.scalar(bound, TIMESTAMP).value for bound in (stated.min, stated.max))
            return bool(low <= high_us and high >= low_us)
    return True


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
        self._written = read_columns(stream, schema)
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
        found = read_results(self._path, list(names), start.at, end.at, self._written.names)
        count = end.seq - start.seq
        found = self._without_ties(found, start).slice(0, count)
        if _folded(start.digest, row_hashes(found), start.seq) != end.digest:
            raise self._changed()
        found = found.select(self._written.names)
        clock = None if ahead is None else StreamClock(self._stream, start.time, ahead)
        for first in range(0, count, _PIECE_ROWS):
            piece = found.slice(first, _PIECE_ROWS).combine_chunks()
            raw = RawRecords(piece, piece.num_rows)
            far = None if clock is None else clock.judged(raw)[0]
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
