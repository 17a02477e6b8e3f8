"""Rotation of files that are read: a writer cuts its file off in place, or puts it away under another name.

A replay needs the bytes that were read. After a rotation they lie in another file or nowhere, so it is refused by name.
"""

from __future__ import annotations

import os

from streamjoin_ds.errors import FileChangedError, FileRotatedError
from streamjoin_ds.source.files.file_format import COMPRESSIONS, compression_of
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.files.text import prefix_digest

__all__ = ["cut_off", "holds", "is_copy", "moved_to", "read_twice"]

_MOST_TRIED = 16  # files that are read in search of what was read, at most

_HINT = (
    "read files that nobody writes to any more, by a pattern such as /var/log/app.log-* (logrotate: dateext, "
    "nocompress), or let the writer begin files under later names; to go on with this checkpoint, put the file back as "
    "it was"
)


def holds(entry: FileEntry, digest: str, offset: int) -> bool:
    """Whether a text begins with the `offset` bytes of which `digest` was taken (see `RollingDigest`)."""
    if compression_of(entry.name) is None and entry.size < offset:
        return False
    return prefix_digest(entry.path, digest, offset).text == digest


def is_copy(name: str, other: str) -> bool:
    """Whether the file `name` is, by its name, the compressed form of the file `other`."""
    plain, ending = os.path.splitext(name)
    return ending in COMPRESSIONS and plain == other


def moved_to(entry: FileEntry, digest: str, offset: int) -> FileChangedError | None:
    """Return the error for a file whose bytes that were read lie in a file beside it; None where there is none."""
    for other in _beside(entry):
        if holds(other, digest, offset):
            msg = f"the file {entry.path} was rotated: it begins anew, and what was read of it is in {other.path}"
            return FileRotatedError(msg, name=entry.path, hint=_HINT)
    return None


def cut_off(entry: FileEntry, offset: int) -> FileChangedError:
    """Return the error for a file that was cut off in place, as copytruncate does."""
    msg = (
        f"the file {entry.path} has shrunk to {entry.size} bytes, but {offset} bytes of it were read: "
        "it was cut off in place and begins anew"
    )
    return FileRotatedError(msg, name=entry.path, hint=_HINT)


def read_twice(entry: FileEntry, path: str) -> FileChangedError:
    """Return the error for a file that holds what was read already, under the name `path`."""
    msg = f"the file {entry.path} begins with what was read as {path}: it was rotated, and would be read twice"
    return FileRotatedError(msg, name=entry.path, hint=_HINT)


def _beside(entry: FileEntry) -> list[FileEntry]:
    """Return the files whose names say that they may be the rotated form of a file, the newest first."""
    folder, name = os.path.split(entry.path)
    stem, ending = os.path.splitext(name)
    found = []
    try:
        with os.scandir(folder) as walk:
            for one in walk:
                if one.name != name and one.name.startswith(stem) and ending in one.name and one.is_file():
                    about = one.stat()
                    found.append(FileEntry(one.name, one.path, about.st_size, about.st_mtime_ns, about.st_ino))
    except OSError:
        return []
    found.sort(key=lambda one: one.mtime_ns, reverse=True)
    return found[:_MOST_TRIED]
