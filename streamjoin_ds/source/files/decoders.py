"""Decoders: how the bytes of a file become a text of lines that the readers know.

A file may lie in another encoding, or in a form that is no line of CSV or JSON. It is read as if it were::

    bytes of the file ──► decompression ──► decoders, one after the other ──► canonical text: CSV or JSON lines, UTF-8
                          (by the name)     (`file_names`)                    positions, digests, numbers, rejects

All else knows the canonical text alone: positions, digests, blocks, rejects and quarantine (see `text.py`).
"""

from __future__ import annotations

import codecs
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamjoin_ds.errors import FileFormatError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BEGIN_BYTES", "Chain", "Decoder", "Decoding", "Encoded"]

BEGIN_BYTES = 4  # first bytes of a file by which a decoding is chosen
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
_NO_BYTE = b"\xff"  # in no text of UTF-8; no end of a line


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

    def decoder(self, begin: bytes, path: str) -> Decoder | None:
        """Return a new decoder; None where the bytes are canonical already.

        Parameters
        ----------
        begin : bytes
            The first bytes of the decompressed file, `BEGIN_BYTES` where it has as many.
        path : str
            The file's path, for errors.
        """


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


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoding of a text file. A byte order mark decides before the name does.

    Parameters
    ----------
    name : str
        A codec of Python, as `Files.checked` normalises it.
    """

    name: str

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


def _no_character(error: UnicodeError) -> tuple[str | bytes, int]:
    """Stand for bytes that are no character: see `codecs.register_error`."""
    if isinstance(error, UnicodeDecodeError):
        # One unit at a time: how many are refused at once depends on where the bytes were cut.
        return "\udcff", min(error.end, error.start + _UNIT_BYTES.get(error.encoding[:6], 1))
    if isinstance(error, UnicodeEncodeError):
        return _NO_BYTE * (error.end - error.start), error.end
    raise error


_HANDLER = "streamjoin_ds.no_character"
codecs.register_error(_HANDLER, _no_character)
