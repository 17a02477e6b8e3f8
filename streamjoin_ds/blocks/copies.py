"""The read cache of remote folders: copies of their blocks on this machine, bounded in bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path

import pyarrow as pa

from streamjoin_ds.blocks.folder import LocalFolder
from streamjoin_ds.machine import is_private

__all__ = ["Copies", "default_home"]

_log = logging.getLogger(__name__)


def default_home() -> Path:
    """Return the folder of this user's copies, which is in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"streamjoin-blocks-{os.getuid()}"


class Copies:
    """Copies of files of any remote folders, shared by the processes of this user. A copy is a hint, never the truth.

    A reader verifies a copy as it verifies the file itself. The folder lies where others may write, so it is used only
    if it belongs to this user and nobody else may look in. Otherwise no copy is kept.

    Parameters
    ----------
    home : Path
        Folder of the copies. It is made when there is something to keep.
    limit_bytes : int
        Bytes of all copies in `home`, whichever remote folder they come from. Copies that were used longest ago go
        first. A file larger than this is not kept.
    """

    def __init__(self, home: Path, limit_bytes: int) -> None:
        self.home, self._limit_bytes = home, limit_bytes
        self._folder = LocalFolder(home, durable=False)

    def get(self, name: str) -> pa.Buffer | None:
        """Return the bytes of a copy, mapped; None where there is no copy."""
        if not is_private(self.home) or not self._folder.size_bytes(name):
            return None
        try:
            os.utime(self.home / name)  # `_make_room` drops the copy with the oldest time
            return self._folder.read(name)
        except OSError:
            return None

    def put(self, name: str, data: pa.Buffer) -> None:
        """Keep a copy. Where that fails (a full disk) keep none, and raise nothing."""
        with contextlib.suppress(OSError):
            if data.size <= self._limit_bytes:
                self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
                if is_private(self.home):
                    self._make_room(data.size)
                    self._folder.write(name, data)

    def drop(self, name: str) -> bool:
        """Remove a copy. Return whether there was one."""
        with contextlib.suppress(OSError):
            return is_private(self.home) and self._folder.remove(name)
        return False

    def _make_room(self, size_bytes: int) -> None:
        kept = list(self._folder.files())
        total = size_bytes + sum(file.size_bytes for file in kept)
        for file in sorted(kept, key=lambda file: file.changed_s or 0.0):
            if total <= self._limit_bytes:
                break
            self.drop(file.name)
            _log.debug("the copy of %s is dropped: %d bytes are over the limit", file.name, total - self._limit_bytes)
            total -= file.size_bytes
