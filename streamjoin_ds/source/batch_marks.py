"""Marks within a batch: how far the streams were when half, a quarter, an eighth ... of its time was left.

::

    begin ──────────────────────┬────────────┬─────┬──┬┬ end
                               1/2          1/4   1/8

A batch may be longer than the half-lives of the estimates of rates. If the rates change within it, the batch as a whole
has rates in between, which no stream ever had. Its last pieces have the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.source.feed import Frontier
from streamjoin_ds.source.layout_rule import Progress

__all__ = ["batch_marks"]

# How often the rest of a batch is halved. The last piece is 1/256 of the batch: a quarter of the shortest half-life
# (1/64 of a window), if the batch is as long as a window.
_HALVINGS = 8


def batch_marks(begin: Progress, end: Progress, frontiers: Sequence[Frontier], rows: Sequence[int]) -> list[Progress]:
    """Return how far the streams are at the begin of a batch, at some times within it, and at its end.

    Parameters
    ----------
    begin, end : Progress
        The boundaries of the batch.
    frontiers : sequence of Frontier
        For each stream the records from `begin` on.
    rows : sequence of int
        How many of them the batch takes.

    Returns
    -------
    list of Progress
        In order; nothing but the boundaries where the batch's time is not known, or is nothing. Rows and times between
        the marks add up to those of the batch.
    """
    since_us, until_us = begin.latest_us, end.latest_us
    if None in begin.times_us or since_us is None or until_us is None:
        return [begin, end]
    marks = [begin]
    for halvings in range(1, _HALVINGS + 1):
        at_us = until_us - ((until_us - since_us) >> halvings)
        if at_us >= until_us:
            break
        pairs = zip(begin.seqs, frontiers, rows, strict=True)
        seqs = tuple(seq + min(frontier.rows_until(at_us), count) for seq, frontier, count in pairs)
        times = zip(begin.times_us, end.times_us, strict=True)
        marks.append(Progress(seqs, tuple(_between(at_us, *pair) for pair in times)))
    return [*marks, end]


def _between(at_us: int, low_us: int | None, high_us: int | None) -> int | None:
    """Return a time, but not before the lower nor after the higher of two others."""
    return None if low_us is None or high_us is None else max(low_us, min(at_us, high_us))
