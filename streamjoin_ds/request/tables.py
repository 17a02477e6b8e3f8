"""The tables beside streams that a user asked for on the command line or in a TOML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.request.given import assigned, conditions_of, per_member, source_of, texts_of
from streamjoin_ds.request.join_keys import TABLE_KEYS
from streamjoin_ds.spec import Call, Table
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.spec.expression.tree import streams_of

__all__ = ["described_tables", "tables_given", "without_tables"]

_FINISHED = "finished_after"


def tables_given(in_file: Mapping[str, Mapping[str, Any]], flags: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the keys of each table: those of the file, and what flags gave as ``NAME=SOURCE?KEY=VALUE``."""
    tables = {name: dict(table) for name, table in in_file.items()}
    for text in flags:
        name, own = source_of(text, TABLE_KEYS, "table")
        tables[name] = tables.get(name, {}) | own
    return tables


def described_tables(
    tables: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any], flags: Mapping[str, Any]
) -> list[Table]:
    """Return the tables of a join, in the order of their keys; parameters as of `described_streams`.

    Raises
    ------
    ArgumentError
        A key names a table that is not there, there is none to which it could apply, or a value cannot be understood.
    """
    if not tables and "refresh" in {**facts, **flags}:
        msg = "refresh is of tables, and the join has none"
        raise ArgumentError(msg, name="refresh", hint="leave it out, or give --table NAME=SOURCE")
    every, asked = (_of_each(given, tables) for given in (facts, flags))
    found = []
    for name, table in tables.items():
        own = {**every[name], **table, **asked[name]}
        wheres = conditions_of(own.pop("where", ()), name)
        wheres += [condition for at, condition in _conditions({**facts, **flags}, tables) if at == name]
        if wheres:
            own["where"] = wheres[0] if len(wheres) == 1 else Call("and", tuple(wheres))
        found.append(Table(name, **own))
    return found


def without_tables(facts: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys without the conditions of `where` that are on tables, and their part of `finished_after`."""
    found = dict(facts)
    if tables and "where" in facts:
        gone = {text for text in texts_of(facts["where"]) if _table_of(text, tables) is not None}
        found["where"] = [text for text in texts_of(facts["where"]) if text not in gone]
    if _FINISHED in facts and (named := _named(facts[_FINISHED])):
        found[_FINISHED] = {name: value for name, value in named.items() if name not in tables}
    return found


def _of_each(facts: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what keys for several members say of each table: `finished_after` without a name is of streams."""
    found: dict[str, dict[str, Any]] = {name: {} for name in tables}
    for name, value in per_member(facts.get("refresh"), "refresh", tables, "table").items():
        found[name]["refresh"] = value
    for name, value in _named(facts.get(_FINISHED)).items():
        if name in found:
            found[name][_FINISHED] = value
    return found


def _named(value: Any) -> dict[str, Any]:
    """Return the values that a key gives to members by their names; none where it gives one to all."""
    if isinstance(value, str) and "=" in value:
        return dict(assigned(part, _FINISHED, "give NAME=30s, or several with commas") for part in value.split(","))
    return dict(value) if isinstance(value, Mapping) else {}


def _conditions(facts: Mapping[str, Any], tables: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = []
    for text in texts_of(facts.get("where", ())):
        name = _table_of(text, tables)
        if name is not None:
            _, colon, condition = text.partition(":")
            named = colon and text.partition(":")[0].strip() == name
            found.append((name, parse_condition(condition, name) if named else parse_condition(text)))
    return found


def _table_of(text: str, tables: Mapping[str, Any]) -> str | None:
    """Return the table that a condition of `where` is on; None: it is on none, or on a stream too."""
    name, colon, _ = text.partition(":")
    if colon and name.strip() in tables:
        return name.strip()
    named = streams_of(parse_condition(text)) if tables and not colon else ()
    return named[0] if len(named) == 1 and named[0] in tables else None
