"""Removes the entries of a log that a checkpoint stands for, and the files that no version needs any more.

This is safe beside a running join and its readers. Nothing young is removed, and the table's own properties say how
long a reader may be away (`retention`).
"""

from __future__ import annotations

import contextlib
import logging
import re
import time

from pyarrow import fs

from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.delta.log_files import filesystem_of, list_log
from streamjoin_ds.delta.table_state import JOIN_ID_KEY
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.guard import TableIdentity
from streamjoin_ds.sink.retention import deleted_file_retention_s, log_retention_s
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.writer import WRITING_FOLDER

__all__ = ["KEPT_ENTRIES", "RETENTION_HOURS", "clean_log", "remove_leftovers", "remove_replaced", "vacuum"]

# The age from which VACUUM removes a file of which nobody knows whether its batch is over: a week, as Delta's default.
RETENTION_HOURS = 168
# The newest entries that stay in a log, however old they are.
KEPT_ENTRIES = 10_000
# The name of a file that a batch wrote. The second group is there if a compaction wrote the file.
_OURS = re.compile(r"batch-(\d{8,})-(compacted-)?.*\.parquet")
# The age from which VACUUM removes a file that a compaction wrote and no log entry names: a day. A compaction's machine
# may sleep between the writing of a file and its commit.
_COMPACTED_S = 86_400
_log = logging.getLogger(__name__)


def clean_log(
    table: LogSnapshot,
    *,
    kept_entries: int = KEPT_ENTRIES,
    now_s: float | None = None,
    durability: Durability | None = None,
) -> int:
    """Remove entries older than the table's log retention, up to a checkpoint that stands for them.

    Parameters
    ----------
    table : LogSnapshot
        The table, at its newest version.
    kept_entries : int, keyword-only
        This many of the newest entries stay, however old they are: a slow join keeps a long history.
    now_s : float or None, keyword-only
        The time, in seconds since 1970; None: the clock's.
    durability : Durability or None, keyword-only
        Forces the log to the device before anything is removed. None: one of this call.

    Returns
    -------
    int
        The number of files removed.
    """
    retention_s = log_retention_s(table.configuration)
    if retention_s is None:
        return 0
    began_s = time.monotonic()
    oldest_ns = ((time.time() if now_s is None else now_s) - retention_s) * 1e9
    files = list_log(table.filesystem, table.folder)
    bases = [
        file.version
        for file in files
        if file.kind == "checkpoint.parquet"
        and file.is_checkpoint
        and file.version <= table.version - kept_entries
        and (file.info.mtime_ns or 0) <= oldest_ns
    ]
    base = max(bases, default=0)
    removed, durability = 0, durability or Durability()
    needless = [file for file in files if file.version < base]
    if needless:
        durability.log_checkpoint(table.path, base)  # anyone may have written it
        durability.log(table.path)
    for file in needless:  # oldest first: if the loop is cut short, the log still has no gap
        with contextlib.suppress(FileNotFoundError):
            table.filesystem.delete_file(file.info.path)
            removed += 1
    told = loggable(table.path), removed, base, time.monotonic() - began_s
    _log.debug("the log of %s is cleaned: %d files before version %d are removed, %.3f s", *told)
    return removed


def vacuum(
    table_path: str,
    *,
    retention_hours: int = RETENTION_HOURS,
    dry_run: bool = False,
    now_s: float | None = None,
    durability: Durability | None = None,
) -> list[str]:
    """Remove files that the table does not have: replaced files, and orphans of failed attempts.

    The log says of some files that they were replaced or deleted. Such a file, whoever wrote it, stays for the table's
    ``delta.deletedFileRetentionDuration`` from then on. Of other files the log says nothing. Such a file stays as long
    if its batch is one that the table has, for a day if a compaction wrote it, else for `retention_hours`.

    Parameters
    ----------
    table_path : str
        One Delta table of a join.
    retention_hours : int, keyword-only
        Age from which a file is removed if its batch is not known to be over; at least 168.
    dry_run : bool, keyword-only
        True: remove nothing, only return the files that would be removed.
    now_s : float or None, keyword-only
        The time, in seconds since 1970; None: the clock's.
    durability : Durability or None, keyword-only
        As for `clean_log`.

    Returns
    -------
    list of str
        Paths of the removed files inside the table's folder, half-written files included.

    Raises
    ------
    ArgumentError
        ``retention_hours`` is below 168: readers and running batches could lose files they need.
    """
    if retention_hours < RETENTION_HOURS:
        message = f"retention_hours is too small: files younger than {RETENTION_HOURS} hours must stay"
        raise ArgumentError(message, name="retention_hours", hint=f"at least {RETENTION_HOURS}")
    began_s, now_s = time.monotonic(), time.time() if now_s is None else now_s
    # The table is read first, the folder second: a file that is committed in between is young, and stays.
    table = LogSnapshot(table_path, with_files=True)
    join_id = table.configuration.get(JOIN_ID_KEY, "")
    done = table.transactions.get(TableIdentity(join_id, "any").join_app, -1) if join_id else -1
    kept_s = deleted_file_retention_s(table.configuration)
    removed = []
    for info in table.filesystem.get_file_info(fs.FileSelector(table.folder)):
        name = info.base_name
        if info.type != fs.FileType.File or not name.endswith(".parquet") or name.startswith(("_", ".")):
            continue
        if name in table.live:
            continue
        deleted_ms = table.removed.get(name)
        if deleted_ms is not None:
            may_go = kept_s is not None and deleted_ms <= (now_s - kept_s) * 1e3
        else:
            age_s = _least_age_s(name, done, kept_s, retention_hours * 3600)
            may_go = info.mtime_ns is not None and info.mtime_ns <= (now_s - age_s) * 1e9
        if may_go:
            removed.append(name)
    if removed and not dry_run:
        (durability or Durability()).log(table_path)
        for name in removed:
            with contextlib.suppress(FileNotFoundError):
                table.filesystem.delete_file(f"{table.folder}/{name}")
    leftovers = remove_leftovers(table_path, older_than_hours=retention_hours, dry_run=dry_run, now_s=now_s)
    told = loggable(table_path), len(removed), len(leftovers), dry_run, time.monotonic() - began_s
    _log.debug("VACUUM of %s: %d files that no version needs, %d half-written files; dry run: %s; %.3f s", *told)
    return [*sorted(removed), *leftovers]


def _least_age_s(name: str, done: int, kept_s: float | None, unknown_s: float) -> float:
    """Return the age, in seconds, from which a file that no version needs may be removed.

    Parameters
    ----------
    name : str
        The file's name.
    done : int
        The last batch that the table has.
    kept_s : float or None
        How long the table keeps a replaced file, in seconds; None: not known.
    unknown_s : float
        The age, in seconds, for a file whose batch is not known to be over.
    """
    match = _OURS.fullmatch(name)
    if match is None:
        return unknown_s
    batch, is_compacted = int(match[1]), match[2] is not None
    if is_compacted:
        return _COMPACTED_S
    return kept_s if batch <= done and kept_s is not None else unknown_s


def remove_replaced(table: LogSnapshot, now_s: float, durability: Durability | None = None) -> int:
    """Remove files that the log says were replaced longer ago than the table keeps them, and return how many.

    The cost grows with the number of files removed; no folder is listed. Call this before the next checkpoint of the
    table's log: the checkpoint forgets that those files were there. To `vacuum` a forgotten file is an orphan, which it
    cannot tell from a file of a compaction that sleeps.

    Parameters
    ----------
    table : LogSnapshot
        The table with its files, at its newest version. The snapshot forgets the files that are removed.
    now_s : float
        The time, in seconds since 1970.
    durability : Durability or None
        As for `clean_log`.
    """
    kept_s = deleted_file_retention_s(table.configuration)
    if kept_s is None:
        return 0
    removed = 0
    replaced = table.forget_removed(int((now_s - kept_s) * 1e3))
    needless = [path for path in replaced if path not in table.live and "/" not in path]  # "/": not the join's own
    if needless:
        (durability or Durability()).log(table.path)
    for path in needless:
        with contextlib.suppress(FileNotFoundError):
            table.filesystem.delete_file(f"{table.folder}/{path}")
            removed += 1
    if removed:
        _log.debug(
            "%d files of %s that were replaced more than %d s ago are removed", removed, loggable(table.path), kept_s
        )
    return removed


def remove_leftovers(
    table_path: str, *, older_than_hours: int = RETENTION_HOURS, dry_run: bool = False, now_s: float | None = None
) -> list[str]:
    """Remove half-written files of killed workers and drivers, which lie where VACUUM does not look.

    Parameters
    ----------
    table_path : str
        One Delta table of a join.
    older_than_hours : int, keyword-only
        Younger files stay: somebody may be writing them.
    dry_run : bool, keyword-only
        True: remove nothing, only return the files that would be removed.
    now_s : float or None, keyword-only
        The time, in seconds since 1970; None: the clock's.

    Returns
    -------
    list of str
        Paths of the removed files inside the table's folder.
    """
    oldest_s = (time.time() if now_s is None else now_s) - older_than_hours * 3600
    filesystem, folder = filesystem_of(table_path)
    leftovers = []
    for place, suffix in ((WRITING_FOLDER, ""), ("_delta_log", ".tmp")):
        selector = fs.FileSelector(f"{folder}/{place}", allow_not_found=True)
        for info in filesystem.get_file_info(selector):
            is_old = info.type == fs.FileType.File and info.mtime_ns is not None and info.mtime_ns < oldest_s * 1e9
            if is_old and info.base_name.endswith(suffix):
                leftovers.append(f"{place}/{info.base_name}")
                if not dry_run:
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.delete_file(info.path)
    return sorted(leftovers)
