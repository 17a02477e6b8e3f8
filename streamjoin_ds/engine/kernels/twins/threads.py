"""Kernels' tasks, the pool of threads that does them, and the gate that lets one thread through at a time.

A kernel returns a task instead of doing its work. The gate opens again whatever ends the work inside.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.twins.arguments import index, own, refuse
from streamjoin_ds.errors import KernelError

__all__ = ["Gate", "Task", "ThreadPool"]

_MOST = 1024  # helpers of a pool, and cores it is given

_Made = TypeVar("_Made")
_MadeCo = TypeVar("_MadeCo", covariant=True)


class Task(Generic[_MadeCo]):
    """A piece of work that is done once; a kernel returns it instead of doing the work (`RunsProbe.filling`, ...)."""

    def __init__(self, work: Callable[[], _MadeCo]) -> None:
        self._work, self._is_taken = work, False
        self._came: tuple[_MadeCo] | KernelError | MemoryError | None = None

    def take(self) -> None:
        """Claim the task; refuse one that was claimed before."""
        if self._is_taken:
            refuse("a task is done once", "task")
        self._is_taken = True

    def do(self) -> _MadeCo:
        """Do the task at once, in this thread; return what the kernel returns."""
        self.take()
        return self._work()

    def done(self) -> _MadeCo:
        """Do a claimed task, unless it is done; return what the kernel returned, or raise its error."""
        self.finish()
        assert self._came is not None
        if not isinstance(self._came, tuple):
            raise self._came
        return self._came[0]

    def finish(self) -> None:
        """Do a claimed task, unless it is done, and keep its result or error."""
        if self._came is None:
            try:
                self._came = (self._work(),)
            except (KernelError, MemoryError) as error:
                self._came = error


class ThreadPool:
    """Threads that do tasks: the caller and its helpers.

    Parameters
    ----------
    helpers : int
        How many threads help the caller, 0 to 1024. The twin has none. Those of the compiled kernels live as long as
        the pool, in the process that made it.
    cores : sequence of int
        Each helper is pinned to one of these cores, in turn. Empty: the helpers run wherever the system puts them.
    """

    def __init__(self, helpers: int, cores: Sequence[int] = ()) -> None:
        told = [index(core, "cores") for core in cores]
        if not 0 <= index(helpers, "helpers") <= _MOST or len(told) > _MOST or not all(0 <= n < 2**31 for n in told):
            refuse("helpers or cores are out of range", "helpers", hint=f"0 to {_MOST} of each")
        self.helpers = 0
        self._added: list[Task[object]] = []

    def add(self, task: objects.Task[object]) -> None:
        """Have a task done by the next free thread; tasks are begun in the order in which they were added.

        Tasks that may be at work at the same time must not write to the same place, and none may read what another
        writes.
        """
        mine = own(task, Task, "task")
        mine.take()
        self._added.append(mine)

    def wait(self, task: objects.Task[_Made]) -> _Made:
        """Return the result of an added task, or raise its error; until the task is done, the caller does tasks too."""
        mine: Task[_Made] = own(task, Task, "task")
        if mine not in self._added:
            refuse("this task was not added, or waited for already", "task")
        self._added.remove(mine)
        return mine.done()

    def give_up(self, tasks: Iterable[objects.Task[object]]) -> None:
        """Wait for the tasks among these that were not waited for yet, and drop their results and errors."""
        for task in tasks:
            if task in self._added:
                with contextlib.suppress(KernelError, MemoryError):
                    self.wait(task)

    def finish(self) -> None:
        """Wait until all added tasks are done; their results can still be asked for with `wait`."""
        for task in self._added:
            task.finish()

    def settle(self) -> None:
        """Wait for all added tasks that were not waited for yet, and drop their results and errors."""
        self.give_up(list(self._added))


class Gate:
    """A gate that lets one thread through at a time.

    An exception from outside (Ctrl-C, a timeout, a cancelled task) may arrive after Python code has taken a lock and
    before it can give it back; the lock then stays taken. In the compiled gate no exception can arrive between the lock
    and the work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is inside."""
        return self._inside is not None and self._inside == threading.get_ident()

    def through(self, work: Callable[..., _Made], *given: object) -> _Made:
        """Return what `work` returns, called while no other thread is inside.

        Parameters
        ----------
        work : callable
        given : its arguments

        Raises
        ------
        KernelError
            The calling thread is inside already: it would wait for itself.
        """
        if self.is_mine:
            refuse("this thread is inside already", "gate")
        with self._lock:
            self._inside = threading.get_ident()
            try:
                return work(*given)
            finally:
                self._inside = None
