"""How far a push is, for those who read its results while it runs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["PieceProgress", "Progress"]


class PieceProgress:
    """How far one piece of a push is.

    Parameters
    ----------
    pairs : int
        That its new tuples could form with what they meet.
    """

    __slots__ = ("_tested", "pairs")

    def __init__(self, pairs: int) -> None:
        self.pairs = pairs
        self._tested = 0

    @property
    def done_pairs(self) -> int:
        """How many of its pairs are done with."""
        return min(self._tested, self.pairs)

    def tested(self, pairs: int) -> None:
        """So many pairs are done with; it never goes back."""
        self._tested = pairs

    def finish(self) -> None:
        """All of them are."""
        self._tested = self.pairs


class Progress:
    """The share of a push that is done: of the pairs that new tuples could form with what they meet.

    Parameters
    ----------
    pieces : sequence of PieceProgress
        Of the push; some may be in work side by side.

    Attributes
    ----------
    matches : int
        Results so far.

    Notes
    -----
    Exact where all pairs are tested (products, joins in which all match). Where an index leaves pairs out, `fraction`
    lags behind inside a piece and catches up at its end. It never goes back, and is 1 when the push is finished.
    """

    __slots__ = ("_is_finished", "_pieces", "matches")

    def __init__(self, pieces: Sequence[PieceProgress] = ()) -> None:
        self.matches = 0
        self._pieces = pieces
        self._is_finished = not pieces

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        if self._is_finished:
            return 1.0
        return sum([piece.done_pairs for piece in self._pieces]) / max(sum([piece.pairs for piece in self._pieces]), 1)

    def finish(self) -> None:
        """All new tuples have met what they meet."""
        self._is_finished = True
