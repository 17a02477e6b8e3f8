"""Spark's Python daemon, which imports what a join's workers need before it forks them.

Spark's own daemon forks first, since libraries may start threads, which a fork does not take along. So each worker
imports pandas, PyArrow and this package anew, for 1.4 s of CPU: at the start, and after each pause of a minute, when
Spark has ended the idle ones. Here they share one import, and its memory. Should a thread have come by it, Spark's own
daemon takes over, in this process.

``spark.python.daemon.module`` names this module.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from pathlib import Path

__all__ = ["main"]

_WORKER = "pyspark.worker"  # runs functions, so many are forked; of every other kind of worker there is one
_IMPORTED = (_WORKER, "pandas", "pyarrow", "streamjoin_ds.cell.cell_function")


def main() -> None:
    """Fork workers as Spark asks for them, until it ends."""
    if sys.argv[1:] == [_WORKER]:
        _import_ahead()
    from pyspark.daemon import manager

    manager()


def _import_ahead() -> None:
    # PyArrow's jemalloc begins with a thread of its own; PyArrow's other allocators have none.
    given = os.environ.get("JE_ARROW_MALLOC_CONF")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in _IMPORTED:
        importlib.import_module(name)
    if given is None:
        del os.environ["JE_ARROW_MALLOC_CONF"]
    if _thread_count() != 1:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", _WORKER])
    gc.collect()
    gc.freeze()


def _thread_count() -> int:
    """Return how many threads this process has, also those that Python does not know."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # not Linux
        return threading.active_count()


if __name__ == "__main__":
    main()
