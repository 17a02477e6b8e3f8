"""Rewrites small files of one table as large ones, beside whoever else writes to it.

delta-rs' own compaction is not used: of two compactions that began at the same snapshot it commits both, and each row
is then in the table twice. (delta-rs 1.6.6 sees no conflict in a file that a commit with ``dataChange = false``
removed.) Two at once are common enough: a consumer's beside the join's, or that of a driver which slept while another
took its place. Here the commit is put at the next version or not at all, and only while every file that it replaces is
still in the table.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from msgspec import Struct
from pyarrow import fs

from streamjoin_ds.blocks.place import is_local, loggable
from streamjoin_ds.delta.log_files import filesystem_of
from streamjoin_ds.sink.log import NO_HOOKS, LogEntry, open_table, put_entry
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.writer import FileReport, TableWriter

__all__ = ["Compaction", "compact"]

# How often a commit is tried before the compaction is given up: each time another writer may have been first.
_ATTEMPTS = 50
# delta-rs may not retry a commit by itself: a retry would not see what a rival's commit changed.
_NEXT_VERSION_ONLY = 0
_log = logging.getLogger(__name__)


class Compaction(Struct, frozen=True):
    """What one compaction did: how many files it took away, and how many it put in their place."""

    files_removed: int
    files_added: int


class _File(Struct, frozen=True):
    """A file of a snapshot: its path as the log writes it, its size, and when it was written."""

    path: str
    size_bytes: int
    modified_ms: int


def compact(table_path: str, *, target_size_bytes: int = 64 << 20, log: LogSnapshot | None = None) -> Compaction:
    """Rewrite files smaller than a size into files of about that size; each row stays in the table once.

    Parameters
    ----------
    table_path : str
        One Delta table.
    target_size_bytes : int, keyword-only
        Size below which a file is small. Larger files stay as they are, so that a fast join is not written twice.
    log : LogSnapshot or None, keyword-only
        A snapshot of the table with its files, if the caller has one: it is not read again, and is brought forward
        before the commit. None: a new one is read.

    Returns
    -------
    Compaction
        What was done. Files that another writer replaced or deleted in the meantime are left to the next compaction.

    Raises
    ------
    TableWriteError
        There is no room, or no right to write. As with any error the table is as it was.
    """
    if log is None:
        log = LogSnapshot(table_path, with_files=True)
    is_of = _made_of(log)  # before the table is opened, so that no change comes between
    table = open_table(table_path)
    if not _is_plain(table):
        return Compaction(0, 0)
    began_s, lost = time.monotonic(), 0
    removed = added = 0
    for group in _groups(list(_files(table).values()), target_size_bytes):
        written = _rewritten(table, table_path, group)
        actions = _actions(group, written)
        if _replaced(log, is_of, *actions) if is_local(table_path) else _replaced_remotely(table, *actions):
            removed, added = removed + len(group), added + len(written)
        else:
            _discard(table_path, written)
            lost += 1
    told = loggable(table_path), removed, added, lost, time.monotonic() - began_s
    _log.debug("%s is compacted: %d files became %d, %d attempts were lost to other writers, %.3f s", *told)
    return Compaction(removed, added)


def _is_plain(table: DeltaTable) -> bool:
    """Whether a file of the table says all by its rows: no partition, no deletion vector, no other name of a column.

    This is so for the tables that a join makes. If a user gave a table such features, its compaction is left to the
    user's tools.
    """
    return not table.metadata().partition_columns and not table.protocol().reader_features


def _files(table: DeltaTable) -> dict[str, _File]:
    """Return the files of a snapshot by their paths."""
    actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes", "modification_time"])
    times_ms = actions.column("modification_time").cast(pa.timestamp("ms")).cast(pa.int64())
    columns = (actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), times_ms.to_pylist())
    return {path: _File(path, size, time_ms) for path, size, time_ms in zip(*columns, strict=True)}


def _groups(files: Sequence[_File], target_size_bytes: int) -> list[list[_File]]:
    """Return groups of small files, the oldest first: at least two files, together at most the target size."""
    groups: list[list[_File]] = [[]]
    size_bytes = 0
    for file in sorted(files, key=lambda file: (file.modified_ms, file.path)):
        if file.size_bytes >= target_size_bytes:
            continue
        if size_bytes + file.size_bytes > target_size_bytes and groups[-1]:
            groups.append([])
            size_bytes = 0
        groups[-1].append(file)
        size_bytes += file.size_bytes
    return [group for group in groups if len(group) > 1]


def _rewritten(table: DeltaTable, table_path: str, group: Sequence[_File]) -> list[FileReport]:
    """Write the rows of some files, in their order, as one file, which no log entry names yet."""
    from pyarrow import dataset  # it loads pandas, which takes as long as a small join

    filesystem, folder = filesystem_of(table_path)
    schema = pa.schema(table.schema())
    rows = dataset.dataset(
        [unquote(file.path) for file in group],
        schema=schema,
        format="parquet",
        filesystem=fs.SubTreeFileSystem(folder, filesystem),
    )
    rows_per_file = 1 << 40  # more rows than any group has: always one file
    with TableWriter(
        table_path,
        schema,
        table="matches",
        batch_id=0,
        label="compacted",
        rows_per_file=rows_per_file,
    ) as writer:
        for batch in rows.to_batches():
            writer.write(batch)
        return writer.close()


def _actions(group: Sequence[_File], written: Sequence[FileReport]) -> tuple[list[RemoveAction], list[AddAction]]:
    now_ms = time.time_ns() // 1_000_000
    removes = [
        RemoveAction(file.path, data_change=False, deletion_timestamp=now_ms, size=file.size_bytes) for file in group
    ]
    adds = [AddAction(report.path, report.size_bytes, {}, now_ms, False, report.stats) for report in written]
    return removes, adds


def _replaced(
    log: LogSnapshot, is_of: tuple[object, ...], removes: Sequence[RemoveAction], adds: Sequence[AddAction]
) -> bool:
    """Commit new files in place of old ones; return False if an old one is gone or the table is another one.

    Beside a join that commits every few milliseconds an attempt must be quick: it reads only the new log entries.
    """
    entry = LogEntry("OPTIMIZE", adds[0].modification_time, adds, removes=removes)
    for _ in range(_ATTEMPTS):
        log.forward()
        if any(unquote(file.path) not in log.live for file in removes) or _made_of(log) != is_of:
            return False
        if put_entry(log.path, log.version + 1, entry) and log.keeps_next():
            return True
    return _given_up(log.path)


def _made_of(log: LogSnapshot) -> tuple[object, ...]:
    """Return what must still be the same at the commit as when the rows were read."""
    return log.table_id, log.schema_text, log.partition_columns, log.features


def _replaced_remotely(table: DeltaTable, removes: Sequence[RemoveAction], adds: Sequence[AddAction]) -> bool:
    """Do the same as `_replaced` through delta-rs, which has the conditional put or the lock of the store."""
    schema = table.schema()
    for _ in range(_ATTEMPTS):
        table.update_incremental()
        there = _files(table)
        if any(file.path not in there for file in removes) or table.schema() != schema or not _is_plain(table):
            return False
        try:
            table.create_write_transaction(
                [*removes, *adds],
                "append",
                schema,
                commit_properties=CommitProperties(max_commit_retries=_NEXT_VERSION_ONLY),
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:
            continue  # somebody else has this version: check again what the table holds
        return True
    return _given_up(table.table_uri)


def _given_up(table_path: str) -> bool:
    _log.debug(
        "after %d attempts, each overtaken by another commit, the compaction of %s is given up",
        _ATTEMPTS,
        loggable(table_path),
    )
    return False


def _discard(table_path: str, written: Sequence[FileReport]) -> None:
    """Remove files that no version of the table will ever name."""
    filesystem, folder = filesystem_of(table_path)
    for report in written:
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(f"{folder}/{report.path}")
