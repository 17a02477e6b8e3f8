"""Repeats: which tuples of a part repeat one before them, by the keys that a read task has kept or gathers again.

::

    waypoint ──────────────── kept by this worker ──────── start ───────────── end
    read for its keys,         │ read for its keys,         │ read and judged   │ kept
    if nothing is kept         │ where another worker was   │                   │

What a worker keeps is a hint. Another worker, and one that starts anew, gathers the same keys from the waypoint that
the offset names (`Waypoint`), so decisions depend on the stream alone.

In a stream of partitions each partition has keys of its own. The partition's clock is in the offset, and shows whether
a tuple may repeat one before its batch. So keys are gathered again for few partitions: not for one that was silent for
longer than its keys count, whose records may be gone.

Where devices have clocks of their own, each device has keys of its own. The stream's clock, which is in the offset too,
says how far back they count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.blocks import Cache
from streamjoin_ds.errors import KafkaDataLostError
from streamjoin_ds.source.device_feed import DeviceFeed
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.partitioned_position import SEQ_BITS, PartitionAt, PartitionedPosition
from streamjoin_ds.source.position import Position, first_needed
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.columns import TS, Int64
from streamjoin_ds.spec.duplicates import SeenKeys, UniqueKey

__all__ = [
    "PartitionRepeats",
    "Repeats",
    "groups_of",
    "kept_keys",
    "kept_partitions",
    "keys_of",
    "told_repeats",
    "with_repeats",
]

_log = logging.getLogger(__name__)

_GROUP_ROWS = 1 << 18  # tuples that are judged at a time: few groups have few runs to merge; not measured further

# The keys of the streams that this worker reads. A stream's keys at the start of the running batch and at its end.
kept_keys: Cache[dict[int, _Kept]] = Cache(1 << 31, 64)
# A worker keeps the keys of so many partitions of a stream, those it read last: files come and end. Not measured.
_MOST_PARTITIONS = 1 << 14
# The keys of the streams that this worker reads, by partition, each at the start of its last batch and at its end.
kept_partitions: Cache[dict[str, tuple[_Known, ...]]] = Cache(1 << 31, 64)


class _Kept(Struct, frozen=True):
    """The keys of all records before a position."""

    position: Position
    seen: SeenKeys


def told_repeats(
    chunks: Iterable[Chunk],
    key: UniqueKey,
    feed: Feed[Any],
    name: tuple[object, ...],
    start: Any,
    end: Any,
    waypoint: tuple[int, dict[str, Any]] | None,
) -> Iterator[Chunk]:
    """Return the chunks of a part with `Chunk.repeats`: the part is all that its batch has of the stream.

    Parameters
    ----------
    chunks : iterable of Chunk
        What the feed reads from `start` to `end`.
    feed : Feed
        The stream's.
    name : tuple
        Under which the worker keeps the keys: it tells checkpoint, join and stream.
    waypoint : (int, dict) or None
        In a stream of one order: from where keys are gathered where the worker has none, and the largest event time
        before it.
    """
    low_us = None
    if isinstance(feed, DeviceFeed):
        low_us = start.clocks.low_us
        feed, start, end = feed.inner, start.at, end.at
    if isinstance(feed, PartitionedFeed):
        return PartitionRepeats(key, feed, name, low_us).judged(chunks, start, end)
    repeats = Repeats(key, feed, name, low_us)
    waypoint_us, place = waypoint or (None, None)
    return repeats.judged(chunks, repeats.before(start, place, waypoint_us), end)


class Repeats:
    """Tells which tuples of one part repeat one before them. The part is all that its batch has of the stream.

    Parameters
    ----------
    key : UniqueKey
    feed : Feed
        The input's.
    name : tuple
        Under which the worker keeps the keys: it tells checkpoint, join and stream.
    low_us : int, optional
        Where devices have clocks of their own, the stream's at the start of the part.
    """

    def __init__(self, key: UniqueKey, feed: Feed[Any], name: tuple[object, ...], low_us: int | None = None) -> None:
        self._key, self._feed, self._name, self._low_us = key, feed, name, low_us

    def before(self, start: Position, waypoint: dict[str, Any] | None, waypoint_us: int | None) -> SeenKeys:
        """Return the keys of all records before a part, as far back as they count.

        Parameters
        ----------
        start : Position
            Where the part begins.
        waypoint : dict or None
            The position from which keys are gathered where the worker has none, as plain JSON values; None: the
            stream's first record.
        waypoint_us : int or None
            The largest event time before the waypoint.
        """
        kept = kept_keys.get(self._name) or {}
        nearest = max((seq for seq in kept if seq <= start.seq), default=None)
        if nearest is not None:
            known = kept[nearest]
            return self._gathered(known.seen, known.position, start)
        nothing = SeenKeys(self._key)
        if waypoint is not None and waypoint_us is not None:
            seen = self._gathered(nothing, self._feed.position(waypoint), start)
            if seen.is_complete(waypoint_us):
                return seen
            # The planner's times are those of all records. A record that is broken in another column is no tuple, and
            # may have a time that no tuple has: then the waypoint is too late.
            _log.debug("the waypoint at record %d is too late", start.seq)
        return self._gathered(nothing, self._feed.initial(), start)

    def judged(self, chunks: Iterable[Chunk], seen: SeenKeys, end: Position) -> Iterator[Chunk]:
        """Yield the chunks of a part, in order, with `Chunk.repeats`; then keep the keys for the batch after.

        `seen` has the keys before the part, which ends at `end`.
        """
        for group in groups_of(chunks):
            tuples = keys_of([chunk.tuples for chunk in group], self._key)
            before_us = None if self._low_us is None else _clocks(group)
            is_repeat, seen = seen.judged(tuples, before_us, self._low_us)
            yield from with_repeats(group, is_repeat)
        self._keep(end, seen)

    def _gathered(self, seen: SeenKeys, first: Position, last: Position) -> SeenKeys:
        if first.seq == last.seq:
            return seen
        _log.debug("the keys of records %d to %d are gathered again", first.seq, last.seq)
        for group in groups_of(self._feed.read(first, last)):
            _, seen = seen.judged(keys_of([chunk.tuples for chunk in group], self._key), low_us=self._low_us)
        self._keep(last, seen)
        return seen

    def _keep(self, at: Position, seen: SeenKeys) -> None:
        kept = {seq: known for seq, known in (kept_keys.get(self._name) or {}).items() if seq != at.seq}
        if kept:
            latest = max(kept)
            kept = {latest: kept[latest]}  # a task that is tried again begins there
        kept[at.seq] = _Kept(at, seen)
        kept_keys.put(self._name, kept, sum(known.seen.size_bytes for known in kept.values()))


def with_repeats(group: Iterable[Chunk], is_repeat: npt.NDArray[np.bool_]) -> Iterator[Chunk]:
    """Yield chunks with `Chunk.repeats`; `is_repeat` is of all their tuples, one after the other."""
    at = 0
    for chunk in group:
        yield replace(chunk, repeats=is_repeat[at : at + chunk.tuples.num_rows])
        at += chunk.tuples.num_rows


def groups_of(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Yield neighbouring chunks together, until there are enough tuples."""
    group: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        group.append(chunk)
        rows += chunk.tuples.num_rows
        if rows >= _GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def keys_of(batches: list[pa.RecordBatch], key: UniqueKey) -> pa.RecordBatch:
    """Return the event times and keys of tuples, as `SeenKeys.judged` takes them."""
    names = [TS, *(name for name in key.columns if name != TS)]
    if len(batches) == 1:
        return batches[0].select(names)
    columns = [pa.concat_arrays([batch.column(name) for batch in batches]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


class _Known(Struct, frozen=True):
    """Keys of a partition's records before a position.

    Attributes
    ----------
    at : Position
        The partition's position.
    time_us : int or None
        The partition's clock there.
    seen : SeenKeys
        The keys of the records from some place on.
    since_us : int or None
        The partition's clock at that place: no key before it has a larger time. None: there is none.
    """

    at: Position
    time_us: int | None
    seen: SeenKeys
    since_us: int | None

    def may_lack(self, times_us: Int64, before_us: Int64) -> bool:
        """Whether a tuple may repeat a key that is not among these, given the largest times before the tuples."""
        if self.since_us is None:
            return False
        key = self.seen.key
        floors = before_us - key.reach_us  # what is remembered is not older
        near = (times_us - key.span_us <= self.since_us) & (times_us + key.span_us >= floors)
        return bool((near & (floors <= self.since_us)).any())


class PartitionRepeats:
    """Tells which tuples of one part repeat one before them. The part is all that its batch has of the stream.

    Parameters
    ----------
    key, feed, name, low_us
        As of `Repeats`.
    """

    def __init__(
        self, key: UniqueKey, feed: PartitionedFeed, name: tuple[object, ...], low_us: int | None = None
    ) -> None:
        self._key, self._feed, self._name, self._low_us = key, feed, name, low_us

    def judged(self, chunks: Iterable[Chunk], start: PartitionedPosition, end: PartitionedPosition) -> Iterator[Chunk]:
        """Yield the chunks of a part, in order, with `Chunk.repeats`; then keep the keys for the batch after.

        `chunks` is what the feed reads from `start` to `end`. A partition's chunks are held together: the outbox holds
        them all.
        """
        kept = dict(kept_partitions.get(self._name) or {})
        names = {at.number: name for name, at in end.partitions.items()}
        for number, own in groupby(chunks, key=lambda chunk: chunk.first_seq >> SEQ_BITS):
            name, held = names[number], list(own)
            known = self._before(name, start.partitions[name], held, kept.get(name, ()))
            seen = known.seen
            for group in groups_of(held):
                tuples = keys_of([chunk.tuples for chunk in group], self._key)
                is_repeat, seen = seen.judged(tuples, _clocks(group), self._low_us)
                yield from with_repeats(group, is_repeat)
            last = end.partitions[name]
            # A task that is tried again begins with the first of the two.
            kept.pop(name, None)  # it is now the newest
            kept[name] = (known, _Known(last.at, last.time_us, seen, known.since_us))
        for name in list(kept)[: max(len(kept) - _MOST_PARTITIONS, 0)]:
            del kept[name]
        size = sum(one.seen.size_bytes for of_partition in kept.values() for one in of_partition[-1:])
        kept_partitions.put(self._name, kept, size)

    def _before(self, name: str, first: PartitionAt, chunks: Sequence[Chunk], kept: Sequence[_Known]) -> _Known:
        """Return the keys before a part of a partition: at least all that its tuples may repeat."""
        times_us = np.concatenate([chunk.tuples.column(TS).to_numpy() for chunk in chunks])
        before_us = _clocks(chunks)
        earlier = [one for one in kept if one.at.seq <= first.at.seq]
        nearest = max(earlier, key=lambda one: one.at.seq, default=None)
        known = _Known(first.at, first.time_us, SeenKeys(self._key), first.time_us)
        if nearest is not None and nearest.at.seq == first.at.seq:
            known, nearest = nearest, None
        if not known.may_lack(times_us, before_us):
            return known
        if nearest is not None:  # another worker has read on
            known = self._gathered(name, nearest, first)
            if not known.may_lack(times_us, before_us):
                return known
        clock_us = first.time_us if self._low_us is None else self._low_us
        waypoint = first_needed(first.waypoints, clock_us, self._key.reach_us)
        if waypoint is None:
            return self._gathered(name, None, first)
        facts = {"number": first.number, "at": waypoint.position, "time": waypoint.time_us}
        begin = self._feed.position({"seq": 0, "partitions": {name: facts}}).partitions[name].at
        nothing = SeenKeys(self._key)
        return self._gathered(name, _Known(begin, waypoint.time_us, nothing, waypoint.time_us), first)

    def _gathered(self, name: str, known: _Known | None, first: PartitionAt) -> _Known:
        """Return the keys before a part: those that are known, and those of the records since; None: of all records."""
        low = PartitionedPosition()
        seen, since_us, seq = SeenKeys(self._key), None, 0
        if known is not None:
            seen, since_us, seq = known.seen, known.since_us, known.at.seq
            low = PartitionedPosition(0, {name: PartitionAt(first.number, known.at, known.time_us)})
        _log.debug("the keys of records %d to %d of partition %s are gathered again", seq, first.at.seq, name)
        high = PartitionedPosition(first.at.seq - seq, {name: first})
        try:
            for group in groups_of(self._feed.read(low, high)):
                tuples = keys_of([chunk.tuples for chunk in group], self._key)
                _, seen = seen.judged(tuples, _clocks(group), self._low_us)
        except KafkaDataLostError as error:
            msg = f"messages of partition {name} of topic {error.name} are gone whose keys still count (unique)"
            hint = "keep messages for longer than the windows and the delay; to go on without them: on_data_loss=skip"
            raise KafkaDataLostError(msg, name=error.name, hint=hint) from error
        return _Known(first.at, first.time_us, seen, since_us)


def _clocks(chunks: Sequence[Chunk]) -> Int64:
    """Return the clock that judges each tuple: the largest event time before it in its partition, or its device's."""
    found = [chunk.before for chunk in chunks]
    return np.concatenate([before for before in found if before is not None])
