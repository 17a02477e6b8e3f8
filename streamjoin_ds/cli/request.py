"""What a user asked for on the command line or in a TOML file, as a join and how to run it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import EXCHANGES, KERNELS
from streamjoin_ds.source.generated.generator import synthetic_rows
from streamjoin_ds.spec import Call, Expression, Generator, Stream
from streamjoin_ds.spec.expression import streams_of
from streamjoin_ds.spec.parse import parse_condition
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.sensor_options import READER_OPTIONS, checked_reader_options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["EXPLAINED", "Request", "join_options", "request_of"]

# Every key a TOML file may hold, besides the tables of its streams.
_KEYS = (
    "on", "where", "window", "select", "time", "delay", "delimiter", "to", "checkpoint", "available_now", "trigger",
    "max_rows_per_batch", "layout", "exchange", "kernel", "threads", "pin", "index", "order", "merge_runs", "durable",
    "take_over", "idle_timeout", "max_ahead", "on_bad_file", "master", "conf",
    *(name for name in READER_OPTIONS if name != "max_rows_per_batch"),
)  # fmt: skip
_READING = tuple(name for name in READER_OPTIONS if name != "max_rows_per_batch")
# Those of them that `StreamJoin.explain` takes too.
EXPLAINED = ("layout", "exchange", "kernel", "threads", "pin", "index", "order", "merge_runs", "durable")

_STREAM_KEYS = (
    "source", "time", "delay", "schema", "format", "time_unit", "delimiter", "where", "idle_timeout", "max_ahead",
    "on_bad_file",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A join and how to run it; ``to`` and ``checkpoint`` are None where the command does not need them.

    ``session`` has what `spark_session` is to be given: ``master`` and ``conf``.
    """

    join: StreamJoin
    to: str | None
    checkpoint: str | None
    run: Mapping[str, Any]
    session: Mapping[str, Any] = field(default_factory=dict)


def join_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say a join, shared by the commands that take one."""
    options = [
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="TOML file with any of these options; an option given here wins.",
        ),
        click.option(
            "--stream",
            "streams",
            multiple=True,
            metavar="NAME=SOURCE",
            help="A stream: a file, a folder that grows, or gen:NAME?KEY=VALUE&...",
        ),
        click.option(
            "--time", metavar="COLUMN", help="Event time column; NAME=COLUMN,... for one each.  [default: ts]"
        ),
        click.option(
            "--on",
            "on",
            multiple=True,
            metavar="PREDICATE",
            help='For example "abs(e.x - w.x) <= 0.1 AND e.y > w.y"; several must all hold.',
        ),
        click.option(
            "--where",
            "where",
            multiple=True,
            metavar="CONDITION",
            help='Which tuples of a stream to take: "e.altitude > 1000", or "e: altitude > 1000".',
        ),
        click.option(
            "--window",
            metavar="WINDOW",
            help="15s: how long a tuple waits for others; 'last 1000': the last tuples of each stream; "
            "'every 10s for 60s': once in each common window, [lag 3] windows apart. Or one for each stream: "
            "e=6h,w=0s.  [required]",
        ),
        click.option("--select", metavar="COLUMNS", help="e.icao24,w.*  [default: all]"),
        click.option("--delay", metavar="DURATION", help="How late a tuple may be: 30s, or e=30s,w=0s.  [default: 0s]"),
        click.option(
            "--idle-timeout",
            metavar="DURATION",
            help="After so long without a record a stream holds nothing up: 10m, or e=10m.  [default: never]",
        ),
        click.option(
            "--max-ahead",
            metavar="DURATION",
            help="A record further ahead of its stream is rejected: 1h, or e=1h.  [default: none is]",
        ),
        click.option(
            "--delimiter",
            multiple=True,
            metavar="CHARACTER",
            help="Between the fields of CSV files: ';', tab; e=';' for one stream alone.  [default: ,]",
        ),
        click.option(
            "--on-bad-file",
            metavar="stop|quarantine",
            help="A file that cannot be read on stops the join, or is set aside, a row in the rejects; or e=quarantine "
            "for one stream.  [default: stop]",
        ),
        click.option("--layout", metavar="LxL", help="Groups a stream, 1x2.  [default: by cost, at equal rates]"),
        click.option(
            "--exchange",
            type=click.Choice(["auto", *EXCHANGES]),
            help="How tuples cross to the cells.  [default: auto]",
        ),
        click.option("--kernel", type=click.Choice(KERNELS), help="One kernel implementation.  [default: auto]"),
        click.option(
            "--threads",
            type=click.IntRange(min=1),
            metavar="K",
            help="Kernels side by side in a cell; as many fewer cells.  [default: 1]",
        ),
        click.option(
            "--pin/--no-pin",
            default=None,
            help="Whether kernel threads, where a cell has several, get cores of their own.  [default: pin]",
        ),
        click.option(
            "--index",
            metavar="COLUMNS",
            help="How windows are laid out: e.latitude,e.longitude,w.latitude; or scan.  [default: auto, run by run]",
        ),
        click.option(
            "--order", metavar="STREAMS", help="In which order streams join: e,w,x.  [default: auto, by selectivity]"
        ),
        click.option(
            "--merge-runs",
            type=click.IntRange(min=2),
            metavar="N",
            help="Merge ratio: so many runs of like size become one.  [default: each row once, many runs at a time]",
        ),
        click.option(
            "--durable/--no-durable",
            default=None,
            help="Whether a batch is on the device before it counts: a power cut loses nothing.  [default: durable]",
        ),
    ]
    for name in _READING:
        words = f"{READER_OPTIONS[name][0].upper()}{READER_OPTIONS[name][1:]}"
        told, _, default = words.rpartition(" (")
        options.append(
            click.option(f"--{name.replace('_', '-')}", name, help=f"{told}.  [default: {default.rstrip(')')}]")
        )
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def request_of(config: Path | None, given: Mapping[str, Any]) -> Request:
    """Join flags and file to one request; flags win.

    Raises
    ------
    ArgumentError
        An unknown key, a missing stream or window, or a part that is not of its form.
    """
    facts = _toml(config) if config is not None else {}
    streams: dict[str, dict[str, Any]] = {name: dict(table) for name, table in facts.pop("streams", {}).items()}
    for text in given.get("streams", ()):
        name, source = _assigned(text, "stream", "NAME=SOURCE, for example e=eastbound.csv.gz")
        streams.setdefault(name, {})["source"] = source
    facts |= {key: value for key, value in given.items() if key in _KEYS and not _is_absent(key, value)}
    if not streams:
        msg = "no streams were given"
        raise ArgumentError(msg, name="stream", hint="--stream NAME=SOURCE, two or more times")
    if "window" not in facts:
        msg = "no window was given"
        raise ArgumentError(msg, name="window", hint="--window 15s, 'last 1000', 'every 10s for 60s', or e=6h,w=0s")
    by_stream = ("time", "delay", "idle_timeout", "max_ahead", "on_bad_file")
    each = {key: _per_stream(facts.get(key), key, streams) for key in by_stream}
    delimiters = _delimiters(facts.get("delimiter", ()), streams)
    wheres = _wheres(facts.get("where", ()), streams)
    join = StreamJoin(
        [
            _stream(name, {key: told.get(name) for key, told in each.items()} | delimiters[name] | table, wheres[name])
            for name, table in streams.items()
        ],
        on=facts.get("on", ()),
        window=facts["window"],
        select=facts.get("select"),
    )
    keys = ("available_now", "trigger", "max_rows_per_batch", "take_over", *EXPLAINED)
    run = {key: facts[key] for key in keys if key in facts}
    reading = checked_reader_options({name: facts[name] for name in _READING if name in facts})
    session = {"master": facts.get("master"), "conf": _conf(facts.get("conf", ()))}
    return Request(
        join,
        facts.get("to"),
        facts.get("checkpoint"),
        run | ({"source_options": reading} if reading else {}),
        {name: value for name, value in session.items() if value},
    )


def _conf(given: object) -> dict[str, str]:
    """Spark's settings: a table of texts, or texts ``KEY=VALUE``."""
    hint = "KEY=VALUE, for example spark.ui.enabled=true; in the file a table [conf] of texts"
    if isinstance(given, (list, tuple)):
        return dict(_assigned(text, "conf", hint) for text in _texts(given, "conf", hint))
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        msg = "conf is not a table of texts"
        raise ArgumentError(msg, name="conf", hint=hint)
    return dict(given)


def _is_absent(key: str, value: object) -> bool:
    """Whether a flag was not given; one that is off counts as not given, but for those that are on by default."""
    return value in (None, ()) or (value is False and key not in ("pin", "durable"))


def _stream(name: str, facts: dict[str, Any], wheres: Sequence[Expression]) -> Stream:
    for key in facts:
        if key not in _STREAM_KEYS:
            msg = f"stream {name} has the key '{key}', which is not known"
            raise ArgumentError(msg, name=key, hint=f"one of {', '.join(_STREAM_KEYS)}")
    if wheres:
        facts["where"] = wheres[0] if len(wheres) == 1 else Call("and", tuple(wheres))
    stream = Stream(name, **{key: value for key, value in facts.items() if value is not None})
    if isinstance(stream.source, Generator):
        synthetic_rows(stream.source)  # names and values are understood before Spark starts
    return stream


def _per_stream(value: str | Mapping[str, str] | None, what: str, streams: Mapping[str, Any]) -> dict[str, str]:
    """``"ts"`` for every stream, or ``"e=ts,w=time"`` / a table for one each."""
    if value is None:
        return {}
    if isinstance(value, str) and "=" not in value:
        return dict.fromkeys(streams, value)
    if isinstance(value, str):
        hint = f"one for all, or {','.join(f'{name}=...' for name in streams)}"
        value = dict(_assigned(part, what, hint) for part in value.split(","))
    for name in value:
        if name not in streams:
            msg = f"{what} names the stream '{name}', which is not in the join"
            raise ArgumentError(msg, name=name, hint=f"the streams are {', '.join(streams)}")
    return dict(value)


def _delimiters(given: object, streams: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The delimiter of each stream that is told one: ``";"`` for all, ``"e=;"`` for one, which wins."""
    found: dict[str, dict[str, str]] = {name: {} for name in streams}
    texts = _texts(given, "delimiter", "a character, or NAME=CHARACTER, for example 'e=;'")
    for text in sorted(texts, key=lambda text: text.partition("=")[0] in streams):
        name, _, delimiter = text.partition("=")
        for told in [name] if name in streams else streams:
            found[told] = {"delimiter": delimiter if name in streams else text}
    return found


def _wheres(given: object, streams: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Expression]]:
    """The conditions on each stream: those of its own table, and those given for all, which name theirs."""
    wheres = {name: _conditions(table.get("where", ()), name) for name, table in streams.items()}
    for text in _texts(given, "where", "for example 'e.altitude > 1000'"):
        name, colon, condition = text.partition(":")
        if colon and name.strip() in streams:
            wheres[name.strip()].append(parse_condition(condition, name.strip()))
            continue
        expression = parse_condition(text)
        named = streams_of(expression)
        if len(named) != 1 or named[0] not in streams:
            msg = "a condition of where is not about one of the streams"
            hint = f"name one of {', '.join(streams)}: 'e.altitude > 1000'; conditions on several belong in on"
            raise ArgumentError(msg, name="where", hint=hint)
        wheres[named[0]].append(expression)
    return wheres


def _conditions(given: object, name: str) -> list[Expression]:
    return [parse_condition(text, name) for text in _texts(given, "where", "for example 'altitude > 1000'")]


def _texts(given: object, what: str, hint: str) -> list[str]:
    texts: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(text, str) for text in texts):
        msg = f"{what} is neither a text nor a list of texts"
        raise ArgumentError(msg, name=what, hint=hint)
    return texts


def _assigned(text: str, what: str, hint: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        msg = f"{what} is not of the form NAME=VALUE"
        raise ArgumentError(msg, name=what, hint=hint)
    return name.strip(), value.strip()


def _toml(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError):
        msg = f"the file {path} cannot be read"
        raise ArgumentError(msg, name="config", hint="give the path of a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        msg = f"the file {path} is not TOML: {error}"
        raise ArgumentError(msg, name="config", hint="see the README for an example") from None
    for key in facts:
        if key not in (*_KEYS, "streams"):
            msg = f"{path} has the key '{key}', which is not known"
            raise ArgumentError(msg, name=key, hint=f"one of streams, {', '.join(_KEYS)}")
    return facts


def required(value: str | None, name: str, hint: str) -> str:
    """`value`, or an error that names the option that is missing."""
    if value is None:
        msg = f"--{name} was not given"
        raise ArgumentError(msg, name=name, hint=hint)
    return value
