"""Positions: how far a stream has been read, as plain JSON. The same position gives the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.source.digest import EMPTY_DIGEST, RollingDigest
from streamjoin_ds.source.event_time import NO_TIME
from streamjoin_ds.source.files.file_names import is_label
from streamjoin_ds.source.set_aside import well_formed

__all__ = ["FilePosition", "Position", "RowPosition", "is_told_by_count"]

_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RowPosition:
    """The position in a generated stream: the number of its next row."""

    seq: int = 0

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, keys in alphabetical order."""
        return {"seq": self.seq}

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> RowPosition:
        """Return the position that `to_facts` wrote; raise `OffsetError` for anything else."""
        return cls(**_checked(facts, stream, _fields_of(cls), {}))


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The position in a stream's files: the next record's place, and facts about all that lies before it.

    Its size does not depend on the number of records. `kept` grows with the logarithm of the number of files, and
    `aside` with what one batch sets aside.

    Parameters
    ----------
    file : str
        Label of the file that holds the last record read (`files.file_order`): its name, where nothing else is said;
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
        See `digest.RollingDigest`.
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
        What was set aside in the batch that ends here: facts of `set_aside.SetAside`.
    set_aside : int
        How often something was set aside so far: a file, a file's rest or a change.
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

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, keys in alphabetical order.

        A fact of `_LATER_FACTS` is left out where it has the value that its absence means.
        """
        facts = asdict(self)
        return {name: facts[name] for name in sorted(facts) if facts[name] != _LATER_FACTS.get(name)}

    @classmethod
    def from_facts(cls, facts: object, stream: str) -> FilePosition:
        """Return the position that `to_facts` wrote; raise `OffsetError` for anything else."""
        checks: dict[str, Callable[[Any], bool]] = {
            "aside": well_formed,
            "digest": RollingDigest.well_formed,
            "file": is_label,
            "kept": lambda value: all(_is_kept(group) for group in value),
            "names": _hexadecimal,
            "sizes": _hexadecimal,
        }
        position = cls(**_checked(facts, stream, _fields_of(cls), checks))
        if not position.file and (position.offset or position.seq or position.files):
            raise _malformed(stream, "file")
        return position


class Position(Protocol):
    """How far a stream, or one of its partitions, has been read."""

    @property
    def seq(self) -> int:
        """The number of records before the position."""

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain JSON values, in a fixed order."""


# Facts that older offsets do not have, with the value that their absence means.
_LATER_FACTS: Mapping[str, Any] = {"aside": (), "closed": False, "kept": (), "open_line": False, "set_aside": 0}


def is_told_by_count(facts: Mapping[str, Any]) -> bool:
    """Whether a position can be found again from its number of records alone, as long as all files are there."""
    if "version" in facts:  # at which version of a table the stream begins was decided with the first batch
        return False
    return "partitions" not in facts and not _LATER_FACTS.keys() & facts.keys()


def _fields_of(kind: type[RowPosition] | type[FilePosition]) -> dict[str, type]:
    plain = {"int": int, "str": str, "bool": bool}
    return {field.name: plain.get(str(field.type), tuple) for field in fields(kind)}


def _is_kept(group: object) -> bool:
    if not isinstance(group, tuple) or [type(part) for part in group] != [str, int, str]:
        return False
    return is_label(group[0]) and 0 <= group[1] <= _MAX and _hexadecimal(group[2])


def _hexadecimal(text: str) -> bool:
    return len(text) == 16 and all(digit in "0123456789abcdef" for digit in text)


def _checked(
    facts: object, stream: str, types: Mapping[str, type], checks: Mapping[str, Callable[[Any], bool]]
) -> dict[str, Any]:
    if not isinstance(facts, Mapping) or not set(facts) <= set(types) <= {*facts, *_LATER_FACTS}:
        raise _malformed(stream, stream)
    facts = {name: _LATER_FACTS[name] for name in types if name not in facts} | dict(facts)
    facts = {name: _frozen(value) for name, value in facts.items()}
    for name, kind in types.items():
        value = facts[name]
        low = NO_TIME if name == "time" else 0
        if type(value) is not kind or (isinstance(value, int) and not low <= value <= _MAX):
            raise _malformed(stream, name)
        if name in checks and not checks[name](value):
            raise _malformed(stream, name)
    return facts


def _frozen(value: object) -> object:
    return tuple(_frozen(part) for part in value) if isinstance(value, (list, tuple)) else value


def _malformed(stream: str, name: str) -> OffsetError:
    msg = f"the logged offset of stream {stream} is malformed: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)
