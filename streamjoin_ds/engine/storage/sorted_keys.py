"""Keys in a sort layout, and what kernels need to find a probe's partners among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.objects import RunIndex
from streamjoin_ds.engine.storage.conditions import ProbeCondition, past_of, serving
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.storage.zone import Range
from streamjoin_ds.engine.storage.zoned import Zoned

__all__ = ["SortedKeys"]


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
