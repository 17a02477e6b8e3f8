"""Results in order, without Spark.

A punctuation ``p`` says that every result with ``event_time < p`` is in the table. So ranges are half open: ``between``
gives ``begin <= event_time < end``, and ranges that meet neither overlap nor leave a gap. Inside a range rows are
sorted by ``event_time``, then by every ``*_seq`` column, then by ``window_id``. That order is the same for every run
over the same input.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import compute, fs, parquet

from streamjoin_ds.delta.log_files import entry_name, filesystem_of, reached
from streamjoin_ds.delta.table_state import EVENT_TIME, JOIN_ID_KEY, TableState, order_columns
from streamjoin_ds.duration import EPOCH, MICROSECOND
from streamjoin_ds.errors import ArgumentError, LogCleanedError, PunctuationError, TableError
from streamjoin_ds.sink.guard import TableIdentity
from streamjoin_ds.sink.log import LogCommit, cleaned, open_table, read_commit
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TIMESTAMP, TableSet

if TYPE_CHECKING:
    from pyarrow import dataset  # imported at its use alone: it loads pandas, which takes as long as a small join

__all__ = ["Follower", "between", "complete", "follow", "last_punctuation", "matches_there", "scanned"]

_RUN = "give the path of the matches table of a join that has run"


def last_punctuation(root: str) -> int | None:
    """Return the newest punctuation of a join's tables, in microseconds UTC; None if there is none yet.

    Raises
    ------
    TableError
        There is no such table.
    """
    path = TableSet(root).punctuations
    try:
        state, found = TableState(path, with_files=True), []
    except TableError as error:
        if not error.message.startswith("there is no Delta table"):
            raise
        raise TableError(error.message, name=path, hint=_RUN) from error
    with _readable(path):
        for name in map(unquote, state.files):
            with state.filesystem.open_input_file(f"{state.folder}/{name}") as file:
                column = parquet.ParquetFile(file).read(["punctuation"]).column(0)
            found.append(compute.max(column.cast(pa.int64())).as_py())
    return max((value for value in found if value is not None), default=None)


def matches_there(root: str) -> int:
    """Return how many results a join's table holds, as its log says.

    Raises
    ------
    TableError
        There is no such table.
    """
    state = TableState(TableSet(root).matches, with_files=True)
    return sum(json.loads(add.get("stats") or "{}").get("numRecords", 0) for add in state.files.values())


def complete(root: str) -> pa.Table:
    """Return every result older than the newest punctuation, in no particular order.

    Results at or after the punctuation may be in the table already, but not all of them: they are left out. If there is
    no punctuation yet, the answer is empty.
    """
    # The punctuation is read first: the matches are read later, so they hold at least what it promises.
    end_us = last_punctuation(root)
    return _read(root, None, end_us, empty=end_us is None)


def between(root: str, begin: int | datetime, end: int | datetime) -> pa.Table:
    """Return the results with ``begin <= event_time < end``, in the order that ``ordered`` gives.

    Parameters
    ----------
    root : str
        Path of the matches table.
    begin, end : int or datetime
        Microseconds since 1970 UTC, or aware datetimes.

    Raises
    ------
    PunctuationError
        ``end`` lies beyond the newest punctuation: the range is not complete yet.
    """
    begin_us, end_us = _microseconds("begin", begin), _microseconds("end", end)
    last_us = last_punctuation(root)
    if last_us is None or end_us > last_us:
        so_far = (
            "no punctuation is in the table yet" if last_us is None else f"the results are complete before {last_us}"
        )
        message = f"{so_far}, so they are not yet complete before {end_us} (microseconds UTC)"
        raise PunctuationError(message, name="end", hint="ask for an earlier end, or wait for a later punctuation")
    return ordered(_read(root, begin_us, end_us))


def ordered(table: pa.Table) -> pa.Table:
    """Return results sorted by ``event_time``, then every ``*_seq`` column in the table's order, then ``window_id``."""
    return table.sort_by([(name, "ascending") for name in order_columns(table.column_names)])


def _microseconds(name: str, value: int | datetime) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            message = f"{name} has no time zone"
            raise ArgumentError(message, name=name, hint="an aware datetime, or microseconds since 1970 UTC")
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{name} is not a point in time"
        raise ArgumentError(message, name=name, hint="an aware datetime, or microseconds since 1970 UTC")
    return value


def _opened(path: str, version: int | None = None) -> DeltaTable:
    try:
        return open_table(path, version)
    except TableNotFoundError as error:
        message = f"there is no Delta table at {path}"
        raise TableError(message, name=path, hint=_RUN) from error
    except DeltaError as error:
        message = f"the table {path} cannot be opened" + ("" if version is None else f" at version {version}")
        damaged = "its log may be damaged: the error that caused this one says more"
        hint = "begin at a later version: old log entries are cleaned away"
        raise TableError(message, name=path, hint=damaged if version is None else hint) from error


def scanned(table: DeltaTable) -> dataset.Dataset:
    """Return a table's files as an Arrow dataset, read by Arrow's own file systems.

    delta-rs would hand Arrow a file system written in Python. A thread that still holds one when the interpreter ends
    aborts the process ("terminate called without an active exception", about one run in ten).
    """
    uri = table.table_uri  # delta-rs gives a local path as a URL
    filesystem, folder = filesystem_of(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)
    return table.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, filesystem))


def _timestamp(value_us: int) -> pa.Scalar:
    return pa.scalar(value_us, pa.int64()).cast(TIMESTAMP)


def _read(root: str, begin_us: int | None, end_us: int | None, *, empty: bool = False) -> pa.Table:
    source = scanned(_opened(TableSet(root).matches))
    condition = compute.field(EVENT_TIME).is_valid()
    if begin_us is not None:
        condition &= compute.field(EVENT_TIME) >= _timestamp(begin_us)
    if end_us is not None:
        condition &= compute.field(EVENT_TIME) < _timestamp(end_us)
    with _readable(root):
        return source.schema.empty_table() if empty else source.to_table(filter=condition)


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raise a TableError where a file of a table is gone, or is not what the log says."""
    try:
        with reached(path):
            yield
    except FileNotFoundError as error:
        message = f"a file of the table {path} was removed while the table was being read"
        hint = "open the table again: VACUUM has removed files that were replaced"
        raise TableError(message, name=path, hint=hint) from error
    except (pa.ArrowException, KeyError, OSError) as error:
        message = f"a file of the table {path} cannot be read, or is not what the log says"
        raise TableError(message, name=path, hint="restore it from a copy of the table") from error


class Follower:
    """Follows a matches table commit by commit, and gives what the join's own batches added, nothing else.

    Parameters
    ----------
    root : str
        Path of the matches table.
    from_version : int, keyword-only
        First version to follow. Rows of older versions count as given, but for those that were still held back.
    in_order : bool, keyword-only
        True: rows are held back until a punctuation passes them, and are then given sorted, so that all rows ever given
        are in order and the same in every run. False: the rows of each commit are given at once, in no particular
        order.
    since : int or None, keyword-only
        The last punctuation that a reader in order was given, in microseconds UTC. The follower goes on from there with
        what the table holds now, however long ago that was. It first gives the rows from `since` to the newest
        punctuation.

    Raises
    ------
    ArgumentError
        `since` is given with `from_version`, or without `in_order`; or the table has no version before `from_version`
        yet.
    LogCleanedError
        The log before `from_version` was cleaned away.

    Notes
    -----
    Rows that are held back stay in memory: those from the newest punctuation on.

    A row is given once, as its batch wrote it. Rows that others append, and rows that an OPTIMIZE, DELETE, UPDATE,
    MERGE or RESTORE writes again, are no results of the join and are not given. A row that a consumer deleted or
    changed before it was read is still given as the batch wrote it, as long as VACUUM has left its file. Only the rows
    that are read from a whole version are as the consumer left them: those for `since`, and those that were held back
    at `from_version`.
    """

    def __init__(self, root: str, *, from_version: int = 0, in_order: bool = True, since: int | None = None) -> None:
        if since is not None and (from_version or not in_order):
            message = "since cannot be combined with from_version or with in_order=False"
            raise ArgumentError(message, name="since", hint="Follower(root, since=the last punctuation read)")
        self._path = TableSet(root).matches
        self._filesystem, self._folder = filesystem_of(self._path)
        self._next_version = from_version
        self._in_order = in_order
        self._punctuation_us: int | None = None
        table = _opened(self._path)
        if from_version > table.version() + 1:
            message = f"the table {self._path} has no version {from_version - 1} yet"
            hint = f"its newest is {table.version()}: give at most {table.version() + 1}"
            raise ArgumentError(message, name="from_version", hint=hint)
        self._schema: pa.Schema = scanned(table).schema
        self._held = self._schema.empty_table()
        self._behind: pa.Table | None = None
        if since is not None:
            self._next_version = self._catch_up(None, since) + 1
            self._behind = self._released(self._punctuation_us, self._schema.empty_table())
        elif from_version > 0 and in_order:
            self._catch_up(from_version - 1, None)

    @property
    def next_version(self) -> int:
        """The version that :meth:`poll` reads next."""
        return self._next_version

    def poll(self) -> Iterator[tuple[int | None, pa.Table]]:
        """Give one pair for each new commit of the join, up to the table's newest version, and end.

        Yields
        ------
        punctuation_us : int or None
            The punctuation of the commit, in microseconds UTC.
        rows : pyarrow.Table
            The rows that the commit releases (``in_order``) or adds; often none.

        Raises
        ------
        LogCleanedError
            A log entry was cleaned away before it was read: go on with a new follower `since` the last punctuation.
        TableError
            A file was removed before it was read.
        """
        if self._behind is not None:
            rows, self._behind = self._behind, None
            yield self._punctuation_us, rows
        while True:
            try:
                commit = read_commit(self._path, self._next_version)
            except LogCleanedError:
                if self._is_newest(self._next_version - 1):
                    return
                raise
            rows = self._rows(commit)
            self._next_version += 1
            if commit.batch_id is not None:
                yield commit.punctuation_us, self._released(commit.punctuation_us, rows) if self._in_order else rows

    def _is_newest(self, version: int) -> bool:
        """Whether the entry after `version` was never written, rather than written and cleaned away."""
        # Entries are cleaned away oldest first: while `version` is there, the one after it cannot have been removed.
        return self._has_entry(version) if version >= 0 else int(_opened(self._path).version()) < 0

    def _has_entry(self, version: int) -> bool:
        info = self._filesystem.get_file_info(f"{self._folder}/_delta_log/{entry_name(version)}")
        return bool(info.type == fs.FileType.File)

    def _released(self, punctuation_us: int | None, rows: pa.Table) -> pa.Table:
        held = pa.concat_tables([self._held, rows])
        if punctuation_us is not None:
            self._punctuation_us = punctuation_us
        if self._punctuation_us is None:
            self._held = held
            return self._schema.empty_table()
        passed = compute.less(held.column(EVENT_TIME), _timestamp(self._punctuation_us))
        self._held = held.filter(compute.invert(passed)).combine_chunks()
        return ordered(held.filter(passed))

    def _rows(self, commit: LogCommit) -> pa.Table:
        with _readable(self._path):
            tables = [
                parquet.read_table(f"{self._folder}/{path}", filesystem=self._filesystem) for path in commit.paths
            ]
            parts = [table.select(self._schema.names).cast(self._schema) for table in tables]
        return pa.concat_tables([self._schema.empty_table(), *parts])

    def _catch_up(self, version: int | None, since_us: int | None) -> int:
        """Hold back the rows of a version that were not given by then, and return the number of that version.

        These are the rows from `since_us` on; None: from that version's own punctuation on.
        """
        try:
            table = _opened(self._path, version)
        except TableError as error:
            if version is None or not LogSnapshot.exists(self._path):
                raise
            raise cleaned(self._path, version) from error
        join_id = table.metadata().configuration.get(JOIN_ID_KEY)
        if join_id is not None:
            self._punctuation_us = table.transaction_version(TableIdentity(join_id, "any").punctuation_app)
        begin_us = self._punctuation_us if since_us is None else since_us
        condition = None if begin_us is None else compute.field(EVENT_TIME) >= _timestamp(begin_us)
        with _readable(self._path):
            self._held = scanned(table).to_table(filter=condition).cast(self._schema)
        return int(table.version())


def follow(
    root: str, *, from_version: int = 0, in_order: bool = True, since: int | None = None
) -> Iterator[tuple[int | None, pa.Table]]:
    """Give ``(punctuation_us, rows)`` for each commit from a version to the newest; see :class:`Follower`."""
    return Follower(root, from_version=from_version, in_order=in_order, since=since).poll()
