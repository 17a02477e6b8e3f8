"""Workers begin with what a join imports, and no thread is there when they are forked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

_PREPARED = """
import sys
sys.argv = ["daemon", "pyspark.worker"]
from streamjoin_ds.spark import worker_daemon
{before}
worker_daemon._import_ahead()
assert worker_daemon._thread_count() == 1
assert {{"pandas", "pyarrow", "streamjoin_ds.cell.cell_function"}} <= set(sys.modules)
print("ready")
"""


def prepared(before: str = "") -> subprocess.CompletedProcess[str]:
    """Import ahead in a process of its own, whose standard input is at its end."""
    return subprocess.run(
        [sys.executable, "-c", _PREPARED.format(before=before)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        text=True,
        errors="replace",
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as Spark sets it for workers
    )


def test_no_thread_is_there_when_workers_are_forked() -> None:
    finished = prepared()
    assert (finished.returncode, finished.stdout) == (0, "ready\n"), finished.stderr


def test_where_an_import_starts_a_thread_sparks_own_daemon_takes_over() -> None:
    """It begins by saying where it listens, and ends with its input."""
    finished = prepared("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    assert len(finished.stdout) > 0
    assert "ready" not in finished.stdout


@pytest.mark.spark
def test_a_worker_begins_with_the_imports(spark: SparkSession) -> None:
    def known(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import sys

        import pandas as pd

        for _ in frames:
            main = sys.modules["__main__"].__spec__
            assert main is not None
            yield pd.DataFrame({"daemon": [main.name], "cells": ["streamjoin_ds.cell.cell_function" in sys.modules]})

    row = spark.range(1).mapInPandas(known, "daemon string, cells boolean").first()
    assert row is not None
    assert (row["daemon"], row["cells"]) == ("streamjoin_ds.spark.worker_daemon", True)
