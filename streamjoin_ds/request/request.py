"""The request that a user writes, on the command line or in a TOML file: a join, and how to run it.

A value may be one for all streams and tables of a join, or one for each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import Execution
from streamjoin_ds.request.join_keys import JOIN_KEYS, read_join_file
from streamjoin_ds.source.generator import GENERATORS, synthetic_rows
from streamjoin_ds.source.kafka.topic import TOPIC_PARAMETERS
from streamjoin_ds.spec import Call, Expression, Generator, Nearest, Stream, Table
from streamjoin_ds.spec.columns import names_hint, parts_of
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.spec.expression.tree import streams_of
from streamjoin_ds.spec.member.location import KAFKA_PREFIX
from streamjoin_ds.spec.member.option_key import OptionKey
from streamjoin_ds.spec.member.source import GENERATOR_PREFIX
from streamjoin_ds.spec.member.stream import PER_STREAM, STREAM_KEYS, rate_from_text
from streamjoin_ds.spec.member.table import TABLE_KEYS
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.query_options import checked_reader_options
from streamjoin_ds.stream.run_keys import keys_of

__all__ = [
    "EXPLAINED",
    "Request",
    "assigned",
    "columns_of",
    "conditions_of",
    "described_streams",
    "described_tables",
    "given_flags",
    "per_member",
    "reduce_of",
    "request_of",
    "requested",
    "required",
    "schemas_of",
    "settings_of_spark",
    "source_of",
    "tables_given",
    "texts_of",
    "without_tables",
]

_HINT = "columns and Arrow types: 'ts timestamp[us, tz=UTC], x double', or 'e=ts int64, x double' for one stream"
# A name, in backticks where it is not one word, and the rest.
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(\S.*?)\s*", re.DOTALL)
_FINISHED = "finished_after"
# The arguments that `StreamJoin.explain` shares with `StreamJoin.start`.
EXPLAINED = (*keys_of("plan"), "execution", "source_options")


def per_member(value: Any, what: str, streams: Mapping[str, Any], kind: str = "stream") -> dict[str, Any]:
    """Return a value for each stream or table: ``"ts"`` is one for all, ``"e=ts,w=time"`` or a table one for each."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) and (not isinstance(value, str) or "=" not in value):
        return dict.fromkeys(streams, value)
    if isinstance(value, str):
        hint = f"give one for all {kind}s, or {','.join(f'{name}=...' for name in streams)}"
        # A comma may stand in a value too, but at no end of it: %S,%f of time_format.
        value = dict(assigned(part, what, hint) for part in re.split(r",(?=[^,=]*=|\s*$)", value))
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


def source_of(text: str, keys: Mapping[str, OptionKey], what: str) -> tuple[str, dict[str, Any]]:
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


@dataclass(frozen=True)
class Request:
    """A join and how to run it.

    Attributes
    ----------
    join : StreamJoin
        The join.
    to, checkpoint : str or None
        Arguments of `StreamJoin.start`; None where they were not given.
    run : mapping
        Its other arguments.
    session : mapping
        Arguments for `spark_session`: ``master`` and ``conf``; or ``local``, and there is none.
    """

    join: StreamJoin
    to: str | None
    checkpoint: str | None
    run: Mapping[str, Any]
    session: Mapping[str, Any] = field(default_factory=dict)


def request_of(config: Path | None, given: Mapping[str, Any]) -> Request:
    """Return one request from the file and the flags.

    A key in the file's table of a stream wins over the file's key for all streams, and a flag wins over both. The
    conditions of `where` add up.

    Raises
    ------
    ArgumentError
        The file is refused, the streams are missing, or a value cannot be understood.
    WindowError
        The window is missing, or is none.
    """
    facts = read_join_file(config) if config is not None else {}
    streams: dict[str, dict[str, Any]] = {name: dict(table) for name, table in facts.pop("streams", {}).items()}
    for text in given.get("streams", ()):
        name, own = source_of(text, STREAM_KEYS, "stream")
        streams[name] = streams.get(name, {}) | own
    tables = tables_given(facts.pop("tables", {}), given.get("tables", ()))
    flags = given_flags(given)
    in_file, facts = facts, facts | flags
    if not streams:
        msg = "no streams were given"
        raise ArgumentError(msg, name="stream", hint="give --stream NAME=SOURCE two or more times")
    join = StreamJoin(
        described_streams(streams, without_tables(in_file, tables), without_tables(flags, tables)),
        on=facts.get("on", ()),
        window=facts.get("window"),
        select=facts.get("select"),
        how=facts.get("how", "inner"),
        nearest=_nearest(facts),
        tables=described_tables(tables, in_file, flags),
        reduce=reduce_of(facts.get("reduce")),
    )
    return requested(join, facts)


def _nearest(facts: Mapping[str, Any]) -> Nearest | None:
    """Return the nearest partners that are asked for.

    Raises
    ------
    ArgumentError
        A distance or a direction is given, and nobody asks for the nearest.
    """
    given = {key.partition("_")[2]: facts[key] for key in ("nearest_by", "nearest_direction") if key in facts}
    if "nearest" in facts:
        return Nearest(facts["nearest"], **given)
    for part in given:
        msg = f"nearest_{part} is given without nearest"
        raise ArgumentError(msg, name=f"nearest_{part}", hint="say how many partners of a tuple make rows: nearest = 1")
    return None


def reduce_of(given: Mapping[str, str] | Sequence[str] | str | None) -> dict[str, str] | None:
    """Return the aggregates, given as a table of texts, or as texts ``NAME=AGGREGATE``."""
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    hint = "NAME=AGGREGATE, for example n=count(*); in the file a table [reduce] of texts"
    found: dict[str, str] = {}
    for text in texts_of(given):
        name, aggregate = assigned(text, "reduce", hint)
        if name in found:
            msg = f"reduce names the column '{name}' twice"
            raise ArgumentError(msg, name="reduce", hint="give each aggregate its own name")
        found[name] = aggregate
    return found


def given_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those flags that were given, as keys of the file."""
    return {key: value for key, value in given.items() if key in JOIN_KEYS and not _is_absent(key, value)}


def described_streams(
    tables: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any], flags: Mapping[str, Any]
) -> list[Stream]:
    """Return the streams of a join, in the order of their tables.

    Parameters
    ----------
    tables : mapping of stream name to mapping
        For each stream the keys that are its own (`STREAM_KEYS`). A key wins over that of `facts`.
    facts : mapping
        Keys for all streams or for some (`JOIN_KEYS`): ``"30s"`` is for all, ``"e=30s"`` for one.
    flags : mapping
        The same keys, as flags gave them; they win over the tables. The conditions of `where` add up.

    Raises
    ------
    ArgumentError
        A key names a stream that is not there, or a value cannot be understood.
    """
    of_all, of_flags = _of_streams(facts, tables), _of_streams(flags, tables)
    wheres = _wheres(flags.get("where", facts.get("where", ())), tables)
    return [_stream(name, of_all[name] | dict(table) | of_flags[name], wheres[name]) for name, table in tables.items()]


def requested(join: StreamJoin, facts: Mapping[str, Any]) -> Request:
    """Return the request for a join, with what the keys that are not about its streams say of how to run it."""
    run, engine, source, session = (
        {name: facts[name] for name in keys_of(*scopes) if name in facts}
        for scopes in (("start", "plan"), ("engine",), ("source",), ("session",))
    )
    if engine:
        run["execution"] = Execution(**engine)
    if source:
        run["source_options"] = checked_reader_options(source)
    if "conf" in session:
        session["conf"] = settings_of_spark(session["conf"])
    session = {name: value for name, value in session.items() if value}
    return Request(join, facts.get("to"), facts.get("checkpoint"), run, session)


def settings_of_spark(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return Spark's settings, given as a table of texts, or as texts ``KEY=VALUE``."""
    if isinstance(given, Mapping):
        return dict(given)
    hint = "KEY=VALUE, for example spark.ui.enabled=true; in the file a table [conf] of texts"
    return dict(assigned(text, "conf", hint) for text in given)


def _is_absent(key: str, value: object) -> bool:
    """Whether a flag was not given; one that is off counts as not given, unless it is on by default."""
    return value in (None, ()) or (value is False and not JOIN_KEYS[key].is_switch)


def _stream(name: str, facts: dict[str, Any], wheres: Sequence[Expression]) -> Stream:
    if wheres:
        facts["where"] = wheres[0] if len(wheres) == 1 else Call("and", tuple(wheres))
    stream = Stream(name, **{key: value for key, value in facts.items() if value is not None})
    if isinstance(stream.source, Generator):
        synthetic_rows(stream.source)  # a wrong name or value is refused before Spark starts
    return stream


def _of_streams(facts: Mapping[str, Any], streams: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what keys for several streams say of each one."""
    found: dict[str, dict[str, Any]] = _delimiters(facts.get("delimiter", ()), streams)
    for name, types in schemas_of(facts.get("schema", ()), streams).items():
        found[name]["schema"] = types
    for name, columns in _uniques(facts.get("unique", ()), streams).items():
        found[name]["unique"] = columns
    for text in texts_of(facts.get("columns", ())):
        name, equals, expressions = text.partition("=")
        is_own = bool(equals) and name.strip() in streams
        for told in [name.strip()] if is_own else streams:
            found[told].setdefault("columns", []).append(expressions if is_own else text)
    for key in PER_STREAM:
        for name, value in per_member(facts.get(key), key, streams).items():
            found[name][key] = _rate(value, name) if key == "rate" else value
    return found


def _rate(value: float | str, name: str) -> float | None:
    """Return the rate in a number of the file, or in a flag's text."""
    return rate_from_text(value, name) if isinstance(value, str) else value


def _delimiters(given: str | Sequence[str], streams: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the delimiter of each stream as its argument: ``";"`` is for all streams, ``"e=;"`` for one, and wins.

    A stream for which none was given has an empty dict.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in streams}
    for text in sorted(texts_of(given), key=lambda text: text.partition("=")[0] in streams):
        name, _, delimiter = text.partition("=")
        for told in [name] if name in streams else streams:
            found[told] = {"delimiter": delimiter if name in streams else text}
    return found


def _uniques(given: str | Sequence[str] | Mapping[str, Any], streams: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of each stream that has one: ``"device,counter"`` is for all streams, ``"e=device"`` for one.

    What is given for one stream wins. A table gives one for each stream in it.
    """
    if isinstance(given, Mapping):
        return per_member(given, "unique", streams)
    for_all: list[str] = []
    own: dict[str, list[str]] = {}
    for text in texts_of(given):
        name, equals, columns = text.partition("=")
        named = bool(equals) and name.strip() in streams
        (own.setdefault(name.strip(), []) if named else for_all).extend(
            part.strip() for part in (columns if named else text).split(",")
        )
    return {name: own.get(name, for_all) for name in streams if own.get(name, for_all)}


def _wheres(given: str | Sequence[str], streams: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Expression]]:
    """Return the conditions on each stream: those of its own table, and those of the key `where`, which name it."""
    wheres = {name: conditions_of(table.get("where", ()), name) for name, table in streams.items()}
    for text in texts_of(given):
        name, colon, condition = text.partition(":")
        if colon and name.strip() in streams:
            wheres[name.strip()].append(parse_condition(condition, name.strip()))
            continue
        if colon and name.strip().isidentifier():
            msg = f"where names the stream '{name.strip()}', which is not in the join"
            raise ArgumentError(msg, name="where", hint=names_hint(name.strip(), list(streams), "the streams are"))
        expression = parse_condition(text)
        named = streams_of(expression)
        if len(named) != 1 or named[0] not in streams:
            msg = "a condition of where is not on exactly one stream of the join"
            hint = f"name one of {', '.join(streams)}: 'e.altitude > 1000'; conditions on several streams belong in on"
            raise ArgumentError(msg, name="where", hint=hint)
        wheres[named[0]].append(expression)
    return wheres


def required(value: str | None, name: str, hint: str) -> str:
    """Return the value of an option.

    Raises
    ------
    ArgumentError
        The option was not given; the error names it.
    """
    if value is None:
        msg = f"--{name} was not given"
        raise ArgumentError(msg, name=name, hint=hint)
    return value
