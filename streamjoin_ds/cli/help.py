"""``streamjoin help``: the help of a command, the options of each kind of source, and what an error's code means."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping

import click

from streamjoin_ds.errors import ArgumentError, table_of_errors
from streamjoin_ds.source.generator import GENERATORS
from streamjoin_ds.source.kafka.topic import TOPIC_PARAMETERS
from streamjoin_ds.spec.member.option_key import OptionKey, options_of
from streamjoin_ds.spec.member.source import KINDS
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import TABLE_KEYS
from streamjoin_ds.stream.run_keys import RUN_KEYS, keys_of

__all__ = ["command"]

# By kind of source: how it is written, and parameters of its own.
_WRITTEN: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "files": ("e=FILE_OR_FOLDER?delimiter=;&sub_folders=read", {}),
    "spool": ("e=SPOOL?format=spool", {}),
    "delta": ("e=TABLE?starting_version=12", {}),
    "kafka": ("e=kafka://BROKER/TOPIC?format=json", TOPIC_PARAMETERS),
    **{f"gen:{name}": (f"e=gen:{name}?rate=1000", kind.parameters) for name, kind in GENERATORS.items()},
}
_VALUES = "In a value %26 is an ampersand. In the TOML file the same keys stand in [{table}.NAME]."


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND | source KIND | engine | error CODE]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or of options: source files|spool|delta|kafka|gen|table, or engine; or an error."""
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    if not words:
        click.echo(group.get_help(ctx.find_root()))
    elif words[0] == "source":
        _show(words[1] if len(words) == 2 else "", ctx.make_formatter())
    elif words[0] == "error":
        _show_error(words[1].upper() if len(words) == 2 else "", ctx.make_formatter())
    elif words == ("engine",):
        _show_engine(ctx.make_formatter())
    else:
        found = group.get_command(ctx, words[0])
        if found is None or len(words) > 1:
            msg = "there is no such command"
            raise ArgumentError(
                msg,
                name="help",
                hint=f"one of {', '.join(group.list_commands(ctx))}; or source files, or engine, or error",
            )
        click.echo(found.get_help(click.Context(found, info_name=words[0], parent=ctx.find_root())))


def _show_error(code: str, formatter: click.HelpFormatter) -> None:
    """Write what a code means; of no code, what each one means."""
    errors = table_of_errors()
    if not code:
        formatter.write_dl([(name, (kind.__doc__ or "").splitlines()[0]) for name, kind in errors.items()])
    elif code in errors:
        kind = errors[code]
        cause = [part.replace("\n", " ") for part in (inspect.getdoc(kind) or "").split("\n\n")]
        passes = "It may pass: --restart tries again." if kind.passes else "It stays until it is mended."
        lines = [*cause, kind.mend, passes, f"An example: docs/reference/errors.md#{code.lower()}"]
        formatter.write("\n  ".join([f"{code} ({kind.__name__})", *lines]))  # not wrapped: commands stay whole
    else:
        near = difflib.get_close_matches(code, errors, 1)
        msg = "there is no such error"
        hint = f"did you mean {near[0]}?" if near else "streamjoin help error lists the codes"
        raise ArgumentError(msg, name="help", hint=hint)
    click.echo(formatter.getvalue().rstrip("\n"))


def _show_engine(formatter: click.HelpFormatter) -> None:
    titles = {"engine": "Options of the engine, which change no row", "source": "How sources are read"}
    sections = {title: _briefs({name: RUN_KEYS[name] for name in keys_of(scope)}) for scope, title in titles.items()}
    _write(formatter, "--kernel avx2; in the TOML file kernel = ...", sections)
    click.echo(formatter.getvalue().rstrip("\n"))


def _show(kind: str, formatter: click.HelpFormatter) -> None:
    kinds = [name for name in _WRITTEN if name == kind or name.partition(":")[0] == kind]
    if kind == "table":
        _write(formatter, '--table "z=limits.csv?refresh=5m"', {"Options of a table": _briefs(TABLE_KEYS)})
    for name in kinds:
        written, own = _WRITTEN[name]
        sections = {
            "Parameters of its own": dict(own),
            "Options of this source": _briefs(options_of(KINDS[name.partition(":")[0]])),
            "Options of every stream": {
                key: each for key, each in _briefs(options_of(Stream)).items() if key not in own
            },
        }
        if name != kinds[-1]:  # what every stream has is said once
            del sections["Options of every stream"]
        _write(formatter, f'--stream "{written}"', sections)
    if not kinds and kind != "table":
        msg = "there is no such kind of source"
        raise ArgumentError(msg, name="help", hint="streamjoin help source files, spool, delta, kafka, gen or table")
    formatter.write_paragraph()
    formatter.write_text(_VALUES.format(table="tables" if kind == "table" else "streams"))
    click.echo(formatter.getvalue().rstrip("\n"))


def _briefs(keys: Mapping[str, OptionKey]) -> dict[str, str]:
    return {name: key.brief for name, key in keys.items() if name != "source"}


def _write(formatter: click.HelpFormatter, written: str, sections: Mapping[str, Mapping[str, str]]) -> None:
    if formatter.getvalue():
        formatter.write_paragraph()
    formatter.write_text(written)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(list(rows.items()))
