"""Pieces of a kernel's work, to be done by several threads at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from streamjoin_ds.engine.reference import kernel_objects as objects
from streamjoin_ds.engine.reference.arguments import index, own, refuse
from streamjoin_ds.errors import KernelError

__all__ = ["Crew", "Task"]

_MOST = 1024

_Made = TypeVar("_Made")
_MadeCo = TypeVar("_MadeCo", covariant=True)


class Task(Generic[_MadeCo]):
    """A piece of work, to be done once; kernels give such in place of doing it (`RunsProbe.filling`, ...)."""

    def __init__(self, work: Callable[[], _MadeCo]) -> None:
        self._work, self._is_taken = work, False
        self._came: tuple[_MadeCo] | KernelError | MemoryError | None = None

    def take(self) -> None:
        """Claim it."""
        if self._is_taken:
            refuse("a task is done once", "task")
        self._is_taken = True

    def do(self) -> _MadeCo:
        """Do it here and now; what the kernel returns."""
        self.take()
        return self._work()

    def done(self) -> _MadeCo:
        """Do one that was claimed, unless that is done; what the kernel returns."""
        self.finish()
        assert self._came is not None
        if not isinstance(self._came, tuple):
            raise self._came
        return self._came[0]

    def finish(self) -> None:
        """Do one that was claimed, once."""
        if self._came is None:
            try:
                self._came = (self._work(),)
            except (KernelError, MemoryError) as error:
                self._came = error


class Crew:
    """Threads that do tasks: the caller, and those who help.

    Parameters
    ----------
    helpers : int
        Besides the caller, 0 to 1024. The twin has none; the compiled kernels' live as long as the crew does, in the
        process that made it.
    cores : sequence of int
        Each helper is pinned to one of these, in turn; none: they run wherever the system puts them.
    """

    def __init__(self, helpers: int, cores: Sequence[int] = ()) -> None:
        told = [index(core, "cores") for core in cores]
        if not 0 <= index(helpers, "helpers") <= _MOST or len(told) > _MOST or not all(0 <= n < 2**31 for n in told):
            refuse("helpers or cores are out of range", "helpers", hint=f"0 to {_MOST} of each")
        self.helpers = 0
        self._added: list[Task[object]] = []

    def add(self, task: objects.Task[object]) -> None:
        """Have a task done by whoever is free; it is begun after those that were added before.

        No two that may be at work at a time may write to the same place, or one read what another writes.
        """
        mine = own(task, Task, "task")
        mine.take()
        self._added.append(mine)

    def wait(self, task: objects.Task[_Made]) -> _Made:
        """What came of a task that was added, or its error; until it is done the caller does tasks too."""
        mine: Task[_Made] = own(task, Task, "task")
        if mine not in self._added:
            refuse("this task was not added, or waited for already", "task")
        self._added.remove(mine)
        return mine.done()

    def give_up(self, tasks: Iterable[objects.Task[object]]) -> None:
        """Wait for those of these tasks that were not waited for yet; what came of them is of no interest."""
        for task in tasks:
            if task in self._added:
                with contextlib.suppress(KernelError, MemoryError):
                    self.wait(task)

    def finish(self) -> None:
        """Wait until all that was added is done; who added it may still ask what came of it."""
        for task in self._added:
            task.finish()

    def settle(self) -> None:
        """Wait for all that was added and not waited for; what came of it is of no interest."""
        self.give_up(list(self._added))
