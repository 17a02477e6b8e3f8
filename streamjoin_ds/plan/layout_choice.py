"""The choice of a layout for a load: all layouts are compared, and the best are returned with their costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.layout import MAX_CELLS, Layout
from streamjoin_ds.plan.load import Load

__all__ = ["LayoutCost", "best_layouts", "choose_layout", "layout_cost"]

# By which share a layout may ship more rows than the fewest, to give its results sooner. A shipped row costs a few
# hundred nanoseconds in its cell, so more than a quarter would be felt. A quarter is enough to halve a window that is
# ten times as long as another.
SHIPPING_SLACK = 0.25
# Costs that differ by less than this share are equal: the order of a sum must not decide.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class LayoutCost:
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
