"""The iterator over one push's results that the caller holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator

import pyarrow as pa

__all__ = ["Chunks", "nobody"]


class Chunks:
    """An iterator over the results of a push, in chunks; each chunk is found when it is asked for.

    It wraps the generator of the chunks, and takes each step of it while no other thread is at work on the engine.

    Parameters
    ----------
    chunks : generator of pyarrow.Table
    step : callable
        Takes this object and returns its next chunk.
    alone : callable
        Calls a function while no other thread is at work on the engine.

    Attributes
    ----------
    is_begun : bool
        Whether the first chunk was asked for. From then on the engine takes this for the push that is running.
    """

    __slots__ = ("__weakref__", "_alone", "_step", "chunks", "is_begun")

    def __init__(
        self,
        chunks: Generator[pa.Table],
        step: Callable[[Chunks], pa.Table],
        alone: Callable[[Callable[[], None]], None],
    ) -> None:
        self.chunks, self.is_begun = chunks, False
        self._step, self._alone = step, alone

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> pa.Table:
        return self._step(self)

    @property
    def is_going(self) -> bool:
        """Whether the generator is at work, or between two chunks."""
        return inspect.getgeneratorstate(self.chunks) in (inspect.GEN_RUNNING, inspect.GEN_SUSPENDED)

    def close(self) -> None:
        """Give the push up: none of it is in, unless it was read to its end."""
        self._alone(self.chunks.close)


def nobody() -> None:
    """Return None; this stands in for the weak reference to a push where no push is being read."""
