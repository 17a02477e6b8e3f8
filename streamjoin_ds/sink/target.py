"""One table as a target of commits.

Its snapshot is held, and brought forward before every check. A commit is the entry after the checked snapshot.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from msgspec import Struct
from pyarrow import fs

from streamjoin_ds.blocks.place import is_local, loggable
from streamjoin_ds.delta.log_files import filesystem_of
from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.errors import CommitConflictError, FileMissingError, TableError, TableWriteError
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.guard import TableIdentity, batch_is_there, check_table, schema_text
from streamjoin_ds.sink.log import LogEntry, open_table, put_entry, read_commit
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import BATCH_ID, missing_properties, new_properties
from streamjoin_ds.sink.writer import FileReport

__all__ = ["Batch", "CommitTarget", "now_us"]

_ATTEMPTS = 100  # how often a commit is tried: each time another writer may have been first
_log = logging.getLogger(__name__)


class Batch(Struct, frozen=True):
    """What identifies a batch: its number and the checkpoint's query id."""

    batch_id: int
    query_id: str


def now_us() -> int:
    """Return the wall clock, in microseconds since 1970."""
    return time.time_ns() // 1000


class CommitTarget:
    """One Delta table of a join.

    Parameters
    ----------
    path : str
        The table's folder.
    schema : pyarrow.Schema
        The table's columns.
    identity : TableIdentity
        The join that owns the table.
    every_batch : bool, keyword-only
        Whether each batch must commit here, so that a gap is an error.
    clock : callable, keyword-only
        Returns the time in microseconds since 1970, for the history of the table.
    durability : Durability or None, keyword-only
        Collects the files that are written; None: one without a checkpoint.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        identity: TableIdentity,
        *,
        every_batch: bool,
        clock: Callable[[], int] = now_us,
        durability: Durability | None = None,
    ) -> None:
        self.path = path
        self.schema = schema
        self._identity = identity
        self._every_batch = every_batch
        self._durability = durability or Durability()
        self._clock = clock
        self._held: LogSnapshot | None = None

    @property
    def table(self) -> LogSnapshot:
        """The held snapshot."""
        if self._held is None:
            message = f"the table {self.path} is not open"
            raise TableError(message, name=self.path, hint="call Committer.open first")
        return self._held

    def exists(self) -> bool:
        """Whether there is a Delta table at the path."""
        return LogSnapshot.exists(self.path)

    def open(self, description: str) -> None:
        """Make the table, or check that it is this join's."""
        if not self.exists():
            self._create(description)
        self._held = LogSnapshot(self.path)
        self._grow(self._held)
        self._durability.opened(self.path)
        check_table(self._held, self.path, self.schema, self._identity)
        missing = missing_properties(self._held.configuration)
        if missing:
            with contextlib.suppress(DeltaError):  # another driver did it, or the next start does
                open_table(self.path).alter.set_table_properties(missing)
            self.refresh()

    def _grow(self, table: LogSnapshot) -> None:
        """Add the newest columns, which may be null, to a companion table that an earlier version of this package made.

        Companion tables are all tables of a join but the matches.
        """
        here = table.column_names
        new = self.schema.names[len(here) :]
        is_ours = all(table.configuration.get(key) == value for key, value in self._identity.properties().items())
        is_fixed = EVENT_TIME not in self.schema.names  # the matches' columns are the join's, not this version's
        if not new or not is_ours or not is_fixed or here != self.schema.names[: len(here)]:
            return  # the columns are as they should be, or the check that follows refuses the table
        if all(self.schema.field(name).nullable for name in new):
            open_table(self.path).alter.add_columns([Field.from_arrow(self.schema.field(name)) for name in new])
            table.forward()

    def _create(self, description: str) -> None:
        held = filesystem_of(self.path)
        selector = fs.FileSelector(held[1], allow_not_found=True)
        foreign = [info.base_name for info in held[0].get_file_info(selector)]
        if any(not name.startswith(("_", ".")) for name in foreign):
            # VACUUM would one day take these files for orphans of ours.
            message = f"the folder {self.path} holds files, but no Delta table"
            raise TableError(message, name=self.path, hint="give an empty folder or one that does not exist")
        properties = {**self._identity.properties(), **new_properties()}
        if EVENT_TIME in self.schema.names:
            properties["delta.dataSkippingStatsColumns"] = f"{EVENT_TIME},{BATCH_ID}"
        # Someone may make the table at the same moment; the check that follows decides whether it is ours.
        if is_local(self.path):
            held[0].create_dir(f"{held[1]}/_delta_log", recursive=True)
            with self._writing():
                put_entry(self.path, 0, self._first(description, properties))
            return
        try:
            DeltaTable.create(
                self.path, self.schema, description=description, configuration=properties, raise_if_key_not_exists=False
            )
        except DeltaError:
            if not self.exists():
                raise

    def _first(self, description: str, properties: dict[str, str]) -> LogEntry:
        now_ms = self._clock() // 1000
        metadata = {
            "id": str(uuid.uuid4()),
            "description": description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_text(self.schema),
            "partitionColumns": [],
            "configuration": properties,
            "createdTime": now_ms,
        }
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        return LogEntry("CREATE TABLE", now_ms, first=({"protocol": protocol}, {"metaData": metadata}))

    def refresh(self) -> LogSnapshot:
        """Bring the held snapshot to the newest version, check again that the table is ours, and return it."""
        table = self.table
        table.forward()
        check_table(table, self.path, self.schema, self._identity)
        return table

    def holds(self, batch: Batch) -> bool:
        """Whether the held snapshot has the batch (errors as in :func:`~streamjoin_ds.sink.guard.batch_is_there`)."""
        return batch_is_there(
            self.table,
            self.path,
            self._identity,
            batch_id=batch.batch_id,
            query_id=batch.query_id,
            every_batch=self._every_batch,
        )

    def commit(
        self,
        batch: Batch,
        files: Callable[[LogSnapshot], Sequence[FileReport]],
        *,
        user_metadata: str = "{}",
        punctuation_us: int | None = None,
    ) -> bool:
        """Commit a batch's files with its transaction ids, unless the table holds the batch.

        Parameters
        ----------
        batch : Batch
            The batch.
        files : callable
            Called with the checked snapshot, at most once per attempt, and only if the batch is not in the table. It
            returns the reports of the files to add.
        user_metadata : str, keyword-only
            JSON for the commit's ``userMetadata``.
        punctuation_us : int or None, keyword-only
            Recorded as the version of the punctuation's application id, in microseconds.

        Returns
        -------
        bool
            True if this call committed the batch, False if the table had it.

        Raises
        ------
        CommitConflictError
            Another driver committed this batch between the check and the commit, or other writers were first in every
            attempt.
        FingerprintMismatchError, ForeignCheckpointError, TableError
            As in :meth:`refresh` and :meth:`holds`.
        FileMissingError
            A reported file is not there, or has another size than reported.
        TableWriteError
            There is no room, or no right to write.
        """
        for attempt in range(_ATTEMPTS):
            table = self.refresh()
            if self.holds(batch):
                self._durability.entries(self.path)  # the process that wrote the entry may not have forced it
                if attempt:
                    raise self._lost(batch)
                _log.debug("%s has batch %d already", loggable(self.path), batch.batch_id)
                return False
            entry = LogEntry(
                "WRITE",
                self._clock() // 1000,
                self._actions(files(table)),
                self._transactions(batch, punctuation_us),
                user_metadata,
            )
            with self._writing():
                if not put_entry(self.path, table.version + 1, entry):
                    continue  # another writer was first: a fresh snapshot tells whether it was this batch
                if table.keeps_next():
                    self._durability.entries(self.path)
                    return True
        raise self._lost(batch)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            if isinstance(error, TableError):
                raise
            # The entry may have been written after all: the table is asked when the batch is done again.
            message = f"the log of {self.path} cannot be written"
            raise TableWriteError(
                message, name=self.path, hint="free some space, or allow writing, where the table lies"
            ) from error

    def version_of(self, batch: Batch) -> int:
        """Return a version that holds a batch which this table has: the one that added it, if it was added just now."""
        expected = self.table.version + 1
        with contextlib.suppress(TableError):
            if read_commit(self.path, expected).batch_id == batch.batch_id:
                return expected
        # The batch was there before, or other writers' commits came in between.
        self.table.forward()
        return self.table.version

    def _lost(self, batch: Batch) -> CommitConflictError:
        message = f"batch {batch.batch_id} could not be committed to {self.path}: another writer was first"
        return CommitConflictError(message, name=self.path, hint="stop the other driver that uses this checkpoint")

    def _transactions(self, batch: Batch, punctuation_us: int | None) -> dict[str, int]:
        identity = self._identity
        transactions = {identity.join_app: batch.batch_id, identity.query_app(batch.query_id): batch.batch_id}
        if punctuation_us is not None:
            transactions[identity.punctuation_app] = punctuation_us
        return transactions

    def _actions(self, reports: Sequence[FileReport]) -> list[AddAction]:
        if not reports:
            return []
        filesystem, folder = self.table.filesystem, self.table.folder
        infos = filesystem.get_file_info([f"{folder}/{report.path}" for report in reports])
        actions: list[AddAction] = []
        for report, info in zip(reports, infos, strict=True):
            if info.type != fs.FileType.File or info.size != report.size_bytes:
                message = f"the file {report.path} of {self.path} is missing, or has another size than was reported"
                raise FileMissingError(
                    message, name=report.path, hint="put the table where the driver and all workers see the same folder"
                )
            modified_ms = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else 0
            actions.append(AddAction(report.path, report.size_bytes, {}, modified_ms, True, report.stats))
        return actions
