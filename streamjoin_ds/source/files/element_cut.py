"""The cut of a text of JSON into values, by brackets outside of texts, before anything is parsed.

A text ends at its line's end at the latest. An object that begins where another one expects a key shows that this one
never ended: it is cut off there. Where the first line is a whole value, every line is by itself. So what can still be
told apart in a damaged file is found, and what is given depends on the bytes before alone, not on where reading began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy

import msgspec

__all__ = ["BLANKS", "ElementCut", "is_json", "values_of"]

BLANKS = b" \t\r\n"
_TEXT = rb'"[^"\\\r\n]*(?:\\[^\r\n][^"\\\r\n]*)*'  # without the quote at its end
_FLAT = rb'[^{}\[\]"]*(?:%b"[^{}\[\]"]*)*' % _TEXT  # what holds no bracket
# Brackets with none inside; a text, whose end may lack; a bracket.
_TOKEN = re.compile(rb'\{%b\}|\[%b\]|%b\\?("?)|[{}\[\]]' % (_FLAT, _FLAT, _TEXT))
# Between values: a text, a bracket, or what parts values.
_BETWEEN = re.compile(rb'%b\\?("?)|[{}\[\],\r\n]' % _TEXT)
_LEVELS = 5  # most levels of a value that one pattern finds
_BRACE, _CLOSING_BRACE, _BRACKET, _CLOSING_BRACKET, _COLON, _QUOTE, _NEWLINE = b'{}[]:"\n'
_OPEN_OF = {_CLOSING_BRACE: _BRACE, _CLOSING_BRACKET: _BRACKET}
_BYTE_ORDER = b"\xef\xbb\xbf"  # a mark with which a text may begin
_any = msgspec.json.Decoder(msgspec.Raw).decode


def _nested(levels: int) -> tuple[bytes, bytes]:
    """Return patterns of an object and of an array of so many levels at most; what an object holds follows a colon."""
    if levels == 1:
        return rb"\{%b\}" % _FLAT, rb"\[%b\]" % _FLAT
    inner = b"(?:%b|%b)" % _nested(levels - 1)
    held = rb'[^{}\[\]"]*(?:(?:%b"|%b)[^{}\[\]"]*)*'
    of_object = held % (_TEXT, rb"(?:(?<=:)|(?<=: ))%b" % inner)
    return rb"\{%b\}" % of_object, rb"\[%b\]" % (held % (_TEXT, inner))


# An object after what parts it from the one before: nearly all are found by this alone.
_WHOLE = re.compile(rb"[ \t\r\n,]*(%b)" % _nested(_LEVELS)[0])


class ElementCut:
    """Cuts a text into values: objects, and the elements of an array that lies in none.

    Parameters
    ----------
    by_lines : bool, optional
        Whether each line is by itself; None to go by the first line that has a value.
    """

    def __init__(self, by_lines: bool | None = None) -> None:
        self._by_lines = by_lines
        self._rest = b""
        self._at = 0  # how far the rest was looked at
        self._begin = 0  # where in it the open value begins, or what is no value
        self._open = bytearray()  # the brackets of the value that is open
        self._in_array = self._has_begun = self._has_value = False

    @property
    def in_array(self) -> bool:
        """Whether an array has begun and not ended."""
        return self._in_array

    @property
    def held_bytes(self) -> int:
        """Number of bytes that belong to no value yet."""
        return len(self._rest)

    def copy(self) -> ElementCut:
        """Return a cut at the same place."""
        other = copy(self)
        other._open = self._open.copy()
        return other

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the values that end with these bytes of the text; None where an array begins."""
        self._rest += data
        if not self._has_begun:
            if len(self._rest) < len(_BYTE_ORDER) and _BYTE_ORDER.startswith(self._rest):
                return
            self._rest, self._has_begun = self._rest.removeprefix(_BYTE_ORDER), True
        if not self._by_lines:
            yield from self._values(is_end=False)
        if self._by_lines:
            cut = self._rest.rfind(b"\n") + 1
            whole, self._rest = self._rest[:cut], self._rest[cut:]
            for line in whole.split(b"\n"):
                yield from values_of(line)

    def end(self) -> Iterator[bytes | None]:
        """Yield what is left where the text ends: its last value may lack its end."""
        if not self._by_lines:
            yield from self._values(is_end=True)
        rest, self._rest, self._at, self._begin = self._rest[self._begin :], b"", 0, 0
        self._open.clear()
        if self._by_lines:
            yield from values_of(rest)
        elif rest := rest.strip(BLANKS):
            yield rest

    def _values(self, *, is_end: bool) -> Iterator[bytes | None]:
        text = self._rest
        while self._at < len(text) and not self._by_lines:
            if not self._open and self._begin == self._at and (self._in_array or self._by_lines is False):
                yield from self._whole(text)
            found = (_TOKEN if self._open else _BETWEEN).search(text, self._at)
            if found is None:
                self._at = len(text)
            elif text[found.start()] == _QUOTE:
                if not found[1] and found.end() == len(text) and not is_end:
                    self._at = found.start()  # the text may go on
                    break
                self._at = found.end()
            elif self._open:
                yield from self._inside(text, found.start(), found.end())
            else:
                yield from self._between(text, found.start())
        self._rest, self._at, self._begin = text[self._begin :], self._at - self._begin, 0

    def _whole(self, text: bytes) -> Iterator[bytes]:
        """Yield the values that follow right here and are simple."""
        while found := _WHOLE.match(text, self._at):
            if self._by_lines is None and b"\n" in found[0]:
                self._by_lines = False
            self._at = self._begin = found.end()
            self._has_value = self._has_value or b'"' in found[1]
            yield found[1]

    def _between(self, text: bytes, at: int) -> Iterator[bytes | None]:
        """Take a bracket or a sign outside of values."""
        first, self._at = text[at], at + 1
        if first == _CLOSING_BRACE or (first == _CLOSING_BRACKET and not self._in_array):
            return  # a part of what is no value
        if stray := text[self._begin : at].strip(BLANKS):
            yield stray
        self._begin = at + 1
        if first == _CLOSING_BRACKET:
            self._in_array = False
        elif first == _BRACKET and not self._in_array:
            self._in_array = True
            yield None
        elif first in (_BRACE, _BRACKET):
            self._begin = at
            whole = _TOKEN.match(text, at)
            if whole is not None and whole.end() > at + 1:
                yield self._ended(text, whole.end())
            else:
                self._open.append(first)
        elif first == _NEWLINE and self._by_lines is None and (self._in_array or self._has_value):
            self._by_lines = not self._in_array

    def _inside(self, text: bytes, begin: int, end: int) -> Iterator[bytes]:
        """Take a bracket, or brackets with what they hold, inside of a value."""
        first, self._at = text[begin], end
        if first == _BRACE and self._open[-1] == _BRACE and _last_of(text, begin) != _COLON:
            yield self._ended(text, begin)
        elif first in (_BRACE, _BRACKET):
            if end == begin + 1:
                self._open.append(first)
        elif (pair := _OPEN_OF[first]) in self._open:
            while self._open.pop() != pair:  # what is open inside lacks its end
                pass
            if not self._open:
                yield self._ended(text, end)
        elif first == _CLOSING_BRACKET and self._in_array:
            yield self._ended(text, begin)

    def _ended(self, text: bytes, end: int) -> bytes:
        """End the open value, and return it."""
        value = text[self._begin : end]
        self._open.clear()
        self._begin = self._at = end
        self._has_value = self._has_value or b'"' in value  # {} stands in one line, however others are written
        if self._by_lines is None and b"\n" in value:
            self._by_lines = False
        return value


def _last_of(text: bytes, end: int) -> int:
    """Return the last byte before a place that is no blank; there is one."""
    end -= 1
    while text[end] in BLANKS:
        end -= 1
    return text[end]


def values_of(text: bytes) -> Iterator[bytes | None]:
    """Yield the values of a whole text, as `ElementCut` cuts it; None before the first one, and where arrays begin."""
    text = text.strip(BLANKS)
    yield None
    if text.startswith(b"{") and is_json(text):
        yield text
    elif text:
        cut = ElementCut(by_lines=False)
        yield from cut.feed(text)
        yield from cut.end()
        if cut.in_array:
            yield b"an array does not end here"


def is_json(text: bytes) -> bool:
    """Whether a text is one value of JSON."""
    try:
        _any(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
