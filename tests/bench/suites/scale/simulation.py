"""Deals the rows of a window to cells by a layout, and counts what each cell receives and finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.plan import CellWork, Difference, Layout, RangeLayout, Reach

__all__ = ["CellCounts", "as_ranges", "pairs_within", "simulated"]

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class CellCounts:
    """What the cells have of one window.

    Attributes
    ----------
    rows : ndarray of float64, shape (cells,)
        Rows that each cell receives, and holds while they are in the window.
    pairs : ndarray of float64, shape (cells,)
        Pairs of the bands that each cell finds. The pairs of a range are shared out over the cells of its grid by the
        rows of their groups: a grid deals rows by their number, which has nothing to do with the keys.
    scanned : ndarray of float64, shape (cells,)
        Pairs that a nested loop would test.
    read : int
        Rows of all streams.
    """

    rows: _Floats
    pairs: _Floats
    scanned: _Floats
    read: int

    @property
    def copies(self) -> float:
        """Rows shipped for each row read."""
        return float(self.rows.sum()) / self.read

    def loads(self, work: CellWork) -> _Floats:
        """Return each cell's load."""
        return work.row * self.rows + work.pair * self.pairs


def as_ranges(layout: Layout | RangeLayout, reach: Reach) -> RangeLayout:
    """Return a grid as a layout of one range, and ranges as they are."""
    return layout if isinstance(layout, RangeLayout) else RangeLayout(layout.cells, reach, 0, (), (layout,))


def pairs_within(band: Difference, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> int:
    """Return how many pairs of two ascending lists of keys the band accepts."""
    upto = np.searchsorted(right, left - band.lo, side="right")
    below = np.searchsorted(right, left - band.hi, side="left")
    return int(upto.sum()) - int(below.sum())


def simulated(
    layout: RangeLayout, window: Sequence[npt.NDArray[Any]], ordered: Sequence[npt.NDArray[Any]]
) -> CellCounts:
    """Return what the cells have of a window.

    Parameters
    ----------
    layout : RangeLayout
    window : sequence of ndarray
        The keys of each stream, in the order of their numbers.
    ordered : sequence of ndarray
        The same, ascending.
    """
    shares = [_group_rows(layout, stream, keys) for stream, keys in enumerate(window)]
    slices = [_slices(layout, stream, keys) for stream, keys in enumerate(ordered)]
    rows, pairs, scanned = (np.zeros(layout.cells) for _ in range(3))
    cell = 0
    for place, grid in enumerate(layout.grids):
        within = slice(cell, cell + grid.cells)
        groups = [stream_shares[place] for stream_shares in shares]
        rows[within] = reduce(np.add.outer, groups).ravel()
        for band in layout.reach.bands:
            present = [ordered[n][slice(*slices[n][place])] for n in (band.left, band.right)]
            found = pairs_within(band, *present)
            both = np.ones(grid.counts)
            for stream in (band.left, band.right):
                shape = [1] * len(groups)
                shape[stream] = -1
                both = both * groups[stream].reshape(shape)
            scanned[within] += both.ravel()
            pairs[within] += both.ravel() * (found / max(len(present[0]) * len(present[1]), 1))
        cell += grid.cells
    return CellCounts(rows, pairs, scanned, sum(map(len, window)))


def _group_rows(layout: RangeLayout, stream: int, keys: npt.NDArray[Any]) -> list[_Floats]:
    """Return for each range the number of rows of each of its groups."""
    dealt = layout.deal(stream, keys, np.arange(len(keys)))
    rows = np.bincount(dealt.groups, minlength=layout.groups(stream)).astype(np.float64)
    ends = np.cumsum([grid.counts[stream] for grid in layout.grids])
    return np.split(rows[: ends[-1]], ends[:-1])


def _slices(layout: RangeLayout, stream: int, ordered: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return for each range the begin and end of the ascending keys that go to it."""
    first, last = layout.ranges_of(stream, ordered)
    places = np.arange(len(layout.grids))
    begins, ends = np.searchsorted(last, places, side="left"), np.searchsorted(first, places, side="right")
    return [(int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)]
