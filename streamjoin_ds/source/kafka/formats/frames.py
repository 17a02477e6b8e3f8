"""Frames: which messages are exactly one JSON object, each as one line. The readable twin of ``kafka/frames.c``.

A reader of JSON lines merges ``{"a":1`` with a neighbour ``,"b":2}`` and makes two records of ``{..}{..}``; where both
happen, even the number of records is right. A framed message begins with a brace that its last byte closes, and has no
line end inside a text. So a reader makes one record of it, or fails.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["FRAMED", "FRAME_REASONS", "byte_ends", "frame_objects", "framed"]

FRAMED, _EMPTY, _NO_OBJECT, _OPEN, _MORE, _CONTROL = range(6)
FRAME_REASONS = {
    _EMPTY: "an empty message",
    _NO_OBJECT: "not a JSON object",
    _OPEN: "the JSON object does not end",
    _MORE: "more than one JSON object",
    _CONTROL: "a line end inside a text",
}
_BLANKS = b" \t\r\n"
# A text with its escapes; else a bracket, a line end, or a quote that begins a text without an end.
_TOKEN = re.compile(rb'"(?:[^"\\\r\n]|\\[^\r\n])*"|["{}\[\]\r\n]')


@lru_cache(maxsize=1)
def _native() -> Any:
    try:
        return import_module("streamjoin_ds._kernels.messages")
    except ImportError:  # a package that was not compiled
        return None


def framed(values: pa.BinaryArray) -> tuple[bytes, np.ndarray]:
    """Return the framed ones of some messages, a line each, and what each message is (`FRAMED`, `FRAME_REASONS`)."""
    data, ends = byte_ends(values)
    frame = frame_objects if _native() is None else _native().frame_objects
    lines, found = frame(data, ends)
    return lines.tobytes(), found


def byte_ends(values: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of an array (uint8), and where in them each value begins (int32; the last ends where they do).

    A null is an empty value.
    """
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1] if ends else np.zeros(1)
    return np.frombuffer(data or b"", np.uint8), np.ascontiguousarray(offsets, np.int32)


def frame_objects(data: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return framed messages, a line each (uint8), and what each message is (int8).

    Message ``i`` is ``data[ends[i]:ends[i + 1]]``. Blanks around it are left out, and line ends between its values
    become blanks.
    """
    text, lines, found = data.tobytes(), [], np.zeros(len(ends) - 1, np.int8)
    for number, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        message = text[begin:end].strip(_BLANKS)
        found[number] = _frame(message)
        if found[number] == FRAMED:
            lines.append(_TOKEN.sub(lambda token: b" " if token[0] in b"\r\n" else token[0], message) + b"\n")
    return np.frombuffer(b"".join(lines), np.uint8), found


def _frame(message: bytes) -> int:
    if not message:
        return _EMPTY
    if not message.startswith(b"{"):
        return _NO_OBJECT
    depth = 0
    for token in _TOKEN.finditer(message):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return FRAMED if token.end() == len(message) else _MORE
        elif token[0] == b'"':
            rest = message[token.end() :]
            return _CONTROL if b"\n" in rest or b"\r" in rest else _OPEN
    return _OPEN
