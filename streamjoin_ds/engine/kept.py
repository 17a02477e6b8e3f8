"""The windows of all streams between two pushes: the last push's tuples may still be on their way into them.

::

    push      sort ─ probe ─ results ─ insert ┄┄┄ ┐  Python: the caller's, the next push's
    crew                                 insert ──┴─► inserted         ends when the windows are asked for
    next push                                    sort ───────────► windows ─ probe ─ results ─ ...

Bucket grids change in place, runs are merged. Who asks for the windows waits until all has been taken in; until then a
crew is at it and the caller is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from streamjoin_ds.engine.bucket_window import BucketWindow
from streamjoin_ds.engine.window import Window
from streamjoin_ds.errors import StateCorruptError

if TYPE_CHECKING:
    from streamjoin_ds.engine.steps import Steps

__all__ = ["Kept"]


class Kept:
    """What is kept, a window a stream.

    Parameters
    ----------
    windows : sequence of Window
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows = list(windows)
        self._ending: Callable[[], list[Window]] | None = None
        # While the tuples of a push that is over are not all in, and while grids change: there is no way back.
        self._is_torn = False
        self._ends = Lock()

    @property
    def windows(self) -> list[Window]:
        """With all that was pushed."""
        if self._is_torn:
            self._end()
        return self._windows

    @property
    def taking(self) -> Sequence[Window]:
        """As they are: for those questions whose answers no tuple changes that is still to be taken in."""
        return self._windows

    def _end(self) -> None:
        with self._ends:  # another thread may ask too, for what is counted
            ending, self._ending = self._ending, None
            if ending is not None:
                self._windows = ending()
                self._is_torn = False

    def check_whole(self) -> None:
        """Raise StateCorruptError where a push broke off while its tuples were taken in."""
        if not self._is_torn:
            return
        with self._ends:
            is_broken = self._is_torn and self._ending is None
        if is_broken:
            msg = "a push broke off while its tuples were taken in, and some are in"
            raise StateCorruptError(
                msg, name="state", hint="restore what was saved before it, and push again from there"
            )

    def replace(self, windows: list[Window]) -> None:
        """Keep these from now on; what is still being taken in is of no interest."""
        self._windows, self._ending, self._is_torn = windows, None, False

    def merge(
        self,
        windows: Sequence[Window],
        begun: Callable[[Sequence[Steps[Window]]], Callable[[], list[Window]]],
        *,
        waits: bool,
    ) -> None:
        """Keep these when they are merged: a crew does it (`Joining.begun`), whom whoever asks for them waits for."""
        with self._ends:
            self._is_torn = not waits or any(isinstance(window, BucketWindow) for window in windows)
            ending = begun([window.merging_steps() for window in windows])
            if not waits:
                self._ending = ending
            else:
                self._windows = ending()
                self._is_torn = False
