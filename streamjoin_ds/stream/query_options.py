"""The options of a query, and those of ``format("sensors")``: each checked, and held by one frozen object.

No option of a query changes a row of its result. The table `streamjoin_ds.stream.run_keys` says what each may hold. An
error names an option, and never shows its value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import DEFAULT_EXECUTION, Execution
from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.source.batch_plan import parse_pace
from streamjoin_ds.source.delay_bound import max_delay_us
from streamjoin_ds.source.delta.delta_feed import with_table
from streamjoin_ds.source.generator import parse_generator
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import duration_us
from streamjoin_ds.spec.columns import SEQ, TS, names_hint, result_type
from streamjoin_ds.spec.duplicates import UniqueKey, unique_key
from streamjoin_ds.spec.member.computed_columns import all_columns, with_written
from streamjoin_ds.spec.member.stream import FORMAT_KEYS, STREAM_KEYS, Stream
from streamjoin_ds.stream.run_keys import RUN_KEYS, keys_of
from streamjoin_ds.watch.watcher import WatchOrder

__all__ = [
    "DEFAULT_MAX_ROWS",
    "READER_OPTIONS",
    "STREAM_OPTIONS",
    "LocalOptions",
    "QueryOptions",
    "SourceOptions",
    "checked_reader_options",
]


READER_OPTIONS = {name: RUN_KEYS[name].brief for name in ("max_rows_per_batch", "max_delay", *keys_of("source"))}
STREAM_OPTIONS = {
    "path": "a file, a folder or /folder/*.extension, here or s3://bucket/..., a Delta table, or kafka://broker/topic",
    "generator": "instead of path: gen:band2d?side=r&rate=1000",
    "columns": 'columns and their types, {"x": "double"}; by default they are inferred from the files that are there',
    "broken_rows": "fail at a record that cannot be read, or keep it, with the reason in _rejected (fail)",
    "computed_columns": "columns that are computed of those: speed_kn * 0.514444 AS speed_ms, ...",
    "delay": "accepted, but not used outside a join",
    **{name: STREAM_KEYS[name].brief for name in FORMAT_KEYS},
}

# Delta's names of options, in small letters.
_DELTA_NAMES = {"startingversion": "starting_version", "startingtimestamp": "starting_timestamp"}

DEFAULT_MAX_ROWS = 1_000_000  # records of a batch, where `max_rows_per_batch` is not given
_MAX_ROWS = 100_000_000  # the largest value of an option that counts rows
_MAX_PARTS = 4096  # the largest value of `parts`


@dataclass(frozen=True)
class SourceOptions:
    """The options of one reader.

    Parameters
    ----------
    streams : tuple of Stream
        The inputs; outside a join there is one.
    schemas : tuple of pyarrow.Schema
        The columns that are read, one schema for each stream.
    plan : Plan or None
        The join's plan; None outside a join.
    max_rows_per_batch : int
        Most records of a batch, all streams together.
    pace : float or None
        How many times as fast as real time event time may go; None: as fast as it can.
    parts : int
        Tasks that read one stream's share of a batch, of generators and files. A stream that has more of the batch than
        the others has more of the tasks.
    ignore_missing : bool
        Whether files may vanish after they were read and committed.
    max_block_rows : int
        Most tuples of one packed block.
    keep_broken : bool
        Whether a record that cannot be read becomes a row with the reason in ``_rejected``; False: it is an error.
        Only outside a join.
    cuts : tuple of dict
        Offsets, one after the other: a batch that begins at one of them ends at the next, as it did before. A restart
        that had to go back sets them, so that the batches that are done again hold the same records.
    max_delay_us : int or None
        How long a tuple may wait for the commit of its batch, in microseconds; None: no bound.
    trigger_us : int
        The least time from the start of one batch to the next, in microseconds, if the query keeps one.
    takes_all : bool
        Whether no limit of rows was given.
    available_now : bool
        Whether the reader itself is to end a run, because Spark cannot (4.0, 4.1); only in a join.
    """

    streams: tuple[Stream, ...]
    schemas: tuple[pa.Schema, ...]
    plan: Plan | None
    max_rows_per_batch: int
    pace: float | None
    parts: int
    ignore_missing: bool
    max_block_rows: int
    keep_broken: bool
    cuts: tuple[dict[str, Any], ...] = ()
    max_delay_us: int | None = None
    trigger_us: int = 0
    takes_all: bool = False
    available_now: bool = False

    @cached_property
    def keys(self) -> list[UniqueKey | None]:
        """Each stream's key of unique rows; None where it has none, and outside a join."""
        bound = None if self.plan is None else self.plan.bound
        return [None if bound is None else unique_key(bound, stream) for stream in range(len(self.streams))]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read options as Spark hands them over (the case of their names does not count).

        Raises
        ------
        ArgumentError
            An option is unknown, or its value cannot be read; the error names it.
        """
        given = {name.lower(): str(value) for name, value in options.items()}
        given = {_DELTA_NAMES.get(name, name): value for name, value in given.items()}
        joined = "plan" in given
        inner = {"plan", "cuts", "trigger", "available_now"}
        valid = {*inner, *READER_OPTIONS} if joined else {*READER_OPTIONS, *STREAM_OPTIONS}
        for name in given:
            if name not in valid:
                msg = f"the format sensors has no option {name}{' in a join' if joined else ''}"
                raise ArgumentError(msg, name=name, hint=names_hint(name, sorted(valid), "its options are"))
        # Options that need no look at files come first: their errors are the clearer ones.
        missing = _choice(given, "missing_files", ("error", "ignore"))
        keep_broken = _choice(given, "broken_rows", ("fail", "keep")) == "keep"
        pace = parse_pace(given.get("pace", "max"))
        bound_us = max_delay_us(given["max_delay"]) if "max_delay" in given else None
        trigger_us = duration_us(given.get("trigger", "0s"), "trigger")
        max_rows = _whole(given, "max_rows_per_batch", DEFAULT_MAX_ROWS, _MAX_ROWS)
        max_block_rows = _whole(given, "max_block_rows", 1 << 18, _MAX_ROWS)
        parts = _whole(given, "parts", 0, _MAX_PARTS)
        plan = _plan(given["plan"]) if joined else None
        streams = plan.bound.join.streams if plan is not None else (_stream(given),)
        schemas = (
            plan.bound.read_schemas[: len(streams)]
            if plan is not None
            else tuple(_all_columns(stream) for stream in streams)
        )
        if not (joined or keep_broken) and streams[0].quarantines:
            msg = "on_bad_file=quarantine turns bad files into broken rows, which broken_rows=fail refuses"
            raise ArgumentError(
                msg, name="on_bad_file", hint="add broken_rows=keep: such rows have the reason in _rejected"
            )
        if not parts:
            parts = 1 if plan is None else max(1, plan.partitions * (plan.execution.threads or 1) // len(streams))
        ignore = missing == "ignore"
        cuts = tuple(json.loads(given.get("cuts", "[]")))
        reading = (max_rows, pace, parts, ignore, max_block_rows, keep_broken)
        ends = "max_rows_per_batch" not in given, given.get("available_now") == "true"
        return cls(streams, schemas, plan, *reading, cuts, bound_us, trigger_us, *ends)


def checked_reader_options(given: Mapping[str, object]) -> dict[str, str]:
    """Return the options of a join's reader as texts; check them before anything is started.

    Raises
    ------
    ArgumentError
        An option is unknown, or its value cannot be read; the error names it.
    """
    texts = {name: str(value) for name, value in given.items()}
    for name in texts:
        if name not in READER_OPTIONS:
            msg = f"the source of a join has no option {name}"
            raise ArgumentError(msg, name=name, hint=names_hint(name, [*READER_OPTIONS], "its source options are"))
    _choice(texts, "missing_files", ("error", "ignore"))
    parse_pace(texts.get("pace", "max"))
    if "max_delay" in texts:
        max_delay_us(texts["max_delay"])
    for name, high in (("max_rows_per_batch", _MAX_ROWS), ("max_block_rows", _MAX_ROWS), ("parts", _MAX_PARTS)):
        _whole(texts, name, 1, high)
    return texts


def _plan(text: str) -> Plan:
    try:
        return Plan.from_json(text)
    except (ValueError, KeyError, TypeError):
        msg = "the option plan does not hold a join's plan"
        raise ArgumentError(
            msg, name="plan", hint="leave it to StreamJoin, which sets it with Plan.to_json()"
        ) from None


def _stream(given: Mapping[str, str]) -> Stream:
    if ("path" in given) == ("generator" in given):
        msg = "the format sensors needs either the option path or the option generator"
        raise ArgumentError(
            msg, name="path", hint='use .load("/folder") or .option("generator", "gen:band2d?rate=1000")'
        )
    source = given["path"] if "path" in given else parse_generator(given["generator"])
    columns = None
    if "columns" in given:
        try:
            columns = json.loads(given["columns"])
            usable = isinstance(columns, dict) and all(isinstance(kind, str) for kind in columns.values())
        except ValueError:
            usable = False
        if not usable:
            msg = "the option columns is not a JSON object of column names and type names"
            raise ArgumentError(msg, name="columns", hint='for example {"ts": "timestamp[us, tz=UTC]", "x": "double"}')
    stream = Stream(
        name="sensors",
        source=source,
        schema=columns,
        delay=given.get("delay", "0s"),
        columns=given.get("computed_columns") or None,
        **{name: _cased(given[name], name) for name in FORMAT_KEYS if name in given},
    )
    stream = with_table(stream)
    return replace(stream, columns=with_written(stream, infer_schema(stream))) if stream.columns else stream


def _cased(value: str, name: str) -> Any:
    """Return an option's text in small letters where it is one of a few; an empty one counts as not given."""
    return (value.lower() or None) if STREAM_KEYS[name].one_of else value


def _all_columns(stream: Stream) -> pa.Schema:
    """Return all of a stream's columns, with the types that they have inside this package."""
    found = all_columns(stream, infer_schema(stream))
    fields = []
    for column in found:
        if column.name in (TS, SEQ, "_rejected"):
            msg = f"the stream has a column '{column.name}', a name that the format sensors uses itself"
            raise ArgumentError(msg, name=column.name, hint="rename the column")
        kind = pa.timestamp("us", tz="UTC") if column.name == stream.time else result_type(column.type, column.name)
        fields.append(pa.field(column.name, kind, column.nullable))
    return pa.schema(fields)


def _whole(given: Mapping[str, str], name: str, default: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or len(text) > 18 or not 1 <= int(text) <= high:
        msg = f"the option {name} must be a whole number from 1 to {high}"
        raise ArgumentError(msg, name=name, hint=READER_OPTIONS[name])
    return int(text)


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = given.get(name, choices[0]).lower()
    if text not in choices:
        msg = f"the option {name} must be one of {', '.join(choices)}"
        raise ArgumentError(msg, name=name, hint=(READER_OPTIONS | STREAM_OPTIONS)[name])
    return text


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How to run a join; no option changes a row of its result. `StreamJoin.start` says what each one means."""

    available_now: bool = False
    trigger: str | None = None
    max_rows_per_batch: int | None = None
    max_delay: str | None = None
    layout: str = "auto"
    exchange: str = "auto"
    execution: Execution = DEFAULT_EXECUTION
    source_options: tuple[tuple[str, str], ...] = ()
    durable: bool = True
    take_over: bool = False
    cells: int | None = None
    restart: bool = False
    page: str | None = None
    metrics: str | None = None
    otlp: bool = False
    restarts: int = 0  # how often the query was started again before

    def __post_init__(self) -> None:
        for name in keys_of("start", "plan"):
            if getattr(self, name) is not None:
                RUN_KEYS[name].check_value(getattr(self, name), name)
        if self.available_now and self.trigger is not None:
            msg = "available_now and trigger exclude each other"
            raise ArgumentError(
                msg,
                name="trigger",
                hint="give one: available_now reads what is there and then stops, a trigger goes on",
            )
        if self.trigger is not None:
            duration_us(self.trigger, "trigger")
        if self.max_delay is not None:
            _check_delay(max_delay_us(self.max_delay), self.trigger)
        self.watched("").check()
        object.__setattr__(self, "source_options", tuple(checked_reader_options(dict(self.source_options)).items()))

    def watched(self, checkpoint: str) -> WatchOrder:
        """Return what is to be shown of the query to people and machines."""
        return WatchOrder(checkpoint, self.page, self.metrics, self.otlp)


class LocalOptions(TypedDict, total=False):
    """The arguments of `StreamJoin.run_local` that say how it runs; those of `StreamJoin.start`."""

    available_now: bool
    trigger: str | None
    max_rows_per_batch: int | None
    max_delay: str | None
    layout: str
    cells: int | None
    exchange: str
    durable: bool
    take_over: bool
    restart: bool
    page: str | None
    metrics: str | None
    otlp: bool


def _check_delay(bound_us: int, trigger: str | None) -> None:
    if trigger is not None and duration_us(trigger, "trigger") >= bound_us:
        msg = "trigger is not shorter than max_delay: a tuple may wait that long before its batch begins"
        raise ArgumentError(
            msg, name="max_delay", hint="give a shorter trigger, or none: the next batch then follows at once"
        )
