"""Tuples by seed: a feed gives any range of a stream's tuples, the same in every process and NumPy version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.generated.synthetic import words
from streamjoin_ds.spec import BoundJoin, CountWindow, Join, PeriodicWindow, Stream, TimeWindow, Window, bind

__all__ = ["WorkloadFeed", "band1d", "band2d", "equal_keys", "outside", "periodic", "product", "three_streams"]

_BLOCK_ROWS = 1 << 16
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class WorkloadFeed:
    """Two streams or more at one steady rate, keys uniform over whole numbers.

    Attributes
    ----------
    bound : BoundJoin
    tuples_per_second : float
        Of each stream, in event time.
    window_rows : int
        Tuples of one stream within its window.
    domains : mapping of str to int
        How many values each column has.
    seed : int
    """

    bound: BoundJoin
    tuples_per_second: float
    window_rows: int
    domains: Mapping[str, int]
    seed: int = 1

    def time_us(self, row: int) -> int:
        """Event time of the row with this number, of any stream."""
        return int(row * 1e6 / self.tuples_per_second)

    def batch(self, stream: int, first: int, count: int) -> pa.RecordBatch:
        """Rows ``[first, first + count)`` of a stream, in the inside form."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        times_us = (numbers * (1e6 / self.tuples_per_second)).astype(np.int64)
        columns = [pa.array(times_us), pa.array(numbers)]
        schema, stamps = self.bound.tuple_schema(stream), self.bound.stamps(stream)
        for field in list(schema)[2:]:
            if field.name in stamps:  # rows of the other stream before each: of two at one time the first stream's is
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
        """Rows ``[first, first + count)`` of each stream, by its number."""
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
    window: Window | None = None,
) -> WorkloadFeed:
    if window is None:
        window = TimeWindow((int(window_rows * 1e6 / tuples_per_second),) * len(columns))
    streams = [
        Stream(name, schema=pa.schema([("ts", _TIME), *fields.items()]))
        for name, fields in zip("rst", columns, strict=False)
    ]
    schemas = {stream.name: stream.schema for stream in streams}
    bound = bind(Join(streams, on, window), schemas)
    return WorkloadFeed(bound, tuples_per_second, window_rows, domains)


def band2d(window_rows: int, tuples_per_second: float = 5_117.0, domain: int = 10_000) -> WorkloadFeed:
    """CellJoin's and LLHJ's join (LLHJ, section 7.1), join attributes only: two bands of 10 over 1..10 000."""
    columns = {"x": pa.int32(), "y": pa.float32()}, {"a": pa.int32(), "b": pa.float32()}
    on = "abs(r.x - s.a) <= 10 AND abs(r.y - s.b) <= 10"
    return _feed(columns, on, tuples_per_second, window_rows, dict.fromkeys("xyab", domain))


def band1d(window_rows: int, *, counted: bool = False) -> WorkloadFeed:
    """PIM-Tree's join: a tuple a microsecond, one uniform key, two matches a probe.

    Its windows are the last `window_rows` tuples (`counted`), or what these are at this steady rate, a span of time.
    """
    # 2 * 1 + 1 values match, twice: 3 * window / domain = 2.
    columns = {"x": pa.int64()}, {"a": pa.int64()}
    window = CountWindow((window_rows, window_rows)) if counted else None
    return _feed(
        columns, "abs(r.x - s.a) <= 1", 1e6, window_rows, dict.fromkeys("xa", window_rows * 3 // 2), window=window
    )


def periodic(window_rows: int) -> WorkloadFeed:
    """A window every fifth of its length: a pair is found in each window that it shares, five tuples a probe match.

    Two tuples share two or three windows on average.
    """
    columns = {"x": pa.int64()}, {"a": pa.int64()}
    length_us = window_rows * 5
    window = PeriodicWindow.of(f"every {length_us // 5}us for {length_us}us", ["r", "s"])
    return _feed(columns, "abs(r.x - s.a) <= 2", 2e5, window_rows, dict.fromkeys("xa", window_rows), window=window)


def three_streams(window_rows: int) -> WorkloadFeed:
    """Three streams in a chain of bands, four partners each: sixteen results a probe."""
    columns = {"x": pa.int64()}, {"a": pa.int64()}, {"c": pa.int64()}
    on = "abs(r.x - s.a) <= 2 AND abs(s.a - t.c) <= 2"
    return _feed(columns, on, 1e6, window_rows, dict.fromkeys("xac", window_rows * 5 // 4))


def equal_keys(window_rows: int, kinds: tuple[pa.DataType, ...] = (pa.int64(),)) -> WorkloadFeed:
    """Equal keys, one match a probe: one column a type, all of them equal."""
    names = [f"k{number}" for number in range(len(kinds))]
    columns = dict(zip(names, kinds, strict=True))
    on = " AND ".join(f"r.{name} = s.{name}" for name in names)
    # Several columns share the window among them: their domains multiply to it.
    domain = max(2, round(window_rows ** (1 / len(kinds))))
    return _feed((columns, columns), on, 1e6, window_rows, dict.fromkeys(names, domain))


def product(rows: int) -> WorkloadFeed:
    """No condition at all, and a window that holds every row: all pairs match."""
    columns = {"x": pa.int64()}, {"a": pa.int64()}
    return _feed(columns, (), 1e6, rows, dict.fromkeys("xa", 1000))


def outside(batch: pa.RecordBatch) -> pa.Table:
    """A batch of a feed as `JoinEngine` takes it."""
    table = pa.Table.from_batches([batch])
    return table.append_column("ts", table["_ts"].cast(_TIME)).drop_columns(["_ts", "_seq"])
