"""The peer: DuckDB, with the windows in tables, and bands and intervals rewritten as equality of grid cells."""

from __future__ import annotations

import time

import duckdb
import pyarrow as pa

from tests.bench.suites.engine.at_once import timed_joins
from tests.bench.suites.engine.feeds import WorkloadFeed

__all__ = ["DuckDBAtOnce", "DuckDBCase", "DuckDBIntervals"]

# Width of a grid cell, in band widths: the best of 1, 2, 4 and 8 by measurement.
_CELL_BANDS = 2
# Width of a grid cell for intervals: the best of 25, 50, 100, 200 and 400 by measurement. DuckDB's own IEJoin, which it
# chooses for the plain condition, took 1.3 times as long.
_INTERVAL_CELL = 50
_BAND = 10  # half of a band's width, in both attributes


class DuckDBCase:
    """Pushes batches into windows of ``band2d``: cells find, the bands and the window decide, old rows are deleted.

    One stream's rows are kept once, with their cell. The other's are kept once for each cell that the band reaches (the
    usual rewrite: explode, and join on equality).
    """

    def __init__(self, feed: WorkloadFeed, batch_rows: int, place: int, threads: int) -> None:
        self._feed, self._batch_rows, self._place = feed, batch_rows, place
        self._width = _CELL_BANDS * 2 * _BAND
        self._window_us = feed.bound.join.window.extent(0)
        self._database = duckdb.connect(config={"threads": threads})
        for stream, (x, y) in enumerate((("x", "y"), ("a", "b"))):
            self._arrive(stream, place - feed.window_rows, feed.window_rows)
            self._database.execute(f"CREATE TABLE window_{stream} AS {self._celled(stream, x, y)}")

    def run(self, pushes: int, compared: int) -> dict[str, float]:
        """Do and time the first `compared` pushes; the rows of the other pushes come as one, which is not timed."""
        matches, elapsed_s = 0, 0.0
        for _ in range(compared):
            for stream in (0, 1):
                self._arrive(stream, self._place, self._batch_rows)
            self._place += self._batch_rows
            began = time.perf_counter()
            matches += self._push()
            elapsed_s += time.perf_counter() - began
        rest = (pushes - compared) * self._batch_rows
        if rest:
            for stream in (0, 1):
                self._arrive(stream, self._place, rest)
            self._place += rest
            self._push()
        rows = 2 * compared * self._batch_rows
        return {
            "rows_per_second": rows / elapsed_s,
            "real_time": rows / 2 / self._feed.tuples_per_second / elapsed_s,
            "matches": matches,
        }

    def _push(self) -> int:
        database = self._database
        for stream, (x, y) in enumerate((("x", "y"), ("a", "b"))):
            database.execute(f"CREATE OR REPLACE TEMP TABLE new_{stream} AS {self._celled(stream, x, y)}")
        database.execute("INSERT INTO window_1 SELECT * FROM new_1")
        found = database.sql(f"{self._matches('new_0', 'window_1')} UNION ALL {self._matches('window_0', 'new_1')}")
        matches = found.to_arrow_table().num_rows
        database.execute("INSERT INTO window_0 SELECT * FROM new_0")
        oldest_us = self._feed.time_us(self._place) - self._window_us
        for stream in (0, 1):
            database.execute(f"DELETE FROM window_{stream} WHERE _ts < {oldest_us}")
        return int(matches)

    def _arrive(self, stream: int, first: int, count: int) -> None:
        tables = [
            pa.Table.from_batches([self._feed.batch(stream, place, min(1 << 18, first + count - place))])
            for place in range(first, first + count, 1 << 18)
        ]
        self._database.register(f"arrived_{stream}", pa.concat_tables(tables))

    def _celled(self, stream: int, x: str, y: str) -> str:
        if stream == 0:
            cells = (
                f"CAST(floor({x} / {self._width}) AS INTEGER) AS cx, CAST(floor({y} / {self._width}) AS INTEGER) AS cy"
            )
            return f"SELECT *, {cells} FROM arrived_0"
        near = "arrived_1, generate_series(-1, 1) AS i(dx), generate_series(-1, 1) AS j(dy)"
        inner = (
            f"SELECT arrived_1.*, CAST(floor({x} / {self._width}) AS INTEGER) + dx AS cx, "
            f"CAST(floor({y} / {self._width}) AS INTEGER) + dy AS cy FROM {near}"
        )
        reach = [
            f"{column} BETWEEN cell * {self._width} - {_BAND} AND (cell + 1) * {self._width} + {_BAND}".replace(
                "cell", cell
            )
            for column, cell in ((x, "cx"), (y, "cy"))
        ]
        return f"SELECT * FROM ({inner}) WHERE {' AND '.join(reach)}"

    def _matches(self, left: str, right: str) -> str:
        return (
            "SELECT l._ts, l.x, l.y, r._ts AS s_ts, r.a, r.b, l._seq, r._seq AS s_seq, greatest(l._ts, r._ts) AS t "
            f"FROM {left} l JOIN {right} r ON l.cx = r.cx AND l.cy = r.cy AND abs(l.x - r.a) <= {_BAND} AND "
            f"abs(CAST(l.y AS DOUBLE) - CAST(r.b AS DOUBLE)) <= {_BAND} AND abs(l._ts - r._ts) <= {self._window_us}"
        )


class DuckDBIntervals(DuckDBCase):
    """Pushes batches into windows of ``intervals``: cells find the pairs of points and intervals.

    A point has one cell, and an interval is kept once for each cell that it reaches into.
    """

    def _celled(self, stream: int, x: str, y: str) -> str:
        del x, y
        return _interval_cells(stream, f"arrived_{stream}")

    def _matches(self, left: str, right: str) -> str:
        return _in_intervals(left, right, self._window_us)


class DuckDBAtOnce:
    """Joins all tuples of a window of ``intervals`` in one query over two tables, by cells that the query makes."""

    def __init__(self, feed: WorkloadFeed, threads: int) -> None:
        self._rows, self._window_us = feed.window_rows, feed.bound.join.window.extent(0)
        self._database = duckdb.connect(config={"threads": threads})
        for stream, batch in feed.batches(0, feed.window_rows).items():
            self._database.register("arrived", pa.Table.from_batches([batch]))
            self._database.execute(f"CREATE TABLE window_{stream} AS SELECT * FROM arrived")

    def run(self, pushes: int, compared: int) -> dict[str, float]:
        """Do the query `pushes` times; see `timed_joins`."""
        return timed_joins(lambda: self._joined, self._rows, pushes, compared)

    def _joined(self) -> int:
        left, right = (f"({_interval_cells(stream, f'window_{stream}')})" for stream in (0, 1))
        return int(self._database.sql(_in_intervals(left, right, self._window_us)).to_arrow_table().num_rows)


def _interval_cells(stream: int, rows: str) -> str:
    if stream == 0:
        return f"SELECT *, CAST(floor(x / {_INTERVAL_CELL}) AS BIGINT) AS cell FROM {rows}"
    low, high = (f"CAST(floor({side} / {_INTERVAL_CELL}) AS BIGINT)" for side in ("lo", "hi"))
    return f"SELECT *, unnest(generate_series({low}, {high})) AS cell FROM {rows}"


def _in_intervals(left: str, right: str, window_us: int) -> str:
    return (
        "SELECT l._ts, l.x, r._ts AS s_ts, r.lo, r.hi, l._seq, r._seq AS s_seq, greatest(l._ts, r._ts) AS t "
        f"FROM {left} l JOIN {right} r ON l.cell = r.cell AND l.x BETWEEN r.lo AND r.hi "
        f"AND abs(l._ts - r._ts) <= {window_us}"
    )
