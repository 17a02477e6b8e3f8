"""The choice between a grid and ranges: both kinds of layout with their costs, and whether a change is worth it.

A layout is judged by the load of its fullest cell times its copies (`choose_kind`). What is chosen from a sample fits
that sample better than others. So the older half of a sample chooses, and the newer half judges (`layout_by_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from streamjoin_ds.plan.key_samples import KeyHint, KeySample
from streamjoin_ds.plan.layout import CellLayout, Layout
from streamjoin_ds.plan.layout_choice import Load, choose_layout, layout_cost
from streamjoin_ds.plan.range_choice import DEFAULT_WORK, CellWork, RangeChoice, choose_ranges, pair_counts, range_cost
from streamjoin_ds.plan.range_layout import RangeLayout, Reach

__all__ = ["GridChoice", "KindChoice", "best_ranges", "choose_kind", "grid_choice", "layout_by_keys", "layout_load"]

# Least sampled tuples of each stream, in each half of a sample where halves are compared; fewer tell nothing.
LEAST_KEYS = 100


class GridChoice(Struct, frozen=True):
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


class KindChoice(Struct, frozen=True):
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


def best_ranges(keys: KeyHint, attributes: Sequence[Reach], cells: int) -> RangeChoice | None:
    """Return the ranges of that attribute by which the load times the copies is least; of equal ones the first.

    Parameters
    ----------
    keys : KeyHint
        Only the event time that the samples of all streams share counts.
    attributes : sequence of Reach
        Those whose keys are sampled; at least one.
    cells : int

    Returns
    -------
    RangeChoice or None
        None where there are too few keys.
    """
    shared = keys.shared()
    return _best_ranges(shared, attributes, cells) if shared.least_rows >= LEAST_KEYS else None


def _best_ranges(keys: KeyHint, attributes: Sequence[Reach], cells: int) -> RangeChoice:
    choices = [choose_ranges(keys.key_samples(number), reach, cells) for number, reach in enumerate(attributes)]
    return min(choices, key=lambda choice: choice.likely_load * choice.copies)


def layout_load(layout: CellLayout, keys: KeyHint, attributes: Sequence[Reach]) -> float:
    """Return the load of the layout's fullest cell times its copies, if keys are like those of the sample."""
    if isinstance(layout, RangeLayout):
        choice = range_cost(layout, keys.key_samples(_number_of(layout, attributes)))
        return choice.likely_load * choice.copies
    assert isinstance(layout, Layout)  # there are two kinds
    samples = keys.key_samples(0)
    grid = grid_choice(layout, samples, attributes[0], pair_counts(samples, attributes[0]), DEFAULT_WORK)
    return grid.load * grid.copies


def layout_by_keys(
    keys: KeyHint, attributes: Sequence[Reach], now: CellLayout, cells: int, *, least_saved: float, may_be_grid: bool
) -> CellLayout | None:
    """Return the layout to go over to from `now`; None where the keys do not speak for a change.

    Parameters
    ----------
    keys : KeyHint
    attributes : sequence of Reach
        Those whose keys are sampled; at least one.
    now : CellLayout
        The layout of new tuples, with as many cells.
    cells : int
    least_saved : float
        The least share of the load times the copies that a change must save.
    may_be_grid : bool
        Whether the best grid is a choice too.
    """
    older, newer = keys.halves()
    if min(older.least_rows, newer.least_rows) < LEAST_KEYS:
        return None
    wanted = _chosen(older, attributes, cells, may_be_grid=may_be_grid)
    if layout_load(wanted, newer, attributes) > (1 - least_saved) * layout_load(now, newer, attributes):
        return None
    chosen = _chosen(keys.shared(), attributes, cells, may_be_grid=may_be_grid)
    # Both halves speak for the same kind, or nothing changes.
    return chosen if isinstance(chosen, RangeLayout) == isinstance(wanted, RangeLayout) and chosen != now else None


def _chosen(keys: KeyHint, attributes: Sequence[Reach], cells: int, *, may_be_grid: bool) -> CellLayout:
    best = _best_ranges(keys, attributes, cells)
    if not may_be_grid:
        return best.layout
    samples = keys.key_samples(_number_of(best.layout, attributes))
    layout = choose_layout(cells, Load.of_windows([sample.total for sample in samples]))
    grid = grid_choice(layout, samples, best.layout.reach, best.pairs, DEFAULT_WORK)
    return KindChoice(grid, best).layout


def _number_of(layout: RangeLayout, attributes: Sequence[Reach]) -> int:
    """Return the number of the layout's attribute; the first one where another version named the keys otherwise."""
    return list(attributes).index(layout.reach) if layout.reach in attributes else 0
