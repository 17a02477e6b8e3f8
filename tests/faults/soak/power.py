"""A power cut under real processes: each writes down what it forces, and the rest is lost, torn, or there.

`tests.faults.model.power.Device` decides what is lost. Files that are there when it is made count as on the device.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

from tests.faults.model.power import Device, kept, names_in

__all__ = ["Power", "write_down"]

_LOG, _ATTIC = "forced.jsonl", "attic"


class Power:
    """The power of the machine below a folder.

    Nothing may run there when the object is made, nor when the power is cut.
    """

    def __init__(self, root: Path) -> None:
        self._log, self._attic = root / _LOG, root / _ATTIC
        self._log.touch()
        self._device = Device(root, self._attic)

    def cut(self, dice: random.Random) -> int:
        """Leave to the dice what was not forced; return how many files were lost or torn."""
        inodes, folders = [], {}
        for line in self._log.read_text().splitlines():
            if line.endswith("}"):  # an incomplete line: its writer died, and what it forced does not count
                facts = json.loads(line)
                if facts["names"] is None:
                    inodes.append(facts["inode"])
                else:
                    folders[facts["inode"]] = facts["names"]
        self._log.write_text("")
        self._device.survives(inodes, folders)
        before = self._device.lost
        self._device.cut(dice)
        return self._device.lost - before

    def end(self) -> None:
        """Take all that is there as on the device, and stop writing down."""
        shutil.rmtree(self._attic)
        self._log.unlink()


def write_down(root: Path) -> None:
    """Have this process write down what it forces below a folder, from now on, if the power may be cut there."""
    attic = root / _ATTIC
    if not attic.is_dir():
        return
    fsync, top = os.fsync, os.path.realpath(root) + "/"
    log = os.open(root / _LOG, os.O_WRONLY | os.O_APPEND)
    known: set[int] = set()

    def written_down(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        facts = {}
        if path.startswith(top) and os.path.exists(path):
            names = names_in(path, attic, known) if os.path.isdir(path) else None
            facts = {"inode": os.stat(path).st_ino if names is not None else kept(path, attic), "names": names}
        fsync(descriptor)
        if facts:
            os.write(log, json.dumps(facts).encode() + b"\n")

    os.fsync = written_down
