"""Small files, long logs, orphans: what a commit every trigger leaves behind.

All of it is safe beside a running join: `compaction` rewrites rows without changing them and never conflicts with an
append; VACUUM keeps a week, so that readers and the attempts of a running batch lose nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from deltalake import DeltaTable, PostCommitHookProperties
from pyarrow import fs

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.tables import TableSet, filesystem_of
from streamjoin_ds.sink.writer import WRITING_FOLDER

__all__ = [
    "RETENTION_HOURS",
    "Maintenance",
    "checkpoint_log",
    "remove_leftovers",
    "vacuum",
]

RETENTION_HOURS = 168
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_log = logging.getLogger(__name__)


def checkpoint_log(table_path: str) -> None:
    """Write a checkpoint of the table's log, and remove entries older than its log retention."""
    table = DeltaTable(table_path)
    table.create_checkpoint()
    table.cleanup_metadata()


def vacuum(
    table_path: str, *, retention_hours: int = RETENTION_HOURS, dry_run: bool = False, now_s: float | None = None
) -> list[str]:
    """Remove files that no version of the last week names: compacted ones, and orphans of failed attempts.

    Parameters
    ----------
    table_path : str
        One Delta table.
    retention_hours : int, keyword-only
        Age from which a file may go, at least 168.
    dry_run : bool, keyword-only
        Only say which.
    now_s : float or None, keyword-only
        Seconds since 1970, for files half written; None: the clock.

    Returns
    -------
    list of str
        The files removed.

    Raises
    ------
    ArgumentError
        ``retention_hours`` is below 168: readers and running batches could lose files they need.
    """
    if retention_hours < RETENTION_HOURS:
        message = f"files younger than {RETENTION_HOURS} hours are kept"
        raise ArgumentError(message, name="retention_hours", hint=f"at least {RETENTION_HOURS}")
    # "full": orphans were never in the log, so only a look into the folder finds them.
    removed = DeltaTable(table_path).vacuum(
        retention_hours=retention_hours, dry_run=dry_run, full=True, post_commithook_properties=_NO_HOOKS
    )
    return [*removed, *remove_leftovers(table_path, older_than_hours=retention_hours, dry_run=dry_run, now_s=now_s)]


def remove_leftovers(
    table_path: str, *, older_than_hours: int = RETENTION_HOURS, dry_run: bool = False, now_s: float | None = None
) -> list[str]:
    """Remove half-written files of killed workers, which lie where VACUUM does not look.

    Returns
    -------
    list of str
        Their paths inside the table's folder.
    """
    oldest_s = (time.time() if now_s is None else now_s) - older_than_hours * 3600
    filesystem, folder = filesystem_of(table_path)
    selector = fs.FileSelector(f"{folder}/{WRITING_FOLDER}", allow_not_found=True)
    leftovers = []
    for info in filesystem.get_file_info(selector):
        if info.type == fs.FileType.File and info.mtime_ns is not None and info.mtime_ns < oldest_s * 1e9:
            leftovers.append(f"{WRITING_FOLDER}/{info.base_name}")
            if not dry_run:
                filesystem.delete_file(info.path)
    return sorted(leftovers)


class Maintenance:
    """Looks after a join's tables: call :meth:`after_commit` on the driver after each batch.

    Work is done in one background thread, one round at a time; a round that is due while another runs is left out.
    A failure never fails the batch: it is counted and logged, and the next round tries again.

    Parameters
    ----------
    tables : TableSet
        The tables.
    every_batches : int, keyword-only
        Batches between two rounds of compaction. A commit's cost grows with the number of live files (about 0.1 ms per
        ten files and table), so rounds are frequent.
    large_every_rounds : int, keyword-only
        Most rounds make files of 1/8 of the target size out of smaller ones; one in so many goes to the target size.
        So a row is rewritten a few times, not in every round until its file is full.
    vacuum_every_rounds : int, keyword-only
        Rounds between two VACUUMs.
    target_size_bytes : int, keyword-only
        See :func:`compact`.
    background : bool, keyword-only
        False: the round is done inside :meth:`after_commit`.
    """

    def __init__(
        self,
        tables: TableSet,
        *,
        every_batches: int = 25,
        large_every_rounds: int = 8,
        vacuum_every_rounds: int = 400,
        target_size_bytes: int = 64 << 20,
        background: bool = True,
    ) -> None:
        for name, value in (
            ("every_batches", every_batches),
            ("large_every_rounds", large_every_rounds),
            ("vacuum_every_rounds", vacuum_every_rounds),
        ):
            if value < 1:
                message = f"{name} must be at least 1"
                raise ArgumentError(message, name=name, hint="a whole number")
        self.rounds = 0
        self.failures = 0
        self._tables = tables
        self._every_batches = every_batches
        self._large_every_rounds = large_every_rounds
        self._vacuum_every_rounds = vacuum_every_rounds
        self._target_size_bytes = target_size_bytes
        self._background = background
        self._thread: threading.Thread | None = None

    def after_commit(self, batch_id: int) -> bool:
        """Begin a round if one is due after this batch; whether one was begun."""
        if (batch_id + 1) % self._every_batches or (self._thread is not None and self._thread.is_alive()):
            return False
        if self._background:
            self._thread = threading.Thread(target=self.run_round, name="streamjoin-maintenance", daemon=True)
            self._thread.start()
        else:
            self.run_round()
        return True

    def run_round(self) -> None:
        """Compact every table, and VACUUM in every so many rounds."""
        self.rounds += 1
        large = self.rounds % self._large_every_rounds == 0
        target_size_bytes = self._target_size_bytes if large else self._target_size_bytes // 8
        for name in TableSet.names():
            path = self._tables.path_of(name)
            self._try("compaction", path, partial(compact, path, target_size_bytes=target_size_bytes))
            if self.rounds % self._vacuum_every_rounds == 0:
                self._try("VACUUM", path, partial(vacuum, path))

    def close(self) -> None:
        """Wait for the round that is running."""
        if self._thread is not None:
            self._thread.join()

    def _try(self, what: str, path: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is, the batch is committed and the join goes on
            self.failures += 1
            _log.warning("%s of %s failed; it is tried again in the next round: %s", what, path, error)
            _log.debug("where it failed", exc_info=True)
