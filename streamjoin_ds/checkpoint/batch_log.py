"""The logs and the state of a query that runs without Spark, in the form in which Spark has them.

::

    start ──► offsets/N ──► state/0/P/N+1.snapshot ──► the tables' commits ──► commits/N ──► offsets/N+1 ...

So a checkpoint that was made here goes on under Spark, and one of Spark's goes on here, at any of these steps: what a
restart mends, moves and reads is the same (`recovery`, `move`, `spark_files`). A snapshot has a whole state, which is
small: it names the blocks of the windows. Nothing is forced here: what must be on the device before a batch counts is
forced by the commit, as it is for Spark's files (`streamjoin_ds.sink.durability`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from streamjoin_ds.blocks.folder import put_new
from streamjoin_ds.checkpoint.lock import taken_over
from streamjoin_ds.checkpoint.spark_files import (
    COMMIT_ENTRY,
    PARTITIONS_KEY,
    SparkFiles,
    file_of,
    key_of,
    numbered,
    row_of,
    source_offset,
)
from streamjoin_ds.errors import ArgumentError, BlockWriteError
from streamjoin_ds.machine import open_files_hint
from streamjoin_ds.plan import Plan, spark_partition

__all__ = ["BatchLog"]

# The settings of a query that Spark keeps with each batch. A restart under Spark takes them from here; those that are
# missing it takes for those of the oldest Spark.
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _PROVIDER,
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
}
_Named = TypeVar("_Named", bool, Path)  # what a rename returns: whether the name was free, or the path
_PURGE_EVERY = 20  # batches between two looks for files that are kept no longer


class BatchLog:
    """The log of one query: what was planned, what is done, and the cells' states.

    Parameters
    ----------
    plan : Plan
        The query's plan. Its checkpoint is on a disk of this machine, and its files fit together (`recovered`).

    Attributes
    ----------
    query_id : str
        The query's id, which it keeps at every restart, here and under Spark.
    batch : int
        The batch that is next.
    start : dict or None
        The offset where it begins; None: before the first record.
    planned : dict or None
        The offset where it ends, if that was logged before; None: it is to be planned.
    states : dict of int to bytes
        The cells' states at its begin.

    Raises
    ------
    ArgumentError
        Another provider than Spark's own keeps the state, or another codec.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._folder = plan, Path(plan.spark_root)
        self._writer = uuid.uuid4().hex
        spark = SparkFiles.of(self._folder, plan.partitions)
        self.query_id = spark.query_id or self._begun()
        last = max(spark.offsets, default=-1)
        is_done = last in spark.commits
        self.batch = last + 1 if is_done or last < 0 else last
        self.start = source_offset(spark.offsets[self.batch - 1]) if self.batch else None
        self.planned = None if self.batch > last else source_offset(spark.offsets[last])
        if self.batch and not spark.is_readable:
            msg = "the checkpoint's state is not in the form that is read without Spark"
            hint = "run it under Spark; HDFSBackedStateStoreProvider, compressed with lz4, is read"
            raise ArgumentError(msg, name="checkpoint", hint=hint)
        blobs = spark.blobs(self.batch) if self.batch else {}
        self.states = {plan.cell_of(label): blob for label, blob in blobs.items()}
        self._settings = json.dumps(_SETTINGS | {PARTITIONS_KEY: str(plan.partitions)}, separators=(",", ":"))

    def plan_batch(self, end: Mapping[str, Any], time_ms: int) -> None:
        """Log where the next batch ends; `time_ms` is when that was decided, in milliseconds since 1970.

        Raises
        ------
        CheckpointInUseError
            Another driver has planned the batch: it took the checkpoint over while this one was stopped.
        """
        facts = f'{{"batchWatermarkMs":0,"batchTimestampMs":{time_ms},"conf":{self._settings}}}'
        self._put(self._folder / "offsets" / str(self.batch), f"v1\n{facts}\n{json.dumps(end)}".encode())
        self.planned = dict(end)

    def keep_states(self, states: Mapping[int, bytes]) -> None:
        """Write the states that the cells have after the batch."""
        partitions = self._plan.partitions
        pairs: dict[int, dict[bytes, bytes]] = {partition: {} for partition in range(partitions)}
        labels = self._plan.labels_of(max(states) + 1)
        for cell, state in states.items():
            pairs[spark_partition(labels[cell], partitions)][key_of(labels[cell])] = row_of(state)
        for partition, of_partition in pairs.items():
            name = f"{self.batch + 1}.snapshot"
            self._write(self._folder / "state" / "0" / str(partition) / name, file_of(of_partition))
        self.states = dict(states)

    def end_batch(self) -> None:
        """Log that the batch is done, and go on to the next one; raise as `plan_batch`."""
        self._put(self._folder / "commits" / str(self.batch), COMMIT_ENTRY.encode())
        self.start, self.planned = self.planned, None
        self.batch += 1
        if self.batch % _PURGE_EVERY == 0:
            # As Spark does once the next batch is planned: the offsets of a batch fence off drivers that were stopped,
            # for as long as somebody may come back to the states that it left.
            self._purge(self.batch - 1 - self._plan.retain_batches)

    def _begun(self) -> str:
        query_id = str(uuid.uuid4())
        self._put(self._folder / "metadata", json.dumps({"id": query_id}).encode())
        return query_id

    def _purge(self, oldest: int) -> None:
        """Remove the entries of batches before `oldest`, and states that none of later ones needs."""
        logs = [self._folder / log for log in ("offsets", "commits")]
        gone = [path for log in logs for n, path in numbered(log) if n < oldest]
        for partition in range(self._plan.partitions):
            folder = self._folder / "state" / "0" / str(partition)
            snapshots = [number for number, _ in numbered(folder, ".snapshot") if number <= oldest]
            # Changes that Spark wrote are of use with the snapshot before them.
            first = max(snapshots, default=0)
            gone += [path for suffix in (".delta", ".snapshot") for n, path in numbered(folder, suffix) if n < first]
            logs.append(folder)
        # What a driver had not named when it ended: ".NUMBER. ... .tmp".
        unnamed = ((path.name.split(".")[1], path) for log in logs for path in log.glob(".*.tmp"))
        gone += [path for number, path in unnamed if number.isdigit() and int(number) < oldest]
        for path in gone:
            assert isinstance(path, Path)
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def _put(self, path: Path, data: bytes) -> None:
        """Write an entry that only one driver may write: what it says of a batch must never change."""
        if not self._written(path, data, put_new):
            raise taken_over()

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file that comes out the same whoever writes it, also in place of one that is there."""
        self._written(path, data, Path.replace)

    def _written(self, path: Path, data: bytes, name: Callable[[Path, Path], _Named]) -> _Named:
        # Another driver, which was stopped for a while, may write a file of this name too.
        aside = path.with_name(f".{path.name}.{self._writer}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(data)
            # Checksums that Spark wrote for a file of this name do not fit what is written now.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            return name(aside, path)
        except OSError as error:
            msg = f"a file of the checkpoint cannot be written: {error.strerror or 'the file system refuses'}"
            hint = open_files_hint(error) or "free some space, or allow writing, where the checkpoint lies"
            raise BlockWriteError(msg, name=str(path), hint=hint) from error
