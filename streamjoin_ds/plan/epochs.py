"""Epochs: the layouts that a running join has had one after the other, each for a stretch of every stream.

::

    records of r   0 ───────────────► 5 000 ───────────────────►
    records of s   0 ───────────────► 1 200 ───────────────────►
                   epoch 0, 4x4       epoch 1, 16x1

A layout is a grid or ranges of a band attribute; epochs of both kinds follow each other.

A tuple is stored by the layout of its own epoch. A combination is found in the epoch of its oldest tuple: newer ones
come there as guests, by that epoch's layout. So no row moves, and each combination meets in exactly one cell. An epoch
is over when the last of its own tuples has left the windows. (DAB Join, section 5, moves windows; here nothing moves.)

Layouts may differ in their number of cells. A cell that the newest layout does not have still hears of
each batch while it keeps tuples of an older epoch: it takes guests, and its clocks go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streamjoin_ds.errors import malformed_offset
from streamjoin_ds.plan.layout import CellLayout
from streamjoin_ds.plan.range_layout import is_of_ranges, layout_from_facts

__all__ = ["Epoch", "Epochs", "EpochsOver"]


class Epoch(Struct, frozen=True):
    """One layout, and the first records that it holds for.

    Attributes
    ----------
    number : int
        0 for the checkpoint's first epoch, and one more for each later one.
    layout : CellLayout
        A grid, or ranges of a band attribute.
    first_seqs : tuple of int
        For each stream the number of the epoch's first record.
    since_us : int or None
        The largest event time before the epoch, from which its age is measured; None: there was none.
    """

    number: int
    layout: CellLayout
    first_seqs: tuple[int, ...]
    since_us: int | None = None

    @classmethod
    def from_facts(cls, facts: object, streams: int) -> Epoch:
        """Return the epoch that `to_facts` wrote; raise OffsetError for anything else."""
        if not isinstance(facts, Mapping) or set(facts) - {"since_us"} != {"first", "layout", "number"}:
            raise malformed_offset(name="epochs")
        number, first, since_us = facts["number"], facts["first"], facts.get("since_us")
        numbers = [number, *first] if isinstance(first, list) and len(first) == streams else [None]
        if type(since_us) not in (int, type(None)) or any(type(one) is not int or one < 0 for one in numbers):
            raise malformed_offset(name="epochs")
        try:
            layout = layout_from_facts(facts["layout"], streams)
        except ValueError as error:
            raise malformed_offset(name="epochs") from error
        return cls(number, layout, tuple(first), since_us)

    def to_facts(self) -> dict[str, Any]:
        """Return the epoch as plain JSON values."""
        facts = {"first": list(self.first_seqs), "layout": self.layout.to_facts(), "number": self.number}
        return facts if self.since_us is None else {**facts, "since_us": self.since_us}


class Epochs(Struct, frozen=True):
    """The epochs that still have tuples in the windows, oldest first; the last one takes the new tuples.

    Attributes
    ----------
    live : tuple of Epoch
        Their numbers ascend. The numbers of each stream's first records never descend.
    cells : int
        How many cells hear of the batch: those of all layouts, and those that still have something to remove.
    """

    live: tuple[Epoch, ...]
    cells: int

    @classmethod
    def first(cls, layout: CellLayout) -> Epochs:
        """Return the one epoch that a checkpoint begins with."""
        return cls((Epoch(0, layout, (0,) * layout.streams),), layout.cells)

    @classmethod
    def from_facts(cls, facts: object, streams: int) -> Epochs:
        """Return the epochs that `to_facts` wrote.

        Raises
        ------
        OffsetError
            The facts do not have the form that `to_facts` writes.
        """
        live, cells = facts, 0
        if isinstance(facts, Mapping) and set(facts) == {"cells", "live"}:
            live, cells = facts["live"], facts["cells"]
        if not isinstance(live, list) or not live or type(cells) is not int:
            raise malformed_offset(name="epochs")
        epochs = tuple(Epoch.from_facts(one, streams) for one in live)
        return cls(epochs, max(cells, _most_cells(epochs)))

    @property
    def current(self) -> Epoch:
        """The epoch of new tuples."""
        return self.live[-1]

    @property
    def has_ranges(self) -> bool:
        """Whether one of the layouts is of ranges."""
        return any(is_of_ranges(epoch.layout) for epoch in self.live)

    @property
    def older(self) -> tuple[Epoch, ...]:
        """The epochs to which new tuples come as guests."""
        return self.live[:-1]

    def entered(self, layout: CellLayout, first_seqs: Sequence[int], since_us: int | None = None) -> Epochs:
        """Return these epochs and a new one, which begins with the records of these numbers."""
        live = (*self.live, Epoch(self.current.number + 1, layout, tuple(first_seqs), since_us))
        return Epochs(live, max(self.cells, layout.cells))

    def without(self, over: Sequence[int]) -> Epochs:
        """Return these epochs without the older ones that are over: those whose numbers are in `over`."""
        live = tuple(epoch for epoch in self.live if epoch is self.current or epoch.number not in over)
        return replace(self, live=live)

    def heard_by(self, cells: int) -> Epochs:
        """Return these epochs, heard by `cells` cells, but by no fewer than their layouts have."""
        return replace(self, cells=max(cells, _most_cells(self.live)))

    def to_facts(self) -> Any:
        """Return the epochs as plain JSON values: a list, or a mapping where `cells` exceeds the layouts' cells."""
        live = [epoch.to_facts() for epoch in self.live]
        return live if self.cells == _most_cells(self.live) else {"cells": self.cells, "live": live}


class EpochsOver(Struct, frozen=True):
    """What the next batch no longer needs: epochs that are over, and cells that are empty.

    Attributes
    ----------
    numbers : tuple of int
        Epochs that have nothing in the windows of any cell.
    epoch : int
        The number of the epoch that takes new tuples.
    cells : int or None
        How many cells, counted from the first, still hold tuples or get tuples in this epoch; None: not known.
    """

    numbers: tuple[int, ...] = ()
    epoch: int = 0
    cells: int | None = None


def _most_cells(live: Sequence[Epoch]) -> int:
    return max(epoch.layout.cells for epoch in live)
