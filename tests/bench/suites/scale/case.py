"""One case of the simulator: its numbers of cells and streams, its rates, and its keys, which come from a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.plan import Difference, Reach

__all__ = ["KEYS", "ScaleCase"]

_DOMAIN = 1e6  # keys lie below this; also the largest value of a Zipf distribution
_PAIRS_PER_ROW = 2.0  # pairs that the bands find for each row, except with wide bands and with equality
_WIDE = 0.002  # width of a wide band over the domain, as in the papers' workload: 10 to both sides of 10 000
_SHIFT = 7_919  # by how much keys of "zipf-values" move in a window whose drift is 1

KEYS = {
    "uniform": "uniform; a band with 2 pairs a row",
    "zipf": "density 1/x, Zipf's of exponent 1 for any real x; a band with 2 pairs a row",
    "zipf-values": "whole numbers, the k-th with the share 1/k (Zipf, exponent 1); equality",
    "wide": "uniform; a band of 0.2 % of all keys",
}


@dataclass(frozen=True, slots=True)
class ScaleCase:
    """A join on many cells.

    Attributes
    ----------
    cells, streams : int
    ratio : int
        Rate of the last stream over that of each other stream.
    keys : str
        One of `KEYS`.
    rows_per_cell : int
        Rows of all streams together in a window, for each cell.
    seed : int
    drift : float
        How far all keys move in a window, as a share of the width of their domain.
    """

    cells: int
    streams: int = 2
    ratio: int = 1
    keys: str = "uniform"
    rows_per_cell: int = 8_000
    seed: int = 1
    drift: float = 0.0

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each stream in a window."""
        shares = [1.0] * (self.streams - 1) + [float(self.ratio)]
        whole = self.cells * self.rows_per_cell
        return tuple(max(round(whole * share / sum(shares)), 1) for share in shares)

    @property
    def reach(self) -> Reach:
        """The bands, by which every other stream's key is near the key of the first stream."""
        rows = self.rows
        crossed = sum(rows[0] * other for other in rows[1:])
        asked = _PAIRS_PER_ROW * sum(rows) / crossed  # the share of combinations that match
        if self.keys == "zipf-values":
            return Reach(self.streams, tuple(Difference(0, other, 0, 0) for other in range(1, self.streams)), True)
        # The integral of the squared density: two keys are within a band of width w with w times that probability.
        density = 1 / math.log(_DOMAIN) ** 2 if self.keys == "zipf" else 1 / _DOMAIN
        end = (_WIDE if self.keys == "wide" else min(asked / density / _DOMAIN, 1.0)) * _DOMAIN / 2
        return Reach(self.streams, tuple(Difference(0, other, -end, end) for other in range(1, self.streams)))

    def window(self, number: int) -> list[npt.NDArray[Any]]:
        """Return the keys of each stream in a window, in the order of arrival; other windows have other keys."""
        moved = number * self.drift
        return [self._drawn(rows, [self.seed, number, stream], moved) for stream, rows in enumerate(self.rows)]

    def _drawn(self, rows: int, seed: list[int], moved: float) -> npt.NDArray[Any]:
        shares = np.random.default_rng(seed).random(rows)
        if self.keys == "zipf-values":
            return np.searchsorted(_value_shares(), shares) + 1 + round(moved * _SHIFT)
        if self.keys == "zipf":
            return np.exp(shares * math.log(_DOMAIN)) + moved * _DOMAIN
        # Within a window the keys move from where the one before ended.
        return (shares + moved + self.drift * np.arange(rows) / rows) * _DOMAIN


@lru_cache(maxsize=1)
def _value_shares() -> npt.NDArray[np.float64]:
    """Return for each value the share of all rows whose value is at most that."""
    shares = np.cumsum(1 / np.arange(1, _DOMAIN + 1))
    total: npt.NDArray[np.float64] = shares / shares[-1]
    return total
