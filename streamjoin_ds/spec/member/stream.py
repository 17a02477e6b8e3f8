"""A stream: its name, where its tuples come from, which column is the event time, and how late a tuple may be.

A stream's rate is the tuples a second that it brings. It matters to the choice of a layout and to no result.

What the source of a stream may say stands in `streamjoin_ds.spec.member.source`; `STREAM_KEYS` are the options of both.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamjoin_ds.duration import Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.columns import arrow_type, names_hint, schema_from_text, schema_text
from streamjoin_ds.spec.expression.predicate import Column, stream_name
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, expression_facts, expression_from, streams_of
from streamjoin_ds.spec.member.computed_columns import (
    TIME_NAME,
    ComputedColumns,
    checked_columns,
    is_computed,
    with_stated,
    with_time,
)
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.member.option_key import LIST, TABLE, OptionKey, option, options_of
from streamjoin_ds.spec.member.source import (
    SOURCE_KEYS,
    DeltaRows,
    Generator,
    Source,
    Topic,
    default_of,
    given_options,
    only_columns,
    source_facts,
    source_from_facts,
    source_of,
    told_clock,
)
from streamjoin_ds.spec.member.time_column import (
    check_start,
    check_time_column,
    check_timezone,
    checked_forms,
    with_made_time,
    without_own_zone,
)
from streamjoin_ds.spec.member.unique_key import check_unique, unique_columns
from streamjoin_ds.spec.nested_path import path_name
from streamjoin_ds.spec.time_zone import zone_of

__all__ = ["FORMAT_KEYS", "PER_STREAM", "STREAM_KEYS", "Stream", "checked_rate", "rate_from_text"]

_HINT = "tuples a second, for example 20000"


def checked_rate(rate: object, name: str) -> float | None:
    """Return a rate as a float, or None where none is given.

    Raises
    ------
    ArgumentError
        It is not a finite number greater than 0.
    """
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0 or not math.isfinite(rate):
        msg = f"the rate of {name} must be a number greater than 0"
        raise ArgumentError(msg, name="rate", hint=_HINT)
    return float(rate)


def rate_from_text(text: str, name: str) -> float | None:
    """Return the rate that the text of a flag gives.

    Raises
    ------
    ArgumentError
        As `checked_rate`.
    """
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    return checked_rate(rate, name)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Stream:
    """One input of a join.

    Parameters
    ----------
    name : str
        Letters, digits and underscores; it becomes the prefix of the stream's columns in the result.
    source : str, path-like, Files, Spool, DeltaRows, Topic, Generator or None
        Where the tuples come from: one of the objects, which has its options, or a text. A text is a file or a
        directory that grows (CSV, JSON lines, Parquet; compressed; a spool), here or in an object store
        (``s3://bucket/folder``; credentials come from the environment), a Delta table, a topic of Kafka
        (``kafka://broker:9092/topic?format=json``), or a generator (``gen:NAME?...``; a file of such a name is written
        ``./gen:...``). None if the caller hands over the tuples: `JoinEngine.push`, `StreamJoin.dataframe`,
        ``StreamJoin.start(frames=...)``. The attribute is the object.
    time : str
        The column of the event time, or an expression, ``Date || ' ' || Time``, which makes the column ``ts``. Records
        without an event time are rejected and counted. Where it is not said, line protocol ("time", in "ns"),
        Prometheus' text ("time", in "ms") and SenML ("t", in "s") have their own.
    delay : str or timedelta
        How far a tuple may be behind the largest time before it in its own stream; an older tuple is late
        (ARCHITECTURE.md, "Late").
    schema : pyarrow.Schema or mapping of column to Arrow type name, optional
        Columns and their types; by default inferred from the files that are there, or from a topic's messages in JSON.
    time_unit : {"s", "ms", "us", "ns"}
        The unit of an event time that is a number, also in dicts. Of a whole number, parts of a microsecond are cut off
        (towards the past); a float becomes the nearest microsecond, ties to the even one.
    time_format : str or sequence of str, optional
        How the event times are written, as texts or numbers: in strptime's letters (``"%d/%m/%Y %H:%M:%S.%f"``), or
        "excel" (days since 1899-12-30), "doy" (year, day of the year, hhmm), "labview" (seconds since 1904), "gps"
        (seconds since 1980, or week and second), or "iso" (as without this option). Several, also as one text with
        ``|`` between them, are tried in their order for each value (docs/joins/event-time.md). Timestamps and dates are
        taken as they are.
    timezone : str, optional
        The zone of event times that say no offset, as texts, timestamps or dates: a name of the tz database such as
        ``"Europe/Berlin"``, an offset, or the name of a column that holds zones (``EST``, ``+01:00``,
        ``Europe/Berlin``). A time that the zone's clock skips is rejected. Of one that it shows twice the meaning
        counts that is nearer to the largest time before it (docs/joins/event-time.md). By default it is UTC.
    time_start : str, optional
        The time from which event times count that are numbers of `time_unit`; by default it is 1970. With `time_step`
        it is the time of a file's first record: a time, or ``"line 1"``, the first field of a line that `skip_lines`
        passes over.
    time_step : str, optional
        The records of CSV files say no time: number n of a file is n steps after `time_start`. A duration, a rate
        (``"4 Hz"``), or ``"line 2"``, the first field of a line that `skip_lines` passes over: a rate in Hz, or with
        ``"line 2 s"`` a step in seconds. `time` names the column that they get.
    where : str or Expression, optional
        A condition such as ``"altitude > 1000"``. Tuples for which it is not TRUE are left out at the source and
        counted as filtered. They still tell the time, so the results are those of the same condition in the join's
        predicates.
    idle_timeout : str or timedelta, optional
        After this time without a record the stream no longer holds the watermark, until it has records again. Of those
        records the ones that are older than the watermark are late. The time is measured by the source's clock. The
        decision is in the offset, so a replay repeats it. By default a silent stream holds punctuation and windows for
        ever. It may differ at each restart.
    max_ahead : str or timedelta, optional
        A record that is further ahead of the largest time before it in its own stream is rejected and moves no clock.
        The first record of a stream, and the first that moves its clock after it was idle, is measured against nothing.
        In a stream of partitions all of that is said of each partition. By default all records are taken. It may differ
        at each restart.
    rate : float, optional
        Tuples a second that the stream brings, greater than 0. The layout of a new checkpoint is chosen by it. Only the
        proportions of the streams' rates count, and no result depends on them. By default the rate at which the input
        begins.
    unique : str or sequence of str, optional
        The columns of a key, for sources that deliver at least once: ``"device,counter"``. Of tuples with one key that
        lie within the window the first one counts. The others are duplicates: they are counted, and not joined
        (ARCHITECTURE.md, "Duplicates"). In a stream of partitions that holds in each of them alone. A tuple with a null
        or NaN in the key is none. By default no tuple is.
    columns : mapping of str to str or Expression, or str, or sequence of str, optional
        Columns that are computed of those that are written: ``{"speed_ms": "speed_kn * 0.514444"}``, or as a text
        ``"speed_kn * 0.514444 AS speed_ms"``, with commas between several. They are columns like any other, also as
        `time`, in `where` and in `unique`. One may have the name of a written column, and takes its place; its
        expression reads the written one. A record whose column SQL would fail to compute is rejected. By default there
        are none.
    **options
        Those of `Files`, `Spool`, `DeltaRows` and `Topic`, beside a source that is a text: ``delimiter=";"``.

    Raises
    ------
    ArgumentError, ColumnError, PredicateError
        An option is unknown or cannot be had by this source, or a value is none that there is; the error names it.
    """

    name: str
    source: Source | None = option(
        None,
        "A file, a folder that grows (s3://BUCKET/FOLDER too), a Delta table, kafka://BROKER/TOPIC?format=json, or "
        "gen:NAME?KEY=VALUE&...",
        note="[required]",
        example="flights.csv.gz",
    )
    time: str = option(
        "ts",
        "Column of the event time. Line protocol, Prometheus' text and SenML have their own, and its unit.",
        example="ts",
        metavar="COLUMN",
    )
    delay: Duration = option("0s", "How late a tuple may be.", example="30s", metavar="DURATION")
    schema: pa.Schema | Mapping[str, str] | None = option(
        None,
        "Columns and their Arrow types.",
        (TABLE,),
        "[default: inferred from the files that are there]",
        example={"ts": "timestamp[us, tz=UTC]", "x": "double"},
    )
    time_unit: str = option(
        "us", "Unit of an event time that is a number.", one_of=("s", "ms", "us", "ns"), example="ms"
    )
    time_format: str | Sequence[str] | None = option(
        None,
        "How event times are written: strptime's letters, or excel, doy, labview, gps, iso. Several with | between "
        "them are tried in their order.",
        (str, LIST),
        "[default: ISO 8601 or nearly that, or numbers in time_unit]",
        example="%d/%m/%Y %H:%M:%S",
        metavar="FORM",
    )
    timezone: str | None = option(
        None,
        "The zone of event times that say no offset, or the column that holds their zones.",
        note="[default: UTC]",
        example="Europe/Berlin",
        metavar="ZONE",
    )
    time_start: str | None = option(
        None,
        "The time from which event times that are numbers count; or with time_step that of the first record of a file: "
        "a time, or 'line 1' of each file.",
        note="[default: 1970]",
        example="2024-03-05T09:00:00Z",
        metavar="TIME",
    )
    time_step: str | None = option(
        None,
        "The time between two lines of a file of CSV, whose records say none: 250ms, '4 Hz', or 'line 2' of each file, "
        "a rate in Hz.",
        note="[default: records have a time]",
        example="4 Hz",
        metavar="STEP",
    )
    where: str | Expression | None = option(
        None,
        "A condition on the tuples; others are left out.",
        (str, LIST),
        "[default: all]",
        example="altitude > 1000",
    )
    idle_timeout: Duration | None = option(
        None,
        "Time without a record after which a stream no longer holds up the others.",
        note="[default: never]",
        example="10m",
        metavar="DURATION",
    )
    max_ahead: Duration | None = option(
        None,
        "A record that is further ahead of its stream than this is rejected.",
        note="[default: no limit]",
        example="1h",
        metavar="DURATION",
    )
    rate: float | None = option(
        None,
        "Tuples a second, by which the layout is chosen at first.",
        (float,),
        "[default: the rate at which the input begins]",
        example=20_000,
        metavar="NUMBER",
    )
    unique: str | Sequence[str] | None = option(
        None,
        "Columns of a key, for sources that deliver at least once: a tuple that repeats the key of one before it, "
        "within the window and in its partition or device, is left out and counted.",
        (str, LIST),
        "[default: each tuple counts]",
        example=["device", "counter"],
    )
    columns: ComputedColumns | None = option(
        None,
        "Columns that are computed of those that are written, before all else.",
        (TABLE, str, LIST),
        "[default: none]",
        example={"speed_ms": "speed_kn * 0.514444"},
    )
    # Those columns that are paths into other ones; known once the stream's columns are.
    nested: tuple[str, ...] = ()
    # The columns of `partition_by` of a stream without a source, whose tuples are handed over.
    devices: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        source: object = None,
        time: str = "ts",
        delay: Duration = "0s",
        schema: pa.Schema | Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        stream_name(name)
        given = {"name": name, "time": time, "delay": delay, "schema": schema}
        for field in fields(self):
            self._set(field.name, given[field.name] if field.name in given else options.pop(field.name, field.default))
        for unknown in [each for each in options if each not in SOURCE_KEYS]:
            msg = f"stream {name} has no option '{unknown}'"
            raise ArgumentError(msg, name=unknown, hint=names_hint(unknown, [*STREAM_KEYS], "its options are"))
        if source is None and options.get("partition_by") is not None:
            self._set("devices", only_columns(options.pop("partition_by"), name, "without a source"))
        self._set("source", source_of(source, options, name))
        self._check()

    def _check(self) -> None:
        if not isinstance(self.time, str) or not self.time:
            msg = f"stream {self.name} does not say which column is its event time"
            raise ArgumentError(msg, name=self.name, hint="for example time='ts'")
        self._set("time", path_name(self.time))
        self._set("delay", duration_text(duration_us(self.delay, f"delay of {self.name}")))
        units = STREAM_KEYS["time_unit"].one_of
        if self.time_unit not in units:
            msg = f"stream {self.name} has an unknown time_unit"
            raise ArgumentError(msg, name="time_unit", hint=f"one of {', '.join(units)}")
        self._set("time_format", checked_forms(self.time_format, self))
        check_timezone(self)
        check_start(self)
        for name in ("idle_timeout", "max_ahead"):
            self._set(name, _positive(getattr(self, name), f"{name} of {self.name}"))
        if self.max_ahead is not None and isinstance(self.source, Generator):
            msg = f"stream {self.name} is generated, so it cannot have max_ahead"
            raise ArgumentError(
                msg, name="max_ahead", hint="leave it out: it is for files, whose records can be from the future"
            )
        self._set("columns", checked_columns(self.columns, self.name))
        if self.schema is not None:
            self._set("schema", checked_schema(self.schema, self.name))
        known = [*(self.schema.names if isinstance(self.schema, pa.Schema) else ())]
        known += self.columns.names if self.columns else ()
        is_own = self.time in known or self.time_step is not None
        for name, value in told_clock(self.source, self.time, self.time_unit, self.name, is_own=is_own).items():
            self._set(name, value)
        if isinstance(self.schema, pa.Schema) and self.time_step is not None:
            self._set("schema", with_made_time(self.schema, self.time))
        if self.schema is not None and self.timezone is not None:
            self._set("schema", without_own_zone(self.schema, self.time))
        self._check_columns()
        if self.schema is not None and not is_computed(self, self.time):
            check_time_column(self.schema, self)
        if self.where is not None:
            self._set("where", checked_condition(self.where, self.name))
        self._set("rate", checked_rate(self.rate, self.name))
        self._set("unique", unique_columns(self.unique, self.name))
        check_unique(self)

    def _check_columns(self) -> None:
        declared = self.schema.names if isinstance(self.schema, pa.Schema) else ()
        made = with_time(self.columns, self.time, declared, self.name)
        if made is not None:
            self._set("columns", made)
            self._set("time", TIME_NAME)
        if self.columns is None:
            return
        if is_computed(self, self.time) and isinstance(self.source, Generator):
            msg = f"stream {self.name} is generated, so its event time is its own and is not computed"
            raise ArgumentError(
                msg, name="time", hint="leave time out: the generated column has the name that time says"
            )
        schema, columns = with_stated(self)
        self._set("schema", schema)
        self._set("columns", columns)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an option of the source: it was an attribute of the stream once, and is, with a warning."""
            if name not in SOURCE_KEYS:
                raise AttributeError(name)
            warnings.warn(f"read stream.source.{name}: it is an option of the source", DeprecationWarning, stacklevel=2)
            return getattr(self.source, name, default_of(name))

    def __repr__(self) -> str:
        """Return what was given that is not at its default, as it is written in Python."""
        given = [] if self.source is None else [repr(self.location)]
        names = [one.name for one in fields(self) if one.name not in ("name", "source", "nested")]
        own = {name: getattr(self, name) for name in names}
        own = {name: value for name, value in own.items() if value != type(self).__dataclass_fields__[name].default}
        own |= {"where": str(self.where)} if self.where is not None else {}
        own |= {"columns": {name: str(made) for name, made in self.columns.expressions}} if self.columns else {}
        if isinstance(self.schema, pa.Schema):
            own["schema"] = {field.name: str(field.type) for field in self.schema}
        own |= {"partition_by": own.pop("devices")} if "devices" in own else {}
        options = [f"{name}={value!r}" for name, value in {**given_options(self.source), **own}.items()]
        return f"Stream({', '.join([repr(self.name), *given, *options])})"

    @property
    def location(self) -> str | Generator | None:
        """Where the tuples come from: a path, a URL or the generator. Streams with the same are over one input."""
        return self.source if self.source is None or isinstance(self.source, Generator) else str(self.source)

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns of `unique`; none where duplicates are not looked for."""
        return tuple(self.unique or ())

    @property
    def written_time(self) -> str:
        """The written column that is the event time; empty where that is computed."""
        return "" if is_computed(self, self.time) else self.time

    @property
    def time_forms(self) -> tuple[str, ...]:
        """The forms of `time_format`; none where times are read without one."""
        return tuple(self.time_format or ())

    @property
    def clock_facts(self) -> dict[str, Any]:
        """The options that say how event times are read, as plain JSON values; none of those at their defaults."""
        facts = {"time_format": [*self.time_forms] or None, "timezone": self.timezone}
        facts |= {"time_start": self.time_start, "time_step": self.time_step}
        return {name: value for name, value in facts.items() if value is not None}

    @property
    def zone_column(self) -> str | None:
        """The column that holds the zones of event times; None: there is none."""
        return None if self.timezone is None or zone_of(self.timezone) is not None else self.timezone

    @property
    def makes_times(self) -> bool:
        """Whether the source makes the event times: a generator, and the matches of another join."""
        return isinstance(self.source, Generator) or self.reads_results

    @property
    def has_local_times(self) -> bool:
        """Whether an event time may be one that a clock shows twice, so that its order tells which it is."""
        zone = None if self.timezone is None else zone_of(self.timezone)
        is_fixed = self.timezone is None or (zone is not None and zone.is_fixed)
        return not is_fixed or any("%Z" in form for form in self.time_forms)

    @property
    def delay_us(self) -> int:
        """The allowed delay in microseconds."""
        return _delay_us(self.delay, self.name)

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic of Kafka."""
        return isinstance(self.source, Topic)

    @property
    def partition_kind(self) -> str | None:
        """What a partition of the stream is: a "file", a "folder", a partition of a "topic"; None: it has one order."""
        return None if self.source is None else self.source.partition_kind

    @property
    def device_columns(self) -> tuple[str, ...]:
        """The columns whose values have clocks of their own; none: there is one clock for each order."""
        return self.devices if self.source is None else self.source.device_columns

    @property
    def is_judged_at_source(self) -> bool:
        """Whether the source judges lateness, by clocks of partitions or devices that only it knows."""
        return self.partition_kind is not None or bool(self.device_columns)

    @property
    def files(self) -> Files:
        """The source of a stream that reads files; of no other is it asked."""
        assert isinstance(self.source, Files)
        return self.source

    @property
    def delta_rows(self) -> DeltaRows:
        """The source of a stream over a table; of no other is it asked."""
        assert isinstance(self.source, DeltaRows)
        return self.source

    @property
    def quarantines(self) -> bool:
        """Whether a bad file of the stream is set aside."""
        return isinstance(self.source, Files) and self.source.quarantines

    @property
    def reads_results(self) -> bool:
        """Whether the stream reads the matches of another join, in their order."""
        return isinstance(self.source, DeltaRows) and self.source.format == "results"

    @property
    def idle_timeout_us(self) -> int | None:
        """After how many microseconds of silence the stream is idle; None: never."""
        return None if self.idle_timeout is None else _delay_us(self.idle_timeout, self.name)

    @property
    def max_ahead_us(self) -> int | None:
        """How many microseconds a record may be ahead of those before it; None: there is no limit."""
        return None if self.max_ahead is None else _delay_us(self.max_ahead, self.name)

    def to_facts(self) -> dict[str, object]:
        """Return the stream as plain JSON values; `Stream.from_facts` makes the stream of them again."""
        clocks = {"idle_timeout_us": self.idle_timeout_us, "max_ahead_us": self.max_ahead_us}
        return {
            **{name: us for name, us in clocks.items() if us is not None},
            **({} if self.rate is None else {"rate": self.rate}),
            **({} if self.unique is None else {"unique": [*self.unique]}),
            **self.clock_facts,
            **({} if self.columns is None else {"columns": self.columns.to_facts()}),
            **({"nested": [*self.nested]} if self.nested else {}),
            **({"devices": [*self.devices]} if self.devices else {}),
            **source_facts(self.source),
            "name": self.name,
            "time": self.time,
            "delay_us": self.delay_us,
            "time_unit": self.time_unit,
            "schema": None if self.schema is None else schema_text(self.schema),
            "where": None if self.where is None else expression_facts(self.where),  # type: ignore[arg-type]
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Stream:
        """Return the stream that `to_facts` described."""
        return cls(
            name=facts["name"],
            source=source_from_facts(facts),
            time=facts["time"],
            delay=f"{facts['delay_us']}us",
            schema=None if facts["schema"] is None else schema_from_text(facts["schema"]),
            time_unit=facts["time_unit"],
            where=None if facts.get("where") is None else expression_from(facts["where"]),
            rate=facts.get("rate"),
            unique=facts.get("unique"),
            time_format=facts.get("time_format"),
            **{name: facts.get(name) for name in ("timezone", "time_start", "time_step")},
            columns=ComputedColumns.from_facts(facts["columns"]) if "columns" in facts else None,
            nested=tuple(facts.get("nested", ())),
            devices=tuple(facts.get("devices", ())),
            **{name: f"{facts[f'{name}_us']}us" for name in ("idle_timeout", "max_ahead") if f"{name}_us" in facts},
        )


# The options of a stream and of its source, by their names: what is written in TOML, flags, SQL and `Stream(...)`.
STREAM_KEYS: dict[str, OptionKey] = options_of(Stream) | SOURCE_KEYS

# Those that a flag, or a key of the whole file, gives to all streams or to some in one form: 30s, or e=30s.
# The others have forms of their own there, or values with a comma or an equals sign.
_CSV_FORMS = ("decimal", "comment", "thousands", "null_values", "quote", "escape", "quoted_lines", "widths")
_OWN_FORMS = ("source", "schema", "delimiter", "where", "unique", "columns", *_CSV_FORMS)
PER_STREAM = tuple(name for name in STREAM_KEYS if name not in _OWN_FORMS)

# Those of ``format("sensors")``, which reads one stream without a join.
FORMAT_KEYS = (
    *("delimiter", *_CSV_FORMS),
    *(name for name in PER_STREAM if name not in ("delay", "idle_timeout", "max_ahead", "rate")),
)


@lru_cache(maxsize=256)  # needed for every stream in every batch
def _delay_us(delay: Duration, name: str) -> int:
    return duration_us(delay, f"delay of {name}")


def _positive(given: Duration | None, what: str) -> str | None:
    if given is None:
        return None
    microseconds = duration_us(given, what)
    if not microseconds:
        msg = f"{what} must be longer than 0"
        raise ArgumentError(msg, name=what.split()[0], hint="for example '10m'; leave it out to have none")
    return duration_text(microseconds)


def checked_condition(where: object, name: str) -> Expression:
    """Return a condition on one stream or table; raise ArgumentError or PredicateError where it is none."""
    if isinstance(where, str):
        # Imported here: a worker is sent facts, and needs no SQL parser.
        from streamjoin_ds.spec.expression.parser import parse_condition

        return parse_condition(where, name)
    if not isinstance(where, (Column, Literal, Call)):
        msg = f"where of stream {name} must be a condition, not {type(where).__name__}"
        raise ArgumentError(msg, name="where", hint="a text, for example 'altitude > 1000'")
    for stream in streams_of(where):
        if stream != name:
            msg = f"where of stream {name} names the stream '{stream}'"
            raise ArgumentError(msg, name="where", hint="put a condition on several streams into the join's predicates")
    return where


def checked_schema(schema: object, name: str) -> pa.Schema:
    """Return the schema that was given for a stream or table, in any of its forms."""
    if isinstance(schema, pa.Schema):
        return schema
    if not isinstance(schema, Mapping):
        msg = f"the schema of stream {name} must be a schema or a mapping, not {type(schema).__name__}"
        raise ArgumentError(msg, name=name, hint="a pyarrow.Schema, or a mapping of column names to Arrow type names")
    return pa.schema([_field(column, kind, name) for column, kind in schema.items()])


def _field(column: object, kind: object, name: str) -> pa.Field:
    try:
        return pa.field(column, arrow_type(kind) if isinstance(kind, str) else kind)
    except (ValueError, KeyError, TypeError):
        msg = f"the schema of stream {name} gives column '{column}' an unknown type"
        hint = "an Arrow type, such as int64, double, string, timestamp[us, tz=UTC], list<int32> or "
        hint += "struct<x: int32, y: string>; or pass a pyarrow.Schema"
        raise ColumnError(msg, name=str(column), hint=hint) from None
