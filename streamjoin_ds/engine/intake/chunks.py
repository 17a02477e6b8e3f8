"""The chunks of one push, as the caller has them in his hands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator

import pyarrow as pa

__all__ = ["Chunks", "nobody"]


class Chunks:
    """The results of a push, each found when it is asked for.

    It is the generator of these chunks, each step of which is taken while nobody else is at work on the engine.

    Parameters
    ----------
    chunks : generator of pyarrow.Table
    step : callable
        Takes this, and gives its next chunk.
    alone : callable
        Calls something while nobody else is at work.

    Attributes
    ----------
    is_begun : bool
        Whether the engine has it for the push that is running.
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
        """Whether it is at work, or between two chunks."""
        return inspect.getgeneratorstate(self.chunks) in (inspect.GEN_RUNNING, inspect.GEN_SUSPENDED)

    def close(self) -> None:
        """Give it up: none of the push is in, unless it was read to its end."""
        self._alone(self.chunks.close)


def nobody() -> None:
    """No push is being read."""
