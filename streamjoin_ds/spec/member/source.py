"""The source of a stream: a folder of files, a spool, a Delta table, a topic or a generator, and the options of each.

::

    Stream("e", "in/", sub_folders="read")           what TOML, flags and SQL say: options beside a location
    Stream("e", Files("in/", sub_folders="read"))    the same, as an object

Each kind of source is a class, and each option that it has is a field of it: the field says what the option is for, and
which values it has. What reads the source has the object. A new option is a field here, and what reads it.

An option that says nothing about a source is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qsl

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.member.files import (
    Files,
    NullValues,
    Spool,
    checked_csv,
    checked_records,
    csv_option,
    delimiter_of,
    metric_format,
    partitioned_by,
    records_option,
    refused_option,
)
from streamjoin_ds.spec.member.location import KAFKA_PREFIX, Located, check_choices, location_text
from streamjoin_ds.spec.member.option_key import LIST, OptionKey, option, options_of

__all__ = [
    "GENERATOR_PREFIX",
    "KINDS",
    "SOURCE_KEYS",
    "DeltaRows",
    "Generator",
    "Source",
    "Topic",
    "default_of",
    "given_options",
    "identity_of",
    "numbering_of",
    "only_columns",
    "source_facts",
    "source_from_facts",
    "source_of",
    "told_clock",
]

GENERATOR_PREFIX = "gen:"
_RESULTS_TIME = "event_time"
_NO_TIME, _NO_UNIT = "ts", "us"  # what a stream has that says nothing
# The time column and its unit in formats that fix both.
_FIXED_TIMES = {"influx": ("time", "ns"), "prometheus": ("time", "ms"), "senml": ("t", "s")}
_BY_COLUMNS = "Columns, such as device: their values have clocks of their own."


@dataclass(frozen=True, slots=True)
class DeltaRows(Located):
    """A Delta table: its rows in the order in which its versions added them, or the matches of another join.

    Parameters
    ----------
    path : str
        The folder of the table, here or in an object store.
    format : {"delta", "results", "auto"}
        "delta" are the rows of any table. "results" are the matches of another join: those that are complete, in the
        order of their event times; the time column is then ``event_time``. "auto": whichever of the two the table is.
    on_change : {"stop", "ignore"}
        What happens at a version of a Delta table that deletes or rewrites rows (DELETE, UPDATE, MERGE, overwrite).
        "stop" stops the stream. "ignore" reads nothing of such a version but the rows that it inserted, and these only
        where the table has a change feed. It may differ at each restart.
    starting_version : int or "latest", optional
        A Delta table is read from the changes of this version on, or from those after its newest version. By default
        the stream begins with all rows that the table has when the first batch is planned.
    starting_timestamp : str or datetime, optional
        As `starting_version`: the first version that was committed at this time or later. UTC unless it says otherwise.
    partition_by : str or sequence of str, optional
        Columns whose values have clocks of their own, as of `Files`.
    """

    path: str
    format: str = option("delta", "Format of the table.", one_of=("auto", "delta", "results"))
    on_change: str = option(
        "stop",
        "What happens at a version of a Delta table that deletes or rewrites rows: stop (the join stops) or ignore "
        "(only what it inserted is read, where the table has a change feed).",
        one_of=("stop", "ignore"),
        example="ignore",
        numbers=True,
    )
    starting_version: int | str | None = option(
        None,
        "A Delta table is read from the changes of this version on, or after its newest (latest).",
        (int, str),
        "[default: begin with the rows that the table has]",
        example=12,
        metavar="VERSION",
        numbers=True,
    )
    starting_timestamp: str | datetime | None = option(
        None,
        "A Delta table is read from the first version on that was committed then or later.",
        note="[default: begin with the rows that the table has]",
        example="2026-01-31T12:00:00Z",
        metavar="TIME",
        numbers=True,
    )
    partition_by: str | Sequence[str] | None = option(
        None, _BY_COLUMNS, (str, LIST), "[default: one clock]", example="device"
    )

    def checked(self, stream: str) -> DeltaRows:
        """Return the source with its options in one form each; raise ArgumentError where one cannot be."""
        located = super(DeltaRows, self).checked(stream)
        version = _starting_version(self.starting_version, stream)
        timestamp = _starting_timestamp(self.starting_timestamp, stream)
        if version is not None and timestamp is not None:
            msg = f"stream {stream} has both starting_version and starting_timestamp"
            raise ArgumentError(msg, name="starting_version", hint="leave one of the two out")
        for name in [*given_options(self)] if self.format == "results" else ():
            if name != "format":
                msg = f"stream {stream} reads the results of a join in their order, so it cannot have {name}"
                raise ArgumentError(msg, name=name, hint=f"leave {name} out, or set format=delta")
        columns = only_columns(self.partition_by, stream, "a table")
        return replace(located, starting_version=version, starting_timestamp=timestamp, partition_by=columns)


@dataclass(frozen=True, slots=True)
class Topic(Located):
    """A topic of Kafka: each of its partitions is one of the stream's (docs/sources/kafka.md).

    Parameters
    ----------
    url : str
        ``kafka://broker:9092/topic?format=json``: its parameters are listed by ``streamjoin help source kafka``.
    delimiter, decimal, thousands, null_values, quote, escape
        How messages in CSV are written, as of `Files`.
    records : str, optional
        Where records lie in messages in JSON, as of `Files`: a message may hold many.
    partition_by : str or sequence of str, optional
        Columns whose values have clocks of their own in each partition of the topic, as of `Files`.
    """

    url: str
    delimiter: str = option(
        ",", "What separates the fields of messages in CSV: one character, tab, or blanks.", example=";"
    )
    decimal: str = csv_option("decimal")
    thousands: str | None = csv_option("thousands")
    null_values: NullValues = csv_option("null_values")
    quote: str = csv_option("quote")
    escape: str | None = csv_option("escape")
    records: str | None = records_option()
    partition_by: str | Sequence[str] | None = option(
        None, _BY_COLUMNS, (str, LIST), "[default: one clock for each partition of the topic]", example="device"
    )

    @property
    def partition_kind(self) -> str:
        """What a partition of the stream is: one of the topic's."""
        return "topic"

    def checked(self, stream: str) -> Topic:
        """Return the source with its options in one form each; raise ArgumentError where one cannot be."""
        located = super(Topic, self).checked(stream)
        checked_records(self.records, stream)
        delimiter = delimiter_of(self.delimiter, stream)
        columns = only_columns(self.partition_by, stream, "a topic")
        return replace(located, delimiter=delimiter, partition_by=columns, **checked_csv(self, delimiter, stream))


@dataclass(frozen=True, slots=True)
class Generator:
    """A generated stream: the name of a generator and its parameters (see `streamjoin_ds.source.generator`).

    The tuples depend on the parameters alone: the same parameters give the same tuples.
    """

    partition_kind: ClassVar[None] = None
    device_columns: ClassVar[tuple[str, ...]] = ()

    name: str
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Generator:
        """Return the generator in a text of the form ``gen:band2d?side=r&rate=5117&seed=1``.

        The source checks later whether there is such a generator.

        Raises
        ------
        ArgumentError
            The text is not of this form.
        """
        name, _, query = text.removeprefix(GENERATOR_PREFIX).partition("?")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            pairs = [("", "")]
        misread = any(not key for key, _ in pairs) or len(dict(pairs)) != len(pairs)
        if misread or not text.startswith(GENERATOR_PREFIX):
            msg = "the text of a generator cannot be read"
            hint = f"write {GENERATOR_PREFIX}NAME?parameter=value&parameter=value, each parameter once"
            raise ArgumentError(msg, name="generator", hint=hint)
        return cls(name, {key: _number(value) for key, value in pairs})

    def to_facts(self) -> dict[str, object]:
        """Return the generator as plain JSON values."""
        return {"generator": self.name, "parameters": dict(sorted(self.parameters.items()))}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:  # noqa: PERF203 - two turns at most
            continue
    return text


Source: TypeAlias = Files | DeltaRows | Topic | Generator

# By the names under which `streamjoin help source` has them.
KINDS: dict[str, type] = {"files": Files, "spool": Spool, "delta": DeltaRows, "kafka": Topic, "gen": Generator}
# The options of all sources, each as the first kind that has it says.
SOURCE_KEYS: dict[str, OptionKey] = {}
for _kind in KINDS.values():
    SOURCE_KEYS |= {name: key for name, key in options_of(_kind).items() if name not in SOURCE_KEYS}
_OF_TABLES = tuple(name for name in options_of(DeltaRows) if name not in options_of(Files))
_NUMBERING = tuple(each.name for kind in (Files, DeltaRows) for each in fields(kind) if each.metadata.get("numbers"))
# Options that may be given to all streams of a join at once say nothing about these.
_IDLE: Mapping[type, tuple[str, ...]] = {
    Generator: ("delimiter", "format", "on_bad_file"),
    DeltaRows: ("delimiter",),
    type(None): ("delimiter", "format"),
}


def source_of(location: object, given: Mapping[str, Any], stream: str) -> Source | None:
    """Return the source that a location, and the options beside it, say.

    Parameters
    ----------
    location : str, path-like, a source or None
        A path, a URL, ``gen:NAME?...``, or the object itself, which has its options. None: tuples are handed over.
    given : mapping
        Options by their names. One at its default says nothing.
    stream : str
        The name of the stream, for errors.

    Raises
    ------
    ArgumentError
        It is no location, an option is none of this source, or a value is none of those that there are.
    """
    given = {name: value for name, value in given.items() if value != default_of(name)}
    if isinstance(location, Source):
        for name in given:
            msg = f"stream {stream} has a source with options, and {name} beside it"
            raise ArgumentError(msg, name=name, hint=f"write {type(location).__name__}(..., {name}=...)")
        return location if isinstance(location, Generator) else location.checked(stream)
    path = None if location is None else location_text(location, stream)
    kind = _kind_of(path, given)
    own = {} if kind is type(None) else {each.name for each in fields(kind)}
    check_choices(given, SOURCE_KEYS, stream)
    for name in given:
        if name not in own and name not in _IDLE.get(kind, ()):
            raise _refused(stream, name, kind)
    own_given = {name: value for name, value in given.items() if name in own}
    if path is None:
        return None
    if kind is Generator:
        return Generator.parse(path)
    if kind is Spool:
        del own_given["format"]
    elif kind is DeltaRows:
        own_given.setdefault("format", "auto")
    made: Source = kind(path, **own_given).checked(stream)
    return made


def default_of(name: str) -> Any:
    """Return the value of an option that says nothing."""
    kind = DeltaRows if name in _OF_TABLES else Files
    return kind.__dataclass_fields__[name].default


def _kind_of(path: str | None, given: Mapping[str, Any]) -> type:
    """Return the kind of source at a location with these options: "auto" with an option of tables is a table."""
    if path is None:
        return type(None)
    if path.startswith(GENERATOR_PREFIX):
        return Generator
    if path.startswith(KAFKA_PREFIX):
        return Topic
    form = given.get("format", "auto")
    if form in ("delta", "results") or (form == "auto" and any(name in _OF_TABLES for name in given)):
        return DeltaRows
    return Spool if form == "spool" else Files


def _refused(stream: str, name: str, kind: type) -> ArgumentError:
    if kind is Topic and name == "format":
        msg = f"stream {stream} is a topic, so it cannot have {name}"
        return ArgumentError(msg, name=name, hint="its format stands in the URL: ?format=json")
    if kind is Generator and name == "partition_by":
        return refused_option(stream, name, "is generated in the order of its times")
    why = "reads no Delta table" if name in _OF_TABLES else "reads no folder of files"
    why = "has no source" if kind is type(None) else why
    return refused_option(stream, name, why)


def given_options(source: Source | None) -> dict[str, Any]:
    """Return the options of a source that are not at their defaults, in the order of its fields."""
    if source is None:
        return {}
    found = {each.name: getattr(source, each.name) for each in fields(source) if "option" in each.metadata}
    return {name: value for name, value in found.items() if value != type(source).__dataclass_fields__[name].default}


def identity_of(source: Source | None) -> dict[str, tuple[str, Any]]:
    """Return the options on which results depend, that are not at their defaults: each with its name in refusals."""
    if source is None:
        return {}
    words = {each.name: str(each.metadata.get("identity", "")) for each in fields(source)}
    return {name: (words[name], value) for name, value in given_options(source).items() if words[name]}


def numbering_of(source: Source | None) -> dict[str, Any]:
    """Return all options on which the numbers of a source's tuples depend; `format` is one if it is a table's."""
    form = source.format if isinstance(source, DeltaRows) else "auto"
    found = {"format": form} | {name: getattr(source, name, default_of(name)) for name in _NUMBERING}
    kind = None if source is None else source.partition_kind
    return found | {"partition_by": kind if isinstance(source, Files) else None}  # columns number no tuple


def source_facts(source: Source | None) -> dict[str, Any]:
    """Return a source as plain JSON values, its options beside the location."""
    location = source.to_facts() if isinstance(source, Generator) else source and str(source)
    # Facts always had the three, and an older version needs them.
    usual = {"format": getattr(source, "format", "auto"), "delimiter": ",", "on_bad_file": "stop"}
    return {"source": location, **usual, **{name: _plain(value) for name, value in given_options(source).items()}}


def told_clock(source: Source | None, time: str, unit: str, stream: str, *, is_own: bool) -> dict[str, str]:
    """Return the time column of a stream and its unit, as far as its source's format fixes what nothing says.

    `is_own` tells that the stream itself declares or makes a column of the time's name.

    Raises
    ------
    ArgumentError
        The stream reads results, which have but one event time, and says another one.
    """
    if isinstance(source, DeltaRows) and source.format == "results":
        if time not in (_RESULTS_TIME, _NO_TIME):
            msg = f"stream {stream} reads the results of a join, whose event time is {_RESULTS_TIME}"
            hint = "leave time out; with format=delta any column can be the event time"
            raise ArgumentError(msg, name="time", hint=hint)
        return {"time": _RESULTS_TIME}
    form = ""
    if isinstance(source, Files):
        form = source.records or (metric_format(source.path) if source.format == "auto" else source.format)
    elif isinstance(source, Topic):
        form = source.records or dict(parse_qsl(source.url.partition("?")[2])).get("format", "")
    if is_own or time != _NO_TIME or form not in _FIXED_TIMES:
        return {}
    column, fixed = _FIXED_TIMES[form]
    return {"time": column, "time_unit": fixed if unit == _NO_UNIT else unit}


def _plain(value: Any) -> Any:
    """Return the value of an option as JSON gives it back."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [*value] if isinstance(value, tuple) else value


def source_from_facts(facts: Mapping[str, Any]) -> Source | None:
    """Return the source that `source_facts` described; an option that its kind has not is passed over."""
    location = facts["source"]
    if isinstance(location, Mapping):
        return Generator(str(location["generator"]), dict(location["parameters"]))
    told = {name: facts[name] for name in SOURCE_KEYS if name in facts and facts[name] != default_of(name)}
    kind = _kind_of(location, told)
    own = {} if location is None else options_of(kind) | {"format": None}
    return source_of(location, {name: value for name, value in told.items() if name in own}, facts["name"])


def only_columns(given: object, stream: str, what: str) -> tuple[str, ...] | None:
    """Return the columns by which a source is partitioned that has no files; None where there are none."""
    if given in ("file", "folder"):
        msg = f"stream {stream} is {what}, so it cannot be partitioned by {given}"
        hint = "name columns, for example device; column:file is one of that name"
        raise ArgumentError(msg, name="partition_by", hint=hint)
    columns = partitioned_by(given, stream)
    assert not isinstance(columns, str), "no text is a kind here"
    return columns


def _starting_version(given: object, name: str) -> int | str | None:
    """Return the version as a number, or "latest"; raise ArgumentError for anything else."""
    if given is None or given == "latest":
        return given
    version = int(given) if isinstance(given, str) and given.isdecimal() and len(given) < 19 else given
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        msg = f"starting_version of stream {name} is neither a version nor latest"
        raise ArgumentError(msg, name="starting_version", hint="a whole number from 0 on, or latest")
    return version


def _starting_timestamp(given: object, name: str) -> str | None:
    """Return the moment in ISO 8601, with its offset."""
    if given is None:
        return None
    moment = given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given.strip().removesuffix("Z"))
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        msg = f"starting_timestamp of stream {name} is no time"
        raise ArgumentError(msg, name="starting_timestamp", hint="for example 2026-01-31T12:00:00Z, or 2026-01-31")
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).isoformat()
