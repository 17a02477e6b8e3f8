"""The logs of Spark's processes: bounded in size, and removed when their processes are gone.

::

    Java, Python workers ──► append ──► NAME.log ── over the limit ──► its end goes to NAME.log.1, and it is emptied
                             (locked as long as one of them lives)
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from streamjoin_ds.spark.holding import aged, is_held

__all__ = ["keep_small", "new_log", "remove_dead", "shorten"]


_PREFIX, _SUFFIX, _BEFORE = "streamjoin-spark-", ".log", ".1"
_LIMIT_BYTES = 16 << 20  # most bytes of a log, 16 MiB
_LOOK_EVERY_S = 5.0  # seconds between two looks at a log's size
_DEAD_KEPT = 5  # logs of dead processes that stay


def new_log(folder: Path | None = None) -> Path:
    """Make and return a new empty log in the folder for temporary files.

    Logs of this user whose processes are gone are removed first, but for the newest.
    """
    folder = Path(tempfile.gettempdir()) if folder is None else folder
    remove_dead(folder, time.time())
    descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder)
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
    dead = [path for path in aged(folder, f"{_PREFIX}*{_SUFFIX}", now_s) if not is_held(path)]
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
