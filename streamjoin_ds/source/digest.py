"""Digests of what was read. They tell whether a replay sees the same bytes, in O(1) of memory.

The decompressed text of a file is cut into segments of a fixed size. A digest is three hashes of 64 bits::

    base      everything in the files before this one
    chain     base, then each whole segment of this file, one after another
    partial   the bytes since the last whole segment

To verify a range, only the segment in which the range begins is read again. To verify everything that was read of the
current file, the file is read again up to there.
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
    """The digest at one byte of one file. `update` moves it forward by the bytes that follow.

    Parameters
    ----------
    text : str
        A digest as the property `text` gives it. Only its base and chain are used: at a segment's beginning there is no
        partial segment.
    offset : int
        The byte of the file, a multiple of `SEGMENT_BYTES`.
    """

    def __init__(self, text: str = EMPTY_DIGEST, offset: int = 0) -> None:
        self._base, self._chain, _ = text.split(".")
        self._partial = xxhash.xxh3_64()
        self.offset = offset

    @staticmethod
    def well_formed(text: object) -> bool:
        """Whether `text` has the form of a digest."""
        return isinstance(text, str) and _FORM.fullmatch(text) is not None

    @classmethod
    def at_start_of(cls, text: str) -> RollingDigest:
        """Return the digest at byte 0 of the file in which `text` was taken."""
        base = text.split(".")[0]
        return cls(f"{base}.{base}.{_START}")

    def copy(self) -> RollingDigest:
        """Return an independent digest at the same byte."""
        other = RollingDigest.__new__(RollingDigest)
        other._base, other._chain, other.offset = self._base, self._chain, self.offset
        other._partial = self._partial.copy()
        return other

    def update(self, data: bytes | memoryview) -> None:
        """Move the digest forward by these bytes."""
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
        """Return the digest at byte 0 of the next file, where this file ends here."""
        return self.after(self.text)

    @classmethod
    def after(cls, text: str) -> RollingDigest:
        """Return the digest at byte 0 of the next file, where `text` was taken at the end of the file before it."""
        base = xxhash.xxh3_64_hexdigest(text.encode())
        return cls(f"{base}.{base}.{_START}")

    @property
    def text(self) -> str:
        """The whole digest, 50 characters. Two are equal iff the same bytes were read in the same sequence of files."""
        return f"{self._base}.{self._chain}.{self._partial.hexdigest()}"


def name_sum(names: Iterable[str], start: str = _START) -> str:
    """Return the digest of a set of names, 16 hexadecimal digits.

    `start` is the digest of names that belong to the set already, so one more name is added in O(1).
    """
    total = int(start, 16)
    for name in names:
        total += xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape"))
    return f"{total % (1 << 64):016x}"


def sum_of(digests: Iterable[str]) -> str:
    """Return the digest of the union of disjoint sets of names, from the digests of the sets."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"


def difference(digest: str, less: str) -> str:
    """Return `digest` minus `less`. Where `less` is of a subset, this is the digest of the names outside the subset."""
    return f"{(int(digest, 16) - int(less, 16)) % (1 << 64):016x}"
