"""The choice between a grid and ranges: both kinds of layout with their costs, and the cheaper one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamjoin_ds.plan.cell_work import DEFAULT_WORK, CellWork
from streamjoin_ds.plan.key_sample import KeySample
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.plan.layout_choice import choose_layout, layout_cost
from streamjoin_ds.plan.load import Load
from streamjoin_ds.plan.range_choice import RangeChoice, choose_ranges
from streamjoin_ds.plan.range_layout import RangeLayout
from streamjoin_ds.plan.reach import Reach

__all__ = ["GridChoice", "KindChoice", "choose_kind", "grid_choice"]


@dataclass(frozen=True, slots=True)
class GridChoice:
    """The grid that suits the rates best, and its costs in the units of `RangeChoice`; they need no sample.

    Attributes
    ----------
    layout : Layout
    load : float
        The load of each cell. A grid deals tuples by their numbers, so all cells are alike, and chance fills none more.
    copies : float
        Rows shipped for each row read.
    """

    layout: Layout
    load: float
    copies: float


@dataclass(frozen=True, slots=True)
class KindChoice:
    """Both kinds of layout, and which of them is taken.

    Attributes
    ----------
    grid : GridChoice
    ranges : RangeChoice or None
        None where the join has no band attribute.
    """

    grid: GridChoice
    ranges: RangeChoice | None

    @property
    def is_of_ranges(self) -> bool:
        """Whether ranges are taken."""
        return isinstance(self.layout, RangeLayout)

    @property
    def layout(self) -> Layout | RangeLayout:
        """The layout with the smaller product of the fullest cell's likely load and the copies; the grid if equal."""
        ranges = self.ranges
        if ranges is not None and ranges.likely_load * ranges.copies < self.grid.load * self.grid.copies:
            return ranges.layout
        return self.grid.layout


def choose_kind(
    samples: Sequence[KeySample], reach: Reach | None, cells: int, work: CellWork = DEFAULT_WORK
) -> KindChoice:
    """Return the best grid and the best ranges with their costs.

    Parameters
    ----------
    samples : sequence of KeySample
        One for each stream. Where there is no band attribute, only their numbers of rows are used.
    reach : Reach or None
        The bands on the attribute (`band_attributes`); None: any other condition, which only a grid can do.
    cells : int
    work : CellWork

    Raises
    ------
    LayoutError
        The number of cells or of samples is wrong.
    """
    ranges = None if reach is None else choose_ranges(samples, reach, cells, work)
    load = Load.of_windows([sample.total for sample in samples])
    pairs = () if ranges is None else ranges.pairs
    return KindChoice(grid_choice(choose_layout(cells, load), samples, reach, pairs, work), ranges)


def grid_choice(
    grid: Layout, samples: Sequence[KeySample], reach: Reach | None, pairs: Sequence[float], work: CellWork
) -> GridChoice:
    """Return a grid with its costs; `pairs` says how many pairs of each of the bands there are (`RangeChoice`)."""
    load = Load.of_windows([sample.total for sample in samples])
    rows = sum(load.rates)
    held = sum(count / groups for count, groups in zip(load.rates, grid.counts, strict=True))
    found = 0.0
    if reach is not None:
        for band, of_band in zip(reach.bands, pairs, strict=bool(pairs)):
            found += of_band / (grid.counts[band.left] * grid.counts[band.right])
    copies = layout_cost(grid, load).shipped_rows_per_s / rows if rows else 1.0
    return GridChoice(grid, work.row * held + work.pair * found, copies)
