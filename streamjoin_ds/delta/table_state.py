"""A table as of a version, read from its log alone, and followed from there entry by entry.

The properties and transactions of a table of matches also say which join writes it, how far its results are complete,
and in which order its rows are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from streamjoin_ds.delta.columns import TableColumns, check_protocol, table_columns
from streamjoin_ds.delta.log_files import (
    checkpoint_actions,
    entry_name,
    filesystem_of,
    list_log,
    newest_checkpoint,
    reached,
    read_actions,
)
from streamjoin_ds.errors import LogCleanedError, TableChangedError, TableError

__all__ = ["EVENT_TIME", "JOIN_ID_KEY", "TableState", "file_path", "order_columns", "punctuation_app", "punctuation_us"]

# What is read of a checkpoint: by kind of action the fields, or all (None).
_FACTS = {"txn": ("appId", "version"), "metaData": None, "protocol": None}
_FILES = {"add": ("path", "size", "partitionValues", "modificationTime", "stats", "deletionVector")}
EVENT_TIME = "event_time"
JOIN_ID_KEY = "streamjoin.joinId"
_WINDOW_ID = "window_id"


class TableState:
    """A table as of one version.

    Parameters
    ----------
    path : str
        The table's folder.
    version : int, optional
        The version; by default the newest.
    with_files : bool, keyword-only
        Whether `files` is filled.

    Attributes
    ----------
    version : int
        The version that the state is of.
    metadata, protocol : dict
        The table's newest actions of these kinds.
    transactions : dict of str to int
        The last version of each application id.
    files : dict of str to dict
        The ``add`` actions of the table's files, by their paths as the log writes them.

    Raises
    ------
    TableError
        There is no table, or it cannot be read.
    LogCleanedError
        The log no longer tells what the table was at the version.
    """

    def __init__(self, path: str, version: int | None = None, *, with_files: bool = False) -> None:
        self.path = path
        self.filesystem, self.folder = filesystem_of(path)
        self._with_files = with_files
        self.version = -1
        self.metadata: dict[str, Any] = {}
        self.protocol: dict[str, Any] = {}
        self.transactions: dict[str, int] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self._stamp: tuple[int, int | None] | None = None  # of the entry of `version`
        with reached(path):
            self._load(version)

    @property
    def table_id(self) -> str:
        """The id that the table got when it was made."""
        return str(self.metadata.get("id"))

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.get("configuration") or {})

    def columns(self) -> TableColumns:
        """Return the table's columns.

        Raises
        ------
        TableError
            The table needs another reader, or has a column of a type that cannot be read.
        """
        check_protocol(self.protocol, self.metadata, self.path)
        return table_columns(self.metadata, self.path)

    def forward(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Go on with the entries that are new, one by one, and yield the version and the actions of each.

        It looks at the last entry and at the next one, and lists nothing.

        Raises
        ------
        LogCleanedError
            The next entry was cleaned away before it was read.
        TableChangedError
            The table was deleted, or replaced by another.
        """
        with reached(self.path):
            stamp = self._entry_stamp(self.version)
            if stamp is None or stamp != self._stamp:
                self._check_same(stamp)
        while (actions := self.actions(self.version + 1)) is not None:
            before = self.table_id
            self.apply(actions)
            self.version += 1
            with reached(self.path):
                self._stamp = self._entry_stamp(self.version)
            if self.table_id != before:
                raise self._replaced(self.version)
            yield self.version, actions

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of a version's entry; None if there is no entry (see `read_actions`)."""
        with reached(self.path):
            return read_actions(self.filesystem, self.folder, version)

    def apply(self, actions: Iterable[dict[str, Any]]) -> None:
        """Take over what the actions of one version, or of a checkpoint, say."""
        for action in actions:
            if value := action.get("txn"):
                self.transactions[value["appId"]] = value["version"]
            elif value := action.get("metaData"):
                self.metadata = value
            elif value := action.get("protocol"):
                self.protocol = value
        if self._with_files:  # an entry may remove a file and add it again with a deletion vector, in any order
            removed = [action["remove"]["path"] for action in actions if action.get("remove")]
            added = {action["add"]["path"]: action["add"] for action in actions if action.get("add")}
            for path in removed:
                self.files.pop(path, None)
            self.files |= added

    def has_entry(self, version: int) -> bool:
        """Whether the log has the entry of a version."""
        with reached(self.path):
            return self._entry_stamp(version) is not None

    def _entry_stamp(self, version: int) -> tuple[int, int | None] | None:
        info = self.filesystem.get_file_info(f"{self.folder}/_delta_log/{entry_name(version)}")
        return (info.size, info.mtime_ns) if info.type == fs.FileType.File else None

    def _check_same(self, stamp: tuple[int, int | None] | None) -> None:
        """Refuse a table that is another one now, and a log that was cleaned beyond this version."""
        newest = max((file.version for file in list_log(self.filesystem, self.folder) if file.is_entry), default=None)
        if newest is None or newest < self.version:
            raise self._replaced(None)
        if TableState(self.path).table_id != self.table_id:
            raise self._replaced(None)
        if newest > self.version and not self.has_entry(self.version + 1):
            raise self.cleaned(self.version + 1)
        self._stamp = stamp

    def cleaned(self, version: int) -> LogCleanedError:
        """Return the error that says that the entry of a version is not there any more."""
        msg = f"the table {self.path} no longer has the log entry of version {version}, which was not read yet"
        hint = "keep entries for longer (delta.logRetentionDuration); begin again with a new checkpoint and a new table"
        return LogCleanedError(msg, name=self.path, hint=hint)

    def _replaced(self, version: int | None) -> TableChangedError:
        where = "" if version is None else f" in version {version}"
        msg = f"the table {self.path} was deleted or replaced by another{where}"
        return TableChangedError(msg, name=self.path, hint="begin again with a new checkpoint and a new table")

    def _load(self, version: int | None) -> None:
        files = list_log(self.filesystem, self.folder)
        entries = sorted(file.version for file in files if file.is_entry)
        first, parts = newest_checkpoint(files, version, with_uuid=True)
        last = max([first, *entries]) if version is None else version
        if last < 0 or not (entries or parts):
            msg = f"there is no Delta table at {self.path}"
            raise TableError(msg, name=self.path, hint="give the folder that holds _delta_log")
        if parts:
            kinds = {**_FACTS, **_FILES} if self._with_files else _FACTS
            self.apply([*checkpoint_actions(self.filesystem, self.folder, parts, kinds)])
        self.version = first
        for number in range(first + 1, last + 1):
            actions = read_actions(self.filesystem, self.folder, number)
            if actions is None:
                if entries and number > entries[-1]:
                    msg = f"the table {self.path} has no version {number} yet"
                    raise TableError(msg, name=self.path, hint=f"its newest version is {entries[-1]}")
                raise self.cleaned(number)
            self.apply(actions)
            self.version = number
        self._stamp = self._entry_stamp(self.version)


def file_path(folder: str, path: str) -> str:
    """Return the path of a file that the log writes as `path`, relative to the table's folder or as a URI.

    Raises
    ------
    TableError
        The file lies elsewhere, as that of a shallow clone may.
    """
    plain = unquote(path)
    if "://" in plain or plain.startswith(("/", "file:")):
        msg = f"the table {folder} has files outside of its folder, as a shallow clone has"
        raise TableError(msg, name=folder, hint="give the table that it was cloned from, or make a deep clone")
    return f"{folder}/{plain}"


def punctuation_app(join_id: str) -> str:
    """Return the application id whose version is a join's last punctuation, in microseconds UTC."""
    return f"streamjoin/{join_id}#punctuation"


def punctuation_us(configuration: Mapping[str, str], transactions: Mapping[str, int]) -> int | None:
    """Return the newest punctuation: all results with an older ``event_time`` are in the table. None: none is known.

    Parameters
    ----------
    configuration : mapping
        The table's properties.
    transactions : mapping
        The last version of each application id.
    """
    return transactions.get(punctuation_app(str(configuration.get(JOIN_ID_KEY))))


def order_columns(names: Sequence[str]) -> list[str]:
    """Return the columns by which results are read in order: ``event_time``, each ``*_seq``, then ``window_id``."""
    numbers = [name for name in names if name.endswith("_seq")]
    return [EVENT_TIME, *numbers, *(name for name in names if name == _WINDOW_ID)]
