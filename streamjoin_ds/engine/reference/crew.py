"""Pieces of a kernel's work, to be done by several threads at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamjoin_ds.engine.reference.arguments import index, refuse
from streamjoin_ds.errors import KernelError

__all__ = ["Crew", "Task"]

_MOST = 1024


class Task:
    """A piece of work, to be done once; kernels give such in place of doing it (`RunsProbe.filling`, ...)."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._is_taken = work, False
        self._came: tuple[Any, Exception | None] | None = None

    def take(self) -> None:
        """Claim it."""
        if self._is_taken:
            refuse("a task is done once", "task")
        self._is_taken = True

    def do(self) -> Any:
        """Do it here and now; what the kernel returns."""
        self.take()
        return self._work()

    def done(self) -> Any:
        """Do one that was claimed, unless that is done; what the kernel returns."""
        self.finish()
        assert self._came is not None
        made, error = self._came
        if error is not None:
            raise error
        return made

    def finish(self) -> None:
        """Do one that was claimed, once."""
        if self._came is None:
            try:
                self._came = self._work(), None
            except (KernelError, MemoryError) as error:
                self._came = None, error


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
        self._added: list[Task] = []

    def add(self, task: Task) -> None:
        """Have a task done by whoever is free; it is begun after those that were added before.

        No two that may be at work at a time may write to the same place, or one read what another writes.
        """
        task.take()
        self._added.append(task)

    def wait(self, task: Task) -> Any:
        """What came of a task that was added, or its error; until it is done the caller does tasks too."""
        if task not in self._added:
            refuse("this task was not added, or waited for already", "task")
        self._added.remove(task)
        return task.done()

    def give_up(self, tasks: Iterable[Task]) -> None:
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
