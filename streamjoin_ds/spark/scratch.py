"""The folder for one Java process's temporary files: removed with the process, or at the next start after that."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.spark.holding import aged, hold, is_held

__all__ = ["Scratch", "remove_dead_scratch"]

_PREFIX, _LOCK = "streamjoin-java-", "lock"
# The longest folder, in bytes, in which Spark's sockets have room: a socket's path may have 108 bytes, and Spark's name
# takes 43 of them.
_SOCKET_FOLDER_BYTES = 60


@dataclass(frozen=True, slots=True)
class Scratch:
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
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        descriptor = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        hold(descriptor)
        with contextlib.suppress(OSError):  # without room for the host's name no other process removes the folder
            os.write(descriptor, _host())
        return cls(path, descriptor)

    def settings(self) -> dict[str, str]:
        """Return the Spark settings that put its temporary files into this folder.

        If the folder's path is too long for sockets, they go to the folder above.
        """
        found = {"spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={self.path}"'}
        if len(os.fsencode(self.path)) > _SOCKET_FOLDER_BYTES:
            found["spark.python.unix.domain.socket.dir"] = str(self.path.parent)
        return found

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
    for path in aged(folder, f"{_PREFIX}*", now_s, folders=True):
        with contextlib.suppress(OSError):
            # A folder of another machine stays: whether its lock is held cannot be told here.
            if not is_held(path / _LOCK) and (path / _LOCK).read_bytes() == _host():
                shutil.rmtree(path)
                gone.append(path)
    return gone


def _host() -> bytes:
    return os.fsencode(os.uname().nodename)
