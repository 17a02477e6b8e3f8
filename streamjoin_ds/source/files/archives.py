"""Compressed files and archives as texts. An archive's is its members, one after the other, by their names.

Arrow decompresses zstd, lz4 frames and bz2, also several frames one after another. Such a decoder can only go forward,
and so can that of an archive. What was open at some place of a file stays open for whoever reads on from there, so a
file that is read in many batches is not decoded from its beginning each time. No result depends on it.

An archive is one file of a stream: its text is that of its members, each decompressed and decoded by itself. Members of
CSV have heads of their own, which must name the same columns: those after the first one are left out. Folders, hidden
files and members of other formats are passed over. Its members may be compressed themselves.

A text in Snappy is framed as Snappy's format description says, or as Hadoop and Spark do: blocks with their lengths.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.files.csv_lines import CsvHead
from streamjoin_ds.source.files.decoders import Chain, Decoding, Members, decoders_of
from streamjoin_ds.source.files.file_names import archive_of, compression_of, format_of
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.position import SEGMENT_BYTES
from streamjoin_ds.spec.member.files import Files

__all__ = ["ArchivedText", "CompressedText", "SnappyStream", "archived_text", "decompressed"]

# Steps in which the text before a damage is read again, since a read that fails gives nothing.
_SALVAGE_BYTES = (1 << 16, 1 << 11, 1 << 6, 1)
_PIECE_BYTES = 1 << 20
_OPEN_DECODERS = 16  # that stay open, at most
# Decoders that wait for whoever reads on, the last one that was used last, each with what it reads: a file and its
# stamp. A planner and a task in one process have one each. They are hints: they change no result.
_open: list[tuple[object, _Forward]] = []
# What such texts begin with. A file's header is read whenever it is opened, and its decoder is far behind that then.
_texts_begin: OrderedDict[object, bytes] = OrderedDict()
_BEGIN_BYTES = 1 << 18
_BEGUN_TEXTS = 64
_MEMBER_BYTES = 1 << 16  # of a member that are read at a time
_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_MOST_HEAD = 64 << 20  # bytes before the records of a member of CSV
_MOST_BLOCK = 1 << 26  # bytes of a block in Snappy
# What the readers of archives raise of one that is damaged.
_DAMAGES = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError,
    ValueError, pa.ArrowInvalid,
)  # fmt: skip


def archived_text(
    source: Callable[[], Any], path: str, members: Members, decodings: Sequence[Decoding] = ()
) -> Iterator[bytes]:
    """Yield the text of an archive in pieces.

    Parameters
    ----------
    source : callable
        Opens the archive's file once more.
    path : str
        Its path, for its kind and for errors.
    members : Members
    decodings : sequence of Decoding
        What the bytes of each member go through.

    Raises
    ------
    FileFormatError
        The archive is damaged, or a member has other columns. All that comes before was given.
    """
    head: CsvHead | None = None
    try:
        for name, file in _opened(source, path, members):
            text = _canonical(file, f"{path}/{name}", decodings)
            last = b"\n"
            if members.kind == "csv":
                own, begin = _headed(text, members.files, f"{path}/{name}")
                if own is not None and head is not None:
                    if own.names != head.names:
                        msg = f"the member {name} of {path} has other columns than the first one"
                        raise FileFormatError(msg, name=path, hint="members of an archive have one header: unpack it")
                    begin = begin[own.size_bytes :]
                head = head or own
                yield begin
                last = begin[-1:] or last
            for piece in text:
                yield piece
                last = piece[-1:] or last
            if last != b"\n":
                yield b"\n"
    except _DAMAGES as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno is not None:  # the disk's
            raise
        raise _damaged(path, error) from None


def _damaged(path: str, error: Exception) -> FileFormatError:
    why = "is encrypted" if isinstance(error, RuntimeError) and "encrypted" in str(error) else "is damaged or cut off"
    hint = "write it under another name, and rename it when it is complete"
    return FileFormatError(f"the archive {path} {why}", name=path, hint=hint)


def _opened(source: Callable[[], Any], path: str, members: Members) -> Iterator[tuple[str, Any]]:
    file = io.BufferedReader(_Seekable(source))
    if archive_of(path) == "zip":
        with zipfile.ZipFile(file) as archive:
            for name in _read(members, (name for name in archive.namelist() if not name.endswith("/"))):
                yield name, archive.open(name)
        return
    packed = _packed(path)
    if packed is not None:
        file = io.BufferedReader(_Seekable(lambda: _unpacked(io.BufferedReader(_Seekable(source)), packed)))
    with tarfile.open(fileobj=file, mode="r:") as tar:
        found = {one.name.removeprefix("./"): one for one in tar.getmembers() if one.isfile()}
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # a block of zeros ends it
            raise tarfile.ReadError
        for name in _read(members, found):
            yield name, tar.extractfile(found[name])


def _read(members: Members, names: Iterable[str]) -> list[str]:
    """Return those of an archive's members that are read, in order: of no known format only if none has the wanted."""
    there = sorted(name for name in names if not any(part[:1] in "._" for part in name.split("/")))
    kinds = {name: format_of(name, "auto") for name in there}
    return [name for name in there if kinds[name] == members.kind] or [name for name in there if kinds[name] is None]


def _packed(path: str) -> str | None:
    """Return how a tar file is compressed."""
    short = {".tgz": "gzip", ".tbz2": "bz2", ".tzst": "zstd", ".txz": "xz", ".xz": "xz"}
    ending = os.path.splitext(path)[1].lower()
    return None if ending == ".tar" else short.get(ending) or compression_of(f"a{ending}")


def _unpacked(file: Any, compression: str) -> Any:
    if compression == "xz":
        return lzma.LZMAFile(file)
    return SnappyStream(file) if compression == "snappy" else pa.CompressedInputStream(file, compression)


def _canonical(file: Any, name: str, decodings: Sequence[Decoding]) -> Iterator[bytes]:
    """Yield the text of one member."""
    compression = compression_of(name)
    if compression is not None and archive_of(name) is None:
        file = _unpacked(file, compression)
    wanted = max((decoding.begin_bytes for decoding in decodings), default=0)
    data = file.read(max(_MEMBER_BYTES, wanted))
    line, end, _ = data[:wanted].partition(b"\n")
    made = decoders_of(decodings, line + end, name)
    decoder = made[0] if len(made) == 1 else Chain(made)
    while data:
        if text := decoder.feed(data) if made else data:
            yield text
        if decoder.fault is not None:
            raise decoder.fault
        data = file.read(_MEMBER_BYTES)
    if made and (text := decoder.finish()):
        yield text
    if decoder.fault is not None:
        raise decoder.fault


def _headed(text: Iterator[bytes], files: Files, path: str) -> tuple[CsvHead | None, bytes]:
    """Return the head of a member, and the beginning of its text, head included; no head of an empty member."""
    begin = b""
    for piece in text:
        begin += piece
        head = CsvHead.of(begin, files, (), path, complete=False)
        if head is not None or len(begin) > _MOST_HEAD:
            return head, begin
    return (CsvHead.of(begin, files, (), path, complete=True) if begin.strip() else None), begin


class _Seekable(io.RawIOBase):
    """A file that can only be read forward, or Arrow's, as a file of Python: to go back it is opened once more."""

    def __init__(self, source: Callable[[], Any]) -> None:
        self._source, self._file, self._at = source, source(), 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == io.SEEK_END:
            offset += self._whole()
        elif whence == io.SEEK_CUR:
            offset += self._at
        if getattr(self._file, "seekable", lambda: False)():
            self._file.seek(offset)
            self._at = offset
            return offset
        if offset < self._at:
            self._file, self._at = self._source(), 0
        while self._at < offset and (data := self._file.read(min(_MEMBER_BYTES, offset - self._at))):
            self._at += len(data)
        return self._at

    def _whole(self) -> int:
        if self._size is None:
            if getattr(self._file, "seekable", lambda: False)():
                self._file.seek(0, 2)
                self._size = int(self._file.tell())
                self._file.seek(self._at)
            else:
                while data := self._file.read(_MEMBER_BYTES):
                    self._at += len(data)
                self._size = self._at
        return self._size


class SnappyStream:
    """The text of a file in Snappy, read forward; raises `OSError` where it is damaged.

    Parameters
    ----------
    file : file object
    """

    def __init__(self, file: Any) -> None:
        self._file, self._codec, self._ready = file, pa.Codec("snappy"), b""
        begin = self._file.read(len(_FRAMED))
        self._is_framed = begin == _FRAMED
        self._ahead = b"" if self._is_framed else begin
        self._left = 0  # bytes of text of Hadoop's block that are still to come

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        while not self._ready:
            block = self._chunk() if self._is_framed else self._block()
            if block is None:
                return b""
            self._ready = block
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _take(self, size: int) -> bytes:
        data = self._ahead[:size]
        self._ahead = self._ahead[size:]
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        return data

    def _whole(self, size: int) -> bytes:
        data = self._take(size) if size <= _MOST_BLOCK else b""
        if len(data) < size:
            msg = "Truncated block of Snappy"
            raise OSError(msg)
        return data

    def _chunk(self) -> bytes | None:
        """Return the text of the next chunk of framed Snappy."""
        head = self._take(4)
        if not head:
            return None
        kind, size = head[0], int.from_bytes(head[1:], "little")
        data = self._whole(size) if len(head) == 4 else self._whole(_MOST_BLOCK + 1)
        if kind == 0:
            return self._text(data[4:])
        if kind == 1:
            return data[4:]
        if 2 <= kind < 0x80:
            msg = "a chunk of Snappy that is not known"
            raise OSError(msg)
        return b""  # padding, or the frame's name again

    def _block(self) -> bytes | None:
        """Return the text of the next block as Hadoop writes it: two lengths, then Snappy."""
        while not self._left:
            head = self._take(4)
            if not head:
                return None
            self._left = int.from_bytes(head if len(head) == 4 else self._whole(_MOST_BLOCK + 1), "big")
        text = self._text(self._whole(int.from_bytes(self._whole(4), "big")))
        if len(text) > self._left:
            msg = "a block of Snappy that is longer than it says"
            raise OSError(msg)
        self._left -= len(text)
        return text

    def _text(self, data: bytes) -> bytes:
        size = shift = 0
        for byte in data[:5]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        try:
            text: bytes = self._codec.decompress(data, size if size <= _MOST_BLOCK else -1, asbytes=True)
        except (pa.ArrowInvalid, OSError, ValueError, OverflowError) as error:
            raise OSError(str(error)) from None
        return text


class _Forward:
    """A decoder that goes forward only, and has given `offset` bytes of text.

    It keeps the text from the last segment's beginning on: there the digest of a position is verified from.
    """

    def __init__(self) -> None:
        self.offset, self._last = 0, b""

    @property
    def begin(self) -> int:
        """The first byte that it can give again."""
        return self.offset - len(self._last)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from `offset` on, at most `size`; none at the text's end.

        Raises
        ------
        OSError, FileFormatError
            It is damaged.
        """
        if offset < self.offset:
            return self._last[offset - self.begin :][:size]
        while self.offset < offset and self._decoded(min(offset - self.offset, _PIECE_BYTES)):
            pass
        return self._decoded(min(size, _PIECE_BYTES)) if self.offset == offset else b""

    def _decoded(self, size: int) -> bytes:
        data = self._next(size)
        self._last, self.offset = self._last + data, self.offset + len(data)
        self._last = self._last[max(len(self._last) - self.offset % SEGMENT_BYTES, 0) :]
        return data

    def _next(self, size: int) -> bytes:
        raise NotImplementedError


def _decoder_at(key: object, offset: int, new: Callable[[], _Forward], own: _Forward | None) -> _Forward:
    """Return the decoder of a text that is the nearest to a byte: the own one, one that waits, or a new one."""
    waiting = [decoder for known, decoder in _open if known == key]
    able = [one for one in (own, *waiting) if one is not None and one.begin <= offset]
    best = max(able, key=lambda one: min(one.offset, offset), default=None)
    if best is None:
        best = new()
    elif best is not own:
        _open.remove((key, best))
    if own is not None and own is not best:
        _leave_open(key, own)
    return best


def _leave_open(key: object, decoder: _Forward) -> None:
    _open.append((key, decoder))
    del _open[:-_OPEN_DECODERS]


def _text_begin(key: object, new: Callable[[], _Forward]) -> bytes | None:
    """Return what a text begins with, `_BEGIN_BYTES` of it or all; None where it is damaged there."""
    if key not in _texts_begin:
        decoder, pieces = new(), list[bytes]()
        try:
            while decoder.offset < _BEGIN_BYTES and (
                piece := decoder.read(decoder.offset, _BEGIN_BYTES - decoder.offset)
            ):
                pieces.append(piece)
        except (OSError, FileFormatError):
            return None
        _texts_begin[key] = b"".join(pieces)
        _leave_open(key, decoder)
        while len(_texts_begin) > _BEGUN_TEXTS:
            _texts_begin.popitem(last=False)
    _texts_begin.move_to_end(key)
    return _texts_begin[key]


def decompressed(file: Any, compression: str) -> Any:
    """Return the decompressed stream of a file."""
    return SnappyStream(file) if compression == "snappy" else pa.CompressedInputStream(file, compression)


class _ArrowDecoder(_Forward):
    def __init__(self, path: str, compression: str) -> None:
        super().__init__()
        self._stream = decompressed(files_at(path).input(path, ahead=True), compression)

    def _next(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        return data


class CompressedText:
    """The decompressed bytes of a file; see `Text`.

    Parameters
    ----------
    path : str
        The file.
    compression : {"zstd", "lz4", "bz2", "snappy"}
        How it is compressed.
    """

    def __init__(self, path: str, compression: str) -> None:
        self._path, self._compression = path, compression
        file = files_at(path).open(path)
        self.stamp = file.stamp
        self._key = (path, *file.stamp)
        file.close()
        self._decoder: _Forward | None = None
        self.fault: FileFormatError | None = None

    held_bytes = 0

    def _fresh(self) -> _Forward:
        return _ArrowDecoder(self._path, self._compression)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes ``[offset, offset + size)``; fewer only where the text ends or is damaged (see `fault`)."""
        self.fault = None
        pieces: list[bytes] = []
        left = size if self._key[1] else 0  # an empty file is an empty text
        if left and offset + size <= _BEGIN_BYTES and (begin := _text_begin(self._key, self._fresh)) is not None:
            return begin[offset : offset + size]
        try:
            self._decoder = decoder = _decoder_at(self._key, offset, self._fresh, self._decoder)
            at = offset
            while left > 0 and (piece := decoder.read(at, left)):
                pieces.append(piece)
                at, left = at + len(piece), left - len(piece)
        except OSError as error:
            if error.errno is not None:  # the disk's, not the decoder's
                raise
            self._decoder = None
            return self._salvaged(offset, size, str(error))
        if left:
            self._decoder = None  # it has come to the end, and need not hold the file
        return b"".join(pieces)

    def _salvaged(self, offset: int, size: int, reason: str) -> bytes:
        """Return all bytes from `offset` on that are given before the damage, at most `size`.

        What is returned does not depend on where reading began.
        """
        data = b""
        for step in _SALVAGE_BYTES:
            decoder = self._fresh()
            with contextlib.suppress(OSError):
                while len(data) < size and (piece := decoder.read(offset + len(data), min(step, size - len(data)))):
                    data += piece
        if len(data) < size:
            is_cut = "runcated" in reason
            how = (
                "ends in the middle of its compressed data" if is_cut else f"is not {self._compression}, or is damaged"
            )
            msg = f"the file {self._path} {how}, after {offset + len(data)} bytes of text"
            hint = "write it under another name, and rename it when it is complete"
            self.fault = FileFormatError(msg, name=self._path, hint=hint)
        return data

    def __enter__(self) -> CompressedText:
        return self

    def __exit__(self, *_: object) -> None:
        if self._decoder is not None:
            _leave_open(self._key, self._decoder)


class ArchivedText:
    """The text of an archive, whose members are decoded each by itself; see `Text`.

    Parameters
    ----------
    entry : FileEntry
        The archive.
    """

    held_bytes = 0

    def __init__(self, entry: FileEntry) -> None:
        self._path = entry.path
        file = files_at(entry.path).open(entry.path)
        self.stamp = file.stamp
        file.close()
        own = [decoding for decoding in entry.decodings if isinstance(decoding, Members)]
        self._members = own[0] if own else Members(format_of(entry.name, "auto") or "", Files(entry.path, header=0))
        self._decodings = tuple(decoding for decoding in entry.decodings if not isinstance(decoding, Members))
        self._key = (self._path, *self.stamp), (self._members, *self._decodings)
        self.fault: FileFormatError | None = None
        self._decoder: _Forward | None = None

    def _fresh(self) -> _Forward:
        def source() -> Any:
            return files_at(self._path).input(self._path, ahead=True)

        return _Pieces(archived_text(source, self._path, self._members, self._decodings))

    def read(self, offset: int, size: int) -> bytes:
        """See `Text.read`."""
        self.fault = None
        if offset + size <= _BEGIN_BYTES and (begin := _text_begin(self._key, self._fresh)) is not None:
            return begin[offset : offset + size]
        self._decoder = decoder = _decoder_at(self._key, offset, self._fresh, self._decoder)
        found = []
        try:
            while size > 0 and (piece := decoder.read(offset, size)):
                found.append(piece)
                offset, size = offset + len(piece), size - len(piece)
        except FileFormatError as error:
            self.fault = error
        return b"".join(found)

    def __enter__(self) -> ArchivedText:
        return self

    def __exit__(self, *_: object) -> None:
        if self._decoder is not None:
            _leave_open(self._key, self._decoder)


class _Pieces(_Forward):
    """A text in pieces. Where it is damaged, it fails again whenever it is asked."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces, self._ready = pieces, b""
        self._fault: FileFormatError | None = None

    def _next(self, size: int) -> bytes:
        if self._fault is not None:
            raise self._fault
        try:
            self._ready = self._ready or next(filter(None, self._pieces), b"")
        except FileFormatError as error:
            self._fault = error
            raise
        piece, self._ready = self._ready[:size], self._ready[size:]
        return piece
