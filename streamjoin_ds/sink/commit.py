"""The commit protocol: one batch into all tables, once.

A batch is committed in this order. Each step is one Delta commit that carries the batch's transaction ids::

    late, rejects (if any)  ->  ledger  ->  metrics  ->  matches + punctuation  ->  punctuations row

If a driver dies between two steps, the next one replays the batch. Each table then says by itself whether it has the
batch: the steps that were done are skipped, and the others follow. Nobody can read a punctuation before the matches
that it speaks of, and the ledger of a batch is there when its matches are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import parquet

from streamjoin_ds.delta.log_files import filesystem_of
from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.errors import ForeignCheckpointError, PunctuationError, TableError
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.guard import TableIdentity
from streamjoin_ds.sink.log import read_commit
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import (
    LATE_SCHEMA,
    LEDGER_SCHEMA,
    METRICS_SCHEMA,
    PUNCTUATIONS_SCHEMA,
    REJECTS_SCHEMA,
    TableSet,
    check_ledger,
    check_match_schema,
    conformed,
    punctuation_row,
    same_records,
)
from streamjoin_ds.sink.target import Batch, CommitTarget, now_us
from streamjoin_ds.sink.writer import FileReport, TableWriter, check_reports

__all__ = ["CommitOutcome", "Committer"]


class CommitOutcome(Struct, frozen=True):
    """What :meth:`Committer.commit` did with a batch.

    Parameters
    ----------
    batch_id : int
        The batch.
    committed : bool
        True if this call put the batch's matches into the table, False if they were there before.
    version : int
        A version of the matches table that holds the batch.
    """

    batch_id: int
    committed: bool
    version: int

    @property
    def already_there(self) -> bool:
        """Whether the matches were in the table before this call."""
        return not self.committed


class Committer:
    """Commits the batches of one join to its tables; used by the driver, from one thread.

    Parameters
    ----------
    tables : TableSet
        Where the tables are.
    match_schema : pyarrow.Schema
        Columns of the matches: ``<stream>_<column>``..., ``event_time``, ``batch_id``.
    join_id : str, keyword-only
        Id of the join, kept in its checkpoint.
    fingerprint : str, keyword-only
        Digest of what the join computes: window, bands, streams, selection.
    description : str, keyword-only
        The description that new tables get.
    clock : callable, keyword-only
        Returns the time in microseconds since 1970. It is used for ``committed_at`` and for the times in the tables'
        logs, and nowhere else.
    durability : Durability or None, keyword-only
        Forces what a commit writes to the device; None: one without a checkpoint.

    Attributes
    ----------
    durability : Durability
        What it holds when a commit begins is forced before the first entry.

    Raises
    ------
    ColumnError
        The matches have a column that a Delta table cannot hold.
    ArgumentError
        ``join_id`` or ``fingerprint`` is not one word.
    """

    def __init__(
        self,
        tables: TableSet,
        match_schema: pa.Schema,
        *,
        join_id: str,
        fingerprint: str,
        description: str,
        clock: Callable[[], int] = now_us,
        durability: Durability | None = None,
    ) -> None:
        check_match_schema(match_schema)
        self.tables = tables
        self._identity = TableIdentity(join_id, fingerprint)
        self._description = description
        self._clock = clock
        self._last: Batch | None = None
        self.durability = durability or Durability()
        schemas = {
            "late": LATE_SCHEMA,
            "rejects": REJECTS_SCHEMA,
            "ledger": LEDGER_SCHEMA,
            "metrics": METRICS_SCHEMA,
            "matches": match_schema,
            "punctuations": PUNCTUATIONS_SCHEMA,
        }
        self._targets = {
            name: CommitTarget(
                tables.path_of(name),
                schemas[name],
                self._identity,
                # A user may delete the other tables to save space; these two are the results and their proof.
                every_batch=name in ("matches", "ledger"),
                clock=clock,
                durability=self.durability,
            )
            for name in TableSet.names()
        }

    def open(self) -> None:
        """Make the tables that are missing, and check that the others are this join's.

        Raises
        ------
        FingerprintMismatchError, ForeignCheckpointError, TableError
            See :func:`streamjoin_ds.sink.guard.check_table`. Nothing is made if an existing table is refused.
        """
        existing = [target for target in self._targets.values() if target.exists()]
        for target in existing:
            target.open(self._description)
        for name, target in self._targets.items():
            if target not in existing:
                target.open(self._description if name == "matches" else f"{name} of: {self._description}")
        self.durability.flush()

    def commit(
        self,
        batch_id: int,
        query_id: str,
        reports: Sequence[FileReport],
        *,
        punctuation_us: int | None,
        watermark_us: int | None,
        ledger: pa.Table,
        metrics: pa.Table,
        largest_ts_us: int | None,
    ) -> CommitOutcome:
        """Put a batch into all tables, once, however often this is called for the same batch.

        Parameters
        ----------
        batch_id : int
            Spark's batch number.
        query_id : str
            Spark's query id, which lives in the checkpoint.
        reports : sequence of FileReport
            The workers' files of this batch, in any order.
        punctuation_us : int or None, keyword-only
            Every result with ``event_time < punctuation_us`` is in this batch or an earlier one. None: not known yet.
        watermark_us, largest_ts_us : int or None, keyword-only
            The query's watermark, and the largest time among the batch's input tuples, in microseconds since 1970.
        ledger, metrics : pyarrow.Table, keyword-only
            Rows as in ``LEDGER_SCHEMA`` and ``METRICS_SCHEMA``.

        Returns
        -------
        CommitOutcome
            Whether this call committed the matches.

        Raises
        ------
        LedgerError
            A stream's rows do not balance. Nothing is committed.
        PunctuationError
            The punctuation goes back, or a file holds a result older than the last punctuation. The matches and the
            punctuation's row are not committed.
        ForeignCheckpointError
            The tables hold batches of another checkpoint, lack batches before this one, or hold this batch with other
            records. The step that finds it, and the later ones, commit nothing.
        CommitConflictError
            Another driver committed this batch at the same moment.
        FileMissingError
            A reported file is not there, or has another size than reported.
        TableWriteError
            There is no room, or no right to write.
        """
        batch = Batch(batch_id, query_id)
        self.commit_before(batch_id, query_id, reports, ledger=ledger, metrics=metrics)
        files = [report for report in reports if report.table == "matches"]
        target = self._targets["matches"]

        def checked(table: LogSnapshot) -> list[FileReport]:
            self._check_punctuation(table, punctuation_us, files)
            return files

        committed = target.commit(
            batch,
            checked,
            user_metadata=self._user_metadata(batch, punctuation_us),
            punctuation_us=punctuation_us,
        )
        version = target.version_of(batch)
        row = punctuation_row(
            batch_id=batch_id,
            punctuation_us=punctuation_us,
            watermark_us=watermark_us,
            matches=sum(report.rows for report in files),
            largest_ts_us=largest_ts_us,
            committed_at_us=self._clock(),
        )
        self._append("punctuations", batch, {"punctuations": row})
        self.durability.flush()
        return CommitOutcome(batch_id, committed, version)

    def commit_before(
        self, batch_id: int, query_id: str, reports: Sequence[FileReport], *, ledger: pa.Table, metrics: pa.Table
    ) -> None:
        """Do the steps before the matches: late tuples, rejects, ledger, metrics (part of :meth:`commit`)."""
        batch = Batch(batch_id, query_id)
        check_reports(reports, batch_id)
        ledger = conformed(ledger, LEDGER_SCHEMA, name="ledger", batch_id=batch_id)
        metrics = conformed(metrics, METRICS_SCHEMA, name="metrics", batch_id=batch_id)
        check_ledger(ledger)
        if self._last is None or self._last.query_id != query_id or not 0 <= batch_id - self._last.batch_id <= 1:
            # The first batch here, a new checkpoint or a jump: asked first, so that a refused batch is in no table.
            for name in ("ledger", "matches"):
                self._targets[name].refresh()
                self._targets[name].holds(batch)
        # Only where a batch follows the one before are the names of the checkpoint's older files known and forced.
        self.durability.checkpoint(anew=self._last is None or batch_id != self._last.batch_id + 1)
        self._last = batch
        asides = {name: [report for report in reports if report.table == name] for name in ("late", "rejects")}
        if any(asides.values()):
            # These tables do not have every batch, so they do not know what a driver missed that slept for long: until
            # its batch's offsets were purged, and it cut the batch anew. The ledger has every batch, and knows.
            self._targets["ledger"].refresh()
            if self._targets["ledger"].holds(batch) and not self._check_same(batch, ledger):
                asides = {}
        for name, files in asides.items():
            if files:
                self.durability.flush()
                self._targets[name].commit(
                    batch,
                    lambda _table, files=files: files,  # type: ignore[misc]
                    user_metadata=self._user_metadata(batch, None),
                )
        written: dict[str, list[FileReport]] = {}
        if not self._append("ledger", batch, {"ledger": ledger, "metrics": metrics}, written):
            self._check_same(batch, ledger)
            self.durability.flush()
        self._append("metrics", batch, {"metrics": metrics}, written)

    def _append(
        self, name: str, batch: Batch, rows: Mapping[str, pa.Table], written: dict[str, list[FileReport]] | None = None
    ) -> bool:
        """Append rows of the driver's own to a table; return False if the table had the batch.

        `rows` are those of the tables that follow too. Their files are written with the first one's, and kept in
        `written`: all are then forced together, which takes hardly longer than one.
        """
        target, written = self._targets[name], {} if written is None else written

        def files(_table: LogSnapshot) -> list[FileReport]:
            if name not in written:
                written.update({each: self._written(each, batch, own) for each, own in rows.items()})
                self.durability.flush()  # also forces what else has to be there before this table's entry
            return written[name]

        return target.commit(batch, files, user_metadata=self._user_metadata(batch, None))

    def _written(self, name: str, batch: Batch, rows: pa.Table) -> list[FileReport]:
        """Write a file of the driver's own rows into a table's folder; it is yet to be forced."""
        target = self._targets[name]
        # The label of a report is one of the workers' tables; the file goes where the target says.
        with TableWriter(
            target.path, target.schema, table="matches", batch_id=batch.batch_id, label=name, durable=False
        ) as writer:
            writer.write(rows)
            reports = writer.close()
        self.durability.files(f"{target.path}/{report.path}" for report in reports)
        return reports

    def _check_same(self, batch: Batch, ledger: pa.Table) -> bool:
        """Refuse a batch that the ledger has with other records. Return whether its records were compared.

        A batch keeps its records as long as its offsets are logged. A checkpoint that was taken back has lost the later
        offsets, so those batches are cut anew. The records of a new batch under an old number would be taken for those
        that the table has, and be lost. The log is read for this, and only for a batch that is done again. If the entry
        of the batch was cleaned away, the batch is accepted.
        """
        target = self._targets["ledger"]
        for version in range(target.table.version, 0, -1):
            try:
                commit = read_commit(target.path, version)
                if commit.batch_id is not None and commit.batch_id < batch.batch_id:
                    return False
                if commit.batch_id != batch.batch_id:
                    continue
                tables = [self._small_table(target, path) for path in commit.paths]
            except (TableError, FileNotFoundError):
                return False
            if not same_records([row for table in tables for row in table.to_pylist()], ledger.to_pylist()):
                message = f"batch {batch.batch_id} holds other records than the batch with that number in {target.path}"
                hint = "go on with the newest checkpoint, and with one driver; or use a new table and a new checkpoint"
                raise ForeignCheckpointError(message, name=target.path, hint=hint)
            return True
        return False

    @staticmethod
    def _small_table(target: CommitTarget, path: str) -> pa.Table:
        filesystem, folder = filesystem_of(target.path)
        with filesystem.open_input_file(f"{folder}/{path}") as file:
            return parquet.ParquetFile(file).read()

    def _user_metadata(self, batch: Batch, punctuation_us: int | None) -> str:
        facts = {
            "batch_id": batch.batch_id,
            "query_id": batch.query_id,
            "punctuation": punctuation_us,
            "fingerprint": self._identity.fingerprint,
        }
        return json.dumps({"streamjoin": facts}, separators=(",", ":"))

    def _check_punctuation(self, table: LogSnapshot, punctuation_us: int | None, files: Sequence[FileReport]) -> None:
        last_us = table.transactions.get(self._identity.punctuation_app)
        if last_us is None:
            return
        if punctuation_us is None or punctuation_us < last_us:
            message = f"the punctuation {punctuation_us} is earlier than {last_us}, which the table already has"
            hint = "nothing was added to the matches; this is a defect, please report it"
            raise PunctuationError(message, name="punctuation", hint=hint)
        for report in files:
            oldest = json.loads(report.stats).get("minValues", {}).get(EVENT_TIME)
            if oldest is not None and int(np.datetime64(oldest.removesuffix("Z"), "us").astype(np.int64)) < last_us:
                message = f"the file {report.path} holds results older than the punctuation {last_us} of the table"
                hint = "nothing was added to the matches; this is a defect, please report it"
                raise PunctuationError(message, name=report.path, hint=hint)
