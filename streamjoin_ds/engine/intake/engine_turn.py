"""The turn on an engine: one thread at a time, and one push at a time.

The caller of a push holds an iterator over its results (`Chunks`). Each chunk is found when it is asked for, while no
other thread is at work on the engine. A push that has begun is running until it is read to its end, closed, or
collected; no other push begins before.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Generator
from typing import TypeVar

import pyarrow as pa

from streamjoin_ds.engine.kernels.objects import Gate
from streamjoin_ds.errors import ArgumentError

__all__ = ["Chunks", "EngineTurn", "nobody"]

_Made = TypeVar("_Made")


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


class EngineTurn:
    """The threads that call an engine, one after the other, and the push that is being read.

    Parameters
    ----------
    gate : Gate
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._reading: Callable[[], Chunks | None] = nobody
        self._whole: Generator[pa.Table] | None = None  # the chunks of a push that is read as one

    def forget(self) -> None:
        """Take no push for running any more: another state was restored."""
        self._reading = nobody

    def alone(self, work: Callable[..., _Made], *given: object) -> _Made:
        """Return what `work` returns, called while no other thread is at work on the engine.

        A signal handler that interrupted the engine gets an ArgumentError: it would wait for its own thread.
        """
        if self._gate.is_mine:
            msg = "the engine was called in a thread in which it is at work already, for example by a signal handler"
            raise ArgumentError(
                msg, name="engine", hint="let the handler set a flag, and call the engine when the push is over"
            )
        return self._gate.through(work, *given)

    def read_whole(self, chunks: Generator[pa.Table]) -> list[pa.Table]:
        """Return all chunks of a push."""
        return self.alone(self._read_whole, chunks)

    def _read_whole(self, chunks: Generator[pa.Table]) -> list[pa.Table]:
        self.check_idle()
        self._whole = chunks
        made = list(chunks)
        self._whole = None
        return made

    def step(self, push: Chunks) -> pa.Table:
        """Return the next chunk of a push that is read chunk by chunk."""
        if not push.is_begun:
            self.check_idle()  # refuse at once; `alone` would first wait for the other thread
        return self.alone(self._read_next, push)

    def _read_next(self, push: Chunks) -> pa.Table:
        if not push.is_begun:
            self.check_idle()
            self._reading, push.is_begun = weakref.ref(push), True
        return next(push.chunks)

    def check_idle(self, asked: str = "push") -> None:
        """Raise ArgumentError where a push has begun whose iterator somebody still holds and may read further."""
        push, whole = self._reading(), self._whole
        is_read_whole = whole is not None and inspect.getgeneratorstate(whole) == inspect.GEN_RUNNING
        if is_read_whole or (push is not None and push.is_going):
            msg = "a push is running"
            hint = "read it to its end or close it first; put a queue in front of several threads"
            raise ArgumentError(msg, name=asked, hint=hint)
