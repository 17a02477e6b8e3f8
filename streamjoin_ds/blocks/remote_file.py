"""A file of another machine, open for reading by ranges or from its beginning to its end."""

from __future__ import annotations

import io
import os
from typing import Any

import pyarrow as pa

from streamjoin_ds.blocks.object_store import failed, tag_of

__all__ = ["FAILURES", "RemoteFile"]

# What Arrow raises for a request that failed.
FAILURES = (OSError, pa.ArrowException)


class RemoteFile(io.RawIOBase):
    """A file of another machine: see `files.OpenFile`, and a file object that Arrow reads.

    Parameters
    ----------
    file : pyarrow.NativeFile
        The file.
    path : str
        Its location, for errors.
    ahead_bytes : int
        Bytes that are read at once, at least.
    """

    def __init__(self, file: pa.NativeFile, path: str, ahead_bytes: int) -> None:
        self._file, self._path, self._ahead_bytes = file, path, ahead_bytes
        facts = file.metadata() or {}
        tag = facts.get(b"ETag") or facts.get("ETag") or b""
        self.stamp = (file.size(), 0, tag_of(tag))
        self._size = file.size()
        self._at = 0
        self._kept, self._kept_at = b"", 0

    def read_at(self, offset: int, size: int) -> bytes:
        """See `files.OpenFile`."""
        size = min(size, self._size - offset)
        if size <= 0:
            return b""
        if not self._kept_at <= offset <= offset + size <= self._kept_at + len(self._kept):
            wanted = min(max(size, self._ahead_bytes), self._size - offset)
            try:
                data: bytes = self._file.read_at(wanted, offset)
            except FAILURES as error:
                raise failed(error, self._path, "cannot be read") from None
            if len(data) < wanted:
                raise failed(OSError("the file ended early"), self._path, "cannot be read")
            if size > self._ahead_bytes:
                return data
            self._kept, self._kept_at = data, offset
        begin = offset - self._kept_at
        return self._kept[begin : begin + size]

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, at most `size`; all that are left where it is negative."""
        left = max(self._size - self._at, 0)
        data = self.read_at(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes; return how many."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte; return which it is."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Return the byte that is read next."""
        return self._at

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def seekable(self) -> bool:
        """Whether `seek` works: yes."""
        return True

    def close(self) -> None:
        """Let go of the file."""
        if not self.closed:
            self._file.close()
            self._kept = b""
        super().close()
