"""Digests of what was read: a replay must see the same bytes, and O(1) of memory must be enough to tell.

The decompressed text of a file is cut into segments of a fixed size. A digest is three hashes of 64 bits::

    base      everything in the files before this one
    chain     base, then each whole segment of this file, one after another
    partial   the bytes since the last whole segment

To verify a range, only the segment in which it begins is read again; to verify all that was consumed of the current
file, the file is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import xxhash

__all__ = ["EMPTY_DIGEST", "SEGMENT_BYTES", "RollingDigest", "difference", "name_sum", "sum_of"]

SEGMENT_BYTES = 1 << 20

_START = "0" * 16
EMPTY_DIGEST = ".".join([_START, _START, xxhash.xxh3_64_hexdigest(b"")])
_FORM = re.compile(r"[0-9a-f]{16}\.[0-9a-f]{16}\.[0-9a-f]{16}")


class RollingDigest:
    """The digest at one byte of one file, moved forward with the bytes that follow.

    Parameters
    ----------
    text : str
        What `text` gave; only its base and chain count, because `offset` is the beginning of a segment.
    offset : int
        A multiple of `SEGMENT_BYTES`.
    """

    def __init__(self, text: str = EMPTY_DIGEST, offset: int = 0) -> None:
        self._base, self._chain, _ = text.split(".")
        self._partial = xxhash.xxh3_64()
        self.offset = offset

    @staticmethod
    def well_formed(text: object) -> bool:
        """Whether this can be a digest."""
        return isinstance(text, str) and _FORM.fullmatch(text) is not None

    @classmethod
    def at_start_of(cls, text: str) -> RollingDigest:
        """The digest at byte 0 of the file in which `text` was taken."""
        base = text.split(".")[0]
        return cls(f"{base}.{base}.{_START}")

    def copy(self) -> RollingDigest:
        """An independent digest at the same byte."""
        other = RollingDigest.__new__(RollingDigest)
        other._base, other._chain, other.offset = self._base, self._chain, self.offset
        other._partial = self._partial.copy()
        return other

    def update(self, data: bytes | memoryview) -> None:
        """Move on by these bytes."""
        view = memoryview(data)
        while len(view):
            take = min(len(view), SEGMENT_BYTES - self.offset % SEGMENT_BYTES)
            self._partial.update(view[:take])
            self.offset += take
            view = view[take:]
            if self.offset % SEGMENT_BYTES == 0:
                self._chain = xxhash.xxh3_64_hexdigest(f"{self._chain}.{self._partial.hexdigest()}".encode())
                self._partial = xxhash.xxh3_64()

    def next_file(self) -> RollingDigest:
        """The digest at byte 0 of the file that follows one that was read to here."""
        return self.after(self.text)

    @classmethod
    def after(cls, text: str) -> RollingDigest:
        """The digest at byte 0 of the file that follows one at whose end `text` was taken."""
        base = xxhash.xxh3_64_hexdigest(text.encode())
        return cls(f"{base}.{base}.{_START}")

    @property
    def text(self) -> str:
        """All of it, 50 characters: equal iff the same bytes were read from the same files."""
        return f"{self._base}.{self._chain}.{self._partial.hexdigest()}"


def name_sum(names: Iterable[str], start: str = _START) -> str:
    """A digest of a set of names, to which one more can be added in O(1): 16 hexadecimal digits."""
    total = int(start, 16)
    for name in names:
        total += xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape"))
    return f"{total % (1 << 64):016x}"


def sum_of(digests: Iterable[str]) -> str:
    """The digest of all names of which these are digests."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"


def difference(digest: str, less: str) -> str:
    """The digest of the names in one set of names that are not in another, smaller one."""
    return f"{(int(digest, 16) - int(less, 16)) % (1 << 64):016x}"
