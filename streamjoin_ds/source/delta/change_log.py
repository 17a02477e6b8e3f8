"""The files with new rows of a table, version after version, as a stream reads them, and positions among them.

::

    begin ──► files of the snapshot, by event time ──► files that version begin + 1 adds ──► begin + 2 ──► ...
          or                                           files that version begin adds     ──► begin + 1 ──► ...

A rewrite that changes no row (``OPTIMIZE``) adds no new row. A version that deletes or rewrites rows stops the stream,
or is passed over but for what it inserted.

A position in the versions of a table, and one in the results of a join, are plain JSON.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar

import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.delta.columns import TableColumns, check_protocol, table_columns
from streamjoin_ds.delta.log_files import list_log, reached
from streamjoin_ds.delta.table_state import TableState
from streamjoin_ds.errors import (
    ArgumentError,
    LogCleanedError,
    SchemaDriftError,
    StreamJoinError,
    TableChangedError,
)
from streamjoin_ds.source.delta.data_file import DataFile, place_of
from streamjoin_ds.source.position import PlainFacts, is_hexadecimal
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.nested_path import inner_type
from streamjoin_ds.spec.time_zone import Rhythm

__all__ = ["NO_DIGEST", "Beginning", "ChangeLog", "ResultsPosition", "VersionPosition", "stated_bounds", "stated_rows"]

_log = logging.getLogger(__name__)

NO_DIGEST = "0" * 16
_TABLES = ", or is not one of a table"


@dataclass(frozen=True, slots=True)
class VersionPosition(PlainFacts):
    """The position in the rows that a table's versions add: the place of the next row.

    Parameters
    ----------
    begin : int
        The version at which the stream begins. -1 where that is not decided yet, at the beginning of a stream.
    snapshot : bool
        Whether the stream begins with the rows that the table has at `begin`, and not with those that `begin` adds.
    version, file, row : int
        The next row: its version, the number of its file in the version, and its number among the file's rows that
        count. Where `version` is `begin` and the stream begins with a snapshot, files are numbered in the snapshot.
    seq : int
        Number of the next record: the records of the stream before it, broken ones counted.
    time : int
        Largest event time so far, in microseconds UTC; the smallest int64 where there is none.
    digest : str
        A digest of the marks of all files before this one.
    mark : str
        The mark of this file (`DataFile.mark`); empty where none of its rows was read.
    table : str
        The table's id.
    rhythm : tuple of int
        Of a stream with local times: how its times have come (`Rhythm`).
    """

    begin: int = -1
    digest: str = NO_DIGEST
    file: int = 0
    mark: str = ""
    row: int = 0
    seq: int = 0
    snapshot: bool = False
    table: str = ""
    time: int = NO_TIME
    version: int = -1
    rhythm: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """The next row's version and file."""
        return self.version, self.file

    @property
    def is_decided(self) -> bool:
        """Whether it is decided at which version the stream begins."""
        return self.begin >= 0

    MORE: ClassVar[str] = _TABLES
    LATER: ClassVar[frozenset[str]] = frozenset(("rhythm",))
    LEAST: ClassVar[Mapping[str, int]] = {"time": NO_TIME, "begin": -1, "version": -1}

    def wrong_field(self) -> str:
        """See `PlainFacts.wrong_field`."""
        if not is_hexadecimal(self.digest):
            return "digest"
        if not Rhythm.is_one(self.rhythm):
            return "rhythm"
        return "mark" if self.mark and not is_hexadecimal(self.mark) else ""


@dataclass(frozen=True, slots=True)
class ResultsPosition(PlainFacts):
    """The position in the results of a join, which are read by event time, then number.

    Parameters
    ----------
    at : int
        The event time of the last result that was read, in microseconds UTC; the smallest int64 where none was.
    ties : int
        How many results with that event time were read.
    seq : int
        Number of the next record.
    time : int
        Largest event time so far that counts: `at`, but for records that are too far ahead.
    digest : str
        A digest of the results that were read: their event times and the numbers of their tuples.
    table : str
        The table's id; empty at the beginning.
    """

    at: int = NO_TIME
    digest: str = NO_DIGEST
    seq: int = 0
    table: str = ""
    ties: int = 0
    time: int = NO_TIME

    MORE: ClassVar[str] = _TABLES
    LEAST: ClassVar[Mapping[str, int]] = {"time": NO_TIME, "at": NO_TIME}

    def wrong_field(self) -> str:
        """See `PlainFacts.wrong_field`."""
        return "" if is_hexadecimal(self.digest) else "digest"


class Beginning(Struct):
    """At which version a stream begins, decided once. Streams over one table share it, so that they number rows alike.

    Attributes
    ----------
    version : int or None
        The version; None where it is not decided.
    snapshot : bool
        See `VersionPosition.snapshot`.
    """

    version: int | None = None
    snapshot: bool = True

    def decide(self, stream: Stream, table: TableState, newest: int) -> None:
        """Decide it by the stream's options and the newest version that is read, unless it is decided.

        Raises
        ------
        ArgumentError
            The table has no such version.
        """
        if self.version is not None:
            return
        source = stream.delta_rows
        self.snapshot = source.starting_version is None and source.starting_timestamp is None
        if self.snapshot:
            self.version = newest
        elif isinstance(source.starting_version, int):
            if source.starting_version > newest + 1:
                msg = f"starting_version of stream {stream.name} is beyond the newest version of its table"
                raise ArgumentError(msg, name="starting_version", hint=f"the table is at version {newest}")
            self.version = source.starting_version
        elif source.starting_version is not None:
            self.version = newest + 1
        else:
            self.version = min(_version_at(table, datetime.fromisoformat(str(source.starting_timestamp))), newest + 1)


class ChangeLog:
    """The files with new rows from a position on, as far as the table's log tells now.

    Parameters
    ----------
    stream : Stream
        A stream over the table.
    path : str
        The table's folder.
    schema : pyarrow.Schema
        The columns that travel. The table must have them.
    start : VersionPosition
        Where it begins. If that is not decided, it is decided now.
    beginning : Beginning
        What was decided for another stream over the table.
    last : int, optional
        The version beyond which nothing is read.

    Attributes
    ----------
    files : list of DataFile
        The files from `start` on. `drop_before` removes those that are done.
    next_version : int
        The version whose entry is read next.
    refusal : StreamJoinError or None
        Why the stream cannot go on with `next_version`. What comes before it can be read.

    Raises
    ------
    TableChangedError
        The table is not the one that was read so far.
    LogCleanedError
        The log does not tell any more what the position needs.
    TableError
        The log cannot be read, or the table needs another reader.
    """

    def __init__(
        self,
        stream: Stream,
        path: str,
        schema: pa.Schema,
        start: VersionPosition,
        beginning: Beginning,
        last: int | None = None,
    ) -> None:
        self._stream, self._schema, self._path = stream, schema, path
        self._state = TableState(path)
        self.table_id = self._state.table_id
        if start.table and start.table != self.table_id:
            msg = f"the table {path} is not the one that stream {stream.name} has read so far"
            raise TableChangedError(msg, name=path, hint="put it back, or begin with a new checkpoint and a new table")
        if start.version > self._state.version + 1:
            msg = (
                f"the table {path} was taken back to version {self._state.version}: stream {stream.name} has read more"
            )
            raise TableChangedError(msg, name=path, hint="put it back, or begin with a new checkpoint and a new table")
        newest = self._state.version if last is None else min(last, self._state.version)
        if not start.is_decided:
            beginning.decide(stream, self._state, newest)
        self.begin = start.begin if start.is_decided else beginning.version or 0
        self.has_snapshot = start.snapshot if start.is_decided else beginning.snapshot
        self.first = start.place if start.is_decided else (self.begin, 0)
        self.files: list[DataFile] = []
        self.next_version = self.first[0]
        self.refusal: StreamJoinError | None = None
        self._metadata, self._protocol = self._facts_before(self.next_version)
        if self.has_snapshot and self.next_version == self.begin:
            self.files, self.next_version = self._snapshot(), self.begin + 1
        for version in range(self.next_version, newest + 1):
            actions = self._state.actions(version)
            if actions is None:
                raise self._state.cleaned(version)
            self._take(version, actions)
        self.drop_before(self.first)

    def forward(self) -> None:
        """Take in the entries that are new, up to one that is refused.

        Raises
        ------
        TableChangedError, LogCleanedError, TableError
            See `TableState.forward`.
        """
        if self.refusal is None:
            for version, actions in self._state.forward():
                self._take(version, actions)

    def drop_before(self, place: tuple[int, int]) -> None:
        """Forget the files before a place."""
        self.first = max(self.first, place)
        del self.files[: bisect_left(self.files, place, key=place_of)]

    def between(self, start: VersionPosition, end: VersionPosition) -> list[DataFile]:
        """Return the files that hold the rows of ``[start, end)``, and those without rows among them.

        Raises
        ------
        StreamJoinError
            A version among them is refused.
        """
        if self.refusal is not None and end.version > self.next_version:
            raise self.refusal
        low = start.place if start.is_decided else (self.begin, 0)
        return [file for file in self.files if low <= file.place < end.place or (file.place == end.place and end.row)]

    def _take(self, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
        """Append the files with new rows of one version, unless it or one before it is refused."""
        if self.refusal is not None:
            return
        try:
            for action in actions:
                self._metadata = action.get("metaData") or self._metadata
                self._protocol = action.get("protocol") or self._protocol
            columns = self._checked_columns(version)
            added = [one["add"] for one in actions if one.get("add") and one["add"].get("dataChange", True)]
            removed = [one["remove"] for one in actions if one.get("remove") and one["remove"].get("dataChange", True)]
            changes: list[Mapping[str, Any]] = []
            if removed:
                added, changes = self._inserted(version, actions, added, {one["path"] for one in removed})
        except (TableChangedError, SchemaDriftError) as error:
            self.refusal = error
            return
        found = changes or added
        self.files += [
            DataFile.of_action(version, number, action, columns, is_changes=bool(changes)).only(self._schema.names)
            for number, action in enumerate(found)
        ]
        self.next_version = version + 1

    def _inserted(
        self,
        version: int,
        actions: Sequence[Mapping[str, Any]],
        added: list[Mapping[str, Any]],
        removed: set[str],
    ) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return what holds the rows that a version inserts which deletes or rewrites rows.

        These are new files all of whose rows are new, or files of the change feed.
        """
        info: Mapping[str, Any] = next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})
        told, name = info.get("operation") or "a change", self._stream.name
        if self._stream.delta_rows.on_change != "ignore":
            msg = f"version {version} of the table {self._path}, which stream {name} reads, changes rows ({told})"
            hint = "with on_change=ignore the stream goes on, and reads of such versions only rows that they insert"
            raise TableChangedError(msg, name=self._path, hint=hint)
        changes = [one["cdc"] for one in actions if one.get("cdc")]
        if changes:
            return [], changes
        if (self._metadata.get("configuration") or {}).get("delta.enableChangeDataFeed") == "true":
            return [add for add in added if add["path"] not in removed], []  # without files of their own: all are new
        if added:
            _log.warning(
                "stream %s: version %d of its table (%s) is passed over. It rewrites rows, and the table has no change "
                "feed that tells which rows of its new files are new: %d",
                *(name, version, told, len(added)),
            )
        return [], []

    def _facts_before(self, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the table's metadata and protocol before a version; those of now where the log does not tell."""
        state = self._state
        if version > 0:
            try:
                state = TableState(self._path, version - 1)
            except LogCleanedError:
                _log.debug("stream %s: the columns before version %d are taken from now", self._stream.name, version)
        return state.metadata, state.protocol

    def _snapshot(self) -> list[DataFile]:
        """Return the files of the table at `begin`: by their smallest event time, else by when they were written.

        A compacted file is newer than its rows, so its place among the others goes by the rows' times.
        """
        state = TableState(self._path, self.begin, with_files=True)
        self._metadata, self._protocol = state.metadata, state.protocol
        columns = self._checked_columns(self.begin)
        time = columns.physical.get(self._stream.written_time) or self._stream.written_time
        adds = list(state.files.values())
        stated = [stated_bounds(add, time)[0] for add in adds]
        lows = [low or 0 for low in stated] if None not in stated else [0] * len(adds)
        keys = [(low, add.get("modificationTime") or 0, add["path"]) for low, add in zip(lows, adds, strict=True)]
        ordered = [add for _, add in sorted(zip(keys, adds, strict=True), key=lambda pair: pair[0])]
        return [
            DataFile.of_action(self.begin, number, add, columns).only(self._schema.names)
            for number, add in enumerate(ordered)
        ]

    def _checked_columns(self, version: int) -> TableColumns:
        check_protocol(self._protocol, self._metadata, self._path)
        columns = table_columns(self._metadata, self._path)
        for name in self._schema.names:
            if name not in columns.schema.names and inner_type(columns.schema, name) is None:
                msg = f"the table {self._path} has no column '{name}' in version {version}"
                hint = "the stream needs it: add it again, or start a new join"
                raise SchemaDriftError(msg, name=name, hint=hint)
        return columns


def stated_bounds(add: Mapping[str, Any], column: str) -> tuple[int | None, int | None]:
    """Return the smallest and the largest value of a column that an ``add`` action states; None where it does not.

    Times are in microseconds UTC, cut off to what the log has, so that the largest may be up to a millisecond later.
    """
    try:
        stats = json.loads(add.get("stats") or "{}")
        bounds = [(stats.get(side) or {}).get(column) for side in ("minValues", "maxValues")]
    except (ValueError, AttributeError):
        return None, None
    low, high = (_microseconds(bound) for bound in bounds)
    return low, high


def stated_rows(add: Mapping[str, Any]) -> int:
    """Return how many rows an ``add`` action states; 1 where it does not."""
    try:
        return int(json.loads(add.get("stats") or "{}").get("numRecords") or 1)
    except (ValueError, AttributeError, TypeError):
        return 1


def _microseconds(bound: object) -> int | None:
    if isinstance(bound, (int, float)) and not isinstance(bound, bool):
        return int(bound)
    if not isinstance(bound, str):
        return None
    try:
        moment = pa.scalar(bound.removesuffix("Z").replace(" ", "T", 1)).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    return int(moment.value)


def _version_at(table: TableState, moment: datetime) -> int:
    """Return the first version that was committed at a moment or later; that after the newest if there is none."""
    moment_ms = int(moment.astimezone(timezone.utc).timestamp() * 1000)
    found = table.version + 1
    with reached(table.path):
        files = list_log(table.filesystem, table.folder)
    for file in reversed(files):
        if file.is_entry:
            actions = table.actions(file.version) or []
            info: Mapping[str, Any] = next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})
            committed_ms = info.get("inCommitTimestamp") or info.get("timestamp") or (file.info.mtime_ns or 0) // 10**6
            if committed_ms < moment_ms:
                break
            found = file.version
    return found
