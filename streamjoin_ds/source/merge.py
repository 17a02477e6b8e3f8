"""Batches: prefixes of one order of all streams' tuples, wherever they are cut."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.source.feed import Frontier

__all__ = ["rows_of_prefix"]


def rows_of_prefix(frontiers: Sequence[Frontier], limit: int, horizon_us: int | None = None) -> list[int]:
    """How many records of each stream are among the first `limit` of all.

    The order of all records: by the running maximum of the event time in their own stream, then by the stream's number,
    then by their own. Cutting it here or there gives the same sequence, so batch size cannot change a result's input;
    and a batch holds of each stream what belongs to the same time, so that windows meet.

    Parameters
    ----------
    frontiers : sequence of Frontier
        One a stream; each knows at least `limit` records, or all there are. A stream that has none now holds none of
        the others back.
    limit : int
        Records in the batch: exactly so many, or all there are.
    horizon_us : int, optional
        Only records whose running maximum is <= this (pacing).

    Returns
    -------
    list of int
        One a stream, their sum <= limit.
    """
    if horizon_us is not None:
        available = [frontier.rows_until(horizon_us) for frontier in frontiers]
    else:
        available = [frontier.rows for frontier in frontiers]
    if sum(available) <= limit:
        return available
    ends = [time for frontier in frontiers for time in (frontier.first_time(), frontier.last_time())]
    times = [time for time in ends if time is not None]
    # The smallest time up to which there are more records than fit: the cut lies among those of exactly that time.
    low, high = min(times) - 1, max(times)
    while high - low > 1:
        middle = (low + high) // 2
        if _rows(frontiers, available, middle) > limit:
            high = middle
        else:
            low = middle
    rows = [min(frontier.rows_until(low), most) for frontier, most in zip(frontiers, available, strict=True)]
    left = limit - sum(rows)
    for number, frontier in enumerate(frontiers):
        more = min(left, min(frontier.rows_until(high), available[number]) - rows[number])
        rows[number] += more
        left -= more
    return rows


def _rows(frontiers: Sequence[Frontier], available: Sequence[int], ts: int) -> int:
    return sum(min(frontier.rows_until(ts), most) for frontier, most in zip(frontiers, available, strict=True))
