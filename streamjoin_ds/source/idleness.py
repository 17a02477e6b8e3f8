"""Idleness: which streams have been silent for so long that they no longer hold the watermark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from streamjoin_ds.source.offset import ClockFacts
from streamjoin_ds.spec.stream import Stream

__all__ = ["Idleness", "after_silence", "lets_time_go_on"]


@dataclass(slots=True)
class Idleness:
    """Decides in Spark's planner process, by a clock; what it decides is written into the offset.

    The time that a stream is silent counts from its last record that this process saw, or from its own beginning: while
    nobody looked, a stream was not silent. A run that takes in what is there and stops is too short for that: there the
    time counts from the last record that any run saw.

    Parameters
    ----------
    streams : sequence of Stream
    clock : callable
        Seconds, never going back.
    wall : callable
        Seconds since 1970.
    """

    streams: Sequence[Stream]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    takes_what_is_there: bool = False
    _since: list[float] | None = field(default=None, init=False)

    def decided(self, before: Sequence[ClockFacts], arrived: Sequence[bool]) -> list[ClockFacts]:
        """What the end of a batch says of each stream's clock.

        Parameters
        ----------
        before : sequence of ClockFacts
            What its beginning says.
        arrived : sequence of bool
            Which streams have records that could be read now.
        """
        now, wall_s = self.clock(), int(self.wall())
        if self._since is None:
            self._since = [now] * len(self.streams)
            if self.takes_what_is_there:
                self._since = [now - max(wall_s - (wall_s if b.seen_s is None else b.seen_s), 0) for b in before]
        found = []
        for number, (stream, facts, has_records) in enumerate(zip(self.streams, before, arrived, strict=True)):
            if has_records:
                self._since[number] = now
            timeout_us = stream.idle_timeout_us
            if timeout_us is None:
                found.append(ClockFacts(max_ahead_us=stream.max_ahead_us))
                continue
            silent_us = (now - self._since[number]) * 1e6
            idle = not has_records and (facts.idle or silent_us >= timeout_us)
            seen_s = wall_s if has_records or facts.seen_s is None else facts.seen_s
            found.append(ClockFacts(idle, seen_s, stream.max_ahead_us))
        return found


def after_silence(
    before: Sequence[ClockFacts], after: Sequence[ClockFacts], has_time: Sequence[bool]
) -> list[ClockFacts]:
    """`after`, with whether a stream's first event time since it was idle is still to come.

    Parameters
    ----------
    has_time : sequence of bool
        Whether any of a stream's records of the batch has an event time.
    """
    found = []
    for then, now, timed in zip(before, after, has_time, strict=True):
        waits = now.max_ahead_us is not None and not now.idle and (then.idle or then.unmeasured) and not timed
        found.append(replace(now, unmeasured=waits))
    return found


def lets_time_go_on(before: Sequence[ClockFacts], after: Sequence[ClockFacts]) -> bool:
    """Whether a batch without a record is worth its while: a stream has become idle, and not all are."""
    newly = any(now.idle and not then.idle for then, now in zip(before, after, strict=True))
    return newly and not all(now.idle for now in after)
