"""The messages of a posted body: as its header says, inflated, then one JSON, a list of them, or JSON lines."""

from __future__ import annotations

import json
import re
import zlib
from http import HTTPStatus

from streamjoin_ds.spool.frame import MAX_PAYLOAD_BYTES

__all__ = ["ENCODINGS", "BodyError", "inflated", "payloads_of"]

ENCODINGS = ("gzip", "deflate", "identity")
_GZIP, _ZLIB = 31, 15  # zlib's names of the two formats
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class BodyError(Exception):
    """Why a body is not taken: the status to answer, and a text."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def inflated(body: bytes, encoding: str, most_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
    """Return a body without its Content-Encoding.

    Parameters
    ----------
    body : bytes
    encoding : str
        The header's value; empty where there is none.
    most_bytes : int
        The most that it may have then. No more memory than that is used.

    Raises
    ------
    BodyError
        The encoding is unknown, the body is not what it says, or is larger.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise BodyError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding may be {', '.join(ENCODINGS)}")
    found: list[bytes] = []
    left = most_bytes
    while body:
        stretch = zlib.decompressobj(_WINDOWS[encoding])
        try:
            found.append(stretch.decompress(body, left + 1))  # one byte more: 0 would be no bound
        except zlib.error:
            raise _broken(encoding) from None
        left -= len(found[-1])
        if left < 0:
            raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{most_bytes} bytes at most, inflated")
        if not stretch.eof:
            raise _broken(encoding)
        body = stretch.unused_data  # gzip may have several members
    return b"".join(found)


def _broken(encoding: str) -> BodyError:
    return BodyError(HTTPStatus.BAD_REQUEST, f"the body is no {encoding}, though its Content-Encoding says so")


def payloads_of(body: bytes, kind: str) -> list[bytes]:
    """Return the messages of a body, byte by byte as they were sent.

    Parameters
    ----------
    body : bytes
    kind : str
        The media type. ``application/json``: the body is one message, or a list of objects, a message each. Any other:
        JSON lines, a message each, blank lines aside. What is no JSON is a message too: it is a reject when it is read,
        so nothing is lost for it.
    """
    if kind != "application/json":
        return [line for line in body.splitlines() if line.strip()]
    if not body.strip():
        return []
    objects = _objects(body) if body.lstrip()[:1] == b"[" else None
    return [body] if objects is None else objects


def _objects(body: bytes) -> list[bytes] | None:
    """Return the objects of a list; None where it is none, or has other elements."""
    try:
        text = body.decode()
        place = _after_blanks(text, text.index("[") + 1)
        found: list[bytes] = []
        while text[place] != "]":
            value, end = _DECODER.raw_decode(text, place)
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
