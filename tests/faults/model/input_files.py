"""The input as it comes: files that grow at any byte, or folders of files in which things go wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.model.case import Case
from tests.faults.model.devices import DeviceFiles
from tests.faults.model.poison import HEADER

if TYPE_CHECKING:
    from tests.faults.model.checkpoint import Checkpoint
    from tests.faults.model.world import World

__all__ = ["Folders", "GrowingFiles"]


class GrowingFiles:
    """One file for each stream, or one or more for each of its devices; none where the source is a generator."""

    def __init__(self, case: Case, folder: Path, *, is_read: bool) -> None:
        inputs = [name for name in dict.fromkeys(case.inputs.values()) if name not in case.devices]
        self._written_as = {name: case.text(name) for name in inputs} if is_read else {}
        self._files = {name: written.data for name, written in self._written_as.items()}
        self._paths = {name: folder / case.file_name(name) for name in self._files}
        self._streams_of = case.inputs
        devices = {name: listed for name, listed in case.devices.items() if case.inputs[name] == name}
        self._devices = DeviceFiles(devices, folder)
        self._written = dict.fromkeys(self._files, 0)
        for path in self._paths.values():
            path.touch()

    def feed(self, world: World, *, everything: bool = False) -> None:
        """Let the files grow."""
        for name, text in self._files.items():
            if "idle" in world.schedule.asks and not everything and world.clock.random() < 0.6:
                continue
            left = len(text) - self._written[name]
            size = left if everything or left < 60 else world.dice.randint(20, 120)
            size = min(size, left)
            if size:
                with self._paths[name].open("ab") as file:
                    file.write(text[self._written[name] : self._written[name] + size])
                self._written[name] += size
        self._devices.feed(world, everything=everything)

    def there(self) -> dict[str, dict[str, int]]:
        """Return for each stream over one file how many records of it can be read by now."""
        found = {name: written.there(self._written[name]) for name, written in self._written_as.items()}
        return {stream: {"": found[name]} for stream, name in self._streams_of.items() if name in found}

    def disturb(self, world: World) -> None:
        """See `Folders.disturb`."""

    @property
    def whole(self) -> bool:
        """Whether all of the input is there."""
        return all(self._written[name] == len(text) for name, text in self._files.items()) and self._devices.whole

    def told(self, found: dict[str, list[tuple[str, str]]]) -> list[str]:
        """See `Folders.told`."""
        return [f"set aside: {found}"] if any(found.values()) else []


class Folders:
    """A folder for each stream. While files come, one may come too late, or one that was read may change.

    Both happen only when it is certain how they will be judged. The late file sorts before one that a logged batch has
    begun, and the changed file lies before everything that is read again. At most one file of a stream changes, since a
    start cannot tell two changes from one.

    Attributes
    ----------
    late : dict of str to list of str
        Names of the files that came too late.
    changed : dict of str to str
        The file that was changed.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self._files = case.files
        self._paths = {name: folder / f"input-{name}" for name in case.files}
        self._next = dict.fromkeys(case.files, 0)
        self._written = dict.fromkeys(case.files, 0)
        self.late: dict[str, list[str]] = {name: [] for name in case.files}
        self.changed: dict[str, str] = {}
        self._streams_of = {name: [s for s, given in case.inputs.items() if given == name] for name in case.files}
        for path in self._paths.values():
            path.mkdir()

    def feed(self, world: World, *, everything: bool = False) -> None:
        """Let files come, grow, come late and change."""
        for name in self._files:
            if "idle" in world.schedule.asks and not everything and world.clock.random() < 0.6:
                continue
            while self._next[name] < len(self._files[name]):
                self._more(name, world, everything)
                if not everything:
                    break
        if not everything:
            self.disturb(world)

    def _more(self, name: str, world: World, everything: bool) -> None:
        file = self._files[name][self._next[name]]
        left = len(file.data) - self._written[name]
        size = left if everything or file.at_once or left < 60 else min(left, world.dice.randint(20, 120))
        path = self._paths[name] / file.name
        if file.at_once:
            _appears(path, file.data)
        else:
            with path.open("ab") as there:
                there.write(file.data[self._written[name] : self._written[name] + size])
        self._written[name] += size
        if self._written[name] == len(file.data):
            self._next[name], self._written[name] = self._next[name] + 1, 0

    def disturb(self, world: World) -> None:
        """Let a file come late, or change; this may also happen while no driver runs."""
        for name in self._files:
            # Two streams over one folder set files aside at places of their own, so that numbers no longer tell equal
            # records.
            if world.schedule.grows and not world.is_settling and self._streams_of[name] == [name]:
                self._disturb(name, world)

    def _disturb(self, name: str, world: World) -> None:
        taken = 1 if world.schedule.power else 0  # so many of the newest offsets and commits the power may take away
        logged, committed = (_file_at(world.checkpoint, batch - taken, name) for batch in _last(world.checkpoint))
        what = world.dice.random()
        if logged and what < 0.1 and len(self.late[name]) < 2:
            late = f"{world.dice.randrange(int(logged[:2]) + 1):02d}-late-{len(self.late[name])}.csv"
            _appears(self._paths[name] / late, f"{HEADER}1704067200000000,1,1\n".encode())
            self.late[name].append(late)
        done = [file.name for file in self._files[name] if file.name < committed]
        if done and what > 0.9 and name not in self.changed:
            self.changed[name] = world.dice.choice(done)
            path = self._paths[name] / self.changed[name]
            _appears(path, path.read_bytes() + b"1704067200000000,1,1\n")

    @property
    def whole(self) -> bool:
        """Whether all of the input is there."""
        return all(self._next[name] == len(files) for name, files in self._files.items())

    def told(self, found: dict[str, list[tuple[str, str]]]) -> list[str]:
        """Return what is wrong with what the offsets set aside: each file that came late or changed, once.

        `found` has kind and name for each stream. The name of a file that changed while nobody looked is not known.
        """
        texts = []
        for name in self._files:
            for stream in self._streams_of[name]:
                late = sorted(culprit for kind, culprit in found[stream] if kind == "late")
                changed = [culprit for kind, culprit in found[stream] if kind == "changed"]
                if late != sorted(self.late[name]):
                    texts.append(f"{stream}: late are {self.late[name]}, set aside {late}")
                right = [self.changed[name]] if name in self.changed else []
                if changed not in (right, [""] * len(right)):
                    texts.append(f"{stream}: changed is {right}, set aside {changed}")
        return texts


def _appears(path: Path, data: bytes) -> None:
    """Put a file there that is whole from the first moment on."""
    aside = path.with_name(f".{path.name}")
    aside.write_bytes(data)
    os.rename(aside, path)


def _last(checkpoint: Checkpoint) -> tuple[int, int]:
    return max(checkpoint.offsets, default=-1), max(checkpoint.commits, default=-1)


def _file_at(checkpoint: Checkpoint, batch: int, name: str) -> str:
    """Return the file that was read last when a batch was planned; "" if that is not known."""
    text = checkpoint.offsets.get(batch)
    return "" if text is None else str(json.loads(text)["streams"][name]["file"])
