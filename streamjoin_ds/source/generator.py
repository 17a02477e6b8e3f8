"""The generators by name, and their streams as feeds: a tuple is a function of the parameters and its row number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.feed import Backlog, Frontier
from streamjoin_ds.source.position import RowPosition
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form
from streamjoin_ds.source.synthetic_rows import (
    BLOCK_ROWS,
    Band1dRows,
    Band2dRows,
    Parameters,
    SensorRows,
    SyntheticRows,
)
from streamjoin_ds.spec.columns import SEQ, TIMESTAMP, TS
from streamjoin_ds.spec.event_time import AheadLimit
from streamjoin_ds.spec.inside import inside_schema
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.source import Generator
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["GENERATORS", "GeneratorFeed", "GeneratorKind", "generator_schema", "parse_generator", "synthetic_rows"]

# Blocks of `BLOCK_ROWS` rows in a chunk, at most: enough that a chunk's own cost is small beside that of its rows, few
# enough that a chunk takes little memory.
_CHUNK_BLOCKS = 16
_COMMON = {
    "rate": "tuples a second of event time (1000)",
    "rates": "instead of rate: '0s:1000,60s:10000', each rate with the time after the start at which it begins",
    "rows": "tuples in all; 0 for an endless stream (0)",
    "seed": "whole number >= 0 (0)",
    "start": "event time of the first tuple, ISO 8601 or microseconds (2024-01-01T00:00:00Z)",
}


class GeneratorKind(Struct, frozen=True):
    """A kind of generator: what it generates, how its rows are made, and its parameters with their meaning."""

    summary: str
    make: Callable[[Parameters], SyntheticRows]
    parameters: Mapping[str, str]


GENERATORS: Mapping[str, GeneratorKind] = {
    "band2d": GeneratorKind(
        "the papers' R(x int, y float, z char[20]) and S(a int, b float, c double, d bool), all uniform",
        Band2dRows,
        {**_COMMON, "side": "r or s (r)", "low": "least value (1)", "high": "greatest value (10000)"},
    ),
    "band1d": GeneratorKind(
        "one integer key (PIM-Tree)",
        Band1dRows,
        {
            **_COMMON,
            "keys": "uniform, gaussian, gamma, or drift: a gaussian whose middle wanders (uniform)",
            "low": "least key (0)",
            "high": "greatest key (2147483647)",
            "drift_rows": "for keys=drift: rows in which the middle goes up and comes back (10000000)",
        },
    ),
    "sensor": GeneratorKind(
        "sensors with a daily cycle, drift, noise, gaps, disorder and a few late and NaN readings",
        SensorRows,
        {
            **_COMMON,
            "sensors": "how many sensors take turns (16)",
            "disorder": "how far behind its due time a reading usually is, at most (2s)",
            "late": "share of readings that are up to 20 times as far behind (0.0005)",
            "nan": "share of readings that are NaN (0.001)",
            "gaps": "share of the time in which a sensor reads null (0.02)",
            "shift": "added to every temperature (0)",
        },
    ),
}


def parse_generator(text: str) -> Generator:
    """Return the generator in a text such as ``gen:band2d?side=r&rate=5117&seed=1``.

    Raises
    ------
    ArgumentError
        The text does not have this form, the generator or a parameter is unknown, or a value is out of range.
    """
    generator = Generator.parse(text)
    synthetic_rows(generator)
    return generator


def synthetic_rows(generator: Generator) -> SyntheticRows:
    """Return the rows that a generator stands for; raise an `ArgumentError` that names what is wrong with it."""
    kind = GENERATORS.get(generator.name)
    if kind is None:
        msg = f"there is no generator '{generator.name}'"
        raise ArgumentError(msg, name=generator.name, hint=f"one of {', '.join(GENERATORS)}")
    for name in generator.parameters:
        if name not in kind.parameters:
            msg = f"the generator {generator.name} has no parameter '{name}'"
            raise ArgumentError(msg, name=name, hint=f"its parameters are {', '.join(kind.parameters)}")
    return kind.make(Parameters(generator.name, generator.parameters))


def generator_schema(stream: Stream) -> pa.Schema:
    """Return the columns of a generated stream. The first is the time column, under the name the stream gives it."""
    if not isinstance(stream.source, Generator):
        msg = f"stream {stream.name} is not generated"
        raise ArgumentError(msg, name=stream.name, hint="for example Generator('band2d', {...})")
    time = pa.field(stream.time, pa.timestamp("us", tz="UTC"), nullable=False)
    return pa.schema([time, *synthetic_rows(stream.source).columns])


class GeneratorFeed:
    """A generated stream as a feed.

    Parameters
    ----------
    stream : Stream
        A stream whose source is a `Generator`.
    schema : pyarrow.Schema
        The columns that travel; no others are generated.
    """

    def __init__(self, stream: Stream, schema: pa.Schema) -> None:
        assert isinstance(stream.source, Generator)
        self._rows = synthetic_rows(stream.source)
        self._stream, self._wanted = stream, schema
        self._schema = inside_schema(schema, stream.time)
        written = self._schema if stream.columns is None else read_columns(stream, schema)
        self._names = [name for name in written.names if name not in (TS, SEQ, stream.time)]

    @property
    def endless(self) -> bool:
        """See `Feed.endless`."""
        return self._rows.rows == 0

    @property
    def held_back_bytes(self) -> int:
        """See `Feed.held_back_bytes`: a generator holds nothing back."""
        return 0

    @property
    def passed_over(self) -> Sequence[str]:
        """See `Feed.passed_over`."""
        return ()

    def initial(self) -> RowPosition:
        """See `Feed.initial`."""
        return RowPosition()

    def position(self, facts: object) -> RowPosition:
        """See `Feed.position`."""
        return RowPosition.from_facts(facts, self._rows.name)

    def frontier(self, start: RowPosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`; a generated stream has no `AheadLimit`."""
        assert ahead is None
        rows = limit if self.endless else max(0, min(limit, self._rows.rows - start.seq))
        return self._rows.frontier(start.seq, start.seq + rows)

    def advance(self, start: RowPosition, rows: int) -> RowPosition:
        """See `Feed.advance`."""
        return RowPosition(start.seq + rows)

    def time_before(self, position: RowPosition) -> int | None:
        """See `Feed.time_before`."""
        return self._rows.frontier(position.seq - 1, position.seq).first_time() if position.seq else None

    def backlog(self, end: RowPosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`: what the frontier says."""
        del end
        return known

    def freeze(self) -> None:
        """See `Feed.freeze`: does nothing, no row appears later."""

    def files_between(self, start: RowPosition, end: RowPosition) -> tuple[str, ...]:
        """See `Feed.files_between`: none."""
        del start, end
        return ()

    def running_max(
        self,
        start: RowPosition,
        end: RowPosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """See `Feed.running_max`."""
        assert ahead is None
        del files
        return self._rows.frontier(start.seq, end.seq).running_max

    def split(self, start: RowPosition, end: RowPosition, parts: int) -> list[tuple[RowPosition, RowPosition]]:
        """See `Feed.split`: parts of equal size, to a row."""
        rows = end.seq - start.seq
        parts = min(parts, rows)
        cuts = [RowPosition(start.seq + rows * part // max(parts, 1)) for part in range(parts + 1)]
        return list(pairwise(cuts))

    def read(
        self,
        start: RowPosition,
        end: RowPosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`."""
        assert ahead is None
        del files
        last = self._rows.rows if end is None else end.seq
        first = start.seq
        while first < last:
            until = min(last, (first // BLOCK_ROWS + _CHUNK_BLOCKS) * BLOCK_ROWS)
            yield self._chunk(first, until)
            first = until

    def _chunk(self, first: int, last: int) -> Chunk:
        ts, columns = self._rows.make(first, last, self._names)
        if self._stream.columns is not None:
            written = {self._stream.time: pa.array(ts).cast(TIMESTAMP)} | {name: columns[name] for name in self._names}
            raw, rows = RawRecords(pa.table(written), last - first), np.arange(first + 1, last + 1, dtype=np.int64)
            return inside_form(raw, self._stream, self._wanted, first, f"gen:{self._rows.name}", rows)
        arrays = [pa.array(ts), pa.array(np.arange(first, last, dtype=np.int64))]
        arrays += [columns[name] for name in self._names]
        return Chunk(first, last - first, pa.RecordBatch.from_arrays(arrays, schema=self._schema))
