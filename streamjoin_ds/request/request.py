"""What a user asked for on the command line or in a TOML file, as a join and how to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import Execution
from streamjoin_ds.request.given import assigned, conditions_of, per_member, schemas_of, source_of, texts_of
from streamjoin_ds.request.join_file import read_join_file
from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.request.tables import described_tables, tables_given, without_tables
from streamjoin_ds.source.generator import synthetic_rows
from streamjoin_ds.spec import Call, Expression, Generator, Nearest, Stream
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.spec.expression.tree import streams_of
from streamjoin_ds.spec.member.stream import rate_from_text
from streamjoin_ds.spec.member.stream_keys import PER_STREAM, STREAM_KEYS
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.query_options import checked_reader_options
from streamjoin_ds.stream.run_keys import keys_of

__all__ = [
    "EXPLAINED",
    "Request",
    "described_streams",
    "given_flags",
    "reduce_of",
    "request_of",
    "requested",
    "required",
    "settings_of_spark",
]

# The arguments that `StreamJoin.explain` shares with `StreamJoin.start`.
EXPLAINED = (*keys_of("plan"), "execution", "source_options")


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
        Arguments for `spark_session`: ``master`` and ``conf``.
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
        The file is refused, the streams or the window are missing, or a value cannot be understood.
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
    if "window" not in facts and (len(streams) > 1 or not tables):
        msg = "no window was given"
        raise ArgumentError(
            msg, name="window", hint="give --window 15s, 'last 1000', 'every 10s for 60s', or e=6h,w=0s"
        )
    join = StreamJoin(
        described_streams(streams, without_tables(in_file, tables), without_tables(flags, tables)),
        on=facts.get("on", ()),
        window=facts.get("window", "0s"),
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
        For each stream the keys that are its own (`spec.stream_keys`). A key wins over that of `facts`.
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
