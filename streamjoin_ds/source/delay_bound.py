"""How many rows the next batch may have, so that no tuple waits longer than a bound (CellJoin, section 4.2.2).

A tuple that comes just after a batch began waits for that batch and for its own. So each may take half of the bound::

    a look      a look, batch 7 begins                 a look, batch 8 begins              a look
      │ . . . . . │──────────── batch 7 ─────────────────│──────────── batch 8 ──────────────│
                   ▲ a tuple comes: nobody looked since, so it is taken to have come now      ▲ it is committed
                   └───────────────────────── its delay: `DelayFacts.delay_us` of batch 9 ────┘

Spark's planner process calls `DelayBound` at each look. It decides where the batch ends. The offset records that
end, so no row of a result depends on the clock.

What a batch costs (`BatchCost`) is a fixed time and a time for each row, fitted to the batches that were measured last.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, ClassVar

from streamjoin_ds.duration import duration_us
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.position import PlainFacts

__all__ = ["FIRST_ROWS", "GROWTH", "LEAST_ROWS", "LOOK_AHEAD", "BatchCost", "DelayBound", "DelayFacts", "max_delay_us"]

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
# Least rows of a batch, however slow they seem: the join must go on.
LEAST_ROWS = 100
# Most rows of a batch, as a multiple of those of the largest one before it: the fitted line is trusted no further.
GROWTH = 4
# Rows that a look sees, as a multiple of those of the next batch. The look tells how many rows wait, and reads little
# that is not needed soon.
LOOK_AHEAD = 4
# The share of the time that is planned; the rest is for batches that take longer than expected.
_PLANNED = 0.9
# Where half of the bound is not enough, a batch's rows may take longer: the first factor times what the first of them
# has waited, but at most the second factor times a batch's fixed time. The larger of the two limits holds. By
# `_AT_FIRST` batches stay short; their rows get up to three quarters of the time. By `_AT_LAST`, which counts where
# rows wait long, they get up to 15/16 of the time. Still longer batches would gain little.
_AT_FIRST, _AT_LAST = (1.0, 3.0), (0.1, 15.0)


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


def max_delay_us(text: str) -> int:
    """Return the bound that a text asks for, in microseconds.

    Raises
    ------
    ArgumentError
        The text is not a duration, or is a duration of 0.
    """
    bound_us = duration_us(text, "max_delay")
    if not bound_us:
        msg = "max_delay must be longer than 0"
        raise ArgumentError(msg, name="max_delay", hint="for example 500ms; leave it out to have no bound")
    return bound_us


@dataclass(frozen=True, slots=True)
class DelayFacts(PlainFacts):
    """What was known of delays when a batch was planned under a `max_delay`. It is for people: no batch depends on it.

    Attributes
    ----------
    max_delay_us : int
        The bound.
    delay_us : int or None
        The longest that a tuple of the batch before may have waited, from when the source could see it to the end of
        that batch; None: this process planned no batch before.
    waiting_rows : int
        Records that the planner saw and left for later batches. There may be more.
    """

    max_delay_us: int
    delay_us: int | None = None
    waiting_rows: int = 0

    PART: ClassVar[str] = "delay"
    LATER: ClassVar[frozenset[str]] = frozenset(("delay_us",))

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values, keys in the order of the fields."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: int
    began_s: float
    waited_s: float


class DelayBound:
    """Decides how many rows each batch may have.

    Where the load or the machine makes the bound impossible to keep, small batches would make things worse: most of
    their time is the fixed time of a batch. So where rows have waited longer than the bound allows, batches grow until
    fewer rows wait.

    Parameters
    ----------
    max_delay_us : int
        How long a tuple may wait, from when the source can see it to the commit of its batch.
    interval_us : int
        The least time from the start of one batch to the next, if Spark keeps one; 0: the next follows at once.
    clock : callable
        Returns seconds and never goes back.
    """

    def __init__(self, max_delay_us: int, interval_us: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_us, self._interval_s, self._clock = max_delay_us, interval_us / 1e6, clock
        max_s = max_delay_us / 1e6
        self._share_s = min(max_s / 2, max(max_s - self._interval_s, 0.0))
        self._cost = BatchCost()
        self._running: _Batch | None = None
        self._is_first = True  # whether the running batch is the first
        self._was_early = False  # whether the batch before ended before its interval did
        self._delay_s: float | None = None  # of the batch before
        self._now_s = 0.0  # of this look
        # Looks that saw all records: the time, and how many records of each stream had come. The first entry is the
        # latest look whose records are all taken.
        self._looks: deque[tuple[float, tuple[int, ...]]] = deque()
        self._taken: tuple[int, ...] = ()

    def most_rows(self) -> int:
        """Return the most rows that a batch may have if it begins now. The batch before it has ended."""
        self._now_s = self._clock()
        if not self._looks:
            self._looks.append((self._now_s, ()))
        if self._running is not None:
            self._measured(self._running, self._now_s - self._running.began_s)
            self._running = None
        cost = self._cost
        if not cost.is_known:
            return GROWTH * cost.reach if self._was_early else cost.telling_rows
        late_s = max(min(waits * self._waited_s, fixed * cost.surely_fixed_s) for waits, fixed in (_AT_FIRST, _AT_LAST))
        rows = cost.rows_in(max(_PLANNED * self._share_s - cost.fixed_s, late_s))
        return int(max(min(rows, GROWTH * cost.reach), LEAST_ROWS))

    def looked(self, taken: Sequence[int], waiting: Sequence[int], *, saw_all: bool) -> None:
        """Take note of what is there, whether or not a batch begins.

        Parameters
        ----------
        taken : sequence of int
            For each stream the number of its next record.
        waiting : sequence of int
            For each stream how many records can be read from there on.
        saw_all : bool
            Whether there are no other records.
        """
        self._taken = tuple(taken)
        seen = tuple(place + count for place, count in zip(taken, waiting, strict=True))
        if saw_all:
            if len(self._looks) > 1 and self._looks[-1][1] == seen:
                self._looks.pop()  # nothing has come since
            self._looks.append((self._now_s, seen))
        self._forget()

    def begins(self, taken: Sequence[int], waiting_rows: int) -> DelayFacts:
        """Take note that a batch begins. Return what its offset says about delays.

        Parameters
        ----------
        taken : sequence of int
            For each stream the number of its next record after the batch.
        waiting_rows : int
            Records that were seen and are not in the batch.
        """
        rows = sum(taken) - sum(self._taken)
        self._running = _Batch(rows, self._now_s, self._waited_s if rows else 0.0)
        self._taken = tuple(taken)
        self._forget()
        delay_us = None if self._delay_s is None else round(self._delay_s * 1e6)
        return DelayFacts(self._max_us, delay_us, waiting_rows)

    @property
    def _waited_s(self) -> float:
        """How long the first record that is not taken may have waited: since the look before it came."""
        return self._now_s - self._looks[0][0]

    def _forget(self) -> None:
        while len(self._looks) > 1 and all(
            seen <= taken for seen, taken in zip(self._looks[1][1], self._taken, strict=True)
        ):
            self._looks.popleft()

    def _measured(self, batch: _Batch, took_s: float) -> None:
        self._delay_s = batch.waited_s + took_s
        if self._is_first:  # workers start and Java compiles: its time tells nothing about later batches
            self._is_first = False
            return
        # Spark may have waited for its interval to be over. Then only this is known: the batch took no longer.
        is_quicker = self._cost.is_known and took_s < self._cost.seconds(batch.rows)
        self._was_early = took_s <= self._interval_s
        if self._was_early and not is_quicker:
            self._cost.reaches(batch.rows)
        else:
            self._cost.add(batch.rows, took_s)
