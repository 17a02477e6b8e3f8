"""The joins over recorded sensors with their known counts, and DuckDB's answer to each join, row for row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import BoundJoin, bind

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FILES = {
    "e": DATA / "swiss_flights" / "eastbound.csv.gz",
    "w": DATA / "swiss_flights" / "westbound.csv.gz",
    "u": DATA / "beijing_air" / "urban.csv.gz",
    "s": DATA / "beijing_air" / "suburban.csv.gz",
}
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not here")


@dataclass(frozen=True)
class RealJoin:
    """A join of ../shared/data/README.md: its streams, predicates, windows, and the count of its matches."""

    name: str
    left: str
    right: str
    on: tuple[str, ...]
    windows: tuple[str, str]
    matches: int
    time_range: str  # the SQL condition on the two event times

    def join(self) -> StreamJoin:
        streams = [Stream(name, FILES[name], time="ts") for name in (self.left, self.right)]
        return StreamJoin(streams, on=self.on, window=dict(zip((self.left, self.right), self.windows, strict=True)))

    def bound(self) -> BoundJoin:
        join = self.join()
        return bind(join, {stream.name: infer_schema(stream) for stream in join.streams})


def _flights(name: str, window: str, latitude: float, longitude: float, matches: int, *also: str) -> RealJoin:
    on = (
        f"abs(e.latitude - w.latitude) <= {latitude}",
        f"abs(e.longitude - w.longitude) <= {longitude}",
        "abs(e.altitude - w.altitude) <= 1000",
        *also,
    )
    seconds = int(window.removesuffix("s"))
    near = f"w.ts BETWEEN e.ts - INTERVAL {seconds} SECONDS AND e.ts + INTERVAL {seconds} SECONDS"
    return RealJoin(name, "e", "w", on, (window, window), matches, near)


def _air(name: str, hours: int, particles: float, temperature: float, wind: float, matches: int) -> RealJoin:
    on = (
        f'abs(u."PM2.5" - s."PM2.5") <= {particles}',
        f"abs(u.TEMP - s.TEMP) <= {temperature}",
        f"abs(u.WSPM - s.WSPM) <= {wind}",
    )
    near = f"s.ts BETWEEN u.ts AND u.ts + INTERVAL {hours} HOURS"
    return RealJoin(name, "u", "s", on, (f"{hours}h", "0s"), matches, near)


REAL_JOINS = (
    _flights("flights", "15s", 0.1, 0.15, 4_748),
    _flights("flights-60s", "60s", 0.1, 0.15, 24_046),
    _flights("flights-others", "15s", 0.05, 0.07, 1_084, "e.icao24 <> w.icao24"),
    _air("air", 6, 5, 0.5, 0.5, 131_938),
    _air("air-24h", 24, 5, 0.5, 0.5, 210_809),
    _air("air-wide", 6, 10, 1, 1, 645_026),
)
BY_NAME = {join.name: join for join in REAL_JOINS}


def real_joins(*quick: str) -> list[Any]:
    """Return all joins as a test's parameters: those not named here are `long`."""
    long = {real.name: () if real.name in quick else (pytest.mark.long,) for real in REAL_JOINS}
    return [pytest.param(real, id=real.name, marks=long[real.name]) for real in REAL_JOINS]


@lru_cache(maxsize=4)
def recorded(stream: str) -> pa.Table:
    """Return a stream's tuples with their numbers, read by pyarrow alone."""
    gaps = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
    table = pyarrow.csv.read_csv(FILES[stream], convert_options=gaps)
    table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", tz="UTC")))
    return table.append_column("seq", pa.array(range(table.num_rows), pa.int64()))


@lru_cache(maxsize=6)
def answer(name: str) -> pa.Table:
    """Return every column of every result, by DuckDB: the contract's ``abs(l - r) <= eps`` in float64, nothing else."""
    real = BY_NAME[name]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    columns = []
    for stream in (real.left, real.right):
        table = recorded(stream)
        connection.register(stream, table)
        columns += [f'{stream}."{column}" AS "{stream}_{column}"' for column in table.column_names]
    select = ", ".join(columns)
    conditions = " AND ".join(f"({text})" for text in (*real.on, real.time_range))
    latest = f"greatest({real.left}.ts, {real.right}.ts) AS event_time"
    query = f"SELECT {select}, {latest} FROM {real.left}, {real.right} WHERE {conditions}"
    return connection.sql(query).to_arrow_table()


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return rows in the order of their numbers, columns by name, without the batch id."""
    table = table.select(sorted(name for name in table.column_names if name != "batch_id"))
    seqs = [(name, "ascending") for name in table.column_names if name.endswith("_seq")]
    return table.sort_by(seqs).combine_chunks()


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Assert that every value of every row is the same, a null like a null."""
    found, expected = sorted_rows(found), sorted_rows(expected)
    assert found.column_names == expected.column_names
    assert found.num_rows == expected.num_rows
    for name in found.column_names:
        mine, theirs = found[name].combine_chunks(), expected[name].combine_chunks().cast(found[name].type)
        same = pc.or_kleene(pc.equal(mine, theirs), pc.and_(pc.is_null(mine), pc.is_null(theirs)))
        assert pc.all(pc.fill_null(same, False)).as_py(), f"column {name} differs"
