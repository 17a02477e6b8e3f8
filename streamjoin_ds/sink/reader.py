"""Results in order, without Spark.

A punctuation ``p`` says that every result with ``event_time < p`` is in the table. So ranges are half open: ``between``
gives ``begin <= event_time < end``, and ranges that meet neither overlap nor leave a gap. Inside a range rows are
sorted by ``event_time`` and then by every ``*_seq`` column, which is the same for every run over the same input.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import compute, dataset, fs, parquet

from streamjoin_ds.errors import ArgumentError, PunctuationError, TableError
from streamjoin_ds.sink.log import LogCommit, read_commit
from streamjoin_ds.sink.tables import EVENT_TIME, TIMESTAMP, TableSet, filesystem_of
from streamjoin_ds.spec.periodic_window import WINDOW_ID

__all__ = ["Follower", "between", "complete", "follow", "last_punctuation", "scanned"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def last_punctuation(root: str) -> int | None:
    """Return the newest punctuation of a join's tables, in microseconds UTC; None if there is none yet.

    Raises
    ------
    TableError
        There is no such table.
    """
    table = scanned(_opened(TableSet(root).punctuations)).to_table(columns=["punctuation"])
    value = compute.max(table.column("punctuation").cast(pa.int64())).as_py()
    return None if value is None else int(value)


def complete(root: str) -> pa.Table:
    """Return every result older than the newest punctuation, in no particular order.

    Results at or after it may be in the table already, but not all of them: they are left out. Without a
    punctuation the answer is empty.
    """
    # The punctuation is read first: the matches, read later, hold at least what it promises.
    end_us = last_punctuation(root)
    return _read(root, None, end_us, empty=end_us is None)


def between(root: str, begin: int | datetime, end: int | datetime) -> pa.Table:
    """Return the results with ``begin <= event_time < end``, in the order of ``event_time`` and sequence numbers.

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
        message = f"the results are complete before {last_us}, not yet before {end_us} (microseconds UTC)"
        raise PunctuationError(message, name="end", hint="ask for an earlier end, or wait for a later punctuation")
    return ordered(_read(root, begin_us, end_us))


def ordered(table: pa.Table) -> pa.Table:
    """Sort results by ``event_time``, every column named ``*_seq``, in the columns' order, and ``window_id``."""
    keys = [EVENT_TIME, *(name for name in table.column_names if name.endswith("_seq"))]
    keys += [name for name in table.column_names if name == WINDOW_ID]
    return table.sort_by([(name, "ascending") for name in keys])


def _microseconds(name: str, value: int | datetime) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            message = f"{name} has no time zone"
            raise ArgumentError(message, name=name, hint="an aware datetime, or microseconds since 1970 UTC")
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{name} is not a point in time"
        raise ArgumentError(message, name=name, hint="an aware datetime, or microseconds since 1970 UTC")
    return value


def _opened(path: str, version: int | None = None) -> DeltaTable:
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError as error:
        message = f"there is no Delta table {path}"
        raise TableError(message, name=path, hint="the path of the matches table of a join that has run") from error
    except DeltaError as error:
        message = f"the table {path} cannot be opened" + ("" if version is None else f" at version {version}")
        raise TableError(
            message, name=path, hint="begin at a later version: old log entries are cleaned away"
        ) from error


def scanned(table: DeltaTable) -> dataset.Dataset:
    """A table's files as an Arrow dataset, read by Arrow's own file systems.

    delta-rs would hand Arrow a file system written in Python; a thread that still holds one when the interpreter ends
    aborts the process ("terminate called without an active exception", about one run in ten).
    """
    filesystem, folder = filesystem_of(TableSet(table.table_uri).root)
    return table.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, filesystem))


def _timestamp(value_us: int) -> pa.Scalar:
    return pa.scalar(value_us, pa.int64()).cast(TIMESTAMP)


def _read(root: str, begin_us: int | None, end_us: int | None, *, empty: bool = False) -> pa.Table:
    source = scanned(_opened(TableSet(root).matches))
    condition = dataset.field(EVENT_TIME).is_valid()
    if begin_us is not None:
        condition &= dataset.field(EVENT_TIME) >= _timestamp(begin_us)
    if end_us is not None:
        condition &= dataset.field(EVENT_TIME) < _timestamp(end_us)
    try:
        return source.schema.empty_table() if empty else source.to_table(filter=condition)
    except FileNotFoundError as error:
        raise _vacuumed(root) from error


def _vacuumed(root: str) -> TableError:
    message = f"a file of the table {root} was removed while it was being read"
    return TableError(message, name=root, hint="VACUUM removes files a week after compaction: open the table anew")


class Follower:
    """Follows a matches table commit by commit.

    Parameters
    ----------
    root : str
        Path of the matches table.
    from_version : int, keyword-only
        First version to follow; what older versions hold is taken as known.
    in_order : bool, keyword-only
        True: rows are held back until a punctuation passes them, and come sorted, so that all rows ever given are in
        order and the same in every run. False: the rows of each commit at once, in no particular order.

    Notes
    -----
    Held-back rows stay in memory: those between the newest punctuation and the newest row.
    """

    def __init__(self, root: str, *, from_version: int = 0, in_order: bool = True) -> None:
        self._path = TableSet(root).matches
        self._next_version = from_version
        self._in_order = in_order
        self._punctuation_us: int | None = None
        self._schema: pa.Schema = scanned(_opened(self._path)).schema
        self._held = self._schema.empty_table()
        if from_version > 0 and in_order:
            self._catch_up(from_version - 1)

    @property
    def next_version(self) -> int:
        """The version that :meth:`poll` reads next."""
        return self._next_version

    def poll(self) -> Iterator[tuple[int | None, pa.Table]]:
        """Give one pair per new commit of the join, up to the table's newest version, and end.

        Yields
        ------
        punctuation_us : int or None
            The punctuation of the commit, microseconds UTC.
        rows : pyarrow.Table
            The rows it releases (``in_order``) or adds; often none.

        Raises
        ------
        TableError
            A log entry or a file was cleaned away before it was read.
        """
        newest = _opened(self._path).version()
        while self._next_version <= newest:
            commit = read_commit(self._path, self._next_version)
            rows = self._rows(commit)
            self._next_version += 1
            if commit.batch_id is None and not rows.num_rows:
                continue
            yield commit.punctuation_us, self._released(commit, rows) if self._in_order else rows

    def _released(self, commit: LogCommit, rows: pa.Table) -> pa.Table:
        held = pa.concat_tables([self._held, rows])
        if commit.punctuation_us is not None:
            self._punctuation_us = commit.punctuation_us
        if self._punctuation_us is None:
            self._held = held
            return self._schema.empty_table()
        passed = compute.less(held.column(EVENT_TIME), _timestamp(self._punctuation_us))
        self._held = held.filter(compute.invert(passed)).combine_chunks()
        return ordered(held.filter(passed))

    def _rows(self, commit: LogCommit) -> pa.Table:
        filesystem, folder = filesystem_of(self._path)
        try:
            tables = [parquet.read_table(f"{folder}/{path}", filesystem=filesystem) for path in commit.paths]
        except FileNotFoundError as error:
            raise _vacuumed(self._path) from error
        parts = [table.select(self._schema.names).cast(self._schema) for table in tables]
        return pa.concat_tables([self._schema.empty_table(), *parts])

    def _catch_up(self, version: int) -> None:
        """Take as held what the table had at `version` beyond the punctuation of that time."""
        for earlier in range(version, -1, -1):
            commit = read_commit(self._path, earlier)
            if commit.punctuation_us is not None:
                self._punctuation_us = commit.punctuation_us
                break
        source = scanned(_opened(self._path, version))
        if self._punctuation_us is None:
            self._held = source.to_table()
        else:
            self._held = source.to_table(filter=dataset.field(EVENT_TIME) >= _timestamp(self._punctuation_us))
        self._held = self._held.cast(self._schema)


def follow(root: str, *, from_version: int = 0, in_order: bool = True) -> Iterator[tuple[int | None, pa.Table]]:
    """Give ``(punctuation_us, rows)`` for each commit from a version to the newest; see :class:`Follower`."""
    return Follower(root, from_version=from_version, in_order=in_order).poll()
