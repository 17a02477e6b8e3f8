"""A stream: its name, where its tuples come from, which column is the event time, and how late a tuple may be.

A stream's rate is the tuples a second that it brings. It matters to the choice of a layout and to no result.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from streamjoin_ds.duration import Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.columns import arrow_type, names_hint, zones_of
from streamjoin_ds.spec.expression.predicate import Column, stream_name
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, expression_facts, expression_from, streams_of
from streamjoin_ds.spec.member.source import (
    FOLDER_OPTIONS,
    GENERATOR_PREFIX,
    KAFKA_PREFIX,
    ON_CHANGE,
    TABLE_OPTIONS,
    Generator,
    check_folder_options,
    check_location,
    check_table_options,
    finished_after_text,
    folder_facts,
    starting_timestamp,
    starting_version,
    table_facts,
    time_of_results,
)
from streamjoin_ds.spec.member.unique_key import check_unique, unique_columns

__all__ = [
    "FORMATS",
    "GENERATOR_PREFIX",
    "ON_BAD_FILE",
    "PARTITION_BY",
    "TIME_UNITS",
    "Generator",
    "Stream",
    "checked_rate",
    "rate_from_text",
]

_HINT = "tuples a second, for example 20000"
FORMATS = ("auto", "csv", "json", "parquet", "spool", "delta", "results")
ON_BAD_FILE = ("stop", "quarantine")
PARTITION_BY = ("file", "folder")
TIME_UNITS = ("s", "ms", "us", "ns")
_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "space": " "}
_DELIMITERS = frozenset(" \t!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


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


@dataclass(frozen=True, slots=True)
class Stream:
    """One input of a join.

    Parameters
    ----------
    name : str
        Letters, digits and underscores; it becomes the prefix of the stream's columns in the result.
    source : str, Generator or None
        A file, a directory that grows (CSV, JSON lines, Parquet; compressed; a spool), here or in an object store
        (``s3://bucket/folder``; credentials come from the environment), a Delta table, a topic of Kafka, or a
        generator. A text ``gen:NAME?...`` is a generator too; a file of such a name is written ``./gen:...``. A topic
        is ``kafka://broker:9092/topic?format=json`` (docs/sources/kafka.md): each of its partitions is one of the
        stream's. None if the caller hands over the tuples: `JoinEngine.push`, `StreamJoin.dataframe`,
        ``StreamJoin.start(frames=...)``.
    time : str
        The column of the event time. Records without an event time are rejected and counted.
    delay : str or timedelta
        How far a tuple may be behind the largest time before it in its own stream; an older tuple is late
        (ARCHITECTURE.md, "Late").
    schema : pyarrow.Schema or mapping of column to Arrow type name, optional
        Columns and their types; by default inferred from the first file, or from a topic's messages in JSON.
    format : {"auto", "csv", "json", "parquet", "spool", "delta", "results"}
        The format of the files; "auto" goes by their names, and knows a Delta table by its folder. "spool" is what
        `streamjoin intake` writes: each payload is a JSON object. A declared column ``spool_received`` (timestamp),
        ``spool_topic`` (string) or ``spool_number`` (int64) is when a message came, its topic, and its number in the
        folder. "results" are the matches of another join: those that are complete, in the order of their event times;
        `time` is then ``event_time``. "delta" are the rows of any Delta table, in the order in which its versions added
        them. A table of matches is read as "results" where nothing is said.
    time_unit : {"s", "ms", "us", "ns"}
        The unit of an event time that is a number, also in dicts. Of a whole number, parts of a microsecond are cut off
        (towards the past); a float becomes the nearest microsecond, ties to the even one.
    where : str or Expression, optional
        A condition such as ``"altitude > 1000"``. Tuples for which it is not TRUE are left out at the source and
        counted as filtered. They still tell the time, so the results are those of the same condition in the join's
        predicates.
    delimiter : str
        The delimiter of CSV files: one ASCII character that is no letter, digit, double quote or line end; "tab" is a
        tab.
    idle_timeout : str or timedelta, optional
        After this time without a record the stream no longer holds the watermark, until it has records again. Of those
        records the ones that are older than the watermark are late. The time is measured by the source's clock. The
        decision is in the offset, so a replay repeats it. By default a silent stream holds punctuation and windows for
        ever. It may differ at each restart.
    max_ahead : str or timedelta, optional
        A record that is further ahead of the largest time before it in its own stream is rejected and moves no clock.
        The first record of a stream, and the first after it was idle, is measured against nothing. In a stream of
        partitions all of that is said of each partition. By default all records are taken. It may differ at each
        restart.
    on_bad_file : {"stop", "quarantine"}
        What happens when a file cannot be read any further, came too late, or is not what was read before. "stop" stops
        the stream. "quarantine" sets aside the rest of the file as one rejected row that names it. It may differ at
        each restart.
    rate : float, optional
        Tuples a second that the stream brings, greater than 0. The layout of a new checkpoint is chosen by it. Only the
        proportions of the streams' rates count, and no result depends on them. By default the rate at which the input
        begins.
    on_change : {"stop", "ignore"}
        What happens at a version of a Delta table that deletes or rewrites rows (DELETE, UPDATE, MERGE, overwrite).
        "stop" stops the stream. "ignore" reads nothing of such a version but the rows that it inserted, and these only
        where the table has a change feed. It may differ at each restart.
    starting_version : int or "latest", optional
        A Delta table is read from the changes of this version on, or from those after its newest version. By default
        the stream begins with all rows that the table has when the first batch is planned.
    starting_timestamp : str or datetime, optional
        As `starting_version`: the first version that was committed at this time or later. UTC unless it says otherwise.
    partition_by : {"file", "folder"}, optional
        The stream has many partitions, each with an order of its own, and no order among them: each file of the folder
        is one, or each sub-folder. Lateness is judged in each partition, and the stream's watermark is the smallest of
        its partitions' that are not idle (ARCHITECTURE.md, "Partitions"). By default the stream has one order.
    sub_folders : {"skip", "read"}
        "read" reads the files of all sub-folders too, in the order of their paths (ARCHITECTURE.md, "Folders"). Names
        such as ``date=2024-01-01`` are columns, which may be declared in `schema`. By default sub-folders are passed
        over, and a warning names one.
    file_order : {"name", "modified"}
        The order of a folder's files: by their names, or by the times of their last changes and, where these are equal,
        by their names. By "modified" each file must be whole: it is read once `finished_after` has passed (10 s by
        default) and must not change any more; one that is written again is a new file. Files without any order among
        them are partitions: ``partition_by="file"``.
    finished_after : str or timedelta, optional
        A file is finished once it has not been changed for so long, by the machine's clock. Until then no file after it
        is begun, and a Parquet or compressed file is not begun. By default a file is finished as soon as one after it
        is there. It moves the ends of batches and may differ at each restart.
    unique : str or sequence of str, optional
        The columns of a key, for sources that deliver at least once: ``"device,counter"``. Of tuples with one key that
        lie within the window the first one counts. The others are duplicates: they are counted, and not joined
        (ARCHITECTURE.md, "Duplicates"). In a stream of partitions that holds in each of them alone. A tuple with a null
        or NaN in the key is none. By default no tuple is.
    """

    name: str
    source: str | Generator | None = None
    time: str = "ts"
    delay: Duration = "0s"
    schema: pa.Schema | Mapping[str, str] | None = None
    format: str = "auto"
    time_unit: str = "us"
    where: str | Expression | None = None
    delimiter: str = ","
    idle_timeout: Duration | None = None
    max_ahead: Duration | None = None
    on_bad_file: str = "stop"
    rate: float | None = None
    on_change: str = "stop"
    starting_version: int | str | None = None
    starting_timestamp: str | datetime | None = None
    partition_by: str | None = None
    sub_folders: str = "skip"
    file_order: str = "name"
    finished_after: Duration | None = None
    unique: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        stream_name(self.name)
        object.__setattr__(self, "source", _source(self.source, self.name))
        if not isinstance(self.time, str) or not self.time:
            msg = f"stream {self.name} does not say which column is its event time"
            raise ArgumentError(msg, name=self.name, hint="for example time='ts'")
        object.__setattr__(self, "delay", duration_text(duration_us(self.delay, f"delay of {self.name}")))
        choices = (
            (self.format, FORMATS, "format"),
            (self.time_unit, TIME_UNITS, "time_unit"),
            (self.on_bad_file, ON_BAD_FILE, "on_bad_file"),
            (self.on_change, ON_CHANGE, "on_change"),
        )
        for value, valid, what in choices:
            if value not in valid:
                msg = f"stream {self.name} has an unknown {what}"
                raise ArgumentError(msg, name=what, hint=f"one of {', '.join(valid)}")
        object.__setattr__(self, "delimiter", _delimiter(self.delimiter, self.name))
        for name in ("idle_timeout", "max_ahead"):
            object.__setattr__(self, name, _positive(getattr(self, name), f"{name} of {self.name}"))
        if self.max_ahead is not None and isinstance(self.source, Generator):
            msg = f"stream {self.name} is generated, so it cannot have max_ahead"
            raise ArgumentError(
                msg, name="max_ahead", hint="leave it out: it is for files, whose records can be from the future"
            )
        object.__setattr__(self, "time", time_of_results(self))
        if self.schema is not None:
            object.__setattr__(self, "schema", checked_schema(self.schema, self.name))
            check_time_column(self.schema, self)
        if self.where is not None:
            object.__setattr__(self, "where", checked_condition(self.where, self.name))
        object.__setattr__(self, "rate", checked_rate(self.rate, self.name))
        object.__setattr__(self, "starting_version", starting_version(self.starting_version, self.name))
        object.__setattr__(self, "starting_timestamp", starting_timestamp(self.starting_timestamp, self.name))
        check_table_options(self)
        object.__setattr__(self, "finished_after", finished_after_text(self.finished_after, self.name))
        check_folder_options(self)
        if self.partition_kind is not None:
            _check_partitions(self)
        object.__setattr__(self, "unique", unique_columns(self.unique, self.name))
        check_unique(self)

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns of `unique`; none where duplicates are not looked for."""
        return tuple(self.unique or ())

    @property
    def time_zone(self) -> str | None:
        """The zone other than UTC in which `schema` declares the event time; a time without an offset is none then."""
        return zones_of(self.schema).get(self.time)

    @property
    def delay_us(self) -> int:
        """The allowed delay in microseconds."""
        return _delay_us(self.delay, self.name)

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic of Kafka."""
        return isinstance(self.source, str) and self.source.startswith(KAFKA_PREFIX)

    @property
    def partition_kind(self) -> str | None:
        """What a partition of the stream is: a "file", a "folder", a partition of a "topic"; None: it has one order."""
        return "topic" if self.is_topic else self.partition_by

    @property
    def idle_timeout_us(self) -> int | None:
        """After how many microseconds of silence the stream is idle; None: never."""
        return None if self.idle_timeout is None else _delay_us(self.idle_timeout, self.name)

    @property
    def max_ahead_us(self) -> int | None:
        """How many microseconds a record may be ahead of those before it; None: there is no limit."""
        return None if self.max_ahead is None else _delay_us(self.max_ahead, self.name)

    @property
    def finished_after_us(self) -> int | None:
        """After how many microseconds without a change a file is finished; None: where nothing is said."""
        return None if self.finished_after is None else _delay_us(self.finished_after, self.name)

    def to_facts(self) -> dict[str, object]:
        """Return the stream as plain JSON values; `Stream.from_facts` makes the stream of them again."""
        source = self.source.to_facts() if isinstance(self.source, Generator) else self.source
        clocks = {"idle_timeout_us": self.idle_timeout_us, "max_ahead_us": self.max_ahead_us}
        return {
            **{name: us for name, us in clocks.items() if us is not None},
            **({} if self.rate is None else {"rate": self.rate}),
            **table_facts(self),
            **({} if self.partition_by is None else {"partition_by": self.partition_by}),
            **folder_facts(self),
            **({} if self.unique is None else {"unique": [*self.unique]}),
            "name": self.name,
            "source": source,
            "time": self.time,
            "delay_us": self.delay_us,
            "format": self.format,
            "time_unit": self.time_unit,
            "delimiter": self.delimiter,
            "on_bad_file": self.on_bad_file,
            "schema": None if self.schema is None else schema_text(self.schema),
            "where": None if self.where is None else expression_facts(self.where),  # type: ignore[arg-type]
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Stream:
        """Return the stream that `to_facts` described."""
        source = facts["source"]
        if isinstance(source, Mapping):
            source = Generator(str(source["generator"]), dict(source["parameters"]))
        return cls(
            name=facts["name"],
            source=source,
            time=facts["time"],
            delay=f"{facts['delay_us']}us",
            schema=None if facts["schema"] is None else schema_from_text(facts["schema"]),
            format=facts["format"],
            time_unit=facts["time_unit"],
            delimiter=facts.get("delimiter", ","),  # facts of older versions do not have it
            on_bad_file=facts.get("on_bad_file", "stop"),  # nor this
            where=None if facts.get("where") is None else expression_from(facts["where"]),
            rate=facts.get("rate"),
            **{name: facts[name] for name in TABLE_OPTIONS if name in facts},
            partition_by=facts.get("partition_by"),
            **{name: facts[name] for name in (*FOLDER_OPTIONS, "unique") if name in facts},
            **{name: f"{facts[f'{name}_us']}us" for name in ("idle_timeout", "max_ahead") if f"{name}_us" in facts},
        )


def _check_partitions(stream: Stream) -> None:
    """Refuse what a stream of several partitions cannot have."""
    if stream.is_topic:
        for option, is_given in (
            ("partition_by", stream.partition_by is not None),
            ("format", stream.format != "auto"),
        ):
            if is_given:
                msg = f"stream {stream.name} is a topic, so it cannot have {option}"
                hint = "its partitions are the topic's, and its format stands in the URL: ?format=json"
                raise ArgumentError(msg, name=option, hint=hint)
    elif stream.partition_by not in PARTITION_BY:
        msg = f"stream {stream.name} has an unknown partition_by"
        raise ArgumentError(msg, name="partition_by", hint=f"one of {', '.join(PARTITION_BY)}, or leave it out")
    if isinstance(stream.source, Generator):
        msg = f"stream {stream.name} is generated, so it has no partitions"
        raise ArgumentError(msg, name="partition_by", hint="leave it out: it is for folders of files")
    for option, is_given in (("on_bad_file", stream.on_bad_file != "stop"),):
        if is_given:
            msg = f"stream {stream.name} has partitions, so it cannot have {option} yet"
            raise ArgumentError(
                msg, name=option, hint=f"leave it out{'' if stream.is_topic else ', or leave out partition_by'}"
            )


def check_time_column(schema: pa.Schema, stream: Stream) -> None:
    """Refuse a schema whose time column is missing or cannot be an event time."""
    if stream.time not in schema.names:
        msg = f"stream {stream.name} has no column '{stream.time}'"
        hint = names_hint(stream.time, schema.names, "its columns are")
        raise ColumnError(msg, name=stream.time, hint=hint)
    if schema.names.count(stream.time) > 1:
        msg = f"stream {stream.name} has more than one column '{stream.time}'"
        raise ColumnError(msg, name=stream.time, hint="rename one of them in the input")
    kind = schema.field(stream.time).type
    if not is_event_time(kind):
        msg = f"column '{stream.time}' of stream {stream.name} cannot be an event time: its type is {kind}"
        raise ColumnError(msg, name=stream.time, hint=time_hint(kind))


def time_hint(kind: pa.DataType) -> str:
    """Return what a column of a type that is no event time needs to become one."""
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return "a timestamp, a date, or a number with time_unit"
    return (
        "texts are read as times where they are ISO 8601, 2024-03-05T09:00:07Z, and these are not, or the column is "
        "handed over; make others timestamps before: to_timestamp(column, 'dd/MM/yyyy HH:mm:ss') of Spark, with "
        "start(frames=...), or to_datetime of pandas"
    )


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type can be an event time."""
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_integer(kind) or types.is_date(kind) or types.is_floating(kind))


def schema_text(schema: pa.Schema) -> str:
    """Return a schema as a text for JSON; names of types alone cannot say lists, structs and nullability."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """Return the schema that `schema_text` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


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


def _delimiter(given: object, name: str) -> str:
    character = _DELIMITER_NAMES.get(given, given) if isinstance(given, str) else ""
    if len(character) != 1 or character not in _DELIMITERS:
        msg = f"the delimiter of stream {name} cannot be used in a CSV file"
        raise ArgumentError(msg, name="delimiter", hint="for example , ; | : a space, or tab")
    return character


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


def _source(source: object, name: str) -> str | Generator | None:
    if isinstance(source, str) and source.startswith(GENERATOR_PREFIX):
        return Generator.parse(source)
    if source is None or isinstance(source, (str, Generator)):
        if isinstance(source, str):
            check_location(source, f"stream {name}")
        return source
    path = os.fspath(source) if isinstance(source, os.PathLike) else None
    if not isinstance(path, str):
        msg = f"the source of stream {name} is neither a path nor a generator"
        raise ArgumentError(msg, name=name, hint="a file or directory, or Generator(...)")
    return path


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
