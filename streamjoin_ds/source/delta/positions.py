"""Positions in Delta tables: in the versions of a table, and in the results of a join. Both are plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.source.event_time import NO_TIME

__all__ = ["NO_DIGEST", "ResultsPosition", "VersionPosition"]

NO_DIGEST = "0" * 16
_MAX = (1 << 63) - 1
_LEAST = {"time": NO_TIME, "at": NO_TIME, "begin": -1, "version": -1}


@dataclass(frozen=True, slots=True)
class VersionPosition:
    """The position in the rows that a table's versions add: the place of the next row.

    Parameters
    ----------
    begin : int
        The version at which the stream begins. -1 where that is not decided yet, at the beginning of a stream.
    snapshot : bool
        Whether the stream begins with the rows that the table has at `begin`, and not with those that `begin` adds.
    version, file, row : int
        The next row: its version, the number of its file in the version, and its number among the file's rows that
        count. Where `version` is `begin` and the stream begins with a snapshot, files are numbered in the snapshot.
    seq : int
        Number of the next record: the records of the stream before it, broken ones counted.
    time : int
        Largest event time so far, in microseconds UTC; the smallest int64 where there is none.
    digest : str
        A digest of the marks of all files before this one.
    mark : str
        The mark of this file (`DataFile.mark`); empty where none of its rows was read.
    table : str
        The table's id.
    """

    begin: int = -1
    digest: str = NO_DIGEST
    file: int = 0
    mark: str = ""
    row: int = 0
    seq: int = 0
    snapshot: bool = False
    table: str = ""
    time: int = NO_TIME
    version: int = -1

    @property
    def place(self) -> tuple[int, int]:
        """The next row's version and file."""
        return self.version, self.file

    @property
    def is_decided(self) -> bool:
        """Whether it is decided at which version the stream begins."""
        return self.begin >= 0

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, keys in alphabetical order."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> VersionPosition:
        """Return the position that `to_facts` wrote; raise `OffsetError` for anything else."""
        checks = {"digest": _hexadecimal, "mark": lambda text: not text or _hexadecimal(text)}
        return cls(**_checked(cls, facts, stream, checks))


@dataclass(frozen=True, slots=True)
class ResultsPosition:
    """The position in the results of a join, which are read by event time, then number.

    Parameters
    ----------
    at : int
        The event time of the last result that was read, in microseconds UTC; the smallest int64 where none was.
    ties : int
        How many results with that event time were read.
    seq : int
        Number of the next record.
    time : int
        Largest event time so far that counts: `at`, but for records that are too far ahead.
    digest : str
        A digest of the results that were read: their event times and the numbers of their tuples.
    table : str
        The table's id; empty at the beginning.
    """

    at: int = NO_TIME
    digest: str = NO_DIGEST
    seq: int = 0
    table: str = ""
    ties: int = 0
    time: int = NO_TIME

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, keys in alphabetical order."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> ResultsPosition:
        """Return the position that `to_facts` wrote; raise `OffsetError` for anything else."""
        return cls(**_checked(cls, facts, stream, {"digest": _hexadecimal}))


def _checked(
    cls: type[VersionPosition | ResultsPosition],
    facts: object,
    stream: str,
    checks: Mapping[str, Callable[[str], bool]],
) -> dict[str, Any]:
    kinds = {field.name: {"int": int, "str": str, "bool": bool}[str(field.type)] for field in fields(cls)}
    if not isinstance(facts, Mapping) or set(facts) != set(kinds):
        raise _malformed(stream, stream)
    found: dict[str, Any] = dict(facts)
    for name, kind in kinds.items():
        value: Any = found[name]
        if type(value) is not kind or (kind is int and not _LEAST.get(name, 0) <= value <= _MAX):  # type: ignore[operator]
            raise _malformed(stream, name)
        if name in checks and not checks[name](str(value)):
            raise _malformed(stream, name)
    return found


def _hexadecimal(text: str) -> bool:
    return len(text) == 16 and all(digit in "0123456789abcdef" for digit in text)


def _malformed(stream: str, name: str) -> OffsetError:
    msg = f"the logged offset of stream {stream} is malformed, or is not one of a table: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)
