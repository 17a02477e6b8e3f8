"""The keys of a join, and the TOML file that has them: how it is read, and its JSON Schema.

::

    JOIN_KEYS, STREAM_KEYS ──► read_join_file   a file's tables, every key known and every value of its kind
                           ├─► json_schema      the same for editors
                           └─► join_options     the help of the flags of the same names

The keys of a stream and of a table are their fields (`spec.member`), and those of a run are in `stream.run_keys`.

A kind is a Python type, and msgspec says whether a value is of that kind. What a text means is checked later, where it
is parsed, for flags, files and Python alike. No message shows a value: it may be a secret.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.member.option_key import LIST, LISTS, TABLE, OptionKey
from streamjoin_ds.spec.member.stream import PER_STREAM, STREAM_KEYS
from streamjoin_ds.spec.member.table import TABLE_KEYS
from streamjoin_ds.spec.row_kind import DIRECTIONS, HOWS, MAX_NEAREST
from streamjoin_ds.stream.run_keys import RUN_KEYS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["JOIN_KEYS", "json_schema", "read_join_file"]


JOIN_KEYS: dict[str, OptionKey] = {
    "on": OptionKey(
        'A condition on results, for example "abs(e.x - w.x) <= 0.1 AND e.y > w.y". If there are '
        "several, all must hold.",
        (str, LIST),
        example=["abs(e.x - w.x) <= 0.1"],
        metavar="PREDICATE",
    ),
    "where": OptionKey(
        'A condition on the tuples of one stream: "e.altitude > 1000", or "e: altitude > 1000". Others are left out.',
        (str, LIST),
        example="e.altitude > 1000",
        metavar="CONDITION",
    ),
    "window": OptionKey(
        "Which tuples may meet. 15s: those whose event times are at most so far apart, or e=6h,w=0s for each stream. "
        "'last 1000': a tuple meets the last 1000 of each other stream. 'every 10s for 60s': those that share a window "
        "of 60s, one of which ends every 10s; with 'lag 3' those in windows that are 3 apart.",
        (str, TABLE),
        "[required, but of one stream beside tables]",
        example="15s",
        metavar="WINDOW",
    ),
    "how": OptionKey(
        "Which rows the join has: inner (pairs); left, right, full (also tuples of the first, second or either stream "
        "without a partner); semi, anti (tuples of the first stream with a partner in each other stream, or in none).",
        note="[default: inner]",
        one_of=HOWS,
    ),
    "nearest": OptionKey(
        "Of the partners of a tuple of the first stream only so many make rows, the nearest.",
        (int,),
        "[default: all]",
        limits={"minimum": 1, "maximum": MAX_NEAREST},
        metavar="K",
    ),
    "nearest_by": OptionKey(
        "The distance by which partners are the nearest, such as abs(e.x - w.x).",
        note="[default: the time between the two]",
        example="abs(e.x - w.x)",
        metavar="EXPRESSION",
    ),
    "nearest_direction": OptionKey(
        "Which partners may be the nearest: both, backward (not after the tuple), forward (not before it).",
        note="[default: both]",
        one_of=DIRECTIONS,
    ),
    "reduce": OptionKey(
        "In place of pairs, a row for each tuple of the first stream, with aggregates over its partners: count(*), "
        "avg(w.x), arg_min(w.id, abs(e.x - w.x)), ... With how=left also for tuples without a partner.",
        (TABLE, LIST),
        example={"n": "count(*)", "mean_x": "avg(w.x)"},
        metavar="NAME=AGGREGATE",
    ),
    "select": OptionKey(
        "Columns: e.icao24, w.*, e.x - w.x AS gap.",
        (str, LIST),
        "[default: all]",
        example=["e.id", "w.*"],
        metavar="COLUMNS",
    ),
    "delimiter": OptionKey(
        "What separates the fields of CSV files: ';' or tab, or e=';' for one stream alone.",
        (str, LIST),
        "[default: ,]",
        example=";",
        metavar="CHARACTER",
    ),
    "schema": OptionKey(
        "Columns and their Arrow types: 'ts timestamp[us, tz=UTC], x double', or 'e=ts int64, x double' for one stream "
        "alone. A name that is no word stands in backticks.",
        (str, LIST),
        "[default: inferred from what is there]",
        example="e=ts timestamp[us, tz=UTC], x double",
        metavar="COLUMNS",
    ),
    **RUN_KEYS,
    "refresh": OptionKey(
        "How often a new version of a table is looked for: 5m, or zones=5m; 0s: for each batch.",
        (str, TABLE),
        "[default: 1m]",
        example="5m",
        metavar="DURATION",
    ),
    "unique": OptionKey(
        "Columns of a key, for sources that deliver at least once: a tuple that repeats the key of one before it, "
        "within the window and in its partition or device, is left out and counted. device,counter, or "
        "e=device,counter for one stream.",
        (str, LIST, LISTS),
        "[default: each tuple counts]",
        example={"e": ["device", "counter"]},
        metavar="COLUMNS",
    ),
    "columns": OptionKey(
        "Columns that are computed of those that are written, before all else: 'speed_kn * 0.514444 AS speed_ms', or "
        "'e=speed_kn * 0.514444 AS speed_ms' for one stream alone.",
        (str, LIST),
        "[default: none]",
        example="e=speed_kn * 0.514444 AS speed_ms",
        metavar="EXPRESSIONS",
    ),
    **{name: STREAM_KEYS[name].of_members for name in PER_STREAM},
}

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
            raise ArgumentError(msg, name=name, hint=names_hint(name, ["streams", *JOIN_KEYS, "tables"], "one of"))
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
                hint = names_hint(name, [*keys], "one of")
                if name in JOIN_KEYS:  # TOML gives what stands below a table's heading to that table
                    hint = f"{name} is of the whole join: write it above the first [{key}.{member}]"
                raise ArgumentError(msg, name=name, hint=hint)
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


def _struct(name: str, keys: Mapping[str, OptionKey], more: Mapping[str, Any]) -> type[msgspec.Struct]:
    types = {key: each.type for key, each in keys.items()} | dict(more)
    fields: list[tuple[str, Any, Any]] = [(key, kind | msgspec.UnsetType, msgspec.UNSET) for key, kind in types.items()]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)
