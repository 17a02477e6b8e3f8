"""Idleness: which streams have been silent for their `idle_timeout`, and so no longer hold the watermark."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from streamjoin_ds.source.position import PlainFacts
from streamjoin_ds.spec.event_time import AheadLimit
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["ClockFacts", "Idleness", "after_silence", "ahead_limit", "lets_time_go_on"]


@dataclass(frozen=True, slots=True)
class ClockFacts(PlainFacts):
    """What was decided about a stream's clock when a batch was planned. A replay uses the same decisions.

    Attributes
    ----------
    idle : bool
        Whether the stream is idle: it does not hold the watermark.
    seen_s : int or None
        When the stream had records last, in seconds since 1970 of the planner's clock. None where the stream has no
        `idle_timeout`.
    max_ahead_us : int or None
        How far a record of the batch may be ahead of its stream, in microseconds; None for no limit.
    unmeasured : bool
        Whether the stream's next record that moves its clock is measured against nothing: the stream was idle, and none
        has moved it since.
    """

    idle: bool = False
    seen_s: int | None = None
    max_ahead_us: int | None = None
    unmeasured: bool = False

    PART: ClassVar[str] = "clocks"
    LATER: ClassVar[frozenset[str]] = frozenset(("idle", "seen_s", "max_ahead_us", "unmeasured"))


@dataclass(slots=True)
class Idleness:
    """The decision which streams are idle. Spark's planner process takes it by a clock and logs it in the offset.

    A stream's silence counts from the last time that this process saw records of it, or from the process's first look,
    until it looks again: while nobody looked, a stream was not silent. A look at all streams may take long where one of
    them is slow, and the others go on meanwhile. A run that takes what is there and stops is too short for that. There
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
    _began: float | None = field(default=None, init=False)
    _since: dict[tuple[int, str], float] = field(default_factory=dict, init=False)

    def begin_look(self) -> None:
        """Note that the streams are looked at from now on: what the next decisions are about."""
        self._began = self.clock()

    @property
    def began(self) -> float:
        """When the look began that is decided about, by `clock`; now, where none was noted."""
        return self.clock() if self._began is None else self._began

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
        pairs = enumerate(zip(before, arrived, strict=True))
        return [self._of((number, ""), facts, has_records, now, wall_s) for number, (facts, has_records) in pairs]

    def decided_of(
        self, stream: int, before: Mapping[str, ClockFacts], arrived: Mapping[str, bool], moved: Mapping[str, bool]
    ) -> dict[str, ClockFacts]:
        """Return what the offset says of the clocks of a stream's partitions, by their names; see `decided`.

        The limit for records from the future is the stream's, and stands in its own clock.

        Parameters
        ----------
        stream : int
            The stream's number.
        before, arrived, moved : mapping
            For each partition that has joined: its clock, whether it has records that could be read now, and whether
            the batch moves its largest event time.
        """
        now, wall_s = self.clock(), int(self.wall())
        for key in [key for key in self._since if key[0] == stream and key[1] and key[1] not in before]:
            del self._since[key]  # it is forgotten
        found = [self._of((stream, name), before[name], arrived[name], now, wall_s) for name in before]
        found = after_silence(list(before.values()), found, [moved[name] for name in before])
        return {name: replace(clock, max_ahead_us=None) for name, clock in zip(before, found, strict=True)}

    def _of(self, key: tuple[int, str], before: ClockFacts, has_records: bool, now: float, wall_s: int) -> ClockFacts:
        stream = self.streams[key[0]]
        if key not in self._since:
            away_s = wall_s - (wall_s if before.seen_s is None else before.seen_s)
            self._since[key] = now - max(away_s, 0) * self.takes_what_is_there
        if has_records:
            self._since[key] = now
        timeout_us = stream.idle_timeout_us
        if timeout_us is None:
            return ClockFacts(max_ahead_us=stream.max_ahead_us)
        silent_us = (self.began - self._since[key]) * 1e6
        idle = not has_records and (before.idle or silent_us >= timeout_us)
        seen_s = wall_s if has_records or before.seen_s is None else before.seen_s
        return ClockFacts(idle, seen_s, stream.max_ahead_us)


def after_silence(before: Sequence[ClockFacts], after: Sequence[ClockFacts], moved: Sequence[bool]) -> list[ClockFacts]:
    """Return `after` with `unmeasured` set where nothing has moved the clock of a stream since it was idle.

    Parameters
    ----------
    moved : sequence of bool
        Whether the batch moves a stream's largest event time.
    """
    found = []
    for then, now, goes_on in zip(before, after, moved, strict=True):
        waits = now.max_ahead_us is not None and not now.idle and (then.idle or then.unmeasured) and not goes_on
        found.append(replace(now, unmeasured=waits))
    return found


def ahead_limit(max_us: int | None, before: ClockFacts) -> AheadLimit | None:
    """Return the limit for a batch, given the stream's clock before it. A stream that was idle is not measured."""
    return None if max_us is None else AheadLimit(max_us, not (before.idle or before.unmeasured))


def lets_time_go_on(before: Sequence[ClockFacts], after: Sequence[ClockFacts]) -> bool:
    """Whether a batch without records is worth planning: a stream has become idle, and not all streams are idle."""
    newly = any(now.idle and not then.idle for then, now in zip(before, after, strict=True))
    return newly and not all(now.idle for now in after)
