"""The scheduler of a push: it runs the steps of several works on native threads, and keeps the order of one thread.

::

    work 0    Python ─ add a ........ wait a ─ Python ─ add c ........ wait c
    work 1                  Python ─ add b ......... wait b ─ Python ─ add d ......
    helpers                   a        b                        c        d

A work is a sequence of steps, each of which waits for kernel tasks. It is written as a coroutine that yields the tasks
of its next step and receives their results (`TaskCoroutine`). Whoever runs it decides where the tasks are done:
`run_alone` does them in the calling thread, the scheduler on the threads of a pool.

The caller's thread runs all Python: the pool's threads need no GIL. While they do the tasks of one work, the caller
takes the next step of another. When the caller has to wait, it does tasks too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Generic, TypeAlias, TypeVar, cast

from streamjoin_ds.engine.core_lease import staying_on
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import Task, ThreadPool
from streamjoin_ds.engine.tuning import DEFAULT, ThreadTuning

__all__ = [
    "ChunkCoroutine",
    "Scheduler",
    "TaskCoroutine",
    "chunks_alone",
    "run_alone",
    "run_in_order",
    "run_interleaved",
]

_Made = TypeVar("_Made")
_Chunk = TypeVar("_Chunk")

# The results that are sent have as many types as the tasks; each step knows those of its own.
TaskCoroutine: TypeAlias = "Generator[list[Task[Any]], list[Any], _Made]"

# It yields a list of tasks and receives their results, or it yields a chunk and receives None.
ChunkCoroutine: TypeAlias = "Generator[list[Task[Any]] | _Chunk, Any, None]"


def run_alone(steps: TaskCoroutine[_Made]) -> _Made:
    """Run all steps in this thread and return their result."""
    try:
        tasks = next(steps)
        while True:
            tasks = steps.send([task.do() for task in tasks])
    except StopIteration as end:
        made: _Made = end.value
        return made


def chunks_alone(steps: ChunkCoroutine[_Chunk], pool: ThreadPool | None = None) -> Generator[_Chunk]:
    """Yield the chunks of one piece.

    This thread does a step that has one task. The pool, where there is one, does a step that has several.
    """
    told: list[Any] | None = None
    try:
        while True:
            try:
                given = steps.send(told)
            except StopIteration:
                return
            if not isinstance(given, list):
                told = None
                yield given
            elif len(given) == 1:
                told = [given[0].do()]
            elif pool is None:
                told = [task.do() for task in given]
            else:
                told = _done(pool, given)
    finally:
        steps.close()


def _done(pool: ThreadPool, tasks: Sequence[Task[Any]]) -> list[Any]:
    """Have a pool do tasks, and return their results."""
    try:
        for task in tasks:
            pool.add(task)
        return [pool.wait(task) for task in tasks]
    finally:
        pool.give_up(tasks)


class Scheduler:
    """Runs the works of one join.

    Parameters
    ----------
    pool : ThreadPool, optional
        Threads for kernel tasks; None: the caller does everything, one work after the other.
    cores : sequence of int
        Where the caller stays while the pool works with it; none: wherever the system puts it.
    tuning : ThreadTuning
    """

    def __init__(
        self, pool: ThreadPool | None = None, cores: Sequence[int] = (), tuning: ThreadTuning = DEFAULT.threads
    ) -> None:
        self._pool, self._cores = pool, cores
        self._held_chunks, self._pieces_ahead = tuning.held_chunks, tuning.pieces_ahead

    @classmethod
    def of(
        cls, module: KernelModule, threads: int, cores: Sequence[int], tuning: ThreadTuning, *, is_own: bool
    ) -> Scheduler:
        """Return a scheduler for so many threads, the caller among them.

        Parameters
        ----------
        cores : sequence of int
            For all of them; none: threads run wherever the system puts them.
        is_own : bool
            Whether the join has the process to itself. Then each thread has one core, the caller the first. If not, the
            pool runs on all of the cores, and the caller stays where it was (`core_lease` says why).
        """
        if is_own and len(cores) > 1:
            return cls(module.ThreadPool(threads - 1, cores[1:]), cores[:1], tuning)
        with staying_on(cores):
            return cls(module.ThreadPool(threads - 1), (), tuning)

    @property
    def has_pool(self) -> bool:
        """Whether works can be begun that go on while the caller does something else."""
        return self._pool is not None

    @property
    def helpers(self) -> int:
        """How many threads help the caller."""
        return 0 if self._pool is None else self._pool.helpers

    def staying(self) -> AbstractContextManager[None]:
        """Keep the caller on the core that is its own while the pool works with it."""
        return staying_on(self._cores)

    def begun(self, works: Sequence[TaskCoroutine[_Made]]) -> Callable[[], list[_Made]]:
        """Begin several works; the returned function waits for them, and returns what they made. Call it once.

        Without a pool the works run only then.
        """
        if self._pool is None:
            return lambda: [run_alone(work) for work in works]
        going = run_interleaved(self._pool, works)

        def ended() -> list[_Made]:
            with closing(going):
                return list(going)

        return ended

    def interleaved(self, works: Sequence[TaskCoroutine[_Made]]) -> Generator[_Made]:
        """Yield what several works make, in their order; with a pool they run side by side."""
        if self._pool is None:
            for work in works:
                yield run_alone(work)
            return
        with closing(run_interleaved(self._pool, works)) as going:
            for _ in works:
                with staying_on(self._cores):
                    made = next(going)
                yield made

    def in_order(self, pieces: Iterable[ChunkCoroutine[_Chunk]]) -> Generator[_Chunk]:
        """Yield the chunks of all pieces, piece after piece; with helpers several pieces run side by side."""
        if self._pool is None or not self._pool.helpers:
            for piece in pieces:
                yield from chunks_alone(piece)
            return
        most = self._pool.helpers + self._pieces_ahead
        with closing(run_in_order(self._pool, pieces, most, self._held_chunks, self.staying)) as chunks:
            yield from chunks

    def one_by_one(self, pieces: Iterable[ChunkCoroutine[_Chunk]]) -> Generator[_Chunk]:
        """Yield the chunks of all pieces, one piece at a time; the pool helps only where a step has several tasks.

        It is for small pieces, which cost less than waking a thread does.
        """
        for piece in pieces:
            yield from chunks_alone(piece, self._pool)

    def finish(self) -> None:
        """Wait until all tasks that were begun are done; their results can still be asked for."""
        if self._pool is not None:
            self._pool.finish()

    def settle(self) -> None:
        """Wait until all tasks that were begun are done, and drop their results."""
        if self._pool is not None:
            self._pool.settle()


def run_interleaved(pool: ThreadPool, works: Sequence[TaskCoroutine[_Made]]) -> Generator[_Made]:
    """Run several works side by side; the returned generator yields what each makes, in their order.

    When this returns, each work has taken its first step, and the pool does the tasks of these steps whether or not the
    generator is read. Closing the generator waits for the tasks that were begun.

    Parameters
    ----------
    pool : ThreadPool
    works : sequence of generators
        No two may change the same thing.
    """
    going = _going(pool, works)
    next(going)
    return cast("Generator[_Made]", going)


def _going(pool: ThreadPool, works: Sequence[TaskCoroutine[_Made]]) -> Generator[_Made | None]:
    """Yield None when all works have taken their first step, then what each makes."""
    made: dict[int, _Made] = {}
    waiting: deque[tuple[int, Sequence[Task[object]]]] = deque()
    tasks: Sequence[Task[object]] = ()

    def step(number: int, told: list[object] | None) -> None:
        try:
            tasks = next(works[number]) if told is None else works[number].send(told)
        except StopIteration as end:
            made[number] = end.value
        else:
            waiting.append((number, tasks))
            for task in tasks:
                pool.add(task)

    try:
        for number in range(len(works)):
            step(number, None)
        yield None
        for given in range(len(works)):
            while given not in made:
                number, tasks = waiting.popleft()
                step(number, [pool.wait(task) for task in tasks])
            yield made.pop(given)
    finally:  # give up only these tasks: those of another push may go on, since two may be read at a time
        for left in (tasks, *(left for _, left in waiting)):
            pool.give_up(left)


class _Piece(Generic[_Chunk]):
    """A piece that is being run: the tasks that it waits for, and chunks that the reader has not taken yet."""

    __slots__ = ("chunks", "held_chunks", "is_ended", "is_full", "steps", "tasks")

    def __init__(self, steps: ChunkCoroutine[_Chunk], held_chunks: int) -> None:
        self.held_chunks = held_chunks
        self.steps, self.tasks = steps, cast("list[Task[object]]", [])
        self.chunks: deque[_Chunk] = deque()
        self.is_ended = self.is_full = False

    def advance(self, pool: ThreadPool, told: list[Any] | None) -> bool:
        """Take steps until the pool has tasks of the piece (True), or it is full or has ended (False)."""
        while True:
            try:
                given = self.steps.send(told)
            except StopIteration:
                self.is_ended = True
                return False
            if isinstance(given, list):
                self.tasks = given
                for task in given:
                    pool.add(task)
                return True
            self.chunks.append(given)
            told = None
            if len(self.chunks) >= self.held_chunks:
                self.is_full = True
                return False


def run_in_order(
    pool: ThreadPool,
    pieces: Iterable[ChunkCoroutine[_Chunk]],
    most: int,
    held_chunks: int,
    staying: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator[_Chunk]:
    """Yield the chunks of all pieces, piece after piece.

    Parameters
    ----------
    pool : ThreadPool
    pieces : iterable of generators
        No two may change the same thing.
    most : int
        How many pieces are run at a time, at most.
    held_chunks : int
        How many chunks of each piece are held at most, besides the one that the reader has.
    staying : callable
        Returns a context in which the caller works beside the pool; it is left while the reader has a chunk.

    Yields
    ------
    The chunks. When the last was read, or the reader gives up, the pool works on no piece any more.
    """
    to_come = iter(pieces)
    begun: deque[_Piece[_Chunk]] = deque()
    waiting: deque[_Piece[_Chunk]] = deque()  # for tasks, in the order in which the pool begins them

    def advance(piece: _Piece[_Chunk], told: list[Any] | None) -> None:
        if piece.advance(pool, told):
            waiting.append(piece)

    def begin() -> None:
        steps = next(to_come, None)
        if steps is not None:
            begun.append(_Piece(steps, held_chunks))
            advance(begun[-1], None)

    def fetch() -> bool:
        """Work until the first piece has a chunk; return False when there is no piece any more."""
        while begun:
            first = begun[0]
            while not first.chunks and not first.is_ended:
                piece = waiting.popleft()
                advance(piece, [pool.wait(task) for task in piece.tasks])
            if first.chunks:
                return True
            begun.popleft()
            begin()
        return False

    try:
        with staying():
            for _ in range(most):
                begin()
            is_there = fetch()
        while is_there:
            first = begun[0]
            chunk = first.chunks.popleft()
            if first.is_full:  # gives the pool something to do while the reader looks at the chunk
                first.is_full = False
                with staying():
                    advance(first, None)
            yield chunk
            if not first.chunks:
                with staying():
                    is_there = fetch()
    finally:
        for piece in begun:
            pool.give_up(piece.tasks)
            piece.steps.close()
