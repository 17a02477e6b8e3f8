"""Readings like those of real sensors: a daily cycle, drift, noise, gaps, disorder, a few late or NaN readings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.feed import ArrayFrontier, Frontier
from streamjoin_ds.source.synthetic_rows import BLOCK_ROWS, Parameters, words

__all__ = ["SensorRows"]

_DAY_US = 86_400_000_000
_GAP_READINGS = 64  # readings of one sensor in a gap
_LATE_FACTOR = 20  # how many times `disorder` the time of a late reading may be behind


class SensorRows:
    """Sensors take turns: row k is a reading of sensor ``k mod sensors``.

    A reading's time is the time it was due, minus up to `disorder`. For the share `late` of the readings it is minus up
    to 20 times `disorder`. Most of these are late if the stream's delay is `disorder`. The first row of each block is
    on time, so that the running maximum of the time at a block's start is known from the block before it.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.name = parameters.name
        self.rows = parameters.integer("rows", 0, 0)
        self.seed = parameters.integer("seed", 0, 0)
        self.schedule = parameters.schedule()
        self.sensors = parameters.integer("sensors", 16, 1, 1_000_000)
        self.disorder_us = parameters.duration("disorder", "2s")
        self.late = parameters.number("late", 0.0005, 0, 1)
        self.nan = parameters.number("nan", 0.001, 0, 1)
        self.gaps = parameters.number("gaps", 0.02, 0, 1)
        self.shift = parameters.number("shift", 0, -1e6, 1e6)
        self.columns: Sequence[pa.Field] = [
            pa.field("sensor", pa.int32(), nullable=False),
            pa.field("temperature", pa.float64()),
            pa.field("humidity", pa.float64()),
        ]
        self._cached_times = lru_cache(maxsize=32)(self._block_times)

    def frontier(self, first: int, last: int) -> Frontier:
        """See `SyntheticRows.frontier`."""
        if first == last:
            return ArrayFrontier(np.empty(0, np.int64))
        block = first // BLOCK_ROWS
        times = self._times(block * BLOCK_ROWS, last)
        if block:
            times = np.concatenate([[self._cached_times(block - 1).max()], times])
        return ArrayFrontier(np.maximum.accumulate(times)[len(times) - (last - first) :])

    def make(self, first: int, last: int, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]]:
        """See `SyntheticRows.make`."""
        ts, row = self._times(first, last), np.arange(first, last, dtype=np.int64)
        columns = {}
        for name in names:
            if name == "sensor":
                columns[name] = pa.array((row % self.sensors).astype(np.int32))
            else:
                columns[name] = self._readings(name, ts, row)
        return ts, columns

    def _times(self, first: int, last: int) -> np.ndarray:
        pieces = [np.empty(0, np.int64)]
        for block in range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS)):
            base = block * BLOCK_ROWS
            pieces.append(self._cached_times(block)[max(first - base, 0) : last - base])
        return np.concatenate(pieces)

    def _block_times(self, block: int) -> np.ndarray:
        first = block * BLOCK_ROWS
        due = self.schedule.times(first, min(first + BLOCK_ROWS, self.rows or first + BLOCK_ROWS))
        random = words(self.seed, "sensor.time", block, len(due))
        behind = _unit(random) * self.disorder_us
        behind = np.where(_chance(random, self.late), behind * _LATE_FACTOR, behind)
        behind[0] = 0.0
        return due - behind.astype(np.int64)

    def _readings(self, name: str, ts: np.ndarray, row: np.ndarray) -> pa.Array:
        sensor = row % self.sensors
        day = 2 * np.pi * ((ts % _DAY_US) / _DAY_US)
        drift = (ts // _DAY_US % 30) * 0.05
        noise, special = self._random(name, row), self._random(f"{name}.special", row)
        own = (sensor * 7919 % 100) / 25.0  # each sensor has its own offset, as if it stood in another place
        if name == "temperature":
            values = 15.0 + self.shift + own - 6.0 * np.cos(day) + drift + (_unit(noise) - 0.5)
        else:
            values = 60.0 - own + 15.0 * np.cos(day) + 4.0 * (_unit(noise) - 0.5)
        values = np.where(_chance(special, self.nan), np.nan, np.round(values, 2))
        # A gap is `_GAP_READINGS` readings of one sensor in a row.
        turn = row // self.sensors // _GAP_READINGS
        gap = (turn * 2654435761 + sensor * 40503 + self.seed * 97) % 65536 < self.gaps * 65536
        return pa.array(values, mask=gap, from_pandas=False)

    def _random(self, column: str, row: np.ndarray) -> np.ndarray:
        pieces = [np.empty(0, np.uint64)]
        first, last = int(row[0]), int(row[-1]) + 1
        for block in range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS)):
            base = block * BLOCK_ROWS
            numbers = words(self.seed, f"sensor.{column}", block, min(last - base, BLOCK_ROWS))
            pieces.append(numbers[max(first - base, 0) :])
        return np.concatenate(pieces)


def _unit(random: np.ndarray) -> np.ndarray:
    """Return the upper 32 bits as a number in ``[0, 1)``."""
    unit: np.ndarray = (random >> np.uint64(32)).astype(np.float64) / (1 << 32)
    return unit


def _chance(random: np.ndarray, share: float) -> np.ndarray:
    """Return True with probability `share`, by the lower 32 bits."""
    chosen: np.ndarray = (random & np.uint64(0xFFFFFFFF)) < np.uint64(int(share * (1 << 32)))
    return chosen
