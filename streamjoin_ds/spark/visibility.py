"""Which folders the workers see: they are asked, as a container or another host may have another disk at a path."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["seen_by_workers"]

_TASKS_A_CORE = 2  # more tasks than cores, so that every core of every worker gets one


def seen_by_workers(spark: SparkSession, folders: Sequence[str | Path], tasks: int) -> list[bool]:
    """Return for each folder whether all workers see what the driver writes there, and may write there.

    This runs one small Spark job of twice `tasks` tasks. Workers that join later are not asked. What such a worker
    cannot read is then a named error, and what it writes where nobody sees it is found before a batch is committed.

    Parameters
    ----------
    spark : SparkSession
        The session whose workers are asked.
    folders : sequence of path
        Folders of the driver's file system; they are made if they are not there.
    tasks : int
        How many tasks the workers can run at once.
    """
    token = uuid.uuid4().hex
    probes = []
    try:
        for folder in folders:
            Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = Path(folder) / f".seen-{token}"
            probe.write_text(token)
            probes.append(probe)
        count = max(1, tasks) * _TASKS_A_CORE
        frame = spark.range(0, count, 1, count).mapInArrow(_Look([str(probe) for probe in probes], token), "seen int")
        answers = {int(row["seen"]) for row in frame.distinct().collect()}
    finally:
        for probe in probes:
            probe.unlink(missing_ok=True)
    return [all(answer >> place & 1 for answer in answers) for place in range(len(probes))]


class _Look:
    """Gives, in a worker, a bit for each probe that is there and whose folder the worker may write to."""

    def __init__(self, probes: list[str], token: str) -> None:
        self._probes, self._token = probes, token

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        seen = sum(1 << place for place, probe in enumerate(self._probes) if self._sees(Path(probe)))
        yield pa.RecordBatch.from_arrays([pa.array([seen], pa.int32())], names=["seen"])

    def _sees(self, probe: Path) -> bool:
        try:
            return probe.read_text() == self._token and os.access(probe.parent, os.W_OK | os.X_OK)
        except OSError:
            return False
