"""``streamjoin run``: a join from the command line or a TOML file, into Delta tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from streamjoin_ds.cli.display import Display, complete_before, ledger_table
from streamjoin_ds.cli.join_options import flag, join_options
from streamjoin_ds.cli.runner import run_join
from streamjoin_ds.request.request import request_of, required

__all__ = ["command"]


@click.command("run")
@join_options
@flag("to")
@flag("checkpoint")
@flag("available_now")
@flag("trigger")
@flag("max_rows_per_batch")
@flag("take_over")
@flag("master")
@flag("conf")
@click.option("--json", "as_json", is_flag=True, help="Print the totals as one JSON object.")
def command(config: Path | None, as_json: bool, **given: Any) -> None:
    """Run a join until it is stopped (Ctrl-C) or, with --available-now, its input ends."""
    request = request_of(config, given)
    to = required(request.to, "to", "give the folder of the table of matches, for example --to ./matches")
    checkpoint = required(
        request.checkpoint, "checkpoint", "give a folder of its own, for example --checkpoint ./matches.ckpt"
    )
    # Spark is imported and started only once all that was asked has been understood.
    from streamjoin_ds.spark.session import session_log_path, spark_session

    console = Console(stderr=True)
    spark = spark_session("streamjoin run", **request.session, quick_compiler=True)
    console.print(f"Spark's own log: {session_log_path(spark)}", style="dim", highlight=False, soft_wrap=True)
    display = Display(console, quiet=as_json)
    finished = run_join(spark, request.join, to, checkpoint, request.run, display)
    facts = display.totals.facts(display.clock()) | {"finished": finished, "table": to, "checkpoint": checkpoint}
    if as_json:
        click.echo(json.dumps(facts))
        return
    console.print(ledger_table(display.totals))
    for name, count in sorted((+display.totals.files_set_aside).items()):
        console.print(f"stream {name}: {count} bad files, or rests of files, were set aside; {to}_rejects names them")
    for name, size in display.totals.held_back_bytes.items():
        console.print(f"stream {name}: {size:,} bytes of an unfinished last line are not read yet")
    console.print(
        f"{facts['matches']:,} matches in {facts['batches']} batches, {facts['seconds']:.1f} s; "
        f"{complete_before(facts)}; table: {to}",
        highlight=False,
        soft_wrap=True,
    )
