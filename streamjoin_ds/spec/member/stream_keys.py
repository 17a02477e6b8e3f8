"""The options of a stream: what each is for, which values it may have, and where else than in Python it is given.

`STREAM_KEYS` is the one list of them. The TOML file and its schema, the flags and their help, SQL's WITH,
``format("sensors")`` and the page of the reference are made from it. A new option is a field of `Stream`, a key here,
and what reads it.

A `Key` is one option, of a stream, a join or a run: its kinds of values, how a refusal names them, and how flags and
texts show them.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.member.source import FILE_ORDER, ON_CHANGE, SUB_FOLDERS
from streamjoin_ds.spec.member.stream import FORMATS, ON_BAD_FILE, PARTITION_BY, TIME_UNITS

__all__ = ["FORMAT_KEYS", "LIST", "LISTS", "NUMBERS", "PER_STREAM", "STREAM_KEYS", "TABLE", "VERSIONS", "Key"]

LIST, TABLE, LISTS, NUMBERS = list[str], dict[str, str], dict[str, str | list[str]], dict[str, float]
VERSIONS = dict[str, int | str]
_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    LIST: "a list of texts",
    TABLE: "a table of texts",
    LISTS: "a table of texts and lists",
    NUMBERS: "a table of numbers",
    VERSIONS: "a table of numbers and texts",
}
# Those of ``format("sensors")``, which reads one stream without a join.
_OF_JOINS = ("delay", "idle_timeout", "max_ahead", "rate")


@dataclass(frozen=True)
class Key:
    """A key of the file, or of the table of one of its streams.

    Parameters
    ----------
    help : str
        What the key is for: one or two sentences.
    kinds : tuple of type
        The types that its value may have; they are keys of `_WORDS`.
    note : str
        In brackets: its default, or that it is required.
    one_of : tuple of str
        The texts that are valid, if they are few.
    example : object
        A value of one of the kinds.
    limits : mapping
        Limits of a number, in JSON Schema's words.
    metavar : str
        What stands for the value in the help of the flag.
    scope : str
        What takes an option of a run (`RUN_KEYS`), or which sources alone have an option of a stream: "files", "delta".
    """

    help: str
    kinds: tuple[Any, ...] = (str,)
    note: str = ""
    one_of: tuple[str, ...] = ()
    example: object = None
    limits: Mapping[str, int] | None = None
    metavar: str = ""
    scope: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether it is on by default: its flag has a form that switches it off."""
        return self.kinds == (bool,) and bool(self.note)

    @property
    def type(self) -> Any:
        """The type by which msgspec checks a value, with what the JSON Schema says about the key."""
        extra: dict[str, Any] = {"enum": list(self.one_of)} if self.one_of and self.kinds == (str,) else {}
        about = msgspec.Meta(
            description=f"{self.help}  {self.note}".strip(),
            examples=None if self.example is None else [self.example],
            extra_json_schema=extra | dict(self.limits or {}),
        )
        return Annotated[functools.reduce(operator.or_, self.kinds), about]

    @property
    def of_members(self) -> Key:
        """The key of the whole join, which gives a value to all streams or, by their names, to some."""
        text = str(self.example)
        help_ = f"{self.help.removesuffix('.')}: {text}, or e={text}."
        if self.one_of and all(each in self.help for each in self.one_of):
            help_ = f"{self.help.removesuffix('.')}; or e={text} for one stream."
        tables = {str: (TABLE,), float: (NUMBERS,)}.get(self.kinds[0], (VERSIONS,))
        return replace(self, help=help_, kinds=(*self.kinds, *tables), metavar=self.metavar or "|".join(self.one_of))

    @property
    def brief(self) -> str:
        """One line: what the key is for, its texts where the help does not say them, and its default."""
        note = self.note.strip("[]").removeprefix("default: ")
        valid = "" if all(each in self.help for each in self.one_of) else f": {', '.join(self.one_of)}"
        return f"{self.help.removesuffix('.')}{valid}{f' ({note})' if note else ''}"

    @property
    def words(self) -> str:
        """What a message says of a refused value: ``not a text``, ``neither a text nor a list of texts``."""
        words = [_WORDS[kind] for kind in self.kinds]
        return f"not {words[0]}" if len(words) == 1 else f"neither {' nor '.join(words)}"

    @property
    def hint(self) -> str:
        """What a message says that is valid."""
        if self.one_of:
            return f"one of {', '.join(self.one_of)}"
        if self.example is not None:
            return f"for example {_toml_text(self.example)}"
        return f"give {' or '.join(_WORDS[kind] for kind in self.kinds)}, or leave it out"

    def check(self, value: object, what: str, name: str) -> None:
        """Refuse a value of another kind.

        Raises
        ------
        ArgumentError
            The value is of another kind; the message names `what` was refused, the error has the key's `name`.
        """
        try:
            msgspec.convert(value, self.type)
        except msgspec.ValidationError:  # its message may show the value
            msg = f"{what} is {self.words}"
            raise ArgumentError(msg, name=name, hint=self.hint) from None

    def check_value(self, value: Any, name: str) -> None:
        """Refuse a value of another kind, a text that is none of the few, and a number beyond the limits.

        Raises
        ------
        ArgumentError
            The error has the key's `name`.
        """
        self.check(value, name, name)
        limits = self.limits or {}
        least, most = limits.get("minimum", value), limits.get("maximum", value)
        if (self.one_of and value not in self.one_of) or not least <= value <= most:
            bound = f" from {least} to {most}" if "maximum" in limits else f" of {least} or more" if limits else ""
            msg = f"{name} is {self.words}{bound}" if limits else f"{name} is none of the texts that there are"
            raise ArgumentError(msg, name=name, hint=self.hint)


def _toml_text(value: object) -> str:
    """Return a text, a number, a list of texts or a table as TOML writes it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_name(name)} = {_toml_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_text, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _toml_name(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else f'"{name}"'


STREAM_KEYS: dict[str, Key] = {
    "source": Key(
        "A file, a folder that grows (s3://BUCKET/FOLDER too), a Delta table, kafka://BROKER/TOPIC?format=json, or "
        "gen:NAME?KEY=VALUE&...",
        note="[required]",
        example="flights.csv.gz",
    ),
    "time": Key("Column of the event time.", note="[default: ts]", example="ts", metavar="COLUMN"),
    "time_unit": Key("Unit of an event time that is a number.", note="[default: us]", one_of=TIME_UNITS, example="ms"),
    "delay": Key("How late a tuple may be.", note="[default: 0s]", example="30s", metavar="DURATION"),
    "schema": Key(
        "Columns and their Arrow types.",
        (TABLE,),
        "[default: inferred from the first file]",
        example={"ts": "timestamp[us, tz=UTC]", "x": "double"},
    ),
    "format": Key(
        "Format of the files.", note="[default: auto, by their names]", one_of=FORMATS, example="csv", scope="files"
    ),
    "delimiter": Key(
        "What separates the fields of CSV files: one character, or tab.",
        note="[default: ,]",
        example=";",
        scope="files",
    ),
    "where": Key(
        "A condition on the tuples; others are left out.", (str, LIST), "[default: all]", example="altitude > 1000"
    ),
    "idle_timeout": Key(
        "Time without a record after which a stream no longer holds up the others.",
        note="[default: never]",
        example="10m",
        metavar="DURATION",
    ),
    "max_ahead": Key(
        "A record that is further ahead of its stream than this is rejected.",
        note="[default: no limit]",
        example="1h",
        metavar="DURATION",
    ),
    "on_bad_file": Key(
        "What happens at a file that cannot be read: stop (the join stops) or quarantine (the file is set aside, as a "
        "row of the rejects).",
        note="[default: stop]",
        one_of=ON_BAD_FILE,
        example="quarantine",
        scope="files",
    ),
    "partition_by": Key(
        "A stream has many partitions, each with an order of its own: each file of its folder (file) or each "
        "sub-folder (folder).",
        note="[default: one order]",
        one_of=PARTITION_BY,
        example="folder",
        scope="files",
    ),
    "sub_folders": Key(
        "Whether the files of sub-folders are read too, their names such as date=2024-01-01 as columns (read), or "
        "passed over (skip).",
        note="[default: skip]",
        one_of=SUB_FOLDERS,
        example="read",
        scope="files",
    ),
    "file_order": Key(
        "The order of a folder's files: by their names (name), or by their times of change (modified).",
        note="[default: name]",
        one_of=FILE_ORDER,
        example="modified",
        scope="files",
    ),
    "finished_after": Key(
        "Time without a change after which a file is finished, and the next one may be begun.",
        note="[default: once a later file is there]",
        example="30s",
        metavar="DURATION",
        scope="files",
    ),
    "on_change": Key(
        "What happens at a version of a Delta table that deletes or rewrites rows: stop (the join stops) or ignore "
        "(only what it inserted is read, where the table has a change feed).",
        note="[default: stop]",
        one_of=ON_CHANGE,
        example="ignore",
        scope="delta",
    ),
    "starting_version": Key(
        "A Delta table is read from the changes of this version on, or after its newest (latest).",
        (int, str),
        "[default: begin with the rows that the table has]",
        example=12,
        metavar="VERSION",
        scope="delta",
    ),
    "starting_timestamp": Key(
        "A Delta table is read from the first version on that was committed then or later.",
        note="[default: begin with the rows that the table has]",
        example="2026-01-31T12:00:00Z",
        metavar="TIME",
        scope="delta",
    ),
    "rate": Key(
        "Tuples a second, by which the layout is chosen at first.",
        (float,),
        "[default: the rate at which the input begins]",
        example=20_000,
        metavar="NUMBER",
    ),
    "unique": Key(
        "Columns of a key, for sources that deliver at least once: a tuple that repeats the key of one before it, "
        "within the window and in its partition, is left out and counted.",
        (str, LIST),
        "[default: each tuple counts]",
        example=["device", "counter"],
    ),
}

# Those that a flag, or a key of the whole file, gives to all streams or to some in one form: 30s, or e=30s.
PER_STREAM = tuple(name for name in STREAM_KEYS if name not in ("source", "schema", "delimiter", "where", "unique"))

FORMAT_KEYS = ("delimiter", *(name for name in PER_STREAM if name not in _OF_JOINS))
