"""``streamjoin look``: what a file, a folder, a topic or a table is, and the stanza with which a join reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from streamjoin_ds.cli.join_options import OneOf, Whole
from streamjoin_ds.request.request import described_streams, source_of
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.survey.look import Look, looked_at
from streamjoin_ds.survey.survey import ROWS

__all__ = ["command", "surveyed"]

_NAMES = ("e", "w", "s", "u", "v", "x", "y", "z")


@click.command("look")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--rows", type=Whole(min=1), default=ROWS, show_default=True, metavar="N", help="Records that are read.")
@click.option("--format", "form", type=OneOf(("text", "json")), default="text", help="What is printed.")
def command(sources: tuple[str, ...], rows: int, form: str) -> None:
    """Show what each SOURCE is, and how a join reads it: a file, a folder, a topic, a spool, a Delta table.

    It reads a bounded part of each: up to 1 MiB of a file to see how it is written, then the first records as a join
    reads them. What the values do not decide is called a guess. What is known may stand with the source, and is kept:
    "e=FILE?delimiter=;&time=at". Of two sources it also says what they have in common.
    """
    found = surveyed(sources, rows)
    click.echo(found.to_json() if form == "json" else str(found))


def surveyed(sources: Sequence[str], rows: int = ROWS) -> Look:
    """Return what sources are, each given as ``SOURCE`` or ``NAME=SOURCE``, with what is known of it.

    Raises
    ------
    StreamJoinError
        A source is not there, or does not answer.
    """
    given: list[tuple[Stream, None]] = []
    for number, text in enumerate(sources):
        is_named = re.match(r"[A-Za-z_]\w*=", text) and not Path(text).exists()
        named = text if is_named else f"{_NAMES[number % len(_NAMES)]}={text}"
        name, keys = source_of(named, STREAM_KEYS, "stream")
        given += [(stream, None) for stream in described_streams({name: keys}, {}, {})]
    return looked_at(given, rows)
