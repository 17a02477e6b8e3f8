"""Runs of live queries: each in a folder that goes afterwards, with a log that stays if it failed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamjoin_ds.bench.live.live import LiveTask
from streamjoin_ds.bench.live.live_process import LiveProcess, LiveRun
from streamjoin_ds.bench.paths.side_process import TreeUse
from streamjoin_ds.errors import BenchError
from streamjoin_ds.spark.holding import hold
from streamjoin_ds.spark.spark_log import new_log

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
) -> tuple[list[str], TreeUse]:
    """Return the lines that a module prints, run as a process of its own, and what that process used.

    Parameters
    ----------
    module : str
        It is given one argument: `given` as JSON.
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
    with log.open("ab") as errors:
        hold(errors)
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(given)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    with TreeUse(process.pid) as use:
        try:
            output, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    if process.returncode:
        msg = f"{module.rpartition('.')[2]} failed, or was not done in time"
        raise BenchError(msg, name=name, hint=f"its output is in {log}")
    return output.splitlines(), use


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
