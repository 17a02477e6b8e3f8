"""The TOML file of a join, read by the table of keys, and the JSON Schema by which an editor checks such a file.

::

    JOIN_KEYS, STREAM_KEYS ──► read_join_file   a file's tables, every key known and every value of its kind
    (`join_keys`)          ├─► json_schema      the same for editors
                           └─► join_options     the help of the flags of the same names
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.request.join_keys import JOIN_KEYS, TABLE_KEYS
from streamjoin_ds.spec.member.stream_keys import STREAM_KEYS, Key

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["json_schema", "read_join_file"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Tables of tables: the keys of each, and an example of its name.
_MEMBERS = {"streams": (STREAM_KEYS, "stream", "e"), "tables": (TABLE_KEYS, "table", "zones")}


def read_join_file(path: Path) -> dict[str, Any]:
    """Return the keys and tables of a file.

    Raises
    ------
    ArgumentError
        The file cannot be read, is not TOML, has an unknown key, or a value that is not of its key's kind.
    """
    try:
        facts: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError):
        msg = f"the file {path} cannot be read"
        raise ArgumentError(msg, name="config", hint="give the path of a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        msg = f"the file {path} is not TOML: {error}"
        raise ArgumentError(msg, name="config", hint="docs/start.md has an example") from None
    for name, value in facts.items():
        if name in _MEMBERS:
            _check_members(name, value)
        elif name in JOIN_KEYS:
            JOIN_KEYS[name].check(value, name, name)
        else:
            msg = f"the file {path} has an unknown key '{name}'"
            raise ArgumentError(msg, name=name, hint=f"one of streams, {', '.join(JOIN_KEYS)}, tables")
    return facts


def _check_members(key: str, tables: object) -> None:
    keys, what, example = _MEMBERS[key]
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        msg = f"{key} is not a table of tables"
        raise ArgumentError(msg, name=key, hint=f"give each {what} a table: [{key}.{example}] with source = ...")
    for member, table in tables.items():
        for name, value in table.items():
            if name not in keys:
                msg = f"{what} {member} has an unknown key '{name}'"
                raise ArgumentError(msg, name=name, hint=f"one of {', '.join(keys)}")
            keys[name].check(value, f"{name} of {what} {member}", name)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file: it accepts what `read_join_file` accepts, as far as a schema can say it.

    It requires no key: what a file leaves out, a flag may give.
    """
    stream = _struct("Stream", STREAM_KEYS, {})
    streams = Annotated[dict[str, stream], msgspec.Meta(description="A table for each stream, by its name.")]  # type: ignore[valid-type]
    table = _struct("Table", TABLE_KEYS, {})
    tables = Annotated[dict[str, table], msgspec.Meta(description="A table for each table, by its name.")]  # type: ignore[valid-type]
    schema = msgspec.json.schema(_struct("Join", JOIN_KEYS, {"streams": streams, "tables": tables}))
    definitions = schema["$defs"]
    about = {"$schema": _DIALECT, "title": "A join: streamjoin run --config FILE"}
    return (
        about
        | {name: value for name, value in definitions.pop("Join").items() if name != "title"}
        | {"$defs": definitions}
    )


def _struct(name: str, keys: Mapping[str, Key], more: Mapping[str, Any]) -> type[msgspec.Struct]:
    types = {key: each.type for key, each in keys.items()} | dict(more)
    fields: list[tuple[str, Any, Any]] = [(key, kind | msgspec.UnsetType, msgspec.UNSET) for key, kind in types.items()]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)
