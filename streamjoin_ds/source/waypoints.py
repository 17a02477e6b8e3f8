"""Waypoints: from which record of a stream a reader must gather keys, to know all that a tuple to come may repeat.

An offset has a few waypoints of each stream with a key of unique rows (`Stream.unique`). A waypoint is the start of an
earlier batch, with the largest event time before it. Where that is older than any key that counts, so is every key
before it. Waypoints decide nothing: gathering from an earlier one gives the same duplicates, and without any a reader
begins at the stream's first record. In a stream of partitions each partition has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.errors import malformed_offset

__all__ = ["Waypoint", "first_needed", "next_waypoints", "waypoints_from"]

_PER_REACH = 8  # waypoints in the time for which a key counts: a reader gathers at most an eighth more than it must


@dataclass(frozen=True, slots=True)
class Waypoint:
    """A place in a stream.

    Attributes
    ----------
    time_us : int
        The largest event time of all records before it, in microseconds.
    position : mapping
        The position, as plain JSON values.
    """

    time_us: int
    position: Mapping[str, Any]

    def to_facts(self) -> list[object]:
        """Return the waypoint as plain JSON values."""
        return [self.time_us, dict(self.position)]


def next_waypoints(
    waypoints: Sequence[Waypoint],
    start: Mapping[str, Any],
    start_us: int | None,
    end_us: int | None,
    reach_us: int,
    per_reach: int = _PER_REACH,
) -> tuple[Waypoint, ...]:
    """Return the waypoints of the offset at a batch's end.

    Parameters
    ----------
    waypoints : sequence of Waypoint
        Those of the offset at its start, the earliest first.
    start : mapping
        The position of its start.
    start_us, end_us : int or None
        The largest event times before its start and before its end; None where there is none.
    reach_us : int
        How far behind the largest event time a key still counts.
    per_reach : int
        Waypoints in the time for which a key counts.
    """
    found = list(waypoints)
    if start_us is not None and (not found or start_us > found[-1].time_us + reach_us // per_reach):
        found.append(Waypoint(start_us, start))
    if end_us is None:
        return tuple(found)
    needless = sum(one.time_us < end_us - reach_us for one in found) - 1  # all but the last of those that will do
    return tuple(found[max(needless, 0) :])


def first_needed(waypoints: Sequence[Waypoint], start_us: int | None, reach_us: int) -> Waypoint | None:
    """Return the waypoint from which a batch's reader gathers keys; None: from the stream's first record."""
    old = [one for one in waypoints if start_us is not None and one.time_us < start_us - reach_us]
    return old[-1] if old else None


def waypoints_from(facts: object) -> tuple[Waypoint, ...]:
    """Return the waypoints that `Waypoint.to_facts` wrote; raise `OffsetError` for anything else."""
    if not isinstance(facts, list):
        raise malformed_offset(name="waypoints")
    found = []
    for entry in facts:
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not int or type(entry[1]) is not dict:
            raise malformed_offset(name="waypoints")
        found.append(Waypoint(*entry))
    return tuple(found)
