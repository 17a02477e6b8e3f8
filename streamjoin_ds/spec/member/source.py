"""The source of a stream: a folder of files, a Delta table, a topic or a generator, and the options that each has.

A location is a text that stands in plans, checkpoints and errors, so it holds no secret. A generator is known by its
name and parameters.

The options of a folder say which sub-folders are read, in which order, and when a file is whole. Those of a Delta table
say where a stream over it begins, and what happens at a change. An option that says nothing about the stream's source
is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from streamjoin_ds.duration import Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError

__all__ = [
    "FILE_ORDER",
    "FOLDER_OPTIONS",
    "GENERATOR_PREFIX",
    "KAFKA_PREFIX",
    "ON_CHANGE",
    "SUB_FOLDERS",
    "TABLE_OPTIONS",
    "FolderStream",
    "Generator",
    "TableStream",
    "check_folder_options",
    "check_location",
    "check_table_options",
    "finished_after_text",
    "folder_facts",
    "refused_option",
    "starting_timestamp",
    "starting_version",
    "table_facts",
    "time_of_results",
]

KAFKA_PREFIX = "kafka://"
_STORE_SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
GENERATOR_PREFIX = "gen:"
SUB_FOLDERS = ("skip", "read")
FILE_ORDER = ("name", "modified")
# The options, with the values that say nothing.
FOLDER_OPTIONS = {"sub_folders": "skip", "file_order": "name", "finished_after": None}
ON_CHANGE = ("stop", "ignore")
TABLE_OPTIONS = ("on_change", "starting_version", "starting_timestamp")
_RESULTS_TIME = "event_time"


def check_location(source: str, owner: str) -> None:
    """Refuse a location that holds credentials, or that of an object store with options.

    Parameters
    ----------
    source : str
        A path or a URL.
    owner : str
        What it is the location of, for the message: "stream e".

    Raises
    ------
    ArgumentError
        It does; nothing of the location is repeated.
    """
    scheme, separator, rest = source.partition("://")
    if not separator:
        return
    if source.startswith(KAFKA_PREFIX):
        _check_topic(rest, owner)
    elif scheme in _STORE_SCHEMES:
        _check_store(scheme, rest, owner)


def _check_store(scheme: str, rest: str, owner: str) -> None:
    user = rest.partition("/")[0].rpartition("@")[0]
    if "?" in rest or (user and (":" in user or scheme.startswith("s3"))):
        msg = f"the location of {owner} holds credentials or options, which do not belong there"
        hint = (
            "give s3://bucket/folder alone; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, "
            "or AWS_PROFILE, say the rest (docs/sources/object-stores.md)"
        )
        raise ArgumentError(msg, name="source", hint=hint)


def _check_topic(rest: str, owner: str) -> None:
    place, _, query = rest.partition("?")
    if "@" in place.partition("/")[0]:
        msg = f"the URL of {owner} holds credentials, which do not belong there"
        hint = "write sasl.username and sasl.password into a file, and name the file: settings=FILE"
        raise ArgumentError(msg, name="url", hint=hint)
    for parameter, value in parse_qsl(query):
        if parameter == "registry" and _has_login(value):
            msg = f"the registry of {owner} holds credentials, which do not belong there"
            hint = "a login is a setting of the file that settings=FILE names: "
            hint += "schema.registry.basic.auth.user.info=user:password"
            raise ArgumentError(msg, name="registry", hint=hint)


def _has_login(url: str) -> bool:
    try:
        return "@" in urlsplit(url).netloc
    except ValueError:  # it is no URL, so nobody can tell what of it is a secret
        return True


@dataclass(frozen=True, slots=True)
class Generator:
    """A generated stream: the name of a generator and its parameters (see `streamjoin_ds.source.generator`).

    The tuples depend on the parameters alone: the same parameters give the same tuples.
    """

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


class FolderStream(Protocol):
    """What these checks ask of a `Stream`; each property is that of the stream."""

    @property
    def name(self) -> str:
        """The stream's name."""

    @property
    def source(self) -> object:
        """Where its tuples come from."""

    @property
    def format(self) -> str:
        """The format of its files."""

    @property
    def partition_by(self) -> str | None:
        """What a partition of it is."""

    @property
    def file_order(self) -> str:
        """The order of its files."""

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic of Kafka."""


def folder_facts(stream: FolderStream) -> dict[str, object]:
    """Return the options of folders that are not at their defaults, as plain JSON values."""
    facts = {name: getattr(stream, name) for name in FOLDER_OPTIONS}
    return {name: value for name, value in facts.items() if value != FOLDER_OPTIONS[name]}


def finished_after_text(given: Duration | None, name: str) -> str | None:
    """Return the duration as a text; "0s" is one: a file counts as finished at once."""
    if given is None:
        return None
    return duration_text(duration_us(given, f"finished_after of {name}"))


def check_folder_options(stream: FolderStream) -> None:
    """Refuse an option of folders whose value is unknown, or that says nothing about the stream's source.

    Raises
    ------
    ArgumentError
        The error names the option.
    """
    for name, valid in (("sub_folders", SUB_FOLDERS), ("file_order", FILE_ORDER)):
        if getattr(stream, name) not in valid:
            msg = f"stream {stream.name} has an unknown {name}"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(valid)}")
    for name in folder_facts(stream):
        if not isinstance(stream.source, str) or stream.is_topic or stream.format in ("delta", "results"):
            raise refused_option(stream.name, name, "reads no folder of files")
    if stream.file_order == "modified":
        if stream.format == "spool":
            raise refused_option(stream.name, "file_order", "reads a spool, whose segments have an order of their own")
        if stream.partition_by == "file":
            msg = f"stream {stream.name} has no order among its files, so it cannot have file_order"
            hint = "leave it out, or leave out partition_by=file"
            raise ArgumentError(msg, name="file_order", hint=hint)


def refused_option(stream: str, name: str, why: str) -> ArgumentError:
    """Return the error for an option that the stream cannot have."""
    return ArgumentError(f"stream {stream} {why}, so it cannot have {name}", name=name, hint=f"leave {name} out")


class TableStream(Protocol):
    """What these checks ask of a `Stream`; each property is that of the stream."""

    @property
    def name(self) -> str:
        """The stream's name."""

    @property
    def source(self) -> object:
        """Where its tuples come from."""

    @property
    def time(self) -> str:
        """The column of the event time."""

    @property
    def format(self) -> str:
        """The format of its files."""

    @property
    def starting_version(self) -> int | str | None:
        """The version with which it begins."""

    @property
    def starting_timestamp(self) -> object:
        """The time with which it begins."""

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic of Kafka."""


def table_facts(stream: TableStream) -> dict[str, object]:
    """Return the options of tables that are not at their defaults."""
    facts = {name: getattr(stream, name) for name in TABLE_OPTIONS}
    return {name: value for name, value in facts.items() if value not in (None, "stop")}


def check_table_options(stream: TableStream) -> None:
    """Refuse an option of tables of a stream that reads none, and two that say where it begins.

    Raises
    ------
    ArgumentError
        The error names the option.
    """
    given = table_facts(stream)
    if stream.starting_version is not None and stream.starting_timestamp is not None:
        msg = f"stream {stream.name} has both starting_version and starting_timestamp"
        raise ArgumentError(msg, name="starting_version", hint="leave one of the two out")
    for name in given:
        is_results = stream.format == "results"
        if not isinstance(stream.source, str) or stream.is_topic or stream.format not in ("auto", "delta"):
            what = "reads the results of a join in their order" if is_results else "reads no Delta table"
            msg = f"stream {stream.name} {what}, so it cannot have {name}"
            raise ArgumentError(msg, name=name, hint=f"leave {name} out" + ", or set format=delta" * is_results)


def time_of_results(stream: TableStream) -> str:
    """Return the time column: results have but one."""
    if stream.format != "results" or stream.time == _RESULTS_TIME:
        return stream.time
    if stream.time != "ts":  # the default stands for theirs
        msg = f"stream {stream.name} reads the results of a join, whose event time is {_RESULTS_TIME}"
        raise ArgumentError(msg, name="time", hint="leave time out; with format=delta any column can be the event time")
    return _RESULTS_TIME


def starting_version(given: object, name: str) -> int | str | None:
    """Return the version as a number, or "latest"; raise ArgumentError for anything else."""
    if given is None or given == "latest":
        return given
    version = int(given) if isinstance(given, str) and given.isdecimal() and len(given) < 19 else given
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        msg = f"starting_version of stream {name} is neither a version nor latest"
        raise ArgumentError(msg, name="starting_version", hint="a whole number from 0 on, or latest")
    return version


def starting_timestamp(given: object, name: str) -> str | None:
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
