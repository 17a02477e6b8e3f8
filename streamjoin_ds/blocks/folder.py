"""Where blocks lie: a folder of this machine, or one of any file system that Arrow knows, with a local read cache."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import xxhash
from pyarrow import fs

__all__ = ["Folder", "LocalFolder", "RemoteFolder", "is_local"]

_ONLY_OWNER = 0o700
# An object is there when it has been put, all of it; elsewhere a file is written aside and moved.
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


def is_local(root: str) -> bool:
    """Whether this is a path of this machine (or of a file system that is mounted here), not a URI."""
    return "://" not in root


class Folder(Protocol):
    """What a `BlockStore` needs of the place its blocks lie in. Names are relative paths with slashes."""

    def write(self, name: str, data: pa.Buffer) -> None:
        """Put a file there, so that a reader sees all of it or nothing; OSError where that fails, and then nothing."""

    def read(self, name: str) -> pa.Buffer:
        """The bytes of a file; FileNotFoundError, OSError."""

    def touch(self, name: str) -> None:
        """Make a file look as if it had just been written; what cannot be done is left."""

    def forget(self, name: str) -> bool:
        """Drop what is kept of a file nearer than where it lies; whether there was something."""

    def size_bytes(self, name: str) -> int | None:
        """Size of a file, None where there is none."""

    def remove(self, name: str) -> bool:
        """Remove a file; False where there is none."""

    def names(self) -> Iterator[str]:
        """All files, in any order; unfinished ones (their names begin with a dot) too."""


class LocalFolder:
    """A folder that is made when first written to; only this user may look in (mode 0700).

    Parameters
    ----------
    root : Path
    durable : bool
        Whether a file is on the device, name and bytes, before `write` returns.
    """

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.root = root
        self._durable = durable

    def write(self, name: str, data: pa.Buffer) -> None:
        """See `Folder`."""
        target = self.root / name
        aside = target.with_name(f".{target.name}.{os.getpid()}-{uuid.uuid4().hex}")
        try:
            self._make(target.parent)
            with aside.open("wb", buffering=0) as file:
                _write_all(file.fileno(), memoryview(data))
                if self._durable:
                    os.fsync(file.fileno())
            aside.replace(target)
            if self._durable:
                _sync_folder(target.parent)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> pa.Buffer:
        """Mapped, not copied."""
        return _mapped(self.root / name)

    def touch(self, name: str) -> None:
        """See `Folder`."""
        with contextlib.suppress(OSError):
            os.utime(self.root / name)

    def forget(self, name: str) -> bool:
        """Nothing is nearer."""
        return False

    def size_bytes(self, name: str) -> int | None:
        """See `Folder`."""
        try:
            return (self.root / name).stat().st_size
        except OSError:
            return None

    def remove(self, name: str) -> bool:
        """See `Folder`."""
        try:
            (self.root / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def names(self) -> Iterator[str]:
        """See `Folder`."""
        for path in self.root.rglob("*") if self.root.is_dir() else ():
            if path.is_file():
                yield path.relative_to(self.root).as_posix()

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        # Not mkdir(parents=True, mode=...): the parents it makes have the default mode.
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for part in (*reversed([p for p in folder.parents if p.is_relative_to(self.root)]), folder):
            part.mkdir(mode=_ONLY_OWNER, exist_ok=True)


class RemoteFolder:
    """A folder of any file system that Arrow knows; what is read or written is kept on this machine, up to a limit.

    Parameters
    ----------
    root : str
        A URI, for example ``s3://bucket/folder``; or a path in `filesystem`.
    filesystem : pyarrow.fs.FileSystem, optional
        Of `root`, where that is no URI.
    cache : Path, optional
        Folder of the copies, shared by the processes of this user; default: in the folder for temporary files.
    cache_bytes : int
        Those that were used longest ago go when there are more.
    """

    def __init__(
        self,
        root: str,
        filesystem: fs.FileSystem | None = None,
        *,
        cache: Path | None = None,
        cache_bytes: int = 8 << 30,
    ) -> None:
        self._files: fs.FileSystem
        self._root: str
        self._files, self._root = fs.FileSystem.from_uri(root) if filesystem is None else (filesystem, root)
        home = cache or Path(tempfile.gettempdir()) / f"streamjoin-blocks-{os.getuid()}"
        self._cache = LocalFolder(home / xxhash.xxh3_64_hexdigest(root.encode()), durable=False)
        self._cache_bytes = cache_bytes

    def write(self, name: str, data: pa.Buffer) -> None:
        """See `Folder`."""
        target = f"{self._root}/{name}"
        if self._files.type_name in _OBJECT_STORES:
            self._put(target, data)
        else:
            self._files.create_dir(target.rpartition("/")[0], recursive=True)
            folder, _, last = target.rpartition("/")
            aside = f"{folder}/.{last}.{uuid.uuid4().hex}"
            try:
                self._put(aside, data)
                self._files.move(aside, target)
            except OSError:
                with contextlib.suppress(OSError):
                    self._files.delete_file(aside)
                raise
        self._keep(name, data)

    def read(self, name: str) -> pa.Buffer:
        """From this machine where it is kept, mapped; else fetched and kept."""
        if self._cache.size_bytes(name):
            with contextlib.suppress(OSError):
                os.utime(self._cache.root / name)  # used last, goes last
                return self._cache.read(name)
        with self._files.open_input_file(f"{self._root}/{name}") as file:
            data = file.read_buffer()
        self._keep(name, data)
        return data

    def touch(self, name: str) -> None:
        """Arrow's file systems have no such thing; their files are not tidied up by age."""

    def forget(self, name: str) -> bool:
        """Drop the copy."""
        return self._cache.remove(name)

    def size_bytes(self, name: str) -> int | None:
        """Of the file itself, not of the copy."""
        found = self._files.get_file_info(f"{self._root}/{name}")
        return int(found.size) if found.type == fs.FileType.File else None

    def remove(self, name: str) -> bool:
        """See `Folder`."""
        self._cache.remove(name)
        try:
            self._files.delete_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return False
        return True

    def names(self) -> Iterator[str]:
        """See `Folder`."""
        found: Any = self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True, recursive=True))
        for entry in found:
            if entry.type == fs.FileType.File:
                yield entry.path.removeprefix(self._root).lstrip("/")

    def _put(self, path: str, data: pa.Buffer) -> None:
        with self._files.open_output_stream(path) as file:
            file.write(data)

    def _keep(self, name: str, data: pa.Buffer) -> None:
        """A copy on this machine; a disk that is full is no reason to fail."""
        with contextlib.suppress(OSError):
            self._make_room(data.size)
            if data.size <= self._cache_bytes:
                self._cache.write(name, data)

    def _make_room(self, size_bytes: int) -> None:
        kept = []
        for name in self._cache.names():
            with contextlib.suppress(OSError):
                facts = (self._cache.root / name).stat()
                kept.append((facts.st_mtime_ns, name, facts.st_size))
        total = size_bytes + sum(size for _, _, size in kept)
        for _, name, size in sorted(kept):
            if total <= self._cache_bytes:
                break
            self._cache.remove(name)
            total -= size


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mapped(path: Path) -> pa.Buffer:
    if not os.path.getsize(path):
        return pa.py_buffer(b"")  # cannot be mapped; fails its checksum by name
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()
