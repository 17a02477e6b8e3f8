"""Files that are read where they lie: of this machine, or of any file system that Arrow knows.

::

    files_at(location) ──► LocalFiles      stat, names, open
                       └─► RemoteFiles     the same; a folder is listed after the last name that is known

A file of another machine is read by ranges or from its beginning to its end.
"""

from __future__ import annotations

import io
import os
import stat
import threading
import time
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from msgspec import Struct, field
from pyarrow import fs

from streamjoin_ds.blocks.object_store import S3Keys, asked, failed, keys_of, remote_root, tag_of
from streamjoin_ds.blocks.place import is_local

__all__ = ["Files", "LocalFiles", "OpenFile", "RemoteFile", "RemoteFiles", "files_at"]

# A folder of another machine is looked at once in so many seconds, however often it is asked for.
_LOOK_S = 1.0
# It is listed as a whole once in so many seconds, or once in so many times as long as that took: a listing after the
# last known name shows neither names that came late nor files that were replaced or are gone.
_WHOLE_S, _WHOLE_SHARE = 60.0, 50.0
# Without listings after a name each look is a whole one: once in so many times as long as the last one took.
_LOOK_SHARE = 20.0
_READ_AHEAD_BYTES = 4 << 20  # a request for a few bytes takes as long as one for some megabytes


class RemoteFile(io.RawIOBase):
    """A file of another machine: see `OpenFile`, and a file object that Arrow reads.

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
        """See `OpenFile`."""
        size = min(size, self._size - offset)
        if size <= 0:
            return b""
        if not self._kept_at <= offset <= offset + size <= self._kept_at + len(self._kept):
            wanted = min(max(size, self._ahead_bytes), self._size - offset)
            with asked(self._path, "cannot be read"):
                data: bytes = self._file.read_at(wanted, offset)
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


class OpenFile(Protocol):
    """A file that is open for reading.

    Attributes
    ----------
    stamp : tuple of int
        Its size, time of change and inode; of an object its size, 0 and a digest of its entity tag. It changes when the
        file is replaced.
    """

    stamp: tuple[int, int, int]

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes ``[offset, offset + size)``; fewer only where the file ends.

        Raises
        ------
        StoreUnreachableError, StoreAccessError
            The file system of another machine does not give them.
        """

    def close(self) -> None:
        """Let go of the file."""


class Files(Protocol):
    """The files of one file system, by their locations.

    Attributes
    ----------
    appears_whole : bool
        Whether a reader sees a file only once all of it was written, as in object stores: none grows.
    """

    appears_whole: bool

    def stat(self, path: str) -> os.stat_result:
        """Return what is at a path, as `os.stat` does.

        Of another machine's file, mode, size, time and inode are right; the inode is a digest of the entity tag, where
        a listing has told it, else 0.

        Raises
        ------
        OSError
            Nothing is there.
        StoreUnreachableError, StoreAccessError
            The file system of another machine does not tell.
        """

    def names(self, folder: str, *, fresh: bool = False, new_last: bool = True) -> Collection[str]:
        """Return the names in a folder, files and sub-folders, in any order.

        `fresh`: as they are now. Otherwise those that are gone may be among them for a while. `new_last`: new names
        sort after the others; one that does not may be found later.

        Raises
        ------
        OSError
            There is no such folder.
        StoreUnreachableError, StoreAccessError
            The file system of another machine does not tell.
        """

    def open(self, path: str) -> OpenFile:
        """Open a file; raise FileNotFoundError where there is none."""

    def input(self, path: str, *, ahead: bool = False) -> Any:
        """Return what Arrow reads a file from; `ahead`: from its beginning to its end, and not by ranges.

        Errors of another machine's file system are not OSErrors, so a reader does not take them for damage.
        """


class LocalFile:
    """See `OpenFile`."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        found = os.fstat(self._file.fileno())
        self.stamp = (found.st_size, found.st_mtime_ns, found.st_ino)

    def read_at(self, offset: int, size: int) -> bytes:
        """See `OpenFile`."""
        pieces = []
        while size > 0:
            piece = os.pread(self._file.fileno(), size, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """See `OpenFile`."""
        self._file.close()


class LocalFiles:
    """The files of this machine; see `Files`."""

    appears_whole = False

    def stat(self, path: str) -> os.stat_result:
        """See `Files`."""
        return os.stat(path)

    def names(self, folder: str, *, fresh: bool = False, new_last: bool = True) -> Collection[str]:
        """See `Files`."""
        del fresh, new_last
        return os.listdir(folder)

    def open(self, path: str) -> OpenFile:
        """See `Files`."""
        return LocalFile(path)

    def input(self, path: str, *, ahead: bool = False) -> Any:
        """See `Files`."""
        return pa.OSFile(path, "rb") if ahead else pa.memory_map(path)


class _Found(NamedTuple):
    """What a listing tells of a file or a sub-folder."""

    size: int
    mtime_ns: int
    tag: int
    is_folder: bool

    def stat(self, path: str) -> os.stat_result:
        """Return it as `os.stat` would."""
        mode = stat.S_IFDIR if self.is_folder else stat.S_IFREG
        inode = tag_of(path) if self.is_folder else self.tag  # two folders are never one
        seconds = self.mtime_ns // 10**9
        facts = (mode, inode, 0, 1, 0, 0, self.size, seconds, seconds, seconds)
        return os.stat_result((*facts, 0.0, 0.0, 0.0, self.mtime_ns, self.mtime_ns, self.mtime_ns))


_FOLDER = _Found(0, 0, 0, is_folder=True)


class _Listing(Struct):
    """What is known of a folder."""

    files: dict[str, _Found] = field(default_factory=dict)
    last: str = ""  # the largest name that was listed
    looked_s: float | None = None
    whole_s: float = 0.0
    took_s: float = 0.0


class RemoteFiles:
    """The files of another machine's file system; see `Files`.

    What was listed is kept in this process, and `stat` answers from it: a stream whose files are read costs a request
    for each look, whatever the number of its files.

    Parameters
    ----------
    location : str
        Any location in the file system.
    clock : callable
        Returns seconds and never goes back.
    """

    def __init__(self, location: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._root, self._prefix = remote_root(location)
        self.appears_whole = self._files.type_name in ("s3", "gcs", "abfs")
        self._clock = clock
        self._keys: S3Keys | None = keys_of(self._root)
        self._listings: dict[str, _Listing] = {}
        self._has_bucket = False
        self._lock = threading.Lock()

    def stat(self, path: str) -> os.stat_result:
        """See `Files`."""
        path = path.rstrip("/")
        if path in self._listings:
            return _FOLDER.stat(path)
        folder, _, name = path.rpartition("/")
        listing = self._listings.get(folder)
        if listing is not None:
            if name not in listing.files:
                raise FileNotFoundError(path)
            return listing.files[name].stat(path)
        with asked(path, "cannot be looked at"):
            found = self._files.get_file_info(self._inside(path))
        if found.type == fs.FileType.NotFound:
            self._check_bucket(path)
            raise FileNotFoundError(path)
        return _told(found).stat(path)

    def _check_bucket(self, path: str) -> None:
        """Raise StoreAccessError where the bucket itself is not there."""
        if self._files.type_name == "s3" and not self._has_bucket:
            bucket = self._prefix.rstrip("/")
            if self._files.get_file_info(bucket).type == fs.FileType.NotFound:
                raise failed(OSError("NO_SUCH_BUCKET"), path, "cannot be found")
            self._has_bucket = True

    def names(self, folder: str, *, fresh: bool = False, new_last: bool = True) -> Collection[str]:
        """See `Files`."""
        folder = folder.rstrip("/")
        with self._lock:
            listing = self._listings.get(folder) or _Listing()
            began_s = self._clock()
            if fresh or self._is_whole_due(listing, began_s, new_last):
                found = self._listed(folder, "")
                if not found and listing.looked_s is None:
                    raise FileNotFoundError(folder)
                listing.files, listing.last = found, _last(found)
                listing.looked_s = listing.whole_s = self._clock()
                listing.took_s = listing.whole_s - began_s
            elif listing.looked_s is None or began_s - listing.looked_s >= _LOOK_S:
                found = self._listed(folder, listing.last)
                listing.files.update(found)
                listing.last = max(listing.last, _last(found))
                listing.looked_s = began_s
            self._listings[folder] = listing
            return listing.files.keys()

    def _is_whole_due(self, listing: _Listing, now_s: float, new_last: bool) -> bool:
        if listing.looked_s is None:
            return True
        if self._keys is None or not listing.last or not new_last:
            return now_s - listing.whole_s >= max(_LOOK_S, _LOOK_SHARE * listing.took_s)
        return now_s - listing.whole_s >= max(_WHOLE_S, _WHOLE_SHARE * listing.took_s)

    def _listed(self, folder: str, after: str) -> dict[str, _Found]:
        if self._keys is not None:
            return {one[0]: _Found(*one[1:]) for one in self._keys.listed(folder.removeprefix(self._root), after)}
        with asked(folder, "cannot be listed"):
            found: Any = self._files.get_file_info(fs.FileSelector(self._inside(folder), allow_not_found=True))
        return {one.base_name: _told(one) for one in found if one.base_name}

    def open(self, path: str) -> OpenFile:
        """See `Files`."""
        return RemoteFile(self._opened(path), path, _READ_AHEAD_BYTES)

    def input(self, path: str, *, ahead: bool = False) -> Any:
        """See `Files`."""
        return RemoteFile(self._opened(path), path, _READ_AHEAD_BYTES if ahead else 0)

    def _opened(self, path: str) -> pa.NativeFile:
        with asked(path, "cannot be opened"):
            return self._files.open_input_file(self._inside(path))

    def _inside(self, path: str) -> str:
        return (self._prefix + path.removeprefix(self._root)).rstrip("/")


def _told(found: fs.FileInfo) -> _Found:
    return _Found(found.size or 0, found.mtime_ns or 0, 0, found.type == fs.FileType.Directory)


def _last(found: dict[str, _Found]) -> str:
    """Return the largest name of a file that a stream may read; "" where there is none.

    A marker or a sub-folder whose name sorts after all files must not hide the files that come.
    """
    return max((name for name, one in found.items() if not one.is_folder and name[0] not in "._"), default="")


_LOCAL = LocalFiles()


def files_at(location: str) -> Files:
    """Return the files of a location's file system. Each process has one object for each file system.

    Raises
    ------
    ArgumentError, StoreUnreachableError
        See `object_store.open_remote`.
    """
    if is_local(location):
        return _LOCAL
    scheme, _, rest = location.partition("://")
    return _remote_files(f"{scheme}://{rest.partition('/')[0]}/", os.getpid())


@lru_cache(maxsize=32)
def _remote_files(root: str, process_id: int) -> RemoteFiles:
    del process_id
    return RemoteFiles(root)
