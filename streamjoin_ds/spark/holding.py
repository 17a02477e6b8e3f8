"""Temporary files and folders that living processes hold by a lock: one that nobody holds any more may be removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import IO

__all__ = ["aged", "hold", "is_held"]

# Seconds for which a file or folder counts as young: it may have no lock yet because its process is still starting.
_YOUNG_S = 300.0


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
