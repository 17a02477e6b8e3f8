"""Forces to the device, in groups, what must be there before a batch counts: files' bytes and files' names.

Spark, delta-rs and Hadoop write files and rename them, and leave it to the system when they reach the device. After a
power cut any of them may be gone or empty while newer ones are whole. Four rules keep what is left usable::

    the checkpoint's files of a batch  before  the first entry of the batch in a table's log
    a data file                        before  the entry that names it
    the entry of the matches           before  the entry of the punctuation that speaks of them
    the entries of a log               before  the removal of a file, or of an entry, that they make needless

So a batch that any table has can be done again from the checkpoint, and a batch that some table lacks is done again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import cast

from streamjoin_ds.blocks.folder import begin_to_write
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import TableWriteError
from streamjoin_ds.machine import open_files_hint

__all__ = ["Durability", "ForceBehind", "force"]

_AT_ONCE = 64  # files open at once; a commit forces about 30, a start all files of the checkpoint
_STEP_BYTES = 8 << 20  # by which a file grows before it is forced behind its writer again
_FEW, _WAITING = 2, 8  # fewer files than this need no threads; threads that wait for more of them
# Folders of the checkpoint that are not Spark's. A block is forced when it is written, or as one of the commit's files;
# the exchange is written again.
_NOT_SPARKS = frozenset({"blocks", "exchange"})


class Durability:
    """Collects the files of a commit and forces them to the device together; used by the driver, from one thread.

    An object store keeps what it has acknowledged, so nothing is collected of a table that lies in one.

    Parameters
    ----------
    checkpoint : str
        The query's checkpoint, a local or shared folder; "" if there is none.
    durable : bool, keyword-only
        False: nothing is forced, and nothing is promised after a power cut.
    """

    def __init__(self, checkpoint: str = "", *, durable: bool = True) -> None:
        self._checkpoint = checkpoint
        self._durable = durable
        self._files: dict[str, None] = {}
        self._folders: dict[str, None] = {}
        self._known: dict[str, frozenset[tuple[str, int]]] = {}
        self._next: dict[str, int] = {}  # by table: the first version of its log that was not collected yet

    def checkpoint(self, *, anew: bool = False) -> None:
        """Collect the files that Spark has written into the checkpoint since the last call; `anew`: all that are there.

        Files that Spark is still writing are left out; their names tell them apart.
        """
        if self._durable and self._checkpoint and is_local(self._checkpoint):
            known, self._known = {} if anew else self._known, {}
            self._collect(self._checkpoint, known, _NOT_SPARKS)

    def _collect(
        self, folder: str, known: dict[str, frozenset[tuple[str, int]]], without: frozenset[str] = frozenset()
    ) -> None:
        before = known.get(folder)
        names: list[tuple[str, int]] = []
        folders: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in without:
                            folders.append(entry.name)
                    elif not _is_passing(entry.name):
                        names.append((entry.name, entry.inode()))  # a file that was written anew is another one
        except FileNotFoundError:  # Spark has purged the folder meanwhile
            return
        self._known[folder] = frozenset((*names, *((name, 0) for name in folders)))
        new = self._known[folder] - (before or frozenset())
        if new or before is None:
            self._folders[folder] = None
        for found in names:
            if found in new:
                self._files[f"{folder}/{found[0]}"] = None
        for name in folders:
            self._collect(f"{folder}/{name}", known)

    def files(self, paths: Iterable[str]) -> None:
        """Collect files, and the folders that hold their names."""
        for path in paths:
            if self._durable and is_local(path):
                self._files[path] = None
                self._folders[os.path.dirname(path)] = None

    def opened(self, table_path: str) -> None:
        """Collect a table that was just made or opened: the files of its log, and the names of its folders.

        The process that wrote them may have died before it forced them.
        """
        if not self._durable or not is_local(table_path):
            return
        folder, log = Path(table_path), f"{table_path}/_delta_log"
        names = [name for name in os.listdir(log) if not _is_passing(name)]
        self._files |= dict.fromkeys(f"{log}/{name}" for name in names)
        self._folders |= dict.fromkeys(map(str, (log, folder, folder.parent, folder.parent.parent)))
        versions = [int(name[:20]) for name in names if name[:20].isdigit() and name.endswith(".json")]
        self._next[table_path] = max(versions, default=-1) + 1

    def entries(self, table_path: str) -> None:
        """Collect the log entries of a table since the last time, whoever wrote them."""
        if table_path not in self._next:
            return
        log, version = f"{table_path}/_delta_log", self._next[table_path]
        while os.path.exists(path := f"{log}/{version:020d}.json"):
            self._files[path] = None
            self._folders[log] = None
            version += 1
        self._next[table_path] = version

    def log(self, table_path: str) -> None:
        """Force a table's log at once, whoever wrote it: files that its entries replaced may be removed next."""
        if table_path in self._next:
            self.entries(table_path)
        else:
            self.opened(table_path)
        self.flush()

    def log_checkpoint(self, table_path: str, version: int) -> None:
        """Force a checkpoint of a table's log at once: the entries that it stands for may be removed next."""
        log = f"{table_path}/_delta_log"
        self.files([f"{log}/{version:020d}.checkpoint.parquet", f"{log}/_last_checkpoint"])
        self.flush()

    def flush(self) -> None:
        """Force all that was collected to the device: bytes first, then names.

        Raises
        ------
        TableWriteError
            The file system reports an error. The batch must then be done again.
        """
        files, self._files = list(self._files), {}
        folders, self._folders = list(self._folders), {}
        try:
            _forced(files)
            _forced(folders)
        except OSError as error:
            path = str(error.filename or self._checkpoint)
            msg = f"{path} cannot be forced to the device: {error.strerror or 'the file system refuses'}"
            hint = open_files_hint(error) or "check the device; durable=False does not force files to it"
            raise TableWriteError(msg, name=path, hint=hint) from error


def _is_passing(name: str) -> bool:
    """Whether a file is being written, or is a lock: of hidden files only checksums stay."""
    return ".tmp" in name or (name.startswith(".") and not name.endswith(".crc"))


def _forced(paths: list[str]) -> None:
    """Force several files, or folders: up to 64 are begun before the first is waited for.

    A file system then puts them into one journal commit, where it has a journal: the first one waits for that alone.
    Still each other asks the device to write out what it holds, and waits; the system answers several that ask at once
    together. So threads ask: the 25 files and folders of a batch took 7 ms, and 16 ms one after the other (ext4
    without a journal, virtual disk).
    """
    for first in range(0, len(paths), _AT_ONCE):
        several = paths[first : first + _AT_ONCE]
        left = {path: _left.pop(path) for path in several if path in _left}
        with ExitStack() as opened:
            descriptors = {path: _opened(path, opened) for path in several if path not in left}
            there = {path: descriptor for path, descriptor in descriptors.items() if descriptor is not None}
            for descriptor in there.values():
                begin_to_write(descriptor)
            for step in left.values():
                step.result()
            if there:
                first_path = next(iter(there))
                _sync(first_path, there.pop(first_path))
            _side_by_side(_sync, there)


def _side_by_side(work: Callable[[str, int], None], there: Mapping[str, int]) -> None:
    """Do the work for each path and its open descriptor; raise the first error once all are done with theirs."""
    if len(there) < _FEW:
        for path, descriptor in there.items():
            work(path, descriptor)
        return
    done: list[Future[None]] = []
    try:
        for path, descriptor in there.items():
            try:
                done.append(_threads().submit(work, path, descriptor))
            except RuntimeError:  # noqa: PERF203 - Python ends, and begins nothing in threads any more
                work(path, descriptor)
    finally:
        wait(done)
    for one in done:
        one.result()


class ForceBehind:
    """Forces a growing file to the device behind its writer, one step at a time.

    A device takes bytes long before they are safe there, and makes them safe only when it is asked. What a large file
    has is asked for while the rest of it is computed. Whoever forces the file in the end waits for the last step alone.

    Parameters
    ----------
    path : str
        The file, of this machine.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._asked_bytes = 0
        self._step: Future[None] | None = None

    def grown(self, size_bytes: int) -> None:
        """Begin the next step where the file, which has so many bytes now, has grown enough and the last one is done.

        Raises
        ------
        OSError
            The last step failed.
        """
        if size_bytes - self._asked_bytes < _STEP_BYTES or not (self._step is None or self._step.done()):
            return
        self.wait()
        self._asked_bytes = size_bytes
        self._begin()

    def wait(self) -> None:
        """Wait until the last step is done; raise its OSError. A later `fsync` of the file would not repeat it."""
        if self._step is not None:
            self._step.result()

    def end(self) -> bool:
        """Begin the last step: the file is complete. Return False where nothing was begun behind its writer."""
        return self._step is not None and self._begin()

    def leave(self, path: str) -> None:
        """Leave it to the commit that forces the file, which has this name now, to wait for the last step."""
        _left[path] = cast(Future[None], self._step)

    def _begin(self) -> bool:
        descriptor = os.open(self._path, os.O_RDONLY)  # at once: the file may be renamed meanwhile
        try:
            self._step = _threads().submit(_take_step, self._step, self._path, descriptor)
        except RuntimeError:  # Python ends, and begins nothing in threads any more
            os.close(descriptor)
            return False
        return True


def _take_step(before: Future[None] | None, path: str, descriptor: int) -> None:
    try:
        if before is not None:
            before.result()
        _sync(path, descriptor)
    finally:
        os.close(descriptor)


_left: dict[str, Future[None]] = {}  # last steps of files that a commit forces, by path


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_WAITING, "streamjoin-force")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads


def force(path: str) -> None:
    """Force a file's bytes, or the names in a folder, to the device; do nothing if the path is gone, or no path."""
    if not is_local(path):
        return
    with ExitStack() as opened:
        descriptor = _opened(path, opened)
        if descriptor is not None:
            _sync(path, descriptor)


def _opened(path: str, until: ExitStack) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    until.callback(os.close, descriptor)
    return descriptor


def _sync(path: str, descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = path
        raise
