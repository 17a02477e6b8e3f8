"""A sample of one stream's keys, and the curve that it makes: how many rows have a smaller key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["KeyCurve", "KeySample"]

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class KeySample:
    """Some keys of one stream, and how many rows have them or lie between them.

    Attributes
    ----------
    keys : ndarray of float64 or int64, shape (n,)
        Ascending, finite, each once; the smallest and the largest key are among them.
    at : ndarray of float64, shape (n,)
        Rows that have this very key: in a window, or in any stretch of time that is the same for all streams. Rows
        whose key matches nothing do not count.
    before : ndarray of float64, shape (n,)
        Rows whose key is between the key before and this one; 0 for the first.
    """

    keys: npt.NDArray[Any]
    at: _Floats
    before: _Floats

    @classmethod
    def of(cls, keys: npt.NDArray[Any], size: int) -> KeySample:
        """Return a sample of at most `size` + 2 of the keys, which may be in any order and not all finite.

        The sample is taken at equal distances of the sorted keys, and the rows at them and between them are counted: a
        histogram of equal depth. A random sample would have a larger error in the share of a range: one part in the
        root of `size`, instead of one in `size`.
        """
        ordered = np.sort(keys[np.isfinite(keys)])
        rows = len(ordered)
        places = np.linspace(0, rows - 1, min(size, rows) + 2).round().astype(np.int64) if rows else slice(0)
        values = np.unique(ordered if rows <= size else ordered[places])
        begins = np.searchsorted(ordered, values, side="left").astype(np.float64)
        ends = np.searchsorted(ordered, values, side="right").astype(np.float64)
        return cls(values, ends - begins, begins - np.concatenate(([0.0], ends[:-1]))[: len(values)])

    @property
    def total(self) -> float:
        """Rows of all keys."""
        return float(self.at.sum() + self.before.sum())

    @property
    def points(self) -> npt.NDArray[Any]:
        """The frequent keys: each has at least half of the rows that one sampled key stands for."""
        frequent: npt.NDArray[Any] = self.keys[2 * self.at * len(self.keys) >= self.total]
        return frequent

    def curve(self) -> KeyCurve:
        """Return the curve of the rows below each key."""
        return KeyCurve.of(self.keys.astype(np.float64), self.at, self.before)


@dataclass(frozen=True, eq=False, slots=True)
class KeyCurve:
    """Rows (or pairs) with a smaller key, as a function of the key: straight between its nodes.

    Attributes
    ----------
    places, below : ndarray of float64
        The nodes, both ascending. Before the first node there is nothing, after the last one `total`.
    total : float
    """

    places: _Floats
    below: _Floats
    total: float

    @classmethod
    def of(cls, keys: _Floats, at: _Floats, before: _Floats) -> KeyCurve:
        """Return the curve of what lies at ascending keys, and evenly between each key and the one before."""
        upto = np.cumsum(at + before)
        places = np.column_stack((keys, np.nextafter(keys, np.inf))).ravel()
        below = np.column_stack((upto - at, upto)).ravel()
        return cls(np.maximum.accumulate(places), below, float(upto[-1]) if len(upto) else 0.0)

    def before(self, keys: _Floats) -> _Floats:
        """Return what lies below each key, the key itself not included."""
        if not len(self.places):
            return np.zeros(len(keys))
        found: _Floats = np.interp(keys, self.places, self.below, left=0.0, right=self.total)
        return found
