"""A sample of a run's keys: what share of the run lies within a band, and how wide its buckets should be."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.tuning.windows import LayoutTuning

__all__ = ["Keys", "Sample", "sampled"]

Keys = Sequence[npt.NDArray[np.float64] | npt.NDArray[np.int64]]


def sampled(parts: Keys, rows: int) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
    """Return about `rows` values of a key, drawn from all parts that a run is to be made of."""
    share = rows / max(sum(len(part) for part in parts), 1)
    values: npt.NDArray[np.float64] | npt.NDArray[np.int64] = np.concatenate(
        [part[_drawn(len(part), math.ceil(len(part) * share))] for part in parts]
    )
    return values


@lru_cache(maxsize=64)
def _drawn(count: int, rows: int) -> slice | npt.NDArray[np.int64]:
    """Return which `rows` of `count` rows to look at: drawn at random, but always the same ones.

    Evenly spaced rows would not do, because runs are sorted: a value that occurs in fewer rows than the spacing would
    never be seen twice.
    """
    if count <= rows:
        return slice(None)
    # Raw bits, because NumPy keeps these the same in all versions and does not promise that of its distributions.
    return np.unique(np.random.SFC64(0).random_raw(rows) % np.uint64(count)).astype(np.int64)


class Sample:
    """A sorted sample of a key's values, which tells how dense they are.

    Parameters
    ----------
    values : ndarray, float64 or int64
    tuning : LayoutTuning
    rows : int or None
        Rows of the sample, at most; None: `LayoutTuning.sample_rows`.
    neighbours : int or None
        Where fewer sampled values than this lie within a band, the distance between values that are this many places
        apart tells the density. None: `LayoutTuning.neighbours`.
    """

    def __init__(
        self,
        values: npt.NDArray[np.float64] | npt.NDArray[np.int64],
        tuning: LayoutTuning,
        rows: int | None = None,
        neighbours: int | None = None,
    ) -> None:
        sample = values[_drawn(len(values), tuning.sample_rows if rows is None else rows)]
        self._neighbours = tuning.neighbours if neighbours is None else neighbours
        self._outlier_share, self._tested_per_bucket = tuning.outlier_share, tuning.tested_per_bucket
        self.is_int = values.dtype.kind == "i"
        numbers = sample.astype(np.float64)
        self._sorted = np.sort(numbers[np.isfinite(numbers)])

    @property
    def span(self) -> float:
        """The span of most values, scaled up to all of them; a few outliers, such as fill values, do not count."""
        left_out = self._outlier_share
        low, high = self._quantile(left_out), self._quantile(1.0 - left_out)
        # Where most values are equal, the others decide.
        return min((high - low) / (1.0 - 2 * left_out), sys.float_info.max) if high > low else self.full_span

    @property
    def full_span(self) -> float:
        """The distance between the smallest and the largest value; always finite."""
        return min(self._quantile(1.0) - self._quantile(0.0), sys.float_info.max)

    @property
    def largest(self) -> float:
        """An absolute value that most do not exceed by much."""
        low, high = self._quantile(2 * self._outlier_share), self._quantile(1.0 - 2 * self._outlier_share)
        return max(abs(low), abs(high))

    def _quantile(self, share: float) -> float:
        count = len(self._sorted)
        return float(self._sorted[min(int(share * count), count - 1)]) if count else 0.0

    def share(self, extent: int | float) -> float:
        """Return the share of the run within a band of this extent, averaged over bands around the run's own values."""
        values = self._sorted
        count = len(values)
        if count < 2:
            return 1.0
        reach = float(extent) / 2
        with np.errstate(over="ignore"):
            high, low = values + reach, values - reach
        inside = np.searchsorted(values, high, "right") - np.searchsorted(values, low, "left")
        counted = (inside - 1) / (count - 1)
        steps = min(self._neighbours, count - 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gaps = values[steps:] - values[:-steps]
            dense = np.minimum(float(extent) * steps / (count - 1) / gaps, steps / (count - 1))
        dense = np.where(gaps > 0, dense, steps / (count - 1))
        few = counted[: len(dense)] * (count - 1) < steps
        return float(min(1.0, np.where(few, np.maximum(dense, counted[: len(dense)]), counted[: len(dense)]).mean()))

    def width(self, extent: int | float, rows: int, second_rows: float) -> int | float:
        """Return the width of a bucket: the band, so that a probe visits two, or more where that adds few tested pairs.

        A visit to a bucket costs about as much as testing a few pairs. So a bucket may be so wide that
        `LayoutTuning.tested_per_bucket` of its rows lie within the band of the second key.
        """
        tested = self._tested_per_bucket
        wide = min(self.span * tested / max(second_rows, tested), 2.0**61)
        if extent > 0 and float(extent) < wide:
            # The band times a power of two: similar runs get the same width, so probes are sorted once for all of them.
            wide = extent * 2.0 ** math.floor(math.log2(wide / float(extent)))
        if self.is_int:
            return 1 if extent == 0 else max(1, min(max(int(extent), int(wide)), 1 << 62))
        # Below a float's resolution a bucket could not be told from the next.
        width = max(float(extent), wide, self.largest * 2.0**-40, 1e-290)
        return width if np.isfinite(width) else 1.0
