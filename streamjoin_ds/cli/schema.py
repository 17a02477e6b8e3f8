"""``streamjoin schema``: the JSON Schema of the TOML file that `run` and `explain` take, for editors."""

from __future__ import annotations

import json

import click

from streamjoin_ds.request.join_keys import json_schema

__all__ = ["command"]


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of the TOML file of a join, by which an editor completes and checks it.

    Write it to a file, and name that in the first line of the TOML file: #:schema ./join.schema.json
    """
    click.echo(json.dumps(json_schema(), indent=2))
