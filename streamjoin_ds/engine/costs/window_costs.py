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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from streamjoin_ds.engine.costs.operation_costs import OperationCosts
from streamjoin_ds.engine.costs.run_sizes import RunSizes
from streamjoin_ds.engine.tuning import DEFAULT

__all__ = [
    "RATIOS",
    "SEAL_ROWS",
    "best_sizes",
    "mean_ns",
    "tuple_ns",
    "unmerged_closed_form_rows",
    "unmerged_ns",
]

# Sizes that are tried, four in each doubling. A smaller tail than the first would be sealed with nearly every push.
# With a larger one than the last nothing was gained where it was measured (5 800 rows, two bands with floats).
SEAL_ROWS = tuple(round(2 ** (n / 4)) for n in range(4 * 8, 4 * 12 + 1))
RATIOS = (2, 3, 4, 5, 6, 8, 12, 16)
# Rows of the windows that are optimised for, since a window's size is not known before: windows in memory have fewer
# rows than the last, or go over to a bucket grid.
_WINDOWS_ROWS = tuple(round(2 ** (n / 2)) for n in range(2 * 13, 2 * 16 + 1))
_PUSH_ROWS = tuple(round(2 ** (n / 4)) for n in range(4 * 6, 4 * 12 + 1))
# A size of the tail, and then a ratio, is clearly better with which a tuple costs less than this share. Measured:
# ratios from 2 to 4 cost the same within 5 %, although the model sees up to 8 % between them.
_CLEAR_SEAL_SHARE, _CLEAR_RATIO_SHARE = 0.95, 0.9


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


def unmerged_closed_form_rows(costs: OperationCosts, window_rows: float) -> float:
    """Return the seal size at which `unmerged_ns` is least (CellJoin, eq. 4): it grows as the root of the window."""
    return math.sqrt(2 * (costs.sealed_run_ns + window_rows * costs.probed_run_ns) / costs.scanned_row_ns)


def mean_ns(
    costs: OperationCosts, seal_rows: float, ratio: float, windows_rows: Sequence[int] = _WINDOWS_ROWS
) -> float:
    """Return the mean of `tuple_ns` over windows of some sizes; by default of 8 192 to 65 536 rows."""
    return sum(tuple_ns(costs, seal_rows, ratio, rows) for rows in windows_rows) / len(windows_rows)


@lru_cache(maxsize=64)
def best_sizes(costs: OperationCosts, ratio: int | None = None) -> RunSizes:
    """Return the sizes of `SEAL_ROWS` and `RATIOS` with the least `mean_ns`; `ratio` fixes the ratio.

    The usual sizes stay where no others are clearly better, and the usual ratio where no other is clearly better yet.
    """
    kept = DEFAULT.merging.ratio if ratio is None else ratio
    chosen = mean_ns(costs, DEFAULT.tail.rows, kept), DEFAULT.tail.rows, kept
    steps = (((kept,), _CLEAR_SEAL_SHARE), (RATIOS if ratio is None else (ratio,), _CLEAR_RATIO_SHARE))
    for ratios, share in steps:
        found = min((mean_ns(costs, rows, k), rows, k) for k in ratios for rows in SEAL_ROWS)
        chosen = found if found[0] < share * chosen[0] else chosen
    least_ns, seal_rows, kept = chosen
    arrived_rows = _most_arrived_rows(costs, seal_rows, kept, least_ns)
    return RunSizes(seal_rows, arrived_rows, min(_most_gridded_rows(costs, seal_rows), arrived_rows), kept)


def _most_arrived_rows(costs: OperationCosts, seal_rows: int, ratio: int, tailed_ns: float) -> int:
    """Return the most new rows of a push that cost less in the tail than as a run of their own.

    As a run they are as a tail of so many rows that no probe has scanned.
    """
    untailed = replace(costs, scanned_row_ns=0.0)
    cheap = (rows for rows in _PUSH_ROWS if mean_ns(untailed, rows, ratio) < tailed_ns)
    return min(next(cheap, seal_rows), seal_rows)


def _most_gridded_rows(costs: OperationCosts, seal_rows: int) -> int:
    """Return the most new rows of a push that cost less in the tail than in the bucket grid at once.

    In the tail a row is scanned, and goes into the grid with all others of the tail, as one batch that is sealed first.
    """
    sealed_ns = (costs.sealed_run_ns + costs.gridded_batch_ns) / seal_rows
    tailed_ns = seal_rows / 2 * costs.scanned_row_ns + sealed_ns
    return round(costs.gridded_batch_ns / tailed_ns)
