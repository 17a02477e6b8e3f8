"""An independent count of a join's results: it uses NumPy alone, none of the engine's code, and no index but a sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin_ds.spec import Band, Join

__all__ = ["count_matches"]

_PAIRS_AT_ONCE = 1 << 22  # candidates that are tested at once; it bounds the memory
# Cells are this much wider than half a band, so that rounding never puts two values that match two cells apart.
_WIDER = 1 + 1e-6


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule ``lo <= left - right <= hi`` on two arrays of one type, int64 or float64."""

    left: np.ndarray
    right: np.ndarray
    lo: float
    hi: float

    def holds(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        difference = self.left[left] - self.right[right]
        held: np.ndarray = (difference >= self.lo) & (difference <= self.hi)
        return held

    @property
    def width(self) -> float:
        return max((self.hi - self.lo) / 2 * _WIDER, 1e-9)

    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells of both sides; values that match are at most one cell apart."""
        shift = (self.hi + self.lo) / 2
        least = min(float(self.left.min()) - shift, float(self.right.min()))
        sides = (self.left - shift, self.right)
        return tuple(np.floor((side - least) / self.width).astype(np.int64) + 1 for side in sides)  # type: ignore[return-value]


def count_matches(join: Join, left: pa.Table, right: pa.Table) -> int:
    """Return how many pairs of two streams satisfy the bands and the window; null and NaN keys match nothing.

    Parameters
    ----------
    join : Join
        A join of two streams; its predicates are bands between the first and the second.
    left, right : pyarrow.Table
        All tuples of the streams, with the columns that the join compares; the event time is a timestamp in
        microseconds.
    """
    bands = [predicate for predicate in join.predicates if isinstance(predicate, Band)]
    assert len(bands) == len(join.predicates), "the workloads have bands only"
    assert all(band.left.stream == join.names[0] for band in bands), "written from the first stream to the second"
    left = _comparable(left, [band.left.name for band in bands])
    right = _comparable(right, [band.right.name for band in bands])
    if not left.num_rows or not right.num_rows:
        return 0
    times = [_times(table, stream.time) for table, stream in zip((left, right), join.streams, strict=True)]
    rules = [_Rule(times[0], times[1], -join.window.extent(0), join.window.extent(1))]
    for band in bands:
        numbers = _numbers(left, band.left.name), _numbers(right, band.right.name)
        rules.append(_Rule(*numbers, float(band.lo), float(band.hi)))  # type: ignore[arg-type]
    return _counted(rules)


def _times(table: pa.Table, name: str) -> np.ndarray:
    times: np.ndarray = table[name].cast(pa.int64()).to_numpy()
    return times


def _comparable(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows that can match: null and NaN match nothing, nor does infinity (no difference is in a band)."""
    keep = np.ones(table.num_rows, bool)
    for name in names:
        keep &= np.isfinite(table[name].cast(pa.float64()).fill_null(np.nan).to_numpy())
    return table if keep.all() else table.filter(pa.array(keep))


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = table[name].cast(pa.float64()).to_numpy()
    return numbers


def _counted(rules: Sequence[_Rule]) -> int:
    """Return how many pairs satisfy all rules.

    The candidates of a left tuple lie in the 3 x 3 cells around its own, by the two rules that make the most cells.
    """
    by_fineness = sorted((rule.cells() for rule in rules), key=lambda cells: -max(int(side.max()) for side in cells))
    (left_a, right_a), (left_b, right_b) = by_fineness[0], by_fineness[1 % len(by_fineness)]
    row = int(max(left_b.max(), right_b.max())) + 2
    right_keys = right_a * row + right_b
    order = np.argsort(right_keys, kind="stable")
    sorted_keys = right_keys[order]
    left_keys = left_a * row + left_b
    left_order = np.argsort(left_keys, kind="stable")
    left_keys = left_keys[left_order]
    total = 0
    for step in (-row, 0, row):
        # The three cells of a row lie side by side in the sorted keys.
        begin = np.searchsorted(sorted_keys, left_keys + (step - 1), "left")
        end = np.searchsorted(sorted_keys, left_keys + (step + 1), "right")
        total += _tested(rules, _Ranges(left_order, order, begin, end - begin))
    return total


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Candidates: the row ``left[i]`` with each of ``right[begin[i] : begin[i] + counts[i]]``."""

    left: np.ndarray
    right: np.ndarray
    begin: np.ndarray
    counts: np.ndarray

    def pairs(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the row numbers of both sides of all candidates of the left rows at ``[first, last)``."""
        counts = self.counts[first:last]
        left = np.repeat(self.left[first:last], counts)
        within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        return left, self.right[np.repeat(self.begin[first:last], counts) + within]


def _tested(rules: Sequence[_Rule], candidates: _Ranges) -> int:
    ends = np.cumsum(candidates.counts)
    total, first = 0, 0
    while first < len(ends):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + _PAIRS_AT_ONCE, "right")), first + 1)
        left, right = candidates.pairs(first, last)
        hits = np.ones(len(left), bool)
        for rule in rules:
            hits &= rule.holds(left, right)
        total += int(np.count_nonzero(hits))
        first = last
    return total
