"""Whether the workers of a session that others made run this package: asked before anything is written.

A plain session starts ``python3`` from the path for its workers, whatever Python its driver is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader

from streamjoin_ds.errors import SessionError
from streamjoin_ds.spark.session import is_own
from streamjoin_ds.version import version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_workers"]

_UNKNOWN = "0+source"
_checked: set[str] = set()


def check_workers(spark: SparkSession) -> None:
    """Run one small job through the two ways that Spark has to a Python worker: a data source and a function.

    A session is asked once; one that `spark_session` started is not, nor one of Spark Connect: what its workers are is
    its server's affair.

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
    # One on the path, not installed, does not know its version.
    if len({version(), *versions} - {_UNKNOWN}) > 1:
        msg = "Spark's workers have another version of this package than the driver"
        raise SessionError(msg, name="spark.pyspark.python", hint=_hint())
    _checked.add(application)


class _Probe(DataSource):
    """One row with this package's version, as a worker has it."""

    SCHEMA = "source string, function string"

    @classmethod
    def name(cls) -> str:
        """As Spark registers it."""
        return "streamjoin_worker_check"

    def schema(self) -> str:
        """Of the one row."""
        return self.SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        """Runs in a task."""
        return _ProbeReader()


class _ProbeReader(DataSourceReader):
    def read(self, partition: Any) -> Iterator[tuple[str, str]]:
        yield version(), ""


def _passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import deltalake  # noqa: F401  # what a cell needs besides

    for batch in batches:
        versions = [batch.column(0), pa.array([version()] * batch.num_rows, pa.string())]
        yield pa.RecordBatch.from_arrays(versions, names=["source", "function"])


def _reason(text: str) -> str:
    """The line of a stack trace of both languages that says what is missing."""
    missing = r"^.*?((?:ModuleNotFound|Import)Error: .*|Cannot run program .*|PYTHON_VERSION_MISMATCH.*)$"
    found = re.findall(missing, text, re.MULTILINE)
    return found[-1].strip()[:160] if found else ""


def _hint() -> str:
    return (
        "let it start its workers with the driver's Python: set PYSPARK_PYTHON and spark.pyspark.python to "
        f"{sys.executable} before the session is made; or make it by streamjoin_ds.spark_session()"
    )
