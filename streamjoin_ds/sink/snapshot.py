"""What a table's log says up to a version: identity, columns, transaction ids, and its files where they are asked for.

A snapshot is read once, from the newest checkpoint of the log and the entries after it. `forward` then reads the new
entries, one by one, and looks at nothing else in the log. So a commit costs the same however long the log is.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from pyarrow import fs, parquet

from streamjoin_ds.blocks.location import is_local, loggable
from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.log import entry_name, read_actions
from streamjoin_ds.sink.tables import filesystem_of

__all__ = ["LogFile", "LogSnapshot", "list_log"]

_NAME = re.compile(r"\.?(\d{20})\.(.+)")
_CHECKPOINT = re.compile(r"checkpoint\.(?:(\d{10})\.(\d{10})\.)?parquet")
_log = logging.getLogger(__name__)


class LogFile:
    """A file of a table's log: its version, name, size and when it was written."""

    __slots__ = ("info", "kind", "version")

    def __init__(self, info: fs.FileInfo, version: int, kind: str) -> None:
        self.info, self.version, self.kind = info, version, kind

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is a checkpoint, or a part of one."""
        return _CHECKPOINT.fullmatch(self.kind) is not None and not self.info.base_name.startswith(".")


def list_log(filesystem: fs.FileSystem, folder: str) -> list[LogFile]:
    """Return all files of a log that belong to a version, sorted by version; an empty list if there is no table."""
    selector = fs.FileSelector(f"{folder}/_delta_log", allow_not_found=True)
    files = []
    for info in filesystem.get_file_info(selector):
        match = _NAME.fullmatch(info.base_name)
        if match and info.type == fs.FileType.File:
            files.append(LogFile(info, int(match[1]), match[2]))
    return sorted(files, key=lambda file: (file.version, file.info.base_name))


class LogSnapshot:
    """A table as it is at one version.

    Parameters
    ----------
    path : str
        The table's folder.
    with_files : bool, keyword-only
        Whether to fill `live` and `removed`.

    Attributes
    ----------
    version : int
        The table's version.
    transactions : dict of str to int
        The last version of each application id.
    live : dict of str to int
        The files of the table: size in bytes by path.
    removed : dict of str to int
        The removed files that the log still knows: time of the removal, in milliseconds since 1970, by path.

    Raises
    ------
    TableError
        There is no table, or its log cannot be read.
    """

    def __init__(self, path: str, *, with_files: bool = False) -> None:
        self.path = path
        self.filesystem, self.folder = filesystem_of(path)
        self._with_files = with_files
        self.version = -1
        self.transactions: dict[str, int] = {}
        self.live: dict[str, int] = {}
        self.removed: dict[str, int] = {}
        self._metadata: dict[str, Any] = {}
        self._protocol: dict[str, Any] = {}
        self._load()

    @staticmethod
    def exists(path: str) -> bool:
        """Whether there is a Delta table at a path."""
        filesystem, folder = filesystem_of(path)
        if filesystem.get_file_info(f"{folder}/_delta_log/{entry_name(0)}").type == fs.FileType.File:
            return True
        return any(file.is_checkpoint or file.kind == "json" for file in list_log(filesystem, folder))

    # ------------------------------------------------------------------ what the log says

    @property
    def table_id(self) -> str:
        """The id that the table got when it was made."""
        return str(self._metadata.get("id"))

    @property
    def created_ms(self) -> int:
        """When the table was made, in milliseconds since 1970; 0 if the log does not say."""
        return int(self._metadata.get("createdTime") or 0)

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._metadata.get("configuration") or {})

    @property
    def partition_columns(self) -> list[str]:
        """Names of the columns by which the table is partitioned."""
        return list(self._metadata.get("partitionColumns") or ())

    @property
    def schema_text(self) -> str:
        """The table's columns, as Delta's JSON."""
        return str(self._metadata.get("schemaString"))

    @property
    def column_names(self) -> list[str]:
        """Names of the table's columns, in order."""
        return [str(column["name"]) for column in json.loads(self.schema_text)["fields"]]

    @property
    def features(self) -> frozenset[str]:
        """The features that the table's protocol names."""
        lists = (self._protocol.get(f"{side}Features") or () for side in ("reader", "writer"))
        return frozenset(name for names in lists for name in names)

    # ------------------------------------------------------------------ how the log is read

    def forward(self) -> None:
        """Read the new entries, up to the newest.

        Raises
        ------
        TableError
            The table was deleted, or replaced by another, or an entry cannot be read.
        """
        while (actions := read_actions(self.filesystem, self.folder, self.version + 1)) is not None:
            self._apply(actions)
            self.version += 1
        # The newest entry is never cleaned away. If ours is gone, others have gone on, or the table is gone.
        if not self.has_entry(self.version):
            before = self.table_id
            self._load()
            if self.table_id != before:
                raise self._gone()

    def forget_removed(self, before_ms: int) -> list[str]:
        """Forget files that were removed before a time, and return their paths; else `removed` would grow for ever."""
        forgotten = [path for path, when in self.removed.items() if when < before_ms]
        for path in forgotten:
            del self.removed[path]
        return forgotten

    def has_entry(self, version: int) -> bool:
        """Whether the log still has the entry of a version."""
        info = self.filesystem.get_file_info(f"{self.folder}/_delta_log/{entry_name(version)}")
        return bool(info.type == fs.FileType.File)

    def keeps_next(self) -> bool:
        """Whether the entry that was just put after this version counts; if not, the entry is removed.

        A writer that slept until the log was cleaned finds the next version free again. An entry there is older than
        the log's checkpoint, so nobody reads it.
        """
        if not is_local(self.path) or self.has_entry(self.version):
            return True
        self.filesystem.delete_file(f"{self.folder}/_delta_log/{entry_name(self.version + 1)}")
        told = self.version + 1, loggable(self.path)
        _log.debug(
            "the entry of version %d of %s is lost: before it was written, the log was cleaned up to a later version",
            *told,
        )
        return False

    def _gone(self) -> TableError:
        message = f"the table {self.path} was deleted or replaced while the join was running"
        return TableError(message, name=self.path, hint="restart the join with a new checkpoint and table")

    def _load(self) -> None:
        files = list_log(self.filesystem, self.folder)
        entries = [file.version for file in files if file.kind == "json" and not file.info.base_name.startswith(".")]
        if not entries:
            raise self._gone()
        self.version, parts = _newest_checkpoint(files)
        self.transactions, self.live, self.removed = {}, {}, {}
        self._metadata, self._protocol = {}, {}
        for part in parts:
            self._apply(self._checkpointed(part.info.path))
        for version in range(self.version + 1, max(entries) + 1):
            actions = read_actions(self.filesystem, self.folder, version)
            if actions is None:
                message = f"the log of {self.path} lacks the entry of version {version}"
                raise TableError(message, name=self.path, hint="restore the entry, or the table from a backup")
            self._apply(actions)
            self.version = version

    def _checkpointed(self, path: str) -> list[dict[str, Any]]:
        """Return the actions in a file of a checkpoint; only the columns that are needed are read."""
        kinds = ["txn", "metaData", "protocol", *(["add", "remove"] if self._with_files else [])]
        fields = {"txn": ("appId", "version"), "add": ("path", "size"), "remove": ("path", "deletionTimestamp")}
        actions = []
        with self.filesystem.open_input_file(path) as stream, parquet.ParquetFile(stream) as file:
            there = set(file.schema_arrow.names)
            for kind in kinds:
                if kind not in there:
                    continue
                columns = [f"{kind}.{name}" for name in fields[kind]] if kind in fields else [kind]
                column = file.read(columns=columns).column(kind)
                actions += [{kind: _plain(value)} for value in column.drop_null().to_pylist()]
        return actions

    def _apply(self, actions: Iterable[dict[str, Any]]) -> None:
        for action in actions:
            if value := action.get("txn"):
                self.transactions[value["appId"]] = value["version"]
            elif value := action.get("metaData"):
                self._metadata = value
            elif value := action.get("protocol"):
                self._protocol = value
            elif self._with_files and (value := action.get("add")):
                path = unquote(value["path"])
                self.live[path] = value["size"]
                self.removed.pop(path, None)
            elif self._with_files and (value := action.get("remove")):
                path = unquote(value["path"])
                self.live.pop(path, None)
                self.removed[path] = value.get("deletionTimestamp") or 0


def _newest_checkpoint(files: list[LogFile]) -> tuple[int, list[LogFile]]:
    """Return the version and the files of the newest complete checkpoint; -1 and no files if there is none."""
    by_version: dict[int, list[LogFile]] = {}
    for file in files:
        if file.is_checkpoint:
            by_version.setdefault(file.version, []).append(file)
    for version in sorted(by_version, reverse=True):
        parts = by_version[version]
        whole = [part for part in parts if part.kind == "checkpoint.parquet"]
        if whole:
            return version, whole
        counts = {match[2] for part in parts if (match := _CHECKPOINT.fullmatch(part.kind))}
        if len(counts) == 1 and len(parts) == int(counts.pop()):
            return version, parts
    return -1, []


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value read from Parquet with its map as a dict: Arrow gives a list of pairs."""
    if isinstance(value.get("configuration"), list):
        value["configuration"] = dict(value["configuration"])
    return value
