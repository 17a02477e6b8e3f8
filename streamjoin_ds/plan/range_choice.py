"""The choice of ranges and grids for a band attribute: the fullest cell has little load, and few tuples are copied.

The cells' load is bounded, and ranges are laid from the smallest key on, each as long as the bound allows. A range that
no single cell can take gets a grid. The bound is then lowered until the cells no longer suffice. RecPart (Li,
Gatterbauer and Riedewald, 2020) splits recursively instead, since it has several attributes; on one, the longest range
that a bound allows is found by one search.

Loads are compared in one unit, what a row and a pair cost a cell (`CellWork`). How many rows and pairs any range would
hold is estimated from samples (`KeyTables`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.key_samples import KeyCurve, KeySample
from streamjoin_ds.plan.layout import MAX_CELLS, Layout
from streamjoin_ds.plan.layout_choice import Load, choose_layout
from streamjoin_ds.plan.range_layout import Difference, RangeLayout, Reach
from streamjoin_ds.spec.columns import Float64

__all__ = [
    "DEFAULT_WORK",
    "CellWork",
    "KeyTables",
    "RangeChoice",
    "best_anchor",
    "choose_ranges",
    "pair_counts",
    "range_cost",
]

# Candidates are so close together that a cell holds this many stretches between two of them, where the keys allow.
_STRETCHES = 48
# A single cell with at least this share of the bound is taken, and no grids are tried.
_FULL = 0.75
# Most cells of the grids that are tried where a single cell is not full: for two, three and more streams.
_SMALL_GRID = {2: 36, 3: 16}
_SMALLEST_GRID = 8
# Most cells of the grids that are tried first for a hot range; then four times as many are tried, and so on.
_FIRST_HOT_GRID = 64
# A grid of a hot range may have this many times the fewest cells that suffice, if it copies less.
_GRID_SLACK = 1.25
# The relative accuracy to which the bound is found.
_EXACT = 0.004
# Larger bounds, as multiples, that are also tried where there are grids, since few group counts fit any one bound.
_LOOSER = (1.01, 1.02, 1.03, 1.05, 1.07, 1.09)
# By how many standard deviations a cell may be fuller by chance. One or two cells of a thousand are fuller still.
_CHANCE = 3.0


class CellWork(Struct, frozen=True):
    """Weights of a cell's load: ``row * rows received + pair * pairs found``.

    Parameters
    ----------
    row, pair : float
        Only their ratio counts. RecPart uses 4 to 1 (Li, Gatterbauer and Riedewald, 2020). Here a row that is shipped
        costs a few hundred nanoseconds and a result row about sixty, which is about the same ratio. A cell
        finds pairs by an index, so the pairs that it tests are about those that match.
    """

    row: float = 4.0
    pair: float = 1.0


DEFAULT_WORK = CellWork()


def best_anchor(samples: Sequence[KeySample], reach: Reach) -> int:
    """Return the stream that is the best anchor: with it the others have the fewest copies, by their rows and reach.

    Of equal streams that with the most rows is taken, then the first.
    """
    streams = range(reach.streams)

    def copied(anchor: int) -> tuple[float, float]:
        widths = [reach.most_above(anchor, n) + reach.most_above(n, anchor) for n in streams]
        return sum(samples[n].total * float(widths[n]) for n in streams if n != anchor), -samples[anchor].total

    return min(streams, key=copied)


class KeyTables:
    """What a range from candidate boundary *a* to candidate boundary *b* holds, for all *a* < *b*.

    Candidates are the anchor's sampled keys, and the boundaries that cut out single frequent keys of any stream.

    Parameters
    ----------
    samples : sequence of KeySample
        One for each stream.
    reach : Reach
    anchor : int

    Attributes
    ----------
    boundaries : ndarray of float64 or int64, shape (m - 2,)
        The candidates between the first (minus infinity) and the last (infinity).
    arrived, left : ndarray of float64, shape (streams, m)
        The range holds ``arrived[i, b] - left[i, a]`` rows of stream *i*. For the anchor both tables are the same.
    pairs : ndarray of float64, shape (bands, m)
        The range holds about ``pairs[e, b] - pairs[e, a]`` pairs of band *e*. Each pair counts in one range: that of
        its anchor's tuple, or that where such a tuple would be.
    """

    def __init__(self, samples: Sequence[KeySample], reach: Reach, anchor: int) -> None:
        self._reach, self._anchor = reach, anchor
        self._curves = [sample.curve() for sample in samples]
        self._pair_curves = [_pair_curve(band, samples, self._curves, reach, anchor) for band in reach.bands]
        self._fill(_candidates(samples, reach, anchor))

    def refine(self, parts: npt.NDArray[np.int64]) -> None:
        """Cut each stretch between two candidates into some parts, as far as there are keys between them.

        Stretches of whole numbers of length 2^62 and more, and of floats of infinite length, stay whole.

        Parameters
        ----------
        parts : ndarray of int64, shape (m - 1,)
            The number of parts of each stretch, at least 1. The first and the last stretch have no end and stay whole.
        """
        inner = parts[1:-1]
        keys = self.boundaries.astype(np.float64)
        with np.errstate(over="ignore"):
            lengths = np.diff(keys)
        cut = np.flatnonzero((inner > 1) & (lengths < (1 << 62 if self._reach.is_whole else np.inf)))
        if not len(cut):
            return
        counts = inner[cut] - 1
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        share = (np.arange(int(counts.sum())) - begins + 1) / np.repeat(inner[cut], counts)
        low = np.repeat(self.boundaries[cut], counts)
        steps = np.repeat(lengths[cut], counts) * share
        self._fill(np.unique(np.concatenate((self.boundaries, low + steps.astype(self.boundaries.dtype)))))

    def cut_at(self, boundaries: npt.NDArray[Any]) -> None:
        """Take these boundaries as the candidates, and no others."""
        self._fill(boundaries, keeps_all=True)

    def _fill(self, boundaries: npt.NDArray[Any], *, keeps_all: bool = False) -> None:
        reach, anchor, keys = self._reach, self._anchor, boundaries.astype(np.float64)
        arrived, left = np.empty((2, reach.streams, len(keys) + 2))
        with np.errstate(over="ignore"):
            for stream, curve in enumerate(self._curves):
                # For an equality of floats this adds the smallest float, and so nothing.
                arrived[stream] = _with_ends(curve, keys + float(reach.most_above(stream, anchor)))
                left[stream] = _with_ends(curve, keys - float(reach.most_above(anchor, stream)))
        if (
            len(keys) and not keeps_all and not arrived[:, 1].any()
        ):  # no row is before the first candidate, so no range ends there
            boundaries, arrived, left = boundaries[1:], np.delete(arrived, 1, axis=1), np.delete(left, 1, axis=1)
        # Bands that contradict each other have a negative reach.
        self.boundaries, self.arrived, self.left = boundaries, np.maximum(arrived, left), left
        self.pairs = np.array([_with_ends(curve, boundaries.astype(np.float64)) for curve in self._pair_curves])


def _with_ends(curve: KeyCurve, keys: Float64) -> Float64:
    """Return what lies below each key, with 0 before the first key and the total after the last."""
    return np.concatenate(([0.0], curve.before(keys), [curve.total]))


def _candidates(samples: Sequence[KeySample], reach: Reach, anchor: int) -> npt.NDArray[Any]:
    """Return the anchor's sampled keys, and the boundaries that cut out single frequent keys of any stream."""
    found = [samples[anchor].keys]
    for stream, sample in enumerate(samples):
        points = sample.points
        if reach.is_whole:
            below, above = int(reach.most_above(stream, anchor)), int(reach.most_above(anchor, stream)) + 1
            if max(abs(below), abs(above)) < 1 << 62:  # with a longer reach no range cuts a key out
                near = points[np.abs(points) < 1 << 62]
                found += [near - below, near + above]
        else:
            with np.errstate(over="ignore"):
                found.append(points - reach.most_above(stream, anchor))
                found.append(np.nextafter(points + reach.most_above(anchor, stream), np.inf))
    every: npt.NDArray[Any] = np.unique(np.concatenate(found))
    finite: npt.NDArray[Any] = every[np.isfinite(every)]
    return finite


def _pair_curve(
    band: Difference, samples: Sequence[KeySample], curves: Sequence[KeyCurve], reach: Reach, anchor: int
) -> KeyCurve:
    """Return the band's pairs by the anchor's key; for a band of other streams by the key that an anchor would have."""
    own, other, lo, hi = band.left, band.right, float(band.lo), float(band.hi)
    if other == anchor:
        own, other, lo, hi = other, own, -hi, -lo
    keys = samples[own].keys.astype(np.float64)

    def partners(keys: Float64) -> Float64:
        after = keys - lo + 1 if reach.is_whole else np.nextafter(keys - lo, np.inf)
        return curves[other].before(after) - curves[other].before(keys - hi)

    with np.errstate(over="ignore"):
        at = samples[own].at * partners(keys)
        between = np.concatenate((keys[:1], keys[:-1] / 2 + keys[1:] / 2))
        before = samples[own].before * partners(np.floor(between) if reach.is_whole else between)
    middle = float(reach.most_above(anchor, own)) / 2 - float(reach.most_above(own, anchor)) / 2
    middle = middle if np.isfinite(middle) else 0.0
    return KeyCurve.of(keys + middle, at, before)


class RangeChoice(Struct, frozen=True):
    """A layout of ranges and what the samples say that it costs.

    Attributes
    ----------
    layout : RangeLayout
    load : float
        The load of the fullest cell, estimated from the samples.
    likely_load : float
        The load of the cell that chance can fill most: three standard deviations more, where each row falls
        independently. That matters where few rows have many pairs each, as where one stream has a thousandth of the
        other's rate.
    mean_load : float
        The load that all cells would have if they shared the work and nothing were copied: no layout has less
        (Li, Gatterbauer and Riedewald, 2020).
    copies : float
        Rows shipped for each row read.
    pairs : tuple of float
        For each of the reach's bands how many pairs all cells find together.
    """

    layout: RangeLayout
    load: float
    likely_load: float
    mean_load: float
    copies: float
    pairs: tuple[float, ...]


def choose_ranges(
    samples: Sequence[KeySample],
    reach: Reach,
    cells: int,
    work: CellWork = DEFAULT_WORK,
    *,
    is_split: bool = True,
) -> RangeChoice:
    """Return the ranges and grids that suit keys like those of the samples. The same samples give the same choice.

    Parameters
    ----------
    samples : sequence of KeySample
        One for each stream. Sixteen keys for each cell are enough, and a few thousand in all where there are few cells.
    reach : Reach
    cells : int
        1 to 4096.
    work : CellWork
    is_split : bool
        Whether hot ranges get grids; False: each range is one cell, however hot.

    Raises
    ------
    LayoutError
        The number of cells or of samples is wrong.
    """
    if not 1 <= cells <= MAX_CELLS or len(samples) != reach.streams:
        msg = f"a choice of ranges needs 1 to {MAX_CELLS} cells and one sample for each stream"
        raise LayoutError(msg, name="cells", hint="for example one cell for each core")
    anchor = best_anchor(samples, reach)
    tables = KeyTables(samples, reach, anchor)
    loads = _own_loads(tables, work)
    if loads[-1]:
        tables.refine(np.ceil(np.diff(loads) / loads[-1] * cells * _STRETCHES).clip(1, _STRETCHES).astype(np.int64))
    walk = _Walk(tables, reach, anchor, cells, work, is_split)
    if not walk.mean_load:
        grid = choose_layout(cells, Load.of_windows([1.0] * reach.streams))
        return RangeChoice(
            RangeLayout(cells, reach, anchor, (), (grid,)), 0.0, 0.0, 0.0, 1.0, (0.0,) * len(reach.bands)
        )
    return walk.best()


def range_cost(layout: RangeLayout, samples: Sequence[KeySample]) -> RangeChoice:
    """Return what a layout of ranges costs for keys like those of the samples, which may be others than it is for."""
    tables = KeyTables(samples, layout.reach, layout.anchor)
    tables.cut_at(np.array(layout.boundaries, dtype=np.int64 if layout.reach.is_whole else np.float64))
    walk = _Walk(tables, layout.reach, layout.anchor, layout.cells, DEFAULT_WORK, True)
    if not walk.mean_load:
        return RangeChoice(layout, 0.0, 0.0, 0.0, 1.0, (0.0,) * len(layout.reach.bands))
    return walk.choice([_Piece(place, place + 1, grid.counts) for place, grid in enumerate(layout.grids)])


def pair_counts(samples: Sequence[KeySample], reach: Reach) -> tuple[float, ...]:
    """Return how many pairs each of the bands finds, in all cells together."""
    tables = KeyTables(samples, reach, best_anchor(samples, reach))
    return tuple(float(total) for total in tables.pairs[:, -1])


class _Piece(Struct, frozen=True):
    """A range from one candidate to another, with its grid."""

    begin: int
    end: int
    counts: tuple[int, ...]


class _Walk:
    """Lays ranges under a bound on the cells' load."""

    def __init__(
        self, tables: KeyTables, reach: Reach, anchor: int, cells: int, work: CellWork, is_split: bool
    ) -> None:
        self._tables, self._reach, self._anchor = tables, reach, anchor
        self._cells, self._work, self._is_split = cells, work, is_split
        self._sides = np.array([(band.left, band.right) for band in reach.bands])
        pairs = tables.pairs.sum(axis=0)
        self._own_rows = _own_rows(tables)
        self._own = _own_loads(tables, work)
        self._arrived = work.row * tables.arrived.sum(axis=0) + work.pair * pairs
        self._left = work.row * tables.left.sum(axis=0) + work.pair * pairs
        # These are searched one value at a time, which is faster in lists.
        self._own_list, self._arrived_list, self._left_list = (
            table.tolist() for table in (self._own, self._arrived, self._left)
        )
        self.mean_load = float(self._own[-1]) / cells
        self._rows = float(self._own_rows[-1])

    def best(self) -> RangeChoice:
        """Return the choice, among those under several bounds, that is nearest to the best in both load and copies."""
        enough, step = self.mean_load, 0.005
        while (pieces := self._pieces(enough)) is None:
            short = enough
            enough, step = enough * (1 + step), step * 2
        if enough > self.mean_load:
            while enough > short * (1 + _EXACT):
                middle = (enough + short) / 2
                tried = self._pieces(middle)
                if tried is None:
                    short = middle
                else:
                    enough, pieces = middle, tried
        choices = [self.choice(pieces)]
        if any(max(piece.counts) > 1 for piece in pieces):
            looser = (self._pieces(enough * factor) for factor in _LOOSER)
            choices += [self.choice(tried) for tried in looser if tried is not None]
        fewest = min(choice.copies for choice in choices)
        return min(choices, key=lambda choice: max(choice.load / self.mean_load, choice.copies / fewest))

    def _pieces(self, bound: float) -> list[_Piece] | None:
        """Return ranges whose cells have at most this load; None where they take too many cells."""
        begin, last, cells_left = 0, len(self._own_list) - 1, self._cells
        alone = (1,) * self._reach.streams
        pieces = []
        while begin < last:
            end = min(bisect.bisect_right(self._arrived_list, bound + self._left_list[begin]) - 1, last)
            piece = _Piece(begin, end, alone)
            is_full = end == last or self._own_list[end] - self._own_list[begin] >= _FULL * bound
            if not self._is_split:
                piece = _Piece(begin, max(end, begin + 1), alone)
            elif end <= begin or not is_full:
                better = self._grid_piece(begin, bound, cells_left, end)
                if better is None:
                    return None
                piece = better
            cells_left -= int(np.prod(piece.counts)) if piece.counts != alone else 1
            if cells_left < 0:
                return None
            pieces.append(piece)
            begin = piece.end
        return pieces

    def _grid_piece(self, begin: int, bound: float, cells_left: int, alone_end: int) -> _Piece | None:
        """Return the range and grid from `begin` on that waste least for the load that they take; None if none fits.

        What is wasted is the share of all cells' load that stays unused, and the share of all rows that are copies.
        """
        streams = self._reach.streams
        counts = _shapes(streams, min(cells_left, _SMALL_GRID.get(streams, _SMALLEST_GRID)))
        counts = counts[self._loads(begin, begin + 1, counts) <= bound]
        if not len(counts):
            counts = self._hot_shapes(begin, bound, cells_left)
        if not len(counts):
            return None
        # Each grid is tried with its furthest end and its nearest: if not full, it copies fewer neighbouring rows.
        low, high = np.full(len(counts), begin + 1), np.full(len(counts), len(self._own) - 1)
        while (low < high).any():
            middle = (low + high + 1) // 2
            fits = self._loads(begin, middle, counts) <= bound
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        ends = np.concatenate((low, np.full(len(counts), begin + 1)))
        counts = np.concatenate((counts, counts))
        if alone_end > begin:
            ends, counts = np.append(ends, alone_end), np.vstack((counts, np.ones(streams, dtype=np.int64)))
        # What the remaining keys bring must have room in the remaining cells.
        cells = counts.prod(axis=1)
        has_room = self._own[-1] - self._own[ends] <= (cells_left - cells) * bound * (1 + 1e-9)
        ends, counts, cells = ends[has_room], counts[has_room], cells[has_room]
        if not len(ends):
            return None
        taken = self._own[ends] - self._own[begin]
        shipped = ((self._tables.arrived[:, ends].T - self._tables.left[:, begin]) * (cells[:, None] / counts)).sum(
            axis=1
        )
        copied = shipped - (self._own_rows[ends] - self._own_rows[begin])
        unused = (cells * bound - taken) / (self._cells * bound)
        waste = (unused + copied / self._rows) / np.maximum(taken, 1e-300)
        place = int(np.lexsort((cells, waste))[0])
        return _Piece(begin, int(ends[place]), tuple(int(count) for count in counts[place]))

    def _hot_shapes(self, begin: int, bound: float, cells_left: int) -> npt.NDArray[np.int64]:
        """Return the smallest grids, or nearly so, that can take the shortest range from `begin` on, if any can."""
        most = _FIRST_HOT_GRID
        while True:
            every = _shapes(self._reach.streams, most)
            every = every[every.prod(axis=1) <= cells_left]
            every = every[self._loads(begin, begin + 1, every) <= bound]
            if len(every) or most >= cells_left:
                products = every.prod(axis=1)
                fewest: npt.NDArray[np.int64] = every[products <= products.min(initial=MAX_CELLS) * _GRID_SLACK]
                return fewest
            most *= 4

    def _loads(
        self, begin: int, end: int | npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return the load of one cell of each grid, over the range from `begin` to each end."""
        rows = self._tables.arrived[:, end] - _column(self._tables.left[:, begin], end)
        pairs = self._tables.pairs[:, end] - _column(self._tables.pairs[:, begin], end)
        met = counts[:, self._sides[:, 0]] * counts[:, self._sides[:, 1]]
        loads: npt.NDArray[np.float64] = (self._work.row * rows.T / counts).sum(axis=1)
        loads += (self._work.pair * pairs.T / met).sum(axis=1)
        return loads

    def choice(self, pieces: Sequence[_Piece]) -> RangeChoice:
        """Return these ranges as a choice, with its costs."""
        begins, ends = (np.array([getattr(piece, side) for piece in pieces]) for side in ("begin", "end"))
        counts = np.array([piece.counts for piece in pieces])
        rows = self._tables.arrived[:, ends].T - self._tables.left[:, begins].T
        pairs = self._tables.pairs[:, ends].T - self._tables.pairs[:, begins].T
        rows_in_cell = rows / counts
        pairs_in_cell = pairs / (counts[:, self._sides[:, 0]] * counts[:, self._sides[:, 1]])
        loads = self._work.row * rows_in_cell.sum(axis=1) + self._work.pair * pairs_in_cell.sum(axis=1)
        likely = loads + _CHANCE * np.sqrt(self._variances(rows_in_cell, pairs_in_cell))
        shipped = float((rows * (counts.prod(axis=1)[:, None] / counts)).sum())
        kind = int if self._reach.is_whole else float
        boundaries = tuple(kind(self._tables.boundaries[begin - 1]) for begin in begins[1:])
        grids = tuple(_grid(piece.counts) for piece in pieces)
        layout = RangeLayout(self._cells, self._reach, self._anchor, boundaries, grids)
        found = tuple(float(total) for total in self._tables.pairs[:, -1])
        return RangeChoice(layout, float(loads.max()), float(likely.max()), self.mean_load, shipped / self._rows, found)

    def _variances(self, rows: npt.NDArray[np.float64], pairs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the variance of each cell's load, due to its number of rows; each row costs itself and its pairs."""
        variances = np.zeros(len(rows))
        for stream in range(self._reach.streams):
            own = pairs[:, (self._sides == stream).any(axis=1)].sum(axis=1)
            count = np.maximum(rows[:, stream], 1.0)
            variances += rows[:, stream] * (self._work.row + self._work.pair * own / count) ** 2
        return variances


def _own_rows(tables: KeyTables) -> npt.NDArray[np.float64]:
    """Return the rows below each candidate, each row counted once: what ranges would hold if they shared no rows."""
    rows: npt.NDArray[np.float64] = ((tables.arrived + tables.left) / 2).sum(axis=0)
    return rows


def _own_loads(tables: KeyTables, work: CellWork) -> npt.NDArray[np.float64]:
    loads: npt.NDArray[np.float64] = work.row * _own_rows(tables) + work.pair * tables.pairs.sum(axis=0)
    return loads


def _column(values: npt.NDArray[np.float64], end: int | npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return values[:, None] if isinstance(end, np.ndarray) else values


@lru_cache(maxsize=1024)
def _grid(counts: tuple[int, ...]) -> Layout:
    return Layout(counts)


@lru_cache(maxsize=16)
def _shapes(streams: int, cells: int) -> npt.NDArray[np.int64]:
    """Return all group counts of at most `cells` cells: int64 of shape (ways, streams)."""
    chosen, products = np.empty((1, 0), dtype=np.int64), np.ones(1, dtype=np.int64)
    for _ in range(streams):
        widths = cells // products
        begins = np.repeat(np.cumsum(widths) - widths, widths)
        factor = np.arange(int(widths.sum())) - begins + 1
        chosen = np.column_stack((np.repeat(chosen, widths, axis=0), factor))
        products = np.repeat(products, widths) * factor
    chosen.flags.writeable = False
    return chosen
