"""The layout of a join that decides tuples at their horizon: one cell has all that a tuple can meet.

::

    left, semi, anti    right         full            decided tuples are dealt, the other streams' go to every cell;
    4x1, 4x1x1          1x4           1x1             of full both are decided, so one cell has all

Then no cell's answer must be put together with another's. Such a layout is chosen once and stays: in another one the
tuples that wait would meet a part of their partners in each of two.
"""

from __future__ import annotations

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.cell_layout import CellLayout
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.spec import BoundJoin

__all__ = ["check_deciding", "deciding_cells", "deciding_layout"]


def deciding_cells(bound: BoundJoin, cells: int) -> int:
    """Return how many of so many cells the join can use: all, or one where both streams are decided."""
    return 1 if len(bound.decided) > 1 else cells


def deciding_layout(bound: BoundJoin, cells: int) -> Layout:
    """Return the layout on so many cells; `deciding_cells` says how many there can be.

    Raises
    ------
    LayoutError
        There can be no more than one.
    """
    if len(bound.decided) > 1 and cells > 1:
        msg = f"{bound.join.asked} works in one cell: only there it meets all partners of both streams' tuples"
        raise LayoutError(msg, name="cells", hint="leave it out, or give 1; threads= uses several cores in it")
    return Layout(tuple(cells if stream in bound.decided else 1 for stream in range(len(bound.names))))


def check_deciding(bound: BoundJoin, layout: CellLayout) -> None:
    """Refuse a layout in which a decided tuple's partners lie in several cells.

    Raises
    ------
    LayoutError
    """
    if not bound.decided:
        return
    counts = layout.counts if isinstance(layout, Layout) else None
    if counts is None or any(count > 1 for stream, count in enumerate(counts) if bound.decided != (stream,)):
        shown = "1x1" if len(bound.decided) > 1 else deciding_layout(bound, max(layout.cells, 2))
        msg = (
            f"{bound.join.asked} needs a layout in which one cell has all partners of a tuple, and {layout} is another"
        )
        raise LayoutError(msg, name="layout", hint=f"use auto, or for example {shown}")
