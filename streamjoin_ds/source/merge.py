"""Batches: each is a prefix of what is left of one order of all streams' records."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.source.feed import Frontier, first_cut

__all__ = ["rows_of_prefix"]


def rows_of_prefix(frontiers: Sequence[Frontier], limit: int, horizon_us: int | None = None) -> list[int]:
    """Return how many records of each stream are among the first `limit` of all.

    All records are ordered by the running maximum of the event time in their own stream, then by the stream's number,
    then by their own number. Any cut leaves the same sequence, so the batch size cannot change what is joined. A batch
    holds records of about the same time from each stream, so that windows meet.

    Parameters
    ----------
    frontiers : sequence of Frontier
        One for each stream. Each knows at least `limit` records, or all there are, or is cut: then the batch ends
        there. A stream without records now does not hold the others back.
    limit : int
        Number of records in the batch: exactly so many, or all there are.
    horizon_us : int, optional
        Take only records whose running maximum is <= this, in microseconds UTC (pacing).

    Returns
    -------
    list of int
        One number for each stream. Their sum is at most `limit`.
    """
    cut = first_cut(frontiers)
    if cut is not None:
        horizon_us = cut if horizon_us is None else min(horizon_us, cut)
    if horizon_us is not None:
        available = [frontier.rows_until(horizon_us) for frontier in frontiers]
    else:
        available = [frontier.rows for frontier in frontiers]
    if sum(available) <= limit:
        return available
    ends = [time for frontier in frontiers for time in (frontier.first_time(), frontier.last_time())]
    times = [time for time in ends if time is not None]
    # Search the smallest time up to which there are more records than fit. The cut lies among the records of that time.
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
