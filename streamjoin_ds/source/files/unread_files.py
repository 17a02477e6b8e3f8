"""The size of what is there and was not read: files after a position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection

from streamjoin_ds.source.files.file_format import compression_of
from streamjoin_ds.source.files.listing import FileEntry, Location
from streamjoin_ds.source.position import FilePosition

__all__ = ["UnreadFiles"]

# Sizes of waiting files that one look asks for, at most: each may be a request to an object store.
_ASKED_SIZES = 256


class UnreadFiles:
    """The files of a stream that were not read.

    Parameters
    ----------
    location : Location
        Where the files are.
    cut : callable
        Returns a file with no more than the size up to which it is to be read; None stays None.
    """

    def __init__(self, location: Location, cut: Callable[[FileEntry | None], FileEntry | None]) -> None:
        self._location = location
        self._cut = cut
        self._sizes: dict[str, int] = {}  # of files that were counted

    def size_bytes(self, end: FilePosition, names: Collection[str] | None) -> int:
        """Return the bytes of the files that were not read at a position.

        A compressed file or one of Parquet counts whole until it is read to its end. A file's size is asked once, but
        for the last file, which may grow; of a thousand files that wait some are asked at the next look.

        Parameters
        ----------
        end : FilePosition
            The position.
        names : collection of str, optional
            The files that count; by default all.
        """
        listed = self._location.names_listed
        later = listed[bisect_right(listed, end.file) :]
        self._sizes = {name: self._sizes[name] for name in later[:-1] if name in self._sizes}
        unread = asked = 0
        for name in later:
            if names is not None and name not in names:
                continue
            if name not in self._sizes:
                if asked == _ASKED_SIZES:
                    break
                asked += 1
                entry = self._cut(self._location.entry(name))
                self._sizes[name] = 0 if entry is None else entry.size
            unread += self._sizes[name]
        if end.file and not (end.closed or end.whole):
            entry = self._cut(self._location.entry(end.file))
            if entry is not None:
                is_plain = compression_of(entry.name) is None and self._location.format_of(entry) != "parquet"
                unread += max(entry.size - end.offset * is_plain, 0)
        return unread
