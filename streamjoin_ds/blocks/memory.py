"""Settings of a worker's memory: freed memory is kept for the next batch, and imports are not garbage-collected."""

from __future__ import annotations

import ctypes
import functools
import gc

__all__ = ["freeze_imports", "reuse_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_NEVER_BYTES = 1 << 30  # glibc's thresholds: smaller arrays are not mapped, less freed memory is not given back
_MANY_OBJECTS = 10_000  # objects that are not frozen yet, for which a freeze is worth while
_MOST_FREEZES = 4  # freezes of a process, at most

_freezes = 0


@functools.cache
def reuse_freed_memory() -> bool:
    """Make this process keep the memory of freed arrays for the next batch. Return whether that took effect.

    By default glibc maps each large array afresh and unmaps it when it is freed. Then a batch faults in each page
    again, which is a third of a cell's time (measured: 7.1 to 4.7 CPU seconds for 24 M rows). The price is that a
    worker keeps the most memory that it ever used. Without glibc this does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all([mallopt(_M_MMAP_THRESHOLD, _NEVER_BYTES) == 1, mallopt(_M_TRIM_THRESHOLD, _NEVER_BYTES) == 1])


def freeze_imports() -> bool:
    """Exempt what a worker has imported from garbage collection. Call it as a task begins. Return whether it froze now.

    Spark's Python daemon runs a full collection after every task, and the next task on that worker waits for it. That
    takes 22 ms of CPU with pandas, PyArrow and PySpark loaded, twice a trigger on every core (measured, 5 000 tuples/s
    a stream beside other work: trigger 497 to 438 ms, CPU of a trigger 474 to 335 ms). Modules are imported as they are
    needed, so a worker freezes again once 10 000 objects have come. It freezes four times at most: a frozen object that
    later dies in a cycle is never freed.
    """
    global _freezes
    if _freezes >= _MOST_FREEZES or len(gc.get_objects()) < _MANY_OBJECTS:
        return False
    _freezes += 1
    gc.collect()
    gc.freeze()
    return True
