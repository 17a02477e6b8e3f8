"""A batch of new tuples on its way through the windows of the other streams, and how much of that is done.

Progress is counted in pairs that the new tuples could form with the tuples they meet. It is for those who read the
results of a push while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamjoin_ds.engine.storage.run_form import Range, range_of, spanning
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window

__all__ = ["PieceProgress", "ProbeBatch", "Progress"]


@dataclass(slots=True, eq=False)
class ProbeBatch:
    """New tuples of one stream, and the windows they are to meet; never changed (see `Selection`).

    Attributes
    ----------
    stream : int
    selection : Selection
    order : sequence of int
        The order in which the other streams join these tuples.
    windows : sequence of Window
        The windows of all streams, as these tuples find them.
    """

    stream: int
    selection: Selection
    order: Sequence[int]
    windows: Sequence[Window]
    _ranges: dict[tuple[int, int], Range] = field(default_factory=dict, repr=False)

    def part(self, begin: int, end: int) -> ProbeBatch:
        """Return the batch of the tuples ``begin:end``."""
        if begin == 0 and end == len(self.selection):
            return self
        return ProbeBatch(self.stream, self.selection.part(begin, end), self.order, self.windows)

    def count_pairs(self) -> int:
        """Return how many pairs the tuples could form with those of the window that they meet first."""
        return len(self.selection) * self.windows[self.order[0]].rows

    def range_of(self, stream: int, key: int) -> Range:
        """Return a range that holds a key's values: of the new tuples, or of all that is in another stream's window."""
        place = (stream, key)
        if place not in self._ranges:
            if stream == self.stream:
                self._ranges[place] = range_of(self.selection.key(key))
            else:
                zones = [(run.zone[key],) for run in self.windows[stream].runs if run.rows]
                self._ranges[place] = spanning(zones)[0] if zones else (0, 0)
        return self._ranges[place]


class PieceProgress:
    """How much of one piece of a push is done.

    Parameters
    ----------
    count_pairs : callable
        Returns how many pairs the piece's new tuples could form with the tuples they meet. It is called only when
        somebody asks for the progress.
    """

    __slots__ = ("_count_pairs", "_is_finished", "_tested")

    def __init__(self, count_pairs: Callable[[], int]) -> None:
        self._count_pairs = count_pairs
        self._tested = 0
        self._is_finished = False

    def pairs(self) -> tuple[int, int]:
        """Return how many pairs are done, and how many there are."""
        pairs = self._count_pairs()
        return (pairs if self._is_finished else min(self._tested, pairs)), pairs

    def tested(self, pairs: int) -> None:
        """Set how many pairs have been tested. The number never falls."""
        self._tested = pairs

    def finish(self) -> None:
        """Mark all pairs of the piece as tested."""
        self._is_finished = True


class Progress:
    """The share of a push that is done, in pairs that its new tuples could form with the tuples they meet.

    Parameters
    ----------
    pieces : sequence of PieceProgress
        The pieces of the push; several may be in work side by side.

    Attributes
    ----------
    matches : int
        Results so far.

    Notes
    -----
    `fraction` is exact where all pairs are tested (products, joins in which all match). Where an index leaves pairs
    out, it lags behind inside a piece and catches up at the piece's end. It never goes back, and is 1 when the push is
    finished.
    """

    __slots__ = ("_is_finished", "_pieces", "matches")

    def __init__(self, pieces: Sequence[PieceProgress] = ()) -> None:
        self.matches = 0
        self._pieces = pieces
        self._is_finished = not pieces

    @property
    def fraction(self) -> float:
        """The share of the push that is done, from 0 to 1."""
        if self._is_finished:
            return 1.0
        pieces = [piece.pairs() for piece in self._pieces]
        return sum([done for done, _ in pieces]) / max(sum([pairs for _, pairs in pieces]), 1)

    def finish(self) -> None:
        """Mark the push as finished."""
        self._is_finished = True
