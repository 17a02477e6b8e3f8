"""A part of a sorted run: the rows whose intervals are of like length, so that one long one does not spoil all.

::

    run      sorted by the upper ends of its tuples' intervals
    probe    looks from its own value on, as far as the longest interval of the run reaches

    part 0   [ short | short | short ... ]     looks at a few rows
    part 1   [   long   |   long   ]           looks at more rows, of which there are fewer
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.storage.layout_sample import Sample
from streamjoin_ds.engine.storage.sorted_keys import SortedKeys
from streamjoin_ds.engine.storage.zone import range_of
from streamjoin_ds.engine.tuning.windows import LayoutTuning

__all__ = ["RunPart", "parted"]

_NO_LENGTH = -1100  # less than the exponent of any float64


class RunPart(SortedKeys):
    """Some rows of a run in its order: row i of the part is row ``rows_within[i]`` of the run, or of a view of it.

    Parameters
    ----------
    of : SortedKeys
    run_rows : ndarray, int32
        For each row of `of`, its number in the run itself.
    rows_within : ndarray, shape (rows,), int32, ascending
    """

    def __init__(self, of: SortedKeys, run_rows: npt.NDArray[np.int32], rows_within: npt.NDArray[np.int32]) -> None:
        super().__init__(of.form, of.sort_layout, of.zone, len(rows_within))
        self._of, self._rows_within, self._run_rows = of, rows_within, run_rows
        self._keys: dict[int, npt.NDArray[Any]] = {}
        self.zone = tuple(range_of(self.key(number)) for number in range(len(of.zone)))

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return, for each row of the part, its number in the run."""
        return self._run_rows[self._rows_within]

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, in the part's order."""
        if number not in self._keys:
            self._keys[number] = self.form.kernels.module.gather(self._of.key(number), self._rows_within)
        return self._keys[number]


def parted(
    run: SortedKeys, run_rows: npt.NDArray[np.int32], upper: int, lower: int, tuning: LayoutTuning
) -> list[SortedKeys]:
    """Return a run that is sorted by the key `upper` in parts by length; the run itself where one part is best.

    Parameters
    ----------
    run : SortedKeys
    run_rows : ndarray, int32
        As for `RunPart`.
    upper, lower : int
        Numbers of the keys that are the ends of each tuple's interval.
    """
    if run.rows < tuning.least_viewed_rows:
        return [run]
    lengths = run.lengths(upper, lower)
    shortest, longest = _exponents(np.array([lengths.min(), lengths.max()]))
    if shortest == longest:
        return [run]
    exponents = _exponents(lengths)
    ids, counts = np.unique(exponents, return_counts=True)
    least = ids[-tuning.most_lengths :][0]
    short_rows = int(counts[ids <= least].sum())
    ids, counts = ids[ids >= least], np.array([short_rows, *counts[ids > least]])
    last = _last_of_parts(ids, counts, Sample(run.key(upper), tuning), tuning.split_cost)
    if len(last) == 1:
        return [run]
    numbers = np.searchsorted(np.array(last), exponents)
    return [RunPart(run, run_rows, np.flatnonzero(numbers == number).astype(np.int32)) for number in range(len(last))]


def _exponents(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return for each length the least power of two above it, as its exponent; one below all others for zero."""
    finite = np.minimum(np.maximum(lengths, 0.0), np.finfo(np.float64).max)
    return np.where(finite == 0.0, _NO_LENGTH, np.frexp(finite)[1]).astype(np.int64)


def _last_of_parts(
    ids: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], sample: Sample, split_cost: float
) -> list[int]:
    """Return the largest exponent of each part, ascending, where a probe costs least: by dynamic programming."""
    shares = [sample.share(2.0 ** float(min(exponent, 1023))) for exponent in ids]
    before = np.concatenate([[0], np.cumsum(counts)])
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for end in range(1, len(ids) + 1):
        ways = (
            (cost + split_cost + float(before[end] - before[begin]) * shares[end - 1], [*last, int(ids[end - 1])])
            for begin, (cost, last) in enumerate(best)
        )
        best.append(min(ways, key=lambda way: way[0]))
    return best[-1][1]
