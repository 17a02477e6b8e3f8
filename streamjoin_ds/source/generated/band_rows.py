"""The papers' synthetic streams: with two attributes for the band (CellJoin, LLHJ, DP-Join), or one key (PIM-Tree)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.feed import Frontier
from streamjoin_ds.source.synthetic_rows import BLOCK_ROWS, Parameters, RegularFrontier, words

__all__ = ["Band1dRows", "Band2dRows"]

_TEXT_BYTES = 20


class _RegularRows:
    """Rows that come when they are due."""

    def __init__(self, parameters: Parameters, columns: Sequence[pa.Field]) -> None:
        self.name = parameters.name
        self.rows = parameters.integer("rows", 0, 0)
        self.seed = parameters.integer("seed", 0, 0)
        self.columns = columns
        self.schedule = parameters.schedule()

    def frontier(self, first: int, last: int) -> Frontier:
        return RegularFrontier(self.schedule, first, last)

    def _block(self, name: str, block: int, begin: int, end: int) -> dict[str, np.ndarray]:
        """Return columns of rows ``[begin, end)`` of a block: `name`, and those made of the same random numbers."""
        raise NotImplementedError

    def make(self, first: int, last: int, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]]:
        types = {field.name: field.type for field in self.columns}
        made: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for block in range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS)):
            begin, end = max(first - block * BLOCK_ROWS, 0), min(last - block * BLOCK_ROWS, BLOCK_ROWS)
            ready: dict[str, np.ndarray] = {}
            for name in names:
                if name not in ready:
                    ready.update(self._block(name, block, begin, end))
                made[name].append(ready[name])
        columns = {name: _arrow(pieces, types[name]) for name, pieces in made.items()}
        return self.schedule.times(first, last), columns


class Band2dRows(_RegularRows):
    """R(x int, y float, z char[20]) or S(a int, b float, c double, d bool), all uniform on ``[low, high]``."""

    def __init__(self, parameters: Parameters) -> None:
        self.side = parameters.choice("side", "r", ("r", "s"))
        self.low = parameters.integer("low", 1, -(1 << 24), 1 << 24)
        self.high = parameters.integer("high", 10_000, -(1 << 24), 1 << 24)
        if self.low > self.high:
            msg = "the parameter low of the generator band2d is above high"
            raise ArgumentError(msg, name="low", hint="give low <= high")
        kinds = {
            "r": {"x": pa.int32(), "y": pa.float32(), "z": pa.string()},
            "s": {"a": pa.int32(), "b": pa.float32(), "c": pa.float64(), "d": pa.bool_()},
        }
        super().__init__(parameters, [pa.field(name, kind, nullable=False) for name, kind in kinds[self.side].items()])

    def _block(self, name: str, block: int, begin: int, end: int) -> dict[str, np.ndarray]:
        key = f"band2d.{self.side}"
        if name in ("x", "y", "a", "b"):
            # One random number makes both attributes: the whole number from its upper, the real from its lower half.
            halves = words(self.seed, key, block, end)[begin:].view("<u4").reshape(-1, 2)
            span = np.uint64(self.high - self.low + 1)
            # NumPy 1 keeps 32 bits in a product with one small number of 64.
            whole = (halves[:, 1].astype(np.uint64) * span >> np.uint64(32)).astype(np.int32)
            whole += np.int32(self.low)
            real = (halves[:, 0] >> np.uint32(8)).astype(np.float32)
            real *= np.float32((self.high - self.low) / (1 << 24))
            real += np.float32(self.low)
            return dict(zip("xy" if self.side == "r" else "ab", (whole, real), strict=True))
        if name == "c":
            numbers = words(self.seed, f"{key}.c", block, end)[begin:]
            return {"c": (numbers >> np.uint64(11)) * ((self.high - self.low) / (1 << 53)) + self.low}
        if name == "d":
            return {"d": words(self.seed, f"{key}.d", block, end)[begin:] >> np.uint64(63) == 1}
        random = words(self.seed, f"{key}.z", block, 3 * end)[3 * begin :].view(np.uint8).reshape(-1, 24)
        letters = (random[:, :_TEXT_BYTES].astype(np.uint16) * 26 >> 8).astype(np.uint8)
        letters += ord("a")
        return {"z": letters}


class Band1dRows(_RegularRows):
    """One integer key: uniform, Gaussian, gamma, or a Gaussian whose middle drifts (PIM-Tree, section 5)."""

    def __init__(self, parameters: Parameters) -> None:
        self.keys = parameters.choice("keys", "uniform", ("uniform", "gaussian", "gamma", "drift"))
        self.low = parameters.integer("low", 0, -(1 << 62))
        self.high = parameters.integer("high", (1 << 31) - 1, -(1 << 62))
        self.drift_rows = parameters.integer("drift_rows", 10_000_000, 2)
        if not 0 <= self.high - self.low < 1 << 32:
            msg = "the parameters low and high of the generator band1d do not enclose 1 to 4294967296 keys"
            raise ArgumentError(msg, name="high", hint="give low <= high < low + 4294967296")
        super().__init__(parameters, [pa.field("key", pa.int64(), nullable=False)])

    def _block(self, name: str, block: int, begin: int, end: int) -> dict[str, np.ndarray]:
        numbers = words(self.seed, "band1d.key", block, end)[begin:]
        if self.keys == "uniform":
            place = numbers >> np.uint64(32)
        else:
            row = np.arange(block * BLOCK_ROWS + begin, block * BLOCK_ROWS + end, dtype=np.int64)
            place = self._shaped(numbers, row)
        keys = (place.astype(np.uint64) * np.uint64(self.high - self.low + 1) >> np.uint64(32)).astype(np.int64)
        return {"key": keys + self.low}

    def _shaped(self, numbers: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return places in ``[0, 2^32)`` of the distribution asked for.

        They come from a table of quantiles by whole numbers only, so they are the same on every processor.
        """
        table = _quantiles("gamma" if self.keys == "gamma" else "gaussian")
        step = (numbers >> np.uint64(48)).astype(np.int64)
        rest = (numbers >> np.uint64(16) & np.uint64(0xFFFFFFFF)).astype(np.int64)
        low = table[step]
        place = low + ((table[step + 1] - low) * (rest >> 8) >> 24)
        if self.keys == "drift":
            half = self.drift_rows // 2
            phase = row % self.drift_rows
            way = np.where(phase < half, phase, self.drift_rows - phase)
            place += (way * ((1 << 31) // half)) - (1 << 30)
        clipped: np.ndarray = np.clip(place, 0, (1 << 32) - 1)
        return clipped


@lru_cache(maxsize=2)
def _quantiles(shape: str) -> np.ndarray:
    """Return 2^16 + 1 quantiles of N(1/2, 1/8) or of Gamma(3, 1/12), cut off at 0 and 1 and scaled to 2^32.

    They are rounded to 2^-24, which is far more than the mathematics libraries of two machines differ by.
    """
    count = 1 << 16
    grid = np.linspace(0.0, 1.0, (1 << 20) + 1)
    if shape == "gaussian":
        cumulative = np.array([0.5 * math.erfc((0.5 - x) * 8 / math.sqrt(2)) for x in grid[::16]])
    else:
        scaled = grid[::16] * 12
        cumulative = 1 - np.exp(-scaled) * (1 + scaled + scaled * scaled / 2)
    levels = np.arange(count + 1) / count
    levels = cumulative[0] + levels * (cumulative[-1] - cumulative[0])
    quantiles = np.interp(levels, cumulative, grid[::16])
    scaled_up: np.ndarray = np.round(quantiles * (1 << 24)).astype(np.int64) << 8
    return scaled_up


def _arrow(pieces: list[np.ndarray], kind: pa.DataType) -> pa.Array:
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else np.empty(0)
    if pa.types.is_string(kind):
        offsets = np.arange(len(values) + 1, dtype=np.int32) * _TEXT_BYTES
        data = pa.py_buffer(np.ascontiguousarray(values).reshape(-1))
        return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), data)
    return pa.array(values, kind)
