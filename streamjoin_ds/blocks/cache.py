"""What a process has opened and verified, kept by name: a hint, never the truth."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by name, the least recently used let go first; safe for threads.

    Names must carry the checksum of what they stand for: then a task that finds a value here may use it, whichever
    task put it, and one that does not find it reads the block and verifies it.

    Parameters
    ----------
    limit_bytes : int
        Upper bound of the sizes of all values together. A value larger than this is not kept at all.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: Hashable) -> Value | None:
        """The value of this name, or None."""
        with self._lock:
            found = self._values.get(name)
            if found is None:
                return None
            self._values.move_to_end(name)
            return found[0]

    def put(self, name: Hashable, value: Value, size_bytes: int) -> None:
        """Keep a value, in place of one of the same name."""
        with self._lock:
            self._drop(name)
            if size_bytes > self.limit_bytes:
                return
            while self.size_bytes + size_bytes > self.limit_bytes:
                self._drop(next(iter(self._values)))
            self._values[name] = value, size_bytes
            self.size_bytes += size_bytes

    def discard(self, name: Hashable) -> None:
        """Let go of a value, if it is there."""
        with self._lock:
            self._drop(name)

    def _drop(self, name: Hashable) -> None:
        found = self._values.pop(name, None)
        if found is not None:
            self.size_bytes -= found[1]
