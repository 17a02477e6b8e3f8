"""Pieces of work on several threads, their results in the order in which one thread would give them.

::

    piece 0  ─ chunk ─ chunk ─ end         in work by the reader itself
    piece 1  ─ chunk ─ chunk               first chunks in work by another thread, kept until the reader comes to them
    piece 2  (waits for a thread)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from itertools import islice
from typing import TypeVar

__all__ = ["HELD_CHUNKS", "in_order", "one_by_one", "side_by_side"]

# Most chunks of a piece that are kept for the reader.
HELD_CHUNKS = 4

_Chunk = TypeVar("_Chunk")
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


def in_order(pieces: Iterable[Iterator[_Chunk]], executor: Executor, threads: int) -> Generator[_Chunk]:
    """Chunks of all pieces, piece after piece.

    The caller is one of the threads: to wake another costs more than a small piece does, and to be woken as much.

    Parameters
    ----------
    pieces : iterable of iterators
        Each is read by one thread at a time, now by this one, now by that.
    executor : concurrent.futures.Executor
    threads : int
        That are to work, the caller among them. Fewer than ``(threads + 1) * HELD_CHUNKS`` chunks are held besides the
        one given.

    Yields
    ------
    The chunks. When the last is given, or the reader gives up, no piece is at work any more.
    """
    waiting = iter(pieces)
    begun: deque[tuple[Iterator[_Chunk], Future[list[_Chunk]]]] = deque()

    def begin() -> None:
        piece = next(waiting, None)
        if piece is not None:
            begun.append((piece, executor.submit(_first, piece)))

    try:
        piece = next(waiting, None)
        for _ in range(threads):  # one waits, for the thread that is done first
            begin()
        while piece is not None:
            yield from piece
            piece = None
            if begun:
                piece, first = begun.popleft()
                begin()
                if not first.cancel():
                    yield from first.result()
    finally:
        for _, future in begun:
            future.cancel()
        wait([future for _, future in begun])


def _first(piece: Iterator[_Chunk]) -> list[_Chunk]:
    return list(islice(piece, HELD_CHUNKS))


def one_by_one(work: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
    """One piece of work after the other."""
    return [work(one) for one in given]


def side_by_side(work: Callable[[_Given], _Made], given: Sequence[_Given], executor: Executor | None) -> list[_Made]:
    """All pieces of work at once, the last one by the caller; without an executor one after the other."""
    if executor is None or len(given) == 1:
        return one_by_one(work, given)
    others = [executor.submit(work, one) for one in given[:-1]]
    try:
        last = [work(one) for one in given[-1:]]
    finally:
        wait(others)
    return [*(other.result() for other in others), *last]
