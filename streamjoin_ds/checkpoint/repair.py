"""The repair of a checkpoint and its tables, on request, where a restart does not mend them. No row is invented.

A repair has batches done again, cut as the ledger or the offset log says they were. Where that cannot be done, the
finding says what is lost, and from when.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyarrow import dataset

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import local_path
from streamjoin_ds.checkpoint.batch_end import Ends
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.layout_notes import forget_epochs_over
from streamjoin_ds.checkpoint.location import noted_table, refuse_store
from streamjoin_ds.checkpoint.recovery import INITIAL, planned_recovery, put
from streamjoin_ds.checkpoint.spark_files import SparkFiles, source_offset
from streamjoin_ds.errors import ArgumentError, ForeignCheckpointError, StreamJoinError
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.tail import tail_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Finding", "repaired"]


class Finding(Struct, frozen=True):
    """One thing that is wrong. `is_mended` says whether it can be mended, and without a dry run was mended."""

    text: str
    is_mended: bool


def repaired(
    session: Callable[[], SparkSession], checkpoint: str, to: str | None = None, *, dry_run: bool
) -> list[Finding]:
    """Find what keeps a query from restarting, and mend it.

    Parameters
    ----------
    session : callable
        Returns a Spark session. Called only where this process cannot read Spark's state (`state_rows`).
    checkpoint : str
        A checkpoint of `StreamJoin.start`. No query may run on it.
    to : str, optional
        The table of matches, where the checkpoint does not name it or it was moved.
    dry_run : bool, keyword-only
        Change nothing.

    Returns
    -------
    list of Finding
        Empty where nothing is wrong.

    Raises
    ------
    ForeignCheckpointError
        There is no join's checkpoint in the folder, or it is of a join over DataFrames.
    ArgumentError
        It is not known where the tables lie.
    """
    refuse_store(checkpoint)
    folder = local_path(checkpoint)
    identity = None if folder is None or not folder.exists() else CheckpointIdentity.load(folder)
    if folder is None or identity is None:
        msg = "the given folder holds no checkpoint of a join"
        hint = "give the folder of `streamjoin run --checkpoint`"
        raise ForeignCheckpointError(msg, name="checkpoint", hint=hint)
    if identity.order_by is not None:
        msg = "the checkpoint is of a join over DataFrames, whose offsets are those of their sources"
        hint = "restore it from a copy, together with the tables; or use a new checkpoint and a new table"
        raise ForeignCheckpointError(msg, name="checkpoint", hint=hint)
    folder = folder.resolve()
    return _Repair(folder, identity, TableSet(to or _table(folder)), session, dry_run=dry_run).run()


def _table(folder: Path) -> str:
    try:
        return noted_table(folder)
    except (OSError, KeyError, TypeError, ValueError):
        msg = "the checkpoint does not say where its tables lie"
        raise ArgumentError(msg, name="to", hint="give --to PATH, the table of matches") from None


class _Repair:
    def __init__(
        self,
        folder: Path,
        identity: CheckpointIdentity,
        tables: TableSet,
        session: Callable[[], SparkSession],
        *,
        dry_run: bool,
    ) -> None:
        self._checkpoint, self._identity, self._tables = folder, identity, tables
        self._folder = identity.spark_folder(folder)
        self._session, self._dry_run = session, dry_run
        self._findings: list[Finding] = []
        self._good: dict[str, bool] = {}
        self._bad: list[str] = []

    def run(self) -> list[Finding]:
        spark = SparkFiles.of(self._folder, self._identity.partitions)
        if spark.query_id is None and not self._with_query_id():
            return self._findings
        recovery = planned_recovery(
            self._folder, self._tables, self._identity.partitions, far=True, fits=self._has_blocks
        )
        for problem in self._bad:
            self._say(f"{problem}: the batches that wrote it are done again", is_mended=not recovery.refusal)
        if recovery.refusal:
            self._lost(recovery.refusal)
            return self._findings
        for note in recovery.notes:
            self._say(note, is_mended=True)
        offsets = self._derived(spark, recovery.last)
        if offsets is None:
            return self._findings
        if not self._dry_run:
            recovery.torn_offsets = ""  # they are put back below
            recovery.kept = {**recovery.kept, **offsets}
            recovery.carry_out()
            if offsets:
                forget_epochs_over(self._checkpoint)
        return self._findings

    def _say(self, text: str, *, is_mended: bool) -> None:
        self._findings.append(Finding(text, is_mended))

    def _lost(self, why: str) -> None:
        """Note what cannot be mended, and from when on results are missing."""
        from streamjoin_ds.sink.reader import last_punctuation

        try:
            since = last_punctuation(self._tables.root)
        except StreamJoinError:
            since = None
        complete = "no results are" if since is None else f"only the results before {_moment(since)} are"
        advice = "restore a spare copy of the checkpoint, or begin with a new checkpoint and a new table"
        self._say(f"{why}; {complete} known to be complete; {advice}", is_mended=False)

    # ------------------------------------------------------------------ the query's id

    def _with_query_id(self) -> bool:
        """Write the query's id again where it is torn or gone, by the tables' transactions. Return whether to go on.

        A dry run that would write the id cannot go on, because the id is not there.
        """
        if not any((self._folder / name).exists() for name in ("metadata", "offsets", "commits")):
            return True  # nothing was begun
        found = _query_ids(self._tables)
        if not found:
            return True  # nothing was committed: a restart begins anew
        if len(found) > 1:
            self._lost("the query's id is torn or gone, and the tables name several ids")
            return False
        self._say("the query's id is torn or gone: it is written again, from the tables", is_mended=True)
        if not self._dry_run:
            (self._folder / ".metadata.crc").unlink(missing_ok=True)
            put(self._folder / "metadata", json.dumps({"id": found.pop()}))
        return not self._dry_run

    # ------------------------------------------------------------------ blocks

    def _has_blocks(self, version: int) -> bool:
        """Whether all blocks that a version of the state names are whole. Notes in `_bad` those that are not."""
        blocks = self._checkpoint / "blocks"
        if version == 0 or not blocks.is_dir():
            return True
        from streamjoin_ds.cell.cell_state import CellState
        from streamjoin_ds.checkpoint.inspection import state_rows
        from streamjoin_ds.engine.storage.state_blob import described

        names = {
            run["block"]
            for _, _, blob in state_rows(self._session, self._folder, version - 1)
            for of_epoch in CellState.decode(blob).engine_blobs()
            for runs in described(of_epoch)
            for run in runs
            if run.get("block")
        }
        store = BlockStore(str(blocks))
        for name in sorted(names - set(self._good)):
            problem = _problem(store, name)
            self._good[name] = problem is None
            self._bad += [] if problem is None else [problem]
        return all(self._good[name] for name in names)

    # ------------------------------------------------------------------ offsets

    def _derived(self, spark: SparkFiles, last: int) -> dict[str, str] | None:
        """Return the offsets of the batches that the tables have and the checkpoint lacks, by the ledger.

        None where they cannot be found: the ledger lacks a batch or what was decided in it, or the input lacks records.
        """
        batches = self._batches(last)
        if not batches:
            return {}
        if sorted(batches) != list(range(last + 1, last + 1 + len(batches))):
            self._lost(f"the checkpoint ends at batch {last}, and the ledger lacks some of the batches after it")
            return None
        names = self._identity.bound.names
        offset = source_offset(spark.offsets[last]) if last >= 0 else None
        ends = Ends(self._identity.bound, offset)
        found = {INITIAL: _entry(ends.offset())} if offset is None else {}
        for batch, rows in sorted(batches.items()):
            for name in names:
                problem = ends.move(name, rows[name])
                if problem:
                    self._lost(f"batch {batch} {problem}")
                    return None
            found[str(batch)] = _entry(ends.offset())
        text = f"the checkpoint ends at batch {last}, and the tables hold batches up to {max(batches)}: it catches up"
        self._say(text, is_mended=True)
        return found

    def _batches(self, last: int) -> dict[int, dict[str, dict[str, Any]]]:
        """Return the ledger's rows of the batches after `last`, by batch and stream."""
        from deltalake import DeltaTable

        from streamjoin_ds.sink.log import open_table
        from streamjoin_ds.sink.reader import scanned

        tail = tail_of(self._tables.ledger)
        if tail is not None and (tail.torn or tail.last_batch is None or tail.last_batch <= last):
            return {}
        if not DeltaTable.is_deltatable(self._tables.ledger):
            return {}
        rows = scanned(open_table(self._tables.ledger)).to_table(filter=dataset.field("batch_id") > last).to_pylist()
        batches: dict[int, dict[str, dict[str, Any]]] = {}
        for row in rows:
            batches.setdefault(row["batch_id"], {})[row["stream"]] = row
        whole = set(self._identity.bound.names)
        return {batch: found for batch, found in batches.items() if set(found) == whole}


def _problem(store: BlockStore, name: str) -> str | None:
    try:
        store.read(name)
    except StreamJoinError as error:
        return error.message
    return None


def _entry(offset: Any) -> str:
    """Return an entry of the offset log as Spark writes it."""
    return f"v1\n{{}}\n{json.dumps(offset)}"


def _query_ids(tables: TableSet) -> set[str]:
    """Return the ids of the queries that committed to the tables, by the newest entries of the tables' logs."""
    found = set()
    for name in ("ledger", "matches"):
        tail = tail_of(tables.path_of(name))
        if tail is not None and tail.query_id:
            found.add(tail.query_id)
    return found


def _moment(us: int) -> str:
    from datetime import datetime, timedelta, timezone

    return (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=us)).isoformat()
