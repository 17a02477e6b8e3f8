"""Runs of live queries: each in a folder that goes afterwards, with a log that stays if it failed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from streamjoin_ds.bench.live.live import LiveTask
from streamjoin_ds.bench.live.live_process import LiveProcess, LiveRun
from streamjoin_ds.spark.spark_log import new_log

__all__ = ["LIVE_WITHIN_S", "done", "query_folder", "query_log"]

LIVE_WITHIN_S = 1_800.0
"""Seconds after which a live query has failed."""


def done(task: LiveTask) -> LiveRun:
    """Return what a live query said until its end; raise a `BenchError` if it failed or its matches are wrong."""
    with query_log() as log, LiveProcess(task, log) as process:
        run = process.await_end(LIVE_WITHIN_S)
        run.check()
    return run


@contextlib.contextmanager
def query_folder() -> Iterator[str]:
    """Give a folder for tables and checkpoints; it goes with the context."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-bench-stream-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextlib.contextmanager
def query_log() -> Iterator[Path]:
    """Give a file for what processes print; it stays if something failed."""
    log = new_log()
    yield log
    log.unlink()
