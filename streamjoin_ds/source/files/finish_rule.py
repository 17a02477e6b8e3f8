"""The rule by which a file is finished: so much time has passed since its last change."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FinishRule"]

_BY_MODIFICATION_NS = 10_000_000_000  # where files are read by modification, and nothing is said


class FinishRule:
    """Says whether a file may be taken as whole (ARCHITECTURE.md, "Folders").

    Parameters
    ----------
    said_us : int or None
        The `finished_after` of a stream or a table. Without one, files that are read by modification are finished after
        10 s; in a query that ends with the input that is there, at once. Others are finished at once: then only whether
        there is a later file decides.
    clock : callable
        Returns the time in nanoseconds since 1970.
    by_modification : bool
        Whether files are read by modification.
    """

    def __init__(self, said_us: int | None, clock: Callable[[], int], *, by_modification: bool = False) -> None:
        self._clock = clock
        self._said_ns = None if said_us is None else said_us * 1000
        self._usual_ns = _BY_MODIFICATION_NS if by_modification else 0
        self._frozen_ns: int | None = None

    def freeze(self) -> None:
        """Judge all files as of now from here on."""
        self._frozen_ns = self._clock()

    def is_finished(self, mtime_ns: int) -> bool:
        """Whether a file whose last change was at `mtime_ns` is finished."""
        if self._said_ns is None and self._frozen_ns is not None:
            return True
        after_ns = self._usual_ns if self._said_ns is None else self._said_ns
        return not after_ns or (self._clock() if self._frozen_ns is None else self._frozen_ns) - mtime_ns >= after_ns
