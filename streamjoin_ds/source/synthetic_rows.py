"""What all generators share: parameters, a schedule of rates, and random numbers for any block of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.duration import duration_us
from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.source.event_time import MAX_TS_US, MIN_TS_US, event_times
from streamjoin_ds.source.feed import Frontier

__all__ = ["BLOCK_ROWS", "Parameters", "RegularFrontier", "Schedule", "SyntheticRows", "words"]


# Rows in a block. Random numbers are seeded by the block, so a range of rows is made without the blocks before it.
BLOCK_ROWS = 1 << 16

_US = 1_000_000
_MAX_DENOMINATOR = 1_000_000  # a rate has at most six decimals


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


@dataclass(frozen=True, slots=True)
class _RatePiece:
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


@dataclass(frozen=True, slots=True)
class Schedule:
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


@dataclass(frozen=True, slots=True)
class RegularFrontier:
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
