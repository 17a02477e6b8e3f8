"""The position in a stream of many partitions: how far each of them has been read, and which of them are idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streamjoin_ds.errors import malformed_offset
from streamjoin_ds.source.idleness import ClockFacts, ahead_limit
from streamjoin_ds.source.position import Position, Waypoint, next_waypoints, waypoints_from
from streamjoin_ds.spec.event_time import AheadLimit

__all__ = [
    "MOST_PARTITIONS",
    "SEQ_BITS",
    "Forgotten",
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
        """Return the stream's limit for records from here on; see `ahead_limit`."""
        return None if ahead is None else ahead_limit(ahead.max_us, self.clock)

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values."""
        facts: dict[str, Any] = {"number": self.number, "at": self.at.to_facts()}
        if self.time_us is not None:
            facts["time"] = self.time_us
        marks = [one.to_facts() for one in self.waypoints]
        later = {"clock": self.clock.to_facts(), "waypoints": marks}
        return {**facts, **{name: told for name, told in later.items() if told}}

    @classmethod
    def from_facts(
        cls, facts: object, stream: str, name: str, position: Callable[[str, object], Position]
    ) -> PartitionAt:
        """Return what `to_facts` wrote of the partition of a name; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or not {"number", "at"} <= set(facts) <= _NAMES:
            raise malformed_offset(name="partitions", stream=stream)
        number, time_us = facts["number"], facts.get("time")
        if type(number) is not int or not 0 <= number < MOST_PARTITIONS or type(time_us) not in (int, type(None)):
            raise malformed_offset(name="partitions", stream=stream)
        clock = ClockFacts.from_facts(facts.get("clock", {}))
        return cls(number, position(name, facts["at"]), time_us, clock, waypoints_from(facts.get("waypoints", [])))


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What an offset says of the partitions that are forgotten (`ForgottenPartitions`).

    Attributes
    ----------
    blocks : tuple of (str, int)
        The names of the blocks that have them, the oldest first, with their rows. A partition may be in several.
    numbers : int
        The numbers of these partitions are below this one.
    time_us : int or None
        Their largest event time.
    """

    blocks: tuple[tuple[str, int], ...] = ()
    numbers: int = 0
    time_us: int | None = None

    @property
    def count(self) -> int:
        """How many there are, those that came back among them."""
        return sum(rows for _, rows in self.blocks)

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values; empty where none is forgotten."""
        if not self.blocks:
            return {}
        return {"blocks": [list(block) for block in self.blocks], "numbers": self.numbers, "time": self.time_us}

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> Forgotten:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if facts == {}:
            return cls()
        if not isinstance(facts, Mapping) or set(facts) != {"blocks", "numbers", "time"}:
            raise malformed_offset(name="forgotten", stream=stream)
        blocks, numbers, time_us = facts["blocks"], facts["numbers"], facts["time"]
        lists = blocks if isinstance(blocks, list) else [None]
        is_whole = all(isinstance(one, list) and [type(part) for part in one] == [str, int] for one in lists)
        if not is_whole or type(numbers) is not int or type(time_us) not in (int, type(None)):
            raise malformed_offset(name="forgotten", stream=stream)
        return cls(tuple((name, rows) for name, rows in blocks), numbers, time_us)


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
        The partitions that were seen and are not forgotten, by their names, in the order of their numbers.
    forgotten : Forgotten
        What is said of the others.
    """

    seq: int = 0
    partitions: Mapping[str, PartitionAt] = field(default_factory=dict)
    forgotten: Forgotten = field(default_factory=Forgotten)

    @property
    def next_number(self) -> int:
        """The number of the next partition that is seen first. None was ever given twice."""
        return max((self.forgotten.numbers, *(at.number + 1 for at in self.partitions.values())))

    def brings_back(self, end: PartitionedPosition) -> bool:
        """Whether a partition that was forgotten here is none any more at the end of a batch."""
        numbers = self.next_number
        return any(at.number < numbers and name not in self.partitions for name, at in end.partitions.items())

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
        times = (self.forgotten.time_us, *(at.time_us for at in self.partitions.values()))
        return max((time_us for time_us in times if time_us is not None), default=None)

    def passed(self, start: PartitionedPosition, reach_us: int, clock_us: int | None = None) -> PartitionedPosition:
        """Return the end of a batch with the waypoints of the partitions that have records in it.

        Parameters
        ----------
        start : PartitionedPosition
            Where the batch begins.
        reach_us : int
            How far behind a partition's largest event time a key still counts, in microseconds.
        clock_us : int, optional
            Where devices have clocks of their own, that of the stream, in place of the largest event times.
        """
        found = dict(self.partitions)
        for name, last in self.partitions.items():
            first = start.partitions.get(name)
            if first is not None and last.at.seq > first.at.seq:
                times = first.time_us, last.time_us if clock_us is None else clock_us
                marks = next_waypoints(first.waypoints, first.at.to_facts(), *times, reach_us, _PER_REACH)
                found[name] = replace(last, waypoints=marks)
        return replace(self, partitions=found)

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values."""
        facts: dict[str, Any] = {"seq": self.seq}
        facts["partitions"] = {name: at.to_facts() for name, at in self.partitions.items()}
        return {**facts, **({"forgotten": self.forgotten.to_facts()} if self.forgotten.blocks else {})}

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
        if not isinstance(facts, Mapping) or set(facts) - {"forgotten"} != {"seq", "partitions"}:
            raise malformed_offset(stream, stream)
        seq, listed = facts["seq"], facts["partitions"]
        if type(seq) is not int or seq < 0 or not isinstance(listed, Mapping):
            raise malformed_offset(name="partitions", stream=stream)
        read = position or (lambda _, at: Told.of(at, stream))
        partitions = {name: PartitionAt.from_facts(one, stream, name, read) for name, one in listed.items()}
        ordered = dict(sorted(partitions.items(), key=lambda item: item[1].number))
        if len({at.number for at in ordered.values()}) < len(ordered):
            raise malformed_offset(name="partitions", stream=stream)
        return cls(seq, ordered, Forgotten.from_facts(facts.get("forgotten", {}), stream))


@dataclass(frozen=True, slots=True)
class Told:
    """A partition's position as the offset tells it, for readers that have no input: its number of records."""

    seq: int
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, facts: object, stream: str) -> Told:
        """Return the position that these facts tell; raise `OffsetError` where they tell none."""
        if not isinstance(facts, Mapping) or type(facts.get("seq")) is not int:
            raise malformed_offset(name="at", stream=stream)
        return cls(facts["seq"], facts)

    def to_facts(self) -> dict[str, Any]:
        """Return the facts."""
        return dict(self.facts)
