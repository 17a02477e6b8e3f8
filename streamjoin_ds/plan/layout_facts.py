"""Layouts of both kinds as plain JSON values: in offsets, state rows, plans and ``join.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.cell_layout import CellLayout
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.plan.range_layout import RangeLayout

__all__ = ["is_of_ranges", "layout_from_facts"]


def layout_from_facts(facts: Any, streams: int) -> CellLayout:
    """Return the layout that ``to_facts`` of a layout for so many streams wrote.

    Raises
    ------
    ValueError
        The facts are anything else.
    """
    try:
        if isinstance(facts, Mapping):
            return RangeLayout.from_facts(facts, streams)
        if isinstance(facts, list) and len(facts) == streams and all(type(count) is int for count in facts):
            return Layout(tuple(facts))
    except (LayoutError, KeyError, IndexError, TypeError, ValueError) as error:
        msg = "these are no facts of a layout"
        raise ValueError(msg) from error
    msg = "these are no facts of a layout"
    raise ValueError(msg)


def is_of_ranges(layout: CellLayout) -> bool:
    """Whether a layout is of ranges, which versions before there were any cannot read."""
    return isinstance(layout, RangeLayout)
