"""The cost model of a window in runs: what a new tuple costs, by the rows of a tail and the merge ratio.

::

    cost(T, k) =  T/2 * scanned_row          the tail, half full on the average, is scanned by every probe
                + sealed_run / T             it is sealed once in T tuples
                + runs * probed_run          a probe meets all runs
                + levels * merged_row        each row is copied once a level
                + merges * merged_run

    levels = the largest n with T * k^n <= W / 4              a merged run spans a quarter of the window at most
    runs   = W / (T * k^levels) + levels * (k - 1) / 2        the merged ones, and at each level those that wait
    merges = (1/k + 1/k^2 + ... + 1/k^levels) / T

It is CellJoin's trade-off (Gedik, Yu and Bordawekar, 2007, section 6, eq. 3): small basic windows cost a fixed time
each, large ones a time that grows with their size. There the large ones cost a transfer, here a scan. Its optimum grows
with the window (eq. 4), because there every probe walks through all basic windows. Here these are merged, and the
optimum hardly depends on the window.

What the operations cost (`OperationCosts`) is measured elsewhere (`sizing`) or comes with a plan, as JSON. No row of a
result depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Protocol

from streamjoin_ds.engine.tuning import DEFAULT

__all__ = [
    "RATIOS",
    "SEAL_ROWS",
    "USUAL_COSTS",
    "OperationCosts",
    "RunSizes",
    "Sizing",
    "best_sizes",
    "gridded_ns",
    "mean_ns",
    "tuple_ns",
    "unmerged_ns",
]

# A machine of the last twenty years costs neither this share of the usual costs nor this many times them. A fit beyond
# was disturbed, by other programs or by a clock that stood still.
_LEAST_SHARE, _MOST_TIMES = 1 / 50, 50.0
_HIDDEN = ("sealed_row_ns", "merged_row_ns", "merged_run_ns")

# Sizes that are tried, four in each doubling. A smaller tail than the first would be sealed with nearly every push.
# With a larger one than the last nothing was gained where it was measured (5 800 rows, two bands with floats).
SEAL_ROWS = tuple(round(2 ** (n / 4)) for n in range(4 * 8, 4 * 12 + 1))
RATIOS = (2, 3, 4, 5, 6, 8, 12, 16)
# Rows of the windows that are optimised for while a window's size is not known: those of more rows than the last go
# over to a bucket grid.
_UNKNOWN_ROWS = tuple(round(2 ** (n / 2)) for n in range(2 * 13, 2 * 16 + 1))
# A known window counts with so many times its rows, since it breathes, and its runs may span a little more or less.
_NEAR_TIMES = (0.85, 1.0, 1.15)
_PUSH_ROWS = tuple(round(2 ** (n / 4)) for n in range(4 * 6, 4 * 12 + 1))
# A size of the tail, and then a ratio, is clearly better with which a tuple costs less than this share. Measured:
# ratios from 2 to 4 cost the same within 8 %, although the model sees up to 15 % between them; tails that the model
# finds 5 % better are 2 % worse in windows of 10 000 rows.
_CLEAR_SEAL_SHARE, _CLEAR_RATIO_SHARE = 0.9, 0.8


@dataclass(frozen=True, slots=True)
class RunSizes:
    """The sizes of the runs of a window in memory.

    Attributes
    ----------
    seal_rows : int
        Rows of a tail, at most; it is then sealed into a run.
    most_arrived_rows : int
        New rows of one push that go to the tail, at most; more become a run at once. It is `seal_rows` at most.
    most_gridded_rows : int
        The same of a window in a bucket grid.
    ratio : int
        The merge ratio: so many runs of like size become one, 2 or more.
    """

    seal_rows: int
    most_arrived_rows: int
    most_gridded_rows: int
    ratio: int


class Sizing(Protocol):
    """A source of the sizes of runs."""

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        """Return the sizes for a form that has sealed so many tails, now of a window of so many rows.

        None: the sizes that it has stay.
        """

    def described(self) -> str:
        """Return where the sizes are from, in words, for `explain`."""


@dataclass(frozen=True, slots=True)
class OperationCosts:
    """Costs by which sizes of runs are chosen (Gedik, Yu and Bordawekar, 2007, section 6). No result depends on them.

    The defaults are the usual costs, with which a fit is compared. They were measured on two cores with AVX-512, on a
    join of two bands.

    Attributes
    ----------
    scanned_row_ns : float
        A probe tests a row of the tail.
    probed_run_ns : float
        A probe meets one more sorted run, whatever the run's rows.
    sealed_run_ns : float
        A tail becomes a run, whatever its rows: choosing its order, making its columns.
    sealed_row_ns : float
        A row is sorted into a run.
    merged_run_ns : float
        Runs become one run, whatever their rows.
    merged_row_ns : float
        A row is copied by a merge.
    gridded_batch_ns : float
        A batch goes into a bucket grid, whatever its rows: so much more than into the tail.
    """

    scanned_row_ns: float = 0.25
    probed_run_ns: float = 30.0
    sealed_run_ns: float = 250_000.0
    sealed_row_ns: float = 50.0
    merged_run_ns: float = 600_000.0
    merged_row_ns: float = 25.0
    gridded_batch_ns: float = 100_000.0

    @property
    def are_sane(self) -> bool:
        """Whether the costs are near enough to the usual ones to be believed.

        What a merge and a row cost that is sealed or merged has an upper bound only: chance may hide it.
        """
        usual = USUAL_COSTS.to_facts()
        times = {name: cost / usual[name] for name, cost in self.to_facts().items()}
        is_seen = all(times[name] >= _LEAST_SHARE for name in times if name not in _HIDDEN)
        return is_seen and all(cost <= _MOST_TIMES for cost in times.values())

    def to_facts(self) -> dict[str, float]:
        """Return the costs as plain JSON values, which `from_facts` reads."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, float]) -> OperationCosts:
        """Return the costs that `to_facts` wrote; those that are missing are the usual ones, unknown ones left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: float(cost) for name, cost in facts.items() if name in known})


USUAL_COSTS = OperationCosts()


def tuple_ns(costs: OperationCosts, seal_rows: float, ratio: float, window_rows: float) -> float:
    """Return what a new tuple costs that depends on the sizes of runs, in nanoseconds.

    Parameters
    ----------
    costs : OperationCosts
    seal_rows : float
        Rows of a tail when it is sealed.
    ratio : float
        Runs of like size that become one, 2 or more.
    window_rows : float
        Rows of the window that the tuple meets, and of the one that it enters.
    """
    levels, run_rows, merges = 0, seal_rows, 0.0
    while run_rows * ratio * DEFAULT.merging.span_parts <= window_rows:
        levels, run_rows = levels + 1, run_rows * ratio
        merges += 1 / run_rows
    runs = window_rows / run_rows + levels * (ratio - 1) / 2
    merged = levels * costs.merged_row_ns + merges * costs.merged_run_ns
    return _unprobed_ns(costs, seal_rows, window_rows) + runs * costs.probed_run_ns + merged


def unmerged_ns(costs: OperationCosts, seal_rows: float, window_rows: float) -> float:
    """Return what a new tuple costs where runs are never merged, as CellJoin's basic windows, in nanoseconds."""
    return _unprobed_ns(costs, seal_rows, window_rows) + window_rows / seal_rows * costs.probed_run_ns


def _unprobed_ns(costs: OperationCosts, seal_rows: float, window_rows: float) -> float:
    scanned = min(seal_rows, window_rows) / 2 * costs.scanned_row_ns
    return scanned + costs.sealed_run_ns / seal_rows + costs.sealed_row_ns


def gridded_ns(costs: OperationCosts, seal_rows: float) -> float:
    """Return what a new tuple costs that goes to the tail of a window in a bucket grid, in nanoseconds.

    It is scanned, and goes into the grid with all others of the tail, as one batch that is sealed first. There are no
    runs, and no merges.
    """
    return seal_rows / 2 * costs.scanned_row_ns + (costs.sealed_run_ns + costs.gridded_batch_ns) / seal_rows


def mean_ns(
    costs: OperationCosts, seal_rows: float, ratio: float, window_rows: int = 0, *, is_grid: bool = False
) -> float:
    """Return the mean of `tuple_ns` over windows of about so many rows; 0: their size is not known.

    Of windows in a bucket grid it is `gridded_ns`.
    """
    if is_grid:
        return gridded_ns(costs, seal_rows)
    windows = [times * window_rows for times in _NEAR_TIMES] if window_rows else _UNKNOWN_ROWS
    return sum(tuple_ns(costs, seal_rows, ratio, rows) for rows in windows) / len(windows)


def best_sizes(
    costs: OperationCosts, ratio: int | None = None, window_rows: int = 0, *, is_grid: bool = False
) -> RunSizes:
    """Return the sizes of `SEAL_ROWS` and `RATIOS` with the least `mean_ns`.

    The usual sizes stay where no others are clearly better, and the usual ratio where no other is clearly better yet.

    Parameters
    ----------
    costs : OperationCosts
    ratio : int or None
        The ratio, where it is forced.
    window_rows : int
        Rows of the window, which are rounded; 0: not known.
    is_grid : bool
        Whether the window is in a bucket grid.
    """
    rounded = round(2 ** (round(4 * math.log2(window_rows)) / 4)) if window_rows and not is_grid else 0
    return _best_sizes(costs, ratio, rounded, is_grid)


@lru_cache(maxsize=256)
def _best_sizes(costs: OperationCosts, ratio: int | None, window_rows: int, is_grid: bool) -> RunSizes:
    def cost(rows: float, k: int) -> float:
        return mean_ns(costs, rows, k, window_rows, is_grid=is_grid)

    kept = DEFAULT.merging.ratio if ratio is None else ratio
    chosen = cost(DEFAULT.tail.rows, kept), DEFAULT.tail.rows, kept
    is_free = ratio is None and not is_grid
    for ratios, share in (((kept,), _CLEAR_SEAL_SHARE), (RATIOS if is_free else (kept,), _CLEAR_RATIO_SHARE)):
        found = min((cost(rows, k), rows, k) for k in ratios for rows in SEAL_ROWS)
        chosen = found if found[0] < share * chosen[0] else chosen
    least_ns, seal_rows, kept = chosen
    # As a run of their own, new rows are as a tail of so many rows that no probe has scanned.
    unscanned = replace(costs, scanned_row_ns=0.0)
    cheap = (rows for rows in _PUSH_ROWS if mean_ns(unscanned, rows, kept, window_rows) < least_ns)
    # Two such pushes must fit into a tail: else it is sealed for each, and the scan is for nothing.
    arrived_rows = min(next(cheap, seal_rows), seal_rows // 2)
    if is_grid:
        arrived_rows = min(DEFAULT.tail.most_arrived_rows, seal_rows // 2)
    gridded_rows = round(costs.gridded_batch_ns / gridded_ns(costs, seal_rows))
    return RunSizes(seal_rows, arrived_rows, min(gridded_rows, arrived_rows), kept)
