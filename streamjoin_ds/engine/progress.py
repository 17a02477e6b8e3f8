"""How far a push is, for those who read its results while it runs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """The share of a push that is done: of the pairs that new tuples could form with what they meet.

    Parameters
    ----------
    shares : sequence of int
        One a stream, in the order in which they are pushed: how many pairs its new tuples could form.

    Attributes
    ----------
    matches : int
        Results so far.

    Notes
    -----
    Exact where all pairs are tested (products, joins in which all match). Where an index leaves pairs out, `fraction`
    lags behind inside a run and catches up at its end. It never goes back, and is 1 when the push is finished.
    """

    __slots__ = ("_inside", "_scale", "_shares", "_stream", "matches")

    def __init__(self, shares: Sequence[int] = ()) -> None:
        self.matches = 0
        self._shares = [*shares]
        self._stream = 0
        self._scale = 0.0  # of the present stream's share, what one pair is
        self._inside = 0  # pairs of the present stream that are done with

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        if self._stream >= len(self._shares):
            return 1.0
        reached = min(self._inside * self._scale, 1.0) * self._shares[self._stream]
        return (sum(self._shares[: self._stream]) + reached) / max(sum(self._shares), 1)

    def reached(self, stream: int) -> None:
        """The new tuples of the streams before this one have met what they meet."""
        self._stream, self._scale, self._inside = stream, 0.0, 0

    def begin(self, pairs: int) -> None:
        """The present stream's new tuples are about to meet tuples with which they form so many pairs."""
        self._scale, self._inside = 1 / max(pairs, 1), 0

    def tested(self, pairs: int) -> None:
        """So many of those pairs are done with."""
        self._inside = pairs

    def finish(self) -> None:
        """All new tuples have met what they meet."""
        self._stream = len(self._shares)
