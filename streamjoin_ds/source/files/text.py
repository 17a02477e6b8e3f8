"""The canonical text of a file, plain, compressed or in a form of its own (`decoders.py`), read from any byte of it.

What decoded a text up to some place stays known for whoever reads on from there, so a file that is read in many batches
is not decoded from its beginning each time (gzip here, the other compressions and archives in `archives.py`). No result
depends on it.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Protocol, TypeAlias

import pyarrow as pa

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.errors import FileFormatError, FileMissingError
from streamjoin_ds.source.files.archives import ArchivedText, CompressedText, archived_text, decompressed
from streamjoin_ds.source.files.decoders import Chain, Decoder, Decoding, Members, decoders_of
from streamjoin_ds.source.files.file_names import archive_of, compression_of, decodings_of
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.position import SEGMENT_BYTES, RollingDigest
from streamjoin_ds.spec.member.files import Files

__all__ = ["Text", "has_its_bytes", "is_plain", "open_text", "prefix_digest", "whole_text"]

_Stamp: TypeAlias = tuple[int, int, int]  # size, time of change and inode
_RAW_BYTES = 1 << 16  # compressed bytes that are read at a time
_VERIFIED_BYTES = 4 << 20  # bytes of text that are digested at a time
# Decompressors at places in files that are read bit by bit, by file and stamp, then by offset. They are hints: they
# spare decompressing a file from its beginning again, and change no result.
_hints: OrderedDict[tuple[str, int, int, int], OrderedDict[int, _GzipDecoder]] = OrderedDict()
_HINTED_FILES = 8  # files with hints, at most
_HINTS_A_FILE = 4  # hints of one file, at most
_LAST_BYTES = 1 << 10  # bytes before a place by which a file that has grown is known again
_PIECE_A_TURN = 1 << 18  # bytes that a decoder is given at a time
# What files begin with, by file and stamp: a compressed one, or one of another machine, is not read again for it.
_begins: OrderedDict[tuple[str, int, int, int, int], bytes] = OrderedDict()
_BEGINS = 1024
# Places of decoders, by file, inode, what the file begins with and decodings, with the file's stamp then. They are
# hints: they change no result.
_places: OrderedDict[tuple[str, int, bytes, tuple[Decoding, ...]], tuple[_Stamp, list[_Place]]] = OrderedDict()
_PLACED_FILES = 256  # files with places, at most


class Text(Protocol):
    """The canonical bytes of a file. It is a context manager."""

    stamp: _Stamp  # of the file when it was opened
    fault: FileFormatError | None  # why the last read gave fewer bytes than asked for; None at the text's end

    @property
    def held_bytes(self) -> int:
        """Bytes that a decoder holds back at the end, because the file may go on."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes ``[offset, offset + size)``; fewer only where the text ends or cannot be read any further."""

    def __enter__(self) -> Text: ...

    def __exit__(self, *_: object) -> None: ...


def open_text(entry: FileEntry, *, limit: int | None = None, complete: bool = True) -> Text:
    """Open the text of a file: decompressed by its name's ending, and decoded by its decodings.

    Parameters
    ----------
    entry : FileEntry
    limit : int, optional
        Bytes of the file that are read, at most; all, where it is compressed.
    complete : bool
        Whether the text has what a decoder holds back at the end, because the file might go on there.

    Raises
    ------
    FileMissingError
        The file is not there.
    """
    path = entry.path
    try:
        compression = compression_of(path)
        raw: Text
        if archive_of(path) is not None:
            return ArchivedText(entry)
        if compression is None:
            raw = _PlainText(path, limit)
        else:
            raw = _GzipText(path) if compression == "gzip" else CompressedText(path, compression)
    except FileNotFoundError:
        msg = f"the file {path} is not there any more"
        hint = "put it back as it was, because it must be read again"
        raise FileMissingError(msg, name=path, hint=hint) from None
    wanted = max((decoding.begin_bytes for decoding in entry.decodings), default=0)
    begin = _begin_of(raw, path, wanted) if wanted else b""
    return _DecodedText(raw, entry, begin, complete) if decoders_of(entry.decodings, begin, path) else raw


def whole_text(data: bytes, files: Files, kind: str, path: str) -> bytes:
    """Return the canonical text of a file whose bytes are all there.

    Raises
    ------
    FileFormatError, OSError
        It is damaged.
    """
    decodings, compression = decodings_of(files, kind, path), compression_of(path)
    if archive_of(path) is not None:
        members, *others = decodings
        assert isinstance(members, Members)
        return b"".join(archived_text(lambda: pa.BufferReader(data), path, members, others))
    if compression is not None:
        with decompressed(pa.BufferReader(data), compression) as stream:
            data = stream.read()
    chain = Chain(decoders_of(decodings, data[:_PIECE_A_TURN], path))
    text = chain.feed(data) + chain.finish()
    if chain.fault is not None:
        raise chain.fault
    return text


def has_its_bytes(entry: FileEntry) -> bool:
    """Whether the bytes of a file are those of its text, so that it is at least as long."""
    if compression_of(entry.name) is not None:
        return False
    with open_text(entry) as text:
        return is_plain(text)


def is_plain(text: Text) -> bool:
    """Whether an open text is the file's own bytes: it can be read from any place."""
    return isinstance(text, _PlainText)


def _begin_of(raw: Text, path: str, size: int) -> bytes:
    key = (path, *raw.stamp, size)
    if key not in _begins:
        line, end, _ = raw.read(0, size).partition(b"\n")
        _begins[key] = line + end
        while len(_begins) > _BEGINS:
            _begins.popitem(last=False)
    return _begins[key]


def prefix_digest(entry: FileEntry, digest: str, offset: int) -> RollingDigest:
    """Return the digest of the first `offset` bytes of a text, or of all its bytes where it has fewer.

    `digest` was taken in this file: it tells what the files before it were.
    """
    found = RollingDigest.at_start_of(digest)
    with open_text(entry) as text:
        while found.offset < offset:
            data = text.read(found.offset, min(_VERIFIED_BYTES, offset - found.offset))
            if not data:
                break
            found.update(data)
    return found


class _Place:
    """A decoder that has taken `raw` bytes of a file, and what it gave last: the text from byte `offset` on.

    `last` are the last bytes that it has taken.
    """

    __slots__ = ("decoder", "has_ended", "last", "offset", "pending", "raw")

    def __init__(self, decoder: Decoder, raw: int = 0, offset: int = 0, last: bytes = b"") -> None:
        self.decoder, self.raw, self.offset, self.last = decoder, raw, offset, last
        self.pending, self.has_ended = b"", False

    @property
    def end(self) -> int:
        """Byte of the text that the decoder gives next."""
        return self.offset + len(self.pending)

    def copy(self) -> _Place:
        """Return an independent place, without what is pending."""
        return _Place(self.decoder.copy(), self.raw, self.end, self.last)

    def feed(self, data: bytes) -> None:
        """Give the decoder the next bytes of the file. Nothing is pending."""
        self.raw, self.last = self.raw + len(data), data[-_LAST_BYTES:]
        self.pending = self.decoder.feed(data)

    def is_of(self, raw: Text) -> bool:
        """Whether the bytes before the place are those of a file, as far as its last ones tell."""
        return raw.read(self.raw - len(self.last), len(self.last)) == self.last

    def take(self, offset: int, size: int) -> bytes:
        """Return what is pending from byte `offset` on, at most `size`, and let go of all before that."""
        begin = min(offset - self.offset, len(self.pending))
        piece = self.pending[begin : begin + size]
        self.pending = self.pending[begin + len(piece) :]
        self.offset += begin + len(piece)
        return piece


class _DecodedText:
    """The text that decoders make of another one."""

    def __init__(self, raw: Text, entry: FileEntry, begin: bytes, complete: bool) -> None:
        self._raw, self._begin, self._complete = raw, begin, complete
        self._entry = entry
        self.stamp = raw.stamp
        self.fault: FileFormatError | None = None
        self._raw_fault: FileFormatError | None = None  # after the last byte that a decoder was given
        size, _, inode = self.stamp
        self._key = entry.path, inode, begin, entry.decodings
        stamp, self._known = _places.pop(self._key, (self.stamp, []))
        if stamp != self.stamp:  # a plain file may have grown
            may_be = size > stamp[0] and isinstance(raw, _PlainText)
            self._known = [place for place in self._known if may_be and place.is_of(raw)]
        self._place = self._before = self._fresh()  # `_before`: the place before the decoder was asked last

    def _fresh(self) -> _Place:
        decoders = decoders_of(self._entry.decodings, self._begin, self._entry.path)
        return _Place(decoders[0] if len(decoders) == 1 else Chain(decoders))

    def read(self, offset: int, size: int) -> bytes:
        self.fault = None
        self._go_near(offset)
        pieces = []
        while size > 0:
            piece = self._place.take(offset, size)
            if piece:
                pieces.append(piece)
                offset, size = offset + len(piece), size - len(piece)
            elif not self._decode():
                break
        return b"".join(pieces)

    @property
    def held_bytes(self) -> int:
        is_there = self._place.has_ended or self._place.decoder.fault is not None
        return 0 if is_there else len(self._place.copy().decoder.finish())

    def _go_near(self, offset: int) -> None:
        """Go to the last known place that is not after a byte."""
        known = [place for place in self._known if place.offset <= offset]
        best = max(known, key=lambda place: place.offset, default=None)
        if best is not None and (self._place.offset > offset or best.offset > self._place.end):
            self._place, self._raw_fault = best.copy(), None
        elif self._place.offset > offset:
            self._place, self._raw_fault = self._fresh(), None

    def _decode(self) -> bool:
        """Let the decoder give more: nothing is pending. Return False where there is no more."""
        place = self._place
        if place.has_ended or self._raw_fault is not None:
            self.fault = place.decoder.fault or self._raw_fault
            return False
        data = self._raw.read(place.raw, _PIECE_A_TURN)
        self._raw_fault = self._raw.fault
        if data:
            self._before = place.copy()
            place.feed(data)
            if self._before.end // SEGMENT_BYTES != place.end // SEGMENT_BYTES:
                self._keep(self._before)  # a digest is verified from a segment's beginning on
        elif self._raw_fault is None and self._complete:
            self._before = place.copy()
            place.pending, place.has_ended = place.decoder.finish(), True
        place.has_ended = place.has_ended or place.decoder.fault is not None
        return bool(data) or place.has_ended or self._raw_fault is not None

    def _keep(self, place: _Place) -> None:
        self._known = [known for known in self._known if known.raw != place.raw]
        self._known.append(place)
        del self._known[:-_HINTS_A_FILE]

    def __enter__(self) -> _DecodedText:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep(self._before if self._place.pending or self._place.has_ended else self._place)
        _places[self._key] = self.stamp, self._known
        while len(_places) > _PLACED_FILES:
            _places.popitem(last=False)
        self._raw.__exit__()


class _PlainText:
    fault: FileFormatError | None = None
    held_bytes = 0

    def __init__(self, path: str, limit: int | None) -> None:
        self._file = files_at(path).open(path)
        self._limit = limit
        self.stamp = self._file.stamp

    def read(self, offset: int, size: int) -> bytes:
        size = size if self._limit is None else min(size, self._limit - offset)
        return self._file.read_at(offset, size) if size > 0 else b""

    def __enter__(self) -> _PlainText:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _GzipDecoder:
    """A decompressor and its place: it has taken `raw` bytes from the file and given `offset` bytes."""

    def __init__(self) -> None:
        self.stream = zlib.decompressobj(31)
        self.pending = b""  # taken from the file, not yet decompressed
        self.raw = 0
        self.offset = 0
        self.inside = False  # whether a member of the gzip file has begun and not ended

    def copy(self) -> _GzipDecoder:
        other = _GzipDecoder.__new__(_GzipDecoder)
        other.stream = self.stream.copy()
        other.pending, other.raw, other.offset, other.inside = self.pending, self.raw, self.offset, self.inside
        return other


class _GzipText:
    held_bytes = 0

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = files_at(path).open(path)
        self.stamp = self._file.stamp
        self._key = (path, *self.stamp)
        self._decoder = _GzipDecoder()
        self.fault: FileFormatError | None = None

    def read(self, offset: int, size: int) -> bytes:
        self.fault = None
        try:
            if offset != self._decoder.offset:
                self._go_to(offset)
        except FileFormatError as fault:
            self.fault = fault
            return b""
        if offset % SEGMENT_BYTES == 0:
            self._keep()
        pieces = []
        while size > 0:
            try:
                piece = self._next(size)
            except FileFormatError as fault:
                self.fault = fault
                break
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
            if self._decoder.offset % SEGMENT_BYTES == 0:
                self._keep()
        return b"".join(pieces)

    def _go_to(self, offset: int) -> None:
        hints = _hints.get(self._key, OrderedDict())
        known = [position for position in hints if position <= offset]
        best = max(known, default=0)
        if offset < self._decoder.offset or best > self._decoder.offset:
            self._decoder = hints[best].copy() if best else _GzipDecoder()
        while self._decoder.offset < offset:
            if not self._next(min(offset - self._decoder.offset, SEGMENT_BYTES)):
                break

    def _keep(self) -> None:
        if self._decoder.offset == 0:
            return
        hints = _hints.setdefault(self._key, OrderedDict())
        _hints.move_to_end(self._key)
        hints[self._decoder.offset] = self._decoder.copy()
        hints.move_to_end(self._decoder.offset)
        while len(hints) > _HINTS_A_FILE:
            hints.popitem(last=False)
        while len(_hints) > _HINTED_FILES:
            _hints.popitem(last=False)

    def _next(self, size: int) -> bytes:
        """Return decompressed bytes, at most `size` and never past a segment's end; none at the end of the file."""
        size = min(size, SEGMENT_BYTES - self._decoder.offset % SEGMENT_BYTES)
        at = self._decoder.offset
        try:
            return self._decompressed(self._decoder, size)
        except FileFormatError as fault:
            data = self._salvaged(at, size)
            if not data:
                raise fault from None
            return data

    def _salvaged(self, at: int, size: int) -> bytes:
        """Return all bytes from `at` on that can be decompressed before the damage, at most `size`.

        What is returned does not depend on where reading began.
        """
        self._decoder, whole, data = _GzipDecoder(), size, b""
        while self._decoder.offset < at:
            self._decompressed(self._decoder, min(at - self._decoder.offset, SEGMENT_BYTES))
        low = 0
        while low < whole:
            middle, trial = (low + whole + 1) // 2, self._decoder.copy()
            try:
                data = self._decompressed(trial, middle)
                low = middle
            except FileFormatError:
                whole = middle - 1
        if data:
            self._decompressed(self._decoder, len(data))
        return data

    def _decompressed(self, decoder: _GzipDecoder, size: int) -> bytes:
        while True:
            if not decoder.pending:
                decoder.pending = self._file.read_at(decoder.raw, _RAW_BYTES)
                decoder.raw += len(decoder.pending)
            if not decoder.pending:
                # zlib may still hold output that the last call had no room for.
                data = decoder.stream.decompress(b"", size) if decoder.inside else b""
                if not data and decoder.inside and not decoder.stream.eof:
                    raise self._broken(decoder, how="ends in the middle of its compressed data")
                decoder.inside = decoder.inside and not decoder.stream.eof
                decoder.offset += len(data)
                return data
            if not decoder.inside:
                decoder.pending = decoder.pending.lstrip(b"\0")  # padding between members (RFC 1952)
                if not decoder.pending:
                    continue
                decoder.stream, decoder.inside = zlib.decompressobj(31), True
            try:
                data = decoder.stream.decompress(decoder.pending, size)
            except zlib.error:
                raise self._broken(decoder, how="is not gzip, or is damaged") from None
            decoder.pending = decoder.stream.unconsumed_tail
            if decoder.stream.eof:
                decoder.pending, decoder.inside = decoder.stream.unused_data, False
            if data:
                decoder.offset += len(data)
                return data

    def _broken(self, decoder: _GzipDecoder, how: str) -> FileFormatError:
        where = f"byte {decoder.raw - len(decoder.pending)}, after {decoder.offset} bytes of text"
        msg = f"the file {self._path} {how}, at {where}"
        return FileFormatError(
            msg, name=self._path, hint="write it under another name, and rename it when it is complete"
        )

    def __enter__(self) -> _GzipText:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
