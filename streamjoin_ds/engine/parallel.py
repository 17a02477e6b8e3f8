"""One probe by several kernel threads, with the pairs in the order in which one thread would give them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ParallelFill", "slice_edges"]

Int32 = npt.NDArray[np.int32]

_SLICES_PER_THREAD = 4
_MIN_SLICE_PROBES = 2048
_BUFFER_ROWS = 65_536

# Slices begin on a kernel's tile of probes, so that a sliced scan walks as a whole one does.
_TILE_PROBES = 32


def slice_edges(count: int, threads: int) -> list[int]:
    """Where to cut `count` probes for this many threads; ``[0, count]`` where it is not worth it."""
    slices = min(threads * _SLICES_PER_THREAD, count // _MIN_SLICE_PROBES) if threads > 1 else 1
    if slices <= 1:
        return [0, count]
    step = -(-count // (slices * _TILE_PROBES)) * _TILE_PROBES
    return [*range(0, count, step), count]


class ParallelFill:
    """Kernels over consecutive slices of the probes, seen as one kernel.

    Parameters
    ----------
    kernels : sequence of (kernel, offset)
        In the order of the slices; the offset is added to the probe rows a kernel writes.
    executor : concurrent.futures.Executor
        Kernels release the GIL while they fill.
    threads : int
        How many slices are worked on at a time; each holds two buffers.
    """

    def __init__(self, kernels: Sequence[tuple[Any, int]], executor: Executor, threads: int) -> None:
        self._kernels = [kernel for kernel, _ in kernels]
        self._executor = executor
        self._waiting = deque(kernels)
        self._running: deque[_Slice] = deque()
        self._probe_rows = self._run_rows = np.empty(0, dtype=np.int32)
        for _ in range(threads):
            self._start()

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""
        return sum(int(kernel.candidates) for kernel in self._kernels)

    def fill(self, out_probe: Int32, out_run: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        while not len(self._probe_rows):
            if not self._running:
                return 0
            self._probe_rows, self._run_rows = self._running[0].next()
            if not len(self._probe_rows):
                self._running.popleft()
                self._start()
        count = min(len(self._probe_rows), len(out_probe))
        out_probe[:count], self._probe_rows = self._probe_rows[:count], self._probe_rows[count:]
        out_run[:count], self._run_rows = self._run_rows[:count], self._run_rows[count:]
        return count

    def _start(self) -> None:
        if self._waiting:
            kernel, offset = self._waiting.popleft()
            self._running.append(_Slice(kernel, offset, self._executor))


class _Slice:
    """A kernel that fills one buffer while the other is read."""

    def __init__(self, kernel: Any, offset: int, executor: Executor) -> None:
        self._kernel, self._offset, self._executor = kernel, offset, executor
        self._buffers = [np.empty((2, _BUFFER_ROWS), dtype=np.int32) for _ in range(2)]
        self._future: Future[int] = self._submitted()

    def next(self) -> tuple[Int32, Int32]:
        """The next pairs, in a buffer that stays as it is until the call after the next; empty at the end."""
        count = self._future.result()
        filled = self._buffers[0]
        if count:
            self._buffers.reverse()
            self._future = self._submitted()
        return filled[0, :count], filled[1, :count]

    def _submitted(self) -> Future[int]:
        return self._executor.submit(self._fill, self._buffers[0])

    def _fill(self, buffer: Int32) -> int:
        count = int(self._kernel.fill(buffer[0], buffer[1]))
        if self._offset:
            buffer[0, :count] += np.int32(self._offset)
        return count
