"""``streamjoin demo``: two generated sensor streams joined live, then the matches by Spark SQL."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from streamjoin_ds.cli.display import Display, ledger_table
from streamjoin_ds.cli.runner import run_join
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Generator, Stream, band
from streamjoin_ds.stream.join import StreamJoin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command", "demo_join"]

# Event time runs this much faster than the clock on the wall: some tens of seconds show most of a day.
_SPEED_UP = 2_000
_RATE = 25  # readings a second of event time and stream
_SHOWN = 5


def demo_join(seconds: int) -> StreamJoin:
    """Indoor and outdoor sensors: pairs of readings of the same air, at most ten seconds apart.

    Daily cycle, drift, noise, gaps, readings out of order, late and NaN; fixed seeds, so every demo gives the same rows.
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
@click.option("--seconds", type=click.IntRange(1, 3600), default=20, show_default=True, help="How long to run, about.")
@click.option("--to", type=click.Path(path_type=Path), help="Empty folder for the tables and the checkpoint.  [default: a new temporary one]")
def command(seconds: int, to: Path | None) -> None:
    """Join two generated sensor streams, live; then show the matches by Spark SQL, the totals and the ledger."""
    from streamjoin_ds.stream.session import session_log_path, spark_session

    console = Console()
    folder = _folder(to)
    table, checkpoint = str(folder / "matches"), str(folder / "checkpoint")
    console.print("Two streams of sensor readings: which indoor and outdoor readings show the same air within 10 s?", highlight=False)
    console.print("  abs(indoor.temperature - outdoor.temperature) <= 0.05 AND abs(indoor.humidity - outdoor.humidity) <= 0.2", highlight=False)
    console.print("Starting Spark ...", style="dim")
    spark = spark_session("streamjoin demo", log_path=folder / "spark.log")
    display = Display(console)
    options = {"available_now": True, "source_options": {"pace": str(_SPEED_UP)}}
    finished = run_join(spark, demo_join(seconds), table, checkpoint, options, display)
    totals = display.totals
    facts = totals.facts(display.clock())
    console.print(
        f"\n{totals.rows:,} readings gave {totals.matches:,} matches in {totals.batches} batches and {facts['seconds']} s"
        f"{'' if finished else ' (interrupted)'}; complete before {facts['punctuation']}.\n",
        highlight=False,
    )
    console.print(ledger_table(totals))
    _show_first_rows(console, spark, table)
    console.print(f"Tables      {table}, and beside it _punctuations, _late, _rejects, _ledger, _metrics", highlight=False, soft_wrap=True)
    console.print(f"Spark's log {session_log_path(spark)}", highlight=False, soft_wrap=True)
    console.print("To query    Spark SQL:  SELECT * FROM delta.`" + table + "`", highlight=False, soft_wrap=True)
    console.print(f"            Python:     deltalake.DeltaTable({table!r}).to_pandas()", highlight=False, soft_wrap=True)


def _folder(to: Path | None) -> Path:
    if to is None:
        return Path(tempfile.mkdtemp(prefix="streamjoin-demo-"))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        msg = f"the folder {to} is not empty"
        raise ArgumentError(msg, name="to", hint="name a new or empty folder, or leave --to out")
    to.mkdir(parents=True, exist_ok=True)
    return to.resolve()


def _show_first_rows(console: Console, spark: SparkSession, table: str) -> None:
    from pyspark.sql import functions as sql

    frame = spark.read.format("delta").load(table)
    rows = frame.orderBy("event_time", "indoor_seq", "outdoor_seq").limit(_SHOWN).collect()
    shown = ["indoor_ts", "indoor_sensor", "indoor_temperature", "outdoor_ts", "outdoor_sensor", "outdoor_temperature"]
    view = Table(title=f"First {_SHOWN} of {frame.agg(sql.count('*')).first()[0]:,} matches, by Spark SQL", title_justify="left")
    for name in shown:
        view.add_column(name)
    for row in rows:
        view.add_row(*(f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name]) for name in shown))
    console.print(view)
