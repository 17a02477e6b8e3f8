"""The flags that describe a join, shared by the commands that take one; their help is that of the file's keys."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.spec.member.source import SOURCE_KEYS
from streamjoin_ds.spec.member.stream import PER_STREAM, STREAM_KEYS
from streamjoin_ds.stream.run_keys import keys_of

__all__ = ["JoinCommand", "OneOf", "Whole", "flag", "flags", "join_options"]

_SEVERAL = ("on", "where", "reduce", "schema", "delimiter", "unique", "columns", "conf")
# Keys that say where a join goes and when it stops: not every command has them.
_OF_RUNS = keys_of("place", "start", "session")


# Options of a source stand with it: their flags are old, and the help does not have them.
_MOVED = {"refresh": "table"} | dict.fromkeys(SOURCE_KEYS, "stream")
_READ = ("config", "streams", "tables", "schema", "unique", "columns", *PER_STREAM)
_COLUMN = 24  # where the help of an option begins, at most
_MORE = "The options of a source: streamjoin help source files|spool|delta|kafka|gen|table. "
_MORE += "Of the engine, and how sources are read: streamjoin help engine."
# Flags that few need: they are listed where `_MORE` says.
_SELDOM = {*keys_of("engine", "source"), "exchange", "max_ahead", "rate", "time_start", "time_step"} - {
    "threads",
    "pace",
}


class JoinCommand(click.Command):
    """A command with many options: its help has them in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and where those of sources are listed."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in (each for each in self.get_params(ctx) if isinstance(each, click.Option)):
            key, record = JOIN_KEYS.get(parameter.name or ""), parameter.get_help_record(ctx)
            is_run = key is None or key.scope
            title = "What is read" if parameter.name in _READ else "How it runs" if is_run else "Which rows"
            sections.setdefault(title, []).extend([record] if record else [])
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=_COLUMN)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where the options of sources are listed."""
        formatter.write_paragraph()
        formatter.write_text(_MORE)


class OneOf(click.Choice):  # type: ignore[type-arg]  # not generic before click 8.2
    """One of a few texts; the refusal of any other text does not show it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail with an error that lists the valid texts."""
        try:
            return str(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"it is not one of {', '.join(self.choices)}.", param, ctx)


class Whole(click.IntRange):
    """A whole number that is not too small; the refusal of any other value does not show it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with an error that names the least one."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"it is not a whole number of {self.min} or more.", param, ctx)


def _moved(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Say the new way of an old flag that was given; its value is not shown."""
    name = parameter.name or ""
    if value not in (None, ()):
        new = f'--{_MOVED[name]} "NAME=SOURCE?{name}=..."'
        click.echo(f"streamjoin: {parameter.opts[0]} is an old flag: write {new}, or the TOML file", err=True)
    return value


def flag(name: str) -> Callable[..., Any]:
    """Return the flag (a decorator of commands) for a key of the file."""
    key = JOIN_KEYS[name]
    brief = replace(key, one_of=()).brief  # the flag itself shows the few texts that are valid
    given: dict[str, Any] = {"help": key.help if key.is_switch else brief, "metavar": key.metavar or None}
    if name in _MOVED:
        given |= {"hidden": True, "callback": _moved}
    elif name in _SELDOM:
        given["hidden"] = True
    if key.is_switch:
        return click.option(f"--{name}/--no-{name}", name, default=None, **given)
    if key.kinds == (bool,):
        given["is_flag"] = True
    elif key.bare:
        given |= {"is_flag": False, "flag_value": key.bare}
    elif key.kinds == (int,):
        given["type"] = Whole(min=dict(key.limits or {})["minimum"])
    elif key.one_of and key.kinds == (str,):
        given["type"] = OneOf(key.one_of)
    return click.option(f"--{name.replace('_', '-')}", name, multiple=name in _SEVERAL, **given)


def flags(*names: str) -> Callable[..., Any]:
    """Return the flags for several keys, in their order, as one decorator of commands."""
    return lambda command: functools.reduce(lambda decorated, name: flag(name)(decorated), reversed(names), command)


def join_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that describe a join."""
    options: Sequence[Callable[..., Any]] = [
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="TOML file with any of these options; options on the command line win.",
        ),
        click.option(
            "--stream",
            "streams",
            multiple=True,
            metavar="NAME=SOURCE",
            help=f"A stream. {STREAM_KEYS['source'].help} Options of the source stand with it, quoted: "
            '"e=FILE?delimiter=;&sub_folders=read".',
        ),
        click.option(
            "--table",
            "tables",
            multiple=True,
            metavar="NAME=SOURCE",
            help="Beside the streams: a Delta table, or a file of Parquet, ORC, Avro, Arrow, CSV or JSON lines.",
        ),
        flags(*(name for name in JOIN_KEYS if name not in _OF_RUNS)),
    ]
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)
