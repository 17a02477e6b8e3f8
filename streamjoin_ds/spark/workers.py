"""What a session's workers can do: run this package, and see the folders that a query writes to.

Both are checked before anything is written. A plain session starts ``python3`` from the path for its workers, whatever
Python its driver runs. A worker in a container or on another host may have another disk at a path, so the workers
themselves look for what the driver wrote.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader

from streamjoin_ds.errors import SessionError
from streamjoin_ds.spark.session import is_own
from streamjoin_ds.version import version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_workers", "seen_by_workers"]

_UNKNOWN = "0+source"  # the version of a package that is on the path but not installed
_checked: set[str] = set()  # ids of the Spark applications whose workers passed
_TASKS_A_CORE = 2  # more tasks than cores, so that every core of every worker gets one


def check_workers(spark: SparkSession) -> None:
    """Check a session's workers with one small job.

    The job goes both ways that Spark has to a Python worker: a data source and a function. A session is checked once.
    A session that `spark_session` started is not checked, nor one of Spark Connect: there the server chooses the
    workers.

    Raises
    ------
    SessionError
        A worker lacks this package, or has another version of it; the hint says what to set.
    """
    if is_own(spark):
        return
    try:
        application = str(spark.sparkContext.applicationId)
    except PySparkException:  # Spark Connect
        return
    if application in _checked:
        return
    try:
        spark.dataSource.register(_Probe)
        frame = spark.read.format(_Probe.name()).load().mapInArrow(_passed_on, _Probe.SCHEMA)
        versions = {version for row in frame.collect() for version in row}
    except PySparkException as error:
        msg = f"Spark's workers cannot run this package ({_reason(str(error)) or type(error).__name__})"
        raise SessionError(msg, name="spark.pyspark.python", hint=_hint()) from error
    # A package that is on the path but not installed does not know its version.
    if len({version(), *versions} - {_UNKNOWN}) > 1:
        msg = "Spark's workers have another version of this package than the driver"
        raise SessionError(msg, name="spark.pyspark.python", hint=_hint())
    _checked.add(application)


class _Probe(DataSource):
    """A data source of one row with the version of this package in a worker."""

    SCHEMA = "source string, function string"

    @classmethod
    def name(cls) -> str:
        """Return the name under which Spark registers the source."""
        return "streamjoin_worker_check"

    def schema(self) -> str:
        """Return the columns of the one row."""
        return self.SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader, which runs in a task."""
        return _ProbeReader()


class _ProbeReader(DataSourceReader):
    def read(self, partition: Any) -> Iterator[tuple[str, str]]:
        yield version(), ""


def _passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import deltalake  # noqa: F401  # a cell needs this package too

    for batch in batches:
        versions = [batch.column(0), pa.array([version()] * batch.num_rows, pa.string())]
        yield pa.RecordBatch.from_arrays(versions, names=["source", "function"])


def _reason(text: str) -> str:
    """Return the line of a Java and Python stack trace that says what is missing; "" if none does."""
    missing = r"^.*?((?:ModuleNotFound|Import)Error: .*|Cannot run program .*|PYTHON_VERSION_MISMATCH.*)$"
    found = re.findall(missing, text, re.MULTILINE)
    return found[-1].strip()[:160] if found else ""


def _hint() -> str:
    return (
        "make Spark start its workers with the driver's Python: set PYSPARK_PYTHON and spark.pyspark.python to "
        f"{sys.executable} before the session is made, or make the session with streamjoin_ds.spark_session()"
    )


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
