"""``streamjoin run``: a join from the command line or a TOML file, into Delta tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from streamjoin_ds.cli.display import Display
from streamjoin_ds.cli.join_options import JoinCommand, flags, join_options
from streamjoin_ds.cli.runner import run_join
from streamjoin_ds.request.request import request_of, required
from streamjoin_ds.stream.run_keys import keys_of

__all__ = ["command"]


@click.command("run", cls=JoinCommand)
@join_options
@flags(*keys_of("place", "start", "session"))
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
    display.end(to, checkpoint, finished=finished, as_json=as_json)
