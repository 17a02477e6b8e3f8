"""The messages of a posted body: inflated as its header says, then one JSON, a list of them, or lines."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Generator
from http import HTTPStatus

import msgspec

from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES

__all__ = [
    "ENCODINGS",
    "INFLUX",
    "JSON_TYPE",
    "PACK",
    "PRECISIONS",
    "STEP_BYTES",
    "BodyError",
    "Tally",
    "check_readable",
    "inflating",
    "payloads_of",
]

JSON_TYPE = "application/json"
PACK = "pack"  # the kind of a body that is one message
INFLUX = "influx/"  # before the precision of a body of line protocol
PRECISIONS = {
    **dict.fromkeys(("", "ns", "n"), 1),
    **dict.fromkeys(("us", "u"), 1_000),
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
"""The precisions of line protocol by their names in a request, in nanoseconds."""

ENCODINGS = ("gzip", "deflate", "identity")
STEP_BYTES = 256 << 10  # bytes that are inflated before others have their turn
_GZIP, _ZLIB = 31, 15  # zlib's names of the two formats
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
_INFLATE_BYTES = 64 << 10  # bytes that are given to zlib at a time: it copies what it leaves over
_MEMBERS = 1_000  # members of a gzip, at most: an empty one has 20 bytes, and costs as much as a full one
_BLANKS = re.compile(r"[ \t\n\r]*")
_INFLUX_LINE = re.compile(rb"[^\s,#](?:[^ \\]|\\.)* +(?:[^ =\\]|\\.)+=.", re.DOTALL)  # what line protocol begins as
_INFLUX_TIME = re.compile(rb"(?<=[^\\] )-?[0-9]{1,19}(?=[ \r]*\Z)")
_JUDGED = 100  # messages of a body that are judged: a hundred that are broken are no accident
_PYTHON_BYTES = 64 << 10  # a larger text is not made objects of Python, which take 20 times its memory
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_PYTHON = json.JSONDecoder()


class _Object(msgspec.Struct):
    """Any object: fields that are not named here are checked and passed over, so they take no memory."""


_OBJECT = msgspec.json.Decoder(_Object)
_OBJECTS = msgspec.json.Decoder(list[_Object])


class BodyError(Exception):
    """Why a body is not taken: the status to answer, and a text."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Tally:
    """Counts the messages of a body while its bytes come: one that has too many is not read to its end.

    They are counted before they are made, since a message of two bytes takes 100.

    Parameters
    ----------
    kind : str
        See `payloads_of`.
    most : int
        Messages, at most. Of lines blank ones count, of a list the objects within objects.
    """

    def __init__(self, kind: str, most: int) -> None:
        self._most, self._count, self._end = most, 0, b""
        self._mark = None if kind in (JSON_TYPE, PACK) else b"\n"  # what is counted

    def add(self, piece: bytes) -> None:
        """Count what is in the next bytes.

        Raises
        ------
        BodyError
            There may be more messages than are taken.
        """
        if self._mark is None:
            begin = piece.lstrip()[:1]
            if not begin:
                return
            self._mark = b"{" if begin == b"[" else b""
        if self._mark == b"\n":
            self._count += piece.count(b"\n") + piece.count(b"\r") - (self._end + piece).count(b"\r\n")
            self._end = piece[-1:]
        elif self._mark:
            self._count += piece.count(self._mark)
        if self._count > self._most:
            of = "lines" if self._mark == b"\n" else "objects, those within objects counted"
            raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{self._most} {of}, at most")


def inflating(body: bytes, encoding: str, tally: Tally) -> Generator[None, None, bytes]:
    """Inflate a body, some bytes a step, and return it without its Content-Encoding.

    Parameters
    ----------
    body : bytes
    encoding : str
        The header's value, in small letters.
    tally : Tally
        Is given the bytes.

    Raises
    ------
    BodyError
        The encoding is unknown, the body is not what it says, or has more than 32 MiB or messages than are taken.
    """
    if encoding not in _WINDOWS:
        raise BodyError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding may be {', '.join(ENCODINGS)}")
    found = io.BytesIO()
    stretch, members, place, rest, turn = zlib.decompressobj(_WINDOWS[encoding]), 1, 0, b"", 0
    while True:
        if not rest:
            rest, place = body[place : place + _INFLATE_BYTES], place + _INFLATE_BYTES
        if stretch.eof:
            if not rest:
                return found.getvalue()  # shares its bytes
            members += 1
            if members > _MEMBERS:
                raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{_MEMBERS} members of a {encoding} at most")
            stretch = zlib.decompressobj(_WINDOWS[encoding])
        try:
            piece = stretch.decompress(rest, STEP_BYTES)
        except zlib.error:
            raise _broken(encoding) from None
        if not rest and not piece and not stretch.eof:
            raise _broken(encoding)
        rest = stretch.unused_data if stretch.eof else stretch.unconsumed_tail
        tally.add(piece)
        found.write(piece)
        if found.tell() > MAX_PAYLOAD_BYTES:
            raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MAX_PAYLOAD_BYTES} bytes at most, inflated")
        turn += len(piece) + _INFLATE_BYTES // 4
        if turn >= STEP_BYTES:
            turn = 0
            yield


def _broken(encoding: str) -> BodyError:
    return BodyError(HTTPStatus.BAD_REQUEST, f"the body is no {encoding}, though its Content-Encoding says so")


def payloads_of(body: bytes, kind: str) -> list[bytes]:
    """Return the messages of a body, byte by byte as they were sent.

    Parameters
    ----------
    body : bytes
    kind : str
        ``application/json``: the body is one message, or a list of objects, a message each. `PACK`: it is one message.
        `INFLUX` and one of `PRECISIONS`: lines, a message each, whose times are made nanoseconds. Any other: lines, a
        message each, blank lines aside.
    """
    if kind not in (JSON_TYPE, PACK):
        lines = [line for line in body.splitlines() if line.strip()]
        factor = PRECISIONS[kind.removeprefix(INFLUX)] if kind.startswith(INFLUX) else 1
        return lines if factor == 1 else [_in_nanoseconds(line, factor) for line in lines]
    if not body or body.isspace():
        return []
    if kind == PACK or body.lstrip()[:1] != b"[":
        return [body]
    try:
        _OBJECTS.decode(body)  # first, so that there are no more elements than braces
        return [bytes(raw) for raw in _RAWS.decode(body)]
    except (msgspec.DecodeError, RecursionError):
        objects = _objects(body) if len(body) <= _PYTHON_BYTES else None
        return [body] if objects is None else objects


def _in_nanoseconds(line: bytes, factor: int) -> bytes:
    """Return a line of line protocol whose time counts so many nanoseconds each."""
    return _INFLUX_TIME.sub(lambda time: b"%d" % (int(time[0]) * factor), line)


def check_readable(payloads: list[bytes], kind: str) -> None:
    """Refuse messages if no stream can read them. One that can be read makes the others rejects, which are kept.

    Parameters
    ----------
    payloads : list of bytes
    kind : str
        See `payloads_of`.

    Raises
    ------
    BodyError
        None of the first ones is what it should be: a JSON object, a pack of SenML, a line of line protocol.
    """
    is_readable, what = _is_object, "a JSON object: post JSON lines, an object or a list of objects"
    if kind == PACK:
        is_readable, what = _is_pack, "a pack of SenML: post a list of objects"
    elif kind.startswith(INFLUX):
        is_readable, what = _is_influx, "a line of InfluxDB's line protocol"
    if payloads and not any(map(is_readable, payloads[:_JUDGED])):
        others = "influx takes line protocol" if _is_influx(payloads[0]) else "anything keeps all bytes"
        reason = f"no message of the body is {what} (the intake's --accept {others})"
        raise BodyError(HTTPStatus.BAD_REQUEST, reason)


def _is_influx(payload: bytes) -> bool:
    return _INFLUX_LINE.match(payload) is not None


def _is_pack(payload: bytes) -> bool:
    try:
        _OBJECTS.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return _is_object(payload) or (len(payload) <= _PYTHON_BYTES and bool(_objects(payload)))
    return True


def _is_object(payload: bytes) -> bool:
    try:
        _OBJECT.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        if len(payload) > _PYTHON_BYTES or b"{" not in payload[:_PYTHON_BYTES]:
            return False
        try:
            return isinstance(json.loads(payload), dict)  # it knows NaN, as the readers do
        except (ValueError, RecursionError):
            return False
    return True


def _objects(body: bytes) -> list[bytes] | None:
    """Return the objects of a list as Python knows JSON, NaN too; None where it is none, or has other elements."""
    try:
        text = body.decode()
        place = _after_blanks(text, text.index("[") + 1)
        found: list[bytes] = []
        while text[place] != "]":
            value, end = _PYTHON.raw_decode(text, place)
            if not isinstance(value, dict):
                return None
            found.append(text[place:end].encode())
            place = _after_blanks(text, end)
            if text[place] == ",":
                place = _after_blanks(text, place + 1)
                if text[place] == "]":
                    return None
            elif text[place] != "]":
                return None
        return found if _after_blanks(text, place + 1) == len(text) else None
    except (ValueError, IndexError, RecursionError):
        return None


def _after_blanks(text: str, place: int) -> int:
    match = _BLANKS.match(text, place)
    assert match is not None, "no blanks are blanks too"
    return match.end()
