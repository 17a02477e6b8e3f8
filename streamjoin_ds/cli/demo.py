"""``streamjoin demo``: recorded ships, replayed as two live streams; who comes near whom, and how others find that.

::

    _data/vessels ─► two files ─► the join under Spark, paced ─► lines of near misses, and a page with a map
                         └──────► the same join of tables, DuckDB, Spark: a batch, and what it says to the streams
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from sqlglot.expressions import to_identifier

from streamjoin_ds.cli.data import put_files
from streamjoin_ds.cli.display import Display, complete_before
from streamjoin_ds.cli.run import run_join
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Stream
from streamjoin_ds.stream.commit import BatchSummary
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.watch.table_tail import TableTail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PYTHON", "SQL", "command", "demo_join"]

_RECORDED_S, _RECORDED_ROWS = 600, 2_275
_SHOWN = 6  # pairs of vessels in the table at the end
_NEARER = 0.9  # a pair that was told is told again when it is this much nearer

_ON = "distance_m(a.lat, a.lon, b.lat, b.lon) <= 1852 AND a.mmsi <> b.mmsi"
_SELECT = """\
a.vessel, b.vessel, round(distance_m(a.lat, a.lon, b.lat, b.lon)) AS metres,
       round(abs(extract(second FROM a.ts - b.ts)), 1) AS seconds, a.lat, a.lon, b.lat, b.lon"""
PYTHON = f"""\
a, b = (Stream(x, f"channel_{{x}}.csv.gz", time="ts", where="knots > 1") for x in "ab")
near = "{_ON}"
shown = '''{_SELECT}'''
join = StreamJoin([a, b], on=near, window="15s", select=shown)
join.start(spark, to="near", checkpoint="near.ckpt")
"""
SQL = f"""\
CREATE STREAM a WITH (source = 'channel_a.csv.gz', time = 'ts', where = 'knots > 1');
CREATE STREAM b WITH (source = 'channel_b.csv.gz', time = 'ts', where = 'knots > 1');
INSERT INTO near WITH (checkpoint = 'near.ckpt')
SELECT {_SELECT}
FROM a JOIN b ON {_ON}
 AND a.ts BETWEEN b.ts - INTERVAL 15 SECONDS AND b.ts + INTERVAL 15 SECONDS;
"""
# The same for those that have no `distance_m`: haversines on the same sphere.
_ELSEWHERE = """\
SELECT a.vessel AS a_vessel, b.vessel AS b_vessel FROM a JOIN b
  ON 2 * 6371008.8 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2)
     + cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2))) <= 1852
 AND a.mmsi <> b.mmsi AND a.knots > 1 AND b.knots > 1
 AND a.ts BETWEEN b.ts - INTERVAL 15 SECONDS AND b.ts + INTERVAL 15 SECONDS"""
_CLOSEST = """\
SELECT least(a_vessel, b_vessel) AS one, greatest(a_vessel, b_vessel) AS other, min(metres) AS metres,
       min_by(event_time, metres) AS at, count(*) AS misses
FROM near GROUP BY 1, 2 ORDER BY metres, at"""
_COLUMNS = "ts TIMESTAMP, mmsi BIGINT, vessel STRING, lat DOUBLE, lon DOUBLE, knots DOUBLE"


def demo_join(folder: Path) -> StreamJoin:
    """Return the demo's join, that of `PYTHON` and of `SQL`: vessels within a nautical mile of each other, 15 s apart.

    Parameters
    ----------
    folder : Path
        Where the two files of the recording are.
    """
    streams = [
        Stream(name, str(folder / f"channel_{name}.csv.gz"), time="ts", where="knots > 1") for name in ("a", "b")
    ]
    return StreamJoin(streams, on=_ON, window="15s", select=_SELECT)


@click.command("demo")
@click.option(
    "--seconds", type=click.IntRange(1, 600), default=30, show_default=True, help="How long the ten minutes take."
)
@click.option("--page/--no-page", default=None, help="Show it on a page too.  [default: where its packages are there]")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    help="Empty folder for the tables and the checkpoint.  [default: a new temporary one]",
)
def command(seconds: int, page: bool | None, to: Path | None) -> None:
    """Join ten minutes of ships at sea, replayed as two live streams: which of them come near each other.

    It shows each near miss, in the terminal and on a page with a map; then what did it, in Python and in SQL, and what
    DuckDB and Spark do with the same minutes.
    """
    from streamjoin_ds.spark.session import session_log_path, spark_session

    console = Console()
    folder = _folder(to)
    files = folder / "recording"
    put_files("vessels", files)
    table, checkpoint = str(folder / "near"), str(folder / "near.ckpt")
    say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    say("Ships and yachts between Helsinki and Tallinn, 15 August 2014: positions, as AIS sends them on two channels.")
    say(f"Ten minutes of them in {seconds} s. Which vessels under way come within a nautical mile of each other?")
    say("Starting Spark ...", style="dim")
    spark = spark_session("streamjoin demo", log_path=folder / "spark.log", quick_compiler=True)
    has_page = find_spec("uvicorn") is not None and find_spec("starlette") is not None
    options = {
        "available_now": True,
        "source_options": {"pace": f"{_RECORDED_S / seconds:.6g}"},
        # What came while Spark warmed up is caught up step by step, so that one sees it move.
        "max_rows_per_batch": max(1, 3 * _RECORDED_ROWS // (2 * seconds)),
        "page": "0" if page or (page is None and has_page) else None,
    }
    display = _NearMisses(console, table)
    join = demo_join(files)
    finished = run_join(spark, join, table, checkpoint, options, display)
    totals = display.totals
    say(
        f"\n{totals.rows:,} positions gave {totals.matches:,} near misses of {len(display.nearest)} pairs of vessels "
        f"in {totals.batches} batches{'' if finished else ' (interrupted)'}; "
        f"{complete_before(totals.facts(display.clock()))}.\n"
    )
    if not finished:
        return
    console.print(_closest(spark, table))
    for language, text in (("Python", PYTHON), ("SQL", SQL)):
        say(f"\nWhat did it, in {language}:\n", style="bold")
        say("\n".join(f"  {line}" for line in text.splitlines()))
    say("\nThe same ten minutes elsewhere, measured now:\n", style="bold")
    for who, answer in _elsewhere(spark, join, files):
        say(f"  {who:<26}{answer}")
    say(f"\nTables      {table}, and beside it _punctuations, _late, _rejects, _ledger, _metrics")
    say(f"Spark's log {session_log_path(spark)}")
    say(f"To query    Spark SQL:  SELECT * FROM delta.{to_identifier(table, quoted=True).sql(dialect='spark')}")
    say(f"            Python:     streamjoin_ds.sink.reader.complete({table!r}).to_pandas()")
    say(f"To look     streamjoin watch {checkpoint}")


def _folder(to: Path | None) -> Path:
    if to is None:
        return Path(tempfile.mkdtemp(prefix="streamjoin-demo-"))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        msg = f"the folder {to} is not empty"
        raise ArgumentError(msg, name="to", hint="give a new or empty folder, or leave --to out")
    to.mkdir(parents=True, exist_ok=True)
    return to.resolve()


class _NearMisses(Display):
    """Shows batches, and a line for two vessels when they are near for the first time, and when they are nearer."""

    def __init__(self, console: Console, table: str) -> None:
        super().__init__(console)
        self.nearest: dict[tuple[str, str], float] = {}  # metres
        self._tail = TableTail(table, ("event_time", "a_vessel", "b_vessel", "metres", "seconds"))

    def batch(self, batch: BatchSummary) -> None:
        """Count and show one committed batch; called from the query's thread."""
        super().batch(batch)
        rows = [row for part in self._tail.poll() for row in part.to_pylist()]
        for row in sorted(rows, key=lambda row: row["event_time"]):
            one, other = sorted((row["a_vessel"], row["b_vessel"]))
            told = self.nearest.get((one, other))
            if told is not None and row["metres"] > told * _NEARER:
                continue
            self.nearest[one, other] = row["metres"]
            line = f"{row['event_time']:%H:%M:%S}  {one} and {other}, {row['metres']:,.0f} m, {row['seconds']} s apart"
            self.console.print(line, highlight=False, soft_wrap=True, markup=False)


def _closest(spark: SparkSession, table: str) -> Table:
    """Return the nearest pairs of vessels as Spark SQL finds them in the table of matches."""
    spark.read.format("delta").load(table).createOrReplaceTempView("near")
    view = Table(title=f"The {_SHOWN} closest, by Spark SQL", title_justify="left")
    for name in ("vessels", "metres", "at", "near misses"):
        view.add_column(name, justify="left" if name == "vessels" else "right")
    for row in spark.sql(_CLOSEST).take(_SHOWN):
        view.add_row(f"{row.one} and {row.other}", f"{row.metres:,.0f}", f"{row.at:%H:%M:%S}", str(row.misses))
    return view


def _elsewhere(spark: SparkSession, join: StreamJoin, files: Path) -> Iterator[tuple[str, str]]:
    """Yield who has joined the recording, and how many rows were found in which time."""
    from pyarrow import csv

    names = ("a", "b")
    tables = [csv.read_csv(files / f"channel_{name}.csv.gz") for name in names]
    yield "this join, of two tables", _timed(lambda: join.match(*tables, progress=False).num_rows)
    if find_spec("duckdb") is None:
        yield "DuckDB", "is not installed: pip install duckdb"
    else:
        import duckdb

        with duckdb.connect() as database:
            for name, table in zip(names, tables, strict=True):
                database.register(name, table)
            yield "DuckDB, of two tables", _timed(lambda: len(database.sql(_ELSEWHERE).fetchall()))
    for name in names:
        spark.read.csv(str(files / f"channel_{name}.csv.gz"), _COLUMNS, header=True).createOrReplaceTempView(name)
    yield "Spark, of two tables", _timed(lambda: spark.sql(_ELSEWHERE).count())
    for name in names:
        stream = spark.readStream.schema(_COLUMNS).option("header", True).option("pathGlobFilter", f"channel_{name}.*")
        stream.csv(str(files)).createOrReplaceTempView(name)
    query = spark.sql(_ELSEWHERE).writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        yield "Spark, of two streams", "joins them"
    except Exception as error:  # whatever it says is the answer
        said = str(error).splitlines()[0].rpartition("exception: ")[2]
        yield "Spark, of two streams", f"refuses: {said.rstrip(' ;')}"
    finally:
        query.stop()


def _timed(count: Callable[[], int]) -> str:
    began = time.perf_counter()
    rows = count()
    return f"{rows:,} near misses in {time.perf_counter() - began:.2f} s, once all is there"
