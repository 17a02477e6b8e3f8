"""One table as a target of commits: a held snapshot, refreshed before every check, never between check and commit."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from streamjoin_ds.errors import CommitConflictError, FileMissingError, TableError, TableWriteError
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.guard import Identity, batch_is_there, check_table
from streamjoin_ds.sink.log import read_commit
from streamjoin_ds.sink.report import FileReport
from streamjoin_ds.sink.tables import BATCH_ID, EVENT_TIME, filesystem_of

__all__ = ["CHECKPOINT_COMMITS", "Target"]

CHECKPOINT_COMMITS = 100
LOG_RETENTION_HOURS = 24
_ATTEMPTS = 5
_log = logging.getLogger(__name__)
# delta-rs looks for expired log files after every commit, which costs 8 ms per thousand files; we look once in a
# hundred commits, when the log is checkpointed anyway.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """What identifies a batch: its number and the checkpoint's query id."""

    batch_id: int
    query_id: str


class Target:
    """One Delta table of a join.

    Parameters
    ----------
    path : str
        Its folder.
    schema : pyarrow.Schema
        Its columns.
    identity : Identity
        The join that owns it.
    every_batch : bool, keyword-only
        Whether each batch must commit here, so that a gap is an error.
    stagger : int, keyword-only
        Shifts the versions at which the log is checkpointed, so that tables take turns.
    durability : Durability, keyword-only
        Collects what is written.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        identity: Identity,
        *,
        every_batch: bool,
        stagger: int = 0,
        durability: Durability | None = None,
    ) -> None:
        self.path = path
        self.schema = schema
        self._identity = identity
        self._every_batch = every_batch
        self._stagger = stagger
        self._durability = durability or Durability()
        self._held: DeltaTable | None = None
        self._filesystem, self._folder = filesystem_of(path)

    @property
    def table(self) -> DeltaTable:
        """The held snapshot."""
        if self._held is None:
            message = f"the table {self.path} is not open"
            raise TableError(message, name=self.path, hint="call Committer.open first")
        return self._held

    def open(self, description: str) -> None:
        """Make the table, or check that it is ours."""
        if not DeltaTable.is_deltatable(self.path):
            self._create(description)
        self._held = DeltaTable(self.path)
        self._durability.opened(self.path)
        check_table(self._held, self.path, self.schema, self._identity)

    def _create(self, description: str) -> None:
        selector = fs.FileSelector(self._folder, allow_not_found=True)
        foreign = [info.base_name for info in self._filesystem.get_file_info(selector)]
        if any(not name.startswith(("_", ".")) for name in foreign):
            # VACUUM would one day take these files for orphans of ours.
            message = f"the folder {self.path} holds files, but no Delta table"
            raise TableError(message, name=self.path, hint="name an empty folder or one that does not exist")
        properties = {
            **self._identity.properties(),
            "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
            "delta.logRetentionDuration": f"interval {LOG_RETENTION_HOURS} hours",
        }
        if EVENT_TIME in self.schema.names:
            properties["delta.dataSkippingStatsColumns"] = f"{EVENT_TIME},{BATCH_ID}"
        try:
            DeltaTable.create(
                self.path,
                self.schema,
                description=description,
                configuration=properties,
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            if not DeltaTable.is_deltatable(self.path):
                raise
            # Someone made it at the same moment; the check that follows decides whether it is ours.

    def refresh(self) -> DeltaTable:
        """Bring the held snapshot to the newest version, and check again that the table is ours."""
        table = self.table
        try:
            table.update_incremental()
        except TableNotFoundError as error:
            raise self._gone() from error
        # A deleted table is not noticed by the update: it finds no newer version, and the next commit would begin a
        # table without a past. The newest log entry is never cleaned away, so it must be there.
        entry = f"{self._folder}/_delta_log/{table.version():020d}.json"
        if self._filesystem.get_file_info(entry).type != fs.FileType.File:
            raise self._gone()
        check_table(table, self.path, self.schema, self._identity)
        return table

    def _gone(self) -> TableError:
        message = f"the table {self.path} was deleted or replaced while the join was running"
        return TableError(message, name=self.path, hint="restart the join with a new checkpoint and table")

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
        files: Callable[[DeltaTable], Sequence[FileReport]],
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
            Called with the checked snapshot, only if the batch is not there, at most once per attempt; gives the
            reports of the files to add.
        user_metadata : str, keyword-only
            JSON for the commit's ``userMetadata``.
        punctuation_us : int or None, keyword-only
            Recorded as the version of the punctuation's application id.

        Returns
        -------
        bool
            True if this call committed it, False if it was there.

        Raises
        ------
        CommitConflictError
            Another driver committed this batch between the check and the commit.
        TableWriteError
            There is no room, or no right to write.
        """
        failure: CommitFailedError | None = None
        for _ in range(_ATTEMPTS):
            table = self.refresh()
            if self.holds(batch):
                self._durability.entries(self.path)  # whoever wrote it may not have come to force it
                if failure is not None:
                    raise self._lost(batch) from failure
                return False
            actions = self._actions(files(table))
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    commit_properties=CommitProperties(
                        custom_metadata={"userMetadata": user_metadata},
                        app_transactions=self._transactions(batch, punctuation_us),
                    ),
                    post_commithook_properties=_NO_HOOKS,
                )
            except CommitFailedError as error:
                # Lost to the same application id, or to a change of the table's properties: a fresh snapshot tells.
                failure = error
                continue
            except (DeltaError, OSError) as error:
                # Whether the entry was written after all is asked when the batch is done again.
                message = f"the log of {self.path} cannot be written"
                raise TableWriteError(
                    message, name=self.path, hint="make room, or rights, where the table lies"
                ) from error
            self._durability.entries(self.path)
            self._tend_log(table.version() + 1)
            return True
        raise self._lost(batch) from failure

    def version_of(self, batch: Batch) -> int:
        """Return a version that holds a batch which this table has: the one that added it, if it was added just now."""
        expected = self.table.version() + 1
        with contextlib.suppress(TableError):
            if read_commit(self.path, expected).batch_id == batch.batch_id:
                return expected
        # It was there before, or other writers' commits came in between.
        self.table.update_incremental()
        return int(self.table.version())

    def _lost(self, batch: Batch) -> CommitConflictError:
        message = f"batch {batch.batch_id} could not be committed to {self.path}: another writer was first"
        return CommitConflictError(message, name=self.path, hint="stop the other driver that uses this checkpoint")

    def _transactions(self, batch: Batch, punctuation_us: int | None) -> list[Transaction]:
        identity = self._identity
        transactions = [
            Transaction(identity.join_app, batch.batch_id),
            Transaction(identity.query_app(batch.query_id), batch.batch_id),
        ]
        if punctuation_us is not None:
            transactions.append(Transaction(identity.punctuation_app, punctuation_us))
        return transactions

    def _actions(self, reports: Sequence[FileReport]) -> list[AddAction | RemoveAction]:
        if not reports:
            return []
        infos = self._filesystem.get_file_info([f"{self._folder}/{report.path}" for report in reports])
        actions: list[AddAction | RemoveAction] = []
        for report, info in zip(reports, infos, strict=True):
            if info.type != fs.FileType.File or info.size != report.size_bytes:
                message = f"the file {report.path} of {self.path} is not there, or not as it was reported"
                raise FileMissingError(message, name=report.path, hint="every worker must see the table's folder")
            modified_ms = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else 0
            actions.append(AddAction(report.path, report.size_bytes, {}, modified_ms, True, report.stats))
        return actions

    def _tend_log(self, version: int) -> None:
        if (version + self._stagger) % CHECKPOINT_COMMITS:
            return
        try:
            table = self.table
            table.update_incremental()
            table.create_checkpoint()
            self._durability.log_checkpoint(self.path, int(table.version()))
            table.cleanup_metadata()
        except (DeltaError, TableWriteError, OSError):
            # The batch is in the table; a log without a checkpoint is only slower to open.
            _log.warning("the log of %s could not be checkpointed", self.path, exc_info=True)
