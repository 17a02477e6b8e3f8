"""The papers' common workload: two streams, two bands, rates and windows in seconds; and an exact count of matches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streamjoin_ds.plan import Load
from streamjoin_ds.plan.layout import group_of
from streamjoin_ds.source.synthetic_rows import words
from streamjoin_ds.spec import BoundJoin, Join, Stream, TimeWindow, bind

__all__ = ["BandStreams"]

_BLOCK_ROWS = 1 << 16  # rows that are made, and cached, at once
_SECOND_US = 1_000_000
_TIME = pa.timestamp("us", tz="UTC")
_SCHEMAS = {
    "r": pa.schema([("ts", _TIME), ("x", pa.int32()), ("y", pa.float32())]),
    "s": pa.schema([("ts", _TIME), ("a", pa.int32()), ("b", pa.float32())]),
}


@dataclass(frozen=True, slots=True)
class BandStreams:
    """Streams r and s with ``abs(r.x - s.a) <= eps AND abs(r.y - s.b) <= eps`` (Gedik et al., 2007, section 8.2).

    Both attributes are uniform over the whole numbers below `domain`; one is an integer, the other a float. A stream's
    tuples come at even distances.

    Attributes
    ----------
    rates : (float, float)
        Tuples a second of event time.
    windows_s : (float, float)
        Length of each stream's window.
    domain, eps : int
    is_equality : bool
        Whether the first condition is ``r.x = s.a`` alone, over as many values as keep the share of pairs that match.
    seed : int
        The tuples depend on it.
    """

    rates: tuple[float, float]
    windows_s: tuple[float, float]
    domain: int = 10_000
    eps: int = 10
    is_equality: bool = False
    seed: int = 1

    @property
    def hit_rate(self) -> float:
        """The share of all pairs that match: ``p`` of DP-Join's equations."""
        near = ((2 * self.eps + 1) * self.domain - self.eps * (self.eps + 1)) / self.domain**2
        return 1 / self.values[0] if self.is_equality else near * near

    @property
    def values(self) -> tuple[int, int]:
        """How many values each attribute has."""
        if not self.is_equality:
            return self.domain, self.domain
        near = (2 * self.eps + 1) / self.domain
        return round(1 / (near * near)), self.domain

    @property
    def load(self) -> Load:
        """Rates and rows of full windows."""
        return Load.of_windows(self.rates, self.windows_s)

    @property
    def warm_us(self) -> int:
        """The first event time at which both windows are full."""
        return round(max(self.windows_s) * _SECOND_US)

    def bound(self) -> BoundJoin:
        """Return the join."""
        on = "r.x = s.a" if self.is_equality else f"abs(r.x - s.a) <= {self.eps} AND abs(r.y - s.b) <= {self.eps}"
        windows_us = (round(self.windows_s[0] * _SECOND_US), round(self.windows_s[1] * _SECOND_US))
        return bind(Join([Stream(name, schema=_SCHEMAS[name]) for name in "rs"], on, TimeWindow(windows_us)), _SCHEMAS)

    def first_row(self, stream: int, at_us: int) -> int:
        """Return the number of the stream's first tuple with an event time of at least `at_us`."""
        number = max(int(at_us * self.rates[stream] / _SECOND_US) - 1, 0)
        times_us = self.times_us(stream, np.arange(number, number + 4))
        return number + int(np.searchsorted(times_us, at_us))

    def times_us(self, stream: int, numbers: np.ndarray) -> np.ndarray:
        """Return the event times of the stream's tuples with these numbers."""
        times: np.ndarray = (numbers * (_SECOND_US / self.rates[stream])).astype(np.int64)
        return times

    def batch(self, stream: int, first: int, last: int, group: int = 0, groups: int = 1) -> pa.RecordBatch:
        """Return a group's tuples among ``[first, last)``, in the engine's inside form."""
        numbers = np.arange(first, last, dtype=np.int64)
        if groups > 1:
            numbers = numbers[group_of(numbers, groups) == group]
        names = _SCHEMAS["rs"[stream]].names[1:]
        columns = [pa.array(self.times_us(stream, numbers)), pa.array(numbers)]
        columns.append(pa.array(self._values(stream, 0, numbers).astype(np.int32)))
        fields = [pa.field(name, pa.int64(), nullable=False) for name in ("_ts", "_seq")]
        columns.append(pa.array(self._values(stream, 1, numbers).astype(np.float32)))
        fields += [pa.field(names[0], pa.int32()), pa.field(names[1], pa.float32())]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def matches_of(self, begin_us: int, end_us: int, fill: float = 1.0) -> int:
        """Return how many results the tuples of ``[begin_us, end_us)`` have with each other and with those before them.

        Counted by NumPy alone. `fill` is the share of each window that was filled when the stretch began.
        """
        return sum(self._matches(stream, begin_us, end_us, fill) for stream in (0, 1))

    def _matches(self, stream: int, begin_us: int, end_us: int, fill: float) -> int:
        other = 1 - stream
        mine = np.arange(self.first_row(stream, begin_us), self.first_row(stream, end_us))
        reach_us = [round(window_s * _SECOND_US) for window_s in self.windows_s]
        # A pair of two new tuples is counted once, with the second stream's tuple.
        until_us = end_us if stream else begin_us
        oldest_us = begin_us - round(self.windows_s[other] * min(fill, 1.0) * _SECOND_US)
        theirs = np.arange(self.first_row(other, oldest_us), self.first_row(other, until_us))
        if not len(mine) or not len(theirs):
            return 0
        (near, far), (others_near, others_far) = (
            [self._values(n, column, numbers) for column in (0, 1)] for n, numbers in ((stream, mine), (other, theirs))
        )
        order = np.argsort(others_near, kind="stable")
        theirs, others_near, others_far = theirs[order], others_near[order], others_far[order]
        eps = 0 if self.is_equality else self.eps
        low, high = np.searchsorted(others_near, near - eps, "left"), np.searchsorted(others_near, near + eps, "right")
        my_us, their_us = self.times_us(stream, mine), self.times_us(other, theirs)
        found = 0
        for place in range(len(mine)):
            some = slice(low[place], high[place])
            later_us = my_us[place] - their_us[some]
            holds = (later_us <= reach_us[other]) & (-later_us <= reach_us[stream])
            if not self.is_equality:
                holds &= np.abs(others_far[some] - far[place]) <= self.eps
            found += int(np.count_nonzero(holds))
        return found

    def _values(self, stream: int, column: int, numbers: np.ndarray) -> np.ndarray:
        """Return one attribute of the tuples with these numbers, which ascend: whole numbers."""
        if not len(numbers):
            return np.empty(0, np.int64)
        blocks = range(int(numbers[0]) // _BLOCK_ROWS, int(numbers[-1]) // _BLOCK_ROWS + 1)
        values = np.concatenate([_block(self.seed, stream, column, self.values[column], block) for block in blocks])
        found: np.ndarray = values[numbers - blocks[0] * _BLOCK_ROWS]
        return found


@lru_cache(maxsize=512)
def _block(seed: int, stream: int, column: int, values: int, block: int) -> np.ndarray:
    name = f"figures.band.{stream}.{column}"
    found: np.ndarray = (words(seed, name, block, _BLOCK_ROWS) % np.uint64(values)).astype(np.int64)
    return found
