"""Columns and their types as one text: ``ts timestamp[us, tz=UTC], x double``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.request.given import texts_of
from streamjoin_ds.spec.arrow_types import parts_of

__all__ = ["columns_of", "schemas_of"]

_HINT = "columns and Arrow types: 'ts timestamp[us, tz=UTC], x double', or 'e=ts int64, x double' for one stream"
# A name, in backticks where it is not one word, and the rest.
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(\S.*?)\s*", re.DOTALL)


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
