"""The feed of a stream whose devices have clocks of their own: another feed, and who judges lateness (`DeviceClocks`).

::

    planner   feed ─► end of the batch ─► its records, read for time and device alone ─► clocks at its end ─► offset
                      those after it   ─► devices that join soon                      ─────────────────────┘
    task      feed ─► records of the batch, the clocks at its start, and who joins soon ─► `Chunk.before` of each tuple

The order, the numbers and the positions are those of the feed. The planner and a task see the same times and devices:
where a record is broken in another column, it is no tuple, but tells its device's time, so a task that meets one reads
times and devices alone once more. Where the feed has partitions, which have no order among them, each has clocks of its
own, and the records are taken in the order of the plan: by the largest time so far in the record's own partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import malformed_offset
from streamjoin_ds.source.device_clocks import (
    LOOK_AHEAD,
    Coming,
    Device,
    DeviceClocks,
    DeviceRecords,
)
from streamjoin_ds.source.feed import ArrayFrontier, Backlog, Feed, Frontier, first_cut
from streamjoin_ds.source.idleness import Idleness
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.partitioned_position import SEQ_BITS, PartitionedPosition
from streamjoin_ds.source.position import Position, Waypoint, next_waypoints
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.columns import SEQ, TS, Int64
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, running_maximum
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["DeviceFeed", "DevicePosition"]

_DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class DevicePosition:
    """The position in a stream whose devices have clocks of their own.

    Attributes
    ----------
    at : Position
        That of the stream's input.
    clocks : DeviceClocks
        The devices' clocks there.
    """

    at: Any
    clocks: DeviceClocks = field(default_factory=DeviceClocks)

    @property
    def seq(self) -> int:
        """The number of records before the position."""
        return int(self.at.seq)

    @property
    def low_us(self) -> int | None:
        """The stream's clock, which decides its watermark; None before the first tuple."""
        return self.clocks.time_us

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values: those of the input, and the devices."""
        facts: dict[str, Any] = self.at.to_facts()
        clocks = self.clocks.to_facts()
        return {**facts, _DEVICES: clocks} if clocks else facts


class DeviceFeed:
    """The feed of a stream whose devices have clocks of their own.

    Parameters
    ----------
    stream : Stream
    inner : Feed
        Reads the columns that travel.
    narrow : Feed
        Reads times and devices alone, of the same input.
    """

    def __init__(self, stream: Stream, inner: Feed[Any], narrow: Feed[Any]) -> None:
        self.inner, self._narrow, self._stream = inner, narrow, stream
        self._ahead: AheadLimit | None = None
        # What was seen, whether the batch that is planned takes all of it, and which devices have records in the batch.
        self._seen: Frontier = ArrayFrontier(np.empty(0, np.int64))
        self._takes_all, self._heard = True, frozenset[Device]()
        self._silence = _Silence()

    @property
    def endless(self) -> bool:
        """See `Feed.endless`."""
        return self.inner.endless

    @property
    def held_back_bytes(self) -> int:
        """See `Feed.held_back_bytes`."""
        return self.inner.held_back_bytes

    @property
    def passed_over(self) -> Sequence[str]:
        """See `Feed.passed_over`."""
        return self.inner.passed_over

    def initial(self) -> DevicePosition:
        """See `Feed.initial`."""
        return DevicePosition(self.inner.initial())

    def position(self, facts: object) -> DevicePosition:
        """See `Feed.position`."""
        if not isinstance(facts, Mapping):
            raise malformed_offset(name=_DEVICES, stream=self._stream.name)
        at = self.inner.position({name: value for name, value in facts.items() if name != _DEVICES})
        return DevicePosition(at, DeviceClocks.from_facts(facts.get(_DEVICES, {}), self._stream.name))

    def frontier(self, start: DevicePosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`. More is looked at than is asked for, for the devices that join soon after the batch."""
        self._ahead = ahead
        found = self._seen = self.inner.frontier(start.at, limit + LOOK_AHEAD, ahead)
        is_cut = found.rows < limit and first_cut([found]) is not None
        return ArrayFrontier(found.running_max[:limit], is_cut=is_cut)

    def advance(self, start: DevicePosition, rows: int) -> DevicePosition:
        """See `Feed.advance`.

        Raises
        ------
        ArgumentError
            There are too many devices.
        """
        seen = self._seen.rows
        self._takes_all = rows == seen and first_cut([self._seen]) is None
        beyond = self.inner.advance(start.at, min(rows + LOOK_AHEAD, seen))
        end = self.inner.advance(start.at, rows)
        records, times = self._records(start.at, end, self._ahead)
        self._heard = frozenset(records.devices)
        ahead = self._ahead
        if ahead is not None:
            ahead = ahead.after(*map(self.inner.time_before, (start.at, end)))
        later = self._records(end, beyond, ahead)
        coming = start.clocks.joining(self._heard, *later)
        return DevicePosition(end, self._after(start, records, times, coming))

    def moved(
        self,
        start: DevicePosition,
        end: Position,
        ahead: AheadLimit | None,
        silenced: Iterable[Device],
        coming: Sequence[Coming],
    ) -> DevicePosition:
        """Return the end of a batch of which the input's place is known, and what was decided about its devices."""
        clocks = self._after(start, *self._records(start.at, end, ahead), coming)
        return DevicePosition(end, clocks.settled(silenced))

    def _after(
        self, start: DevicePosition, records: DeviceRecords, times_us: Int64, coming: Sequence[Coming]
    ) -> DeviceClocks:
        _, clocks = start.clocks.after(records, times_us, coming)
        clocks.check_count(self._stream, "set idle_timeout, which forgets devices that are silent")
        return clocks

    def clocked(self, end: DevicePosition, idleness: Idleness, stream: int) -> DevicePosition:
        """Return the end of a batch with what is decided about the clocks. `advance` has returned it.

        A device is silent while batches take all that is there and bring nothing of it: what waits may be its own.

        Parameters
        ----------
        idleness : Idleness
            Whose clocks tell how long a device is silent.
        stream : int
            The stream's number.
        """
        at, decide = end.at, partial(idleness.decided_of, stream)
        if isinstance(self.inner, PartitionedFeed):
            at = self.inner.clocked(at, decide)
        clocks = self._silence.decided(end.clocks, self._heard, idleness, self._stream.idle_timeout_us, self._takes_all)
        return DevicePosition(at, clocks)

    def marked(
        self, before: Sequence[Waypoint], start: DevicePosition, end: DevicePosition, reach_us: int
    ) -> tuple[DevicePosition, tuple[Waypoint, ...]]:
        """Return the end of a batch with its waypoints: those of partitions in it, and those of a stream of one order.

        They are places of the input. See `next_waypoints`.
        """
        if isinstance(end.at, PartitionedPosition):
            return replace(end, at=end.at.passed(start.at, reach_us, end.clocks.low_us)), ()
        times = self.inner.time_before(start.at), end.low_us
        return end, next_waypoints(before, start.at.to_facts(), *times, reach_us, per_reach=1)

    def time_before(self, position: DevicePosition) -> int | None:
        """See `Feed.time_before`."""
        return self.inner.time_before(position.at)

    def backlog(self, end: DevicePosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`."""
        return self.inner.backlog(end.at, known)

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        self.inner.freeze()

    def files_between(self, start: DevicePosition, end: DevicePosition) -> tuple[str, ...]:
        """See `Feed.files_between`."""
        return self.inner.files_between(start.at, end.at)

    def running_max(
        self,
        start: DevicePosition,
        end: DevicePosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """See `Feed.running_max`: the order is the input's."""
        return self.inner.running_max(start.at, end.at, ahead, files)

    def split(
        self, start: DevicePosition, end: DevicePosition, parts: int
    ) -> list[tuple[DevicePosition, DevicePosition]]:
        """See `Feed.split`: one task judges the whole range."""
        del parts
        ranges = self.inner.split(start.at, end.at, 1) if end.seq > start.seq else []
        return [(replace(start, at=low), replace(end, at=high)) for low, high in ranges]

    def read(
        self,
        start: DevicePosition,
        end: DevicePosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`. With an end, a chunk has `Chunk.before`; the range is held until all of it is read."""
        if end is None:
            yield from self.inner.read(start.at, None, ahead, files)
            return
        chunks = list(self.inner.read(start.at, end.at, ahead, files))
        if any(chunk.rejects for chunk in chunks):
            tuples = self._times(start.at, end.at, ahead, files)
        else:
            tuples = _table(chunk.tuples for chunk in chunks)
        order = self._order(start.at, tuples)
        before, _ = start.clocks.after(*self._of(tuples, order), end.clocks.coming)
        judges = np.empty(len(before), np.int64)
        judges[order] = before
        seqs = tuples[SEQ].to_numpy()
        for chunk in chunks:
            own = chunk.tuples.column(SEQ).to_numpy()
            yield replace(chunk, before=judges[np.searchsorted(seqs, own)])

    def _records(self, start: Position, end: Position, ahead: AheadLimit | None) -> tuple[DeviceRecords, Int64]:
        """Return the devices and times of the tuples between two places of the input, in the order of plans."""
        if end.seq == start.seq:
            return DeviceRecords((), np.empty(0, np.int64)), np.empty(0, np.int64)
        tuples = self._times(start, end, ahead, self.inner.files_between(start, end))
        return self._of(tuples, self._order(start, tuples))

    def _times(self, start: Position, end: Position, ahead: AheadLimit | None, files: Sequence[str] | None) -> pa.Table:
        """Return the tuples between two places of the input with their times and devices alone."""
        return _table(chunk.tuples for chunk in self._narrow.read(start, end, ahead, files))

    def _of(self, tuples: pa.Table, order: Any) -> tuple[DeviceRecords, Int64]:
        if not tuples.num_rows:
            return DeviceRecords((), np.empty(0, np.int64)), np.empty(0, np.int64)
        bits = SEQ_BITS if isinstance(self.inner, PartitionedFeed) else 0
        records = DeviceRecords.of(tuples, self._stream.device_columns, bits)
        return DeviceRecords(records.devices, records.codes[order]), tuples[TS].to_numpy()[order]

    def _order(self, start: Position, tuples: pa.Table) -> Any:
        """Return the places of tuples in the order in which the stream's plans take them."""
        if not isinstance(start, PartitionedPosition):
            return slice(None)
        seqs, times = tuples[SEQ].to_numpy(), tuples[TS].to_numpy()
        numbers = seqs >> SEQ_BITS
        clocks = {at.number: at.time_us for at in start.partitions.values()}
        running = np.empty(len(times), np.int64)
        for number in np.unique(numbers).tolist():  # the tuples of a partition are neighbours
            first, last = np.searchsorted(numbers, [number, number + 1])
            before = clocks.get(number)
            running[first:last] = running_maximum(times[first:last], None, NO_TIME if before is None else before)
        return np.lexsort((seqs, running))


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    found = list(batches)
    return pa.Table.from_batches(found) if found else _NOTHING


_NOTHING = pa.table({TS: pa.nulls(0, pa.int64()), SEQ: pa.nulls(0, pa.int64())})


@dataclass(slots=True)
class _Silence:
    """How long each device of a stream has been silent, as far as the process that plans has seen it.

    Its time runs only between looks of which the first took all that was there.
    """

    _time: float = 0.0
    _looked: float | None = None
    _took_all: bool = True
    _since: dict[Device, float] = field(default_factory=dict)

    def decided(
        self,
        clocks: DeviceClocks,
        heard: frozenset[Device],
        idleness: Idleness,
        timeout_us: int | None,
        takes_all: bool,
    ) -> DeviceClocks:
        """Return the clocks with the decision which devices are idle."""
        if timeout_us is None:
            return clocks.settled(())
        now, wall_s = idleness.clock(), int(idleness.wall())
        if self._looked is not None and self._took_all:
            self._time += idleness.began - self._looked
        self._looked, self._took_all = now, takes_all
        away = idleness.takes_what_is_there
        seen, since, silenced = {}, {}, []
        for device, seen_s, is_idle in zip(
            clocks.devices, clocks.seen_s.tolist(), clocks.is_idle.tolist(), strict=True
        ):
            if device in heard or not seen_s:
                seen_s = wall_s if device in heard or not seen_s else seen_s
                since[device] = self._time
            else:
                first = self._time - max(wall_s - seen_s, 0) * away
                since[device] = self._since.get(device, first)
            seen[device] = seen_s
            is_silent = (self._time - since[device]) * 1e6 >= timeout_us
            if takes_all and not is_idle and device not in heard and is_silent:
                silenced.append(device)
        self._since = since
        return clocks.settled(silenced, seen)
