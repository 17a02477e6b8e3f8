"""What a batch costs: a fixed time and a time for each row, fitted to the batches that were measured last."""

from __future__ import annotations

import statistics
from collections import deque
from itertools import combinations

__all__ = ["FIRST_ROWS", "BatchCost"]

# Rows of the first batches, while nothing is known.
FIRST_ROWS = 2_000
# Batches that are fitted, older ones being forgotten; and how many of the last of them give the fixed time.
_FITTED, _LAST = 32, 5
# Two batches tell the time of a row if their rows differ by at least this share of the reach, and this number.
_APART, _LEAST_APART = 1 / 8, 500
# The cost has changed where so many batches in a row took longer than expected by this factor, or all shorter.
_CHANGED, _FAR = 3, 1.25
# Factors by which the reach falls, and the least time rises, with each batch: old batches count less.
_REACH_KEPT, _LEAST_RISES = 0.99, 1.01


class BatchCost:
    """The time of a batch as ``fixed_s + row_s * rows``.

    The time of a row is the median of the slopes between any two of the fitted batches, each weighed by how far apart
    they are (Theil 1950, Sen 1968): single slow batches do not move it. While all batches are of about one size it
    stays what it was. The fixed time is the median of what the rows leave of the last batches' times. So the line
    follows at once where both times change together; the batches from before the change are then forgotten.

    Attributes
    ----------
    fixed_s, row_s : float
        Seconds that each batch takes whatever it holds, and that each of its rows adds. Both are at least 0.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_FITTED)
        self._slope: float | None = None
        self._reach = float(FIRST_ROWS)
        self._least_s = float("inf")
        self._far = 0  # batches in a row that took longer than expected; below 0: that were quicker
        self.fixed_s = self.row_s = 0.0

    @property
    def is_known(self) -> bool:
        """Whether batches of unlike sizes were measured."""
        return self._slope is not None

    @property
    def reach(self) -> int:
        """How many rows the largest batch had, where old batches count less; at least `FIRST_ROWS`."""
        return int(self._reach)

    @property
    def surely_fixed_s(self) -> float:
        """The fixed time, but at most the time of the quickest batch, where old batches count less.

        Where all batches are long, the line alone says little about how short one could be.
        """
        return min(self.fixed_s, self._least_s)

    def reaches(self, rows: int) -> None:
        """Take note that a batch had so many rows."""
        self._reach = max(rows, self._reach * _REACH_KEPT, FIRST_ROWS)

    def add(self, rows: int, seconds: float) -> None:
        """Add a measured batch to the fit."""
        self.reaches(rows)
        self._batches.append((rows, seconds))
        self._least_s = min(seconds, self._least_s * _LEAST_RISES)
        self._forget_if_changed(rows, seconds)
        apart = max(self._reach * _APART, _LEAST_APART)
        slopes = [
            ((late[1] - early[1]) / (late[0] - early[0]), abs(late[0] - early[0]))
            for early, late in combinations(self._batches, 2)
            if abs(late[0] - early[0]) >= apart
        ]
        if slopes:
            self._slope = max(_weighted_median(slopes), 0.0)
        last = list(self._batches)[-_LAST:]
        self.row_s = self._slope or 0.0
        self.fixed_s = statistics.median(seconds - self.row_s * rows for rows, seconds in last)
        if self.fixed_s < 0:
            self.fixed_s, self.row_s = 0.0, statistics.median(seconds / max(rows, 1) for rows, seconds in last)

    def _forget_if_changed(self, rows: int, seconds: float) -> None:
        expected_s = self.seconds(rows)
        if self._slope is None or expected_s / _FAR <= seconds <= expected_s * _FAR:
            self._far = 0
            return
        step = 1 if seconds > expected_s else -1
        self._far = self._far + step if self._far * step > 0 else step
        if abs(self._far) >= _CHANGED:
            self._far = 0
            while len(self._batches) > _CHANGED:
                self._batches.popleft()
            self._least_s = min(seconds for _, seconds in self._batches)

    def seconds(self, rows: int) -> float:
        """Return how long a batch of so many rows is expected to take."""
        return self.fixed_s + self.row_s * rows

    def rows_in(self, seconds: float) -> float:
        """Return how many rows take so long, beside the fixed time."""
        return seconds / self.row_s if self.row_s > 0 else float("inf") if seconds > 0 else 0.0

    @property
    def telling_rows(self) -> int:
        """How many rows the next batch may have so that its time tells more, where `is_known` is false.

        That is more than were measured and not fewer: batches become quicker while Java warms up, and if they became
        smaller too, the difference would look like the time of the rows.
        """
        most = max((rows for rows, _ in self._batches), default=0)
        return FIRST_ROWS if most < FIRST_ROWS // 2 else 2 * most


def _weighted_median(pairs: list[tuple[float, int]]) -> float:
    pairs.sort()
    half, passed = sum(weight for _, weight in pairs) / 2, 0
    for value, weight in pairs:
        passed += weight
        if passed >= half:
            return value
    return pairs[-1][0]
