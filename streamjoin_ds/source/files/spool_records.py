"""Segments of a spool: frames of messages, whose payloads are JSON objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ColumnError, FileFormatError
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import Lines, parse_lines
from streamjoin_ds.source.files.text import Text
from streamjoin_ds.source.records import RawRecords, clipped
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spool.frame import Frames, walk

__all__ = ["SPOOL_COLUMNS", "SpoolBlocks", "SpoolRecords", "parse_spooled", "payload_lines"]

_READ_BYTES = 4 << 20  # bytes that are read at a time
_OPEN, _CLOSE = b"{}"

# Columns that come of the frame and not of the payload, with the types in which they are read.
SPOOL_COLUMNS = {"spool_received": TIMESTAMP, "spool_topic": pa.string(), "spool_number": pa.int64()}


@dataclass(frozen=True, slots=True)
class SpoolRecords(Lines):
    """The records of a stretch of a segment: `Lines` by frames. The bytes of a record end where the next one begins.

    Attributes
    ----------
    frames : Frames
        What the records hold.
    """

    frames: Frames

    @classmethod
    def among(cls, data: bytes, frames: Frames) -> SpoolRecords:
        """Return the records that were found in these bytes."""
        count = len(frames.starts)
        starts = np.array(frames.starts, np.int64)
        ends = np.append(starts[1:], len(data)) if count else starts
        return cls(data, starts, ends, np.arange(count, dtype=np.int64), count, frames)

    def record_text(self, record: int) -> str:
        """Return one record's payload as text. Bytes that are not UTF-8 are replaced."""
        return self.frames.payloads[record].decode("utf-8", "replace")


class SpoolBlocks:
    """Cuts a segment into blocks of whole frames, as `LineBlocks` cuts a text into lines.

    Of a segment that is still written only what lies before a mark is given: what comes after may be torn, and a power
    cut may take it.

    Parameters
    ----------
    text : Text
        Where the bytes come from.
    salt : int
        The segment's salt.
    offset : int
        Byte at which to begin, the first of a frame.
    limit : int or None
        Byte before which to stop; None to stop at the segment's end.
    path : str
        The segment's path, for errors.
    """

    def __init__(self, text: Text, salt: int, offset: int, limit: int | None, path: str) -> None:
        self._text, self._salt, self._limit, self._path = text, salt, limit, path
        self._at = self._read_to = offset
        self._rest = b""
        self._frames = Frames()
        self.ended = False

    @property
    def held_bytes(self) -> int:
        """Number of bytes after the last mark, once the end was reached."""
        return len(self._rest)

    def next(self, complete: bool) -> bytes:
        """Return the next block; empty at the end. Of a `complete` segment all whole frames are given.

        Raises
        ------
        FileFormatError
            A complete segment ends in the middle of a frame. The frames before that place are given first.
        """
        while True:
            if not self.ended:
                want = _READ_BYTES if self._limit is None else min(_READ_BYTES, self._limit - self._read_to)
                self.ended = self._read(want) < _READ_BYTES
            found = walk(self._rest, self._salt, self._at, ended=self.ended)
            if not found.end and self._rest and self.ended and complete:
                found = self._damaged_to_the_limit()
            if not complete:
                found.cut_at_mark()
            if found.end:
                block, self._rest = self._rest[: found.end], self._rest[found.end :]
                self._at += found.end
                self._frames = found
                return block
            if self.ended:
                if complete and self._rest:
                    msg = f"the segment {self._path} is torn or damaged from byte {self._at} on, and another follows it"
                    raise FileFormatError(msg, name=self._path, hint="restore the file from a copy")
                return b""

    def _read(self, size: int) -> int:
        data = self._text.read(self._read_to, size) if size > 0 else b""
        self._read_to += len(data)
        self._rest += data
        return len(data)

    def _damaged_to_the_limit(self) -> Frames:
        """Return the rest as one damaged record, where a valid frame follows at the limit: it is after the limit."""
        size = len(self._rest)
        while True:
            ended = self._read(_READ_BYTES) < _READ_BYTES
            found = walk(self._rest, self._salt, self._at, ended=ended, limit=size)
            if found.end or ended:
                self._rest = self._rest[:size]
                return found

    def records(self, block: bytes) -> SpoolRecords:
        """Return the records of the block that `next` returned last."""
        return SpoolRecords.among(block, self._frames)


def payload_lines(payloads: list[bytes]) -> Lines:
    """Return payloads as lines, one each. A line end within a payload becomes a tab, which means the same in JSON."""
    text = b"\n".join(payloads) + b"\n" if payloads else b""
    if text.count(b"\n") != len(payloads) or b"\r" in text:
        payloads = [payload.replace(b"\n", b"\t").replace(b"\r", b"\t") for payload in payloads]
        text = b"\n".join(payloads) + b"\n"
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)) + 1)
    starts = np.append(np.zeros(1, np.int64), ends[:-1])[: len(payloads)]
    return Lines(text, starts, ends, np.arange(len(payloads), dtype=np.int64), len(payloads))


def parse_spooled(
    records: SpoolRecords, form: JsonLines, schema: pa.Schema, *, file: str, at_file_start: bool
) -> RawRecords:
    """Return records with the columns of `schema`: those of the payload by `form`, the others of the frame.

    A payload that is no JSON object is broken, and so are bytes that do not fit their checksum.

    Raises
    ------
    SchemaDriftError
        See `parse_lines`.
    ColumnError
        A column of the frame is asked for in a type that it cannot have.
    """
    frames = records.frames
    broken = [
        (place, "", reason, clipped(records.record_text(place))) for place, reason in sorted(frames.damaged.items())
    ]
    index = np.setdiff1d(np.arange(records.count, dtype=np.int64), np.fromiter(frames.damaged, np.int64))
    table = pa.table({})
    if any(column.name not in SPOOL_COLUMNS for column in schema):
        payloads = frames.payloads if not broken else [frames.payloads[place] for place in index.tolist()]
        lines = payload_lines(payloads)
        suspects = _no_objects(lines)
        for place in suspects:
            column, reason = form.reason(payloads[place])
            broken.append((int(index[place]), column, reason, clipped(records.record_text(int(index[place])))))
        if suspects:
            kept = np.setdiff1d(np.arange(lines.count, dtype=np.int64), np.array(suspects, np.int64))
            index, payloads = index[kept], [payloads[place] for place in kept.tolist()]
            lines = payload_lines(payloads)
        raw = parse_lines(lines, form, file=file, at_file_start=at_file_start)
        broken += [
            (int(index[place]), column, reason, clipped(records.record_text(int(index[place]))))
            for place, column, reason, _ in raw.broken
        ]
        index = index if raw.index is None else index[raw.index]
        table = raw.table
    columns = [_of_frame(frames, index, c) if c.name in SPOOL_COLUMNS else table.column(c.name) for c in schema]
    made = pa.table(columns, names=schema.names)
    return RawRecords(made, records.count, None if len(index) == records.count else index, sorted(broken))


def _no_objects(lines: Lines) -> list[int]:
    """Return the lines that do not begin with ``{`` and end with ``}``, blanks aside.

    A broken payload could go on in the next one, and two objects in one payload would make up for the lost row. Of
    payloads that begin and end so, none can go on in the next: an object cannot follow another without a comma.
    """
    text = np.frombuffer(lines.data, np.uint8)
    if not lines.count:
        return []
    first = text[lines.starts] == _OPEN
    last = text[np.maximum(lines.ends - 2, lines.starts)] == _CLOSE
    found = []
    for place in np.flatnonzero(~(first & last)).tolist():
        payload = lines.text(place, place + 1).strip(b" \t\r\n")
        if not (payload.startswith(b"{") and payload.endswith(b"}")):
            found.append(place)
    return found


def _of_frame(frames: Frames, index: np.ndarray, column: pa.Field) -> pa.Array:
    kind = SPOOL_COLUMNS[column.name]
    places = index.tolist()
    if column.name == "spool_topic":
        topics = frames.topics()
        values = pa.array([topics[place].decode("utf-8", "replace") for place in places], kind)
    else:
        numbers = frames.received_us() if column.name == "spool_received" else frames.numbers()
        values = pa.array([numbers[place] for place in places], pa.int64()).cast(kind)
    try:
        return values.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        msg = f"the column '{column.name}' of a spool cannot have the type {column.type}"
        raise ColumnError(msg, name=column.name, hint=f"its type is {kind}") from None
