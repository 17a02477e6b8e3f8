"""A power cut: what was not forced to the device may be gone, empty, cut short, zeros or there; names in any order.

`Device` knows which inodes' bytes and which names of which folders were forced (`os.fsync`). A cut keeps those, and
decides by dice about everything else: a new name is there or not, a removed one comes back or not, a file's bytes are
there, or none, or half of them, or zeros. Worse than any real file system, so that nothing rests on the habits of one.
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
    """The inode of a file; a link to it stays, so that its number means this file for ever."""
    inode = os.stat(path).st_ino
    with contextlib.suppress(FileExistsError):
        os.link(path, attic / str(inode))
    return inode


def names_in(folder: str, attic: Path, known: set[int] | None = None) -> dict[str, int]:
    """The names in a folder and their inodes, a link to each file; none to one that is `known` to have it."""
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

    def survives(self, inodes: Iterable[int], folders: Mapping[int, dict[str, int]]) -> None:
        """Take over what other processes forced: files, and the names in folders; `kept` has a link to each."""
        self._bytes.update(inodes)
        self._names.update(folders)

    def force(self, path: str) -> None:
        """What `os.fsync` of a file or folder does."""
        if not os.path.isdir(path):
            self._bytes.add(kept(path, self._attic))
            return
        self._names[os.stat(path).st_ino] = names_in(path, self._attic)

    def cut(self, dice: random.Random) -> None:
        """The power goes, and comes back: what is on the disk now."""
        stays = dice.choice((0.0, 0.3, 0.7, 0.9, 1.0))  # all new names lost, or none, or in any order
        for entry in sorted(os.scandir(self.root), key=lambda entry: entry.name):
            if not entry.is_dir(follow_symlinks=False) or entry.name.startswith("input-"):
                continue  # what streams are read from is not ours to force
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
        path.unlink()  # not the link in the attic: its bytes stay
        path.write_bytes({"empty": b"", "short": data[: dice.randrange(len(data))], "zeros": bytes(len(data))}[what])

    def _settle(self, folder: Path) -> None:
        """All that is there has been on the device for long."""
        self.force(str(folder))
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False) and entry.path != str(self._attic):
                self._settle(Path(entry.path))
            elif folder != self.root:
                self.force(entry.path)
