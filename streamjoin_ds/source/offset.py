"""Offsets: the positions of all streams as one JSON value, whose text Spark compares and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.source.position import Position

__all__ = ["OFFSET_VERSION", "decode_offset", "encode_offset"]

OFFSET_VERSION = 1


def encode_offset(names: Sequence[str], positions: Sequence[Position]) -> dict[str, Any]:
    """Positions, one a stream, as plain JSON values in one fixed order of keys: Spark compares the text."""
    streams = {name: position.to_facts() for name, position in zip(names, positions, strict=True)}
    return {"version": OFFSET_VERSION, "streams": streams}


def decode_offset(offset: object, names: Sequence[str]) -> list[object]:
    """The facts of each stream's position, in the order of `names`; each feed reads its own.

    Raises
    ------
    OffsetError
        Not an offset, of other streams, or written by a newer version.
    """
    if not isinstance(offset, Mapping) or set(offset) != {"version", "streams"}:
        raise _malformed(name="offset")
    version, streams = offset["version"], offset["streams"]
    if type(version) is not int or version < 1:
        raise _malformed(name="version")
    if version > OFFSET_VERSION:
        msg = f"a logged offset has version {version}, this package reads {OFFSET_VERSION}"
        hint = "run the version of streamjoin_ds that wrote the checkpoint, or a newer one"
        raise OffsetError(msg, name="version", hint=hint)
    if not isinstance(streams, Mapping):
        raise _malformed(name="streams")
    if set(streams) != set(names):
        msg = "a logged offset is of other streams"
        raise OffsetError(msg, name="streams", hint=f"the streams of this join are {', '.join(names)}")
    return [streams[name] for name in names]


def _malformed(name: str) -> OffsetError:
    msg = f"a logged offset is malformed: {name}"
    return OffsetError(msg, name=name, hint="restore the checkpoint's offsets folder; offsets are never edited by hand")
