"""The bounds that no layout can beat: the mean load, and the copies that frequent keys make unavoidable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamjoin_ds.plan import CellWork, Difference

__all__ = ["LowerBound", "Tiles", "tiles_of"]

_STEPS = 60  # steps of a bisection: then its ends differ by no more than a float's precision


@dataclass(frozen=True, eq=False, slots=True)
class Tiles:
    """Blocks of one band's rows in which every pair matches; each row is in one block. Counts of rows by block."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]


def tiles_of(band: Difference, left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> Tiles:
    """Return the tiles of a band over ascending keys.

    Keys are cut every half of the band's width, or at each value of an equality. Two keys of one block differ by less
    than that half from the band's middle.
    """
    width = (band.hi - band.lo) / 2
    middle = (band.lo + band.hi) / 2
    blocks = [left, right + middle] if not width else [np.floor(left / width), np.floor((right + middle) / width)]
    (own, own_rows), (other, other_rows) = (np.unique(block, return_counts=True) for block in blocks)
    _, places, other_places = np.intersect1d(own, other, assume_unique=True, return_indices=True)
    return Tiles(own_rows[places], other_rows[other_places])


@dataclass(frozen=True, eq=False, slots=True)
class LowerBound:
    """The bounds of one input.

    Attributes
    ----------
    rows : float
        Number of rows of all streams.
    pairs : float
        Number of pairs that the bands find, each counted once.
    tiles : sequence of Tiles
        The tiles of each band.
    cells : int
        Number of cells.
    work : CellWork

    Notes
    -----
    `mean_load` and one copy of each row are RecPart's bounds (Li, Gatterbauer and Riedewald, 2020). A frequent
    key puts both out of reach: a cell that is given *r* and *s* rows of a tile finds at most ``r * s`` of its pairs, so
    for *p* pairs it needs ``2 * sqrt(p)`` rows. Under a bound on the load that limits *p*, the rows of the tile are at
    least ``2 * pairs / most rows of a side``. `copies_at` is that, summed over the tiles; `least_load` is the smallest
    load at which all cells have room for it.
    """

    rows: float
    pairs: float
    tiles: Sequence[Tiles]
    cells: int
    work: CellWork

    @property
    def mean_load(self) -> float:
        """The load of every cell if nothing were copied."""
        return (self.work.row * self.rows + self.work.pair * self.pairs) / self.cells

    def copies_at(self, load: float) -> float:
        """Return how often a row is shipped at least, on average, where no cell has more than this load."""
        row, pair = self.work.row, self.work.pair
        # From pair * side^2 + 2 * row * side = load.
        side = (math.sqrt(row * row + pair * load) - row) / pair if pair else load / (2 * row)
        more = [
            float(np.maximum(2 * tile.left * (tile.right / side) - tile.left - tile.right, 0).sum())
            for tile in self.tiles
        ]
        # Rows that one band copies may serve another one too.
        return 1 + max(more, default=0.0) / self.rows

    def least_load(self) -> float:
        """Return the smallest load of the fullest cell that any layout can have."""
        low, high = self.mean_load, self.mean_load * 2
        while not self._has_room(high):
            low, high = high, high * 2
        if self._has_room(low):
            return low
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._has_room(middle) else (middle, high)
        return high

    def _has_room(self, load: float) -> bool:
        needed = self.work.row * self.rows * self.copies_at(load) + self.work.pair * self.pairs
        return needed <= self.cells * load * (1 + 1e-12)
