"""A condition that is logged once it has lasted, and again once it has been over for as long."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TOLD_BATCHES", "Lasting"]

# So many batches in a row must say otherwise before that is logged: one slow batch does not count.
TOLD_BATCHES = 20


@dataclass(slots=True)
class Lasting:
    """Whether a condition was logged.

    Attributes
    ----------
    is_told : bool
        Whether the log says that it holds.
    """

    is_told: bool = False
    _batches: int = 0  # batches in a row that contradict what was logged last

    def turns(self, contradicts: bool) -> bool:
        """Take whether a batch contradicts what was logged last; return whether `is_told` has changed with it."""
        self._batches = self._batches + 1 if contradicts else 0
        if self._batches < TOLD_BATCHES:
            return False
        self.is_told, self._batches = not self.is_told, 0
        return True
