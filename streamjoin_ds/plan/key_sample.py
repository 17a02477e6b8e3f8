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
    """Some keys of one stream, and how many rows each stands for.

    Attributes
    ----------
    keys : ndarray of float64 or int64, shape (n,)
        Ascending, finite, each once.
    rows : ndarray of float64, shape (n,)
        Rows of the stream in a window, or in any stretch of time that is the same for all streams. Rows whose key
        matches nothing do not count.
    is_point : ndarray of bool, shape (n,)
        Whether all these rows have this very key. The others stand for rows between the key before and the key after.
    """

    keys: npt.NDArray[Any]
    rows: _Floats
    is_point: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, keys: npt.NDArray[Any], size: int) -> KeySample:
        """Return a sample of at most `size` of the keys, which may be in any order and not all finite.

        They are taken at equal distances of the sorted keys. The share of rows between two of them is then exact to
        ``1 / size``, where a random sample's is exact to about the root of that. A key that is found twice is frequent:
        its rows are counted.
        """
        ordered = np.sort(keys[np.isfinite(keys)])
        whole = len(ordered)
        sampled = ordered
        if whole > size:
            sampled = ordered[((np.arange(size) + 0.5) * whole / size).astype(np.int64)]
        values, counts = np.unique(sampled, return_counts=True)
        is_point = counts > 1 if whole > size else np.ones(len(values), dtype=np.bool_)
        points = values[is_point]
        exact = np.searchsorted(ordered, points, side="right") - np.searchsorted(ordered, points, side="left")
        rows = np.empty(len(values))
        rows[is_point] = exact
        rows[~is_point] = (whole - int(exact.sum())) / max(int((~is_point).sum()), 1)
        return cls(values, rows, is_point)

    @property
    def total(self) -> float:
        """Rows that all the keys together stand for."""
        return float(self.rows.sum())


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
    def of(cls, values: npt.NDArray[Any], masses: _Floats, is_point: npt.NDArray[np.bool_]) -> KeyCurve:
        """Return the curve of masses at ascending values: at the value itself, or spread about it."""
        nodes = np.where(is_point, 2, 1)
        ends = np.cumsum(nodes)
        before = np.cumsum(masses) - masses
        keys, total = values.astype(np.float64), float(masses.sum())
        places, below = np.repeat(keys, nodes), np.repeat(before, nodes)
        places[ends[is_point] - 1] = np.nextafter(places[ends[is_point] - 1], np.inf)
        below[ends[is_point] - 1] += masses[is_point]
        below[ends[~is_point] - 1] += masses[~is_point] / 2
        if len(keys) > 1:
            # Half of what is spread about the first and the last value lies beyond it.
            with np.errstate(over="ignore"):
                first, last = keys[0] - (keys[1] - keys[0]) / 2, keys[-1] + (keys[-1] - keys[-2]) / 2
            if not is_point[0] and np.isfinite(first):
                places, below = np.insert(places, 0, first), np.insert(below, 0, 0.0)
            if not is_point[-1] and np.isfinite(last):
                places, below = np.append(places, last), np.append(below, total)
        return cls(np.maximum.accumulate(places), below, total)

    def before(self, keys: _Floats) -> _Floats:
        """Return what lies below each key, the key itself not included."""
        if not len(self.places):
            return np.zeros(len(keys))
        found: _Floats = np.interp(keys, self.places, self.below, left=0.0, right=self.total)
        return found
