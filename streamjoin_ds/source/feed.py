"""Feeds: a feed reads one stream's tuples, in the stream's order, from any position.

The planner reads from a feed its frontier and its backlog. The frontier has the event times of records that are in no
batch yet. The backlog is what the source knows of such records. It is for people: no batch depends on it.

A task reads the tuples. Beside them it computes what a tuple's place in the order decides: which records are too far
ahead of their stream, the largest time before each tuple, and the stamps of count windows. A stamp is the number of
records of another stream that precede a tuple in the source's order. A task reads one stream's part of a batch. Of the
other streams' records in the batch it reads only the event times::

    batches before │ batch                                │
    ───────────────┼──────────────────────────────────────┤
    stream r       │ r r r   r     r r   r                 │   stamp of s* = records of r before the batch
    stream s       │     s  s*  s          s               │               + those of the batch before s*
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import malformed_offset
from streamjoin_ds.source.partitioned_position import PartitionAt, first_seq_of
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.records import Chunk, RawRecords, record_times
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, preceding
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_zone import OrderedTimes, SeenTimes, in_order

__all__ = [
    "LIMITS",
    "ArrayFrontier",
    "Backlog",
    "BacklogFacts",
    "Feed",
    "Frontier",
    "StreamClock",
    "Stretch",
    "TimesBefore",
    "first_cut",
    "known_backlog",
    "precedents",
    "stamped",
    "total_of",
]

LIMITS = ("bytes", "max_delay", "max_rows_per_batch", "pace")
"""What may have ended a batch before all was read: `BacklogFacts.limited_by`."""

_NONE: Mapping[str, Any] = MappingProxyType({})
PositionT = TypeVar("PositionT", bound=Position)
# A range ``[start, end)`` of one stream within a batch, and the names of the files that hold it.
Stretch = tuple[Position, Position, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records of a stream, or of one of its partitions, that are known and not read.

    Attributes
    ----------
    rows : int
        Records. Where the planner has not looked at all of a topic, the offsets up to its last stable one, of which
        some may hold no message. Of files, tables and generators those that it has looked at; there may be more.
    size_bytes : int or None
        Bytes of files that are not read; of a Parquet or compressed file all, until it is read to its end. None for
        sources that do not tell.
    ahead_us : int or None
        How far the newest known record is ahead of what is read, in microseconds of event time; None where either has
        no event time.
    partitions : mapping of str to Backlog
        Those of the stream's partitions that have any.
    """

    rows: int = 0
    size_bytes: int | None = None
    ahead_us: int | None = None
    partitions: Mapping[str, Backlog] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.rows or self.size_bytes)

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values, keys in alphabetical order."""
        facts: dict[str, Any] = {"bytes": self.size_bytes, "rows": self.rows, "us": self.ahead_us}
        facts["partitions"] = {name: own.to_facts() for name, own in self.partitions.items()} or None
        return {name: value for name, value in sorted(facts.items()) if value is not None}

    @classmethod
    def from_facts(cls, facts: object) -> Backlog:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or not {"rows"} <= set(facts) <= {"bytes", "partitions", "rows", "us"}:
            raise malformed_offset(name="backlog")
        numbers = {name: value for name, value in facts.items() if name != "partitions"}
        partitions = facts.get("partitions", {})
        if not isinstance(partitions, Mapping) or any(type(n) is not int or n < 0 for n in numbers.values()):
            raise malformed_offset(name="backlog")
        own = {name: cls.from_facts(one) for name, one in partitions.items()}
        return cls(facts["rows"], facts.get("bytes"), facts.get("us"), own)


@dataclass(frozen=True, slots=True)
class BacklogFacts:
    """What was known of backlogs when a batch was planned.

    Attributes
    ----------
    streams : mapping of str to Backlog
        Those of the streams that have any.
    limited_by : str or None
        Why the batch holds no more: one of `LIMITS`; None where it holds all that the planner saw.
    """

    streams: Mapping[str, Backlog] = field(default_factory=dict)
    limited_by: str | None = None

    @property
    def total(self) -> Backlog:
        """All streams together: the sum of rows and of bytes, and the largest distance in event time."""
        return total_of(self.streams.values())

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values; empty where there is no backlog."""
        facts: dict[str, Any] = {"streams": {name: own.to_facts() for name, own in self.streams.items()} or None}
        facts["limited_by"] = self.limited_by
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_facts(cls, facts: object, names: Sequence[str]) -> BacklogFacts:
        """Return what `to_facts` wrote of streams of these names; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or set(facts) - {"streams", "limited_by"}:
            raise malformed_offset(name="backlog")
        streams, limited_by = facts.get("streams", {}), facts.get("limited_by")
        if not isinstance(streams, Mapping) or set(streams) - set(names) or limited_by not in (*LIMITS, None):
            raise malformed_offset(name="backlog")
        return cls({name: Backlog.from_facts(one) for name, one in streams.items()}, limited_by)


def total_of(backlogs: Iterable[Backlog], partitions: Mapping[str, Backlog] = _NONE) -> Backlog:
    """Return several backlogs as one: the sum of rows and of bytes, and the largest distance in event time."""
    found = list(backlogs)
    sizes = [one.size_bytes for one in found if one.size_bytes is not None]
    ahead = [one.ahead_us for one in found if one.ahead_us is not None]
    return Backlog(
        sum(one.rows for one in found), sum(sizes) if sizes else None, max(ahead, default=None), dict(partitions)
    )


def known_backlog(rows: int, newest_us: int | None, read_us: int | None) -> Backlog:
    """Return the backlog of so many records.

    Parameters
    ----------
    rows : int
    newest_us : int or None
        The largest event time of the records and of those before them.
    read_us : int or None
        The largest event time that is read.
    """
    if rows <= 0:
        return Backlog()
    return Backlog(rows, ahead_us=None if newest_us is None or read_us is None else max(newest_us - read_us, 0))


class Frontier(Protocol):
    """The records that can be read from a position on, and the running maximum of the event time over them.

    The running maximum counts from the stream's first tuple and never falls. A record without an event time has the
    running maximum of the record before it. The running maximum orders the tuples of all streams
    (see `rows_of_prefix`).
    """

    @property
    def rows(self) -> int:
        """The number of records that can be read now, at most as many as were asked for."""

    @property
    def running_max(self) -> np.ndarray:
        """The running maxima of these records, int64, ascending."""

    def rows_until(self, ts: int) -> int:
        """How many of these records have a running maximum <= `ts` (microseconds UTC)."""

    def first_time(self) -> int | None:
        """The first record's running maximum; None where there is no record."""

    def last_time(self) -> int | None:
        """The last record's running maximum; None where there is no record."""


class ArrayFrontier(Struct, frozen=True):
    """A frontier with its running maxima in an array (int64, ascending).

    With `is_cut` there are more records than these, fewer than were asked for though these are: they have many bytes.
    """

    running_max: np.ndarray
    is_cut: bool = False

    @property
    def rows(self) -> int:
        """See `Frontier.rows`."""
        return len(self.running_max)

    def rows_until(self, ts: int) -> int:
        """See `Frontier.rows_until`."""
        return int(np.searchsorted(self.running_max, ts, side="right"))

    def first_time(self) -> int | None:
        """See `Frontier.first_time`."""
        return int(self.running_max[0]) if self.rows else None

    def last_time(self) -> int | None:
        """See `Frontier.last_time`."""
        return int(self.running_max[-1]) if self.rows else None


def first_cut(frontiers: Iterable[Frontier]) -> int | None:
    """Return the time up to which frontiers know all records; None where no frontier is cut (`ArrayFrontier`)."""
    cuts = [frontier.last_time() for frontier in frontiers if isinstance(frontier, ArrayFrontier) and frontier.is_cut]
    return min((cut for cut in cuts if cut is not None), default=None)


class Feed(Protocol[PositionT]):
    """One stream's input.

    Tasks call `position`, `running_max` and `read`. Their answers depend on the arguments and the input alone. The
    other methods are for the planner. Where an `AheadLimit` is given, a record that is too far ahead is a reject, and
    its event time does not count.
    """

    @property
    def endless(self) -> bool:
        """Whether the stream has no last tuple."""

    @property
    def held_back_bytes(self) -> int:
        """Bytes of a last line that is not read yet, because it lacks its newline."""

    @property
    def passed_over(self) -> Sequence[str]:
        """Names of the sub-folders of the source, which are not read."""

    def initial(self) -> PositionT:
        """Return the position before the first tuple."""

    def position(self, facts: object) -> PositionT:
        """Return the position that an offset holds; raise `OffsetError` where it is malformed."""

    def frontier(self, start: PositionT, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """Return what can be read from `start` on, at most `limit` records."""

    def advance(self, start: PositionT, rows: int) -> PositionT:
        """Return the position `rows` records after `start`. `frontier(start, limit)` must have found that many."""

    def time_before(self, position: PositionT) -> int | None:
        """The largest event time of all records before a position; None where there is none."""

    def backlog(self, end: PositionT, known: Backlog) -> Backlog:
        """Return what is known of the records after a batch, which `frontier` and `advance` have planned.

        Parameters
        ----------
        end : Position
            The end of the batch.
        known : Backlog
            What the frontier says. Most sources know no more.
        """

    def freeze(self) -> None:
        """Ignore all input that appears after this call."""

    def files_between(self, start: PositionT, end: PositionT) -> tuple[str, ...]:
        """Return the names of the files that hold ``[start, end)``, which the planner hands to the tasks.

        A task that is not given the names has to list the files itself.
        """

    def running_max(
        self, start: PositionT, end: PositionT, ahead: AheadLimit | None = None, files: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the running maxima of the records of ``[start, end)``, int64, as `frontier` saw them."""

    def split(self, start: PositionT, end: PositionT, parts: int) -> list[tuple[PositionT, PositionT]]:
        """Return at most `parts` ranges, in order and none empty, that together are ``[start, end)``."""

    def read(
        self,
        start: PositionT,
        end: PositionT | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """Yield the records of ``[start, end)`` in order. Without `end`, read to the end of what is there now."""


class TimedPosition(Protocol):
    """A position that keeps what decides about the next event times."""

    @property
    def time(self) -> int:
        """The largest event time before it; the smallest int64 where there is none."""

    @property
    def rhythm(self) -> tuple[int, ...]:
        """How the times before it have come (`Rhythm`); empty: not known, or of no use."""


class StreamClock:
    """Tells, chunk after chunk, what depends on the event times before a record.

    That is whether it is too far ahead of its stream, and which of two meanings its local time has.
    """

    def __init__(self, stream: Stream, before: int, limit: AheadLimit | None, rhythm: Sequence[int] = ()) -> None:
        self._stream, self._largest, self._limit = stream, before, limit
        self._rhythm = rhythm if stream.has_local_times else None

    @classmethod
    def of(cls, stream: Stream, start: TimedPosition, limit: AheadLimit | None) -> StreamClock | None:
        """Return the clock of a stream at a position; None where nothing depends on the times before a record."""
        return None if limit is None and not stream.has_local_times else cls(stream, start.time, limit, start.rhythm)

    def judged(self, raw: RawRecords) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return which of the chunk's records are too far ahead, and which are the later ones; move on past them.

        Each is None where it is none of them.
        """
        ordered = self.ordered(record_times(raw, self._stream))
        return ordered.far, ordered.later

    def ordered(self, seen: SeenTimes) -> OrderedTimes:
        """Return the event times of the next records by their order; move on past them."""
        ordered = in_order(seen, self._largest, self._limit, self._rhythm)
        if seen.valid.any():
            before, self._largest = self._largest, int(ordered.running[-1])
            self._rhythm = None if self._rhythm is None else ordered.rhythm_after()
            self._limit = None if self._limit is None else self._limit.after(before, self._largest)
        return ordered


class TimesBefore:
    """Tells for the tuples of one partition the largest event time before each, chunk after chunk.

    A record that is broken in another column is no tuple, but its event time counts: the planner reads only the times.
    """

    def __init__(
        self,
        feed: Feed[Any],
        first: PartitionAt,
        last: PartitionAt,
        ahead: AheadLimit | None,
        files: Sequence[str] | None,
    ) -> None:
        self._feed, self._ahead, self._files = feed, ahead, files
        self._first, self._last = first, last
        self._largest = NO_TIME if first.time_us is None else first.time_us
        self._running: np.ndarray | None = None

    def numbered(self, chunk: Chunk) -> Chunk:
        """Return the next chunk of the partition with the stream's numbers, and with `Chunk.before`."""
        tuples = chunk.tuples
        base, seqs = first_seq_of(self._first.number), tuples.column(SEQ).to_numpy()
        if chunk.before is not None:
            before = chunk.before
        elif chunk.rejects or self._running is not None:
            before = self._planned()[seqs - self._first.at.seq]
            self._largest = int(self._planned()[chunk.first_seq + chunk.count - self._first.at.seq])
        else:
            running = np.empty(len(seqs) + 1, np.int64)
            running[0], running[1:] = self._largest, tuples.column(TS).to_numpy()
            np.maximum.accumulate(running, out=running)
            before, self._largest = running[:-1], int(running[-1])
        place = tuples.schema.get_field_index(SEQ)
        numbered = tuples.set_column(place, tuples.schema.field(place), pa.array(seqs + base))
        rejects = [replace(reject, seq=reject.seq + base) for reject in chunk.rejects]
        return replace(chunk, first_seq=chunk.first_seq + base, tuples=numbered, rejects=rejects, before=before)

    def _planned(self) -> np.ndarray:
        """Return the largest event time before each record of the batch, and after the last, as the planner saw it."""
        if self._running is None:
            first, last = self._first.at, self._last.at
            found = self._feed.running_max(first, last, self._ahead, self._files)
            start = NO_TIME if self._first.time_us is None else self._first.time_us
            self._running = np.concatenate([np.array([start], np.int64), found])
        return self._running


def precedents(
    bound: BoundJoin,
    stream: int,
    part: Stretch,
    batch: Sequence[Stretch],
    feeds: Sequence[Feed[Any]],
    aheads: Sequence[AheadLimit | None],
) -> dict[str, np.ndarray]:
    """Return the stamps of the records of a part, by the name of their column.

    Parameters
    ----------
    part : Stretch
        The part: a range of `stream` within the batch's range of it.
    batch : sequence of Stretch
        The batch's range of every stream.
    aheads : sequence of AheadLimit or None
        How far the records of each stream may be ahead.

    Returns
    -------
    dict of ndarray, shape (records of the part,), int64
        Empty where the window needs no stamps.
    """
    if not bound.stamps(stream):
        return {}
    stretches = [part if number == stream else stretch for number, stretch in enumerate(batch)]
    running = [
        feed.running_max(first, last, ahead, files)
        for feed, (first, last, files), ahead in zip(feeds, stretches, aheads, strict=True)
    ]
    others = [number for number in range(len(feeds)) if number != stream]
    names = zip(bound.stamps(stream), others, strict=True)
    return {name: preceding(running, stream, other) + batch[other][0].seq for name, other in names}


def stamped(chunks: Iterable[Chunk], first_seq: int, stamps: Mapping[str, np.ndarray]) -> Iterator[Chunk]:
    """Yield the chunks of a part with the stamps as further columns. The part begins with record `first_seq`."""
    for chunk in chunks:
        tuples = chunk.tuples
        places = tuples.column(SEQ).to_numpy() - first_seq
        for name, values in stamps.items():
            column = pa.field(name, pa.int64(), nullable=False)
            tuples = tuples.append_column(column, pa.array(values[places]))
        yield replace(chunk, tuples=tuples)
