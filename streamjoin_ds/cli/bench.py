"""``streamjoin bench``: how fast a join is on this machine, over its own data, and beside DuckDB.

::

    streams ──┬──► the join itself, by Spark, into tables in a new folder ──► rows/s, matches, as often as --runs says
              └──► all tuples as tables ──► DuckDB: the condition as it is written, and by grid cells ──► the same

DuckDB is given tables in memory and joins them at once. It has no stream to read, no late rows and no commits.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import sqlglot
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from sqlglot.expressions import to_identifier

from streamjoin_ds.cli.display import Display
from streamjoin_ds.cli.join_options import JoinCommand, flags, join_options
from streamjoin_ds.cli.run import opened, run_join
from streamjoin_ds.errors import ArgumentError, DependencyMissingError
from streamjoin_ds.request.request import request_of
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spec import Band, BoundJoin, Generator
from streamjoin_ds.spec.columns import SEQ, TS, compared_type
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import (
    COMPARISONS,
    Call,
    Expression,
    Literal,
    Predicate,
    call,
    columns_of,
    normalised,
)
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.stream.run_keys import keys_of
from streamjoin_ds.stream.source_facts import bound_join

__all__ = ["command", "duckdb_queries"]

_WIDER = 1e-6  # by how much of its width a cell reaches further, so that rounding parts no pair from its cell
_CELL_WIDTHS = 2  # width of a cell, in widths of its band: the best of 1, 2, 4 and 8 by measurement
_AXES = 2  # most bands by which cells are made
_NAN = call("cast", Literal("nan"), Literal("double"))
_WIDTH = 120  # characters of a line where there is no terminal


class _Way(Struct, frozen=True):
    """One way to do the join, and what its runs took. No matches: they were not found within the limit."""

    name: str
    seconds: Sequence[float]
    rows: int
    matches: int | None
    note: str = ""

    def facts(self) -> dict[str, object]:
        """Return it as plain JSON values; the rates are those of the median run."""
        seconds = statistics.median(self.seconds)
        rates = None if self.matches is None else round(self.rows / seconds, 1)
        results = None if self.matches is None else round(self.matches / seconds, 1)
        facts = {"way": self.name, "seconds": [round(each, 3) for each in self.seconds], "rows": self.rows}
        return facts | {"matches": self.matches, "rows_per_second": rates, "results_per_second": results}


@click.command("bench", cls=JoinCommand)
@join_options
@flags("max_rows_per_batch", *keys_of("session"))
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each way.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=60, show_default=True, help="Seconds after which DuckDB is stopped."
)
@click.option(
    "--peer", type=click.Choice(["duckdb", "none"]), default="duckdb", show_default=True, help="What is beside."
)
@click.option("--json", "as_json", is_flag=True, help="Print the ways as a list of JSON objects.")
def command(config: Path | None, runs: int, limit: int, peer: str, as_json: bool, **given: Any) -> None:
    """Measure a join over all that its streams hold now, beside DuckDB over the same tuples.

    The join runs as `streamjoin run --available-now` does, into new tables that are removed afterwards. Its time is
    from the query's start to its last commit; Spark's own start is not in it, and with --local there is no Spark.
    DuckDB reads tables in memory, and writes its matches to Parquet.
    """
    request = request_of(config, given)
    bound = bound_join(request.join)
    _check_ends(bound)
    console = Console(stderr=True)
    spark = opened(request.session, "bench", console, quiet=True)
    root = Path(tempfile.mkdtemp(prefix="streamjoin-bench-"))
    try:
        ways = [_ours(spark, request, root / "ours", runs, console)]
        if peer == "duckdb":
            ways += _duckdb(bound, root, runs, limit, console)
            odd = [way.name for way in ways[1:] if way.matches not in (None, ways[0].matches)]
            if odd:
                console.print(f"{', '.join(odd)}: other matches, as tables have no late rows and no duplicates")
    finally:
        shutil.rmtree(root, ignore_errors=True)
        if spark is not None:
            spark.stop()
    if as_json:
        click.echo(json.dumps([way.facts() for way in ways], indent=1))
    else:
        _show(ways)


def _check_ends(bound: BoundJoin) -> None:
    for stream, schema in zip(bound.join.streams, bound.schemas, strict=True):
        if isinstance(stream.source, Generator) and open_feed(stream, schema).endless:
            msg = f"stream {stream.name} has no end, and a benchmark takes all that there is"
            raise ArgumentError(msg, name=stream.name, hint="say how many tuples: gen:NAME?rows=1000000")


def _ours(spark: Any, request: Any, root: Path, runs: int, console: Console) -> _Way:
    seconds = []
    for number in range(runs):
        folder = root / str(number)
        display = Display(console, quiet=True)
        run_join(
            spark,
            request.join,
            str(folder / "matches"),
            str(folder / "checkpoint"),
            {**request.run, "available_now": True},
            display,
        )
        totals = display.totals
        seconds.append(totals.seconds(totals.last_batch_s or display.clock()))
        shutil.rmtree(folder)
        console.print(f"run {number + 1} of {runs}: {seconds[-1]:.2f} s, {totals.matches:,} matches", style="dim")
    late = totals.ledger["late"].total()
    note = f"{totals.batches} batches" + (f"; {late:,} late rows, which are not joined" if late else "")
    return _Way("streamjoin", seconds, totals.rows, totals.matches, note)


def _duckdb(bound: BoundJoin, root: Path, runs: int, limit: int, console: Console) -> list[_Way]:
    queries = duckdb_queries(bound)
    if not queries:
        console.print("DuckDB: only an inner join of two streams within a time window is written for it", style="dim")
        return []
    try:
        import duckdb
    except ImportError as error:
        msg = "The package duckdb, which the join is compared with, is not installed."
        raise DependencyMissingError(msg, name="duckdb", hint="pip install duckdb, or --peer none") from error
    ways = []
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        rows = 0
        for number, name in enumerate(bound.names):
            tuples = _tuples(bound, number)
            database.register("arrived", tuples)
            database.execute(f"CREATE TABLE {_quoted(name)} AS SELECT * FROM arrived")
            rows += tuples.num_rows
        for way, query in queries.items():
            matches, seconds = None, []
            for _ in range(runs):
                matches, taken_s = _timed(database, query, root / "matches.parquet", limit)
                seconds.append(taken_s)
                if matches is None:
                    break
            ways.append(_Way(f"duckdb, {way}", seconds, rows, matches, "stopped" if matches is None else ""))
            console.print(f"duckdb, {way}: {seconds[-1]:.2f} s", style="dim")
    return ways


def _timed(database: Any, query: str, file: Path, limit: int) -> tuple[int | None, float]:
    """Return how many rows a query has, or None if it was stopped at the limit, and how many seconds it took."""
    import duckdb

    timer = threading.Timer(limit, database.interrupt)
    timer.start()
    began = time.perf_counter()
    try:
        [matches] = database.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet)").fetchone()
    except duckdb.InterruptException:
        matches = None
    finally:
        timer.cancel()
        file.unlink(missing_ok=True)
    return matches, time.perf_counter() - began


def _tuples(bound: BoundJoin, number: int) -> pa.Table:
    """Return all tuples of a stream, with the columns that the join needs and the event time as a timestamp."""
    stream, schema = bound.join.streams[number], bound.schemas[number]
    feed = open_feed(stream, schema)
    table = pa.Table.from_batches([chunk.tuples for chunk in feed.read(feed.initial(), None)])
    times = table[TS].cast(pa.timestamp("us", tz="UTC"))
    return table.drop_columns([TS, SEQ]).append_column(stream.time, times).select(schema.names)


def duckdb_queries(bound: BoundJoin) -> Mapping[str, str]:
    """Return the join as DuckDB's SQL over tables that are named as its streams, by the way it is written.

    ``as written`` has the condition alone. ``by grid cells``, where there is a band on numbers, is the usual rewrite: a
    row of the second table stands once in each cell that its band reaches, and equal cells find.

    Returns
    -------
    mapping of str to str
        Empty where DuckDB has no such join: more than two streams, tables beside them, other rows than pairs, another
        window than of time.
    """
    join = bound.join
    plain = join.how == "inner" and join.nearest is None and not join.reduce and not join.tables
    if not plain or len(join.streams) != 2 or join.window.kind != "time":
        return {}
    left, right = bound.names
    wheres: list[Expression] = [one.where for one in join.streams if one.where is not None]  # type: ignore[misc]
    conditions = [_told(asked, bound) for asked in (*join.predicates, *wheres)]
    tests = [f"({sqlglot.transpile(text, read='spark', write='duckdb')[0]})" for text in conditions]
    first, second = (f"epoch_us({_quoted(one.name)}.{_quoted(one.time)})" for one in join.streams)
    tests.append(f"{first} - {second} BETWEEN {-join.window.extent(0)} AND {join.window.extent(1)}")
    columns = ", ".join(
        f"{_quoted(name)}.{_quoted(column)} AS {_quoted(f'{name}_{column}')}"
        for name, schema in zip(bound.names, bound.schemas, strict=True)
        for column in schema.names
    )
    written = f"SELECT {columns} FROM {_quoted(left)} JOIN {_quoted(right)} ON {' AND '.join(tests)}"
    found = {"as written": written}
    axes = [band for band in join.predicates if isinstance(band, Band) and _makes_cells(band, bound)][:_AXES]
    if axes:
        cells, reach, equal = [], "", []
        for place, band in enumerate(axes):
            near, far, lo, hi = band.left.name, band.right.name, float(band.lo), float(band.hi)  # type: ignore[arg-type]
            if band.left.stream != left:
                near, far, lo, hi = far, near, -hi, -lo
            width = _CELL_WIDTHS * (hi - lo)
            cells.append(f"floor({_quoted(near)} / {width!r}) AS _cell_{place}")
            more = _WIDER * (hi - lo)
            ends = (
                f"TRY_CAST(floor(({_quoted(far)} + {end!r}) / {width!r}) AS BIGINT)" for end in (lo - more, hi + more)
            )
            spread = f"unnest(generate_series({', '.join(ends)})) AS _cell_{place}"
            reach = f"(SELECT *, {spread} FROM {reach or _quoted(right)})"
            equal.append(f"{_quoted(left)}._cell_{place} = {_quoted(right)}._cell_{place}")
        sides = f"(SELECT *, {', '.join(cells)} FROM {_quoted(left)}) {_quoted(left)} JOIN {reach} {_quoted(right)}"
        found["by grid cells"] = f"SELECT {columns} FROM {sides} ON {' AND '.join([*equal, *tests])}"
    return found


def _told(asked: Predicate, bound: BoundJoin) -> str:
    """Return a condition's text. A band needs no care for NaN: DuckDB finds that above its upper end."""
    if not isinstance(asked, Band):
        return str(_without_nan(asked, bound))
    return _told(call("=", asked.left, asked.right), bound) if asked.is_equality else str(asked)


def _without_nan(asked: Expression, bound: BoundJoin) -> Expression:
    """Return a condition in which NaN is null wherever floats are compared: DuckDB finds it equal to itself, and more.

    A comparison with null is unknown there, as one with NaN is here.
    """
    if not isinstance(asked, Call):
        return asked
    args = tuple(_without_nan(argument, bound) for argument in asked.args)
    if asked.op in (*COMPARISONS, "between", "in"):
        args = tuple(
            call("nullif", new, _NAN) if _may_be_nan(given, bound) else new
            for new, given in zip(args, asked.args, strict=True)
        )
    return Call(asked.op, args)


def _may_be_nan(value: Expression, bound: BoundJoin) -> bool:
    def type_of(column: Column) -> pa.DataType:
        number = bound.names.index(column.stream)
        is_time = column.name == bound.join.streams[number].time
        kind = pa.timestamp("us", tz="UTC") if is_time else bound.schemas[number].field(column.name).type
        return compared_type(kind, str(column))

    return bool(columns_of(value)) and typed_value(normalised(value), type_of).family == "float"


def _makes_cells(band: Band, bound: BoundJoin) -> bool:
    """Whether grid cells can be made of a band: it has a width, and numbers that a DOUBLE holds."""
    schemas = dict(zip(bound.names, bound.schemas, strict=True))
    kinds = [schemas[column.stream].field(column.name).type for column in (band.left, band.right)]
    return not band.is_equality and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)


def _quoted(name: str) -> str:
    return to_identifier(name, quoted=True).sql(dialect="duckdb")


def _show(ways: Sequence[_Way]) -> None:
    report = Table(title="From start to last commit, medians", title_justify="left")
    for number, name in enumerate(("", "seconds", "rows/s", "matches", "matches/s", "ours is", "")):
        report.add_column(name, justify="left" if number in (0, 6) else "right", no_wrap=True)
    ours = statistics.median(ways[0].seconds)
    for way in ways:
        seconds, least = statistics.median(way.seconds), "" if way.matches is not None else "> "
        report.add_row(
            way.name,
            f"{least}{seconds:,.2f}",
            "" if way.matches is None else f"{way.rows / seconds:,.0f}",
            "" if way.matches is None else f"{way.matches:,}",
            "" if way.matches is None else f"{way.matches / seconds:,.0f}",
            "" if way is ways[0] else f"{least}{seconds / ours:,.1f} x",
            way.note,
        )
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(report)
