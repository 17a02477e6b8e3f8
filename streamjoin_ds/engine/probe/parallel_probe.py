"""One probe by several kernel threads, with the pairs in the order in which one thread would give them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.arrays.columns import empty_items
from streamjoin_ds.engine.probe.match_buffer import MIN_FREE

__all__ = ["PairKernel", "ParallelProbe", "slice_edges"]

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


class PairKernel(Protocol):
    """A kernel that finds pairs, some at a time: a `Scan`, a `GridProbe`, a `RunsProbe`, or several seen as one."""

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""

    @property
    def fill(self) -> Callable[..., int]:
        """Write the next pairs to the arrays given, two or three; 0 means there are no more."""


class ParallelProbe:
    """Kernels over consecutive parts of a probing, seen as one kernel.

    Parameters
    ----------
    kernels : sequence of (kernel, offset)
        In the order of the parts.
    executor : concurrent.futures.Executor
        Kernels release the GIL while they fill.
    threads : int
        How many parts are worked on at a time; each holds two buffers.
    outputs : int
        How many arrays a kernel fills.
    moved : int
        The output that a kernel's offset is added to: 0, the probes, where the parts are slices of them.
    """

    def __init__(
        self,
        kernels: Sequence[tuple[PairKernel, int]],
        executor: Executor,
        threads: int,
        outputs: int = 2,
        moved: int = 0,
    ) -> None:
        self._kernels = [kernel for kernel, _ in kernels]
        self._executor = executor
        self._outputs, self._moved = outputs, moved
        self._waiting = deque(kernels)
        self._running: deque[_Part] = deque()
        self._ready: Int32 = np.empty((outputs, 0), dtype=np.int32)
        for _ in range(threads):
            self._start()

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""
        return sum(kernel.candidates for kernel in self._kernels)

    def fill(self, *outs: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        while not self._ready.shape[1]:
            if not self._running:
                return 0
            self._ready, is_last = self._running[0].next()
            if is_last:
                self._running.popleft()
                self._start()
        count: int = min(self._ready.shape[1], len(outs[0]))
        for out, values in zip(outs, self._ready, strict=True):
            out[:count] = values[:count]
        self._ready = self._ready[:, count:]
        return count

    def _start(self) -> None:
        if self._waiting:
            kernel, offset = self._waiting.popleft()
            self._running.append(_Part(kernel, offset, self._executor, self._outputs, self._moved))


def _buffer(outputs: int) -> Int32:
    return empty_items(outputs * _BUFFER_ROWS, np.dtype(np.int32)).reshape(outputs, _BUFFER_ROWS)


class _Part:
    """A kernel that fills one buffer while the other is read."""

    def __init__(self, kernel: PairKernel, offset: int, executor: Executor, outputs: int, moved: int) -> None:
        self._kernel, self._offset, self._executor, self._moved = kernel, offset, executor, moved
        self._buffers = [_buffer(outputs)]
        self._outputs = outputs
        self._future: Future[tuple[int, bool]] = executor.submit(self._fill, self._buffers[0])

    def next(self) -> tuple[Int32, bool]:
        """The next pairs, in a buffer that stays as it is until the call after the next; and whether it is the last."""
        count, is_last = self._future.result()
        filled = self._buffers[0]
        if not is_last:
            if len(self._buffers) == 1:
                self._buffers.append(_buffer(self._outputs))
            self._buffers.reverse()
            self._future = self._executor.submit(self._fill, self._buffers[0])
        return filled[:, :count], is_last

    def _fill(self, buffer: Int32) -> tuple[int, bool]:
        """Fill a buffer, in as many calls as that takes: what wakes a thread costs more than a call."""
        count, is_last = 0, False
        while not is_last and buffer.shape[1] - count >= MIN_FREE:
            written = self._kernel.fill(*buffer[:, count:])
            count, is_last = count + written, not written
        if self._offset:
            buffer[self._moved, :count] += np.int32(self._offset)
        return count, is_last
