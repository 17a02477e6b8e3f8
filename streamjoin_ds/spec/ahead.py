"""Records from the future: which of a stream's are further ahead of those before them than they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["AheadLimit", "too_far_ahead"]

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_TIME, _LAST = -(1 << 63), (1 << 63) - 1
_PIECE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class AheadLimit:
    """How far a record may be ahead of the largest event time before it in its stream.

    Attributes
    ----------
    max_us : int
        Microseconds, > 0.
    is_measured : bool
        Whether the first record is; not where the stream was idle, and may have gone on meanwhile.
    """

    max_us: int
    is_measured: bool = True


def too_far_ahead(times_us: Int64, valid: Mask | None, before: int, limit: AheadLimit) -> Mask:
    """Tell which records are too far ahead; they do not count to the largest time before those that follow.

    Parameters
    ----------
    times_us : ndarray, shape (n,), int64
        Event times in the stream's order.
    valid : ndarray, shape (n,), bool, or None
        Which records have one; None: all.
    before : int
        The largest before the first of them; the smallest int64 where there is none, and then the first that has a time
        is measured against nothing.

    Returns
    -------
    ndarray, shape (n,), bool
    """
    places = np.arange(len(times_us)) if valid is None else np.flatnonzero(valid)
    known = np.asarray(times_us, dtype=np.int64)[places]
    far = np.zeros(len(times_us), dtype=np.bool_)
    first, largest = 0, before
    if len(known) and (before == _NO_TIME or not limit.is_measured):
        first, largest = 1, max(before, int(known[0]))
    for begin in range(first, len(known), _PIECE_ROWS):
        piece = known[begin : begin + _PIECE_ROWS]
        running = np.maximum.accumulate(np.append(largest, piece))
        if (piece > np.minimum(running[:-1], _LAST - limit.max_us) + limit.max_us).any():
            largest = _one_by_one(piece, largest, limit.max_us, far, places[begin : begin + _PIECE_ROWS])
        else:
            largest = int(running[-1])
    return far


def _one_by_one(times_us: Int64, largest: int, max_us: int, far: Mask, places: npt.NDArray[np.intp]) -> int:
    """Mark those of a piece that are too far ahead; gives the largest time after it."""
    marked = []
    for number, time_us in enumerate(times_us.tolist()):
        if time_us > largest + max_us:
            marked.append(number)
        elif time_us > largest:
            largest = time_us
    far[places[marked]] = True
    return largest
