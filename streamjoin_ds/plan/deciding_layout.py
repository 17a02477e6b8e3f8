"""The layout of a join that decides tuples at their horizon.

::

    one cell has all that a tuple can meet                     a tuple's partners lie in several cells
    ──────────────────────────────────────                     ───────────────────────────────────────
    left, semi, anti, nearest, sums    4x1                     all of them     any grid
    right                              1x4                     the commit puts the cells' answers together
    semi, anti of three streams        4x1x1

Where one cell has all, no answer is put together with another's. Elsewhere each cell that has a copy of a tuple tells
what it knows of the tuple's partners (`streamjoin_ds.cell.partial_answers`).
"""

from __future__ import annotations

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.cell_layout import CellLayout
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.plan.layout_choice import SHIPPING_SLACK, LayoutCost, best_layouts, layout_cost
from streamjoin_ds.plan.load import Load
from streamjoin_ds.spec import BoundJoin

__all__ = [
    "check_deciding",
    "copied_streams",
    "deciding_cells",
    "deciding_layouts",
    "keeps_whole",
    "whole_layout",
]


def keeps_whole(bound: BoundJoin) -> bool:
    """Whether the layout in which one cell has all is the best one, whatever the rates are.

    It is where every tuple would have an answer, of nearest or summed partners: the driver would put them together,
    alone. Of several other streams, no two need to meet, and other grids copy all of them.
    """
    all_tell = bound.distance is not None or bool(bound.aggregates)
    return bool(bound.decided) and (all_tell or bound.row_kind.of_each)


def copied_streams(bound: BoundJoin, layout: CellLayout) -> tuple[int, ...]:
    """Return the decided streams whose tuples lie in several cells, so that several cells decide them."""
    if not isinstance(layout, Layout):
        return ()
    return tuple(stream for stream in bound.decided if layout.copies(stream) > 1)


def deciding_cells(bound: BoundJoin, cells: int) -> int:
    """Return how many of so many cells the join can use if no answers are put together: all, or one for `full`."""
    return 1 if len(bound.decided) > 1 else cells


def whole_layout(bound: BoundJoin, cells: int) -> Layout:
    """Return the layout on so many cells in which one cell has all that a tuple can meet; see `deciding_cells`.

    Raises
    ------
    LayoutError
        There can be no more than one cell.
    """
    if len(bound.decided) > 1 and cells > 1:
        msg = f"{bound.join.asked} works in one cell here: there it meets all partners of both streams' tuples"
        hint = "leave it out, or give 1; start() puts the answers of several cells together"
        raise LayoutError(msg, name="cells", hint=hint)
    return Layout(tuple(cells if stream in bound.decided else 1 for stream in range(len(bound.names))))


def deciding_layouts(bound: BoundJoin, cells: int, load: Load, count: int = 3) -> list[LayoutCost]:
    """Return the best layouts of exactly so many cells, best first, for a query that commits its batches.

    With two decided streams they are those of `best_layouts`. With one, a copy of its tuples counts twice, because it
    probes once more at its horizon. The layout in which no answers are put together comes first unless another one has
    clearly fewer copies (by `SHIPPING_SLACK`), and always does where `keeps_whole`.
    """
    if len(bound.decided) > 1:
        return best_layouts(cells, load, count)
    whole = layout_cost(whole_layout(bound, cells), load)
    most = _copies(bound, whole, load) / (1 + SHIPPING_SLACK)
    others = [cost for cost in best_layouts(cells, load, 1 << 20) if cost.layout != whole.layout]
    others.sort(key=lambda cost: _copies(bound, cost, load))  # stable: of equal ones the better for an inner join
    better = [] if keeps_whole(bound) else [cost for cost in others if _copies(bound, cost, load) < most]
    return [*better, whole, *others[len(better) :]][:count]


def _copies(bound: BoundJoin, cost: LayoutCost, load: Load) -> float:
    """Return the stored rows a second, and of decided streams the probing ones."""
    again = sum(load.rates[stream] * cost.layout.copies(stream) for stream in bound.decided)
    return cost.shipped_rows_per_s + again


def check_deciding(bound: BoundJoin, layout: CellLayout, *, whole: bool = False) -> None:
    """Refuse a layout in which a decided tuple's partners lie in several cells, if nobody puts their answers together.

    Parameters
    ----------
    bound : BoundJoin
    layout : CellLayout
    whole : bool
        Whether nobody does: there is no commit.

    Raises
    ------
    LayoutError
    """
    if not bound.decided:
        return
    if isinstance(layout, Layout) and (not whole or not copied_streams(bound, layout)):
        return
    shown = "1x1" if len(bound.decided) > 1 else whole_layout(bound, max(layout.cells, 2))
    msg = f"{bound.join.asked} needs a layout in which one cell has all partners of a tuple, and {layout} is another"
    raise LayoutError(msg, name="layout", hint=f"use auto, or for example {shown}")
