"""Keys in a sort layout, and what kernels need to find a probe's partners among them: of a run, a view, or a part.

*View.* A run seen in another order, for a neighbour whose conditions the run's own order does not serve::

    run    sorted by k   ◄── probes of d, by k
    view   sorted by c   ◄── probes of f, by c       order[i]: which row of the run is the i-th of the view

A run has one order. In a join of three streams and more its neighbours may probe it by different keys. Then the order
serves one of them, and the run would be scanned for the other. A view is made when it is first asked for, if it leaves
a probe far fewer rows, and is kept as long as the run. It takes 4 bytes a row, and 8 for each key that is compared.

*Part.* The rows of a run whose intervals are of like length, so that one long one does not spoil all::

    run      sorted by the upper ends of its tuples' intervals
    probe    looks from its own value on, as far as the longest interval of the run reaches

    part 0   [ short | short | short ... ]     looks at a few rows
    part 1   [   long   |   long   ]           looks at more rows, but there are fewer of these
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.objects import RunIndex
from streamjoin_ds.engine.storage.conditions import ProbeCondition, past_of, serving
from streamjoin_ds.engine.storage.run_form import Range, RunForm, Zoned, range_of
from streamjoin_ds.engine.storage.sort_layout import Sample, SortLayout
from streamjoin_ds.engine.tuning import LayoutTuning

__all__ = ["RunPart", "RunView", "SortedKeys", "parts_by_length"]

_NO_LENGTH = -1100  # less than the exponent of any float64


class SortedKeys(Zoned):
    """Keys of some tuples of one stream, in the order of a layout; immutable.

    Parameters
    ----------
    form : RunForm
    sort_layout : SortLayout
        Their order.
    zone : tuple of (smallest, largest)
        One for each key; key 0 is the event time in microseconds.
    rows : int
        How many tuples.
    """

    def __init__(self, form: RunForm, sort_layout: SortLayout, zone: tuple[Range, ...], rows: int) -> None:
        self.form = form
        self.sort_layout = sort_layout
        self.zone = zone
        self.rows = rows
        self._indexes: dict[tuple[ProbeCondition, ...], RunIndex] = {}
        self._visits: dict[frozenset[int], tuple[float, float]] = {}
        self._interval_los: dict[tuple[int, int], float] = {}

    @property
    def in_order(self) -> SortedKeys:
        """The keys themselves: they are in an order that kernels can use."""
        return self

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, float64 or int64, in the layout's order."""
        raise NotImplementedError

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return, for each row, its number in the run itself."""
        raise NotImplementedError

    def index(self, conditions: tuple[ProbeCondition, ...]) -> RunIndex:
        """Return the run as `RunsProbe` reads it for these conditions; it is made once."""
        found = self._indexes.get(conditions)
        if found is None:
            first, second = serving(self.sort_layout, conditions)
            ids, starts = self.directory if first >= 0 else (None, None)
            past = past_of(second, conditions)
            found = self._indexes[conditions] = self.form.kernels.module.RunIndex(
                [self.key(condition.run_key) for condition in conditions],
                [condition.ends[0] for condition in conditions],
                [condition.ends[1] for condition in conditions],
                first=first,
                second=second,
                width=self.sort_layout.width,
                bucket_ids=ids,
                bucket_starts=starts,
                fences=self.fences if second >= 0 else None,
                steps=self.steps if second >= 0 else None,
                zone=[self.zone[condition.run_key] for condition in conditions],
                right_count=self.rows,
                past=past,
                interval_lo=self.interval_lo(second, past, conditions),
            )
        return found

    def interval_lo(self, second: int, past: int, conditions: Sequence[ProbeCondition]) -> float:
        """Return the `interval_lo` of kernels: minus the length of the longest interval of these tuples.

        A tuple's interval is from the limit that ends a probe's rows to the limit that they are sorted by. A tuple
        matches only where the probe's upper limit is not below the first, so it is not below the second by more than
        that length.

        Parameters
        ----------
        second, past : int
            Numbers of the conditions; without `past` the answer is 0.
        """
        if past < 0:
            return 0.0
        place = conditions[second].run_key, conditions[past].run_key
        if place not in self._interval_los:
            longest = float(self.lengths(*place).max(initial=0.0))
            self._interval_los[place] = -math.nextafter(longest, math.inf)
        return self._interval_los[place]

    def lengths(self, upper: int, lower: int) -> npt.NDArray[np.float64]:
        """Return the difference of two keys of each tuple; infinite where it is larger than float64 can hold."""
        with np.errstate(over="ignore"):
            return np.asarray(self.key(upper) - self.key(lower))

    def visits(self, conditions: Sequence[ProbeCondition]) -> tuple[float, float]:
        """Return how many buckets a probe with these conditions visits, and which share of the rows it tests.

        It is an estimate from a sample, which is made once.
        """
        partners = frozenset(condition.stream for condition in conditions)
        if partners not in self._visits:
            keys = {condition.run_key: self.key(condition.run_key) for condition in conditions}
            self._visits[partners] = self.form.chooser.visits(self.sort_layout, partners, keys, self.rows)
        return self._visits[partners]

    @cached_property
    def directory(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The ids of the buckets that occur, and the row where each starts; only of a run with a first key."""
        first = self.key(self.sort_layout.first)
        ends = self._buckets(np.array(self.zone[self.sort_layout.first], dtype=first.dtype))
        lowest, count = int(ends[0]), int(ends[1]) - int(ends[0]) + 1
        tuning = self.form.tuning.layout
        if count * tuning.rows_per_search > self.rows or self.rows < tuning.least_searched_rows:
            ids, starts = self.form.kernels.module.bucket_directory(self._buckets(first))
            return ids, starts
        ids = np.int64(lowest) + np.arange(count, dtype=np.int64)
        starts = np.append(self._first_rows(first, ids), self.rows)
        occurs = starts[1:] > starts[:-1]
        return ids[occurs], np.append(starts[:-1][occurs], self.rows)

    @cached_property
    def fences(self) -> npt.NDArray[Any] | None:
        """Every 32nd value of the second key, which a probe searches first; None: no second key, or `steps` serve."""
        if self.sort_layout.second < 0 or self.steps is not None:
            return None
        return np.ascontiguousarray(self.key(self.sort_layout.second)[:: self.form.kernels.module.FENCE_ROWS])

    @cached_property
    def steps(self) -> npt.NDArray[np.int32] | None:
        """The row where each of equally wide steps of the second key begins.

        None where the run is not sorted by that key alone, or the key's values are too uneven.
        """
        if self.sort_layout.first >= 0 or self.sort_layout.second < 0:
            return None
        found: npt.NDArray[np.int32] | None = self.form.kernels.module.step_starts(self.key(self.sort_layout.second))
        return found

    def _buckets(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        zero = 0.0 if values.dtype.kind == "f" else 0
        buckets: npt.NDArray[np.int64] = self.form.kernels.module.grid_buckets(values, self.sort_layout.width, zero)
        return buckets

    def _first_rows(self, first: npt.NDArray[Any], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row where each bucket would begin, by a binary search for all of them at once, not by a pass."""
        low, high = np.zeros(len(ids), dtype=np.int64), np.full(len(ids), self.rows, dtype=np.int64)
        for _ in range(self.rows.bit_length()):
            middle = np.minimum((low + high) // 2, self.rows - 1)
            is_open = low < high
            before = self._buckets(first[middle]) < ids
            low = np.where(is_open & before, middle + 1, low)
            high = np.where(is_open & ~before, middle, high)
        return low


class RunView(SortedKeys):
    """The keys of a run in another order: row i of the view is row ``order[i]`` of the run.

    Parameters
    ----------
    run : SortedKeys
    layout : SortLayout
    order : ndarray, shape (rows,), int32
    """

    def __init__(self, run: SortedKeys, layout: SortLayout, order: npt.NDArray[np.int32]) -> None:
        super().__init__(run.form, layout, run.zone, run.rows)
        self._run, self._order = run, order
        self._keys: dict[int, npt.NDArray[Any]] = {}

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return, for each row of the view, its number in the run."""
        return self._order

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, in the view's order."""
        if number not in self._keys:
            self._keys[number] = self.form.kernels.module.gather(self._run.key(number), self._order)
        return self._keys[number]


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


def parts_by_length(
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
