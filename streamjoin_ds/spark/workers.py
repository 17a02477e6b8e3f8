"""What a session's workers can do: run this package, and see the folders that a query writes to.

Both are checked before anything is written. A plain session starts ``python3`` from the path for its workers, whatever
Python its driver runs. A worker in a container or on another host may have another disk at a path, so the workers
themselves look for what the driver wrote.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from streamjoin_ds.errors import SessionError
from streamjoin_ds.spark.release import has_python_sources, is_connect
from streamjoin_ds.spark.session import is_own
from streamjoin_ds.version import version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING or has_python_sources():
    from pyspark.sql.datasource import DataSource, DataSourceReader
else:
    DataSource = DataSourceReader = object

__all__ = ["check_workers", "seen_by_workers"]

_UNKNOWN = "0+source"  # the version of a package that is on the path but not installed
_checked: set[str] = set()  # ids of the Spark applications, and sessions of Connect, whose workers passed
_SCHEMA = "source string, function string"
_SERVER_HINT = (
    "install this package, in this version, for the Python that the Connect server starts its workers with: set "
    "PYSPARK_PYTHON and spark.pyspark.python where the server is started"
)
_TASKS_A_CORE = 2  # more tasks than cores, so that every core of every worker gets one


def check_workers(spark: SparkSession) -> None:
    """Check a session's workers with one small job.

    The job goes both ways that Spark has to a Python worker: a data source, which 3.5 has not, and a function. A
    session is checked once. One that `spark_session` started is not checked. Under Spark Connect the server chooses
    the workers.

    Raises
    ------
    SessionError
        A worker lacks this package, or has another version of it; the hint says what to set.
    """
    if is_own(spark):
        return
    of_connect = is_connect(spark)
    # The type is that of a classic session, which has no session_id.
    application = str(getattr(spark, "session_id", "") if of_connect else spark.sparkContext.applicationId)
    if application in _checked:
        return
    hint = _SERVER_HINT if of_connect else _hint()
    try:
        versions = {version for row in _probed(spark).collect() for version in row}
    except PySparkException as error:
        msg = f"Spark's workers cannot run this package ({_reason(str(error)) or type(error).__name__})"
        raise SessionError(msg, name="spark.pyspark.python", hint=hint) from error
    # A package that is on the path but not installed does not know its version.
    if len({version(), *versions} - {_UNKNOWN}) > 1:
        msg = "Spark's workers have another version of this package than the driver"
        raise SessionError(msg, name="spark.pyspark.python", hint=hint)
    _checked.add(application)


def _probed(spark: SparkSession) -> DataFrame:
    """Return a frame of the versions of this package in a worker that runs a data source, and in one of a function."""
    if not has_python_sources(spark.version):
        return spark.range(1).selectExpr("'' AS source", "'' AS function").mapInArrow(_passed_on, _SCHEMA)
    spark.dataSource.register(_Probe)
    return spark.read.format(_Probe.name()).load().mapInArrow(_passed_on, _SCHEMA)


class _Probe(DataSource):
    """A data source of one row with the version of this package in a worker."""

    @classmethod
    def name(cls) -> str:
        """Return the name under which Spark registers the source."""
        return "streamjoin_worker_check"

    def schema(self) -> str:
        """Return the columns of the one row."""
        return _SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader, which runs in a task."""
        return _ProbeReader()


class _ProbeReader(DataSourceReader):
    def read(self, partition: Any) -> Iterator[tuple[str, str]]:
        yield version(), ""


def _passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import deltalake  # noqa: F401  # a cell needs this package too

    for batch in batches:
        own = pa.array([version()] * batch.num_rows, pa.string())
        source = pa.array([text or version() for text in batch.column(0).to_pylist()], pa.string())
        yield pa.RecordBatch.from_arrays([source, own], names=["source", "function"])


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
    made = [path for folder in folders for path in [Path(folder), *Path(folder).parents] if not path.exists()]
    answers = {0}
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
        if any(answer != (1 << len(probes)) - 1 for answer in answers):  # the caller may refuse
            for path in sorted(set(made), key=lambda path: len(path.parts), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir()
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
