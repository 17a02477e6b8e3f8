"""Segments: the files of a spool, and their bytes: a header, then frames, each a record or a mark.

A segment is named by its first record's number, so the names sort in time.

::

    segment   header  frame frame frame mark  frame mark ...
    header    magic 8 | salt 8 | number of the first record 8 | checksum 8 | newline
    frame     magic 4 | payload's size 4 | number 8 | received 8 | topic's size 2 | kind 1 | flags 1 | checksum 8 |
              topic | payload | newline

The flags say how MQTT brought a message: `TOLD`, and bits as it has them: its QoS (2, 4), and that it was retained (1).
They are 0 in frames of other sources, and in those of before there were flags. Numbers are little-endian. A checksum is
XXH3-64, big-endian; that of a frame covers all its other bytes but the newline and is seeded with the segment's salt,
so no payload can hold a valid frame. A mark has no payload. It is written after `fdatasync` returned, so what lies
before a mark is on the device. A mark's bytes depend on its place alone: one that a power cut took is written again as
it was.
"""

from __future__ import annotations

import itertools
import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xxhash
from msgspec import Struct

from streamjoin_ds.errors import FileFormatError, SpoolError

__all__ = [
    "FRAME_BYTES",
    "FRAME_COLUMNS",
    "HEADER_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_TOPIC_BYTES",
    "SUFFIX",
    "TOLD",
    "Frames",
    "Segment",
    "frames_of",
    "header",
    "header_facts",
    "mark",
    "segment_paths",
    "sync_folder",
    "torn_segment",
    "walk",
]

_log = logging.getLogger(__name__)

SUFFIX = ".spool"  # the ending of a segment's name
MAX_PAYLOAD_BYTES = 32 << 20  # bytes of a payload, at most
MAX_TOPIC_BYTES = 65_535  # bytes of a topic, at most; MQTT allows no more either
FRAME_BYTES = 37  # bytes of a frame without topic and payload
# Columns that come of a frame, not of its payload.
FRAME_COLUMNS = ("spool_received", "spool_topic", "spool_number", "spool_retained", "spool_qos")
TOLD = 0x80  # the flag of a frame whose other flags mean something

_SEGMENT_MAGIC = b"SJSPOOL1"
_HEADER = struct.Struct("<8sQQ")
HEADER_BYTES = _HEADER.size + 9

_MAGIC = b"\xf5\xc7SJ"  # no UTF-8 text holds its first byte
_FRAME = struct.Struct("<4sIQqHBB")
_HEAD = _FRAME.size
_BODY = _HEAD + 8
_RECORD, _MARK = 1, 2
_PIECE_BYTES, _PIECE_PARTS = 4 << 20, 40_000  # of frames that are made at a time: payloads, and parts to join
_OWN_PIECE_BYTES = 256 << 10  # a payload of so many bytes is not copied

_digest = xxhash.xxh3_64_digest
_DIGITS = 20  # digits of a segment's name, so that 64 bits sort as texts


def header(salt: int, first: int) -> bytes:
    """Return the header of a segment whose first record has the number `first`."""
    facts = _HEADER.pack(_SEGMENT_MAGIC, salt, first)
    return facts + _digest(facts) + b"\n"


def header_facts(data: bytes) -> tuple[int, int] | None:
    """Return salt and first number of the header with which a segment begins; None where it is torn or none."""
    if len(data) < HEADER_BYTES:
        return None
    magic, salt, first = _HEADER.unpack_from(data)
    return (salt, first) if header(salt, first) == data[:HEADER_BYTES] and magic == _SEGMENT_MAGIC else None


def frames_of(
    messages: Sequence[tuple[bytes, bytes]], first: int, received_us: int, salt: int, flags: Sequence[int] = ()
) -> Iterator[bytes]:
    """Yield the frames of messages, topic and payload of each, numbered from `first` on, in pieces of some MiB.

    `flags` are those of the frames; 0 where none are given. Memory is taken for a piece, and a large payload is a piece
    by itself that is not copied.
    """
    pack = _FRAME.pack
    parts: list[bytes] = []
    size_bytes = 0
    told = flags if flags else itertools.repeat(0, len(messages))
    for number, ((topic, payload), flag) in enumerate(zip(messages, told, strict=True), first):
        head = pack(_MAGIC, len(payload), number, received_us, len(topic), _RECORD, flag)
        if len(payload) >= _OWN_PIECE_BYTES:
            checksum = xxhash.xxh3_64(head, seed=salt)
            checksum.update(topic)
            checksum.update(payload)
            yield b"".join((*parts, head, checksum.digest(), topic))
            yield payload
            parts, size_bytes = [b"\n"], 0
            continue
        body = topic + payload
        parts += (head, _digest(head + body, salt), body, b"\n")
        size_bytes += len(payload)
        if size_bytes >= _PIECE_BYTES or len(parts) >= _PIECE_PARTS:
            yield b"".join(parts)
            parts, size_bytes = [], 0
    if parts:
        yield b"".join(parts)


def mark(following: int, salt: int) -> bytes:
    """Return the mark before the record numbered `following`."""
    head = _FRAME.pack(_MAGIC, 0, following, 0, 0, _MARK, 0)
    return head + _digest(head, salt) + b"\n"


@dataclass(slots=True)
class Frames:
    """The records of a stretch of a segment.

    Attributes
    ----------
    starts : list of int
        Where each record begins in the bytes that were walked. It ends where the next one begins.
    payloads : list of bytes
        What each record holds; bytes that hold no valid frame as they are.
    damaged : dict of int to str
        What is wrong, by place in these lists, with each stretch of bytes that holds no valid frame.
    end : int
        Where the last valid frame ends.
    marked_end, marked_count : int
        Where the last mark ends, and the number of records before it.
    following : int or None
        The number of the record after the last valid frame; None where there is no frame.
    """

    data: bytes = field(default=b"", repr=False)
    starts: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    damaged: dict[int, str] = field(default_factory=dict)
    end: int = 0
    marked_end: int = 0
    marked_count: int = 0
    following: int | None = None

    def topics(self) -> list[bytes]:
        """Return each record's topic; empty for bytes that hold no valid frame."""
        sizes = enumerate(zip(self.starts, self._column(4), strict=True))
        data, damaged = self.data, self.damaged
        return [b"" if k in damaged else data[at + _BODY : at + _BODY + size] for k, (at, size) in sizes]

    def received_us(self) -> list[int]:
        """Return when each record was received, microseconds since 1970; 0 for bytes that hold no valid frame."""
        return [0 if k in self.damaged else each for k, each in enumerate(self._column(3))]

    def numbers(self) -> list[int]:
        """Return each record's number; -1 for bytes that hold no valid frame."""
        return [-1 if k in self.damaged else each for k, each in enumerate(self._column(2))]

    def deliveries(self) -> list[tuple[bool, int] | None]:
        """Return of each record whether it was a retained message, and its QoS; None where that is not known."""
        flags = (0 if k in self.damaged else each for k, each in enumerate(self._column(6)))
        return [(bool(each & 1), each >> 1 & 3) if each & TOLD else None for each in flags]

    def _column(self, place: int) -> list[int]:
        # A damaged stretch may be shorter than a frame, but a valid frame follows it.
        data, unpack = self.data, _FRAME.unpack_from
        return [unpack(data, at)[place] for at in self.starts]

    def cut_at_mark(self) -> None:
        """Forget what comes after the last mark."""
        del self.starts[self.marked_count :], self.payloads[self.marked_count :]
        self.damaged = {place: reason for place, reason in self.damaged.items() if place < self.marked_count}
        self.end = self.marked_end


def walk(data: bytes, salt: int, offset: int, *, ended: bool, limit: int | None = None) -> Frames:
    """Return the records of bytes that begin at a frame.

    Bytes that are no valid frame are damage up to the next valid frame, and count as one record. They are not looked
    at, and end what is returned, where no valid frame follows: they may be torn, or go on.

    Parameters
    ----------
    data : bytes
        The bytes.
    salt : int
        The segment's salt.
    offset : int
        Where the bytes begin in the segment, for what is said of damage.
    ended : bool, keyword-only
        Whether the segment ends with these bytes now. Otherwise a frame that goes on after them is not judged.
    limit : int or None, keyword-only
        Where the records end, in `data`; None for all. What comes after only tells where damage ends.
    """
    found = Frames(data)
    unpack, digest, size = _FRAME.unpack_from, _digest, len(data)
    starts, payloads = found.starts.append, found.payloads.append
    at, count, following = 0, 0, -1
    limit = size if limit is None else limit
    last = min(size - FRAME_BYTES + 1, limit)
    while at < last:
        magic, payload_bytes, number, _, topic_bytes, kind, _ = unpack(data, at)
        end = at + _BODY + topic_bytes + payload_bytes
        is_plausible = magic == _MAGIC and payload_bytes <= MAX_PAYLOAD_BYTES
        if is_plausible and end >= size and not ended:
            break
        body_at = at + _BODY
        if (
            not is_plausible
            or end >= size
            or data[end] != 10
            or digest(data[at : body_at - 8] + data[body_at:end], salt) != data[body_at - 8 : body_at]
        ):
            valid = _next_valid(data, at + 1, salt)
            if valid is None or valid > limit:
                break
            found.damaged[count] = _damage(offset + at, offset + valid, unpack(data, valid)[2])
            starts(at)
            payloads(data[at:valid])
            count += 1
            at = valid
            continue
        if kind == _RECORD:
            starts(at)
            payloads(data[end - payload_bytes : end])
            count += 1
            following = number + 1
            at = end + 1
        else:
            at = end + 1
            found.marked_end, found.marked_count, following = at, count, number
    found.end = at
    found.following = None if following < 0 else following
    return found


def _next_valid(data: bytes, begin: int, salt: int) -> int | None:
    """Return where the next valid frame begins."""
    at = data.find(_MAGIC, begin)
    while at >= 0 and at + FRAME_BYTES <= len(data):
        _, payload_bytes, _, _, topic_bytes, *_ = _FRAME.unpack_from(data, at)
        end = at + _BODY + topic_bytes + payload_bytes
        if payload_bytes <= MAX_PAYLOAD_BYTES and end < len(data) and data[end] == 10:
            body = data[at : at + _HEAD] + data[at + _BODY : end]
            if _digest(body, salt) == data[at + _HEAD : at + _BODY]:
                return at
        at = data.find(_MAGIC, at + 1)
    return None


def _damage(begin: int, end: int, number: int) -> str:
    # It says nothing of the frame before: the reason of a reject must not depend on where reading began.
    return (
        f"bytes {begin} to {end} of the segment do not fit their checksum; record {number} of the intake follows them"
    )


def torn_segment(path: str, offset: int) -> FileFormatError:
    """Return the error for a segment that is not whole from a byte on, although it is not written any more."""
    msg = f"the segment {path} is torn or damaged from byte {offset} on, and another follows it"
    return FileFormatError(msg, name=path, hint="restore the file from a copy")


def segment_paths(folder: Path) -> list[Path]:
    """Return the segments of a folder, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit() and len(path.stem) == _DIGITS)


class Segment(Struct):
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

    def append(self, messages: list[tuple[bytes, bytes]], received_us: int, flags: Sequence[int] = ()) -> None:
        """Write messages, topic and payload of each. They are on the device when this returns.

        Raises
        ------
        OSError
            They could not be written. The segment must not be used any more: what is torn is cut off by `recover`.
        """
        for piece in frames_of(messages, self.following, received_us, self.salt, flags):
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
