"""Which tuples of a part repeat one before them: a read task's keys, which it has kept or gathers again.

::

    waypoint ──────────────── kept by this worker ──────── start ───────────── end
    read for its keys,         │ read for its keys,         │ read and judged   │ kept
    if nothing is kept         │ where another worker was   │                   │

What a worker keeps is a hint. Another worker, and one that starts anew, gathers the same keys from the waypoint that
the offset names (`waypoints`), so decisions depend on the stream alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.blocks import Cache
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.columns import TS
from streamjoin_ds.spec.duplicates import SeenKeys, UniqueKey

__all__ = ["Repeats", "groups_of", "kept_keys", "keys_of", "with_repeats"]

_log = logging.getLogger(__name__)

_GROUP_ROWS = 1 << 18  # tuples that are judged at a time: few groups have few runs to merge; not measured further

# The keys of the streams that this worker reads. A stream's keys at the start of the running batch and at its end.
kept_keys: Cache[dict[int, _Kept]] = Cache(1 << 31, 64)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The keys of all records before a position."""

    position: Position
    seen: SeenKeys


class Repeats:
    """Tells which tuples of one part repeat one before them. The part is all that its batch has of the stream.

    Parameters
    ----------
    key : UniqueKey
    feed : Feed
        The stream's.
    name : tuple
        Under which the worker keeps the keys: it tells checkpoint, join and stream.
    """

    def __init__(self, key: UniqueKey, feed: Feed[Any], name: tuple[object, ...]) -> None:
        self._key, self._feed, self._name = key, feed, name

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
            is_repeat, seen = seen.judged(tuples)
            yield from with_repeats(group, is_repeat)
        self._keep(end, seen)

    def _gathered(self, seen: SeenKeys, first: Position, last: Position) -> SeenKeys:
        if first.seq == last.seq:
            return seen
        _log.debug("the keys of records %d to %d are gathered again", first.seq, last.seq)
        for group in groups_of(self._feed.read(first, last)):
            _, seen = seen.judged(keys_of([chunk.tuples for chunk in group], self._key))
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
    names = [TS, *(name for name in key.names if name != TS)]
    if len(batches) == 1:
        return batches[0].select(names)
    columns = [pa.concat_arrays([batch.column(name) for batch in batches]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)
