"""A gate that lets one thread through at a time, and opens again whatever ends the work inside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from streamjoin_ds.engine.kernels.twins.arguments import refuse

__all__ = ["Gate"]

_Made = TypeVar("_Made")


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
