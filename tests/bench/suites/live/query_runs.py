"""Runs of live queries: each in a folder that goes afterwards, with a log that stays if it failed."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamjoin_ds.spark.local_files import new_log
from tests.bench.suites.live.live import LiveTask
from tests.bench.suites.live.live_process import LiveProcess, LiveRun
from tests.bench.suites.processes import Child, TreeUse

__all__ = ["LIVE_WITHIN_S", "answered", "done", "query_folder", "query_log"]

LIVE_WITHIN_S = 1_800.0
"""Seconds after which a live query has failed."""


def done(task: LiveTask) -> LiveRun:
    """Return what a live query said until its end; raise a `BenchError` if it failed or its matches are wrong."""
    with query_log() as log, LiveProcess(task, log) as process:
        run = process.await_end(LIVE_WITHIN_S)
        run.check()
    return run


def answered(
    module: str, given: Mapping[str, Any], log: Path, *, name: str, within_s: float
) -> tuple[list[dict[str, Any]], TreeUse]:
    """Return the answers of a module, run as a process of its own, and what that process used.

    Parameters
    ----------
    module : str
        Its name below the suites. It is given one argument: `given` as JSON.
    log : Path
        Takes what the process says besides.
    name : str
        What is measured, for the error.
    within_s : float
        Seconds after which the process is killed.

    Raises
    ------
    BenchError
        The process failed, or was not done in time.
    """
    child = Child(module, json.dumps(given), name=name, log_path=log)
    with child, TreeUse(child.process_id) as use:
        return child.all_answers(within_s), use


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
