"""Processes that can die or stop between any two steps; at most one runs at a time, so its seed determines a run.

A process that was killed does nothing more, not even what its code does on the way out: each step that it still tries
raises `Killed`. A process that stops (SIGSTOP) waits in a thread of its own until its time comes, and then goes on in
the middle of what another one is doing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.blocks import Cache

__all__ = ["CACHE_BYTES", "CacheOfCurrent", "Fiber", "Killed", "Process"]

CACHE_BYTES = 1 << 26


class Killed(BaseException):
    """The process is dead.

    It is not an `Exception`, so that no handler can take it for an error of its own.
    """


@dataclass(eq=False)
class Process:
    """A driver, or one attempt of a task in a Python worker.

    Attributes
    ----------
    actor : {"driver", "read", "cell"}
    batch : int
        The batch it works for now.
    cache : Cache
        The cache of its Python worker.
    driver : Process or None
        The driver of a task.
    fiber : Fiber or None
        The thread in which it can stop; a task without one stops with its driver.
    """

    name: str
    actor: str
    batch: int
    cache: Cache[Any]
    driver: Process | None = None
    fiber: Fiber | None = None
    dead: bool = False
    doing: str = ""  # what else than its actor's work it does now: a driver without Spark does that of tasks
    frozen: int = 0  # steps for which its driver is to stop
    stopped: bool = False  # it has stopped once, so it may be late with all that it does

    @property
    def root(self) -> Process:
        """Return the driver of a task, or the driver itself."""
        return self if self.driver is None else self.driver

    @property
    def gone(self) -> bool:
        """Whether it is dead, by itself or with its driver."""
        return self.dead or (self.fiber is None and self.driver is not None and self.driver.dead)


class Fiber:
    """A body in a thread of its own, which runs only while someone waits in `resume` for it to stop or end."""

    def __init__(self, body: Callable[[], Any]) -> None:
        self._body = body
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = self._started = False

    def resume(self) -> None:
        """Run the body on; return when it has stopped or ended."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._go.release()
        self._back.acquire()

    def stop(self) -> None:
        """Stop here until resumed; the body calls this."""
        self._back.release()
        self._go.acquire()

    def result(self) -> Any:
        """Return what the body returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.value

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.value = self._body()
        except BaseException as error:  # handed to whoever asks for the result
            self.error = error
        finally:
            self.done = True
            self._back.release()


class CacheOfCurrent:
    """`run_store.worker_cache` of the Python worker that runs now.

    Parameters
    ----------
    world : object
        Its attribute `current` is the process at work, or None.
    """

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        current = self._world.current
        return getattr(Cache(CACHE_BYTES) if current is None else current.cache, name)
