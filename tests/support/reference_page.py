"""The page ``docs/reference.md``, made of the keys, commands and generators that the package has.

``python -m tests.support.reference_page`` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from streamjoin_ds.cli.main import group
from streamjoin_ds.plan import EXECUTION_OPTIONS
from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.source.generator import GENERATORS
from streamjoin_ds.spec.member.option_key import OptionKey
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.spec.member.table import TABLE_KEYS
from streamjoin_ds.stream.query_options import READER_OPTIONS, STREAM_OPTIONS
from streamjoin_ds.stream.run_keys import keys_of
from tests.support.documents import ROOT

__all__ = ["GROUPS", "PLACE", "text"]

PLACE = ROOT / "docs" / "reference.md"
_LATENESS = ("delay", "idle_timeout", "max_ahead", "unique")
_ELSEWHERE = ("where", "rate", *_LATENESS)
# The keys of a join in the order in which the page has them.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Which rows": (
        "on", "where", "window", "how", "nearest", "nearest_by", "nearest_direction", "reduce", "select",
    ),
    "What is read": (*(name for name in STREAM_KEYS if name in JOIN_KEYS and name not in _ELSEWHERE), "refresh"),
    "Time, late and repeated tuples": _LATENESS,
    "Where it goes, and how it runs": keys_of("place", "start", "source", "session"),
    "How it is carried out: no row depends on it": ("rate", *keys_of("plan", "engine")),
}  # fmt: skip
_HEAD = """# Reference

This page is made of the package itself: `python -m tests.support.reference_page` writes it.

A key is the same in the [TOML file](start.md#from-a-file), as a flag (`max_delay`: `--max-delay`), in
[SQL](sql.md#options), and in Python as an argument of `Stream`, `Table`, `StreamJoin` or `start`. An option of one
stream stands in TOML in the table `[streams.NAME]`, and on the command line with its source,
`--stream "e=FILE?delay=30s"`, or as a flag, `--delay e=30s`. What belongs to a kind of source has no flag in the help:
`streamjoin help source files` lists it. In Python `missing_files`,
`parts`, `pace` and `max_block_rows` are given in `source_options`, and what is about the engine in
`execution=Execution(...)`: {engine}.

Functions in conditions: [ARCHITECTURE.md](../ARCHITECTURE.md#functions). Columns of tables: [The tables](tables.md).
Errors: [each code](reference/errors.md), and the [runbook](../RUNBOOK.md).
"""


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(_cell(cell) for cell in line) for line in (head, *rows)]
    return "\n".join([f"| {lines[0]} |", f"|{'---|' * len(head)}", *(f"| {line} |" for line in lines[1:]), ""])


def _keys(keys: Mapping[str, OptionKey]) -> str:
    rows = [
        (f"`{name}`", f"{key.help}{_choices(key)}", key.note.strip("[]").removeprefix("default: "))
        for name, key in keys.items()
    ]
    return _table(("key", "what it says", "default"), rows)


def _choices(key: OptionKey) -> str:
    """Return the valid texts, where the key's help does not say them."""
    return "" if all(each in key.help for each in key.one_of) else f" One of {_named(key.one_of)}."


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _options(command: click.Command) -> dict[str, str]:
    """Return what a command's options say, those of the help itself left out."""
    records = [
        each.get_help_record(click.Context(command)) for each in command.params if isinstance(each, click.Option)
    ]
    return {f"`{flag}`": words for flag, words in filter(None, records)}


def _commands() -> Iterable[str]:
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    keys = {f"--{name.replace('_', '-')}" for name in JOIN_KEYS}
    run = _options(commands["run"])
    for name, command in commands.items():
        options = _options(command)
        if name != "run":
            options = {flag: words for flag, words in options.items() if run.get(flag) != words or flag == "`--json`"}
        else:
            options = {flag: words for flag, words in options.items() if flag.strip("`").split()[0] not in keys}
        yield f"### streamjoin {name}\n\n{_cell(command.get_short_help_str(300))}\n"
        if options:
            yield _table(("option", "what it says"), list(options.items()))


def text() -> str:
    """Return the page."""
    parts = [_HEAD.format(engine=_named(EXECUTION_OPTIONS)), "## Keys of a join\n"]
    for title, names in GROUPS.items():
        parts += [f"### {title}\n", _keys({name: JOIN_KEYS[name] for name in names})]
    for what, where, keys in (("one stream", "streams", STREAM_KEYS), ("a table beside streams", "tables", TABLE_KEYS)):
        own = {name: key for name, key in keys.items() if where == "tables" or name not in JOIN_KEYS}
        parts += [f"## Keys of {what}\n", f"In `[{where}.NAME]`:\n", _keys(own)]
        shared = [name for name in keys if name not in own]
        if shared:
            parts.append(f"A stream may have a value of its own for these keys of a join: {_named(shared)}.\n")
    parts += [
        '## format("sensors")\n',
        'Spark\'s `readStream.format("sensors")` reads one stream. It has these options:\n',
    ]
    parts.append(
        _table(("option", "what it says (default)"), [(f"`{key}`", what) for key, what in STREAM_OPTIONS.items()])
    )
    parts.append(f"And those of a source: {_named(READER_OPTIONS)}.\n")
    parts.append("## Generators\n")
    kinds = [kind.parameters for kind in GENERATORS.values()]
    of_all = {key: what for key, what in kinds[0].items() if all(kind.get(key) == what for kind in kinds)}
    head = ("parameter", "what it says (default)")
    for name, kind in GENERATORS.items():
        parts += [f"### gen:{name}\n", f"{kind.summary[0].upper()}{kind.summary[1:]}.\n"]
        parts.append(_table(head, [(f"`{key}`", what) for key, what in kind.parameters.items() if key not in of_all]))
    parts += ["### Of all generators\n", _table(head, [(f"`{key}`", what) for key, what in of_all.items()])]
    parts += [
        "## Commands\n",
        "Keys of a join are options too, of `run`, `explain`, `bench` and `sql`; they stand above.\n",
        *_commands(),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PLACE.write_text(text())
