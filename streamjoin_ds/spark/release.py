"""What the installed release of Spark has: 3.5, 4.0, 4.1 or 4.2, by which managed platforms differ.

::

    3.5   DataFrames: `StreamJoin.dataframe`, `StreamJoin.start` with frames=
    4.0   and streams in Python: `StreamJoin.start`, SQL, ``format("sensors")``
    4.2   and admission control of streams in Python (`streamjoin_ds.spark.admission`)

What a release lacks is refused by name before anything is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from streamjoin_ds.errors import SessionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "arrow_schema",
    "checkpoint_files_class",
    "has_admission",
    "has_arrow_groups",
    "has_python_sources",
    "is_connect",
    "needs_older_arrow",
    "needs_python_sources",
    "release_of",
]

_PYTHON_SOURCES = (4, 0)
_ARROW_GROUPS = (4, 0)
_ADMISSION = (4, 2)  # SPARK-55304
_TIME_ZONES = (4, 2)  # of timestamps in Arrow; before, they are in UTC
_MOVED_CHECKPOINTS = (4, 1)  # classes of the checkpoint moved to a package of their own
# pyarrow that takes no float as a place of a row, and the first releases of Spark that give it none.
_STRICT_ARROW = 26
_FIXED = {(4, 0): (4, 0, 5), (4, 1): (4, 1, 4)}
_STREAMING = "org.apache.spark.sql.execution.streaming"


def release_of(version: str) -> tuple[int, int]:
    """Return (4, 2) for ``4.2.0``, and for what a vendor made of it (``4.2.0-amzn-1``, ``4.2.0.1.2-SNAPSHOT``).

    Raises
    ------
    SessionError
        The text does not begin with two numbers.
    """
    try:
        major, minor = Version(".".join(version.split("-")[0].split(".")[:2])).release
    except (InvalidVersion, ValueError):
        msg = "the version of Spark cannot be read"
        raise SessionError(msg, name="spark", hint="this package knows Spark 3.5 and 4.0 to 4.2") from None
    return major, minor


def has_admission(version: str | None = None) -> bool:
    """Whether Spark tells a stream in Python where a batch begins and how many rows it may have.

    By default the release is that of the installed pyspark.
    """
    return release_of(version or _installed()) >= _ADMISSION


def has_python_sources(version: str | None = None) -> bool:
    """Whether Spark reads streams by a source that is written in Python. By default it is the installed pyspark."""
    return release_of(version or _installed()) >= _PYTHON_SOURCES


def has_arrow_groups(version: str) -> bool:
    """Whether Spark gives groups of rows to a function, and all rows to its caller, in Arrow."""
    return release_of(version) >= _ARROW_GROUPS


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: a server, which may lie elsewhere, runs what it asks for."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def needs_python_sources(spark: SparkSession) -> None:
    """Refuse a session whose Spark reads no streams by a source in Python.

    Raises
    ------
    SessionError
        Spark is older than 4.0.
    """
    if not has_python_sources(spark.version):
        msg = f"Spark {spark.version} has no streaming sources in Python, by which start() reads its streams"
        hint = (
            "use Spark 4.0 or newer; or give start() DataFrames (frames=), which 3.5 can read; or join without Spark: "
            "run_local(), JoinEngine"
        )
        raise SessionError(msg, name="spark", hint=hint)


def needs_older_arrow(spark: SparkSession) -> None:
    """Refuse a Spark whose functions with a state fail by the installed pyarrow.

    Raises
    ------
    SessionError
        Spark is older than 4.0.5, or 4.1 before 4.1.4, and pyarrow is 26 or newer.
    """
    import pyarrow as pa

    found = Version(pa.__version__)
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", spark.version)
    release = release_of(spark.version)
    patch = int(numbers.group(3)) if numbers else 0
    if found.major >= _STRICT_ARROW and (*release, patch) < _FIXED.get(release, (4, 0, 0)):
        msg = f"pyarrow {found} cannot be used by Spark {spark.version}: functions with a state would fail"
        hint = f"pip install 'pyarrow<{_STRICT_ARROW}', where the driver and the workers run"
        raise SessionError(msg, name="pyarrow", hint=hint)


def checkpoint_files_class() -> str:
    """Return Java's name of the class that writes a checkpoint's files by plain calls of the file system."""
    room = f"{_STREAMING}.checkpointing" if release_of(_installed()) >= _MOVED_CHECKPOINTS else _STREAMING
    return f"{room}.FileSystemBasedCheckpointFileManager"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types of Spark's columns; a timestamp is in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if release_of(_installed()) < _TIME_ZONES:
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


def _installed() -> str:
    from pyspark.version import __version__

    return __version__
