"""The plan of a batch: where it ends, and what else the source decides about it.

A batch is a prefix of what is left of one order of all streams' records. Pacing moves the ends of batches and changes
nothing else: a stream is read as fast as possible, or event time runs at a multiple of a clock's speed.

`batch_marks` says how far the streams were when half, a quarter, an eighth ... of a batch's time was left::

    begin ──────────────────────┬────────────┬─────┬──┬┬ end
                               1/2          1/4   1/8

A batch may be longer than the half-lives of the estimates of rates. If the rates change within it, the batch as a whole
has rates in between, which no stream ever had. Its last pieces have the new ones.

The JSON of a `BatchPlan` is the offset, whose text Spark compares and logs. A replay does a batch by the plan that is
logged, whatever clocks, files and settings say by then. A new fact about a batch is a field of `BatchPlan` and a row of
`_PARTS`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from streamjoin_ds.errors import ArgumentError, OffsetError, malformed_offset
from streamjoin_ds.plan.plan import USUAL_SIZING, BlockSizing
from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.source.device_clocks import DeviceClocks
from streamjoin_ds.source.device_feed import DeviceFeed, DevicePosition
from streamjoin_ds.source.feed import BacklogFacts, Feed, Frontier, first_cut
from streamjoin_ds.source.idleness import ClockFacts
from streamjoin_ds.source.layout_rule import LayoutFacts, Progress
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import PlainFacts, Position, Waypoint, next_waypoints, waypoints_from

__all__ = [
    "OFFSET_VERSION",
    "BatchPlan",
    "Pacing",
    "TableVersion",
    "batch_marks",
    "marked_ends",
    "parse_pace",
    "rows_of_prefix",
    "versions_from",
    "versions_told",
]

_MAX_SPEED = 1e9  # largest speed that the option accepts, in seconds of event time per second
# How often the rest of a batch is halved. The last piece is 1/256 of the batch: a quarter of the shortest half-life
# (1/64 of a window), if the batch is as long as a window.
_HALVINGS = 8
_Fact = TypeVar("_Fact")


def rows_of_prefix(frontiers: Sequence[Frontier], limit: int, horizon_us: int | None = None) -> list[int]:
    """Return how many records of each stream are among the first `limit` of all.

    All records are ordered by the running maximum of the event time in their own stream, then by the stream's number,
    then by their own number. Any cut leaves the same sequence, so the batch size cannot change what is joined. A batch
    holds records of about the same time from each stream, so that windows meet.

    Parameters
    ----------
    frontiers : sequence of Frontier
        One for each stream. Each knows at least `limit` records, or all there are, or is cut: then the batch ends
        there. A stream without records now does not hold the others back.
    limit : int
        Number of records in the batch: exactly so many, or all there are.
    horizon_us : int, optional
        Take only records whose running maximum is <= this, in microseconds UTC (pacing).

    Returns
    -------
    list of int
        One number for each stream. Their sum is at most `limit`.
    """
    cut = first_cut(frontiers)
    if cut is not None:
        horizon_us = cut if horizon_us is None else min(horizon_us, cut)
    if horizon_us is not None:
        available = [frontier.rows_until(horizon_us) for frontier in frontiers]
    else:
        available = [frontier.rows for frontier in frontiers]
    if sum(available) <= limit:
        return available
    ends = [time for frontier in frontiers for time in (frontier.first_time(), frontier.last_time())]
    times = [time for time in ends if time is not None]
    # Search the smallest time up to which there are more records than fit. The cut lies among the records of that time.
    low, high = min(times) - 1, max(times)
    while high - low > 1:
        middle = (low + high) // 2
        if _rows(frontiers, available, middle) > limit:
            high = middle
        else:
            low = middle
    rows = [min(frontier.rows_until(low), most) for frontier, most in zip(frontiers, available, strict=True)]
    left = limit - sum(rows)
    for number, frontier in enumerate(frontiers):
        more = min(left, min(frontier.rows_until(high), available[number]) - rows[number])
        rows[number] += more
        left -= more
    return rows


def _rows(frontiers: Sequence[Frontier], available: Sequence[int], ts: int) -> int:
    return sum(min(frontier.rows_until(ts), most) for frontier, most in zip(frontiers, available, strict=True))


def parse_pace(text: str) -> float | None:
    """Return the speed of event time that a text asks for; None for ``"max"``, as fast as possible.

    A speed of 1 is real time.

    Raises
    ------
    ArgumentError
        The text is neither ``"max"`` nor a number above 0 and at most 10^9.
    """
    if text.strip().lower() == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed <= _MAX_SPEED:
        msg = "the option pace is neither max nor a number above 0"
        raise ArgumentError(
            msg, name="pace", hint="max, or a speed: 1 is real time, 60 is a minute of event time a second"
        )
    return speed


@dataclass(slots=True)
class Pacing:
    """The event time up to which records may be read now.

    Parameters
    ----------
    speed : float or None
        Microseconds of event time per microsecond of the clock; None for no limit.
    clock : callable
        Returns seconds and never goes back.
    """

    speed: float | None
    clock: Callable[[], float] = time.monotonic
    _origin: tuple[float, int] | None = field(default=None, init=False)

    def horizon_us(self, first_us: int | None) -> int | None:
        """Return the largest event time that is due, in microseconds UTC; None for no limit.

        Parameters
        ----------
        first_us : int or None
            Event time of the next tuple of all streams; None where there is none. The clock starts at the first call
            that gives one. Before that call there is no limit.
        """
        if self.speed is None:
            return None
        now = self.clock()
        if self._origin is None:
            if first_us is None:
                return None
            self._origin = (now, first_us)
        started, event_us = self._origin
        return event_us + int((now - started) * self.speed * 1e6)


def batch_marks(begin: Progress, end: Progress, frontiers: Sequence[Frontier], rows: Sequence[int]) -> list[Progress]:
    """Return how far the streams are at the begin of a batch, at some times within it, and at its end.

    Parameters
    ----------
    begin, end : Progress
        The boundaries of the batch.
    frontiers : sequence of Frontier
        For each stream the records from `begin` on.
    rows : sequence of int
        How many of them the batch takes.

    Returns
    -------
    list of Progress
        In order; nothing but the boundaries where the batch's time is not known, or is nothing. Rows and times between
        the marks add up to those of the batch.
    """
    since_us, until_us = begin.latest_us, end.latest_us
    if None in begin.times_us or since_us is None or until_us is None:
        return [begin, end]
    marks = [begin]
    for halvings in range(1, _HALVINGS + 1):
        at_us = until_us - ((until_us - since_us) >> halvings)
        if at_us >= until_us:
            break
        pairs = zip(begin.seqs, frontiers, rows, strict=True)
        seqs = tuple(seq + min(frontier.rows_until(at_us), count) for seq, frontier, count in pairs)
        times = zip(begin.times_us, end.times_us, strict=True)
        marks.append(Progress(seqs, tuple(_between(at_us, *pair) for pair in times)))
    return [*marks, end]


def _between(at_us: int, low_us: int | None, high_us: int | None) -> int | None:
    """Return a time, but not before the lower nor after the higher of two others."""
    return None if low_us is None or high_us is None else max(low_us, min(at_us, high_us))


def marked_ends(
    feeds: Sequence[Feed[Any]],
    reaches_us: Sequence[int | None],
    before: Sequence[Sequence[Waypoint]],
    starts: Sequence[Position],
    ends: Sequence[Position],
) -> tuple[list[Position], list[tuple[Waypoint, ...]]]:
    """Return each stream's end of a batch, and its waypoints there.

    A stream without a key, which has no reach, has no waypoints. Those of partitions stand in their positions. The
    arguments have an entry for each stream; `next_waypoints` says which.
    """
    marked: list[Position] = []
    passed: list[tuple[Waypoint, ...]] = []
    for feed, reach_us, own, start, end in zip(feeds, reaches_us, before, starts, ends, strict=True):
        marks: tuple[Waypoint, ...] = ()
        if isinstance(feed, PartitionedFeed):
            assert isinstance(end, PartitionedPosition)
            end = feed.forgetting(end)
        if reach_us is not None and isinstance(feed, DeviceFeed):
            assert isinstance(start, DevicePosition)
            assert isinstance(end, DevicePosition)
            end, marks = feed.marked(own, start, end, reach_us)
        elif reach_us is not None and isinstance(end, PartitionedPosition):
            assert isinstance(start, PartitionedPosition)
            end = end.passed(start, reach_us)
        elif reach_us is not None:
            marks = next_waypoints(own, start.to_facts(), feed.time_before(start), feed.time_before(end), reach_us)
        marked.append(end)
        passed.append(marks)
    return marked, passed


@dataclass(frozen=True, slots=True)
class TableVersion(PlainFacts):
    """One version of a table.

    Attributes
    ----------
    version : str
        Its name: the version of a Delta table, or the digest of a file.
    block : str
        The name of the block under the checkpoint that holds its rows, which carries their checksum.
    rows : int
        How many rows the block has.
    """

    version: str
    block: str
    rows: int

    PART: ClassVar[str] = "tables"


def versions_told(versions: Mapping[str, TableVersion]) -> dict[str, Any]:
    """Return versions by the tables' names as plain JSON values."""
    return {name: version.to_facts() for name, version in versions.items()}


def versions_from(facts: object) -> dict[str, TableVersion]:
    """Return what `versions_told` wrote; raise `OffsetError` for anything else."""
    if not isinstance(facts, Mapping):
        raise malformed_offset(name="tables")
    return {str(name): TableVersion.from_facts(of) for name, of in facts.items()}


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch as it was planned: where it ends, and what was decided on the way there.

    Attributes
    ----------
    names : tuple of str
        The streams.
    positions : tuple of mapping
        Each stream's position at the batch's end as plain JSON values. Each feed reads its own.
    clocks : tuple of ClockFacts
        What was decided about each stream's clock.
    held_back_bytes : tuple of int
        The bytes of each stream's last line that was unfinished when the batch was planned. They are for people, and so
        are `delay` and `backlog`: no batch depends on these three.
    layout : LayoutFacts
    delay : DelayFacts or None
        None where there is no `max_delay`.
    backlog : BacklogFacts
    tables : mapping of str to TableVersion
        The version of each table that the batch joins.
    waypoints : tuple of tuple of Waypoint
        Those of each stream.
    sizing : BlockSizing
    """

    names: tuple[str, ...]
    positions: tuple[Mapping[str, Any], ...]
    clocks: tuple[ClockFacts, ...] = ()
    held_back_bytes: tuple[int, ...] = ()
    layout: LayoutFacts = field(default_factory=LayoutFacts)
    delay: DelayFacts | None = None
    backlog: BacklogFacts = field(default_factory=BacklogFacts)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    waypoints: tuple[tuple[Waypoint, ...], ...] = ()
    sizing: BlockSizing = USUAL_SIZING

    def __post_init__(self) -> None:
        streams = len(self.names)
        object.__setattr__(self, "clocks", self.clocks or (ClockFacts(),) * streams)
        object.__setattr__(self, "held_back_bytes", self.held_back_bytes or (0,) * streams)
        object.__setattr__(self, "waypoints", self.waypoints or ((),) * streams)

    def clocks_of_devices(self, stream: int) -> DeviceClocks | None:
        """Return the clocks of a stream's devices at the batch's end; None where they have none.

        Raises
        ------
        OffsetError
            The position's facts are others.
        """
        facts = self.positions[stream].get("devices")
        return None if facts is None else DeviceClocks.from_facts(facts, self.names[stream])

    @property
    def devices(self) -> int | None:
        """How many devices hold their streams' clocks; None where no stream has devices."""
        counts = [len(at["devices"]["names"]) - len(at["devices"].get("idle", ())) for at in self._with_devices]
        return sum(counts) if counts else None

    @property
    def idle_devices(self) -> int | None:
        """How many devices became idle with the batch; None where no stream has devices."""
        counts = [len(at["devices"].get("silenced", ())) for at in self._with_devices]
        return sum(counts) if counts else None

    @property
    def _with_devices(self) -> list[Mapping[str, Any]]:
        return [at for at in self.positions if "devices" in at]

    def to_offset(self) -> dict[str, Any]:
        """Return the plan as plain JSON values, of which each batch has one text."""
        streams = dict(zip(self.names, self.positions, strict=True))
        told = {part: _plain(getattr(self, name), self.names) for name, part in _PARTS.items()}
        parts = [part for part, facts in told.items() if facts]
        later = {part.key: told[part] for part in parts}
        partitions = [at for facts in streams.values() for at in facts.get("partitions", {}).values()]
        within = {  # what a part or a position may hold since a later version
            3: any("unmeasured" in clock for clock in later.get("clocks", {}).values()),
            6: self.layout.epochs is not None and self.layout.epochs.has_ranges,
            7: any("partitions" in facts for facts in streams.values()),
            10: any("waypoints" in at for at in partitions),
            12: any("forgotten" in facts for facts in streams.values()),
            13: any("devices" in facts for facts in streams.values()),
        }
        since = [part.version for part in parts] + [version for version, has_it in within.items() if has_it]
        return {"version": max(since, default=1), "streams": streams, **later}

    @classmethod
    def from_offset(cls, offset: object, names: Sequence[str]) -> BatchPlan:
        """Return the plan that `to_offset` wrote, of streams of these names.

        Raises
        ------
        OffsetError
            `offset` is no offset, is of other streams, or was written by a newer version of this package.
        """
        keys = {part.key for part in _PARTS.values()}
        if not isinstance(offset, Mapping) or set(offset) - keys != {"version", "streams"}:
            raise malformed_offset(name="offset")
        version, streams = offset["version"], offset["streams"]
        if type(version) is not int or version < 1:
            raise malformed_offset(name="version")
        if version > OFFSET_VERSION:
            msg = f"a logged offset has version {version}, but this package reads versions up to {OFFSET_VERSION}"
            hint = "run the version of streamjoin_ds that wrote the checkpoint, or a newer one"
            raise OffsetError(msg, name="version", hint=hint)
        if not isinstance(streams, Mapping):
            raise malformed_offset(name="streams")
        if set(streams) != set(names):
            msg = "a logged offset has other streams than this join"
            raise OffsetError(msg, name="streams", hint=f"the streams of this join are {', '.join(names)}")
        parts = {name: part.of(offset, names) for name, part in _PARTS.items() if part.key in offset}
        return cls(tuple(names), tuple(streams[name] for name in names), **parts)


class _Part(Struct, frozen=True):
    """A part of an offset beside the positions: a field of `BatchPlan`, left out where it says nothing.

    Attributes
    ----------
    key : str
        Its name in the offset.
    version : int
        The first version of the offset that has it.
    read : callable
        Returns the field's value, of what is there and of the streams' names; raises OffsetError or ValueError.
    """

    key: str
    version: int
    read: Callable[[Any, Sequence[str]], Any]

    def of(self, offset: Mapping[str, Any], names: Sequence[str]) -> Any:
        """Return the field's value; raise `OffsetError` for anything but what `_plain` gave."""
        try:
            return self.read(offset[self.key], names)
        except ValueError:
            raise malformed_offset(name=self.key) from None


def _plain(value: Any, names: Sequence[str] = ()) -> Any:
    """Return a field's value as plain JSON values; of a tuple with an entry for each stream those that say something.

    These stand by the streams' names.
    """
    if hasattr(value, "to_facts"):
        return value.to_facts()
    if isinstance(value, tuple):
        told = [_plain(one) for one in value]
        return {name: one for name, one in zip(names, told, strict=True) if one} if names else told
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def _each(read: Callable[[object], _Fact], nothing: object) -> Callable[[Any, Sequence[str]], tuple[_Fact, ...]]:
    """Return what reads an entry of each stream, by their names; `nothing` is read where a stream has none."""

    def values(facts: Any, names: Sequence[str]) -> tuple[_Fact, ...]:
        if not isinstance(facts, Mapping) or not facts.keys() <= set(names):
            raise ValueError
        return tuple(read(facts.get(name, nothing)) for name in names)

    return values


def _count(facts: object, names: Sequence[str] = ()) -> int:
    del names
    if type(facts) is not int:
        raise ValueError
    return facts


# By the field of `BatchPlan`, in the one order in which they are written.
_PARTS = {
    "clocks": _Part("clocks", 2, _each(ClockFacts.from_facts, {})),
    "held_back_bytes": _Part("held_back_bytes", 3, _each(_count, 0)),
    "layout": _Part("layout", 4, lambda facts, names: LayoutFacts.from_facts(facts, len(names))),
    "delay": _Part("delay", 5, lambda facts, _: DelayFacts.from_facts(facts)),
    "backlog": _Part("backlog", 8, BacklogFacts.from_facts),
    "tables": _Part("tables", 9, lambda facts, _: versions_from(facts)),
    "waypoints": _Part("waypoints", 10, _each(waypoints_from, [])),
    "sizing": _Part("blocks", 11, lambda facts, _: BlockSizing.from_facts(facts)),
}
# The newest version. An offset has the lowest version that can hold it: that of its parts, 3 with a clock that is
# `unmeasured`, 6 with a layout of ranges, 7 with a stream of many partitions, 12 with partitions that are forgotten, 13
# with clocks of devices.
OFFSET_VERSION = max(13, *(part.version for part in _PARTS.values()))
