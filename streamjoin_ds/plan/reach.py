"""How far apart the band attributes of one result can lie. A layout of ranges needs this to be known."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass
from functools import cached_property

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.bound.bound_join import Key

__all__ = ["Difference", "Reach", "band_attributes"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A band between the attributes of two streams: ``lo <= key of left - key of right <= hi``, both ends included."""

    left: int
    right: int
    lo: int | float
    hi: int | float


@dataclass(frozen=True)
class Reach:
    """The bands that tie one attribute of each stream together, and what follows from them for every two streams.

    Parameters
    ----------
    streams : int
        How many streams there are, at least two.
    bands : tuple of Difference
        They connect all streams, directly or through others.
    is_whole : bool
        Whether keys are int64, compared exactly. Otherwise they are float64: subtracted, rounded, compared.
    keys : tuple of Key
        For each stream the key that is the attribute; empty in a simulation, which has no columns.

    Raises
    ------
    LayoutError
        The bands leave a stream unconnected: ranges of it would have to be copied everywhere.
    """

    streams: int
    bands: tuple[Difference, ...]
    is_whole: bool = False
    keys: tuple[Key, ...] = ()

    def __post_init__(self) -> None:
        if self.streams < 2 or any(end is None for row in self.most for end in row):
            msg = "ranges need one attribute of every stream, all connected by bands or equalities"
            raise LayoutError(msg, name="layout", hint="use a grid, which works with any condition")

    @cached_property
    def most(self) -> tuple[tuple[int | float | None, ...], ...]:
        """``most[i][j]``: how much larger the key of stream *i* can be than that of stream *j* in any result.

        The bound holds for the true difference, also where the rounded one was compared. So a bound of floats may be a
        little too large and is never too small. Through several streams the bounds add up (shortest paths).
        """
        most: list[list[int | float | None]] = [
            [0 if row == column else None for column in range(self.streams)] for row in range(self.streams)
        ]
        for band in self.bands:
            for row, column, end in ((band.left, band.right, band.hi), (band.right, band.left, -band.lo)):
                most[row][column] = _least(most[row][column], end if self.is_whole else _above(end))
        for through in range(self.streams):
            for row in range(self.streams):
                for column in range(self.streams):
                    first, second = most[row][through], most[through][column]
                    if row != column and first is not None and second is not None:
                        added = first + second if self.is_whole else _above(first + second)
                        most[row][column] = _least(most[row][column], added)
        return tuple(map(tuple, most))

    def most_above(self, stream: int, other: int) -> int | float:
        """Return how much larger the key of `stream` can be than that of `other`."""
        end = self.most[stream][other]
        assert end is not None  # the bands connect all streams
        return end


def band_attributes(bound: BoundJoin) -> list[tuple[tuple[int, ...], Reach]]:
    """Return the attributes by which a join could be laid out in ranges: for each its keys and its reach.

    An attribute is one key of each stream, all connected by the join's bands and equalities. The list is empty where
    there is none; then only a grid will do. The event time is never one, even if a band compares it: all new tuples
    would go to one range. Nor are strings and binary values: their hashes are the engine's.
    """

    def is_time(stream: int, key: int) -> bool:
        return bound.keys[stream][key].column == bound.join.members[stream].time

    bands = [
        c
        for c in bound.conditions[bound.window_conditions :]
        if c.kind != "hash"
        and c.right_stream < len(bound.names)
        and not is_time(c.left_stream, c.left_key)
        and not is_time(c.right_stream, c.right_key)
    ]
    compared: list[set[int]] = [set() for _ in bound.names]
    for band in bands:
        compared[band.left_stream].add(band.left_key)
        compared[band.right_stream].add(band.right_key)
    found = []
    for keys in itertools.product(*map(sorted, compared)):
        differences = tuple(
            Difference(band.left_stream, band.right_stream, band.lo, band.hi)
            for band in bands
            if (keys[band.left_stream], keys[band.right_stream]) == (band.left_key, band.right_key)
        )
        named = tuple(bound.keys[stream][key] for stream, key in enumerate(keys))
        with contextlib.suppress(LayoutError):  # these keys are not tied together
            found.append((keys, Reach(len(keys), differences, named[0].kind != "float", named)))
    return found


def _least(known: int | float | None, end: int | float) -> int | float:
    return end if known is None else min(known, end)


def _above(end: int | float) -> float:
    """Return the float after `end`: no sum that was rounded to `end` is above it."""
    return math.nextafter(end, math.inf)
