"""The rows of generated streams: each tuple is a function of the parameters and its row number alone.

All generators share parameters, a schedule of rates, and random numbers for any block of rows. The papers' synthetic
streams have two attributes for the band (CellJoin, LLHJ, DP-Join), or one key (PIM-Tree). Readings like those of real
sensors have a daily cycle, drift, noise, gaps, disorder, and a few late or NaN readings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from streamjoin_ds.duration import duration_us
from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.source.feed import ArrayFrontier, Frontier
from streamjoin_ds.spec.event_time import DAY_US, MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.time_text import event_times

__all__ = [
    "BLOCK_ROWS",
    "Band1dRows",
    "Band2dRows",
    "Parameters",
    "RegularFrontier",
    "Schedule",
    "SensorRows",
    "SyntheticRows",
    "words",
]

# Rows in a block. Random numbers are seeded by the block, so a range of rows is made without the blocks before it.
BLOCK_ROWS = 1 << 16

_US = 1_000_000
_MAX_DENOMINATOR = 1_000_000  # a rate has at most six decimals
_TEXT_BYTES = 20
_GAP_READINGS = 64  # readings of one sensor in a gap
_LATE_FACTOR = 20  # how many times `disorder` the time of a late reading may be behind


class SyntheticRows(Protocol):
    """Rows as a function of their number."""

    name: str
    rows: int
    columns: Sequence[pa.Field]

    def make(self, first: int, last: int, names: Sequence[str]) -> tuple[np.ndarray, dict[str, pa.Array]]:
        """Return event times (int64 microseconds UTC) and the named columns of rows ``[first, last)``."""

    def frontier(self, first: int, last: int) -> Frontier:
        """Return the frontier of rows ``[first, last)``."""


def words(seed: int, column: str, block: int, count: int) -> np.ndarray:
    """Return the first `count` of a block's random numbers for one column: uint64, all 64 bits random.

    Only raw bits of the bit generator are used: NumPy promises that these are the same in all versions, and promises no
    such thing of its distributions. Each column has its own numbers, so they do not depend on the columns asked for.
    """
    sequence = np.random.SeedSequence([seed, xxhash.xxh3_64_intdigest(column.encode()), block])
    return np.random.SFC64(sequence).random_raw(count)


class Parameters:
    """A generator's parameters, with a method for each type. An error names the parameter, never its value.

    Parameters
    ----------
    name : str
        The generator's name.
    values : mapping of str to int, float or str
        The parameters as given. The caller has checked their names.
    """

    def __init__(self, name: str, values: Mapping[str, int | float | str]) -> None:
        self.name = name
        self._values = values

    def integer(self, name: str, default: int, low: int, high: int = (1 << 62)) -> int:
        """Return a whole number within ``[low, high]``."""
        value = self._values.get(name, default)
        try:
            number = int(value)
            whole = number == float(value)
        except (ValueError, OverflowError):
            whole = False
        if not whole or isinstance(value, bool) or not low <= number <= high:
            raise self._wrong(name, f"a whole number from {low} to {high}")
        return number

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """Return a finite number within ``[low, high]``."""
        try:
            number = float(self._values.get(name, default))
        except (ValueError, OverflowError):
            number = float("nan")
        if not low <= number <= high:
            raise self._wrong(name, f"a number from {low} to {high}")
        return number

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Return one of `choices`, in lower case; the value may be in any case."""
        value = str(self._values.get(name, default)).lower()
        if value not in choices:
            raise self._wrong(name, f"one of {', '.join(choices)}")
        return value

    def duration(self, name: str, default: str) -> int:
        """Return a duration in microseconds."""
        try:
            return duration_us(str(self._values.get(name, default)), name)
        except StreamJoinError:
            raise self._wrong(name, "a duration such as 2s") from None

    def start_us(self) -> int:
        """Return the event time of the first row, microseconds UTC."""
        # `pa.array` would import pandas (0.1 s of each start), which the planner's process needs for nothing else.
        ts, valid = event_times(pa.repeat(str(self._values.get("start", "2024-01-01T00:00:00Z")), 1), "us")
        if not valid[0]:
            raise self._wrong(name="start", valid="ISO 8601, or microseconds since 1970")
        return int(ts[0])

    def schedule(self) -> Schedule:
        """Return the schedule that the parameter `rate` or `rates` asks for."""
        start = self.start_us()
        text = self._values.get("rates")
        if text is None:
            return Schedule.of(start, [(0, self._rate("rate", self._values.get("rate", 1000)))])
        pieces = []
        for piece in str(text).split(","):
            since, colon, rate = piece.partition(":")
            if not colon:
                raise self._wrong(name="rates", valid="for example '0s:1000,60s:10000'; the first time is 0s")
            try:
                pieces.append((duration_us(since, "rates"), self._rate("rates", rate)))
            except StreamJoinError:
                raise self._wrong(name="rates", valid="for example '0s:1000,60s:10000'; the first time is 0s") from None
        since_us = [since for since, _ in pieces]
        rising = since_us[0] == 0 and all(before < after for before, after in pairwise(since_us))
        if not rising or "rate" in self._values:
            raise self._wrong(name="rates", valid="times that rise from 0s; leave out the parameter rate")
        return Schedule.of(start, pieces)

    def _rate(self, name: str, value: int | float | str) -> Fraction:
        try:
            rate = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            rate = Fraction(0)
        if not 0 < rate <= 1_000_000_000 or rate.denominator > _MAX_DENOMINATOR:
            raise self._wrong(name, "tuples a second, above 0 and at most 1000000000, with at most six decimals")
        return rate

    def _wrong(self, name: str, valid: str) -> ArgumentError:
        msg = f"the parameter {name} of the generator {self.name} cannot be read or is out of range"
        return ArgumentError(msg, name=name, hint=valid)


class _RatePiece(Struct, frozen=True):
    first_row: int
    start_us: int
    rate: Fraction

    def time(self, row: int) -> int:
        """Return when a row is due: row ``first_row + k`` is due ``floor(k * 10^6 / rate)`` us after the start."""
        steps = (row - self.first_row) * self.rate.denominator * _US
        return self.start_us + steps // self.rate.numerator

    def rows_until(self, ts: int) -> int:
        """Return how many rows of the piece are due at or before `ts`, if the piece has no end."""
        if ts < self.start_us:
            return 0
        return -(-(ts - self.start_us + 1) * self.rate.numerator // (self.rate.denominator * _US))


class Schedule(Struct, frozen=True):
    """The times at which rows are due, by rates that change at given times. All arithmetic is exact, on integers."""

    pieces: tuple[_RatePiece, ...]

    @classmethod
    def of(cls, start_us: int, rates: Sequence[tuple[int, Fraction]]) -> Schedule:
        """Return the schedule of `rates`: pairs of microseconds after the start and the rate from then on."""
        pieces: list[_RatePiece] = []
        row = 0
        for since_us, rate in rates:
            if pieces:
                row += pieces[-1].rows_until(start_us + since_us - 1)
            pieces.append(_RatePiece(row, start_us + since_us, rate))
        return cls(tuple(pieces))

    def times(self, first: int, last: int) -> np.ndarray:
        """Return the times at which rows ``[first, last)`` are due: int64 microseconds UTC, ascending.

        Raises
        ------
        ArgumentError
            A time is outside the years 1..9999.
        """
        out = np.empty(last - first, np.int64)
        for number, piece in enumerate(self.pieces):
            end = self.pieces[number + 1].first_row if number + 1 < len(self.pieces) else last
            low, high = max(first, piece.first_row), min(last, end)
            for begin in range(low, high, BLOCK_ROWS):
                count = min(BLOCK_ROWS, high - begin)
                # Python's integers divide for the first row, so that NumPy's cannot overflow for the rows after it.
                step, base = piece.rate.denominator * _US, (begin - piece.first_row) * piece.rate.denominator * _US
                whole, rest = divmod(base, piece.rate.numerator)
                steps = np.arange(count, dtype=np.int64)
                steps *= step
                steps += rest
                steps //= piece.rate.numerator
                out[begin - first : begin - first + count] = steps + _in_range(piece.start_us + whole)
        if len(out):
            _in_range(int(out[-1]))
        return out

    def time(self, row: int) -> int:
        """Return the time at which one row is due, microseconds UTC."""
        return next(piece for piece in reversed(self.pieces) if piece.first_row <= row).time(row)

    def rows_until(self, ts: int) -> int:
        """Return how many rows, from row 0 on, are due at or before `ts` (microseconds UTC)."""
        for number in reversed(range(len(self.pieces))):
            piece = self.pieces[number]
            if ts >= piece.start_us:
                rows = piece.first_row + piece.rows_until(ts)
                return rows if number + 1 == len(self.pieces) else min(rows, self.pieces[number + 1].first_row)
        return 0


def _in_range(ts: int) -> int:
    if not MIN_TS_US <= ts <= MAX_TS_US:
        msg = "a generated stream leaves the years 1 to 9999"
        raise ArgumentError(msg, name="start", hint="give an earlier start, a higher rate or fewer rows")
    return ts


class RegularFrontier(Struct, frozen=True):
    """The frontier of rows that come exactly when they are due. Only `running_max` takes memory for the rows."""

    schedule: Schedule
    first: int
    last: int

    @property
    def rows(self) -> int:
        """See `Frontier.rows`."""
        return self.last - self.first

    @property
    def running_max(self) -> np.ndarray:
        """See `Frontier.running_max`."""
        return self.schedule.times(self.first, self.last)

    def rows_until(self, ts: int) -> int:
        """See `Frontier.rows_until`."""
        return min(max(self.schedule.rows_until(ts) - self.first, 0), self.rows)

    def first_time(self) -> int | None:
        """See `Frontier.first_time`."""
        return self.schedule.time(self.first) if self.rows else None

    def last_time(self) -> int | None:
        """See `Frontier.last_time`."""
        return self.schedule.time(self.last - 1) if self.rows else None


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
        day = 2 * np.pi * ((ts % DAY_US) / DAY_US)
        drift = (ts // DAY_US % 30) * 0.05
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
