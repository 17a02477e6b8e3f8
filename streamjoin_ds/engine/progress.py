"""How far a push is, for those who read its results while it runs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """The share of a push that is done: of the pairs that new tuples could form with what they meet.

    Parameters
    ----------
    arrived : sequence of int
        New tuples, a number a stream, in the order in which they are pushed.
    kept : sequence of int
        Tuples that the streams' windows held before.

    Attributes
    ----------
    matches : int
        Results so far.

    Notes
    -----
    Exact where all pairs are tested (products, joins in which all match). Where an index leaves pairs out, `fraction`
    lags behind inside a run and catches up at its end. It never goes back, and is 1 when the push is finished.
    """

    __slots__ = ("_arrived", "_inside", "_kept", "_scale", "_stream", "matches")

    def __init__(self, arrived: Sequence[int] = (), kept: Sequence[int] = ()) -> None:
        self.matches = 0
        self._arrived, self._kept = arrived, kept
        self._stream = 0
        self._scale = 0.0  # of the present stream's share, what one pair is
        self._inside = 0  # pairs of the present stream that are done with

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        if self._stream >= len(self._arrived):
            return 1.0
        shares = self._shares()
        reached = min(self._inside * self._scale, 1.0) * shares[self._stream]
        return (sum(shares[: self._stream]) + reached) / max(sum(shares), 1)

    def _shares(self) -> list[int]:
        """Of each stream, how many pairs its new tuples could form with what is in the windows at their turn."""
        arrived, kept = self._arrived, self._kept
        others = [sum(kept) - kept[n] + sum(arrived[:n]) for n in range(len(kept))]
        return [new * other for new, other in zip(arrived, others, strict=True)]

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
        self._stream = len(self._arrived)
