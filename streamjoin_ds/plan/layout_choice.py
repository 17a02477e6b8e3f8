"""Which layout suits a load: every one is looked at, and the best are told with their costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.layout import MAX_CELLS, Layout
from streamjoin_ds.plan.load import Load

__all__ = ["LayoutCost", "best_layouts", "choose_layout", "layout_cost"]

# How many more rows than the fewest a layout may ship, to have its results sooner. A row that is shipped costs a few
# hundred nanoseconds in its cell, so a quarter more is felt; a window of ten times another's length is halved by it.
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
        Rows a tuple meets in its cell before its partner, on average: ``sum p_i * sum W_j / (2 L_j)`` with ``p_i`` the
        stream's share of all tuples and ``W_j`` the rows of another's window (DP-Join, equations 5 and 6). The time
        that one test takes, multiplied by it, is the latency.
    cell_rows : float
        Rows that one cell holds: ``sum W_i / L_i``.
    """

    layout: Layout
    shipped_rows_per_s: float
    probed_rows: float
    cell_rows: float


def layout_cost(layout: Layout, load: Load) -> LayoutCost:
    """The cost of one layout.

    Raises
    ------
    LayoutError
        It is for another number of streams.
    """
    if len(layout.counts) != len(load.rates):
        msg = f"the layout has {len(layout.counts)} group counts, the load {len(load.rates)} streams"
        raise LayoutError(msg, name="layout", hint="one number a stream")
    shipped, probed, held = _costs(np.array([layout.counts], dtype=np.int64), layout.cells, load)
    return LayoutCost(layout, float(shipped[0]), float(probed[0]), float(held[0]))


def best_layouts(cells: int, load: Load, count: int = 3) -> list[LayoutCost]:
    """The best layouts of exactly `cells` cells, best first.

    All ordered factorisations of `cells` are looked at. Those that ship at most a quarter more rows than the fewest
    come first, by their latency, then by what they ship; the others follow by what they ship. What is still equal goes
    by fewer groups of the first streams, so that the choice is one.

    Parameters
    ----------
    cells : int
        About one a core; 1 to 4096.
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
        raise LayoutError(msg, name="cells", hint="about one a core")
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
    """The best layout of exactly `cells` cells; `best_layouts` says what is best."""
    return best_layouts(cells, load, 1)[0].layout


def _costs(
    counts: npt.NDArray[np.int64], cells: int, load: Load
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Shipped rows a second, probed rows and held rows of each layout, float64 of the length of `counts`."""
    total = sum(load.rates)
    shipped, probed, held = (np.zeros(len(counts)) for _ in range(3))
    for stream, (rate, rows) in enumerate(zip(load.rates, load.held_rows, strict=True)):
        in_cell = rows / counts[:, stream]
        shipped += rate * (cells // counts[:, stream])
        held += in_cell
        if total > 0:  # met by the tuples of all other streams, on average when half of it is seen
            probed += (1 - rate / total) * in_cell / 2
    return shipped, probed, held


def _steps(costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Each cost's place among those that differ, so that equal ones are equal."""
    order = np.argsort(costs, kind="stable")
    rising = np.diff(costs[order]) > _EQUAL * costs[order][1:]
    steps = np.empty(len(costs))
    steps[order] = np.concatenate(([0], np.cumsum(rising)))
    return steps


@lru_cache(maxsize=8)
def _factorisations(cells: int, streams: int) -> npt.NDArray[np.int64]:
    """All ordered ways to write `cells` as a product of `streams` factors: int64 of shape (ways, streams), ascending.

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
