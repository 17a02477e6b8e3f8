"""Positions: how far a stream has been read, as plain JSON. The same position gives the same rows.

A position in files holds a digest of what was read. It shows whether a replay sees the same bytes, in O(1) of memory.
The decompressed text of a file is cut into segments of a fixed size. A digest is three hashes of 64 bits::

    base      everything in the files before this one
    chain     base, then each whole segment of this file, one after another
    partial   the bytes since the last whole segment

To verify a range, only the segment in which the range begins is read again. To verify everything that was read of the
current file, the file is read again up to there.

A position also holds what is set aside of bad files where the stream goes on (``on_bad_file="quarantine"``). The
planner decides that once, and the decision stands in the offset. What is set aside counts as one broken record. The
record has a number, and its row in the rejects names the file and the reason::

    rest      a file cannot be read any further: its rest is set aside
    late      a file appeared whose name sorts before a file that was read: the file is set aside
    changed   a file was read to its end and has changed since: what the file holds now is set aside

A waypoint is a position further back: from there a reader gathers keys, to know all that a tuple to come may repeat.
An offset has a few waypoints of each stream with a key of unique rows (`Stream.unique`). A waypoint is the start of an
earlier batch, with the largest event time before it. Where that is older than any key that counts, so is every key
before it. Waypoints decide nothing: gathering from an earlier one gives the same duplicates, and without any a reader
begins at the stream's first record. In a stream of partitions each partition has its own. Where devices have clocks of
their own, no key counts that is older than the stream's clock allows: they are fewer the further that is behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa
import xxhash

from streamjoin_ds.errors import StreamJoinError, malformed_offset
from streamjoin_ds.source.files.file_names import is_label
from streamjoin_ds.source.records import Chunk, Reject
from streamjoin_ds.spec.columns import INT64_MAX
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.inside import inside_schema
from streamjoin_ds.spec.time_zone import Rhythm

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "EMPTY_DIGEST",
    "SEGMENT_BYTES",
    "FilePosition",
    "PlainFacts",
    "Position",
    "RollingDigest",
    "RowPosition",
    "SetAside",
    "Waypoint",
    "aside_chunk",
    "asides_from",
    "difference",
    "first_needed",
    "is_told_by_count",
    "name_sum",
    "next_waypoints",
    "reason_of",
    "sum_of",
    "waypoints_from",
]

SEGMENT_BYTES = 1 << 20

_START = "0" * 16
EMPTY_DIGEST = ".".join([_START, _START, xxhash.xxh3_64_hexdigest(b"")])
_DIGITS = re.compile(r"[0-9a-f]{16}")
_FORM = re.compile(rf"{_DIGITS.pattern}\.{_DIGITS.pattern}\.{_DIGITS.pattern}")
_MAX_REASON = 300  # characters of a reason, or of a column's name, that an offset holds
_KINDS = {"rest": "the rest of the file", "late": "the file", "changed": "what the file holds now"}
_TYPES = {"bool": bool, "int": int, "int | None": int, "str": str}
_PER_REACH = 8  # waypoints in the time for which a key counts: a reader gathers at most an eighth more than it must


class RollingDigest:
    """The digest at one byte of one file. `update` moves it forward by the bytes that follow.

    Parameters
    ----------
    text : str
        A digest as the property `text` gives it. Only its base and chain are used: at a segment's beginning there is no
        partial segment.
    offset : int
        The byte of the file, a multiple of `SEGMENT_BYTES`.
    """

    def __init__(self, text: str = EMPTY_DIGEST, offset: int = 0) -> None:
        self._base, self._chain, _ = text.split(".")
        self._partial = xxhash.xxh3_64()
        self.offset = offset

    @classmethod
    def at_start_of(cls, text: str) -> RollingDigest:
        """Return the digest at byte 0 of the file in which `text` was taken."""
        base = text.split(".")[0]
        return cls(f"{base}.{base}.{_START}")

    def copy(self) -> RollingDigest:
        """Return an independent digest at the same byte."""
        other = RollingDigest.__new__(RollingDigest)
        other._base, other._chain, other.offset = self._base, self._chain, self.offset
        other._partial = self._partial.copy()
        return other

    def update(self, data: bytes | memoryview) -> None:
        """Move the digest forward by these bytes."""
        view = memoryview(data)
        while len(view):
            take = min(len(view), SEGMENT_BYTES - self.offset % SEGMENT_BYTES)
            self._partial.update(view[:take])
            self.offset += take
            view = view[take:]
            if self.offset % SEGMENT_BYTES == 0:
                self._chain = xxhash.xxh3_64_hexdigest(f"{self._chain}.{self._partial.hexdigest()}".encode())
                self._partial = xxhash.xxh3_64()

    def next_file(self) -> RollingDigest:
        """Return the digest at byte 0 of the next file, where this file ends here."""
        return self.after(self.text)

    @classmethod
    def after(cls, text: str) -> RollingDigest:
        """Return the digest at byte 0 of the next file, where `text` was taken at the end of the file before it."""
        base = xxhash.xxh3_64_hexdigest(text.encode())
        return cls(f"{base}.{base}.{_START}")

    @property
    def text(self) -> str:
        """The whole digest, 50 characters. Two are equal iff the same bytes were read in the same sequence of files."""
        return f"{self._base}.{self._chain}.{self._partial.hexdigest()}"


def name_sum(names: Iterable[str], start: str = _START) -> str:
    """Return the digest of a set of names, 16 hexadecimal digits.

    `start` is the digest of names that belong to the set already, so one more name is added in O(1).
    """
    total = int(start, 16)
    for name in names:
        total += xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape"))
    return f"{total % (1 << 64):016x}"


def sum_of(digests: Iterable[str]) -> str:
    """Return the digest of the union of disjoint sets of names, from the digests of the sets."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"


def difference(digest: str, less: str) -> str:
    """Return `digest` minus `less`. Where `less` is of a subset, this is the digest of the names outside the subset."""
    return f"{(int(digest, 16) - int(less, 16)) % (1 << 64):016x}"


@dataclass(frozen=True, slots=True)
class SetAside:
    """One decision to set something aside.

    Parameters
    ----------
    seq : int
        Number of the record that stands for what is set aside.
    file, offset, line : str, int, int
        Where reading stood: the file, the place in it (`FilePosition.offset`), and the lines before that place.
    culprit : str
        Name of the file that is set aside; `file` where its rest is set aside. Empty where the changed file is not
        known.
    kind : {"rest", "late", "changed"}
        What is set aside of the culprit.
    column, reason : str
        What is wrong. `column` may be empty.
    """

    seq: int
    file: str
    offset: int
    line: int
    culprit: str
    kind: str
    column: str
    reason: str

    def reject(self, path: str) -> Reject:
        """Return the reject that stands for what is set aside."""
        line = self.line + 1 if self.kind == "rest" else 0
        return Reject(path, line, self.column, self.reason, f"{_KINDS[self.kind]} is set aside", self.seq)


def reason_of(error: StreamJoinError) -> tuple[str, str]:
    """Return the column (may be empty) and the reason that an error names, cut to a length that fits into an offset."""
    column = error.name if error.code == "SCHEMA_DRIFT" and len(error.name) <= _MAX_REASON else ""
    return column, f"{error.code}: {error.message}"[:_MAX_REASON]


def _are_asides(facts: Iterable[object]) -> bool:
    types = [int, str, int, int, str, str, str, str]
    return all(
        isinstance(part, tuple)
        and [type(value) for value in part] == types
        and all(0 <= part[place] <= INT64_MAX for place in (0, 2, 3))
        and is_label(part[1])
        and is_label(part[4])
        and part[5] in _KINDS
        for part in facts
    )


def asides_from(facts: Iterable[Sequence[object]], first: int, last: int) -> list[SetAside]:
    """Return the decisions of an offset whose record numbers are in ``[first, last)``."""
    found = (SetAside(*part) for part in facts)  # type: ignore[arg-type]
    return [aside for aside in found if first <= aside.seq < last]


def aside_chunk(aside: SetAside, path: str, schema: pa.Schema, time: str) -> Chunk:
    """Return the chunk of one record that stands for what is set aside."""
    inner = inside_schema(schema, time)
    return Chunk(aside.seq, 1, pa.RecordBatch.from_pylist([], schema=inner), [aside.reject(path)])


class PlainFacts:
    """A part of an offset whose fields are written as they are, under their own names.

    A field is a bool, a text, tuples of plain values, or a whole number of 64 bits. An `int | None` is not written
    where it is None, so it is among `LATER`.
    """

    __slots__ = ()
    # What an error names; empty: the field that is wrong. And what it says more.
    PART: ClassVar[str] = ""
    MORE: ClassVar[str] = ""
    # Fields that are left out where they have their default: that is what their absence means.
    LATER: ClassVar[frozenset[str]] = frozenset()
    # The least whole numbers of fields; of the others it is 0.
    LEAST: ClassVar[Mapping[str, int]] = {"time": NO_TIME}

    def to_facts(self) -> dict[str, Any]:
        """Return this as plain JSON values, keys in alphabetical order."""
        known = _fields_of(type(self))  # type: ignore[arg-type]  # a class can be hashed, whatever mypy says
        told = ((name, getattr(self, name), default) for name, (_, default) in known.items())
        return {name: value for name, value, default in told if name not in self.LATER or value != default}

    @classmethod
    def from_facts(cls, facts: object, stream: str = "") -> Self:
        """Return what `to_facts` wrote, of a stream if one is named; raise `OffsetError` for anything else."""
        known = _fields_of(cls)  # type: ignore[arg-type]
        if not isinstance(facts, Mapping) or not facts.keys() <= known.keys() <= facts.keys() | cls.LATER:
            raise malformed_offset(cls.PART or stream, stream, cls.MORE)
        found = {name: _frozen(value) if known[name][0] is tuple else value for name, value in facts.items()}
        for name, value in found.items():
            is_outside = isinstance(value, int) and not cls.LEAST.get(name, 0) <= value <= INT64_MAX
            if type(value) is not known[name][0] or is_outside:
                raise malformed_offset(cls.PART or name, stream, cls.MORE)
        one = cls(**found)
        if wrong := one.wrong_field():
            raise malformed_offset(wrong, stream, cls.MORE)
        return one

    def wrong_field(self) -> str:
        """Return the name of a field whose value, of the right type, no offset has; empty where there is none."""
        return ""


@cache
def _fields_of(kind: type[Any]) -> dict[str, tuple[type, Any]]:
    """Return the type and the default of each field, in alphabetical order."""
    found = sorted((field.name, str(field.type), field.default) for field in fields(kind))
    return {name: (_TYPES.get(type_name, tuple), default) for name, type_name, default in found}


def _frozen(value: object) -> object:
    return tuple(_frozen(part) for part in value) if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, slots=True)
class RowPosition(PlainFacts):
    """The position in a generated stream: the number of its next row."""

    seq: int = 0


@dataclass(frozen=True, slots=True)
class FilePosition(PlainFacts):
    """The position in a stream's files: the next record's place, and facts about all that lies before it.

    Its size does not depend on the number of records. `kept` grows with the logarithm of the number of files, and
    `aside` with what one batch sets aside.

    Parameters
    ----------
    file : str
        Label of the file that holds the last record read (`FileOrder`): its name, where nothing else is said;
        empty at the beginning.
    offset : int
        Bytes of the file's decompressed text (rows of a Parquet file) before the next record.
    line : int
        Lines (rows) of the file before the next record, header and blank lines counted.
    seq : int
        Number of the next record: the records of the stream before it, broken ones counted.
    time : int
        Largest event time so far, in microseconds UTC; the smallest int64 where there is none.
    whole : bool
        Whether the file ended here when the position was taken.
    digest : str
        See `RollingDigest`.
    files : int
        Number of files that were read before this one.
    names, sizes : str
        Digests of the names of those files, and of their names and sizes.
    open_line : bool
        Whether the last record read is a line without its newline. It was taken because the file was finished.
    kept : tuple of (str, int, str)
        Empty unless read files may be removed. Then the files before this one that are still there, in groups. Older
        groups are larger: there are at most four groups of each size, and each size is double the one before. A group
        has its last file's name, its number of files, and the digest of their names.
    closed : bool
        Whether the rest of the file is set aside.
    aside : tuple
        What was set aside in the batch that ends here: the fields of a `SetAside` each.
    set_aside : int
        How often something was set aside so far: a file, a file's rest or a change.
    rhythm : tuple of int
        Of a stream with local times: how its times have come (`Rhythm`).
    """

    digest: str = EMPTY_DIGEST
    file: str = ""
    files: int = 0
    line: int = 0
    names: str = "0" * 16
    offset: int = 0
    seq: int = 0
    sizes: str = "0" * 16
    time: int = NO_TIME
    whole: bool = False
    open_line: bool = False
    kept: tuple[tuple[str, int, str], ...] = ()
    closed: bool = False
    aside: tuple[tuple[object, ...], ...] = ()
    set_aside: int = 0
    rhythm: tuple[int, ...] = ()

    LATER: ClassVar[frozenset[str]] = frozenset(("aside", "closed", "kept", "open_line", "rhythm", "set_aside"))

    def wrong_field(self) -> str:
        """See `PlainFacts.wrong_field`."""
        is_right = {
            "aside": _are_asides(self.aside),
            "digest": _FORM.fullmatch(self.digest),
            "file": is_label(self.file) and (self.file or not (self.offset or self.seq or self.files)),
            "kept": all(map(_is_kept, self.kept)),
            "names": is_hexadecimal(self.names),
            "rhythm": Rhythm.is_one(self.rhythm),
            "sizes": is_hexadecimal(self.sizes),
        }
        return next((name for name, is_it in is_right.items() if not is_it), "")


class Position(Protocol):
    """How far a stream, or one of its partitions, has been read."""

    @property
    def seq(self) -> int:
        """The number of records before the position."""

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, in a fixed order."""


def is_told_by_count(facts: Mapping[str, Any]) -> bool:
    """Whether a position can be found again from its number of records alone, as long as all files are there."""
    if "version" in facts:  # at which version of a table the stream begins was decided with the first batch
        return False
    return "partitions" not in facts and not (FilePosition.LATER - {"rhythm"}) & facts.keys()


def _is_kept(group: object) -> bool:
    if not isinstance(group, tuple) or [type(part) for part in group] != [str, int, str]:
        return False
    return is_label(group[0]) and 0 <= group[1] <= INT64_MAX and is_hexadecimal(group[2])


def is_hexadecimal(text: str) -> bool:
    """Whether a text is one of those that `RollingDigest` and xxhash write: 16 digits."""
    return _DIGITS.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Waypoint:
    """A place in a stream.

    Attributes
    ----------
    time_us : int
        The largest event time of all records before it, in microseconds.
    position : mapping
        The position, as plain JSON values.
    """

    time_us: int
    position: Mapping[str, Any]

    def to_facts(self) -> list[object]:
        """Return the waypoint as plain JSON values."""
        return [self.time_us, dict(self.position)]


def next_waypoints(
    waypoints: Sequence[Waypoint],
    start: Mapping[str, Any],
    start_us: int | None,
    end_us: int | None,
    reach_us: int,
    per_reach: int = _PER_REACH,
) -> tuple[Waypoint, ...]:
    """Return the waypoints of the offset at a batch's end.

    Parameters
    ----------
    waypoints : sequence of Waypoint
        Those of the offset at its start, the earliest first.
    start : mapping
        The position of its start.
    start_us : int or None
        The largest event time before its start; None where there is none.
    end_us : int or None
        The clock at its end, behind which by more than the reach no key counts: the largest event time, or where
        devices have clocks of their own the stream's.
    reach_us : int
        How far behind that clock a key still counts.
    per_reach : int
        Waypoints in the time for which a key counts.
    """
    found = list(waypoints)
    behind_us = 0 if start_us is None or end_us is None else max(start_us - end_us, 0)
    if start_us is not None and (not found or start_us > found[-1].time_us + (reach_us + behind_us) // per_reach):
        found.append(Waypoint(start_us, start))
    if end_us is None:
        return tuple(found)
    needless = sum(one.time_us < end_us - reach_us for one in found) - 1  # all but the last of those that will do
    return tuple(found[max(needless, 0) :])


def first_needed(waypoints: Sequence[Waypoint], start_us: int | None, reach_us: int) -> Waypoint | None:
    """Return the waypoint from which a batch's reader gathers keys; None: from the stream's first record."""
    old = [one for one in waypoints if start_us is not None and one.time_us < start_us - reach_us]
    return old[-1] if old else None


def waypoints_from(facts: object) -> tuple[Waypoint, ...]:
    """Return the waypoints that `Waypoint.to_facts` wrote; raise `OffsetError` for anything else."""
    pairs: list[Any] = facts if isinstance(facts, list) else [None]
    if any(not isinstance(pair, list) or [type(part) for part in pair] != [int, dict] for pair in pairs):
        raise malformed_offset(name="waypoints")
    return tuple(Waypoint(*pair) for pair in pairs)
