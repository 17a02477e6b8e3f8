"""The text of a file that Arrow decompresses: zstd, lz4 frames or bz2, also several frames one after another.

Such a decoder can only go forward. What was open at some place of a file stays open for whoever reads on from there, so
a file that is read in many batches is not decompressed from its beginning each time. No result depends on it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict

import pyarrow as pa

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.errors import FileFormatError

__all__ = ["CompressedText"]

_PIECE_BYTES = 1 << 20
# Steps in which the text before a damage is read again, since a read that fails gives nothing.
_SALVAGE_BYTES = (1 << 16, 1 << 11, 1 << 6, 1)
_OPEN_FILES = 8  # decoders that stay open, at most


class _Decoder:
    """A decoder that has given `offset` bytes of text."""

    def __init__(self, path: str, compression: str) -> None:
        self._stream = pa.CompressedInputStream(files_at(path).input(path, ahead=True), compression)
        self.offset = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the text's end. Raise `OSError` where it is damaged."""
        data: bytes = self._stream.read(size)
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        while size > 0 and (piece := self.read(min(size, _PIECE_BYTES))):
            size -= len(piece)


# Decoders that wait for whoever reads on, by file and stamp. They are hints: they change no result.
_open: OrderedDict[tuple[str, int, int, int], _Decoder] = OrderedDict()


class CompressedText:
    """The decompressed bytes of a file; see `Text`.

    Parameters
    ----------
    path : str
        The file.
    compression : {"zstd", "lz4", "bz2"}
        How it is compressed.
    """

    def __init__(self, path: str, compression: str) -> None:
        self._path, self._compression = path, compression
        file = files_at(path).open(path)
        self._key = (path, *file.stamp)
        file.close()
        self._decoder: _Decoder | None = None
        self.fault: FileFormatError | None = None

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes ``[offset, offset + size)``; fewer only where the text ends or is damaged (see `fault`)."""
        self.fault = None
        pieces: list[bytes] = []
        left = size if self._key[1] else 0  # an empty file is an empty text
        try:
            decoder = self._at(offset)
            while left > 0 and decoder.offset >= offset and (piece := decoder.read(min(left, _PIECE_BYTES))):
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            if error.errno is not None:  # the disk's, not the decoder's
                raise
            self._decoder = None
            return self._salvaged(offset, size, str(error))
        if left:
            self._decoder = None  # it has come to the end, and need not hold the file
        return b"".join(pieces)

    def _at(self, offset: int) -> _Decoder:
        decoder = self._decoder or _open.pop(self._key, None)
        if decoder is None or decoder.offset > offset:
            decoder = _Decoder(self._path, self._compression)
        self._decoder = decoder
        decoder.skip(offset - decoder.offset)
        return decoder

    def _salvaged(self, offset: int, size: int, reason: str) -> bytes:
        """Return all bytes from `offset` on that are given before the damage, at most `size`.

        What is returned does not depend on where reading began.
        """
        data = b""
        for step in _SALVAGE_BYTES:
            decoder = _Decoder(self._path, self._compression)
            with contextlib.suppress(OSError):
                decoder.skip(offset + len(data))
                while len(data) < size and (piece := decoder.read(min(step, size - len(data)))):
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
            _open[self._key] = self._decoder
            _open.move_to_end(self._key)
            while len(_open) > _OPEN_FILES:
                _open.popitem(last=False)
