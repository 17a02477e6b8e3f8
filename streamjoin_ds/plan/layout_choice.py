"""The choice of a grid for a load: all layouts are compared, and the best are returned with their costs.

A `Load` is what the streams bring: how many tuples a second, and how many of them a window holds.

A join that decides tuples at their horizon prefers the layout in which one cell has all that a tuple can meet::

    one cell has all that a tuple can meet                     a tuple's partners lie in several cells
    ──────────────────────────────────────                     ───────────────────────────────────────
    left, semi, anti, nearest, sums    4x1                     all of them     any grid
    right                              1x4                     the commit puts the cells' answers together
    semi, anti of three streams        4x1x1

Where one cell has all, no answer is put together with another's. Elsewhere each cell that has a copy of a tuple reports
what it knows of the tuple's partners, and the commit puts that together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.layout import MAX_CELLS, CellLayout, Layout
from streamjoin_ds.spec import BoundJoin

__all__ = [
    "LayoutCost",
    "Load",
    "best_layouts",
    "check_deciding",
    "choose_layout",
    "copied_streams",
    "deciding_cells",
    "deciding_layouts",
    "keeps_whole",
    "layout_cost",
    "whole_layout",
]

# By which share a layout may ship more rows than the fewest, to give its results sooner. A shipped row costs a few
# hundred nanoseconds in its cell, so more than a quarter would be felt. A quarter is enough to halve a window that is
# ten times as long as another.
SHIPPING_SLACK = 0.25
# Costs that differ by less than this share are equal: the order of a sum must not decide.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Load:
    """Rates and window sizes of a join's streams, in their order. A layout is chosen by them.

    Parameters
    ----------
    rates : tuple of float
        Tuples a second, finite and >= 0. Where only their proportions are known, any unit will do.
    held_rows : tuple of float
        Rows of each stream's full window (DP-Join, section IV-B: ``rate * window``), finite and >= 0.

    Raises
    ------
    LayoutError
        There is no stream, the two tuples differ in length, or a value is negative or not finite.
    """

    rates: tuple[float, ...]
    held_rows: tuple[float, ...]

    def __post_init__(self) -> None:
        hint = "give tuples a second, one number for each stream"
        if not self.rates or len(self.held_rows) != len(self.rates):
            msg = "a load needs a rate and a window for each stream"
            raise LayoutError(msg, name="rates", hint=hint)
        if any(not math.isfinite(value) or value < 0 for value in (*self.rates, *self.held_rows)):
            msg = "rates and windows must be finite and not negative"
            raise LayoutError(msg, name="rates", hint=hint)

    @classmethod
    def of_windows(cls, rates: Sequence[float], windows: Sequence[float] | None = None) -> Load:
        """Return the load of streams whose windows are times: a window holds ``rate * window`` rows.

        Parameters
        ----------
        rates : sequence of float
            Tuples a second, one for each stream.
        windows : sequence of float, optional
            Each stream's window in seconds; all equal where not given.
        """
        windows = [1.0] * len(rates) if windows is None else windows
        if len(windows) != len(rates):
            return cls(tuple(rates), tuple(windows))  # refused there
        return cls(tuple(rates), tuple(rate * window for rate, window in zip(rates, windows, strict=True)))

    @classmethod
    def of_join(cls, bound: BoundJoin, rates: Sequence[float]) -> Load:
        """Return the load of a join at these rates, with the join's windows."""
        window = bound.join.window
        extents = [float(window.extent(stream)) for stream in range(len(bound.names))]
        if window.kind == "count":
            return cls(tuple(rates), tuple(extents))
        return cls.of_windows(rates, [extent_us / 1e6 for extent_us in extents])

    @property
    def pairs_per_s(self) -> float:
        """Combinations inside the windows that a second brings: what a nested loop tests (DP-Join, equations 2 and 3).

        Each new tuple meets the full windows of all other streams. Multiplied by the share that matches, it is the
        largest rate of results that these streams can give.
        """
        total = 0.0
        for stream, rate in enumerate(self.rates):
            others = (rows for number, rows in enumerate(self.held_rows) if number != stream)
            total += rate * math.prod(others)
        return total


class LayoutCost(Struct, frozen=True):
    """What a layout costs under a load.

    Attributes
    ----------
    layout : Layout
    shipped_rows_per_s : float
        Rows that all cells together receive a second: ``sum rate_i * S / L_i`` (DAB Join, section 4.2).
    probed_rows : float
        Rows that a tuple meets in its cell before its partner, on average: ``sum p_i * sum W_j / (2 L_j)`` with ``p_i``
        the stream's share of all tuples and ``W_j`` the rows of another's window (DP-Join, equations 5 and 6). The time
        that one test takes, multiplied by it, is the latency.
    cell_rows : float
        Rows that one cell holds: ``sum W_i / L_i``.
    """

    layout: Layout
    shipped_rows_per_s: float
    probed_rows: float
    cell_rows: float


def layout_cost(layout: Layout, load: Load) -> LayoutCost:
    """Return the cost of one layout.

    Raises
    ------
    LayoutError
        The layout and the load are for different numbers of streams.
    """
    if len(layout.counts) != len(load.rates):
        msg = f"the layout has {len(layout.counts)} group counts, but the load has {len(load.rates)} streams"
        raise LayoutError(msg, name="layout", hint="one group count for each stream")
    shipped, probed, held = _costs(np.array([layout.counts], dtype=np.int64), layout.cells, load)
    return LayoutCost(layout, float(shipped[0]), float(probed[0]), float(held[0]))


def best_layouts(cells: int, load: Load, count: int = 3) -> list[LayoutCost]:
    """Return the best layouts of exactly `cells` cells, best first.

    All ordered factorisations of `cells` are looked at. Those that ship at most a quarter more rows than the fewest
    come first, by their latency, then by what they ship; the others follow by what they ship. Of those that are still
    equal the one with fewer groups of the first streams comes first, so the choice is unique.

    Parameters
    ----------
    cells : int
        1 to 4096; usually one for each core.
    load : Load
    count : int
        How many to return at most.

    Raises
    ------
    LayoutError
        The number of cells is out of range.
    """
    if not 1 <= cells <= MAX_CELLS:
        msg = f"the number of cells must be between 1 and {MAX_CELLS}"
        raise LayoutError(msg, name="cells", hint="for example one cell for each core")
    counts = _factorisations(cells, len(load.rates))
    shipped, probed, held = _costs(counts, cells, load)
    shipped_steps, probed_steps = _steps(shipped), _steps(probed)
    most = shipped.min() * (1 + SHIPPING_SLACK) * (1 + _EQUAL)
    beyond = shipped > most
    # lexsort's last key decides first; the rows of counts are in ascending order already, and the sort is stable
    order = np.lexsort((shipped_steps, np.where(beyond, shipped_steps, probed_steps), beyond))
    return [
        LayoutCost(
            Layout(tuple(int(group_count) for group_count in counts[row])),
            float(shipped[row]),
            float(probed[row]),
            float(held[row]),
        )
        for row in order[:count]
    ]


def choose_layout(cells: int, load: Load) -> Layout:
    """Return the best layout of exactly `cells` cells; `best_layouts` says what is best."""
    return best_layouts(cells, load, 1)[0].layout


def _costs(
    counts: npt.NDArray[np.int64], cells: int, load: Load
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the shipped rows a second, probed rows and held rows of each layout: float64, as long as `counts`."""
    total = sum(load.rates)
    shipped, probed, held = (np.zeros(len(counts)) for _ in range(3))
    for stream, (rate, rows) in enumerate(zip(load.rates, load.held_rows, strict=True)):
        in_cell = rows / counts[:, stream]
        shipped += rate * (cells // counts[:, stream])
        held += in_cell
        if (
            total > 0
        ):  # tuples of all other streams meet it, and find a partner on average when they have seen half of it
            probed += (1 - rate / total) * in_cell / 2
    return shipped, probed, held


def _steps(costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rank of each cost; costs that are nearly equal have the same rank."""
    order = np.argsort(costs, kind="stable")
    rising = np.diff(costs[order]) > _EQUAL * costs[order][1:]
    steps = np.empty(len(costs))
    steps[order] = np.concatenate(([0], np.cumsum(rising)))
    return steps


@lru_cache(maxsize=8)
def _factorisations(cells: int, streams: int) -> npt.NDArray[np.int64]:
    """Return all ordered ways to write `cells` as a product of `streams` factors: int64 (ways, streams), ascending.

    They are the leaves of DAB Join's listing 1 (section 4.2), each once.
    """
    divisors_of = {
        n: np.array([d for d in range(1, n + 1) if n % d == 0]) for n in range(1, cells + 1) if cells % n == 0
    }
    chosen, left = np.empty((1, 0), dtype=np.int64), np.array([cells])
    for _ in range(streams - 1):
        widths = np.array([len(divisors_of[int(rest)]) for rest in left])
        factor = np.concatenate([divisors_of[int(rest)] for rest in left])
        chosen = np.column_stack((np.repeat(chosen, widths, axis=0), factor))
        left = np.repeat(left, widths) // factor
    ways = np.column_stack((chosen, left))
    ways.flags.writeable = False
    return ways


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
