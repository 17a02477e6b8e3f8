"""Where tests put their files: in memory, where it has room.

A test makes some hundred small files, forces them to the device and removes them. On a disk that is a fifth of the
CPU time of the tests of tables and checkpoints, and half of their time by the clock. Nothing is proved by it: what a
power cut leaves is the simulator's to say (`tests.faults.model.power`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["files_in_memory", "memory_folder"]

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30  # a whole run was seen with a fortieth of that


def memory_folder() -> Path | None:
    """Return a folder that lies in memory; None where there is none, or where it is small, as in most containers."""
    try:
        return _MEMORY if shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES and os.access(_MEMORY, os.W_OK) else None
    except OSError:
        return None


def files_in_memory() -> None:
    """Have this process and its children make their temporary files in memory, unless ``TMPDIR`` says where."""
    folder = memory_folder()
    if folder is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
