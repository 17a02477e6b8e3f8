"""The flags that describe a join, shared by the commands that take one; their help is that of the file's keys."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.stream.run_keys import keys_of

__all__ = ["OneOf", "Whole", "flag", "flags", "join_options"]

_SEVERAL = ("on", "where", "reduce", "schema", "delimiter", "unique", "conf")
# Keys that say where a join goes and when it stops: not every command has them.
_OF_RUNS = keys_of("place", "start", "session")


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


def flag(name: str) -> Callable[..., Any]:
    """Return the flag (a decorator of commands) for a key of the file."""
    key = JOIN_KEYS[name]
    given: dict[str, Any] = {"help": f"{key.help}  {key.note}".strip(), "metavar": key.metavar or None}
    if key.is_switch:
        return click.option(f"--{name}/--no-{name}", name, default=None, **given)
    if key.kinds == (bool,):
        given["is_flag"] = True
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
            help="A stream: a file, a folder that grows (s3://BUCKET/FOLDER too), a Delta table, "
            "kafka://BROKER/TOPIC?format=json, or "
            "gen:NAME?KEY=VALUE&...",
        ),
        click.option(
            "--table",
            "tables",
            multiple=True,
            metavar="NAME=SOURCE",
            help="A table beside the streams: a Delta table, or a file of Parquet, CSV or JSON lines.",
        ),
        flags(*(name for name in JOIN_KEYS if name not in _OF_RUNS)),
    ]
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)
