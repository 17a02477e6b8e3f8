"""Values as flags and files write them: for all members of a join or for each, columns, a source with its options."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.generator import GENERATORS
from streamjoin_ds.source.kafka.topic import TOPIC_PARAMETERS
from streamjoin_ds.spec import Expression
from streamjoin_ds.spec.columns import names_hint, parts_of
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.spec.member.source import GENERATOR_PREFIX, KAFKA_PREFIX
from streamjoin_ds.spec.member.stream import rate_from_text
from streamjoin_ds.spec.member.stream_keys import Key

__all__ = ["assigned", "columns_of", "conditions_of", "per_member", "schemas_of", "source_of", "texts_of"]

_HINT = "columns and Arrow types: 'ts timestamp[us, tz=UTC], x double', or 'e=ts int64, x double' for one stream"
# A name, in backticks where it is not one word, and the rest.
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(\S.*?)\s*", re.DOTALL)


def per_member(value: Any, what: str, streams: Mapping[str, Any], kind: str = "stream") -> dict[str, Any]:
    """Return a value for each stream or table: ``"ts"`` is one for all, ``"e=ts,w=time"`` or a table one for each."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) and (not isinstance(value, str) or "=" not in value):
        return dict.fromkeys(streams, value)
    if isinstance(value, str):
        hint = f"give one for all {kind}s, or {','.join(f'{name}=...' for name in streams)}"
        value = dict(assigned(part, what, hint) for part in value.split(","))
    for name in value:
        if name not in streams:
            msg = f"{what} names the {kind} '{name}', which is not in the join"
            raise ArgumentError(msg, name=name, hint=f"the {kind}s are {', '.join(streams)}")
    return dict(value)


def conditions_of(given: str | Sequence[str], name: str) -> list[Expression]:
    """Return conditions on one stream or table."""
    return [parse_condition(text, name) for text in texts_of(given)]


def texts_of(given: str | Sequence[str]) -> list[str]:
    """Return one text or several as a list."""
    return [given] if isinstance(given, str) else list(given)


def assigned(text: str, what: str, hint: str) -> tuple[str, str]:
    """Return the two sides of ``NAME=VALUE``; raise ArgumentError where there are none."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        msg = f"{what} is not of the form NAME=VALUE"
        raise ArgumentError(msg, name=what, hint=hint)
    return name.strip(), value.strip()


def schemas_of(given: str | Sequence[str], streams: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the columns of each stream for which there are any: ``"x double"`` is for all, ``"e=x double"`` for one.

    What is given for one stream wins.

    Raises
    ------
    ArgumentError
        A text has no columns, or names one twice.
    """
    for_all: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for text in texts_of(given):
        name, equals, columns = text.partition("=")
        if equals and name.strip() in streams:
            own[name.strip()] = columns_of(columns)
        elif equals and re.fullmatch(r"\s*\w+\s*", name):
            msg = f"schema names the stream '{name.strip()}', which is not in the join"
            raise ArgumentError(msg, name=name.strip(), hint=f"the streams are {', '.join(streams)}")
        else:
            for_all = columns_of(text)
    return {name: own.get(name, for_all) for name in streams if own.get(name, for_all)}


def columns_of(text: str) -> dict[str, str]:
    """Return the types of columns by their names, in order; the types are not looked at.

    Raises
    ------
    ArgumentError
    """
    found: dict[str, str] = {}
    for part in parts_of(text, ","):
        column = _COLUMN.fullmatch(part)
        if column is None:
            msg = "schema has a column without a name or a type"
            raise ArgumentError(msg, name="schema", hint=_HINT)
        name = column[1] or column[2]
        if name in found:
            msg = f"schema names the column '{name}' twice"
            raise ArgumentError(msg, name="schema", hint="give each column once")
        found[name] = column[3]
    return found


def source_of(text: str, keys: Mapping[str, Key], what: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a stream or table, and its keys: ``e=FILE?delimiter=;&sub_folders=read``.

    What belongs to the source itself stays with it: the parameters of a topic or a generator, and the name of a file
    that is there. In a value ``%26`` is an ampersand.

    Raises
    ------
    ArgumentError
        The text is not of this form, or an option is unknown or given twice; the error has the option's name.
    """
    example = {"stream": "e=eastbound.csv.gz", "table": "zones=zones.parquet"}[what]
    name, given = assigned(text, what, f"NAME=SOURCE, for example {example}")
    source, _, query = given.partition("?")
    is_path = not source.startswith(GENERATOR_PREFIX) and "://" not in source
    if not query or (is_path and Path(given).exists()):
        return name, {"source": given}
    own: Collection[str] = TOPIC_PARAMETERS if source.startswith(KAFKA_PREFIX) else {}
    if source.startswith(GENERATOR_PREFIX):
        kind = GENERATORS.get(source.removeprefix(GENERATOR_PREFIX))
        own = keys if kind is None else kind.parameters
    found: dict[str, Any] = {}
    left = []
    for part in query.split("&"):
        option, equals, value = part.partition("=")
        if not equals or option in own or (option not in keys and not is_path):
            left.append(part)
            continue
        if option not in keys or option == "source":
            msg = f"{what} {name} has an unknown option '{option}'"
            hint = names_hint(option, [key for key in keys if key != "source"], "its options are")
            raise ArgumentError(msg, name=option, hint=hint)
        if option in found:
            msg = f"{what} {name} has the option {option} twice"
            raise ArgumentError(msg, name=option, hint="give it once")
        value = unquote(value)
        found[option] = columns_of(value) if option == "schema" else value
        if option == "rate":
            found[option] = rate_from_text(value, name)
    return name, {"source": "?".join((source, "&".join(left))) if left else source, **found}
