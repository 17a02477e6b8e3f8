"""A table's log: the table is opened, and its log is written and read entry by entry (`put_entry`, `read_commit`).

An entry is lines of ``commitInfo``, ``add``, ``remove``, ``txn``, ``metaData`` and ``protocol`` (the tables have the
plain protocol; ``guard`` sees to that). On a local file system this module writes the entries, not delta-rs: delta-rs
reads the names of all live files again for every commit, which takes 10 ms more for every hundred of them.

delta-rs opens up to a thousand entries of a log at once. Many systems allow a process 1 024 open files and let it ask
for more; Java asks by itself. A process that does not ask can neither read a table whose log has grown by a thousand
entries since its last checkpoint, nor write the next one. So `open_table` asks for room.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from msgspec import Struct, field

from streamjoin_ds.blocks.folder import put_new
from streamjoin_ds.blocks.place import is_local, loggable
from streamjoin_ds.delta.log_files import entry_name, filesystem_of, read_actions
from streamjoin_ds.errors import LogCleanedError, TableError

__all__ = ["NO_HOOKS", "LogCommit", "LogEntry", "added_rows", "open_table", "put_entry", "read_commit"]

_log = logging.getLogger(__name__)

_OPEN_FILES = 4_096  # open files that suffice: delta-rs' thousand, and what the process has open besides
# Open files that are asked for, as Java does. Spark keeps one of each query that ran, until its session ends.
_MOST_OPEN_FILES = 65_536
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_APP_PREFIX = "streamjoin/"
_MARK = "streamjoinMark"  # in an entry of an object store: of the one put that wrote it


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """Return the table at a version; None: the newest version.

    Raises
    ------
    TableError
        The system does not allow this process enough open files.
    deltalake.exceptions.DeltaError
        There is no such table or version.
    """
    _allow_open_files()
    try:
        return DeltaTable(path, version=version)
    except OSError as error:
        if "Too many open files" not in str(error):
            raise
        msg = f"the log of {path} has more entries since its last checkpoint than this process may have open files"
        raise TableError(
            msg, name=path, hint=f"raise the limit before the process starts: ulimit -n {_OPEN_FILES}"
        ) from error


def _allow_open_files() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such module, and no such limit
        return
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if most == resource.RLIM_INFINITY else min(_MOST_OPEN_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class LogEntry(Struct, frozen=True):
    """What one commit says.

    Parameters
    ----------
    operation : str
        Delta's name of what was done, as ``DESCRIBE HISTORY`` shows it.
    timestamp_ms : int
        When it was done, in milliseconds since 1970.
    adds : sequence of deltalake.transaction.AddAction
        Files added.
    transactions : dict of str to int
        The transaction ids: versions by application id.
    user_metadata : str
        JSON that is kept with the commit.
    first : tuple of dict
        The ``protocol`` and ``metaData`` actions of a table's first entry.
    removes : sequence of deltalake.transaction.RemoveAction
        Files that the added ones replace. They are written only on a local file system.
    """

    operation: str
    timestamp_ms: int
    adds: Sequence[AddAction] = ()
    transactions: dict[str, int] = field(default_factory=dict)
    user_metadata: str = "{}"
    first: tuple[dict[str, Any], ...] = ()
    removes: Sequence[RemoveAction] = ()

    def text(self) -> str:
        """Return the lines of the entry."""
        info = {
            "timestamp": self.timestamp_ms,
            "operation": self.operation,
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            # An append reads none of the table's rows: a concurrent DELETE or MERGE by Spark does not conflict.
            "isBlindAppend": not (self.first or self.removes),
            "engineInfo": "streamjoin_ds",
            "userMetadata": self.user_metadata,
        }
        if self.removes:  # by these numbers `tail` can tell that the entry is torn
            info["operationMetrics"] = {"num_added_files": len(self.adds), "num_removed_files": len(self.removes)}
        actions: list[dict[str, Any]] = [{"commitInfo": info}, *self.first]
        actions += [{"remove": _remove(remove)} for remove in self.removes]
        actions += [{"add": _add(add)} for add in self.adds]
        actions += [{"txn": {"appId": app, "version": version}} for app, version in self.transactions.items()]
        return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions) + "\n"


def _add(action: AddAction) -> dict[str, Any]:
    return {
        "path": action.path,
        "partitionValues": {},
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }


def _remove(action: RemoveAction) -> dict[str, Any]:
    return {
        "path": action.path,
        "dataChange": action.data_change,
        "deletionTimestamp": action.deletion_timestamp,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": action.size,
    }


def put_entry(table_path: str, version: int, entry: LogEntry) -> bool:
    """Write the entry of a version as a whole, unless the log has an entry of that version.

    Returns
    -------
    bool
        True if the entry is in the log, False if another writer's entry is there.

    Raises
    ------
    OSError, deltalake.exceptions.DeltaError
        There is no room, or no right to write.
    TableError
        A table in an object store was deleted or replaced since this process opened it.
    ArgumentError
        The file system cannot give a file a name only if it is free.

    Notes
    -----
    On a local file system `put_new` gives the complete file its name, unless the name is taken. Elsewhere
    delta-rs puts the entry, with the conditional put or the lock that the store has. If other entries came in between
    that change neither columns nor properties nor these application ids, delta-rs may take a later version.
    """
    is_put = (
        _put_locally(table_path, version, entry) if is_local(table_path) else _put_remotely(table_path, version, entry)
    )
    what = "is written" if is_put else "is refused, as another writer has this version"
    told = entry.operation, version, loggable(table_path), what, len(entry.adds), len(entry.removes)
    _log.debug("the entry %s of version %d of %s %s (%d files added, %d removed)", *told)
    return is_put


def _put_locally(table_path: str, version: int, entry: LogEntry) -> bool:
    log = f"{table_path}/_delta_log"
    # Readers and cleaners overlook such a name: it is Spark's own for a file that is not complete yet.
    aside = f"{log}/.{entry_name(version)}.{uuid.uuid4().hex}.tmp"
    try:
        with open(aside, "wb") as file:
            file.write(entry.text().encode())
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    return put_new(aside, f"{log}/{entry_name(version)}")


@lru_cache(maxsize=16)
def _remote_table(table_path: str) -> DeltaTable:
    return open_table(table_path)


def _put_remotely(table_path: str, version: int, entry: LogEntry) -> bool:
    table = _remote_table(table_path)
    if table.version() < version - 1:
        table.update_incremental()
    if table.version() != version - 1:
        if table.version() >= version:
            return False
        # The table was taken back, or is another one since: the table that is held is of no more use.
        _remote_table.cache_clear()
        message = f"the table {table_path} was deleted or replaced while the join was running"
        raise TableError(message, name=table_path, hint="restart the join with a new checkpoint and table")
    transactions = [Transaction(app, number) for app, number in entry.transactions.items()]
    mark = uuid.uuid4().hex
    metadata = {"userMetadata": entry.user_metadata, _MARK: mark}
    properties = CommitProperties(custom_metadata=metadata, app_transactions=transactions)
    try:
        table.create_write_transaction(
            list(entry.adds),
            "append",
            table.schema(),
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )
    except CommitFailedError:
        # Where the answer to a put is lost, the store's client asks again, and is told that the entry is there.
        return _is_marked(table_path, version, mark)
    except DeltaError:
        _remote_table.cache_clear()
        raise
    return True


def _is_marked(table_path: str, version: int, mark: str) -> bool:
    """Whether one of the entries from a version on has this mark."""
    filesystem, folder = filesystem_of(table_path)
    while (actions := read_actions(filesystem, folder, version)) is not None:
        if any((action.get("commitInfo") or {}).get(_MARK) == mark for action in actions):
            return True
        version += 1
    return False


class LogCommit(Struct, frozen=True):
    """What one version of a table's log says of a batch.

    Parameters
    ----------
    version : int
        The version.
    batch_id : int or None
        The join's batch; None for any other commit (compaction, a changed property, a consumer's DELETE).
    punctuation_us : int or None
        The punctuation of the batch, in microseconds UTC.
    paths : tuple of str
        Files with rows that the join's batch added; empty for any other commit.
    """

    version: int
    batch_id: int | None
    punctuation_us: int | None
    paths: tuple[str, ...]


def read_commit(table_path: str, version: int) -> LogCommit:
    """Read one log entry.

    Raises
    ------
    LogCleanedError
        The entry is not there: it was cleaned away after the table's log retention, or is not written yet.
    TableError
        The entry cannot be read.
    """
    filesystem, folder = filesystem_of(table_path)
    actions = read_actions(filesystem, folder, version)
    if actions is None:
        raise cleaned(table_path, version)
    facts = _facts(actions)
    if not _is_ours(actions, facts.get("batch_id")):
        return LogCommit(version, None, None, ())
    paths = tuple(unquote(add["path"]) for add in added_rows(actions))
    return LogCommit(version, facts.get("batch_id"), facts.get("punctuation"), paths)


def added_rows(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ``add`` actions of files with rows that a batch of the join added; none of any other commit."""
    if not _is_ours(actions, _facts(actions).get("batch_id")):
        return []
    adds = [action["add"] for action in actions if action.get("add")]
    return [add for add in adds if add.get("dataChange", True)]


def cleaned(table_path: str, version: int) -> LogCleanedError:
    """Return the error that says that an entry is not there any more."""
    message = f"the table {table_path} no longer has the log entry of version {version}"
    hint = "entries stay for delta.logRetentionDuration; go on with Follower(root, since=the last punctuation read)"
    return LogCleanedError(message, name=table_path, hint=hint)


def _is_ours(actions: list[dict[str, Any]], batch_id: int | None) -> bool:
    """Whether a batch of the join made this commit: it then carries the batch's transaction ids, as no rewrite does."""
    if batch_id is None:
        return False
    transactions = [action["txn"] for action in actions if action.get("txn")]
    return any(
        one["appId"].startswith(_APP_PREFIX) and "#" not in one["appId"] and one["version"] == batch_id
        for one in transactions
    )


def _facts(actions: list[dict[str, Any]]) -> dict[str, Any]:
    for action in actions:
        text = (action.get("commitInfo") or {}).get("userMetadata")
        try:
            value = json.loads(text) if text else None
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("streamjoin"), dict):
            return dict(value["streamjoin"])
    return {}
