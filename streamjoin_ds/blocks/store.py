"""The store of blocks: a folder that every reader sees. Blocks are named by content and verified before parsing."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.blocks.block import checksum, decode, encoded
from streamjoin_ds.blocks.folder import Folder, FoundFile, LocalFolder, Pieces
from streamjoin_ds.blocks.object_store import FAILURES, reason_of
from streamjoin_ds.blocks.place import local_path
from streamjoin_ds.blocks.remote_folder import RemoteFolder
from streamjoin_ds.errors import ArgumentError, BlockCorruptError, BlockMissingError, BlockWriteError, MapLimitError

__all__ = ["BlockRef", "BlockStore", "NamedBlocks", "is_block"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)  # shows blocks by name only: a root may be a URI that holds a secret
_SUFFIX = ".arrow"
_FEW, _AT_ONCE = 3, 8  # fewer items than this are done one by one; threads for more of them
_MAP_HINT = (
    "allow more (sysctl vm.max_map_count), or give each worker fewer blocks by more cells (layout), a smaller window, "
    "or fewer queries in one session"
)
_REMOTE_HINT = "check this machine's connection, credentials and rights to it, then start again; nothing is lost"


class BlockRef(Struct, frozen=True):
    """The facts of a block that are known without opening it. `name` carries the checksum."""

    name: str
    rows: int
    size_bytes: int


class BlockStore:
    """The blocks in one folder. The first write makes the folder; a local one has mode 0700, for this user alone.

    Parameters
    ----------
    root : str
        A local path, the path of a shared file system, or a URI of a file system that Arrow knows (`RemoteFolder`).
    durable : bool
        Whether a block is on the device, name and bytes, before `write` returns. Only a local folder heeds this. The
        exchange does not need it: a replay writes its blocks again.
    folder : Folder, optional
        The folder to use instead of the one that `root` names.
    """

    def __init__(self, root: str, *, durable: bool = False, folder: Folder | None = None) -> None:
        self.root = root
        self._local = local_path(root) if folder is None else None
        if folder is None:
            folder = RemoteFolder(root) if self._local is None else LocalFolder(self._local, durable=durable)
        self._folder = folder

    def write(self, stem: str, table: pa.Table, facts: Mapping[str, str] | None = None) -> BlockRef:
        """Write a block. The same stem, table and facts give the same file, however often and on whichever machine.

        A reader sees the whole file or none. A file that is there already is verified, and is made to look new, because
        clean-ups go by the age of files.

        Parameters
        ----------
        stem : str
            The block's name without checksum and suffix, as a relative path.
        table : pyarrow.Table
        facts : mapping of str to str, optional
            Facts for the block's header.

        Raises
        ------
        ArgumentError
            The stem leads out of the folder.
        BlockWriteError
            The file cannot be written (no room, no rights, no connection). No part of it is left.
        """
        began_s, data = time.monotonic(), encoded(table, facts)
        digest = data.checksum
        name = self._checked(f"{stem}-{digest}{_SUFFIX}")
        try:
            is_there = self._holds(name, data.size, digest) and self._is_touched(name, data.pieces)
            if not is_there:
                self._folder.write(name, data.pieces)
        except FAILURES as error:
            msg = f"block {name} cannot be written: {reason_of(error)}"
            raise BlockWriteError(
                msg, name=name, hint=self._hint("free disk space there, or give this user the right to write")
            ) from error
        told = name, "found again" if is_there else "written", table.num_rows, data.size, time.monotonic() - began_s
        _log.debug("block %s is %s: %d rows, %d bytes, %.3f s", *told)
        return BlockRef(name, table.num_rows, data.size)

    def link(self, stem: str, source: BlockStore, name: str) -> str | None:
        """Give a block of another store a name here too, without a copy of its bytes.

        Parameters
        ----------
        stem : str
            As for `write`.
        source : BlockStore
        name : str
            The block's name there. Its bytes are taken to be what the name says: the caller has read it.

        Returns
        -------
        str or None
            The name here. None: one of the stores is remote, or the file system has no links.

        Raises
        ------
        ArgumentError, BlockWriteError
            As for `write`.
        BlockMissingError
            The other store has no such block.
        """
        if not isinstance(self._folder, LocalFolder) or source._local is None:
            return None
        digest = source._checked(name).rsplit("-", 1)[-1].removesuffix(_SUFFIX)
        own = self._checked(f"{stem}-{digest}{_SUFFIX}")
        size_bytes = source.size_bytes(name)
        if size_bytes is None:
            raise source._missing(name)
        try:
            if self._holds(own, size_bytes, digest):
                self._folder.touch(own, ())
            elif not self._folder.link(own, source._local / name):
                return None
        except FAILURES as error:
            msg = f"block {own} cannot be written: {reason_of(error)}"
            raise BlockWriteError(
                msg, name=own, hint=self._hint("free disk space there, or give this user the right to write")
            ) from error
        return own

    def read(self, name: str) -> pa.Table:
        """Map a block, verify its checksum, and return its table without a copy.

        Raises
        ------
        BlockMissingError
            The file is not there or cannot be opened.
        BlockCorruptError
            The file does not hold what its name says.
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
        return decode(self._bytes(name), expected, name)  # the file itself; only its copy was known to be damaged

    def size_bytes(self, name: str) -> int | None:
        """Return the size of a block, None where there is none; raise BlockMissingError where that cannot be told."""
        try:
            return self._folder.size_bytes(self._checked(name))
        except FAILURES as error:
            raise self._unseen(error, name) from error

    def gone(self, names: Iterable[str]) -> list[str]:
        """Return the names whose file is no longer in a local folder; none where the folder is remote."""
        if self._local is None:
            return []
        return [name for name in names if not os.path.exists(f"{self.root}/{name}")]

    def remove(self, names: Iterable[str]) -> int:
        """Remove blocks that nothing refers to any more; return how many. A block that is gone already is no error.

        Raises
        ------
        BlockWriteError
            The file system does not let a block be removed.
        """
        checked = [self._checked(name) for name in names]
        removed = sum(self.together(self._removed, checked))
        _log.debug("%d of %d retired blocks are removed: %s", removed, len(checked), checked)
        return removed

    def together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return what `work` gives for each item, in their order. For a remote folder do several items at a time.

        To S3 a request for a small block takes as long as an empty one, and a merge retires some 30 blocks at once.
        """
        if self._local is not None or len(items) < _FEW:
            return [work(item) for item in items]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(work, items))

    def files(self) -> list[FoundFile]:
        """Return all files of the folder, sorted by name; also unfinished ones, whose names begin with a dot.

        Raises
        ------
        BlockMissingError
            The folder cannot be listed. A folder that is not there counts as empty.
        """
        try:
            return sorted(self._folder.files())
        except FAILURES as error:
            raise self._unseen(error) from error

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the blocks whose name begins with `prefix`, sorted. An unfinished file is no block."""
        found = (file.name for file in self.files())
        return [name for name in found if is_block(name) and name.startswith(prefix)]

    def discard(self, files: Iterable[FoundFile]) -> int:
        """Remove files that `files` returned, unfinished ones too; return how many. Errors are those of `remove`.

        A file that was written or found again since then stays: a batch that is done again may name it.
        """
        removed = sum(self._removed(file.name, partial(self._folder.remove_unchanged, file)) for file in files)
        _log.debug("%d files that nothing refers to any more are removed", removed)
        return removed

    def _is_touched(self, name: str, pieces: Pieces) -> bool:
        try:
            self._folder.touch(name, pieces)
        except FileNotFoundError:
            return False
        return True

    def _removed(self, name: str, remove: Callable[[], bool] | None = None) -> bool:
        try:
            return self._folder.remove(name) if remove is None else remove()
        except FAILURES as error:
            msg = f"block {name} cannot be removed: {reason_of(error)}"
            raise BlockWriteError(msg, name=name, hint=self._hint("give this user the right to remove it")) from error

    def _bytes(self, name: str) -> pa.Buffer:
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            raise self._missing(name) from None
        except FAILURES as error:
            if _is_map_limit(error):
                msg = f"block {name} cannot be mapped: this process has as many files mapped as the system allows"
                raise MapLimitError(msg, name=name, hint=_MAP_HINT) from error
            raise self._unseen(error, name) from error

    def _missing(self, name: str) -> BlockMissingError:
        hint = "restore the checkpoint's files from a copy; blocks are in its folder"
        return BlockMissingError(f"block {name} is not there", name=name, hint=hint)

    def _unseen(self, error: Exception, name: str = "") -> BlockMissingError:
        msg = f"{f'block {name}' if name else 'the folder of blocks'} cannot be opened: {reason_of(error)}"
        return BlockMissingError(
            msg, name=name or "blocks", hint=self._hint("put the folder of blocks where every worker sees it")
        )

    def _hint(self, local: str) -> str:
        return _REMOTE_HINT if self._local is None else local

    def _holds(self, name: str, size_bytes: int, digest: str) -> bool:
        """Whether the file is there and whole. A file that is damaged or cannot be read is written again."""
        try:
            return self._folder.size_bytes(name) == size_bytes and checksum(self._folder.read(name)) == digest
        except FAILURES:
            return False

    def _checked(self, name: str) -> str:
        """Return a block's name; refuse one that is hidden, or leads out of the folder by itself or by a link."""
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


class NamedBlocks:
    """The blocks of a store that offsets name: one goes when no offset needs it to which Spark may come back.

    Parameters
    ----------
    store : BlockStore
    retain_batches : int
        How many batches Spark can go back by.
    prefix : str
        The blocks are those whose names begin so.
    """

    def __init__(self, store: BlockStore, retain_batches: int, prefix: str = "") -> None:
        self._store, self._retain_batches, self._prefix = store, retain_batches, prefix
        self._commits = 0
        self._left: dict[str, int] | None = None  # blocks that newer ones replaced, with the commit of that moment
        self._named: set[str] = set()

    def committed(self, names: Collection[str]) -> None:
        """Hear that a batch is committed whose offset names these blocks; remove those that no offset needs.

        Raises
        ------
        BlockWriteError
            One cannot be removed.
        """
        self._commits += 1
        if self._left is None:  # what an earlier run left; its offsets may still be gone back to
            self._left = dict.fromkeys(self._store.names(self._prefix), self._commits)
        for name in self._named.difference(names):
            self._left.setdefault(name, self._commits)
        self._named.update(names)
        for name in names:
            self._left.pop(name, None)
        due = [name for name, since in self._left.items() if self._commits - since > self._retain_batches + 1]
        if due:
            self._store.remove(due)
            self._named.difference_update(due)
            for name in due:
                del self._left[name]


def is_block(name: str) -> bool:
    """Whether a file's name is that of a whole block."""
    return name.endswith(_SUFFIX) and "/." not in f"/{name}"


def _is_map_limit(error: Exception) -> bool:
    # Arrow often gives the error as a text only. A file is mapped, not read, so memory itself is not what is short.
    return isinstance(error, OSError) and (
        error.errno == errno.ENOMEM or (error.errno is None and os.strerror(errno.ENOMEM) in str(error))
    )
