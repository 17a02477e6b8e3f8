"""The options of a stream that say how a Delta table is read: where it begins, and what happens at a change."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Protocol

from streamjoin_ds.errors import ArgumentError

__all__ = [
    "ON_CHANGE",
    "TABLE_OPTIONS",
    "TableStream",
    "check_table_options",
    "starting_timestamp",
    "starting_version",
    "table_facts",
    "time_of_results",
]


ON_CHANGE = ("stop", "ignore")
TABLE_OPTIONS = ("on_change", "starting_version", "starting_timestamp")
_RESULTS_TIME = "event_time"


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
