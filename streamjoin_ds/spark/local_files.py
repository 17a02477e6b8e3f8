"""Files that Spark's processes leave on this machine: temporary folders, logs, and the user's cache.

::

    Java, Python workers ──► append ──► NAME.log ── over the limit ──► its end goes to NAME.log.1, and it is emptied
                             (locked as long as one of them lives)

A living process holds its files by a lock, which ends with it. So a file that nobody holds, and that is not young, may
be removed. The folder of one Java process's temporary files (`Scratch`) goes with the process, or at the next start
after that. A log stays small, and is removed when its processes are gone. In the user's cache are files that are made
once for this machine and can be made again: jars, the archive of Java's classes, short scripts that start a program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from msgspec import Struct
from platformdirs import user_cache_path

from streamjoin_ds.machine import is_private

__all__ = [
    "Scratch",
    "aged",
    "cache_root",
    "hold",
    "is_held",
    "keep_small",
    "new_log",
    "remove_dead",
    "remove_dead_scratch",
    "shorten",
    "trusted_cache",
    "write_executable",
]

# Seconds for which a file or folder counts as young: it may have no lock yet because its process is still starting.
_YOUNG_S = 300.0
_SCRATCH_PREFIX, _LOCK = "streamjoin-java-", "lock"
# The longest folder, in bytes, in which Spark's sockets have room: a socket's path may have 108 bytes, and Spark's name
# takes 43 of them.
_SOCKET_FOLDER_BYTES = 60
_LOG_PREFIX, _SUFFIX, _BEFORE = "streamjoin-spark-", ".log", ".1"
_LIMIT_BYTES = 16 << 20  # most bytes of a log, 16 MiB
_LOOK_EVERY_S = 5.0  # seconds between two looks at a log's size
_DEAD_KEPT = 5  # logs of dead processes that stay
_TEMPORARY = "streamjoin_ds-"  # before the user's number


def write_executable(path: Path, text: str) -> None:
    """Write a program in one step: a process that starts it meanwhile finds the old program or the new one, whole."""
    descriptor, aside = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(aside).chmod(0o755)
    Path(aside).replace(path)


def hold(file: IO[bytes] | int) -> None:
    """Lock an open file for this process and all that inherit its descriptor, until the last of them has ended."""
    with contextlib.suppress(OSError):  # the file system has no locks
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_held(path: Path) -> bool:
    """Whether a process holds a file; True also if that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def aged(folder: Path, pattern: str, now_s: float, *, folders: bool = False) -> list[Path]:
    """Return this user's files, or folders, that match a pattern and are unchanged for five minutes, newest first."""
    found = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            is_kind = stat.S_ISDIR(facts.st_mode) if folders else stat.S_ISREG(facts.st_mode)
            if is_kind and facts.st_uid == os.getuid() and facts.st_mtime < now_s - _YOUNG_S:
                found.append((facts.st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


class Scratch(Struct, frozen=True):
    """A folder that is in use as long as a process has `descriptor` open: that holds the folder's lock."""

    path: Path
    descriptor: int

    @classmethod
    def new(cls, folder: Path | None = None) -> Scratch:
        """Make and return a new one in the folder for temporary files.

        Those of this user whose processes are gone are removed first.
        """
        folder = Path(tempfile.gettempdir()) if folder is None else folder
        remove_dead_scratch(folder, time.time())
        path = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=folder))
        descriptor = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        hold(descriptor)
        with contextlib.suppress(OSError):  # without room for the host's name no other process removes the folder
            os.write(descriptor, _host())
        return cls(path, descriptor)

    def settings(self) -> dict[str, str]:
        """Return the Spark settings that put its temporary files into this folder.

        If the folder's path is too long for sockets, they go to the folder above, or to /tmp.
        """
        found = {"spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={self.path}"'}
        if self.socket_folder != self.path:
            found["spark.python.unix.domain.socket.dir"] = str(self.socket_folder)
        return found

    @property
    def socket_folder(self) -> Path:
        """The folder in which Spark's sockets have room for their names."""
        fitting = (path for path in (self.path, self.path.parent) if len(os.fsencode(path)) <= _SOCKET_FOLDER_BYTES)
        return next(fitting, Path("/tmp"))

    def remove(self) -> None:
        """Remove the folder with all that is in it, after its process has ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


def remove_dead_scratch(folder: Path, now_s: float) -> list[Path]:
    """Remove this user's scratch folders that no living process holds, and return them.

    Parameters
    ----------
    folder : Path
        The folder in which `Scratch.new` makes them; others may write there too.
    now_s : float
        The time, in seconds since 1970.
    """
    gone = []
    for path in aged(folder, f"{_SCRATCH_PREFIX}*", now_s, folders=True):
        with contextlib.suppress(OSError):
            # A folder of another machine stays: whether its lock is held cannot be told here.
            if not is_held(path / _LOCK) and (path / _LOCK).read_bytes() == _host():
                shutil.rmtree(path)
                gone.append(path)
    return gone


def _host() -> bytes:
    return os.fsencode(os.uname().nodename)


def new_log(folder: Path | None = None) -> Path:
    """Make and return a new empty log in the folder for temporary files.

    Logs of this user whose processes are gone are removed first, but for the newest.
    """
    folder = Path(tempfile.gettempdir()) if folder is None else folder
    remove_dead(folder, time.time())
    descriptor, name = tempfile.mkstemp(prefix=_LOG_PREFIX, suffix=_SUFFIX, dir=folder)
    os.close(descriptor)
    return Path(name)


def remove_dead(folder: Path, now_s: float, kept: int = _DEAD_KEPT) -> list[Path]:
    """Remove logs of this user that no living process holds, but for the newest; return the removed logs.

    Parameters
    ----------
    folder : Path
        The folder in which `new_log` makes them; others may write there too.
    now_s : float
        The time, in seconds since 1970.
    kept : int
        How many logs of dead processes stay: they may say why the processes died.
    """
    dead = [path for path in aged(folder, f"{_LOG_PREFIX}*{_SUFFIX}", now_s) if not is_held(path)]
    gone = dead[kept:]
    for path in gone:
        for each in (path, _before(path)):
            with contextlib.suppress(OSError):
                each.unlink()
    return gone


def shorten(path: Path, limit_bytes: int = _LIMIT_BYTES) -> bool:
    """Empty a log that has grown over the limit, and return whether that was done.

    Its last lines, up to the limit, are then in ``<name>.1``; without room for that copy there is none. Processes that
    append to the log go on doing so.
    """
    with contextlib.suppress(OSError), path.open("rb+") as log:
        size_bytes = os.fstat(log.fileno()).st_size
        if size_bytes <= limit_bytes:
            return False
        with contextlib.suppress(OSError):
            _copy_end(log, size_bytes - limit_bytes, _before(path))
        log.truncate(0)
        return True
    return False


def keep_small(path: Path) -> threading.Event:
    """Have a thread of this process bound a log's size, until the returned event is set or the process ends."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            shorten(path)

    threading.Thread(target=look, name="streamjoin-log", daemon=True).start()
    return ended


def _before(path: Path) -> Path:
    return path.with_name(path.name + _BEFORE)


def _copy_end(log: IO[bytes], start: int, target: Path) -> None:
    """Replace the file `target` by the lines of a file that begin after the byte `start`."""
    descriptor, aside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as copy:
            log.seek(start)
            log.readline()
            while piece := log.read(1 << 20):
                copy.write(piece)
        os.replace(aside, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def cache_root() -> Path:
    """Return the folder for files that this package fetches or makes only once.

    It is ``streamjoin_ds`` in the platform's folder for caches: on Linux in ``$XDG_CACHE_HOME``, or in ``~/.cache``. A
    user without a home has one of his own in the folder for temporary files.
    """
    with contextlib.suppress(RuntimeError):  # the user has no home folder, as in some containers
        root = user_cache_path("streamjoin_ds")
        if root.is_absolute():  # older platformdirs leave the "~" as it is instead
            return root
    return Path(tempfile.gettempdir()) / f"{_TEMPORARY}{os.geteuid()}"


def trusted_cache() -> Path | None:
    """Return the cache folder, for files that are run or mapped as they lie there; make it if it is not there.

    Returns
    -------
    Path or None
        None if the folder belongs to neither this user nor root, or is a link that does, if others may write to it or
        to a folder above it, or if it cannot be made. One in the folder for temporary files must be this user's alone.
    """
    root = cache_root().absolute()
    is_temporary = root.name.startswith(_TEMPORARY)
    try:
        for folder in (*reversed(root.parents), root):  # parents=True would make those above as the umask says
            if not folder.exists():
                folder.mkdir(mode=0o700 if is_temporary else 0o755, exist_ok=True)
        facts = root.stat()
        if facts.st_uid == os.geteuid() and facts.st_mode & stat.S_IWGRP and not facts.st_mode & stat.S_IWOTH:
            root.chmod(facts.st_mode & ~stat.S_IWGRP)  # made under a umask that trusts the group
            facts = root.stat()
        link_owner = root.lstat().st_uid
        above = [folder.stat().st_mode for folder in root.resolve().parents]
    except OSError:
        return None
    if is_temporary:
        return root if is_private(root) else None
    ours = {facts.st_uid, link_owner} <= {os.geteuid(), 0} and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # In a folder that anybody may write to, only a sticky bit keeps others from putting another one in its place.
    is_kept = all(not mode & stat.S_IWOTH or mode & stat.S_ISVTX for mode in above)
    return root if ours and is_kept else None
