"""A folder of blocks on a file system that every reader sees."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa

from streamjoin_ds.blocks.block import checksum, decode, encode
from streamjoin_ds.errors import ArgumentError, BlockMissingError, BlockWriteError

__all__ = ["BlockRef", "BlockStore"]

_SUFFIX = ".arrow"
_ONLY_OWNER = 0o700


@dataclass(frozen=True, slots=True)
class BlockRef:
    """What is known of a block without opening it; `name` carries the checksum."""

    name: str
    rows: int
    size_bytes: int


class BlockStore:
    """Blocks under one folder, made when first written to; only this user may look in (mode 0700).

    Parameters
    ----------
    root : str
        A local path, or the path of a shared file system.
    durable : bool
        Whether a block is on the device before `write` returns, name and bytes. The blocks of the exchange need not
        be: they are written again on replay.
    """

    def __init__(self, root: str, *, durable: bool = False) -> None:
        self.root = Path(root)
        self.durable = durable

    def write(self, stem: str, table: pa.Table, facts: Mapping[str, str] | None = None) -> BlockRef:
        """Write a block; the same stem, table and facts give the same file, however often and from wherever.

        Written aside and renamed: a reader sees all of it or nothing. A file that is there already is only verified.

        Parameters
        ----------
        stem : str
            What the block is, as a relative path: its name without checksum and suffix.
        table : pyarrow.Table
        facts : mapping of str to str, optional
            For the block's header.

        Raises
        ------
        ArgumentError
            The stem leads out of the folder.
        BlockWriteError
            The file cannot be written (no room, no right to); nothing is left of it.
        """
        data = encode(table, facts)
        digest = checksum(data)
        name = f"{stem}-{digest}{_SUFFIX}"
        target = self._path(name)
        if not _holds(target, data.size, digest):
            aside = target.with_name(f".{target.name}.{os.getpid()}-{uuid.uuid4().hex}")
            try:
                self._make_folder(target.parent)
                with aside.open("wb", buffering=0) as file:
                    _write_all(file.fileno(), memoryview(data))
                    if self.durable:
                        os.fsync(file.fileno())
                aside.replace(target)
                if self.durable:
                    _sync_folder(target.parent)
            except OSError as error:
                with contextlib.suppress(OSError):
                    aside.unlink(missing_ok=True)
                msg = f"block {name} cannot be written: {error.strerror or 'the file system refuses'}"
                raise BlockWriteError(msg, name=name, hint="make room, or rights, where the checkpoint lies") from error
        return BlockRef(name, table.num_rows, data.size)

    def read(self, name: str) -> pa.Table:
        """Map a block, verify its checksum, and give its table; nothing is copied.

        Raises
        ------
        BlockMissingError, BlockCorruptError
            The file is not there or cannot be opened, or is not what its name says.
        ArgumentError
            The name leads out of the folder.
        """
        path = self._path(name)
        try:
            data = _mapped(path)
        except FileNotFoundError:
            msg = f"block {name} is not there"
            hint = "restore the checkpoint's files; blocks lie under its folder"
            raise BlockMissingError(msg, name=name, hint=hint) from None
        except OSError as error:
            msg = f"block {name} cannot be opened"
            raise BlockMissingError(msg, name=name, hint="every worker must see the checkpoint's folder") from error
        expected = name.rsplit("-", 1)[-1].removesuffix(_SUFFIX)
        return decode(data, expected, name)

    def remove(self, names: Iterable[str]) -> int:
        """Remove blocks that nothing refers to any more; gives how many went. One that is gone already is no error."""
        return sum(_unlinked(self._path(name)) for name in names)

    def names(self, prefix: str = "") -> list[str]:
        """Names of the blocks whose name begins with `prefix`, sorted; what was left aside unfinished is none."""
        if not self.root.is_dir():
            return []
        found = (path.relative_to(self.root).as_posix() for path in self.root.rglob(f"*{_SUFFIX}"))
        return sorted(name for name in found if name.startswith(prefix) and "/." not in f"/{name}")

    def _path(self, name: str) -> Path:
        """The file of a block; refused where it would be hidden, or outside the folder, by its name or by a link."""
        parts = PurePosixPath(name).parts
        inside = parts and "\0" not in name and not name.startswith("/") and not any(p.startswith(".") for p in parts)
        if inside and len(parts) > 1:
            folder = os.path.realpath(self.root.joinpath(*parts[:-1]))
            inside = folder.startswith(os.path.realpath(self.root) + os.sep)
        path = self.root / name
        if not inside or path.is_symlink():
            msg = "a block's name leads out of the folder of blocks"
            raise ArgumentError(
                msg, name=name[:200], hint="letters, digits and dashes, with single slashes between them"
            )
        return path

    def _make_folder(self, folder: Path) -> None:
        # Not mkdir(parents=True, mode=...): the parents it makes have the default mode.
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for part in (*reversed([p for p in folder.parents if p.is_relative_to(self.root)]), folder):
            part.mkdir(mode=_ONLY_OWNER, exist_ok=True)


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
    if not path.stat().st_size:
        return pa.py_buffer(b"")  # cannot be mapped; fails its checksum by name
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def _holds(path: Path, size_bytes: int, digest: str) -> bool:
    """Whether the file is there and whole: one that was damaged is written again."""
    try:
        return path.stat().st_size == size_bytes and checksum(_mapped(path)) == digest
    except OSError:
        return False


def _unlinked(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
