"""An option: what it is for, which values it may have, and where else than in Python it is given.

An `OptionKey` is one option, of a stream, a source, a join or a run: its kinds of values, how a refusal names them, and
how flags and texts show them. An option of a stream or a source stands with its field: `option` makes both in one
place, and `options_of` collects them. The TOML file and its schema, the flags and their help, SQL's WITH,
``format("sensors")`` and the page of the reference are made from them.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from streamjoin_ds.errors import ArgumentError

__all__ = ["INTS", "LIST", "LISTS", "NUMBERS", "TABLE", "VERSIONS", "OptionKey", "option", "options_of"]

LIST, TABLE, LISTS, NUMBERS = list[str], dict[str, str], dict[str, str | list[str]], dict[str, float]
VERSIONS, INTS = dict[str, int | str], list[int]
_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    LIST: "a list of texts",
    INTS: "a list of whole numbers",
    TABLE: "a table of texts",
    LISTS: "a table of texts and lists",
    NUMBERS: "a table of numbers",
    VERSIONS: "a table of numbers and texts",
}


@dataclass(frozen=True)
class OptionKey:
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
        What takes an option of a run (`RUN_KEYS`).
    bare : str
        The value of a flag that is given without one; empty where a flag needs one.
    """

    help: str
    kinds: tuple[Any, ...] = (str,)
    note: str = ""
    one_of: tuple[str, ...] = ()
    example: object = None
    limits: Mapping[str, int] | None = None
    metavar: str = ""
    scope: str = ""
    bare: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether it is on by default: its flag has a form that switches it off."""
        return self.kinds == (bool,) and bool(self.note)

    @property
    def type(self) -> Any:
        """The type by which msgspec checks a value, with what the JSON Schema says about the key."""
        import msgspec  # here: a worker has options, and checks none

        extra: dict[str, Any] = {"enum": list(self.one_of)} if self.one_of and self.kinds == (str,) else {}
        about = msgspec.Meta(
            description=f"{self.help}  {self.note}".strip(),
            examples=None if self.example is None else [self.example],
            extra_json_schema=extra | dict(self.limits or {}),
        )
        return Annotated[functools.reduce(operator.or_, self.kinds), about]

    @property
    def of_members(self) -> OptionKey:
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
        import msgspec

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


def option(default: Any, help_: str, kinds: tuple[Any, ...] = (str,), note: str = "", **about: Any) -> Any:
    """Return the field of a dataclass that is an option.

    Parameters
    ----------
    default : object
        The value that says nothing.
    help_, kinds, note
        As of `OptionKey`; where no note is given, it names the default.
    **about
        Other fields of the `OptionKey`; ``identity``: results depend on the option, so a checkpoint refuses another
        value of it, and names it with this text; ``numbers``: the numbers of tuples depend on it.
    """
    more: dict[str, Any] = {name: about.pop(name) for name in ("identity", "numbers") if name in about}
    key = OptionKey(help_, kinds, note or f"[default: {default}]", **about)
    return field(default=default, metadata={"option": key, **more})


def options_of(kind: type) -> dict[str, OptionKey]:
    """Return the options that a dataclass has, by their names, in the order of its fields."""
    return {each.name: each.metadata["option"] for each in fields(kind) if "option" in each.metadata}
