"""The decision which layout samples of keys speak for: ranges or a grid, and whether a change is worth it.

A layout is judged by the load of its fullest cell times its copies, as in `choose_kind`. What is chosen from a sample
fits that sample better than others. So the older half of a sample chooses, and the newer half judges.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.plan.cell_layout import CellLayout
from streamjoin_ds.plan.cell_work import DEFAULT_WORK
from streamjoin_ds.plan.key_samples import KeyHint
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.plan.layout_choice import choose_layout
from streamjoin_ds.plan.layout_kind import KindChoice, grid_choice
from streamjoin_ds.plan.load import Load
from streamjoin_ds.plan.range_choice import RangeChoice, choose_ranges, pair_counts, range_cost
from streamjoin_ds.plan.range_layout import RangeLayout
from streamjoin_ds.plan.reach import Reach

__all__ = ["best_ranges", "layout_by_keys", "layout_load"]

# Least sampled tuples of each stream, in each half of a sample where halves are compared; fewer tell nothing.
LEAST_KEYS = 100


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
