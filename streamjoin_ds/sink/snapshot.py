"""What a table's log says up to a version: identity, columns, transaction ids, and its files where they are asked for.

A snapshot is read once, from the newest checkpoint of the log and the entries after it. `forward` then reads the new
entries, one by one, and looks at nothing else in the log. So a commit costs the same however long the log is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from streamjoin_ds.blocks.place import is_local, loggable
from streamjoin_ds.delta.log_files import (
    checkpointed,
    entry_name,
    filesystem_of,
    list_log,
    newest_checkpoint,
    read_actions,
)
from streamjoin_ds.errors import TableError

__all__ = ["LogSnapshot"]

# What is read of a checkpoint: by kind of action the fields, or all (None).
_FACTS = {"txn": ("appId", "version"), "metaData": None, "protocol": None}
_FILES = {"add": ("path", "size"), "remove": ("path", "deletionTimestamp")}
_log = logging.getLogger(__name__)


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
        self.version, parts = newest_checkpoint(files)
        self.transactions, self.live, self.removed = {}, {}, {}
        self._metadata, self._protocol = {}, {}
        kinds = {**_FACTS, **_FILES} if self._with_files else _FACTS
        for part in parts:
            self._apply(checkpointed(self.filesystem, part.info.path, kinds))
        for version in range(self.version + 1, max(entries) + 1):
            actions = read_actions(self.filesystem, self.folder, version)
            if actions is None:
                message = f"the log of {self.path} lacks the entry of version {version}"
                raise TableError(message, name=self.path, hint="restore the entry, or the table from a backup")
            self._apply(actions)
            self.version = version

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
