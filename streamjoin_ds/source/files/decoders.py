"""Decoders: how the bytes of a file become a text of lines that the readers know.

A file may lie in another encoding, or in a form that is no line of CSV or JSON. It is read as if it were::

    bytes of the file ──► decompression ──► decoders, one after the other ──► canonical text: CSV or JSON lines, UTF-8
                          (by the name)     (`file_names`)                    positions, digests, numbers, rejects

All else knows the canonical text alone: positions, digests, blocks, rejects and quarantine (see `text.py`).
"""

from __future__ import annotations

import codecs
import copy
import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.spec.member.files import BLANKS, Files
from streamjoin_ds.spec.member.source import Topic

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "INNER_LINES",
    "MAX_LINE_BYTES",
    "NO_BYTE",
    "Blanks",
    "Chain",
    "Decoder",
    "Decoding",
    "Encoded",
    "FixedWidths",
    "LineDecoder",
    "LoneReturns",
    "QuotedLines",
    "decoders_of",
    "has_inner_lines",
    "too_long",
    "with_inner_lines",
]

MAX_LINE_BYTES = 64 << 20  # bytes of a line, at most
_NEWLINE, _RETURN, _TAB, _BLANK = b"\n\r\t "
_AROUND = " \t\r\u00a0"  # what may stand around a field of a fixed width
# The marks that a file may begin with, and its encoding then. The longer one first: it begins with a shorter one.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF8: "utf-8",
}
_WITHOUT_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # what these names mean where no mark decides
_UNIT_BYTES = {"utf-16": 2, "utf-32": 4}
# What stands for line ends in quotes: characters of Unicode that are none, and stand in no text that is passed on.
INNER_LINES = str.maketrans({"\ufdd0": "\n", "\ufdd1": "\r"})
_INNER_NEWLINE, _INNER_RETURN = (chr(sign).encode() for sign in INNER_LINES)
NO_BYTE = b"\xff"  # in no text of UTF-8; no end of a line


class Decoder:
    """Turns the bytes of one file, piece by piece and only forward, into canonical text.

    The text is a pure function of the bytes: it does not depend on where they were cut into pieces. `feed` gives what
    is certain, whatever follows; the rest waits in the decoder. `finish` gives that rest as if the file ended here. It
    adds no newline: if the file goes on at the beginning of a record after all, what was given must stay as it is.

    Attributes
    ----------
    fault : FileFormatError or None
        Why no more can be given. It is set by the call that gave all the text before the fault.
    """

    fault: FileFormatError | None = None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the file, at least one, and return the text that is certain now; it may be empty."""
        raise NotImplementedError

    def finish(self) -> bytes:
        """Return the last text, where the file ends here. The decoder is not used any more."""
        return b""

    def copy(self) -> Self:
        """Return an independent decoder at the same place. A decoder is copied at each mebibyte."""
        return copy.deepcopy(self)


class Decoding(Protocol):
    """What makes the decoder of a file. It is hashable, and two are equal iff they make equal decoders."""

    @property
    def begin_bytes(self) -> int:
        """First bytes of a file by which the decoder is chosen."""

    def decoder(self, begin: bytes, path: str) -> Decoder | None:
        """Return a new decoder; None where the bytes are canonical already.

        Parameters
        ----------
        begin : bytes
            What it would be given first: as many bytes as it wants, or those before the first newline.
        path : str
            The file's path, for errors.
        """


@dataclass(frozen=True, slots=True)
class Members:
    """How the members of an archive become one text (`archives.py`). It makes no decoder: members have their own.

    Parameters
    ----------
    kind : str
        The format of the members that are read.
    files : Files
        What the head of a CSV file is.
    """

    kind: str
    files: Files = dataclasses.field(hash=False)

    @property
    def begin_bytes(self) -> int:
        """See `Decoding.begin_bytes`."""
        return 0

    def decoder(self, begin: bytes, path: str) -> Decoder | None:
        """See `Decoding.decoder`."""
        del begin, path
        return None


def decoders_of(decodings: Sequence[Decoding], begin: bytes, path: str) -> list[Decoder]:
    """Return the decoders of a file that begins so; none where its bytes are canonical."""
    found = []
    for place, decoding in enumerate(decodings, 1):
        decoder = decoding.decoder(begin, path)
        if decoder is not None:
            found.append(decoder)
            begin = decoder.copy().feed(begin) if begin and place < len(decodings) else begin
    return found


class Chain(Decoder):
    """Decoders one after the other: each is given the text of the one before it."""

    def __init__(self, decoders: list[Decoder]) -> None:
        self._decoders = decoders

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        for decoder in self._decoders:
            data = decoder.feed(data) if data else data
            self.fault = self.fault or decoder.fault
        return data

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        text = b""
        for decoder in self._decoders:
            text = decoder.feed(text) if text else text
            text += decoder.finish()
            self.fault = self.fault or decoder.fault
        return text

    def copy(self) -> Chain:
        """See `Decoder.copy`."""
        other = Chain([decoder.copy() for decoder in self._decoders])
        other.fault = self.fault
        return other


class Encoded(Struct, frozen=True):
    """The encoding of a text file. A byte order mark decides before the name does.

    Parameters
    ----------
    name : str
        A codec of Python, as `Files.checked` normalises it.
    """

    name: str

    begin_bytes = max(map(len, _MARKS))

    def decoder(self, begin: bytes, path: str) -> Decoder | None:
        """See `Decoding.decoder`."""
        del path
        marked = next((name for mark, name in _MARKS.items() if begin.startswith(mark)), None)
        name = marked or _WITHOUT_MARK.get(self.name, self.name)
        return None if name == "utf-8" else _EncodedText(name, marked is not None)


class _EncodedText(Decoder):
    """Decodes a text. Where bytes mean nothing in the encoding, the text has a byte that is not UTF-8 in their place.

    So one such byte breaks one record, and only where a column that is read holds it, as in a file of UTF-8.
    """

    def __init__(self, name: str, is_marked: bool) -> None:
        self._name, self._is_marked = name, is_marked  # marked: the first character is none of the text
        self._codec = codecs.getincrementaldecoder(name)(_HANDLER)

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        return self._canonical(self._codec.decode(data))

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        return self._canonical(self._codec.decode(b"", final=True))

    def _canonical(self, text: str) -> bytes:
        if self._is_marked and text:
            self._is_marked, text = False, text[1:]
        return text.encode("utf-8", _HANDLER)

    def copy(self) -> _EncodedText:
        """See `Decoder.copy`."""
        other = _EncodedText(self._name, self._is_marked)
        other._codec.setstate(self._codec.getstate())
        return other


class LoneReturns(Struct, frozen=True):
    """The carriage returns of old Macs, as line ends: where no newline is in what a file begins with."""

    begin_bytes = 1 << 16

    def decoder(self, begin: bytes, path: str) -> Decoder | None:
        """See `Decoding.decoder`."""
        del path
        return _Returns() if b"\n" not in begin and b"\r" in begin[:-1] else None


class _Returns(Decoder):
    """Gives a newline for each carriage return."""

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        return data.replace(b"\r", b"\n")


class Blanks(Struct, frozen=True):
    """Fields between any number of blanks and tabs, with one blank between them.

    Parameters
    ----------
    quote : str or None
        Within a pair of them blanks stay as they are.
    """

    quote: str | None

    @classmethod
    def of(cls, source: object) -> Blanks | None:
        """Return it for a source whose fields are so; None for another one."""
        if not isinstance(source, Files | Topic) or source.delimiter != BLANKS:
            return None
        return cls(None if source.quote == "none" else source.quote)

    begin_bytes = 0

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        del begin
        return LineDecoder(self.lines, path)

    def lines(self, data: bytes) -> bytes:
        """Return whole lines with one blank between their fields, and none before and after them."""
        text = np.frombuffer(data, np.uint8)
        is_blank = (text == _BLANK) | (text == _TAB)
        if self.quote is not None and self.quote.encode() in data:
            quotes = np.cumsum(text == ord(self.quote))
            begins = np.flatnonzero(text == _NEWLINE) + 1
            before = np.append([0], quotes[begins - 1])  # quotes before each line
            of_lines = np.diff(begins, prepend=0, append=len(text))
            is_blank &= (quotes - np.repeat(before, of_lines)) % 2 == 0
        runs = np.diff(is_blank.astype(np.int8), prepend=0, append=0)
        begins, ends = np.flatnonzero(runs == 1), np.flatnonzero(runs == -1)
        ended = np.append(text, np.uint8(_NEWLINE))
        is_first = (begins == 0) | (text[begins - 1] == _NEWLINE)
        is_last = (ended[ends] == _NEWLINE) | (ended[ends] == _RETURN)
        between = begins[~(is_first | is_last)]
        made, is_kept = text.copy(), ~is_blank
        made[between], is_kept[between] = _BLANK, True
        lines: bytes = made[is_kept].tobytes()
        return lines


class FixedWidths(Struct, frozen=True):
    """Fields of fixed widths, as lines of CSV with commas. See `Files.widths`.

    Parameters
    ----------
    widths : tuple of int
        In characters; a negative one is passed over.
    comment : str or None
        Lines that begin with it stay as they are.
    """

    widths: tuple[int, ...]
    comment: str | None

    @classmethod
    def of(cls, source: Files) -> FixedWidths | None:
        """Return it for a source whose fields have widths; None for another one."""
        return None if source.widths is None else cls(tuple(map(int, source.widths)), source.comment)

    begin_bytes = 0

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        del begin
        return LineDecoder(self.lines, path)

    def lines(self, data: bytes) -> bytes:
        """Return whole lines, each field without the blanks around it, in quotes where it must be."""
        try:
            lines = pa.array(data.split(b"\n"), pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:  # bytes that are no characters: each is one
            parts = [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")]
            return "\n".join(map(self._line, parts)).encode("utf-8", "surrogateescape")
        fields, begin = [], 0
        for width in self.widths:
            if width > 0:
                fields.append(pc.utf8_trim(pc.utf8_slice_codeunits(lines, begin, begin + width), _AROUND))
            begin += abs(width)
        for place, field in enumerate(fields):
            is_odd = pc.match_substring_regex(field, '[",]')
            if pc.any(is_odd).as_py():
                quoted = pc.binary_join_element_wise('"', pc.replace_substring(field, '"', '""'), '"', "")
                fields[place] = pc.if_else(is_odd, quoted, field)
        made = pc.binary_join_element_wise(*fields, ",")
        made = pc.if_else(pc.equal(pc.utf8_trim(lines, _AROUND), ""), "", made)
        if self.comment is not None:
            made = pc.if_else(pc.starts_with(lines, self.comment), lines, made)
        text: bytes = "\n".join(made.to_pylist()).encode()
        return text

    def _line(self, line: str) -> str:
        if not line.strip(_AROUND) or (self.comment is not None and line.startswith(self.comment)):
            return line if line.strip(_AROUND) else ""
        fields, begin = [], 0
        for width in self.widths:
            if width > 0:
                field = line[begin : begin + width].strip(_AROUND)
                fields.append('"' + field.replace('"', '""') + '"' if '"' in field or "," in field else field)
            begin += abs(width)
        return ",".join(fields)


class QuotedLines(Struct, frozen=True):
    """Fields in quotes that hold line ends: these are signs that are no line ends, until a field is read.

    A quote that begins no field is a character like any other.

    Parameters
    ----------
    delimiters : str
        What may stand before a field.
    quote : str
    escape, comment : str or None
        What stands before a character that means only itself; what a line begins with that is no record.
    """

    delimiters: str
    quote: str
    escape: str | None
    comment: str | None

    @classmethod
    def of(cls, source: Files) -> QuotedLines | None:
        """Return it for a source whose fields may go on in the next line; None for another one."""
        if source.quoted_lines != "read":
            return None
        return cls({BLANKS: " \t"}.get(source.delimiter, source.delimiter), source.quote, source.escape, source.comment)

    begin_bytes = 0

    def decoder(self, begin: bytes, path: str) -> Decoder:
        """See `Decoding.decoder`."""
        del begin
        quote, rest = re.escape(self.quote.encode()), rb"[^%b]*(?:%b%b[^%b]*)*"
        rest = rest.replace(b"%b", quote)
        if self.escape is not None:
            escape = re.escape(self.escape.encode())
            rest = rb"(?:[^%b%b]|%b.|%b%b)*" % (quote, escape, escape, quote, quote)
        rest = rb"%b(%b|\Z)" % (rest, quote)
        # The quote stands first, so that it is searched for, and what is before it is looked at then.
        begins = rb"%b(?:(?<![^%b\n]%b)|(?<=\xef\xbb\xbf%b))"
        begins %= (quote, re.escape(self.delimiters.encode()), quote, quote)
        passed = [rb"^%b[^\n]*" % re.escape(self.comment.encode())] if self.comment is not None else []
        passed += [rb"%b[^\n]" % re.escape(self.escape.encode())] if self.escape is not None else []
        field = re.compile(b"|".join([*passed, begins + rest]), re.DOTALL | re.MULTILINE)
        return _QuotedText(self.quote.encode(), field, re.compile(rest, re.DOTALL), path)


class _QuotedText(Decoder):
    """See `QuotedLines`. Between two lines it is in a field, or between two records."""

    def __init__(self, quote: bytes, field: re.Pattern[bytes], rest: re.Pattern[bytes], path: str) -> None:
        self._quote, self._field, self._end_of_field, self._path = quote, field, rest, path
        self._rest, self._is_inside = b"", False

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        end = data.rfind(b"\n") + 1
        whole, self._rest = (self._rest + data[:end], data[end:]) if end else (b"", self._rest + data)
        if len(self._rest) > MAX_LINE_BYTES:
            self.fault = too_long(self._path)
        return self._lines(whole)

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        return self._lines(self._rest)

    def _lines(self, text: bytes) -> bytes:
        if not text or not (self._is_inside or self._quote in text):
            return text
        at, parts = 0, list[bytes]()
        if self._is_inside:
            found = self._end_of_field.match(text)
            assert found is not None  # it matches anything
            at, self._is_inside = found.end(), not found[1]
            parts.append(_in_one_line(text[:at]))
        for found in self._field.finditer(text, at):
            if found[1] is not None:
                self._is_inside = not found[1]
                if b"\n" in found[0] or b"\r" in found[0]:
                    parts += [text[at : found.start()], _in_one_line(found[0])]
                    at = found.end()
        return b"".join([*parts, text[at:]])

    def copy(self) -> _QuotedText:
        """See `Decoder.copy`."""
        return copy.copy(self)


def _in_one_line(field: bytes) -> bytes:
    return field.replace(b"\n", _INNER_NEWLINE).replace(b"\r", _INNER_RETURN)


def has_inner_lines(data: bytes) -> bool:
    """Whether a canonical text has fields of several lines."""
    return _INNER_NEWLINE in data or _INNER_RETURN in data


def with_inner_lines(text: str) -> str:
    """Return a canonical text, or a field of one, with the line ends that were written in quotes."""
    return text.translate(INNER_LINES)


class LineDecoder(Decoder):
    """Gives other lines for whole lines, as many as there are.

    Parameters
    ----------
    lines : callable
        Returns the lines for some that are whole. What it makes of a line is a function of that line.
    path : str
        The file's path, for errors.
    """

    def __init__(self, lines: Callable[[bytes], bytes], path: str) -> None:
        self._lines, self._path = lines, path
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """See `Decoder.feed`."""
        end = data.rfind(b"\n") + 1
        whole, self._rest = (self._rest + data[:end], data[end:]) if end else (b"", self._rest + data)
        if len(self._rest) > MAX_LINE_BYTES:
            self.fault = too_long(self._path)
        return self._lines(whole) if whole else b""

    def finish(self) -> bytes:
        """See `Decoder.finish`."""
        return self._lines(self._rest) if self._rest else b""

    def copy(self) -> LineDecoder:
        """See `Decoder.copy`."""
        other = LineDecoder(self._lines, self._path)
        other._rest, other.fault = self._rest, self.fault
        return other


def too_long(path: str) -> FileFormatError:
    """Return the error of a file with a line that is too long."""
    msg = f"a line of {path} is longer than {MAX_LINE_BYTES} bytes"
    return FileFormatError(msg, name=path, hint="check the format: each record must be one line")


def _no_character(error: UnicodeError) -> tuple[str | bytes, int]:
    """Stand for bytes that are no character: see `codecs.register_error`."""
    if isinstance(error, UnicodeDecodeError):
        # One unit at a time: how many are refused at once depends on where the bytes were cut.
        return "\udcff", min(error.end, error.start + _UNIT_BYTES.get(error.encoding[:6], 1))
    if isinstance(error, UnicodeEncodeError):
        return NO_BYTE * (error.end - error.start), error.end
    raise error


_HANDLER = "streamjoin_ds.no_character"
codecs.register_error(_HANDLER, _no_character)
