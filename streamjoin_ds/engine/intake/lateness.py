"""The lateness rule for one stream (ARCHITECTURE.md, "Late").

A tuple is late iff its event time is older than the largest event time before it *in its own stream's order*, minus the
stream's delay. That depends on the stream alone, not on how it is cut into batches. The query's watermark is never
ahead of this limit, except in a stream that was idle while the watermark advanced. In such a stream, a tuple that is
older than the watermark is late too. While the stream is behind, it holds the watermark where it is, so lateness still
does not depend on the batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamjoin_ds.engine.kernels.objects import Int64
from streamjoin_ds.errors import corrupt_state_error, whole_numbers
from streamjoin_ds.spec.columns import INT64_MIN, Mask
from streamjoin_ds.spec.time_zone import Rhythm

__all__ = ["StreamClock", "clock_facts", "clocks_of", "low_watermark"]


class StreamClock:
    """The largest event time of a stream so far, and the test which of its tuples are late.

    Parameters
    ----------
    delay_us : int
        The allowed delay in microseconds, >= 0.
    largest : int or None
        The largest event time so far, in microseconds; None before the first tuple.
    floor : int or None
        The query's watermark in microseconds: a tuple that is older is late. It decides only in a stream that was idle.
        None: not known.
    idle : bool
        Whether the stream is idle, and so does not hold the watermark.
    unmeasured : bool
        Whether the next record that moves the clock is measured against nothing (`ClockFacts.unmeasured`).
    by_partition : bool
        Whether the stream has many partitions or devices, whose own clocks judge elsewhere. Then `floor` alone decides
        here, and `low` takes the place of `largest` in the watermark.
    rhythm : tuple of int
        Of a stream with local times: how its times have come (`Rhythm`).

    Attributes
    ----------
    low : int or None
        The smallest of the times of the stream's partitions or devices, in microseconds, where `by_partition`. It may
        go back.
    """

    __slots__ = ("by_partition", "delay_us", "floor", "idle", "largest", "low", "rhythm", "unmeasured")

    def __init__(
        self,
        delay_us: int,
        largest: int | None = None,
        floor: int | None = None,
        *,
        idle: bool = False,
        unmeasured: bool = False,
        by_partition: bool = False,
        rhythm: tuple[int, ...] = (),
    ) -> None:
        self.by_partition = by_partition
        self.rhythm = rhythm
        self.low: int | None = None
        self.delay_us = delay_us
        self.largest = largest
        self.floor = floor
        self.idle = idle
        self.unmeasured = unmeasured

    def above(self, floor: int | None) -> StreamClock:
        """Return a copy with another watermark of the query."""
        found = StreamClock(self.delay_us, self.largest, floor, idle=self.idle, unmeasured=self.unmeasured)
        found.by_partition, found.rhythm, found.low = self.by_partition, self.rhythm, self.low
        return found

    @property
    def watermark(self) -> int | None:
        """The stream's watermark in microseconds: a later tuple that is older is late. None before the first tuple."""
        largest = self.low if self.by_partition else self.largest
        return None if largest is None else max(largest - self.delay_us, INT64_MIN)

    def split(self, times_us: Int64, before_us: Int64 | None = None) -> Mask:
        """Tell which of the next tuples are late, and advance the clock past them.

        Parameters
        ----------
        times_us : ndarray, shape (n,), int64
            Event times in the stream's order.
        before_us : ndarray, shape (n,), int64, optional
            Where devices have clocks: that which judges each tuple, in place of the largest event time before it.

        Returns
        -------
        ndarray, shape (n,), bool
            True where late.
        """
        times_us = np.asarray(times_us, dtype=np.int64)
        if not len(times_us):
            return np.zeros(0, dtype=np.bool_)
        # A push of one tuple: plain integers give the same answer in less time.
        if len(times_us) == 1 and before_us is None:
            limit, time_us = self._limit, times_us.item()
            self.largest = time_us if self.largest is None else max(self.largest, time_us)
            return np.array([time_us < limit])
        # The first tuple of a stream is compared with the smallest int64, and no time is older than that.
        largest = np.empty(len(times_us) + 1, dtype=np.int64)
        largest[0] = INT64_MIN if self.largest is None else self.largest
        largest[1:] = times_us
        np.maximum.accumulate(largest, out=largest)
        self.largest = int(largest[-1])
        judges = largest[:-1] if before_us is None else before_us
        late: Mask = times_us < np.maximum(judges, INT64_MIN + self.delay_us) - self.delay_us
        if self.floor is not None:
            late |= times_us < self.floor
        return late

    def late_in_part(self, times_us: Int64) -> Mask:
        """Tell which tuples of a part are late by the parts before it; the clock does not advance.

        Parameters
        ----------
        times_us : ndarray, shape (n,), int64
            Event times of tuples of the part that are not late within the part: some or all of them, in any order.
        """
        late: Mask = np.asarray(times_us, dtype=np.int64) < self._limit
        return late

    @property
    def _limit(self) -> int:
        """The event time, in microseconds, below which the next tuple is late."""
        judge = None if self.by_partition else self.largest
        low = INT64_MIN if judge is None else max(judge - self.delay_us, INT64_MIN)
        return low if self.floor is None else max(low, self.floor)

    def overtaken(self, late_us: Int64) -> int:
        """Return how many of these late tuples are late by the query's watermark alone."""
        return int(np.count_nonzero(self._overtaken(late_us)))

    def judges(self, late_us: Int64) -> Int64:
        """Return for each late tuple the time that made it late, in microseconds.

        It is the largest event time of the stream, or the query's watermark where the tuple is late by that alone.
        """
        largest = INT64_MIN if self.largest is None else self.largest
        floor = INT64_MIN if self.floor is None else self.floor
        times: Int64 = np.where(self._overtaken(late_us), floor, largest)
        return times

    def _overtaken(self, late_us: Int64) -> Mask:
        if self.by_partition:
            return np.ones(len(late_us), np.bool_)
        own = INT64_MIN if self.watermark is None else self.watermark
        mask: Mask = np.asarray(late_us, dtype=np.int64) >= own
        return mask

    def advance(self, largest: int | None) -> None:
        """Advance the clock past a part whose largest event time, late tuples included, is this; None: it has none."""
        if largest is not None and largest != INT64_MIN:
            self.largest = largest if self.largest is None else max(self.largest, largest)

    def part(self, times_us: Int64, part_largest: int | None) -> Mask:
        """Do `late_in_part`, then `advance`; return the answer of the first."""
        late = self.late_in_part(times_us)
        self.advance(part_largest)
        return late


def low_watermark(clocks: Sequence[StreamClock], before: int | None) -> int | None:
    """Return the query's watermark: the smallest of the streams that are not idle, but never less than `before`.

    It is `before` where all streams are idle, or where a stream that is not idle has had no tuple. None: not known yet.
    """
    lowest = None
    for clock in clocks:
        if not clock.idle:
            low = clock.watermark
            if low is None:
                return before
            lowest = low if lowest is None else min(lowest, low)
    return before if lowest is None or (before is not None and before > lowest) else lowest


def clock_facts(clocks: Sequence[StreamClock]) -> dict[str, list[int]]:
    """Return the clocks as lists of whole numbers, which `clocks_of` reads."""
    facts = {
        "known": [int(clock.largest is not None) for clock in clocks],
        "largest_us": [clock.largest or 0 for clock in clocks],
    }
    # Left out where no stream is idle: then the facts are those of earlier versions, which knew no idle streams.
    if any(clock.idle for clock in clocks):
        facts["idle"] = [int(clock.idle) for clock in clocks]
    if any(clock.unmeasured != clock.idle for clock in clocks):  # as `idle` says, where it is left out
        facts["unmeasured"] = [int(clock.unmeasured) for clock in clocks]
    if any(clock.rhythm for clock in clocks):
        facts["rhythm"] = [part for clock in clocks for part in Rhythm(*clock.rhythm)]
    watermark = low_watermark(clocks, clocks[0].floor)
    if watermark is not None and watermark != low_watermark([StreamClock(c.delay_us, c.largest) for c in clocks], None):
        facts["floor_us"] = [watermark]
    return facts


def clocks_of(facts: Mapping[str, Any], delays_us: Sequence[int]) -> list[StreamClock]:
    """Return the clocks that `clock_facts` described.

    Raises
    ------
    StateCorruptError
        These facts were not written by `clock_facts`.
    """
    count = len(delays_us)
    known, largest = (whole_numbers(facts, name, count) for name in ("known", "largest_us"))
    idle = whole_numbers(facts, "idle", count) if "idle" in facts else [0] * count
    unmeasured = whole_numbers(facts, "unmeasured", count) if "unmeasured" in facts else idle
    rhythms: list[tuple[int, ...]] = [()] * count
    if "rhythm" in facts:
        size = len(Rhythm())
        parts = whole_numbers(facts, "rhythm", count * size)
        rhythms = [tuple(parts[begin : begin + size]) for begin in range(0, len(parts), size)]
        if not all(map(Rhythm.is_one, rhythms)):
            raise corrupt_state_error()
    (floor,) = whole_numbers(facts, "floor_us", 1) if "floor_us" in facts else (None,)
    return [
        StreamClock(delay_us, value if has else None, floor, idle=bool(silent), unmeasured=bool(free), rhythm=rhythm)
        for delay_us, has, value, silent, free, rhythm in zip(
            delays_us, known, largest, idle, unmeasured, rhythms, strict=True
        )
    ]
