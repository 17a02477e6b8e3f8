"""``streamjoin explore``: how many matches other bands, windows and delays would give, from a sample of the streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamjoin_ds.cli.join_options import JoinCommand, Whole, join_options
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.request.request import described_streams, request_of, source_of
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.survey.look import looked_at

__all__ = ["command"]

_CONDITIONS = 2  # of those that a look proposes


@click.command("explore", cls=JoinCommand)
@join_options
@click.option(
    "--rows", type=Whole(min=1), default=100_000, show_default=True, metavar="N", help="Records read of each."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--page", type=click.Path(path_type=Path), help="Also write a page of HTML with the curves drawn.")
def command(config: Path | None, rows: int, as_json: bool, page: Path | None, **given: Any) -> None:
    """Show how many matches other bands, windows and delays would give, and what the result would cost.

    It reads the first records of two streams. Tuples of the first are drawn at random, and meet all of the second. Each
    band, each limit and the window is widened alone. Without --on and --window it begins with what `streamjoin look`
    proposes.
    """
    asked = given["on"] or given["window"] or config
    join = request_of(config, given).join if asked else _proposed(given["streams"])
    found = join.explore(rows=rows)
    click.echo(found.to_json() if as_json else str(found))
    if page is not None:
        found.save(page)
        click.echo(f"streamjoin: the curves are drawn in {page}", err=True)


def _proposed(texts: tuple[str, ...]) -> StreamJoin:
    """Return the join that a look at two sources proposes."""
    streams = []
    for text in texts:
        name, keys = source_of(text, STREAM_KEYS, "stream")
        streams += [(stream, None) for stream in described_streams({name: keys}, {}, {})]
    found = looked_at(streams if len(streams) == 2 else [])
    pairs = found.pairs
    if not pairs or not pairs[0].compared:
        msg = "no condition was given" if len(streams) == 2 else "an exploration is of two streams"
        raise ArgumentError(msg, name="on", hint="give --stream twice, --on 'abs(e.x - w.x) <= 0.1' and --window 15s")
    return StreamJoin(found.streams, [condition for condition, _ in pairs[0].compared[:_CONDITIONS]], pairs[0].window)
