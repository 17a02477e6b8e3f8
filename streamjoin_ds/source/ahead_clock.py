"""Tells a task which records are too far ahead of their stream, as the planner saw it."""

from __future__ import annotations

import numpy as np

from streamjoin_ds.source.event_time import event_times
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.ahead import AheadLimit, too_far_ahead
from streamjoin_ds.spec.order import running_maximum
from streamjoin_ds.spec.stream import Stream

__all__ = ["AheadClock"]


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
