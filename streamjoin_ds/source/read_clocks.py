"""The clocks of a task that reads: what is too far ahead of its stream, and the largest time before each tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.event_time import NO_TIME, event_times
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.partitioned_position import PartitionAt, first_seq_of
from streamjoin_ds.source.records import Chunk, RawRecords
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import AheadLimit, running_maximum, too_far_ahead
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["AheadClock", "TimesBefore"]


class AheadClock:
    """Tells, chunk after chunk, which records are too far ahead of their stream."""

    def __init__(self, stream: Stream, before: int, limit: AheadLimit) -> None:
        self._stream, self._largest, self._limit = stream, before, limit

    def far(self, raw: RawRecords) -> np.ndarray:
        """Return which of the chunk's records are too far ahead, and move on past the chunk."""
        times, zoned = raw.table.column(self._stream.time).combine_chunks(), self._stream.time_zone is not None
        ts, valid = event_times(times, self._stream.time_unit, zoned=zoned)
        if raw.index is not None:
            all_ts, all_valid = np.zeros(raw.count, np.int64), np.zeros(raw.count, bool)
            all_ts[raw.index], all_valid[raw.index] = ts, valid
            ts, valid = all_ts, all_valid
        far = too_far_ahead(ts, valid, self._largest, self._limit)
        if valid.any():
            self._largest = int(running_maximum(ts, valid & ~far, self._largest)[-1])
            self._limit = AheadLimit(self._limit.max_us)
        return far


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
