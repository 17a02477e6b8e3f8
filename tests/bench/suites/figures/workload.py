"""PIM-Tree's workloads (its section 5): one key, one band, windows given in tuples; and a count of the matches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.synthetic_rows import words
from streamjoin_ds.spec import BoundJoin, Join, Stream, TimeWindow, bind

__all__ = ["KEYS", "FigureWorkload"]

_BLOCK_ROWS = 1 << 16  # keys that are made, and cached, at once
_PAIRS_AT_ONCE = 1 << 22  # pairs that are counted at once; it bounds the memory
# Keys are whole numbers: the paper's real numbers times this.
_STEPS = float(1 << 32)
# For each distribution the integral of its squared density, which says how often two keys are close.
KEYS = {
    "uniform": 1.0,
    "gaussian": 1 / (2 * 0.125 * math.sqrt(math.pi)),
    "gamma(3, 3)": 0.1875 / 3,
    "gamma(1, 5)": 0.5 / 5,
}


@dataclass(frozen=True, slots=True)
class FigureWorkload:
    """Two streams; the faster one has a tuple in each microsecond of event time.

    Attributes
    ----------
    window_rows : (int, int)
        Tuples of each stream that its window spans.
    steps_us : (int, int)
        Microseconds of event time between two tuples of each stream.
    keys : str
        One of `KEYS`: uniform on [0, 1), Gaussian (0.5, 0.125), gamma (shape, scale).
    matches : float
        How many matches a tuple has on average: the band is as wide as that takes.
    is_self_join : bool
        Whether both streams are one, whose tuples are not paired with themselves.
    drift : float
        By how much the mean key moves within a window's length of tuples, while it moves.
    drift_rows : (int, int)
        The tuples ``[first, last)`` in which the mean key moves.
    seed : int
        The tuples depend on it.
    """

    window_rows: tuple[int, int] = (1 << 16, 1 << 16)
    steps_us: tuple[int, int] = (1, 1)
    keys: str = "uniform"
    matches: float = 2.0
    is_self_join: bool = False
    drift: float = 0.0
    drift_rows: tuple[int, int] = (0, 0)
    seed: int = 1

    @property
    def windows_us(self) -> tuple[int, int]:
        """Event time that each window spans, in microseconds."""
        return self.window_rows[0] * self.steps_us[0], self.window_rows[1] * self.steps_us[1]

    @property
    def eps(self) -> int:
        """Half of the band, in steps of the key."""
        mean_rows = sum(self.window_rows) / 2
        return max(1, round(_STEPS * self.matches / (2 * mean_rows * KEYS[self.keys])))

    def bound(self) -> BoundJoin:
        """Return the join: ``abs(r.x - s.x) <= eps`` within the windows."""
        schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])
        # Two streams over one source are a self-join. Nothing is read from that source: tuples are pushed.
        sources = ["one-input.parquet"] * 2 if self.is_self_join else [None, None]
        streams = [Stream(name, source, schema=schema) for name, source in zip(("r", "s"), sources, strict=True)]
        join = Join(streams, f"abs(r.x - s.x) <= {self.eps}", TimeWindow(self.windows_us))
        return bind(join, {stream.name: schema for stream in streams})

    def rows_within(self, stream: int, begin_us: int, end_us: int) -> tuple[int, int]:
        """Return the first and the last (not included) of the tuples with an event time in ``[begin_us, end_us)``."""
        step = self.steps_us[stream]
        return max(-(-begin_us // step), 0), max(-(-end_us // step), 0)

    def key_values(self, stream: int, first: int, last: int) -> np.ndarray:
        """Return the keys of the tuples ``[first, last)``."""
        blocks = range(first // _BLOCK_ROWS, (last - 1) // _BLOCK_ROWS + 1) if last > first else range(0)
        name = "r" if self.is_self_join or stream == 0 else "s"
        parts = [_block(self.seed, name, self.keys, block) for block in blocks]
        if not parts:
            return np.empty(0, np.int64)
        start = first - blocks[0] * _BLOCK_ROWS
        values = np.concatenate(parts)[start : start + last - first]
        if self.drift:
            numbers = np.arange(first, last, dtype=np.float64)
            moved = np.clip(numbers, *self.drift_rows) - self.drift_rows[0]
            values = values + (moved * (self.drift / self.window_rows[0] * _STEPS)).astype(np.int64)
        return values

    def batch(self, stream: int, first: int, last: int) -> pa.RecordBatch:
        """Return the tuples ``[first, last)`` of a stream in the engine's inside form: time, number, key."""
        numbers = np.arange(first, last, dtype=np.int64)
        columns = [numbers * self.steps_us[stream], numbers, self.key_values(stream, first, last)]
        schema = pa.schema(
            [pa.field(name, pa.int64(), nullable=False) for name in ("_ts", "_seq")] + [("x", pa.int64())]
        )
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)

    def matches_of_push(self, begin_us: int, end_us: int) -> int:
        """Return how many matches the tuples of ``[begin_us, end_us)`` have with each other and with all before them.

        The keys are sorted and every pair that is close is tested: by NumPy alone, with none of the engine's code.
        """
        return self.matches_of_probes(0, begin_us, end_us, end_us) + self.matches_of_probes(
            1, begin_us, end_us, begin_us
        )

    def matches_of_probes(self, stream: int, begin_us: int, end_us: int, others_end_us: int) -> int:
        """Return how many matches a stream's new tuples have with the other's tuples before `others_end_us`."""
        other = 1 - stream
        first, last = self.rows_within(stream, begin_us, end_us)
        keys, numbers = self.key_values(stream, first, last), np.arange(first, last)
        reach_us = begin_us - self.windows_us[other]
        other_first, other_last = self.rows_within(other, reach_us, others_end_us)
        others = self.key_values(other, other_first, other_last)
        order = np.argsort(others, kind="stable")
        others = others[order]
        low = np.searchsorted(others, keys - self.eps, "left")
        counts = np.searchsorted(others, keys + self.eps, "right") - low
        ends = np.cumsum(counts)
        found, start = 0, 0
        while start < len(keys):
            base = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, base + _PAIRS_AT_ONCE, "right")), start + 1)
            part = counts[start:stop]
            starts = np.repeat(low[start:stop] - (ends[start:stop] - part - base), part)
            partners = order[starts + np.arange(len(starts))] + other_first
            mine = np.repeat(numbers[start:stop], part)
            # By how much the new tuple is later: each tuple must lie in the window of the other's stream.
            later_us = mine * self.steps_us[stream] - partners * self.steps_us[other]
            holds = (later_us <= self.windows_us[other]) & (-later_us <= self.windows_us[stream])
            if self.is_self_join:
                holds &= mine != partners
            found += int(np.count_nonzero(holds))
            start = stop
        return found


@lru_cache(maxsize=32)
def _block(seed: int, name: str, keys: str, block: int) -> np.ndarray:
    """Return a block of keys; the random bits are NumPy's raw ones, which are the same in all its versions."""

    def uniform(part: str) -> np.ndarray:
        values: np.ndarray = (words(seed, f"figures.{name}.{part}", block, _BLOCK_ROWS) >> np.uint64(11)) * 2.0**-53
        return values

    if keys == "uniform":
        values = uniform("a")
    elif keys == "gaussian":
        radius = np.sqrt(-2 * np.log1p(-uniform("a")))
        values = 0.5 + 0.125 * radius * np.cos(2 * np.pi * uniform("b"))
    else:
        shape, scale = (3, 3.0) if keys == "gamma(3, 3)" else (1, 5.0)
        values = -scale * np.sum([np.log1p(-uniform(part)) for part in "abc"[:shape]], axis=0)
    whole: np.ndarray = np.floor(values * _STEPS).astype(np.int64)
    return whole
