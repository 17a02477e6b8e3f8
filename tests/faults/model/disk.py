"""The file system as the processes of a run see it: before each change one can die, stop, or find no room.

Points are named by what the file is (``exchange``, ``block``, a table) and by the step (``open``, ``write``, ``sync``,
``rename``, ``remove``). A write that a death cuts short leaves half of its bytes. Only files of the run have points;
whatever else this Python process does with files is not touched.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from streamjoin_ds.sink import durability
from tests.faults.model.process import Killed

__all__ = ["Watcher", "at", "filesystem_of", "logged", "no_room", "table_name", "unlink", "watched"]

# The real functions: while a run lasts, hooks are called instead of them.
unlink = os.unlink
_write, _fsync, _replace, _link, _write_bytes = os.write, os.fsync, os.replace, os.link, Path.write_bytes


class Watcher(Protocol):
    """The object that is asked at each point; `root` is the folder of the run."""

    root: str

    def point(self, name: str, *, writes: bool = False) -> None: ...

    def alive(self) -> bool: ...

    def block_written(self, name: str) -> None: ...

    def forced(self, path: str) -> None: ...

    @property
    def current(self) -> Any: ...


_watcher: Watcher | None = None


def at(name: str, *, writes: bool = False) -> None:
    """Come to a point; `writes` says that room is needed."""
    if _watcher is not None and _watcher.current is not None:
        _watcher.point(name, writes=writes)


def no_room() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def table_name(path: str) -> str:
    """Return "matches", "late", ... for the path of a table or of a file in it."""
    start = path.find("/matches") + 1
    return path[start:].split("/", 1)[0].removeprefix("matches_") if start else "table"


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Ask `watcher` at every point, for as long as the context lasts."""
    global _watcher
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", _hooked_write)
        patch.setattr(os, "fsync", _hooked_fsync)
        patch.setattr(durability, "_side_by_side", _one_by_one)
        patch.setattr(os, "replace", _hooked(_replace, "rename"))
        patch.setattr(os, "unlink", _hooked(unlink, "remove"))
        patch.setattr("streamjoin_ds.sink.writer.filesystem_of", filesystem_of)
        _watcher = watcher
        try:
            yield
        finally:
            _watcher = None


def _kind(path: Any) -> str | None:
    """Return what a file of the run is; None for any other file, and while no process of the run is at work."""
    if _watcher is None or _watcher.current is None:
        return None
    path = os.fspath(path)
    if not isinstance(path, str) or not path.startswith(_watcher.root):
        return None
    folder = path[len(_watcher.root) + 1 :].split("/", 1)[0]
    if folder.startswith("matches"):
        return folder.removeprefix("matches_")
    kinds = {"exchange": "exchange", "blocks": "block", "checkpoint": "spark", "tables": "version"}
    return {**kinds, "forgotten": "forgotten"}.get(folder)


def _of_descriptor(descriptor: int) -> str | None:
    if _watcher is None or _watcher.current is None:
        return None
    return _kind(os.readlink(f"/proc/self/fd/{descriptor}"))


def _hooked_write(descriptor: int, data: Any) -> int:
    kind = _of_descriptor(descriptor)
    if kind is not None:
        assert _watcher is not None
        alive = _watcher.alive()
        try:
            at(f"{kind} write", writes=True)
        except (Killed, OSError):
            if alive:
                _write(descriptor, data[: len(data) // 2])
            raise
    return _write(descriptor, data)


@contextmanager
def logged() -> Iterator[None]:
    """Come to a point where a query without Spark writes a file of its log, and where it names it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", _hooked_write_bytes)
        patch.setattr(os, "link", _hooked_link)
        yield


def _hooked_write_bytes(path: Path, data: bytes) -> int:
    kind = _kind(path)
    if kind is not None:
        assert _watcher is not None
        alive = _watcher.alive()
        try:
            at(f"{kind} write", writes=True)
        except (Killed, OSError):
            if alive:
                _write_bytes(path, data[: len(data) // 2])
            raise
    return _write_bytes(path, data)


def _hooked_link(path: Any, target: Any, **options: Any) -> None:
    if _kind(path) == "spark":
        at("spark name")
    _link(path, target, **options)


def _one_by_one(work: Callable[[str, int], None], there: Mapping[str, int]) -> None:
    """Force files in their order, by one thread: a run is a function of its seed."""
    for path, descriptor in there.items():
        work(path, descriptor)


def _hooked_fsync(descriptor: int) -> None:
    kind = _of_descriptor(descriptor)
    if kind is not None:
        at(f"{kind} sync")
        assert _watcher is not None
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.exists(path):  # it may have been purged, or replaced by another process
            _watcher.forced(path)


def _hooked(function: Callable[..., None], step: str) -> Callable[..., None]:
    def hooked(path: Any, *arguments: Any, **options: Any) -> None:
        kind = _kind(path)
        if kind is not None:
            at(f"{kind} {step}")
        function(path, *arguments, **options)
        if kind == "block" and step == "rename":
            assert _watcher is not None
            _watcher.block_written(os.path.basename(os.fspath(arguments[0])))

    return hooked


def filesystem_of(table_path: str) -> tuple[Any, str]:
    """Return the file system for the writer of Parquet files, in place of the product's `filesystem_of`."""
    return _TableFiles(), table_path


class _TableFiles:
    """The local file system, whose steps are points."""

    type_name = "local"

    def create_dir(self, path: str, *, recursive: bool) -> None:
        os.makedirs(path, exist_ok=recursive)

    def open_output_stream(self, path: str) -> _OutputFile:
        at(f"{table_name(path)} open", writes=True)
        return _OutputFile(path)

    def move(self, source: str, target: str) -> None:
        at(f"{table_name(target)} rename")
        _replace(source, target)

    def delete_file(self, path: str) -> None:
        at(f"{table_name(path)} remove")
        unlink(path)


class _OutputFile(io.RawIOBase):
    """A file that Arrow writes to."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed with this
        self._step = f"{table_name(path)} write"
        assert _watcher is not None
        self._owner = _watcher.current
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        size = len(data)
        # Arrow closes an open file when it is collected, and another process may run by then.
        if _watcher is None or _watcher.current is not self._owner:
            return size
        try:
            _watcher.point(self._step, writes=True)
        except (Killed, OSError):
            if not self._owner.gone:
                self._file.write(data[: size // 2])
            raise
        self._file.write(data)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        self._file.close()
        super().close()
