"""How a bucket grid cuts a window: which keys make a cell, how wide it is, how many buckets there are.

A bucket is to hold most of a chunk's 16 rows: more would often need a second chunk, fewer leave memory empty (a full
window is about 1.26 times its columns). So cells are as wide as makes that many rows a cell, whatever the band: a wide
band then covers several cells, neighbours in memory along the last key (epsilon-grid order without sorting).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamjoin_ds.engine.storage.layout import Keys, Sample, SortLayoutChooser
from streamjoin_ds.engine.tuning import GridTuning

__all__ = ["MAX_GRID_ROWS", "GridShape", "chosen_shape", "tested_rows"]

# Of a grid: they are numbered in 32 bits.
MAX_GRID_ROWS = 2**31 - 1
_MAX_STRIDE = 1 << 31
_MAX_WIDTH = 1 << 62


@dataclass(frozen=True, slots=True)
class GridShape:
    """The cells and buckets of one grid.

    Attributes
    ----------
    keys : tuple of int
        Numbers of the keys that make a cell, one or two.
    widths : tuple of int or float
        Of a cell, key by key: a value lies in cell ``floor(value / width)``.
    stride : int
        Cells of the second key that are told apart for each cell of the first.
    buckets : int
        A prime: steady gaps between values fill all of them.
    """

    keys: tuple[int, ...]
    widths: tuple[int | float, ...]
    stride: int
    buckets: int

    def told(self, names: Sequence[str]) -> str:
        """Return it in words; given are the names of the keys' columns."""
        cells = " and ".join(f"{names[key]} (width {width})" for key, width in zip(self.keys, self.widths, strict=True))
        return f"in {self.buckets} buckets by cells of {cells}"

    def to_facts(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"keys": self.keys, "widths": self.widths, "stride": self.stride, "buckets": self.buckets}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> GridShape:
        """What `to_facts` gave; KeyError, TypeError or ValueError where it did not."""
        keys, widths = tuple(facts["keys"]), tuple(facts["widths"])
        stride, buckets = facts["stride"], facts["buckets"]
        whole = all(type(value) is int for value in (*keys, stride, buckets))
        is_cell = 1 <= len(keys) == len(widths) <= 2 and all(width > 0 for width in widths)
        if not (whole and is_cell and 1 <= stride <= _MAX_STRIDE and 1 <= buckets < _MAX_STRIDE and min(keys) >= 0):
            msg = "these are not the facts of a bucket grid"
            raise ValueError(msg)
        return cls(keys, widths, stride, buckets)


def chosen_shape(chooser: SortLayoutChooser, keys: Keys, rows: int, tuning: GridTuning) -> GridShape | None:
    """The shape for a window of so many rows; None where no key narrows, and all rows are to be scanned.

    Parameters
    ----------
    keys : sequence of ndarray, float64 or int64
        Of the window, or of a sample of it.
    """
    grid = chooser.choose(keys, rows)
    numbers = [number for number in dict.fromkeys((grid.first, grid.second)) if number >= 0]
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
    """About how many of so many rows a probe tests in a grid of this shape, where it lies as the rows lie.

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
    """One key of a cell."""

    def __init__(self, sample: Sample, extent: int | float, rows: int, reached_spans: int) -> None:
        self._sample = sample
        self._extent = float(extent)
        self._is_equality = sample.is_int and extent == 0
        # How far the values go: those that go further share cells, with others far away.
        self.reach = min(sample.full_span, reached_spans * sample.span)
        # What a scale of one stands for: the band, or where that is a point of a float, what one row lies in.
        self._unit = self._extent or max(sample.span, 1e-290) / rows

    @property
    def is_free(self) -> bool:
        """Whether the width is a matter of choice: cells of an equality hold one value each."""
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
        """How many cells a band meets on the average."""
        return 1.0 if self._is_equality else 1.0 + self._extent / float(self.width(scale))

    def met(self, width: int | float) -> float:
        """What share of the rows is in the cells that a band meets, where they are this wide."""
        cells = 1.0 if self._is_equality and width == 1 else 1.0 + self._extent / float(width)
        return min(1.0, cells * self._sample.share(width))

    def share(self, scale: float) -> float:
        """What share of the rows a cell holds."""
        return self._sample.share(self.width(scale))


def _rows_per_cell(axes: Sequence[_Axis], scale: float, rows: int) -> float:
    return rows * float(np.prod([axis.share(scale) for axis in axes]))


def _scale(axes: Sequence[_Axis], rows: int, tuning: GridTuning) -> float:
    """By what the bands are to be multiplied, so that a cell holds about as many rows as a bucket shall."""
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
    """The smallest prime from a number on."""
    number = least | 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number
