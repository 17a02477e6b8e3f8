"""Folders of blocks: what a store needs of a folder, and a folder of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError

__all__ = ["Folder", "FoundFile", "LocalFolder", "Pieces", "begin_to_write", "put_new"]

Pieces: TypeAlias = "Sequence[pa.Buffer | bytes | bytearray]"  # the bytes of a file, one piece after the other

_BEGUN_BYTES = 1 << 20  # from which on the system is asked to begin to write a file that is forced later
_ONLY_OWNER = 0o700  # mode of folders: only this user may look in
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # what systems without them say
_HERE, _REPLACE_NOTHING = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of Linux


class FoundFile(NamedTuple):
    """A file as a folder lists it. `changed_s` is in seconds since 1970, None where the file system does not tell."""

    name: str
    size_bytes: int
    changed_s: float | None


class Folder(Protocol):
    """What a `BlockStore` needs of the folder of its blocks. Names are relative paths with slashes."""

    def write(self, name: str, pieces: Pieces) -> None:
        """Write a file so that a reader sees all of it or none. Where that fails raise OSError, and leave no file."""

    def read(self, name: str) -> pa.Buffer:
        """Return the bytes of a file; raise FileNotFoundError where it is gone, OSError where it cannot be read."""

    def touch(self, name: str, pieces: Pieces) -> None:
        """Make a file that holds these bytes look new. Where it is gone write it, or raise FileNotFoundError."""

    def forget(self, name: str) -> bool:
        """Drop the copy of a file that is kept elsewhere to read faster. Return whether there was one."""

    def size_bytes(self, name: str) -> int | None:
        """Return the size of a file, None where there is none."""

    def remove(self, name: str) -> bool:
        """Remove a file. Return False where there is none."""

    def remove_unchanged(self, file: FoundFile) -> bool:
        """Remove a file if it is as it was found. Return False where it is gone, or was written or touched since."""

    def files(self) -> Iterator[FoundFile]:
        """Yield all files in any order, also unfinished ones, whose names begin with a dot."""


def put_new(aside: str | Path, path: str | Path) -> bool:
    """Give a whole file its name, only if the name is free. Return whether it has it; `aside` is gone in any case.

    A hard link does it. Some file systems have none (exFAT, some of FUSE and SMB): there Linux' rename that replaces
    nothing does it.

    Raises
    ------
    ArgumentError
        The file system has neither.
    OSError
        There is no room, or no right to write.
    """
    try:
        try:
            os.link(aside, path)
        except FileExistsError:
            # Over NFS the answer to a link may be lost. Then it is asked again, and meets its own.
            with contextlib.suppress(FileNotFoundError):
                return os.path.samefile(aside, path)
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _renamed(os.fspath(aside), os.fspath(path))
        return True
    finally:
        with contextlib.suppress(OSError):
            os.unlink(aside)


def _renamed(aside: str, path: str) -> bool:
    """Rename a file if the new name is free; return whether it was."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    failed = errno.ENOSYS
    if rename is not None:
        if rename(_HERE, os.fsencode(aside), _HERE, os.fsencode(path), _REPLACE_NOTHING) == 0:
            return True
        failed = ctypes.get_errno()
    if failed == errno.EEXIST:
        return False
    if failed not in (*_NO_LINKS, errno.EINVAL):
        raise OSError(failed, os.strerror(failed), path)
    folder = os.path.dirname(path)
    msg = f"the file system of {folder} has no hard links, and no rename that replaces nothing"
    hint = "of two writers one would overwrite the other: use a local disk, NFS or an object store"
    raise ArgumentError(msg, name=folder, hint=hint)


class LocalFolder:
    """A folder of this machine. It is made at the first write, with mode 0700: only this user may look in.

    Parameters
    ----------
    root : Path
    durable : bool
        Whether a file is on the device, name and bytes, before `write` returns.
    """

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.root = root
        self._durable = durable

    def make(self) -> None:
        """Make the folder before its first write, and force its name to the device, whoever made it."""
        self._make(self.root)
        if self._durable:
            _sync(self.root.parent)

    def write(self, name: str, pieces: Pieces) -> None:
        """See `Folder`."""
        target = self.root / name
        aside = target.with_name(f".{target.name}.{os.getpid()}-{uuid.uuid4().hex}")
        try:
            self._make(target.parent)
            with aside.open("wb", buffering=0) as file:
                for piece in pieces:
                    _write_all(file.fileno(), memoryview(piece))
                if self._durable:
                    os.fsync(file.fileno())
                elif sum(map(len, pieces)) >= _BEGUN_BYTES:
                    begin_to_write(file.fileno())
            aside.replace(target)
            if self._durable:
                _sync(target.parent)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise

    def link(self, name: str, source: Path) -> bool:
        """Give a file of this machine a name here; return False where the file system cannot. Errors as for `write`."""
        target = self.root / name
        aside = target.with_name(f".{target.name}.{os.getpid()}-{uuid.uuid4().hex}")
        try:
            self._make(target.parent)
            os.link(source, aside)
            aside.replace(target)
        except OSError as error:
            if error.errno in (*_NO_LINKS, errno.EXDEV):
                return False
            raise
        finally:
            with contextlib.suppress(OSError):  # a rename leaves it where both names are of one file already
                aside.unlink(missing_ok=True)
        self.touch(name, ())
        return True

    def read(self, name: str) -> pa.Buffer:
        """Return the bytes of a file, mapped and not copied."""
        return _mapped(self.root / name)

    def touch(self, name: str, pieces: Pieces) -> None:
        """See `Folder`. It is no error if the file still looks old, but one if it cannot be forced to the device."""
        del pieces
        path = self.root / name
        try:
            os.utime(path)
        except FileNotFoundError:  # a clean-up has removed it
            raise
        except OSError:
            pass
        if self._durable:  # the file's writer may have died before it forced it, or may not force files at all
            _sync(path)
            _sync(path.parent)

    def forget(self, name: str) -> bool:
        """See `Folder`: there are no copies."""
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

        The file is renamed first and then checked. A writer that found it before the rename has changed its time. A
        writer that comes later finds it gone, and writes it.
        """
        path = self.root / file.name
        aside = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
        if aside.stat().st_mtime != file.changed_s:
            put_new(aside, path)  # if the name is taken it was written again meanwhile, with the same bytes
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
        # mkdir(parents=True, mode=...) would make the parents with the default mode.
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for part in (*reversed([p for p in folder.parents if p.is_relative_to(self.root)]), folder):
            part.mkdir(mode=_ONLY_OWNER, exist_ok=True)
            if self._durable:
                _sync(part.parent)


def begin_to_write(descriptor: int) -> None:
    """Have the system begin to write a file's pages, without waiting; do nothing where the system cannot be told so.

    Whoever forces the file later then waits for less.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # it is a folder or a pipe
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sync(path: Path) -> None:
    """Force a file's bytes, or the names in a folder, to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mapped(path: Path) -> pa.Buffer:
    if not os.path.getsize(path):
        return pa.py_buffer(b"")  # an empty file cannot be mapped; its checksum fails later, by name
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()
