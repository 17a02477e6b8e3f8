"""Clears up what a commit in every trigger leaves behind: small files, long logs, orphans.

Nothing depends on how long a process lives. Which files are small, how many entries came since the log's last
checkpoint and when a table was last cleaned is all in the table itself. So a join that restarts every hour is looked
after like one that runs for a year. All this is safe beside a running join: compaction rewrites rows without changing
them and never conflicts with an append.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.delta.table_state import JOIN_ID_KEY
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.cleaning import KEPT_ENTRIES, clean_log, remove_replaced, vacuum
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.log import LogEntry, put_entry
from streamjoin_ds.sink.opening import open_table
from streamjoin_ds.sink.retention import deleted_file_retention_s
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TableSet

__all__ = ["Maintenance", "checkpoint_log", "size_to_compact_to"]

_ENTRY_BYTES = 1024  # about the size of one log entry, to compare the entries with a checkpoint of the log
_VACUUM_EVERY_S = 86_400  # a day: the interval for a table whose retention property is not understood
_MERGED = 8  # files of one size class that become one of the next: a class is eight times as large as the one below
# How often the entry of a VACUUM is tried while other writers are first. Without it the next round vacuums again.
_ATTEMPTS = 20
_log = logging.getLogger(__name__)


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


def checkpoint_log(table_path: str) -> None:
    """Write a checkpoint of the table's log, and remove entries older than its log retention."""
    _checkpoint(table_path, Durability())
    clean_log(LogSnapshot(table_path))


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
        See :func:`~streamjoin_ds.sink.cleaning.clean_log`.
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
            # Not a daemon thread. Some processes do one batch an hour and end: the end would cut every round short.
            self._thread = threading.Thread(target=self.run_round, name="streamjoin-maintenance")
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
