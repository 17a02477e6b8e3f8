"""Which tuples of a part repeat one before them in their partition: the keys of each partition that a worker keeps.

::

    waypoint ──────────────── kept by this worker ──────── start ───────────── end
    read for its keys, if a tuple may repeat one from there │ read and judged   │ kept

What a worker keeps is a hint, as in a stream of one order (`repeats`). Whether a tuple may repeat one before its batch
is told by the partition's clock, which is in the offset. So keys are gathered again for few partitions: not for one
that was silent for longer than its keys count, whose records may be gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from streamjoin_ds.blocks import Cache
from streamjoin_ds.errors import KafkaDataLostError
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.partitioned_position import SEQ_BITS, PartitionAt, PartitionedPosition
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.source.repeats import groups_of, keys_of, with_repeats
from streamjoin_ds.source.waypoints import first_needed
from streamjoin_ds.spec.columns import TS
from streamjoin_ds.spec.duplicates import SeenKeys, UniqueKey

__all__ = ["PartitionRepeats", "kept_partitions"]

_log = logging.getLogger(__name__)

Int64 = npt.NDArray[np.int64]

# A worker keeps the keys of so many partitions of a stream, those it read last: files come and end. Not measured.
_MOST_PARTITIONS = 1 << 14
# The keys of the streams that this worker reads, by partition, each at the start of its last batch and at its end.
kept_partitions: Cache[dict[str, tuple[_Known, ...]]] = Cache(1 << 31, 64)


@dataclass(frozen=True, slots=True)
class _Known:
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
    key : UniqueKey
    feed : PartitionedFeed
        The stream's.
    name : tuple
        Under which the worker keeps the keys: it tells checkpoint, join and stream.
    """

    def __init__(self, key: UniqueKey, feed: PartitionedFeed, name: tuple[object, ...]) -> None:
        self._key, self._feed, self._name = key, feed, name

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
                is_repeat, seen = seen.judged(keys_of([chunk.tuples for chunk in group], self._key), _clocks(group))
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
        waypoint = first_needed(first.waypoints, first.time_us, self._key.reach_us)
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
                _, seen = seen.judged(keys_of([chunk.tuples for chunk in group], self._key), _clocks(group))
        except KafkaDataLostError as error:
            msg = f"messages of partition {name} of topic {error.name} are gone whose keys still count (unique)"
            hint = "keep messages for longer than the windows and the delay; to go on without them: on_data_loss=skip"
            raise KafkaDataLostError(msg, name=error.name, hint=hint) from error
        return _Known(first.at, first.time_us, seen, since_us)


def _clocks(chunks: Sequence[Chunk]) -> Int64:
    """Return the largest event time before each tuple of a partition."""
    found = [chunk.before for chunk in chunks]
    return np.concatenate([before for before in found if before is not None])
