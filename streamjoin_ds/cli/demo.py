"""``streamjoin demo``: two generated sensor streams joined live, then the matches by Spark SQL."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from sqlglot.expressions import to_identifier

from streamjoin_ds.cli.display import Display, complete_before, ledger_table
from streamjoin_ds.cli.run import run_join
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Generator, Stream, band
from streamjoin_ds.stream.join import StreamJoin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command", "demo_join"]

# How many times as fast as the wall clock event time runs: some tens of seconds show most of a day.
_SPEED_UP = 2_000
_RATE = 25  # readings of each stream in a second of event time
_SHOWN = 5  # matches that are printed


def demo_join(seconds: int) -> StreamJoin:
    """Return the demo's join of indoor and outdoor sensors: pairs of readings of the same air, at most 10 s apart.

    The readings have a daily cycle, drift, noise and gaps; some are out of order, late or NaN. The seeds are fixed, so
    every demo of one length gives the same rows.

    Parameters
    ----------
    seconds : int
        How long the demo runs, about.
    """

    def sensors(seed: int, shift: float) -> Generator:
        rows = seconds * _SPEED_UP * _RATE
        return Generator("sensor", {"rate": _RATE, "rows": rows, "seed": seed, "shift": shift, "disorder": "2s"})

    return StreamJoin(
        [Stream("indoor", sensors(1, 1.5), delay="2s"), Stream("outdoor", sensors(2, 0.0), delay="2s")],
        on=[band("indoor.temperature", "outdoor.temperature", 0.05), band("indoor.humidity", "outdoor.humidity", 0.2)],
        window="10s",
    )


@click.command("demo")
@click.option("--seconds", type=click.IntRange(1, 3600), default=20, show_default=True, help="About how long to run.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    help="Empty folder for the tables and the checkpoint.  [default: a new temporary one]",
)
def command(seconds: int, to: Path | None) -> None:
    """Join two generated sensor streams, live; then show the matches by Spark SQL, the totals and the ledger."""
    from streamjoin_ds.spark.session import session_log_path, spark_session

    console = Console()
    folder = _folder(to)
    table, checkpoint = str(folder / "matches"), str(folder / "checkpoint")
    say = partial(console.print, highlight=False, soft_wrap=True)
    join = demo_join(seconds)
    say("Two streams of sensor readings: which indoor and outdoor readings show the same air within 10 s?")
    for predicate in join.predicates:
        say(f"  {predicate}")
    say("Starting Spark ...", style="dim")
    spark = spark_session("streamjoin demo", log_path=folder / "spark.log", quick_compiler=True)
    display = Display(console)
    options = {
        "available_now": True,
        "max_rows_per_batch": 2 * _RATE * _SPEED_UP,  # one second's readings: a slow machine catches up step by step
        "source_options": {"pace": str(_SPEED_UP)},
    }
    finished = run_join(spark, join, table, checkpoint, options, display)
    totals = display.totals
    facts = totals.facts(display.clock())
    say(
        f"\n{totals.rows:,} readings gave {totals.matches:,} matches in {totals.batches} batches"
        f"{'' if finished else ' (interrupted)'}; {complete_before(facts)}.\n"
    )
    console.print(ledger_table(totals))
    _show_first_rows(console, spark, table)
    say(f"Tables      {table}, and beside it _punctuations, _late, _rejects, _ledger, _metrics")
    say(f"Spark's log {session_log_path(spark)}")
    say(f"To query    Spark SQL:  SELECT * FROM delta.{to_identifier(table, quoted=True).sql(dialect='spark')}")
    say(f"            Python:     streamjoin_ds.sink.reader.complete({table!r}).to_pandas()")


def _folder(to: Path | None) -> Path:
    if to is None:
        return Path(tempfile.mkdtemp(prefix="streamjoin-demo-"))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        msg = f"the folder {to} is not empty"
        raise ArgumentError(msg, name="to", hint="give a new or empty folder, or leave --to out")
    to.mkdir(parents=True, exist_ok=True)
    return to.resolve()


def _show_first_rows(console: Console, spark: SparkSession, table: str) -> None:
    from pyspark.sql import functions as sql

    frame = spark.read.format("delta").load(table)
    rows = frame.orderBy("event_time", "indoor_seq", "outdoor_seq").limit(_SHOWN).collect()
    count = frame.agg(sql.count("*").alias("rows")).collect()[0]["rows"]
    view = Table(title=f"First {_SHOWN} of {count:,} matches, by Spark SQL", title_justify="left")
    for side in ("indoor", "outdoor"):
        for name in (f"{side} at", "sensor", "\u00b0C", "% RH"):
            view.add_column(name, justify="right")
    for row in rows:
        cells = []
        for side in ("indoor", "outdoor"):
            moment, sensor = row[f"{side}_ts"], row[f"{side}_sensor"]
            values = (f"{row[f'{side}_{name}']:.2f}" for name in ("temperature", "humidity"))
            cells += [f"{moment:%H:%M:%S}.{moment.microsecond // 100_000}", str(sensor), *values]
        view.add_row(*cells)
    console.print(view)
