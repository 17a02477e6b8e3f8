"""Periodic windows on partial results: which windows their tuples have in common.

A stream's tuple is in a stretch of windows, ``first..last``; shifted by the stream's lag all stretches are of the first
stream's ids. What is common to several tuples is the stretch from the largest first to the smallest last, and a result
is found once in each window of it. Stretches meet all together where they meet in pairs, so nothing that is thrown away
before the last stream has joined could have become a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.arrays.keys import INT64_MAX, INT64_MIN
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.spec.periodic_window import PeriodicWindow

__all__ = ["WindowIds"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
PartialResults = Mapping[int, Selection]


class WindowIds:
    """The windows of one periodic kind.

    Parameters
    ----------
    window : PeriodicWindow
    """

    def __init__(self, window: PeriodicWindow) -> None:
        self._window = window

    def of(self, stream: int, times_us: Int64) -> tuple[Int64, Int64]:
        """First and last window that hold each event time, as ids of the first stream.

        Returns
        -------
        first, last : ndarray, shape (n,), int64
            ``last < first`` where a time lies between two windows. Windows whose id is no int64 (there are some with a
            ``T`` of one microsecond, near the ends of time) are left out.
        """
        # By quotient and rest, so that no time is too near an end of int64 to add a window to it.
        every_us, lag = self._window.every_us, self._window.lags[stream]
        quotient, rest = np.divmod(times_us, every_us)
        first, below = quotient + (rest > 0), (rest + (self._window.windows_us[stream] - 1)) // every_us
        if every_us == 1:
            return _within_int64(quotient, -lag, below)
        return first - lag, quotient + below - lag

    def common(self, block: PartialResults) -> tuple[Int64, Int64]:
        """First and last window common to the tuples of each partial result."""
        stretches = [self.of(stream, block[stream].times_us()) for stream in sorted(block)]
        first, last = stretches[0]
        for other_first, other_last in stretches[1:]:
            first, last = np.maximum(first, other_first), np.minimum(last, other_last)
        return first, last

    def meeting(self, block: dict[int, Selection]) -> dict[int, Selection]:
        """The partial results that have a window in common."""
        first, last = self.common(block)
        mask = first <= last
        if mask.all():
            return block
        kept = np.flatnonzero(mask).astype(np.int32)
        return {stream: selection.take(kept) for stream, selection in block.items()}

    def expanded(self, block: PartialResults, most_rows: int) -> Iterator[tuple[dict[int, Selection], Int64]]:
        """Each result once for each of its windows, in ascending order of them, at most so many rows at a time.

        Yields
        ------
        block, window_ids : dict of int to Selection, ndarray of int64
        """
        first, last = self.common(block)
        ends: Int64 = np.cumsum(last - first + 1, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        for begin in range(0, total, most_rows):
            rows = np.arange(begin, min(begin + most_rows, total), dtype=np.int64)
            positions = np.searchsorted(ends, rows, "right").astype(np.int32)
            window_ids: Int64 = last[positions] - (ends[positions] - 1 - rows)
            yield {stream: selection.take(positions) for stream, selection in block.items()}, window_ids


def _within_int64(ids: Int64, shift: int, more: Int64) -> tuple[Int64, Int64]:
    """``ids + shift`` and ``ids + shift + more``, cut at the ends of int64; empty where all is beyond."""
    # Near an end only, and there rarely: exact in Python's integers.
    first, last = ids + shift, ids + shift + more
    ends = np.abs(ids // 2) > (1 << 61)
    for n in np.flatnonzero(ends).tolist():
        low = int(ids[n]) + shift
        high = low + int(more[n])
        is_beyond = low > INT64_MAX or high < INT64_MIN
        first[n], last[n] = (1, 0) if is_beyond else (max(low, INT64_MIN), min(high, INT64_MAX))
    return first, last
