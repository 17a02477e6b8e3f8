"""Feeds: a feed makes any range of a stream's tuples from a seed, the same in every process and NumPy version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.synthetic_rows import words
from streamjoin_ds.spec import (
    BoundJoin,
    CountWindow,
    Join,
    Nearest,
    PeriodicWindow,
    Stream,
    TimeWindow,
    WindowKind,
    bind,
)

__all__ = [
    "WorkloadFeed",
    "band1d",
    "band2d",
    "equal_keys",
    "intervals",
    "outside",
    "periodic",
    "product",
    "three_streams",
]

_BLOCK_ROWS = 1 << 16  # values of a column that are made, and cached, at once
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class WorkloadFeed:
    """Two streams or more at one steady rate, with keys uniform over whole numbers.

    Attributes
    ----------
    bound : BoundJoin
        The join of the streams.
    tuples_per_second : float
        Rate of each stream, in event time.
    window_rows : int
        Tuples of one stream within its window.
    domains : mapping of str to int
        How many values each column has.
    seed : int
        The tuples depend on it.
    """

    bound: BoundJoin
    tuples_per_second: float
    window_rows: int
    domains: Mapping[str, int]
    seed: int = 1

    def time_us(self, row: int) -> int:
        """Return the event time, in microseconds, of the row with this number in any stream."""
        return int(row * 1e6 / self.tuples_per_second)

    def batch(self, stream: int, first: int, count: int) -> pa.RecordBatch:
        """Return the rows ``[first, first + count)`` of a stream, in the inside form."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        times_us = (numbers * (1e6 / self.tuples_per_second)).astype(np.int64)
        columns = [pa.array(times_us), pa.array(numbers)]
        schema, stamps = self.bound.tuple_schema(stream), self.bound.stamps(stream)
        for field in list(schema)[2:]:
            # A stamp says how many rows of the other stream precede: at equal times the first stream's row comes first.
            if field.name in stamps:
                columns.append(pa.array(numbers + stream))
                continue
            values = np.concatenate(
                [
                    self._block(stream, field, block)[max(first - block * _BLOCK_ROWS, 0) :][
                        : first + count - max(first, block * _BLOCK_ROWS)
                    ]
                    for block in range(first // _BLOCK_ROWS, (first + count - 1) // _BLOCK_ROWS + 1)
                ]
            )
            columns.append(_arrow(values, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def batches(self, first: int, count: int) -> dict[int, pa.RecordBatch]:
        """Return the rows ``[first, first + count)`` of each stream, by the stream's number."""
        return {stream: self.batch(stream, first, count) for stream in range(len(self.bound.names))}

    def _block(self, stream: int, field: pa.Field, block: int) -> np.ndarray:
        return _values(self.seed, f"{stream}.{field.name}", block, self.domains[field.name])


@lru_cache(maxsize=64)
def _values(seed: int, column: str, block: int, domain: int) -> np.ndarray:
    values: np.ndarray = (words(seed, column, block, _BLOCK_ROWS) % np.uint64(domain)).astype(np.int64)
    return values


def _arrow(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array(np.char.add("sensor-", values.astype(str)), kind)
    return pa.array(values.astype(kind.to_pandas_dtype()), kind)


def _feed(
    columns: Sequence[Mapping[str, pa.DataType]],
    on: str | tuple[()],
    tuples_per_second: float,
    window_rows: int,
    domains: Mapping[str, int],
    *,
    window: WindowKind | None = None,
    how: str = "inner",
) -> WorkloadFeed:
    if window is None:
        window = TimeWindow((int(window_rows * 1e6 / tuples_per_second),) * len(columns))
    streams = [
        Stream(name, schema=pa.schema([("ts", _TIME), *fields.items()]))
        for name, fields in zip("rst", columns, strict=False)
    ]
    schemas = {stream.name: stream.schema for stream in streams}
    bound = bind(Join(streams, on, window, how=how), schemas)
    return WorkloadFeed(bound, tuples_per_second, window_rows, domains)


def band2d(
    window_rows: int, tuples_per_second: float = 5_117.0, domain: int = 10_000, how: str = "inner", band: int = 10
) -> WorkloadFeed:
    """Return CellJoin's and LLHJ's join (LLHJ, section 7.1), join attributes only: two bands of 10 on 10 000 values."""
    columns = {"x": pa.int32(), "y": pa.float32()}, {"a": pa.int32(), "b": pa.float32()}
    on = f"abs(r.x - s.a) <= {band} AND abs(r.y - s.b) <= {band}"
    return _feed(columns, on, tuples_per_second, window_rows, dict.fromkeys("xyab", domain), how=how)


def band2d_nearest(window_rows: int) -> WorkloadFeed:
    """Return the tuples of `band2d`, of which each of the first stream has the nearest partner in x and y alone."""
    apart = "(r.x - s.a) * (r.x - s.a) + (r.y - s.b) * (r.y - s.b)"
    return _asking(band2d(window_rows), nearest=Nearest(by=apart))


def band2d_counted(window_rows: int, band: int) -> WorkloadFeed:
    """Return the tuples of `band2d`, in bands of this width, of which each of the first stream has a count of partners.

    As in Spark, a tuple without a partner has no row.
    """
    return _asking(band2d(window_rows, band=band), reduce={"partners": "count(*)"})


def _asking(feed: WorkloadFeed, **asked: Any) -> WorkloadFeed:
    join = feed.bound.join
    bound = bind(Join(join.streams, join.predicates, join.window, **asked), {s.name: s.schema for s in join.streams})
    return replace(feed, bound=bound)


def band1d(window_rows: int, *, counted: bool = False) -> WorkloadFeed:
    """Return PIM-Tree's join: a tuple a microsecond, one uniform key, two matches a probe.

    If `counted`, its windows are the last `window_rows` tuples; else the span of time in which that many tuples come.
    """
    # 2 * 1 + 1 values match a probe, so it has 3 * window / domain = 2 matches.
    columns = {"x": pa.int64()}, {"a": pa.int64()}
    window = CountWindow((window_rows, window_rows)) if counted else None
    return _feed(
        columns, "abs(r.x - s.a) <= 1", 1e6, window_rows, dict.fromkeys("xa", window_rows * 3 // 2), window=window
    )


def periodic(window_rows: int) -> WorkloadFeed:
    """Return a join with a periodic window, a new one every fifth of its length.

    A pair is found once in each window that it shares: two or three on average. A probe has five matches.
    """
    columns = {"x": pa.int64()}, {"a": pa.int64()}
    length_us = window_rows * 5
    window = PeriodicWindow.of(f"every {length_us // 5}us for {length_us}us", ["r", "s"])
    return _feed(columns, "abs(r.x - s.a) <= 2", 2e5, window_rows, dict.fromkeys("xa", window_rows), window=window)


def three_streams(window_rows: int) -> WorkloadFeed:
    """Return a join of three streams in a chain of bands, four partners each: sixteen results a probe."""
    columns = {"x": pa.int64()}, {"a": pa.int64()}, {"c": pa.int64()}
    on = "abs(r.x - s.a) <= 2 AND abs(s.a - t.c) <= 2"
    return _feed(columns, on, 1e6, window_rows, dict.fromkeys("xac", window_rows * 5 // 4))


def equal_keys(window_rows: int, kinds: tuple[pa.DataType, ...] = (pa.int64(),)) -> WorkloadFeed:
    """Return a join on equal keys, one match a probe; there is one column for each type, and all must be equal."""
    names = [f"k{number}" for number in range(len(kinds))]
    columns = dict(zip(names, kinds, strict=True))
    on = " AND ".join(f"r.{name} = s.{name}" for name in names)
    # The product of the columns' domains is the number of rows in the window.
    domain = max(2, round(window_rows ** (1 / len(kinds))))
    return _feed((columns, columns), on, 1e6, window_rows, dict.fromkeys(names, domain))


def product(rows: int) -> WorkloadFeed:
    """Return a join with no condition and a window that holds every row: all pairs match."""
    columns = {"x": pa.int64()}, {"a": pa.int64()}
    return _feed(columns, (), 1e6, rows, dict.fromkeys("xa", 1000))


@dataclass(frozen=True)
class _IntervalFeed(WorkloadFeed):
    """A feed of points ``x``, and of intervals from ``lo`` to ``hi`` whose lengths are of many sizes."""

    def _block(self, stream: int, field: pa.Field, block: int) -> np.ndarray:
        place = _values(self.seed, f"{stream}.place", block, 1 << 40) * (self.domains["x"] / (1 << 40))
        if field.name != "hi":
            return np.asarray(place)
        share = _values(self.seed, f"{stream}.length", block, 1 << 40) / (1 << 40)
        return np.asarray(place + 10.0 ** (_LEAST_LENGTH + share * (_MOST_LENGTH - _LEAST_LENGTH)))


# Lengths of intervals, as powers of ten: as many of each size. One in five is longer than 100, and these cover most.
_LEAST_LENGTH, _MOST_LENGTH = -2, 3


def intervals(window_rows: int) -> WorkloadFeed:
    """Return a join of points and intervals of mixed lengths, about nine matches a probe: ``x BETWEEN lo AND hi``."""
    columns = {"x": pa.float64()}, {"lo": pa.float64(), "hi": pa.float64()}
    feed = _feed(columns, "r.x BETWEEN s.lo AND s.hi", 1e5, window_rows, {"x": window_rows * 10})
    return _IntervalFeed(feed.bound, feed.tuples_per_second, feed.window_rows, feed.domains)


def outside(batch: pa.RecordBatch) -> pa.Table:
    """Return a batch of a feed in the form that `JoinEngine` takes."""
    table = pa.Table.from_batches([batch])
    return table.append_column("ts", table["_ts"].cast(_TIME)).drop_columns(["_ts", "_seq"])
