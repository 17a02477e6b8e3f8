"""A batch of new tuples on its way through the windows of the other streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.storage.zone import Range, range_of, spanning

__all__ = ["ProbeBatch"]


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
