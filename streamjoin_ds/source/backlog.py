"""The backlog: what a source knows of records that no batch has yet. It is for people: no batch depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from streamjoin_ds.errors import malformed_offset

__all__ = ["LIMITS", "Backlog", "BacklogFacts", "known_backlog", "total_of"]

LIMITS = ("bytes", "max_delay", "max_rows_per_batch", "pace")
"""What may have ended a batch before all was read: `BacklogFacts.limited_by`."""

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records of a stream, or of one of its partitions, that are known and not read.

    Attributes
    ----------
    rows : int
        Records. Where the planner has not looked at all of a topic, the offsets up to its last stable one, of which
        some may hold no message. Of files, tables and generators those that it has looked at; there may be more.
    size_bytes : int or None
        Bytes of files that are not read; of a Parquet or compressed file all, until it is read to its end. None for
        sources that do not tell.
    ahead_us : int or None
        How far the newest known record is ahead of what is read, in microseconds of event time; None where either has
        no event time.
    partitions : mapping of str to Backlog
        Those of the stream's partitions that have any.
    """

    rows: int = 0
    size_bytes: int | None = None
    ahead_us: int | None = None
    partitions: Mapping[str, Backlog] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.rows or self.size_bytes)

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values, keys in alphabetical order."""
        facts: dict[str, Any] = {"bytes": self.size_bytes, "rows": self.rows, "us": self.ahead_us}
        facts["partitions"] = {name: own.to_facts() for name, own in self.partitions.items()} or None
        return {name: value for name, value in sorted(facts.items()) if value is not None}

    @classmethod
    def from_facts(cls, facts: object) -> Backlog:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or not {"rows"} <= set(facts) <= {"bytes", "partitions", "rows", "us"}:
            raise malformed_offset(name="backlog")
        numbers = {name: value for name, value in facts.items() if name != "partitions"}
        partitions = facts.get("partitions", {})
        if not isinstance(partitions, Mapping) or any(type(n) is not int or n < 0 for n in numbers.values()):
            raise malformed_offset(name="backlog")
        own = {name: cls.from_facts(one) for name, one in partitions.items()}
        return cls(facts["rows"], facts.get("bytes"), facts.get("us"), own)


@dataclass(frozen=True, slots=True)
class BacklogFacts:
    """What was known of backlogs when a batch was planned.

    Attributes
    ----------
    streams : mapping of str to Backlog
        Those of the streams that have any.
    limited_by : str or None
        Why the batch holds no more: one of `LIMITS`; None where it holds all that the planner saw.
    """

    streams: Mapping[str, Backlog] = field(default_factory=dict)
    limited_by: str | None = None

    @property
    def total(self) -> Backlog:
        """All streams together: the sum of rows and of bytes, and the largest distance in event time."""
        return total_of(self.streams.values())

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values; empty where there is no backlog."""
        facts: dict[str, Any] = {"streams": {name: own.to_facts() for name, own in self.streams.items()} or None}
        facts["limited_by"] = self.limited_by
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_facts(cls, facts: object, names: Sequence[str]) -> BacklogFacts:
        """Return what `to_facts` wrote of streams of these names; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or set(facts) - {"streams", "limited_by"}:
            raise malformed_offset(name="backlog")
        streams = facts.get("streams", {})
        if not isinstance(streams, Mapping) or not set(streams) <= set(names):
            raise malformed_offset(name="backlog")
        if facts.get("limited_by") not in (*LIMITS, None):
            raise malformed_offset(name="backlog")
        return cls({name: Backlog.from_facts(one) for name, one in streams.items()}, facts.get("limited_by"))


def total_of(backlogs: Iterable[Backlog], partitions: Mapping[str, Backlog] = _NONE) -> Backlog:
    """Return several backlogs as one: the sum of rows and of bytes, and the largest distance in event time."""
    found = list(backlogs)
    sizes = [one.size_bytes for one in found if one.size_bytes is not None]
    ahead = [one.ahead_us for one in found if one.ahead_us is not None]
    return Backlog(
        sum(one.rows for one in found), sum(sizes) if sizes else None, max(ahead, default=None), dict(partitions)
    )


def known_backlog(rows: int, newest_us: int | None, read_us: int | None) -> Backlog:
    """Return the backlog of so many records.

    Parameters
    ----------
    rows : int
    newest_us : int or None
        The largest event time of the records and of those before them.
    read_us : int or None
        The largest event time that is read.
    """
    if rows <= 0:
        return Backlog()
    return Backlog(rows, ahead_us=None if newest_us is None or read_us is None else max(newest_us - read_us, 0))
