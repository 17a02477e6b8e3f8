"""One thread at a time, whatever breaks off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from streamjoin_ds.engine.reference.arguments import refuse

__all__ = ["Gate"]

_Made = TypeVar("_Made")


class Gate:
    """Lets one thread at a time through.

    A lock that Python code takes and gives back can be left behind by an exception that comes from outside (Ctrl-C, a
    timeout, a cancelled task). Of the compiled one none can arrive between the lock and the work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is inside."""
        return self._inside is not None and self._inside == threading.get_ident()

    def through(self, work: Callable[..., _Made], *given: object) -> _Made:
        """What `work` gives, called while no other thread is inside.

        Parameters
        ----------
        work : callable
        given : arguments for it

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
