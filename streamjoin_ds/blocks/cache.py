"""What a process has opened and verified, kept by name: a hint, never the truth."""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by name, the least recently used let go first; safe for threads.

    It is not the `LRUCache` of cachetools: that has one limit, set for good, and does not tell what was used longest
    ago. Two limits, `resize`, `names` and `begin_round` would all have to be built around it.

    Names must carry the checksum of what they stand for: then a task that finds a value here may use it, whichever
    task put it, and one that does not find it reads the block and verifies it. The log has a name as `str` gives it, so
    that must hold no secret.

    Parameters
    ----------
    limit_bytes : int
        Upper bound of the sizes of all values together. A value larger than this is not kept at all.
    limit_count : int
        Upper bound of how many there are: each may be a mapped file, of which the system allows only so many.
    """

    def __init__(self, limit_bytes: int, limit_count: int = sys.maxsize) -> None:
        self.limit_bytes, self.limit_count = limit_bytes, limit_count
        self.size_bytes = 0
        self._values: OrderedDict[Hashable, tuple[Value, int, int]] = OrderedDict()  # with its size and its round
        self._round = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def names(self) -> list[Hashable]:
        """What is kept, the least recently used first."""
        with self._lock:
            return list(self._values)

    def resize(self, limit_bytes: int, limit_count: int = sys.maxsize) -> None:
        """Set other limits; what is over them goes."""
        with self._lock:
            self.limit_bytes, self.limit_count = limit_bytes, limit_count
            self._make_room(0, 0)

    def begin_round(self, idle_rounds: int) -> None:
        """Begin a round of use, and let go of what none of the last so many rounds has used."""
        with self._lock:
            self._round += 1
            while self._values:
                name, (_, _, used) = next(iter(self._values.items()))
                if self._round - used <= idle_rounds:
                    break
                self._drop(name, f"no task of the last {idle_rounds} has used it")

    def get(self, name: Hashable) -> Value | None:
        """The value of this name, or None."""
        with self._lock:
            found = self._values.get(name)
            if found is None:
                return None
            value, size_bytes, _ = found
            self._values[name] = value, size_bytes, self._round
            self._values.move_to_end(name)
            return value

    def put(self, name: Hashable, value: Value, size_bytes: int) -> None:
        """Keep a value, in place of one of the same name."""
        with self._lock:
            self._drop(name, "another takes its place")
            if size_bytes > self.limit_bytes or self.limit_count < 1:
                _log.debug("%s, %d bytes, is not kept: over the limit of %d", name, size_bytes, self.limit_bytes)
                return
            self._make_room(size_bytes, 1)
            self._values[name] = value, size_bytes, self._round
            self.size_bytes += size_bytes

    def discard(self, name: Hashable, why: str = "nobody asks for it again") -> None:
        """Let go of a value, if it is there; `why`: for the log."""
        with self._lock:
            self._drop(name, why)

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            _log.debug("all %d, %d bytes, are dropped", len(self._values), self.size_bytes)
            self._values.clear()
            self.size_bytes = 0

    def _make_room(self, size_bytes: int, count: int) -> None:
        while self._values and (
            self.size_bytes + size_bytes > self.limit_bytes or len(self._values) + count > self.limit_count
        ):
            self._drop(next(iter(self._values)), "there must be room for others")

    def _drop(self, name: Hashable, why: str) -> None:
        found = self._values.pop(name, None)
        if found is not None:
            self.size_bytes -= found[1]
            _log.debug("%s, %d bytes, is dropped: %s", name, found[1], why)
