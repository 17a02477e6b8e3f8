"""The position in a stream of many partitions: how far each of them has been read, and which of them are idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.source.offset import ClockFacts
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.waypoints import Waypoint, next_waypoints, waypoints_from
from streamjoin_ds.spec.ahead import AheadLimit

__all__ = [
    "MOST_PARTITIONS",
    "SEQ_BITS",
    "PartitionAt",
    "PartitionClock",
    "PartitionedPosition",
    "Told",
    "first_seq_of",
]

# A tuple's number is its partition's number, then its number within the partition in so many bits: 10**12 records.
SEQ_BITS = 40
# Partitions of a stream, at most. Their numbers fit beside `SEQ_BITS` in an int64.
MOST_PARTITIONS = 1 << (63 - SEQ_BITS)

_NAMES = {"number", "at", "time", "clock", "waypoints"}
# Waypoints of a partition in the time for which a key counts. One makes offsets small: a partition has two at most. Who
# has no keys reads twice as far back as it must at most, and only where a tuple may repeat one from there.
_PER_REACH = 1


def first_seq_of(number: int) -> int:
    """Return ``_seq`` of the first record of the partition of this number."""
    return number << SEQ_BITS


@dataclass(frozen=True, slots=True)
class PartitionAt:
    """How far a partition has been read, and what was decided about its clock.

    Attributes
    ----------
    number : int
        The partition's number in its stream. It was given when the partition was seen first, and it stays.
    at : Position
        The partition's own position.
    time_us : int or None
        The largest event time so far, in microseconds UTC; None where there is none.
    clock : ClockFacts
        Whether the partition is idle, and when it had records last.
    waypoints : tuple of Waypoint
        In a stream with a key of unique rows (`Stream.unique`): from where a reader gathers keys.
    """

    number: int
    at: Position
    time_us: int | None = None
    clock: ClockFacts = field(default_factory=ClockFacts)
    waypoints: tuple[Waypoint, ...] = ()

    @property
    def has_joined(self) -> bool:
        """Whether a record of the partition was read. A partition of which none was read holds nothing up."""
        return self.at.seq > 0

    def limited(self, ahead: AheadLimit | None) -> AheadLimit | None:
        """Return the stream's limit for records from here on: one that was idle is measured against nothing."""
        return None if ahead is None else AheadLimit(ahead.max_us, not (self.clock.idle or self.clock.unmeasured))

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values."""
        facts: dict[str, Any] = {"number": self.number, "at": self.at.to_facts()}
        if self.time_us is not None:
            facts["time"] = self.time_us
        marks = [one.to_facts() for one in self.waypoints]
        later = {"clock": self.clock.to_facts(), "waypoints": marks}
        return {**facts, **{name: told for name, told in later.items() if told}}


class PartitionClock(NamedTuple):
    """A partition at the end of a batch: its largest event time, its records of the batch, and whether it is idle."""

    name: str
    largest_us: int | None
    read: int
    is_idle: bool


@dataclass(frozen=True, slots=True)
class PartitionedPosition:
    """The position in a stream of many partitions.

    Parameters
    ----------
    seq : int
        The number of records of all partitions before this position. A part of a batch counts from where it begins in
        the plan's order: by partitions' numbers.
    partitions : dict of str to PartitionAt
        The partitions that were seen, by their names, in the order of their numbers. None ever leaves.
    """

    seq: int = 0
    partitions: Mapping[str, PartitionAt] = field(default_factory=dict)

    @property
    def low_us(self) -> int | None:
        """The smallest time of the partitions that are not idle. It decides the stream's watermark.

        None where one of them has had no event time, or where no partition has. It is the largest time of all where
        all of them are idle.
        """
        joined = [at for at in self.partitions.values() if at.has_joined]
        active = [at.time_us for at in joined if not at.clock.idle]
        known = [time_us for time_us in active if time_us is not None]
        return (min(known) if len(known) == len(active) else None) if active else self.largest_us

    @property
    def held_by(self) -> str | None:
        """The partition that decides `low_us`: the first without an event time, or the last in time; None: all idle."""
        active = {name: at for name, at in self.partitions.items() if at.has_joined and not at.clock.idle}
        return min(active, key=lambda name: (active[name].time_us is not None, active[name].time_us or 0), default=None)

    @property
    def idle(self) -> tuple[str, ...]:
        """The partitions that are idle."""
        return tuple(name for name, at in self.partitions.items() if at.clock.idle)

    @property
    def largest_us(self) -> int | None:
        """The largest event time of all partitions; None where there is none."""
        return max((at.time_us for at in self.partitions.values() if at.time_us is not None), default=None)

    def passed(self, start: PartitionedPosition, reach_us: int) -> PartitionedPosition:
        """Return the end of a batch with the waypoints of the partitions that have records in it.

        Parameters
        ----------
        start : PartitionedPosition
            Where the batch begins.
        reach_us : int
            How far behind a partition's largest event time a key still counts, in microseconds.
        """
        found = dict(self.partitions)
        for name, last in self.partitions.items():
            first = start.partitions.get(name)
            if first is not None and last.at.seq > first.at.seq:
                times = first.time_us, last.time_us
                marks = next_waypoints(first.waypoints, first.at.to_facts(), *times, reach_us, _PER_REACH)
                found[name] = replace(last, waypoints=marks)
        return replace(self, partitions=found)

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values."""
        return {"seq": self.seq, "partitions": {name: at.to_facts() for name, at in self.partitions.items()}}

    @classmethod
    def from_facts(
        cls, facts: object, stream: str, position: Callable[[str, object], Position] | None = None
    ) -> PartitionedPosition:
        """Return the position that `to_facts` wrote.

        Parameters
        ----------
        stream : str
            The stream's name, for errors.
        position : callable
            Returns the position of the partition of a name from its facts.

        Raises
        ------
        OffsetError
            The facts are others.
        """
        if not isinstance(facts, Mapping) or set(facts) != {"seq", "partitions"}:
            raise _malformed(stream, stream)
        seq, listed = facts["seq"], facts["partitions"]
        if type(seq) is not int or seq < 0 or not isinstance(listed, Mapping):
            raise _malformed(stream, "partitions")
        read = position or (lambda _, at: Told.of(at, stream))
        partitions = {}
        for name, one in listed.items():
            if not isinstance(name, str) or not isinstance(one, Mapping) or not {"number", "at"} <= set(one) <= _NAMES:
                raise _malformed(stream, "partitions")
            time_us = one.get("time")
            if type(one["number"]) is not int or not (time_us is None or type(time_us) is int):
                raise _malformed(stream, "partitions")
            clock = ClockFacts.from_facts(one.get("clock", {}))
            marks = waypoints_from(one.get("waypoints", []))
            partitions[name] = PartitionAt(one["number"], read(name, one["at"]), time_us, clock, marks)
        ordered = dict(sorted(partitions.items(), key=lambda item: item[1].number))
        numbers = {at.number for at in ordered.values()}
        if len(numbers) < len(ordered) or any(not 0 <= number < MOST_PARTITIONS for number in numbers):
            raise _malformed(stream, "partitions")
        return cls(seq, ordered)


@dataclass(frozen=True, slots=True)
class Told:
    """A partition's position as the offset tells it, for readers that have no input: its number of records."""

    seq: int
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, facts: object, stream: str) -> Told:
        """Return the position that these facts tell; raise `OffsetError` where they tell none."""
        if not isinstance(facts, Mapping) or type(facts.get("seq")) is not int:
            raise _malformed(stream, "at")
        return cls(facts["seq"], facts)

    def to_facts(self) -> dict[str, Any]:
        """Return the facts."""
        return dict(self.facts)


def _malformed(stream: str, name: str) -> OffsetError:
    msg = f"the logged offset of stream {stream} is malformed: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)
