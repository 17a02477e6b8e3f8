"""``streamjoin new``: a file of TOML for a join of two sources, with comments, as a look at them proposes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from streamjoin_ds.cli.join_options import flags
from streamjoin_ds.cli.look import surveyed
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.survey.look import Look
from streamjoin_ds.survey.stanza import toml_stanza, toml_value
from streamjoin_ds.survey.survey import Survey

__all__ = ["command", "join_file"]

_CONDITIONS = 2  # of those that a look proposes, the others stand in comments


@click.command("new")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("sources", metavar="SOURCE SOURCE", nargs=2)
@flags("on", "window")
def command(file: Path, sources: tuple[str, str], on: tuple[str, ...], window: str | None) -> None:
    """Write FILE, a join of two sources in TOML, with comments; `run` and `explain` take it with --config.

    It is what `look` proposes for the two: files, folders, topics, spools, Delta tables. Tolerances and the window are
    guesses, and the comments say so. --on and --window are kept as they are. A file that is there is not replaced.
    """
    if file.exists():
        msg = f"the file {file} is there already"
        raise ArgumentError(msg, name="file", hint="give another name, or move that file away")
    text = join_file(surveyed(sources), file.stem, on, window)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    click.echo(f"{file} is written. Next:")
    click.echo(f"  streamjoin explain --config {file}")
    click.echo(f"  streamjoin explore --config {file}     # how many matches other tolerances would give")
    click.echo(f"  streamjoin run --config {file}")


def join_file(found: Look, name: str, on: tuple[str, ...] = (), window: str | None = None) -> str:
    """Return the text of a file that joins two sources.

    Parameters
    ----------
    found : Look
        What the two are.
    name : str
        Where the matches go: a folder.
    on : tuple of str
        Conditions; empty: the best that are proposed.
    window : str or None
        The window; None: the one that is proposed.

    Raises
    ------
    ArgumentError
        A source has no proposal, or there is no condition.
    """
    for survey in found.surveys:
        if survey.stream is None:
            msg = f"{survey.name}: no way that was tried gives tuples with times"
            raise ArgumentError(msg, name=survey.name, hint=f"streamjoin look {survey.location} shows what it is")
    if not found.pairs:
        msg = "the first records of a source have no times"
        raise ArgumentError(msg, name="sources", hint="say which column has them: NAME=SOURCE?time=COLUMN")
    (pair,) = found.pairs
    if not (on or pair.compared):
        msg = "the two sources have no columns of like names and values"
        raise ArgumentError(msg, name="on", hint="say what is compared: --on 'abs(e.x - w.y) <= 0.5'")
    return "\n".join(_lines(found, name, on, window))


def _lines(found: Look, name: str, on: tuple[str, ...], window: str | None) -> Iterator[str]:
    (pair,) = found.pairs
    compared = [(text, "as it was given") for text in on] or list(pair.compared[:_CONDITIONS])
    yield "# A join of two streams. `streamjoin schema` prints what may stand here; docs/reference.md says it in full."
    yield f"# Times: {pair.times}"
    yield ""
    guessed = "" if on else " The bounds are guesses: a fiftieth of what most values span."
    yield f"# What holds for two tuples that match, all of it.{guessed}"
    yield "on = ["
    yield from (f"  {toml_value(text)},  # {why}" for text, why in compared)
    if not on:
        yield from (f"  # {toml_value(text)},  # {why}" for text, why in pair.compared[_CONDITIONS:])
    yield "]"
    told = "as it was given" if window else "a guess: five steps between times"
    yield f"window = {toml_value(window or pair.window)}  # how far apart in time two tuples may be; {told}"
    yield '# how = "left"  # also tuples without a partner: left, right, full, semi, anti'
    yield '# select = "..."  # the columns of the result; without it all of both streams'
    yield ""
    yield f"to = {toml_value(name)}  # the folder of the table of matches"
    yield f"checkpoint = {toml_value(name + '.ckpt')}  # a folder of its own: a restart goes on where it was"
    yield "available_now = true  # read what is there, and stop; without it the join waits for more"
    yield "# local = true  # in one process, without Spark"
    for survey in found.surveys:
        yield ""
        yield from _stream(survey)
    yield ""


def _stream(survey: Survey) -> Iterator[str]:
    assert survey.stream is not None, "it was refused"
    words = (text if name == "what" else f"{name}: {text}" for name, text in survey.words.items())
    yield f"# {_one_line('; '.join(words))}"
    how = f", {survey.clock.words}" if survey.clock is not None else ""
    yield f"# event time: {_one_line(str(survey.options.get('time', survey.stream.time)) + how)}"
    yield from (f"# {_one_line(text)}" for text in survey.remarks)
    yield from (f"# a guess: {_one_line(text)}" for text in survey.guesses)
    yield toml_stanza(survey)


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)
