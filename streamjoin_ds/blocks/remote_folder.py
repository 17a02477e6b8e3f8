"""A folder of blocks on any file system that Arrow knows, read through copies on this machine.

Such file systems are S3, GCS, HDFS and fsspec's. The copies are a read cache, bounded in bytes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import fs

from streamjoin_ds.blocks.folder import FoundFile, LocalFolder, Pieces
from streamjoin_ds.blocks.object_store import open_remote
from streamjoin_ds.errors import ArgumentError, BlockMissingError, StoreUnreachableError
from streamjoin_ds.machine import is_private

__all__ = ["Copies", "RemoteFolder", "default_home"]

_log = logging.getLogger(__name__)
# In these a reader sees an object only once all of it was put. In other file systems a file is written aside and moved.
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
# A file younger than this many seconds is not written again to look new: `vacuum` leaves files of up to an hour.
_YOUNG_S = 600.0


def default_home() -> Path:
    """Return the folder of this user's copies, which is in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"streamjoin-blocks-{os.getuid()}"


class Copies:
    """Copies of files of any remote folders, shared by the processes of this user. A copy is a hint, never the truth.

    A reader verifies a copy as it verifies the file itself. The folder lies where others may write, so it is used only
    if it belongs to this user and nobody else may look in. Otherwise no copy is kept.

    Parameters
    ----------
    home : Path
        Folder of the copies. It is made when there is something to keep.
    limit_bytes : int
        Bytes of all copies in `home`, whichever remote folder they come from. Copies that were used longest ago go
        first. A file larger than this is not kept.
    """

    def __init__(self, home: Path, limit_bytes: int) -> None:
        self.home, self._limit_bytes = home, limit_bytes
        self._folder = LocalFolder(home, durable=False)

    def get(self, name: str) -> pa.Buffer | None:
        """Return the bytes of a copy, mapped; None where there is no copy."""
        if not is_private(self.home) or not self._folder.size_bytes(name):
            return None
        try:
            os.utime(self.home / name)  # `_make_room` drops the copy with the oldest time
            return self._folder.read(name)
        except OSError:
            return None

    def put(self, name: str, pieces: Pieces) -> None:
        """Keep a copy. Where that fails (a full disk) keep none, and raise nothing."""
        with contextlib.suppress(OSError):
            size_bytes = sum(map(len, pieces))
            if size_bytes <= self._limit_bytes:
                self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
                if is_private(self.home):
                    self._make_room(size_bytes)
                    self._folder.write(name, pieces)

    def drop(self, name: str) -> bool:
        """Remove a copy. Return whether there was one."""
        with contextlib.suppress(OSError):
            return is_private(self.home) and self._folder.remove(name)
        return False

    def _make_room(self, size_bytes: int) -> None:
        kept = list(self._folder.files())
        total = size_bytes + sum(file.size_bytes for file in kept)
        for file in sorted(kept, key=lambda file: file.changed_s or 0.0):
            if total <= self._limit_bytes:
                break
            self.drop(file.name)
            _log.debug("the copy of %s is dropped: %d bytes are over the limit", file.name, total - self._limit_bytes)
            total -= file.size_bytes


class RemoteFolder:
    """A folder of any file system that Arrow knows. This machine keeps copies of its files, up to a limit.

    An upload that breaks off leaves no object, because S3 shows an object only when its last part has come. It leaves
    an unfinished upload, which only a rule of the bucket removes (``AbortIncompleteMultipartUpload``).

    Parameters
    ----------
    root : str
        A URI, for example ``s3://bucket/folder``; or a path in `filesystem`.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system of `root`, where that is no URI.
    cache : Path, optional
        Folder of the copies, shared by the processes of this user; default: in the folder for temporary files.
    cache_bytes : int
        Bytes of all copies there. When there are more, those that were used longest ago go.
    now_s : callable
        Returns seconds since 1970. It should agree with the file system's own clock.

    Raises
    ------
    ArgumentError
        `root` is no URI, or one of a file system that Arrow does not know. It may hold a secret, so it is not shown.
    BlockMissingError
        The file system cannot be reached.
    """

    def __init__(
        self,
        root: str,
        filesystem: fs.FileSystem | None = None,
        *,
        cache: Path | None = None,
        cache_bytes: int = 8 << 30,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._files: fs.FileSystem
        self._root: str
        self._files, self._root = _opened(root) if filesystem is None else (filesystem, root)
        self._copies = Copies(cache or default_home(), cache_bytes)
        self._prefix = xxhash.xxh3_64_hexdigest(root.encode())
        self._now_s = now_s

    def write(self, name: str, pieces: Pieces) -> None:
        """See `Folder`."""
        target = f"{self._root}/{name}"
        if self._files.type_name in _OBJECT_STORES:
            self._put(target, pieces)
        else:
            self._put_aside_and_move(target, pieces)
        self._copies.put(self._copy(name), pieces)

    def read(self, name: str) -> pa.Buffer:
        """Return the bytes of a file: of its copy on this machine, mapped, which is fetched first where there is none.

        Mapped memory is shared by all processes, and the system may take it back. Bytes that cannot be kept as a copy
        are not mapped.
        """
        kept = self._copies.get(self._copy(name))
        if kept is None:
            with self._files.open_input_file(f"{self._root}/{name}") as file:
                data = file.read_buffer()
            self._copies.put(self._copy(name), [data])
            kept = self._copies.get(self._copy(name))
        return data if kept is None else kept

    def touch(self, name: str, pieces: Pieces) -> None:
        """Write a file again, unless it is less than ten minutes old: there is no other way to make it look new.

        A file is often that young, because the cells that share a block all write it.
        """
        changed_s = _changed_s(self._files.get_file_info(f"{self._root}/{name}"))
        if changed_s is None or changed_s < self._now_s() - _YOUNG_S:
            self.write(name, pieces)

    def forget(self, name: str) -> bool:
        """Drop the copy on this machine. Return whether there was one."""
        return self._copies.drop(self._copy(name))

    def size_bytes(self, name: str) -> int | None:
        """Return the size of the file itself, not that of its copy; None where there is no file."""
        found = self._files.get_file_info(f"{self._root}/{name}")
        return int(found.size) if found.type == fs.FileType.File else None

    def remove(self, name: str) -> bool:
        """See `Folder`."""
        self.forget(name)
        try:
            self._files.delete_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return False
        return True

    def remove_unchanged(self, file: FoundFile) -> bool:
        """See `Folder`. The file is checked just before it is removed: an object store has no better way."""
        found = self._files.get_file_info(f"{self._root}/{file.name}")
        return _changed_s(found) == file.changed_s and self.remove(file.name)

    def files(self) -> Iterator[FoundFile]:
        """See `Folder`."""
        found: Any = self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True, recursive=True))
        root = self._root.strip("/")
        for entry in found:
            if entry.type == fs.FileType.File:
                name = entry.path.lstrip("/").removeprefix(root).lstrip("/")
                yield FoundFile(name, int(entry.size), _changed_s(entry))

    def _copy(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _put(self, path: str, pieces: Pieces) -> None:
        with self._files.open_output_stream(path) as file:
            for piece in pieces:
                file.write(piece)

    def _put_aside_and_move(self, target: str, pieces: Pieces) -> None:
        folder, _, last = target.rpartition("/")
        aside = f"{folder}/.{last}.{uuid.uuid4().hex}"
        self._files.create_dir(folder, recursive=True)
        try:
            self._put(aside, pieces)
            try:
                self._files.move(aside, target)
            except OSError:
                # HDFS does not move a file onto another. If that has this size, another task wrote the same block;
                # otherwise it is damaged.
                there = self._files.get_file_info(target)
                if there.type != fs.FileType.File:
                    raise
                if there.size == sum(map(len, pieces)):
                    self._files.delete_file(aside)
                else:
                    self._files.delete_file(target)
                    self._files.move(aside, target)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.delete_file(aside)
            raise


def _opened(root: str) -> tuple[fs.FileSystem, str]:
    try:
        return open_remote(root)
    except ArgumentError as error:
        msg = error.message.replace("the location", "the folder of blocks")
        hint = "give a path, or a URI such as s3://bucket/folder?region=eu-central-1 (pyarrow.fs.FileSystem.from_uri)"
        raise ArgumentError(msg, name="blocks", hint=hint) from None
    except StoreUnreachableError:
        msg = "the folder of blocks cannot be opened: its file system does not answer"
        raise BlockMissingError(msg, name="blocks", hint="check this machine's connection and credentials") from None


def _changed_s(found: fs.FileInfo) -> float | None:
    return None if found.mtime_ns is None else found.mtime_ns / 1e9
