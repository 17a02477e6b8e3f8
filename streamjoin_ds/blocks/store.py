"""Blocks in a folder that every reader sees: named by their content, verified before they are parsed."""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streamjoin_ds.blocks.block import checksum, decode, encode
from streamjoin_ds.blocks.folder import Folder, FoundFile, LocalFolder
from streamjoin_ds.blocks.location import local_path
from streamjoin_ds.blocks.remote_folder import RemoteFolder
from streamjoin_ds.errors import ArgumentError, BlockCorruptError, BlockMissingError, BlockWriteError, MapLimitError

__all__ = ["BlockRef", "BlockStore", "is_block"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)  # blocks by name; a root may be a URI that holds a secret
_SUFFIX = ".arrow"
_FEW, _AT_ONCE = 3, 8
# What Arrow raises besides: a file system that does not know an operation, or a path that is none.
_FAILURES = (OSError, pa.ArrowException)
_MAP_HINT = (
    "allow more (sysctl vm.max_map_count), or give each worker fewer blocks: more cells (layout), a smaller window, "
    "fewer queries in one session"
)
_REMOTE_HINT = "check connection, credentials and rights of this machine there, then start again: nothing is lost"


@dataclass(frozen=True, slots=True)
class BlockRef:
    """What is known of a block without opening it; `name` carries the checksum."""

    name: str
    rows: int
    size_bytes: int


class BlockStore:
    """Blocks under one folder, made when first written to; on this machine only this user may look in (mode 0700).

    Parameters
    ----------
    root : str
        A local path, the path of a shared file system, or a URI of a file system that Arrow knows (`RemoteFolder`).
    durable : bool
        Whether a block is on the device before `write` returns, name and bytes. The blocks of the exchange need not
        be: they are written again on replay.
    folder : Folder, optional
        In place of the one that `root` says.
    """

    def __init__(self, root: str, *, durable: bool = False, folder: Folder | None = None) -> None:
        self.root = root
        self._local = local_path(root) if folder is None else None
        if folder is None:
            folder = RemoteFolder(root) if self._local is None else LocalFolder(self._local, durable=durable)
        self._folder = folder

    def write(self, stem: str, table: pa.Table, facts: Mapping[str, str] | None = None) -> BlockRef:
        """Write a block; the same stem, table and facts give the same file, however often and from wherever.

        Written aside and renamed: a reader sees all of it or nothing. A file that is there already is only verified,
        and counts as new again: what tidies up goes by the age of files.

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
            The file cannot be written (no room, no right to, no connection); nothing is left of it.
        """
        began_s, data = time.monotonic(), encode(table, facts)
        digest = checksum(data)
        name = self._checked(f"{stem}-{digest}{_SUFFIX}")
        try:
            is_there = self._holds(name, data.size, digest) and self._is_touched(name, data)
            if not is_there:
                self._folder.write(name, data)
        except _FAILURES as error:
            msg = f"block {name} cannot be written: {_reason(error)}"
            raise BlockWriteError(msg, name=name, hint=self._hint("make room, or rights, where it lies")) from error
        told = name, "found again" if is_there else "written", table.num_rows, data.size, time.monotonic() - began_s
        _log.debug("block %s is %s: %d rows, %d bytes, %.3f s", *told)
        return BlockRef(name, table.num_rows, data.size)

    def read(self, name: str) -> pa.Table:
        """Map a block, verify its checksum, and give its table; nothing is copied.

        Raises
        ------
        BlockMissingError, BlockCorruptError
            The file is not there or cannot be opened, or is not what its name says.
        ArgumentError
            The name leads out of the folder.
        MapLimitError
            This process has as many files mapped as the system allows.
        """
        self._checked(name)
        expected = name.rsplit("-", 1)[-1].removesuffix(_SUFFIX)
        try:
            return decode(self._bytes(name), expected, name)
        except BlockCorruptError:
            if not self._folder.forget(name):
                raise
            _log.debug("the copy of block %s on this machine is damaged; it is fetched again", name)
        return decode(self._bytes(name), expected, name)  # it was the copy that was damaged

    def size_bytes(self, name: str) -> int | None:
        """Size of a block, None where there is none; BlockMissingError where that cannot be found out."""
        try:
            return self._folder.size_bytes(self._checked(name))
        except _FAILURES as error:
            raise self._unseen(error, name) from error

    def gone(self, names: Iterable[str]) -> list[str]:
        """Those of these blocks whose file this machine has no longer; none where they are far away."""
        if self._local is None:
            return []
        return [name for name in names if not os.path.exists(f"{self.root}/{name}")]

    def remove(self, names: Iterable[str]) -> int:
        """Remove blocks that nothing refers to any more; gives how many went. One that is gone already is no error.

        Raises
        ------
        BlockWriteError
            The file system does not let it go.
        """
        checked = [self._checked(name) for name in names]
        removed = sum(self.together(self._removed, checked))
        _log.debug("%d of %d retired blocks are removed: %s", removed, len(checked), checked)
        return removed

    def together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """What `work` gives for each item, in their order; several at a time where blocks are far away.

        A request to S3 takes as long for a small block as for none, and a merge retires some 30 at once.
        """
        if self._local is not None or len(items) < _FEW:
            return [work(item) for item in items]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(work, items))

    def files(self) -> list[FoundFile]:
        """All files of the folder, sorted by name: what was left aside unfinished (a name begins with a dot) too.

        Raises
        ------
        BlockMissingError
            The folder cannot be listed. One that is not there is empty.
        """
        try:
            return sorted(self._folder.files())
        except _FAILURES as error:
            raise self._unseen(error) from error

    def names(self, prefix: str = "") -> list[str]:
        """Names of the blocks whose name begins with `prefix`, sorted; what was left aside unfinished is none."""
        found = (file.name for file in self.files())
        return [name for name in found if is_block(name) and name.startswith(prefix)]

    def discard(self, files: Iterable[FoundFile]) -> int:
        """Remove files as `files` gave them, unfinished ones too, and tell how many went; errors as `remove`.

        One that was written or found again since stays: a batch that is done again may name it.
        """
        removed = sum(self._removed(file.name, partial(self._folder.remove_unchanged, file)) for file in files)
        _log.debug("%d files that nothing refers to are removed", removed)
        return removed

    def _is_touched(self, name: str, data: pa.Buffer) -> bool:
        try:
            self._folder.touch(name, data)
        except FileNotFoundError:
            return False
        return True

    def _removed(self, name: str, remove: Callable[[], bool] | None = None) -> bool:
        try:
            return self._folder.remove(name) if remove is None else remove()
        except _FAILURES as error:
            msg = f"block {name} cannot be removed: {_reason(error)}"
            raise BlockWriteError(msg, name=name, hint=self._hint("give rights to remove, where it lies")) from error

    def _bytes(self, name: str) -> pa.Buffer:
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            msg = f"block {name} is not there"
            hint = "restore the checkpoint's files; blocks lie under its folder"
            raise BlockMissingError(msg, name=name, hint=hint) from None
        except _FAILURES as error:
            if _is_map_limit(error):
                msg = f"block {name} cannot be mapped: this process has as many files mapped as the system allows"
                raise MapLimitError(msg, name=name, hint=_MAP_HINT) from error
            raise self._unseen(error, name) from error

    def _unseen(self, error: Exception, name: str = "") -> BlockMissingError:
        msg = f"{f'block {name}' if name else 'the folder of blocks'} cannot be opened: {_reason(error)}"
        return BlockMissingError(
            msg, name=name or "blocks", hint=self._hint("every worker must see the folder of blocks")
        )

    def _hint(self, local: str) -> str:
        return _REMOTE_HINT if self._local is None else local

    def _holds(self, name: str, size_bytes: int, digest: str) -> bool:
        """Whether the file is there and whole: one that was damaged, or cannot be read, is written again."""
        try:
            return self._folder.size_bytes(name) == size_bytes and checksum(self._folder.read(name)) == digest
        except _FAILURES:
            return False

    def _checked(self, name: str) -> str:
        """The name of a block; refused where it would be hidden, or outside the folder, by itself or by a link."""
        parts = [part for part in name.split("/") if part]
        inside = parts and "\0" not in name and not name.startswith("/") and not any(p.startswith(".") for p in parts)
        if inside and self._local is not None:
            if len(parts) > 1:
                folder = os.path.realpath(self._local.joinpath(*parts[:-1]))
                inside = folder.startswith(os.path.realpath(self._local) + os.sep)
            inside = inside and not os.path.islink(f"{self.root}/{name}")
        if not inside:
            msg = "a block's name leads out of the folder of blocks"
            raise ArgumentError(
                msg, name=name[:200], hint="letters, digits and dashes, with single slashes between them"
            )
        return name


def is_block(name: str) -> bool:
    """Whether a file's name is that of a whole block."""
    return name.endswith(_SUFFIX) and "/." not in f"/{name}"


def _is_map_limit(error: Exception) -> bool:
    # Arrow tells it in words only. A file is mapped, not read: memory itself is not what is short.
    return isinstance(error, OSError) and (
        error.errno == errno.ENOMEM or (error.errno is None and os.strerror(errno.ENOMEM) in str(error))
    )


def _reason(error: Exception) -> str:
    """In a few words, and no more: what a file system says at length may hold what is nobody's business."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    found = re.search(r"AWS Error ([A-Z_]+)", str(error))
    return found[1].lower().replace("_", " ") if found else "the file system refuses"
