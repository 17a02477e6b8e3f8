"""A power cut: what was not forced to the device may be gone, empty, cut short, zeros or there; names in any order.

`Device` knows which inodes' bytes and which names of which folders were forced (`os.fsync`). A cut keeps those, and
decides by dice about everything else: a new name is there or not, a removed one comes back or not, a file's bytes are
there, or none, or half of them, or zeros. Worse than any real file system, so that nothing rests on the habits of one.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

__all__ = ["Device"]


class Device:
    """What would survive, of the folders in one.

    Parameters
    ----------
    root : Path
        Folders in it are looked at; the input (files directly in it, folders named so) always survives.
    attic : Path
        Where files lie that were removed and may come back; on the same file system.
    """

    def __init__(self, root: Path, attic: Path) -> None:
        self.root, self._attic = root, attic
        attic.mkdir()
        self._names: dict[int, dict[str, int]] = {}  # of a folder's inode
        self._bytes: set[int] = set()
        self.lost = 0
        self._settle(root)

    def force(self, path: str) -> None:
        """What `os.fsync` of a file or folder does."""
        if not os.path.isdir(path):
            self._bytes.add(self._kept(path))
            return
        names = {}
        for entry in os.scandir(path):
            names[entry.name] = entry.inode()
            if not entry.is_dir(follow_symlinks=False):
                self._kept(entry.path)
        self._names[os.stat(path).st_ino] = names

    def _kept(self, path: str) -> int:
        """The inode of a file; a link to it stays, so that its number means this file for ever."""
        inode = os.stat(path).st_ino
        link = self._attic / str(inode)
        if not link.exists():
            os.link(path, link)
        return inode

    def cut(self, dice: random.Random) -> None:
        """The power goes, and comes back: what is on the disk now."""
        stays = dice.choice((0.0, 0.3, 0.7, 0.9, 1.0))  # all new names lost, or none, or in any order
        for entry in sorted(os.scandir(self.root), key=lambda entry: entry.name):
            if entry.is_dir() and not entry.name.startswith("input-"):
                self._cut(Path(entry.path), dice, stays)
        self._settle(self.root)

    def _cut(self, folder: Path, dice: random.Random, stays: float) -> None:
        before = self._names.get(folder.stat().st_ino, {})
        now = {entry.name: entry for entry in os.scandir(folder)}
        for name in sorted({*before, *now}):
            path, entry = folder / name, now.get(name)
            if entry is not None and entry.is_dir(follow_symlinks=False):
                if before.get(name) == entry.inode() or dice.random() < stays:
                    self._cut(path, dice, stays)
                else:
                    shutil.rmtree(path)
                    self.lost += 1
                continue
            if entry is not None and entry.inode() != before.get(name) and dice.random() >= stays:
                path.unlink()
                self.lost += 1
                entry = None
            if entry is None and name in before and (name in now or dice.random() >= stays):
                old = self._attic / str(before[name])
                if old.exists():
                    os.link(old, path)
            if path.exists() and path.stat().st_ino not in self._bytes:
                self._torn(path, dice)

    def _torn(self, path: Path, dice: random.Random) -> None:
        data = path.read_bytes()
        what = dice.choice(("whole", "whole", "empty", "short", "zeros"))
        if what == "whole" or not data:
            return
        self.lost += 1
        path.unlink()  # not the link in the attic: its bytes stay
        path.write_bytes({"empty": b"", "short": data[: dice.randrange(len(data))], "zeros": bytes(len(data))}[what])

    def _settle(self, folder: Path) -> None:
        """All that is there has been on the device for long."""
        self.force(str(folder))
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                self._settle(Path(entry.path))
            elif folder != self.root:
                self.force(entry.path)
