"""The source's order: one order of the records of all streams; every batch is a stretch of it.

Records are ordered by the *running maximum* of the event time in their own stream, then by the stream's number, then by
their own number. A record without an event time has the running maximum of the record before it. So within a stream the
order is the stream's own, and it is the same wherever it is cut into batches.

A record that was not there when a batch was planned comes after that batch. So where a stream lags behind the others,
the order depends on the batches. The offsets record these, so a replay has the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["preceding", "running_maximum"]

Int64 = npt.NDArray[np.int64]


def running_maximum(times_us: Int64, valid: npt.NDArray[np.bool_] | None, before: int) -> Int64:
    """Return the largest event time up to each record, in microseconds.

    Parameters
    ----------
    times_us : ndarray, shape (n,), int64
        Event times in the stream's order.
    valid : ndarray, shape (n,), bool, or None
        Which records have an event time; None: all.
    before : int
        The largest event time before the first of these records; the smallest int64 if there is none.
    """
    known = times_us if valid is None else np.where(valid, times_us, before)
    running: Int64 = np.maximum.accumulate(np.maximum(known, before, dtype=np.int64))
    return running


def preceding(running: Sequence[Int64], stream: int, other: int) -> Int64:
    """Return how many records of stream `other` precede each record of `stream`, among the given records.

    Parameters
    ----------
    running : sequence of ndarray, shape (n_i,), int64
        For each stream the running maxima of a stretch of the order, ascending.
    stream, other : int
        Numbers of two streams.
    """
    side = "right" if other < stream else "left"
    counts: Int64 = np.searchsorted(running[other], running[stream], side)  # type: ignore[call-overload]
    return counts.astype(np.int64, copy=False)
