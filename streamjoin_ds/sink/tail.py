"""The newest entries of a table's log, as a power cut may leave them: empty, cut short, gone, or without their files.

Only `LogTail.set_aside` changes a table: it moves the torn entries, and the entries after them, out of the log. Nothing
is lost if the batches of those entries are done again. The caller must know whether they will be.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from pyarrow import ArrowException, fs, parquet

from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.delta.log_files import entry_name, read_actions
from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.durability import force

__all__ = ["TORN_FOLDER", "LogTail", "tail_of"]

TORN_FOLDER = "_torn"
"""What was set aside lies here, inside the table's folder; Delta and VACUUM overlook names that begin with "_"."""

_MOST = 256  # entries that are looked at: those of more than a minute
_CHECKPOINT = ".checkpoint.parquet"
_LAST = "_last_checkpoint"
# By action: the name of delta-rs' metric that says how many such actions an entry has.
_FILES_SAID = {"add": "num_added_files", "remove": "num_removed_files"}


class LogTail(Struct, frozen=True):
    """The end of one table's log.

    Attributes
    ----------
    path : str
        The table.
    version : int
        The newest entry that stays; -1 if none stays.
    last_batch : int or None
        The newest batch of a join among the entries that stay and were looked at; None if there is none.
    torn : tuple of str
        Names of files of the log that cannot stay.
    batches : tuple of int
        Batches of complete entries that cannot stay because they come after a torn one, or lack a file themselves.
    refusal : str
        Why the torn files must not simply be moved away; empty if they may.
    query_id : str
        The query that did `last_batch`; empty if there is none.
    """

    path: str
    version: int
    last_batch: int | None
    torn: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    refusal: str = ""
    query_id: str = ""

    def set_aside(self) -> None:
        """Move the torn files out of the log, the newest first, so that it has no gap at any moment."""
        log, aside = Path(self.path) / "_delta_log", Path(self.path) / TORN_FOLDER
        if not self.torn:
            return
        aside.mkdir(exist_ok=True)
        for name in self.torn:
            target, number = aside / name, 0
            while target.exists():
                number += 1
                target = aside / f"{name}.{number}"
            (log / name).rename(target)
            force(str(log))


def tail_of(path: str) -> LogTail | None:
    """Return the end of a table's log; None if there is no log, or the table lies in an object store."""
    log = f"{path}/_delta_log"
    if not is_local(path) or not os.path.isdir(log):
        return None
    names = set(os.listdir(log))
    versions = sorted(int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdigit())
    if not versions:
        return LogTail(path, -1, None)
    checkpoints = {int(name[:20]) for name in names if name.endswith(_CHECKPOINT) and name[:20].isdigit()}
    newest = versions[-1]
    first = max(versions[0], newest - _MOST)
    entries = {version: _entry(log, version) for version in range(first, newest + 1)}
    bad = _first_bad(path, entries)
    torn = [entry_name(version) for version in reversed(versions) if bad is not None and version >= bad]
    last = newest if bad is None else bad - 1
    refusal = ""
    torn_checkpoints = [version for version in sorted(checkpoints) if version > last or not _is_parquet(log, version)]
    torn += [f"{version:020d}{_CHECKPOINT}" for version in torn_checkpoints]
    whole = [version for version in checkpoints if version not in torn_checkpoints]
    if (bad is not None or torn_checkpoints) and not _reaches(versions, max(whole, default=None), last):
        refusal = "earlier entries were cleaned away, and no whole checkpoint of the log replaces them"
    if _LAST in names and (torn_checkpoints or not _is_json(f"{log}/{_LAST}")):
        torn.append(_LAST)
    gone = [entry for version, entry in entries.items() if bad is not None and version >= bad and entry is not None]
    if any(_is_foreign(entry) for entry in gone):
        refusal = "after that comes a change of the table that no join made"
    batches = tuple(batch for entry in gone if (batch := _batch(entry)) is not None)
    kept = (entry for version, entry in sorted(entries.items(), reverse=True) if version <= last)
    newest_own = next((entry for entry in kept if _batch(entry) is not None), [])
    return LogTail(path, last, _batch(newest_own), tuple(torn), batches, refusal, _query_id(newest_own))


def _entry(log: str, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of an entry; None if the entry is not there or not whole."""
    try:
        actions = read_actions(fs.LocalFileSystem(), str(Path(log).parent), version)
    except (OSError, TableError):
        return None
    found = [{kind: facts for kind, facts in action.items() if facts is not None} for action in actions or ()]
    return found if found and _is_whole(found) else None


def _is_whole(actions: list[dict[str, Any]]) -> bool:
    """Whether an entry has all its lines, as far as its first lines tell.

    An entry of a batch ends with its transaction ids. A table's first entry has a protocol and a schema. An entry of
    anyone else has as many files as it says.
    """
    operation = next((action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), None)
    if any("protocol" in action for action in actions) or operation == "CREATE TABLE":
        return any("metaData" in action for action in actions) and any("protocol" in action for action in actions)
    facts = _facts(actions)
    applications = [action["txn"]["appId"] for action in actions if "txn" in action]
    if facts is not None:
        wanted = 2 + (facts.get("punctuation") is not None)
        return len(applications) >= wanted
    if operation == "WRITE" and any(one.startswith("streamjoin/") for one in applications):
        return len(applications) >= 2
    if operation != "WRITE":
        return _has_all_files(actions)
    # An append of a batch's files without any transaction id was cut at the end of a line. A compaction has no ids: it
    # first names the files that it replaces, and last the new one.
    return bool(applications) or _is_compaction(actions) or not _names_batch(actions)


def _is_compaction(actions: list[dict[str, Any]]) -> bool:
    changes = {kind: change for action in actions for kind, change in action.items() if kind in ("add", "remove")}
    return len(changes) == 2 and not any(change.get("dataChange", True) for change in changes.values())


def _has_all_files(actions: list[dict[str, Any]]) -> bool:
    """Whether an entry adds and removes at least as many files as its first line says."""
    said = next((action["commitInfo"].get("operationMetrics") for action in actions if "commitInfo" in action), None)
    for kind, name in _FILES_SAID.items():
        count = (said or {}).get(name, 0)
        if isinstance(count, int) and sum(kind in action for action in actions) < count:
            return False
    return True


def _names_batch(actions: list[dict[str, Any]]) -> bool:
    adds = [action["add"]["path"] for action in actions if "add" in action]
    return not adds or any(path.startswith("batch-") for path in adds)


def _facts(actions: list[dict[str, Any]]) -> dict[str, Any] | None:
    for action in actions:
        try:
            facts = json.loads(action["commitInfo"]["userMetadata"])["streamjoin"]
        except (KeyError, TypeError, ValueError):
            continue
        return facts if isinstance(facts, dict) else None
    return None


def _batch(actions: list[dict[str, Any]] | None) -> int | None:
    """Return the batch that an entry belongs to, by its transaction id; None if it belongs to none."""
    for action in actions or ():
        application = action.get("txn", {}).get("appId", "")
        if application.startswith("streamjoin/") and "#" not in application:
            return int(action["txn"]["version"])
    return None


def _query_id(actions: list[dict[str, Any]] | None) -> str:
    """Return the query that did an entry's batch, the third part of an application id; "" if none has three parts."""
    parts = (action.get("txn", {}).get("appId", "").split("/") for action in actions or ())
    return next((part[2] for part in parts if part[0] == "streamjoin" and len(part) == 3), "")


def _is_foreign(actions: list[dict[str, Any]]) -> bool:
    """Whether an entry changes rows or the table's metadata, and belongs to no batch."""
    changes = (action.get("add") or action.get("remove") for action in actions)
    data = any(change and change.get("dataChange", True) for change in changes)
    return _batch(actions) is None and (data or any("metaData" in action for action in actions))


def _first_bad(path: str, entries: dict[int, list[dict[str, Any]] | None]) -> int | None:
    """Return the first version that is not whole, or names a file that is missing or damaged; None if there is none.

    A file that a later entry removes may be missing.
    """
    removed: set[str] = set()
    bad = None
    for version, actions in sorted(entries.items(), reverse=True):
        if actions is None or not all(_is_there(path, add) for add in _adds(actions) if add["path"] not in removed):
            bad = version
        removed |= {action["remove"]["path"] for action in actions or () if "remove" in action}
    return bad


def _adds(actions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (action["add"] for action in actions if "add" in action)


def _is_there(path: str, add: dict[str, Any]) -> bool:
    try:
        file = Path(path) / unquote(add["path"])
        if file.stat().st_size != add["size"]:
            return False
        with file.open("rb") as stream:  # after a power cut a file of the right size may be all zeros
            stream.seek(-4, os.SEEK_END)
            return stream.read() == b"PAR1"
    except OSError:
        return False


def _is_parquet(log: str, version: int) -> bool:
    try:
        parquet.read_metadata(f"{log}/{version:020d}{_CHECKPOINT}")
    except (OSError, ArrowException):
        return False
    return True


def _is_json(path: str) -> bool:
    try:
        return isinstance(json.loads(Path(path).read_bytes()), dict)
    except (OSError, ValueError):
        return False


def _reaches(versions: list[int], checkpoint: int | None, last: int) -> bool:
    """Whether the log has every entry from a checkpoint, or from its beginning (None), up to the version `last`."""
    first = 0 if checkpoint is None else checkpoint + 1
    return set(range(first, last + 1)) <= set(versions)
