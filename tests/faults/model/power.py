"""A power cut: what was not forced to the device may be gone, empty, cut short, zeros or there; names in any order.

`Device` knows the inodes whose bytes, and the folders whose names were forced (`os.fsync`). A cut keeps those, and
leaves everything else to dice: a new name is there or not, a removed one comes back or not, a file has all of its
bytes, none, a part, or zeros. No real file system is as bad as this, so nothing can rest on the habits of one.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["Device", "kept", "names_in"]


def kept(path: str, attic: Path) -> int:
    """Return the inode of a file.

    A link to the file stays in the attic, so that the inode means this file for ever.
    """
    inode = os.stat(path).st_ino
    with contextlib.suppress(FileExistsError):
        os.link(path, attic / str(inode))
    return inode


def names_in(folder: str, attic: Path, known: set[int] | None = None) -> dict[str, int]:
    """Return the names in a folder with their inodes, and keep a link to each file.

    A file whose inode is in `known` has its link already.
    """
    names = {}
    for entry in os.scandir(folder):
        inode = entry.inode()
        names[entry.name] = inode
        if known is not None and inode in known:
            continue
        if not entry.is_dir(follow_symlinks=False):
            try:
                kept(entry.path, attic)
            except FileNotFoundError:  # another process has removed it meanwhile
                del names[entry.name]
                continue
        if known is not None:
            known.add(inode)
    return names


class Device:
    """What would survive a power cut, of the folders in one folder.

    Parameters
    ----------
    root : Path
        The folder whose folders are looked at. The input always survives: files directly in it, folders named so.
    attic : Path
        Where removed files lie that may come back; it is on the same file system.
    """

    def __init__(self, root: Path, attic: Path) -> None:
        self.root, self._attic = root, attic
        attic.mkdir()
        self._names: dict[int, dict[str, int]] = {}  # by the inode of a folder
        self._bytes: set[int] = set()
        self.lost = 0
        self._settle(root)

    def survives(self, inodes: Iterable[int], folders: Mapping[int, dict[str, int]]) -> None:
        """Take over what other processes forced: files, and the names in folders; `kept` has made a link to each."""
        self._bytes.update(inodes)
        self._names.update(folders)

    def force(self, path: str) -> None:
        """Do what `os.fsync` of a file or folder does."""
        if not os.path.isdir(path):
            self._bytes.add(kept(path, self._attic))
            return
        self._names[os.stat(path).st_ino] = names_in(path, self._attic)

    def cut(self, dice: random.Random) -> None:
        """Cut the power, and leave on the disk what the dice say."""
        stays = dice.choice((0.0, 0.3, 0.7, 0.9, 1.0))  # all new names are lost, none, or some in any order
        for entry in sorted(os.scandir(self.root), key=lambda entry: entry.name):
            if not entry.is_dir(follow_symlinks=False) or entry.name.startswith(("input-", "devices-")):
                continue  # the input of streams is not ours to force
            if entry.path != str(self._attic):
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
        path.unlink()  # the link in the attic is another name of the file, and keeps its bytes
        path.write_bytes({"empty": b"", "short": data[: dice.randrange(len(data))], "zeros": bytes(len(data))}[what])

    def _settle(self, folder: Path) -> None:
        """Take all that is there as having been on the device for long."""
        self.force(str(folder))
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False) and entry.path != str(self._attic):
                self._settle(Path(entry.path))
            elif folder != self.root:
                self.force(entry.path)
