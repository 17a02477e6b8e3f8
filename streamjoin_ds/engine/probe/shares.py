"""Shares of like cost: where the work of a probing, or a batch of new tuples, is cut for several threads.

::

    runs, by what a probe costs there     |  0  |        1        | 2 | 3 |   4   |
    three parts of like cost              |----------->|<---------->|<----------->|
                                                       └── run 1 is cut by its probes, run 3's edge is near enough

CellJoin deals basic windows of one size to threads, the same number to each (Gedik et al., 2007, eq. 2). Runs
differ in size, so here they count by their cost, and a large one is cut. It is cut by its probes, never by its rows,
because its pairs come probe after probe: so the parts, one after the other, give the pairs in the order of one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

__all__ = ["Stretch", "even_edges", "like_shares", "tiles_of"]

# Probes of a scan's tile (`SCAN_TILE_PROBES`). A cut is at a tile, so that a scan in parts finds its pairs in the order
# of a whole scan.
_TILE_PROBES = 32


def tiles_of(count: int) -> int:
    """Return how many tiles `count` probes are; a run's probes can be cut between two of them."""
    return -(-count // _TILE_PROBES)


class Stretch(NamedTuple):
    """A run, and the probes that meet it: of `parts` equal parts of all probes, those from `begin` to `end`.

    Attributes
    ----------
    run_number : int
        The number of the run.
    """

    run_number: int
    begin: int = 0
    end: int = 1
    parts: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether all probes meet the run."""
        return self.end - self.begin == self.parts

    def of(self, count: int) -> slice:
        """Return which of `count` probes, in the order in which they meet the run, are in this stretch."""
        begin, end = (tiles_of(count) * edge // self.parts * _TILE_PROBES for edge in (self.begin, self.end))
        return slice(begin, min(end, count))

    def share_of(self, rows: int) -> int:
        """Return how many of a run's rows count for this stretch: the same share as of the probes."""
        return rows * (self.end - self.begin) // self.parts


def even_edges(count: int, parts: int, step: int = 1) -> list[int]:
    """Return where to cut `count` things into parts of like size, each but the last a multiple of `step`.

    It is CellJoin's eq. 2 (Gedik et al., 2007), with the larger parts spread and not first: the last step may be short.
    """
    steps = -(-count // step)
    parts = max(min(parts, steps), 1)
    return [min(steps * part // parts * step, count) for part in range(parts + 1)]


def like_shares(costs: Sequence[float], parts: int, tiles: int, snap_share: float) -> list[list[Stretch]]:
    """Return parts of like cost that follow each other, as stretches of runs.

    Parameters
    ----------
    costs : sequence of float
        What all probes cost in each run, in any unit.
    parts : int
        How many parts are wanted. There are fewer where a part would have nothing.
    tiles : int
        In how many equal parts the probes of a run may be cut.
    snap_share : float
        A cut moves to the edge of a run if the edge is nearer than this share of a part's cost: one more kernel call,
        for a few probes, would cost more than the better balance gains.
    """
    before = [0.0, *accumulate(costs)]
    share = before[-1] / parts
    edges = [(0, 0)]
    for part in range(1, parts if before[-1] > 0 else 1):
        edge = _edge(before, share * part, tiles, snap_share * share)
        if edge > edges[-1]:
            edges.append(edge)
    end = (len(costs), 0)
    found = [_between(begin, after, tiles) for begin, after in pairwise([*edges, end]) if after > begin]
    return [stretches for stretches in found if stretches]


def _edge(before: Sequence[float], target: float, tiles: int, near: float) -> tuple[int, int]:
    """Return the run, and the tile of its probes, before which `target` of the cost lies."""
    number = min(bisect_right(before, target), len(before) - 1) - 1
    low, high = target - before[number], before[number + 1] - target
    if min(low, high) <= near:
        return (number, 0) if low <= high else (number + 1, 0)
    tile = round(tiles * low / (low + high))
    return (number, tile) if tile < tiles else (number + 1, 0)


def _between(begin: tuple[int, int], end: tuple[int, int], tiles: int) -> list[Stretch]:
    """Return the stretches from one edge to another."""
    stretches = []
    for number in range(begin[0], end[0] + 1):
        low, high = begin[1] if number == begin[0] else 0, end[1] if number == end[0] else tiles
        if high - low == tiles:
            stretches.append(Stretch(number))
        elif high > low:
            stretches.append(Stretch(number, low, high, tiles))
    return stretches
