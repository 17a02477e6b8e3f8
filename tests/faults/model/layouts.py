"""The layouts of a run: those that it begins with, and those that it goes over to. They are functions of its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from streamjoin_ds import plan
from streamjoin_ds.plan import CellLayout, Layout, Load, RangeLayout, band_attributes, best_layouts
from streamjoin_ds.spec import BoundJoin
from tests.faults.model.schedule import Schedule

__all__ = ["first_layout", "grid", "grids", "layout_kind", "relaid", "whole"]

# What a run's x and y can be (`case`), and places between them: many tuples lie exactly on a boundary.
_PLACES = {True: [-1, 0, 1, 2, 3, 4, 5, 6], False: [-0.25, 0.0, 0.25, 0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 2.75]}


def first_layout(schedule: Schedule, bound: BoundJoin) -> CellLayout:
    """Return the layout that a run begins with."""
    layout = grid(schedule, len(bound.names))
    if bound.decided:
        return layout if "split" in schedule.asks else whole(bound, layout.cells)
    dice = random.Random(f"first ranges {schedule.seed}")
    if "ranges" in schedule.asks and dice.random() < 0.6:
        return _ranges(dice, bound, layout.cells) or layout
    return layout


def whole(bound: BoundJoin, cells: int) -> Layout:
    """Return the layout on so many cells, or on one, in which one cell has all that a tuple can meet."""
    return plan.whole_layout(bound, plan.deciding_cells(bound, cells))


def layout_kind(schedule: Schedule) -> str:
    """Return which layouts the source may choose by the keys that it sees, where no schedule says them."""
    chosen = random.Random(f"kind {schedule.seed}").choice(("grid", "ranges", "ranges", "auto"))
    return chosen if "ranges" in schedule.asks and "relaid" not in schedule.asks else "grid"


def grid(schedule: Schedule, streams: int) -> Layout:
    """Return the schedule's grid for so many streams; those that its text does not name have one group."""
    return Layout.parse("x".join([*schedule.layout.split("x"), *("1",) * streams][:streams]), streams)


def grids(cells: int, streams: int) -> list[Layout]:
    """Return all grids of so many cells."""
    equal = Load.of_windows([1.0] * streams)
    return [cost.layout for cost in best_layouts(cells, equal, 1 << 20)]


def relaid(
    schedule: Schedule, bound: BoundJoin, most: CellLayout, of_life: random.Random | None = None
) -> Iterator[tuple[int, CellLayout]]:
    """From how many records on which layout is wanted: up to ten changes. Lives may have fewer cells than `most`."""
    dice = of_life or random.Random(f"layouts {schedule.seed}")
    total = schedule.rows * most.streams
    for rows in sorted({dice.randrange(total) for _ in range(dice.choice((1, 1, 2, 3, 5, 10)))}):
        cells = most.cells if of_life is None else dice.randint(1, most.cells)
        chosen = dice.choice(grids(cells, most.streams))
        more = random.Random(f"ranges {rows} {cells} {schedule.seed}")
        if "ranges" in schedule.asks and more.random() < 0.7:
            yield rows, _ranges(more, bound, cells) or chosen
        else:
            yield rows, chosen


def _ranges(dice: random.Random, bound: BoundJoin, cells: int) -> RangeLayout | None:
    """Return ranges of any attribute, with grids in some of them; None where the join has no attribute."""
    attributes = band_attributes(bound)
    if not attributes:
        return None
    _, reach = dice.choice(attributes)
    streams = len(bound.names)
    left, hot = cells, []
    while left and (not hot or dice.random() < 0.8):
        hot.append(dice.choice(grids(dice.choice((1, 1, dice.randint(1, left))), streams)))
        left -= hot[-1].cells
    boundaries = sorted(dice.sample(_PLACES[reach.is_whole], len(hot) - 1))
    return RangeLayout(cells, reach, dice.randrange(streams), tuple(boundaries), tuple(hot))
