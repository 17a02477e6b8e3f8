"""The maintenance of a join's tables: it clears up what a commit in every trigger leaves behind.

That is small files (`streamjoin_ds.sink.compaction`), long logs, and files that no version needs any more.

Nothing depends on how long a process lives. Which files are small, how many entries came since the log's last
checkpoint and when a table was last cleaned is all in the table itself. So a join that restarts every hour is looked
after like one that runs for a year. All this is safe beside a running join and its readers: compaction rewrites rows
without changing them and never conflicts with an append, nothing young is removed, and the table's own properties say
how long a reader may be away.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from pyarrow import fs

from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.delta.log_files import filesystem_of, list_log
from streamjoin_ds.delta.table_state import JOIN_ID_KEY
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.guard import TableIdentity
from streamjoin_ds.sink.log import LogEntry, open_table, put_entry
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TableSet, deleted_file_retention_s, log_retention_s
from streamjoin_ds.sink.writer import WRITING_FOLDER

__all__ = [
    "KEPT_ENTRIES",
    "RETENTION_HOURS",
    "Maintenance",
    "clean_log",
    "remove_leftovers",
    "remove_replaced",
    "size_to_compact_to",
    "vacuum",
]

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
_ENTRY_BYTES = 1024  # about the size of one log entry, to compare the entries with a checkpoint of the log
_VACUUM_EVERY_S = 86_400  # a day: the interval for a table whose retention property is not understood
_MERGED = 8  # files of one size class that become one of the next: a class is eight times as large as the one below
# How often the entry of a VACUUM is tried while other writers are first. Without it the next round vacuums again.
_ATTEMPTS = 20


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
        found: list[fs.FileInfo] = []
        with contextlib.suppress(FileNotFoundError):  # the folder may go while it is listed
            found = filesystem.get_file_info(fs.FileSelector(f"{folder}/{place}", allow_not_found=True))
        for info in found:
            is_old = info.type == fs.FileType.File and info.mtime_ns is not None and info.mtime_ns < oldest_s * 1e9
            if is_old and info.base_name.endswith(suffix):
                leftovers.append(f"{place}/{info.base_name}")
                if not dry_run:
                    with contextlib.suppress(FileNotFoundError):
                        filesystem.delete_file(info.path)
    return sorted(leftovers)


def size_to_compact_to(sizes_bytes: Sequence[int], *, small_files: int, target_size_bytes: int) -> int | None:
    """Return the size that files are to be brought to; None if there is nothing to gain.

    File sizes form classes, each eight times as large as the one below, up to the target. The files of a class are
    brought to the next class when there are eight of them, those of the smallest class when there are `small_files`. So
    a row is rewritten once for each class, and few files stay in each.

    Parameters
    ----------
    sizes_bytes : sequence of int
        Sizes of the live files.
    small_files : int, keyword-only
        How many files below 1/1024 of the target are compacted.
    target_size_bytes : int, keyword-only
        Size of the largest class. Files of at least half of it do not count any more.
    """
    for shift in (0, 3, 6):
        size = target_size_bytes >> shift
        if sum(size // 16 <= one < size // 2 for one in sizes_bytes) >= _MERGED:
            return size
    smallest = target_size_bytes >> 9
    return smallest if sum(one < smallest // 2 for one in sizes_bytes) >= small_files else None


def _checkpoint(path: str, durability: Durability) -> None:
    """Write a checkpoint of a log and force it to the device: the entries that it stands for may be removed next."""
    began_s, table = time.monotonic(), open_table(path)
    table.create_checkpoint()
    durability.log_checkpoint(path, int(table.version()))
    told = loggable(path), table.version(), time.monotonic() - began_s
    _log.debug("the log of %s has a checkpoint of version %d, %.3f s", *told)


class Maintenance:
    """Looks after a join's tables: call :meth:`after_commit` on the driver after each batch.

    One background thread does the work, one round at a time. A round that falls due while another runs begins with the
    first batch after that one's end. A process that ends waits for the round that is running. A failure never fails the
    batch: it is counted and logged, and the next round tries again.

    Parameters
    ----------
    tables : TableSet
        The tables.
    every_batches : int, keyword-only
        Batches from one round's beginning to the next; the first begins after a process's first batch. A round does
        what is due.
    small_files, target_size_bytes : int, keyword-only
        See :func:`size_to_compact_to`.
    checkpoint_entries : int, keyword-only
        The least number of entries between two checkpoints of a log. After a large checkpoint it takes more: as many
        as weigh as much as that checkpoint, at 1 KiB each. So checkpoints never outweigh the entries.
    kept_entries : int, keyword-only
        See :func:`~streamjoin_ds.sink.maintenance.clean_log`.
    vacuum_every_s : int or None, keyword-only
        Seconds from one VACUUM of a table to the next, by the table's own record. None: as long as the table keeps a
        replaced file; then no replaced file is on the disk for more than about twice that time.
    background : bool, keyword-only
        False: the round is done inside :meth:`after_commit`.
    clock : callable, keyword-only
        Returns the time in seconds since 1970.
    durability : Durability or None, keyword-only
        Forces to the device what must be there before anything is removed; one of its own. None: one that does.

    Attributes
    ----------
    rounds, failures : int
        Rounds begun, and pieces of work that failed.
    """

    def __init__(
        self,
        tables: TableSet,
        *,
        every_batches: int = 250,
        small_files: int = 100,
        target_size_bytes: int = 64 << 20,
        checkpoint_entries: int = 500,
        kept_entries: int = KEPT_ENTRIES,
        vacuum_every_s: int | None = None,
        background: bool = True,
        clock: Callable[[], float] = time.time,
        durability: Durability | None = None,
    ) -> None:
        for name, value in (
            ("every_batches", every_batches),
            ("small_files", small_files),
            ("checkpoint_entries", checkpoint_entries),
            ("vacuum_every_s", vacuum_every_s),
        ):
            if value is not None and value < 1:
                message = f"{name} must be at least 1"
                raise ArgumentError(message, name=name, hint="give a whole number of 1 or more")
        self.rounds = 0
        self.failures = 0
        self._tables = tables
        self._every_batches = every_batches
        self._small_files = small_files
        self._target_size_bytes = target_size_bytes
        self._checkpoint_entries = checkpoint_entries
        self._kept_entries = kept_entries
        self._vacuum_every_s = vacuum_every_s
        self._background = background
        self._clock = clock
        self._durability = durability or Durability()
        self._batches_since = every_batches  # since the last round began
        self._snapshots: dict[str, LogSnapshot] = {}
        self._thread: threading.Thread | None = None

    def after_commit(self) -> bool:
        """Begin a round if one is due after this batch; return whether one was begun."""
        is_due = self._batches_since >= self._every_batches
        self._batches_since += 1
        if not is_due or (self._thread is not None and self._thread.is_alive()):
            return False
        self._batches_since = 1
        if self._background:
            # No daemon, even where one begins it (a local query's thread, Py4J's). Some processes do one batch an hour
            # and end: the end would cut every round short, within delta-rs, and so crash the process.
            self._thread = threading.Thread(target=self.run_round, name="streamjoin-maintenance", daemon=False)
            self._thread.start()
        else:
            self.run_round()
        return True

    def run_round(self) -> None:
        """Do what is due: compaction, removal of replaced files, checkpoint and cleaning of the log, VACUUM."""
        self.rounds += 1
        for name in TableSet.names():
            path = self._tables.path_of(name)
            self._try("a look", path, partial(self._look, path))

    def close(self) -> None:
        """Wait for the round that is running."""
        if self._thread is not None:
            self._thread.join()

    def _look(self, path: str) -> None:
        table = self._snapshot(path)
        size_bytes = size_to_compact_to(
            list(table.live.values()), small_files=self._small_files, target_size_bytes=self._target_size_bytes
        )
        if size_bytes is not None:
            self._try("compaction", path, partial(compact, path, target_size_bytes=size_bytes, log=table))
            table.forward()
        self._try("the removal of replaced files", path, partial(self._remove_replaced, table))
        if self._checkpoint_is_due(table):
            self._try("a checkpoint of the log", path, partial(self._checkpoint, path))
        # When a table was last vacuumed is in a transaction id: that stays, whereas old entries are cleaned away.
        if self._clock() - self._vacuumed_s(table) >= self._vacuum_interval_s(table):
            self._try("VACUUM", path, partial(self._vacuum, table))

    def _snapshot(self, path: str) -> LogSnapshot:
        table = self._snapshots.get(path)
        if table is None:
            table = self._snapshots[path] = LogSnapshot(path, with_files=True)
        else:
            table.forward()
        return table

    def _checkpoint_is_due(self, table: LogSnapshot) -> bool:
        version, size_bytes = -1, 0
        try:
            with table.filesystem.open_input_stream(f"{table.folder}/_delta_log/_last_checkpoint") as stream:
                facts = json.loads(stream.read())
            version, size_bytes = int(facts["version"]), int(facts.get("sizeInBytes") or 0)
        except (FileNotFoundError, ValueError, KeyError):
            pass  # there is no checkpoint yet, or its file is torn: another is written
        entries = table.version - version
        return entries >= self._checkpoint_entries and entries * _ENTRY_BYTES >= size_bytes

    def _remove_replaced(self, table: LogSnapshot) -> None:
        remove_replaced(table, self._clock(), self._durability)

    def _checkpoint(self, path: str) -> None:
        _checkpoint(path, self._durability)
        table = self._snapshots[path]
        clean_log(table, kept_entries=self._kept_entries, now_s=self._clock(), durability=self._durability)

    def _vacuum_app(self, table: LogSnapshot) -> str:
        return f"streamjoin/{table.configuration.get(JOIN_ID_KEY, '')}#vacuum"

    def _vacuum_interval_s(self, table: LogSnapshot) -> int:
        if self._vacuum_every_s is not None:
            return self._vacuum_every_s
        return deleted_file_retention_s(table.configuration) or _VACUUM_EVERY_S

    def _vacuumed_s(self, table: LogSnapshot) -> int:
        return table.transactions.get(self._vacuum_app(table), table.created_ms // 1000)

    def _vacuum(self, table: LogSnapshot) -> None:
        vacuum(table.path, now_s=self._clock(), durability=self._durability)
        now_s = int(self._clock())
        entry = LogEntry("VACUUM END", now_s * 1000, transactions={self._vacuum_app(table): now_s})
        for _ in range(_ATTEMPTS):
            if put_entry(table.path, table.version + 1, entry) and table.keeps_next():
                return
            table.forward()

    def _try(self, what: str, path: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # whatever failed, the batch is committed and the join goes on
            self.failures += 1
            _log.warning("%s of %s failed; it is tried again in the next round: %s", what, loggable(path), error)
            _log.debug("where it failed", exc_info=True)
