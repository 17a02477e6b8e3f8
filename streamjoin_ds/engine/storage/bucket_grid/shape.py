"""The shape of a bucket grid: which keys make a grid cell, how wide it is, how many buckets there are.

A bucket is to hold most of a chunk's 16 rows. More rows would often need a second chunk, and fewer leave memory empty
(a full window takes about 1.26 times the bytes of its columns). So cells are made so wide that each has about that many
rows, whatever the band. A wide band then covers several cells, which are neighbours in memory along the last key
(epsilon-grid order without sorting).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from streamjoin_ds.engine.storage.sort_layout import Keys, Sample, SortLayoutChooser
from streamjoin_ds.engine.tuning import GridTuning

__all__ = ["MAX_GRID_ROWS", "GridShape", "chosen_shape", "tested_rows"]

# Rows of a grid, at most: they are numbered with int32.
MAX_GRID_ROWS = 2**31 - 1
_MAX_STRIDE = 1 << 31
_MAX_WIDTH = 1 << 62


class GridShape(Struct, frozen=True):
    """The cells and buckets of one grid.

    Attributes
    ----------
    keys : tuple of int
        Numbers of the keys that make a cell, one or two.
    widths : tuple of int or float
        Of a cell, key by key: a value lies in cell ``floor(value / width)``.
    stride : int
        How many cells of the second key are told apart within each cell of the first.
    buckets : int
        How many there are: a prime, so that values at regular distances use all buckets.
    """

    keys: tuple[int, ...]
    widths: tuple[int | float, ...]
    stride: int
    buckets: int

    def told(self, names: Sequence[str]) -> str:
        """Return the shape in words; `names` are the columns of the keys."""
        cells = " and ".join(f"{names[key]} (width {width})" for key, width in zip(self.keys, self.widths, strict=True))
        return f"in {self.buckets} buckets by cells of {cells}"

    def to_facts(self) -> dict[str, Any]:
        """Return the shape as plain JSON values."""
        return {"keys": self.keys, "widths": self.widths, "stride": self.stride, "buckets": self.buckets}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> GridShape:
        """Return the shape that `to_facts` described.

        Raises
        ------
        KeyError, TypeError, ValueError
            The facts are those of no shape.
        """
        keys, widths = tuple(facts["keys"]), tuple(facts["widths"])
        stride, buckets = facts["stride"], facts["buckets"]
        whole = all(type(value) is int for value in (*keys, stride, buckets))
        is_cell = 1 <= len(keys) == len(widths) <= 2 and all(width > 0 for width in widths)
        if not (whole and is_cell and 1 <= stride <= _MAX_STRIDE and 1 <= buckets < _MAX_STRIDE and min(keys) >= 0):
            msg = "these are not the facts of a bucket grid"
            raise ValueError(msg)
        return cls(keys, widths, stride, buckets)


def chosen_shape(chooser: SortLayoutChooser, keys: Keys, rows: int, tuning: GridTuning) -> GridShape | None:
    """Return the shape for a window of `rows` rows; None where no key narrows, so that all rows must be scanned.

    Parameters
    ----------
    keys : sequence of ndarray, float64 or int64
        Of the window, or of a sample of it.
    """
    grid = chooser.choose(keys, rows)
    # An interval between columns has no width by which cells could be made: where it is all that narrows, runs serve.
    numbers = [number for number in dict.fromkeys((grid.first, grid.second)) if chooser.is_banded(number)]
    if not numbers:
        return None
    numbers = chooser.serving_all(numbers, keys, rows)
    axes = _axes(chooser, numbers, keys, rows, tuning)
    scale = _scale(axes, rows, tuning)
    widths = tuple(axis.width(scale) for axis in axes)
    per_cell = _rows_per_cell(axes, scale, rows)
    per_bucket = min(max(per_cell, tuning.rows_per_bucket), tuning.most_rows_per_bucket)
    stride = int(min(_MAX_STRIDE, axes[1].reach / widths[1] + 2)) if len(axes) > 1 else 1
    buckets = _prime(max(tuning.least_buckets, int(rows / per_bucket)))
    return GridShape(tuple(numbers), widths, stride, buckets)


def tested_rows(chooser: SortLayoutChooser, shape: GridShape, keys: Keys, rows: int, tuning: GridTuning) -> float:
    """Return about how many of `rows` rows a probe tests in a grid of this shape, if probes lie as the rows do.

    Parameters
    ----------
    keys : sequence of ndarray, float64 or int64
        Of a sample of the rows.
    """
    tested = float(rows)
    for axis, width in zip(_axes(chooser, shape.keys, keys, rows, tuning), shape.widths, strict=True):
        tested *= axis.met(width)
    return tested


def _axes(chooser: SortLayoutChooser, numbers: Sequence[int], keys: Keys, rows: int, tuning: GridTuning) -> list[_Axis]:
    axes = []
    for number in numbers:
        sample = Sample(keys[number], chooser.tuning, tuning.sample_rows, tuning.neighbours)
        axes.append(_Axis(sample, chooser.extent(number), rows, tuning.reached_spans))
    return axes


class _Axis:
    """One key of a grid cell."""

    def __init__(self, sample: Sample, extent: int | float, rows: int, reached_spans: int) -> None:
        self._sample = sample
        self._extent = float(extent)
        self._is_equality = sample.is_int and extent == 0
        # The span within which values have cells of their own. Values beyond it share cells with others far away.
        self.reach = min(sample.full_span, reached_spans * sample.span)
        # The width at a scale of one: the band, or, for an equality of floats, the mean distance between rows.
        self._unit = self._extent or max(sample.span, 1e-290) / rows

    @property
    def is_free(self) -> bool:
        """Whether the width can be chosen; cells of an equality of integers hold one value each."""
        return not self._is_equality

    def width(self, scale: float) -> int | float:
        if self._is_equality:
            return 1
        if self._sample.is_int:
            return max(1, min(round(self._unit * scale), _MAX_WIDTH))
        # Below a float's resolution a cell could not be told from the next.
        width = max(self._unit * scale, self._sample.largest * 2.0**-40, 1e-290)
        return width if np.isfinite(width) else 1.0

    def covered(self, scale: float) -> float:
        """Return how many cells a band meets on the average."""
        return 1.0 if self._is_equality else 1.0 + self._extent / float(self.width(scale))

    def met(self, width: int | float) -> float:
        """Return the share of the rows in the cells that a band meets, where cells are this wide."""
        cells = 1.0 if self._is_equality and width == 1 else 1.0 + self._extent / float(width)
        return min(1.0, cells * self._sample.share(width))

    def share(self, scale: float) -> float:
        """Return the share of the rows that a cell holds."""
        return self._sample.share(self.width(scale))


def _rows_per_cell(axes: Sequence[_Axis], scale: float, rows: int) -> float:
    return rows * float(np.prod([axis.share(scale) for axis in axes]))


def _scale(axes: Sequence[_Axis], rows: int, tuning: GridTuning) -> float:
    """Return the factor by which the bands are multiplied, so that a cell holds about the rows that a bucket should."""
    free = sum(axis.is_free for axis in axes)
    rounds = range(tuning.shape_rounds if free else 0)
    wanted, close, most_covered = tuning.rows_per_bucket, tuning.close_factor, tuning.most_covered_cells
    scale = 1.0
    for _ in rounds:
        found = _rows_per_cell(axes, scale, rows)
        if wanted / close <= found <= wanted * close:
            break
        scale *= float(np.clip((wanted / max(found, 1e-9)) ** (1 / free), 1 / 64, 64))
    for _ in rounds:
        covered = float(np.prod([axis.covered(scale) for axis in axes]))
        if not most_covered < covered < np.inf:
            break
        scale *= max(close, (covered / most_covered) ** (1 / free))
    return scale


def _prime(least: int) -> int:
    """Return the smallest odd prime from `least` on; `least` is 2 or more."""
    number = least | 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number
