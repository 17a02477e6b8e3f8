"""Records from the future: which records of a stream are further ahead of those before them than is allowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["AheadLimit", "too_far_ahead"]

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_TIME, _LAST = -(1 << 63), (1 << 63) - 1
_PIECE_ROWS = 1 << 16  # records tested at once; only a piece with a record too far ahead is gone through one by one


@dataclass(frozen=True, slots=True)
class AheadLimit:
    """How far a record may be ahead of the largest event time before it in its stream.

    Attributes
    ----------
    max_us : int
        The most microseconds, > 0.
    is_measured : bool
        Whether the limit holds for the first record too. It does not after the stream was idle: time may have gone on
        meanwhile.
    """

    max_us: int
    is_measured: bool = True


def too_far_ahead(times_us: Int64, valid: Mask | None, before: int, limit: AheadLimit) -> Mask:
    """Return which records are too far ahead; for the records after them such records do not count.

    Parameters
    ----------
    times_us : ndarray, shape (n,), int64
        Event times in the stream's order.
    valid : ndarray, shape (n,), bool, or None
        Which records have an event time; None: all.
    before : int
        The largest event time before the first of these records, in microseconds. The smallest int64: there is none,
        and the first record that has a time is measured against nothing.
    limit : AheadLimit
        How far a record may be ahead.

    Returns
    -------
    ndarray, shape (n,), bool
        True for a record that is too far ahead.
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
    """Mark in `far` the records of a piece that are too far ahead; return the largest time after the piece."""
    marked = []
    for number, time_us in enumerate(times_us.tolist()):
        if time_us > largest + max_us:
            marked.append(number)
        elif time_us > largest:
            largest = time_us
    far[places[marked]] = True
    return largest
