"""Idleness: which streams have been silent for their `idle_timeout`, and so no longer hold the watermark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from streamjoin_ds.source.offset import ClockFacts
from streamjoin_ds.spec.stream import Stream

__all__ = ["Idleness", "after_silence", "lets_time_go_on"]


@dataclass(slots=True)
class Idleness:
    """The decision which streams are idle. Spark's planner process takes it by a clock and logs it in the offset.

    A stream's silence counts from the last time that this process saw records of it, or from the process's first look:
    while nobody looked, a stream was not silent. A run that takes what is there and stops is too short for that. There
    the silence counts from the last time that any run saw records.

    Parameters
    ----------
    streams : sequence of Stream
    clock : callable
        Returns seconds and never goes back.
    wall : callable
        Returns seconds since 1970.
    takes_what_is_there : bool
        Whether this run takes what is there and stops.
    """

    streams: Sequence[Stream]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    takes_what_is_there: bool = False
    _since: list[float] | None = field(default=None, init=False)

    def decided(self, before: Sequence[ClockFacts], arrived: Sequence[bool]) -> list[ClockFacts]:
        """Return what the offset at the end of a batch says of each stream's clock.

        Parameters
        ----------
        before : sequence of ClockFacts
            What the offset at the beginning of the batch says.
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
    """Return `after` with `unmeasured` set where a stream that was idle has had no event time since.

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
    """Whether a batch without records is worth planning: a stream has become idle, and not all streams are idle."""
    newly = any(now.idle and not then.idle for then, now in zip(before, after, strict=True))
    return newly and not all(now.idle for now in after)
