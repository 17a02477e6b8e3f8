"""The lock of a spool's folder: one process writes into it. The lock goes with the process."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from streamjoin_ds.errors import SpoolInUseError
from streamjoin_ds.machine import process_facts, process_told

__all__ = ["LOCK_FILE", "FolderLock"]

LOCK_FILE = ".intake.lock"


class FolderLock:
    """Holds the lock of a folder from when it is made.

    Raises
    ------
    SpoolInUseError
        Another process, or another writer of this one, holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 4096)
            self.release()
            msg = f"the spool {folder} is in use by {process_told(holder)}"
            raise SpoolInUseError(
                msg, name=str(folder), hint="end that process first, or give another folder"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(process_facts()).encode(), 0)

    def release(self) -> None:
        """Let go of the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
