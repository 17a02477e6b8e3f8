"""The source's order: one order of the records of all streams, of which every batch is a stretch.

Records are ordered by the *running maximum* of the event time in their own stream, then by the stream's number, then by
their own. A record without an event time has the running maximum of the record before it. So the order keeps each
stream's own, and one that is cut into batches anywhere is the same order.

What was not there when a batch was planned comes after it: where a stream lags behind the others, the source's order is
the order of its batches, which the offsets record, so that a replay has it again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["preceding", "running_maximum"]

Int64 = npt.NDArray[np.int64]


def running_maximum(times_us: Int64, valid: npt.NDArray[np.bool_] | None, before: int) -> Int64:
    """Largest event time up to each record.

    Parameters
    ----------
    times_us : ndarray, shape (n,), int64
        Event times in the stream's order.
    valid : ndarray, shape (n,), bool, or None
        Which records have one; None: all.
    before : int
        The largest before the first of them; the smallest int64 where there is none.
    """
    known = times_us if valid is None else np.where(valid, times_us, before)
    running: Int64 = np.maximum.accumulate(np.maximum(known, before, dtype=np.int64))
    return running


def preceding(running: Sequence[Int64], stream: int, other: int) -> Int64:
    """How many records of stream `other` precede each record of `stream`, among those given.

    Parameters
    ----------
    running : sequence of ndarray, shape (n_i,), int64
        The running maxima of a stretch of the order, one a stream, ascending.
    """
    side = "right" if other < stream else "left"
    counts: Int64 = np.searchsorted(running[other], running[stream], side)  # type: ignore[call-overload]
    return counts.astype(np.int64, copy=False)
