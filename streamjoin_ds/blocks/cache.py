"""What a process keeps in memory: a cache of what it has opened and verified, by name, and memory that was freed.

What the cache holds is a hint, never the truth. In a worker freed memory is kept for the next batch, and imports are
not garbage-collected.
"""

from __future__ import annotations

import functools
import gc
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import pyarrow as pa

from streamjoin_ds.machine import mallopt

__all__ = ["Cache", "freeze_imports", "reuse_freed_memory"]

_log = logging.getLogger(__name__)

Value = TypeVar("Value")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_NEVER_BYTES = 1 << 30  # glibc's thresholds: smaller arrays are not mapped, less freed memory is not given back
_MANY_OBJECTS = 10_000  # objects that are not frozen yet, for which a freeze is worth while
_MOST_FREEZES = 4  # freezes of a process, at most
_freezes = 0


class Cache(Generic[Value]):
    """Values by name. The least recently used is dropped first. Safe for threads.

    The `LRUCache` of cachetools would not do: it has one limit, set for good, and does not tell what was used longest
    ago. Two limits, `resize`, `names` and `begin_round` would all have to be built around it.

    A name must carry the checksum of its value. Then a task that finds a value here may use it, whichever task put it,
    and a task that finds none reads the block and verifies it. The log shows a name as `str` gives it, so names must
    hold no secret.

    Parameters
    ----------
    limit_bytes : int
        Upper bound of the sizes of all values together. A value larger than this is not kept at all.
    limit_count : int
        Upper bound of the number of values: each may be a mapped file, and the system limits a process's mapped files.
    """

    def __init__(self, limit_bytes: int, limit_count: int = sys.maxsize) -> None:
        self.limit_bytes, self.limit_count = limit_bytes, limit_count
        self.size_bytes = 0
        # Each value with its size in bytes and the round of its last use.
        self._values: OrderedDict[Hashable, tuple[Value, int, int]] = OrderedDict()
        self._round = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def names(self) -> list[Hashable]:
        """Return the names of all values, the least recently used first."""
        with self._lock:
            return list(self._values)

    def resize(self, limit_bytes: int, limit_count: int = sys.maxsize) -> None:
        """Set other limits, and drop values until they hold."""
        with self._lock:
            self.limit_bytes, self.limit_count = limit_bytes, limit_count
            self._make_room(0, 0)

    def begin_round(self, idle_rounds: int) -> None:
        """Begin a round of use, and drop the values that were used last more than `idle_rounds` rounds ago."""
        with self._lock:
            self._round += 1
            while self._values:
                name, (_, _, used) = next(iter(self._values.items()))
                if self._round - used <= idle_rounds:
                    break
                self._drop(name, f"none of the last {idle_rounds} rounds has used it")

    def get(self, name: Hashable) -> Value | None:
        """Return the value of this name, or None."""
        with self._lock:
            found = self._values.get(name)
            if found is None:
                return None
            value, size_bytes, _ = found
            self._values[name] = value, size_bytes, self._round
            self._values.move_to_end(name)
            return value

    def put(self, name: Hashable, value: Value, size_bytes: int) -> None:
        """Keep a value. It replaces one of the same name."""
        with self._lock:
            self._drop(name, "another value takes its place")
            if size_bytes > self.limit_bytes or self.limit_count < 1:
                _log.debug("%s is not kept: its %d bytes are over the limit of %d", name, size_bytes, self.limit_bytes)
                return
            self._make_room(size_bytes, 1)
            self._values[name] = value, size_bytes, self._round
            self.size_bytes += size_bytes

    def discard(self, name: Hashable, why: str = "nobody asks for it again") -> None:
        """Drop a value, if it is there. The log shows `why`."""
        with self._lock:
            self._drop(name, why)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            _log.debug("all %d values of %d bytes are dropped", len(self._values), self.size_bytes)
            self._values.clear()
            self.size_bytes = 0

    def _make_room(self, size_bytes: int, count: int) -> None:
        while self._values and (
            self.size_bytes + size_bytes > self.limit_bytes or len(self._values) + count > self.limit_count
        ):
            self._drop(next(iter(self._values)), "others need its room")

    def _drop(self, name: Hashable, why: str) -> None:
        found = self._values.pop(name, None)
        if found is not None:
            self.size_bytes -= found[1]
            _log.debug("%s of %d bytes is dropped: %s", name, found[1], why)


@functools.cache
def reuse_freed_memory() -> bool:
    """Make this process keep the memory of freed arrays for the next batch. Return whether that took effect.

    By default glibc maps each large array afresh and unmaps it when it is freed. Then a batch faults in each page
    again, which is a third of a cell's time (measured: 7.1 to 4.7 CPU seconds for 24 M rows). So does Arrow's own
    allocator, which gives way to glibc's: large files of CSV take 7 % less CPU time (two pairs, without Spark). The
    price is that a worker keeps the most memory that it ever used. Without glibc this does nothing.
    """
    is_kept = all([mallopt(_M_MMAP_THRESHOLD, _NEVER_BYTES), mallopt(_M_TRIM_THRESHOLD, _NEVER_BYTES)])
    if is_kept:
        pa.set_memory_pool(pa.system_memory_pool())
    return is_kept


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
