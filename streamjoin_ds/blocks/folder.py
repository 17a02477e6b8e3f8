"""Where blocks lie: what a store needs of a folder, and a folder of this machine."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["Folder", "FoundFile", "LocalFolder"]

_ONLY_OWNER = 0o700


class FoundFile(NamedTuple):
    """A file as a folder lists it; `changed_s` in seconds since 1970, None where the file system does not tell."""

    name: str
    size_bytes: int
    changed_s: float | None


class Folder(Protocol):
    """What a `BlockStore` needs of the place its blocks lie in. Names are relative paths with slashes."""

    def write(self, name: str, data: pa.Buffer) -> None:
        """Put a file there, so that a reader sees all of it or nothing; OSError where that fails, and then nothing."""

    def read(self, name: str) -> pa.Buffer:
        """The bytes of a file; FileNotFoundError, OSError."""

    def touch(self, name: str, data: pa.Buffer) -> None:
        """Make a file that holds `data` look as if it had just been written; FileNotFoundError where it is gone."""

    def forget(self, name: str) -> bool:
        """Drop what is kept of a file nearer than where it lies; whether there was something."""

    def size_bytes(self, name: str) -> int | None:
        """Size of a file, None where there is none."""

    def remove(self, name: str) -> bool:
        """Remove a file; False where there is none."""

    def remove_unchanged(self, file: FoundFile) -> bool:
        """Remove a file as it was found; False where it is gone, or was written or found again since."""

    def files(self) -> Iterator[FoundFile]:
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
                _sync(target.parent)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> pa.Buffer:
        """Mapped, not copied."""
        return _mapped(self.root / name)

    def touch(self, name: str, data: pa.Buffer) -> None:
        """See `Folder`; that it looks old is no error, that it may not be on the device is one."""
        del data
        path = self.root / name
        try:
            os.utime(path)
        except FileNotFoundError:  # who tidies up was faster
            raise
        except OSError:
            pass
        if self._durable:  # who wrote it may have died before this, and not be durable at all
            _sync(path)
            _sync(path.parent)

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

    def remove_unchanged(self, file: FoundFile) -> bool:
        """See `Folder`.

        Set aside first, then looked at: who finds it before that has changed its time, and who comes later finds it
        gone, and writes it.
        """
        path = self.root / file.name
        aside = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
        if aside.stat().st_mtime != file.changed_s:
            with contextlib.suppress(FileExistsError):  # written again meanwhile: the same bytes
                os.link(aside, path)
            aside.unlink()
            return False
        aside.unlink()
        return True

    def files(self) -> Iterator[FoundFile]:
        """See `Folder`."""
        waiting = [(str(self.root), "")]
        while waiting:
            folder, prefix = waiting.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{prefix}{entry.name}/"))
                    elif entry.is_file():
                        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                            facts = entry.stat()
                            yield FoundFile(f"{prefix}{entry.name}", facts.st_size, facts.st_mtime)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        # Not mkdir(parents=True, mode=...): the parents it makes have the default mode.
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for part in (*reversed([p for p in folder.parents if p.is_relative_to(self.root)]), folder):
            part.mkdir(mode=_ONLY_OWNER, exist_ok=True)
            if self._durable:
                _sync(part.parent)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sync(path: Path) -> None:
    """Make a file's bytes, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mapped(path: Path) -> pa.Buffer:
    if not os.path.getsize(path):
        return pa.py_buffer(b"")  # cannot be mapped; fails its checksum by name
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()
