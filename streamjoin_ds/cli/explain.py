"""``streamjoin explain``: how a join would be carried out, and why; starts no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamjoin_ds.cli.join_options import JoinCommand, join_options
from streamjoin_ds.request.request import EXPLAINED, request_of

__all__ = ["command"]


@click.command("explain", cls=JoinCommand)
@join_options
def command(config: Path | None, **given: Any) -> None:
    """Show the plan of a join: what finds and decides matches, layout and cost, exchange, engine's options."""
    request = request_of(config, given)
    options = {key: request.run[key] for key in EXPLAINED if key in request.run}
    click.echo(request.join.explain(**({"exchange": "auto"} | options)))
