"""Segments: the files of a spool. They are named by their first record's number, so their names sort in time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.errors import SpoolError
from streamjoin_ds.spool.frame import HEADER_BYTES, SUFFIX, frames_of, header, header_facts, mark, walk

__all__ = ["Segment", "segment_paths", "sync_folder"]

_log = logging.getLogger(__name__)
_DIGITS = 20  # digits of a segment's name, so that 64 bits sort as texts


def segment_paths(folder: Path) -> list[Path]:
    """Return the segments of a folder, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit() and len(path.stem) == _DIGITS)


@dataclass(slots=True)
class Segment:
    """The segment that is written.

    Attributes
    ----------
    path : Path
        The file.
    descriptor : int
        The open file.
    salt : int
        Seed of its checksums.
    size_bytes : int
        Its size: each byte before it is on the device or a mark.
    following : int
        The number of the next record.
    """

    path: Path
    descriptor: int
    salt: int
    size_bytes: int
    following: int
    sync: Callable[[int], None] = os.fdatasync

    @classmethod
    def begin(cls, folder: Path, first: int, salt: int, sync: Callable[[int], None] = os.fdatasync) -> Segment:
        """Return a new segment, whose header and name are on the device."""
        path = folder / f"{first:0{_DIGITS}d}{SUFFIX}"
        segment = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640), salt, 0, first, sync)
        segment._write(header(salt, first))
        os.fsync(segment.descriptor)
        sync_folder(folder)
        return segment

    @classmethod
    def recover(cls, path: Path, salt: int, sync: Callable[[int], None] = os.fdatasync) -> Segment:
        """Return the newest segment, to be written on: what is torn at its end is cut off.

        Parameters
        ----------
        path : Path
            The segment.
        salt : int
            The salt of the segment where it is begun anew, because its header is torn.

        Raises
        ------
        SpoolError
            The header is damaged, and records follow it.
        """
        data = path.read_bytes()
        facts = header_facts(data)
        if facts is None:
            if len(data) > HEADER_BYTES and data[HEADER_BYTES:].strip(b"\0"):
                msg = f"the header of the newest segment is damaged: {path}"
                raise SpoolError(
                    msg, name=path.name, hint="move this file out of the folder, or restore it; then start again"
                )
            return cls.begin(path.parent, int(path.stem), salt, sync)
        salt, first = facts
        found = walk(data[HEADER_BYTES:], salt, HEADER_BYTES, ended=True)
        torn = next((place for place in sorted(found.damaged) if place >= found.marked_count), None)
        if torn is not None:
            # Damage after the last mark is of a group that was never synced, or of the mark before it: a later page of
            # the group came to the device before an earlier one. Nothing from there on was acknowledged.
            found = walk(data[HEADER_BYTES : HEADER_BYTES + found.starts[torn]], salt, HEADER_BYTES, ended=True)
        end = HEADER_BYTES + found.end
        following = first if found.following is None else found.following
        segment = cls(path, os.open(path, os.O_RDWR), salt, end, following, sync)
        if len(data) > end:
            _log.warning("the last %d bytes of %s are torn: they are cut off", len(data) - end, path.name)
            os.ftruncate(segment.descriptor, end)
        os.fsync(segment.descriptor)
        sync_folder(path.parent)
        if found.marked_end != found.end:
            segment._write(mark(following, salt))
        return segment

    def append(self, messages: list[tuple[bytes, bytes]], received_us: int) -> None:
        """Write messages, topic and payload of each. They are on the device when this returns.

        Raises
        ------
        OSError
            They could not be written. The segment must not be used any more: what is torn is cut off by `recover`.
        """
        for piece in frames_of(messages, self.following, received_us, self.salt):
            self._write(piece)
        self.sync(self.descriptor)
        self.following += len(messages)
        self._write(mark(self.following, self.salt))

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def _write(self, data: bytes) -> None:
        view, at = memoryview(data), self.size_bytes
        while view:
            written = os.pwrite(self.descriptor, view, at)
            view, at = view[written:], at + written
        self.size_bytes = at


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the device."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
