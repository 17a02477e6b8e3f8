"""Ranges of a band attribute with a grid in each: the second kind of layout, behind the same cell numbers.

::

    key of the anchor   ──────────┬──────────────┬──┬───────────────►
                        range 0   │   range 1    │2 │     range 3
                        grid 1x1  │   grid 1x1   │  │     grid 1x1
                        cell 0    │   cell 1     │  │     cell 6
                                                grid 2x2: cells 2 to 5 (a hot range)

One stream is the *anchor*. Its tuple lies in the one range that holds its key. A tuple of another stream goes to every
range in which an anchor's key can be near enough to match. So each combination is in the range of its anchor's tuple,
and in that range the grid lets it meet in one cell. A tuple that goes to a range needlessly finds nothing twice: each
anchor's tuple is in one range only.

The *reach* says how far apart the band attributes of one result can lie (`Reach`).

Layouts of both kinds are plain JSON values in offsets, state rows, plans and ``join.json`` (`layout_from_facts`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.layout import MAX_CELLS, CellLayout, Layout, Received
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.bound.bound_join import Key
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, SEQ
from streamjoin_ds.spec.key_values import nullable_key_values

__all__ = ["Dealt", "Difference", "RangeLayout", "Reach", "band_attributes", "is_of_ranges", "layout_from_facts"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio


class Difference(Struct, frozen=True):
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


class Dealt(Struct, frozen=True):
    """The groups to which tuples go, with one entry for each tuple and group.

    Attributes
    ----------
    rows : ndarray of int64
        Places of the tuples among those that were given, ascending.
    groups : ndarray of int32
        The groups, numbered within the stream.
    is_home : ndarray of bool
        True in exactly one entry of each tuple: the home cell of that group counts and reports it.
    """

    rows: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int32]
    is_home: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RangeLayout:
    """Ranges of one attribute, with a grid of cells in each. An immutable value, like `Layout`.

    Parameters
    ----------
    cells : int
        The number of cells, at most 4096. The ranges' grids take the first cells, range by range. Cells that are left
        over get only tuples that match nothing.
    reach : Reach
        The join's bands on the attribute.
    anchor : int
        The stream whose tuples lie in one range each.
    boundaries : tuple of int or float
        Ascending, finite. Range *n* holds the anchor's keys from boundary ``n - 1`` (included) to boundary *n*
        (excluded); the first and the last range have no end. Where keys are int64, so are the boundaries.
    grids : tuple of Layout
        For each range the group counts in it; one more than boundaries.

    Raises
    ------
    LayoutError
        Boundaries do not ascend, or grids do not fit the ranges, the streams or the cells.

    Notes
    -----
    A key that is null or NaN matches nothing, and an infinite one only by an equality. Tuples that match nothing are
    dealt to all cells by their number, one cell each, so that they are counted and a frequent null overloads no cell.
    """

    cells: int
    reach: Reach
    anchor: int
    boundaries: tuple[int | float, ...]
    grids: tuple[Layout, ...]

    def __post_init__(self) -> None:
        kind = int if self.reach.is_whole else float
        is_sound = (
            all(type(boundary) is kind and _is_key(boundary) for boundary in self.boundaries)
            and all(one < other for one, other in itertools.pairwise(self.boundaries))
            and len(self.grids) == len(self.boundaries) + 1
            and all(len(grid.counts) == self.reach.streams for grid in self.grids)
            and 0 <= self.anchor < self.reach.streams
            and sum(grid.cells for grid in self.grids) <= self.cells <= MAX_CELLS
        )
        if not is_sound:
            msg = "a layout of ranges needs ascending boundaries, one grid for each range, and cells for all grids"
            raise LayoutError(
                msg, name="layout", hint=f"ascending boundaries, and grids with at most {MAX_CELLS} cells in all"
            )

    @property
    def streams(self) -> int:
        """The number of streams."""
        return self.reach.streams

    def groups(self, stream: int) -> int:
        """Return how many groups the stream has: those of each range, and one a cell for tuples that match nothing."""
        return int(self._group_starts[stream][-1]) + self.cells

    def cells_of(self, stream: int, group: int) -> tuple[int, ...]:
        """Return the cells to which a group of the stream is copied, ascending."""
        starts = self._group_starts[stream]
        if group >= starts[-1]:
            return (group - int(starts[-1]),)
        place = int(np.searchsorted(starts, group, side="right")) - 1
        first = int(self._cell_starts[place])
        return tuple(first + cell for cell in self.grids[place].cells_of(stream, group - int(starts[place])))

    def home_cell(self, stream: int, group: int) -> int:
        """Return the home of a group, its first cell."""
        return self.cells_of(stream, group)[0]

    def groups_in(self, cell: int) -> tuple[tuple[int, ...], ...]:
        """Return for each stream the cell's groups: that of its range, if any, and the one that matches nothing."""
        place = int(np.searchsorted(self._cell_starts, cell, side="right")) - 1
        within = cell - int(self._cell_starts[place])
        found: list[tuple[int, ...]] = []
        for stream, starts in enumerate(self._group_starts):
            alone = int(starts[-1]) + cell
            if within < self.grids[place].cells:
                found.append((int(starts[place]) + self.grids[place].group_in_cell(within, stream), alone))
            else:
                found.append((alone,))
        return tuple(found)

    def range_of_group(self, stream: int) -> npt.NDArray[np.int64]:
        """Return the range of each group of the stream; for a group that matches nothing the number of ranges."""
        counts = [*(grid.counts[stream] for grid in self.grids), self.cells]
        return np.repeat(np.arange(len(counts)), counts)

    def deal(
        self,
        stream: int,
        keys: npt.NDArray[Any],
        seqs: npt.NDArray[np.int64],
        has_key: npt.NDArray[np.bool_] | None = None,
    ) -> Dealt:
        """Return the groups of tuples.

        Parameters
        ----------
        stream : int
        keys : ndarray of float64 or int64, shape (n,)
            The tuples' keys of the attribute.
        seqs : ndarray of int64, shape (n,)
            The tuples' numbers in their stream, by which they are dealt within a range.
        has_key : ndarray of bool, shape (n,), optional
            False where the key is null; whatever stands in `keys` there is not looked at. By default all have one.
        """
        first, last = self.ranges_of(stream, keys)
        is_matchable = self._is_matchable(keys, has_key)
        first, last = (np.where(is_matchable, place, len(self.grids)) for place in (first, last))
        copies = last - first + 1
        rows = np.repeat(np.arange(len(keys)), copies)
        begins = np.cumsum(copies) - copies
        is_home = np.zeros(len(rows), dtype=np.bool_)
        is_home[begins] = True
        ranges = first[rows] + np.arange(len(rows)) - begins[rows]
        counts = np.array([*(grid.counts[stream] for grid in self.grids), self.cells])
        groups = self._group_starts[stream][ranges] + _dealt(seqs[rows], counts[ranges])
        return Dealt(rows, groups.astype(np.int32), is_home)

    def ranges_of(self, stream: int, keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the first and the last range that each key goes to, both included. No key is NaN."""
        arriving, left = self._limits[stream]
        last = np.searchsorted(arriving, keys, side="right")
        # A band that no key can satisfy reaches no range; the tuple still has one cell, which counts it.
        first = np.minimum(np.searchsorted(left, keys, side="right"), last)
        return first, last

    def window_group(self, cell: int, stream: int) -> int:
        """Return the stream's group of the cell's range, or where the cell is in none, that which matches nothing."""
        return self.groups_in(cell)[stream][0]

    def deals_like(self, stream: int) -> Hashable:
        """Return the layout itself."""
        del stream
        return self

    def matches_nothing(self, stream: int, group: int) -> bool:
        """Whether the group is one of those for tuples whose key matches nothing."""
        return group >= int(self._group_starts[stream][-1])

    def shares(self, bound: BoundJoin, stream: int, tuples: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield the groups that have tuples, with their tuples; see `CellLayout`."""
        if not tuples.num_rows:
            return
        tuples = tuples.combine_chunks()
        keys, has_key = self._keys(bound, stream, tuples)
        dealt = self.deal(stream, keys, tuples.column(SEQ).to_numpy(), has_key)
        order = np.argsort(dealt.groups.astype(np.int16), kind="stable")  # NumPy sorts 16 bits without comparisons
        groups, begins = np.unique(dealt.groups[order], return_index=True)
        in_order = tuples.take(pa.array(dealt.rows[order]))
        for group, (begin, end) in zip(groups.tolist(), pairwise([*begins.tolist(), len(order)]), strict=True):
            yield group, in_order.slice(begin, end - begin)

    def received(self, bound: BoundJoin, cell: int, stream: int, tuples: pa.Table) -> Received:
        """Return that tuples whose key may match are kept, and which tuples this cell counts.

        A tuple is counted in the home cell of its group in its first range. Where its key matches nothing it is in one.
        """
        keys, has_key = self._keys(bound, stream, tuples)
        is_kept = self._is_matchable(keys, has_key)
        group = self.window_group(cell, stream)
        is_counted = ~is_kept
        if not self.matches_nothing(stream, group) and self.home_cell(stream, group) == cell:
            first, _ = self.ranges_of(stream, keys)
            is_counted |= first == self.range_of_group(stream)[group]
        return Received(is_counted, None if is_kept.all() else is_kept)

    def _is_matchable(self, keys: npt.NDArray[Any], has_key: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
        has_equality = any(band.lo == band.hi == 0 for band in self.reach.bands)
        found: npt.NDArray[np.bool_] = ~np.isnan(keys) if has_equality else np.isfinite(keys)
        return found if has_key is None else found & has_key

    def to_facts(self) -> dict[str, Any]:
        """Return the layout as plain JSON values; only the grids of hot ranges are listed."""
        reach = self.reach
        return {
            "cells": self.cells,
            "keys": [[key.column, key.kind] for key in reach.keys],
            "bands": [[band.left, band.right, band.lo, band.hi] for band in reach.bands],
            "anchor": self.anchor,
            "boundaries": list(self.boundaries),
            "grids": [[place, *grid.counts] for place, grid in enumerate(self.grids) if grid.cells > 1],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], streams: int) -> RangeLayout:
        """Return the layout that `to_facts` wrote.

        Raises
        ------
        LayoutError, ValueError, TypeError, KeyError, IndexError
            The facts are anything else.
        """
        keys = tuple(Key(column, kind) for column, kind in facts["keys"])
        bands = tuple(Difference(*band) for band in facts["bands"])
        is_sound = type(facts["cells"]) is type(facts["anchor"]) is int and len(keys) == streams
        if not is_sound or any(key.kind not in ("float", "int", "ns") for key in keys):
            msg = "a layout of ranges needs its cells, its anchor, and a key of each stream"
            raise ValueError(msg)
        grids = [Layout((1,) * streams)] * (len(facts["boundaries"]) + 1)
        for place, *counts in facts["grids"]:
            grids[place] = Layout(tuple(counts))
        reach = Reach(streams, bands, keys[0].kind != "float", keys)
        return cls(facts["cells"], reach, facts["anchor"], tuple(facts["boundaries"]), tuple(grids))

    def _keys(
        self, bound: BoundJoin, stream: int, tuples: pa.Table
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
        key = self.reach.keys[stream]
        column = tuples.column(bound.key_name(stream, key))
        array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
        return nullable_key_values(array, key.kind)

    @cached_property
    def _cell_starts(self) -> npt.NDArray[np.int64]:
        """The first cell of each range."""
        return np.cumsum([0, *(grid.cells for grid in self.grids[:-1])])

    @cached_property
    def _group_starts(self) -> list[npt.NDArray[np.int64]]:
        """For each stream the first group of each range, and the first of the groups that match nothing."""
        return [np.cumsum([0, *(g.counts[stream] for g in self.grids)]) for stream in range(self.reach.streams)]

    @cached_property
    def _limits(self) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """For each stream and boundary two limits.

        They are the least key that can meet an anchor's key at or above the boundary, and the least key that can meet
        none below it.
        """
        return [self._limits_of(stream) for stream in range(self.reach.streams)]

    def _limits_of(self, stream: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        above = self.reach.most_above(self.anchor, stream)
        below = self.reach.most_above(stream, self.anchor)
        if self.reach.is_whole:
            # Python's integers do not overflow. No key reaches a limit above int64, so such limits are left out.
            arriving, left = (
                [max(limit, INT64_MIN) for limit in limits if limit <= INT64_MAX]
                for limits in (
                    [int(b) - int(above) for b in self.boundaries],
                    [int(b) + int(below) for b in self.boundaries],
                )
            )
            return np.array(arriving, dtype=np.int64), np.array(left, dtype=np.int64)
        boundaries = np.array(self.boundaries, dtype=np.float64)
        if stream == self.anchor:
            return boundaries, boundaries
        with np.errstate(over="ignore"):
            # One float further out than the rounded sum: a tuple may go to a range needlessly, and is never missing.
            return np.nextafter(boundaries - above, -np.inf), np.nextafter(boundaries + below, np.inf)

    def __str__(self) -> str:
        if not self.boundaries:
            return str(self.grids[0])
        hot = [grid for grid in self.grids if grid.cells > 1]
        told = f"{len(self.grids)} ranges"
        return f"{told}, {len(hot)} of them grids, the largest {max(hot, key=lambda g: g.cells)}" if hot else told


def _is_key(value: int | float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else INT64_MIN <= value <= INT64_MAX


def _dealt(seqs: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a group below `counts` for each number.

    It is not the remainder, which a grid over all tuples uses: where sensors take turns, all tuples of a range may have
    even numbers. Multiples of the golden ratio spread such numbers, and consecutive ones as evenly as the remainder
    does (Knuth, The Art of Computer Programming, vol. 3, section 6.4).
    """
    mixed = (seqs.astype(np.uint64) * _GOLDEN) >> np.uint64(32)
    dealt: npt.NDArray[np.int64] = ((mixed * counts.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    return dealt


def layout_from_facts(facts: Any, streams: int) -> CellLayout:
    """Return the layout that ``to_facts`` of a layout for so many streams wrote.

    Raises
    ------
    ValueError
        The facts are anything else.
    """
    try:
        if isinstance(facts, Mapping):
            return RangeLayout.from_facts(facts, streams)
        if isinstance(facts, list) and len(facts) == streams and all(type(count) is int for count in facts):
            return Layout(tuple(facts))
    except (LayoutError, KeyError, IndexError, TypeError, ValueError) as error:
        msg = "these are no facts of a layout"
        raise ValueError(msg) from error
    msg = "these are no facts of a layout"
    raise ValueError(msg)


def is_of_ranges(layout: CellLayout) -> bool:
    """Whether a layout is of ranges, which versions before there were any cannot read."""
    return isinstance(layout, RangeLayout)
