"""Streams of many partitions: which device each record is of, and in which of its files."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.model.poison import text_of

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["Device", "DeviceFiles", "devices_of"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Device:
    """A partition of a stream: its name, its records, and the file and line of each of them.

    Attributes
    ----------
    files : list of (str, bytes)
        Its files, below the stream's folder, in their order, as they will be when they are whole.
    reading : dict of str to str
        The options by which the stream's folders are read.
    """

    name: str
    rows: list[Row]
    places: list[tuple[str, int]]
    files: list[tuple[str, bytes]]
    reading: Mapping[str, str] = field(default_factory=dict)


# How the files of a device's folder lie and are read; each has a place for the number of the file and for its name.
_PLAIN = ("{place}-{name}.csv", {})
_WAYS = (
    _PLAIN,
    _PLAIN,
    ("part={number}/{place}-{name}.csv", {"sub_folders": "read"}),
    ("{behind}-{name}.csv", {"file_order": "modified", "finished_after": "0s"}),
    ("k={behind}/{behind}-{name}.csv", {"file_order": "modified", "finished_after": "0s", "sub_folders": "read"}),
)


def devices_of(stream: str, rows: Sequence[Row], by: str, seed: int) -> tuple[Device, ...]:
    """Return the rows dealt to a few devices. One is ahead or behind of the others, and may have none."""
    dice = random.Random(f"devices {stream} {seed}")
    count = dice.choice((1, 2, 3, 5))
    skew = [dice.choice((0, 0, -2_000_000, 1_000_000)) for _ in range(count)]
    dealt: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        number = dice.randrange(count)
        dealt[number].append(row if row["ts"] is None else {**row, "ts": row["ts"] + skew[number]})
    form, reading = random.Random(f"folders {stream} {seed}").choice(_WAYS) if by == "folder" else _PLAIN
    devices = []
    for number, own in enumerate(dealt):
        cuts = sorted(dice.sample(range(1, len(own)), min(dice.choice((0, 1, 2)), len(own) - 1))) if own else []
        pieces = [own] if by == "file" else [own[a:b] for a, b in zip([0, *cuts], [*cuts, len(own)], strict=True)]
        name = f"{stream}-{number}" + (".csv" if by == "file" else "")
        files, places = [], []
        for place, piece in enumerate(pieces):
            # Rejects tell a file's name without its folder.
            numbers = {"place": place, "behind": 9 - place, "number": 9 + place}
            file = name if by == "file" else form.format(name=name, **numbers)
            places += [(file.rpartition("/")[2], line) for line in range(2, len(piece) + 2)]
            text = text_of(piece) if piece else text_of(rows[:1]).partition(b"\n")[0] + b"\n"
            files.append((file if by == "file" else f"{name}/{file}", text))
        devices.append(Device(name, own, places, files, reading))
    return tuple(devices)


class DeviceFiles:
    """The files of devices, which grow at any byte; each device comes, and falls silent, when it likes."""

    def __init__(self, devices: dict[str, tuple[Device, ...]], folder: Path) -> None:
        self._whole = {
            (stream, device.name)
            for stream, listed in devices.items()
            for device in listed
            if "file_order" in device.reading
        }
        self._changed_s = 0
        self._left = {
            (stream, device.name): [(folder / f"devices-{stream}" / file, text) for file, text in device.files]
            for stream, listed in devices.items()
            for device in listed
        }
        for stream in devices:
            (folder / f"devices-{stream}").mkdir()

    def feed(self, world: World, *, everything: bool = False) -> None:
        """Let the files grow."""
        for device, files in self._left.items():
            if not everything and world.clock.random() < (0.6 if "idle" in world.schedule.asks else 0.3):
                continue
            while files:
                path, text = files.pop(0)
                is_whole = everything or len(text) < 60 or device in self._whole
                size = len(text) if is_whole else world.dice.randint(20, 120)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.write(text[:size])
                if device in self._whole:
                    self._changed_s += 1
                    os.utime(path, (self._changed_s, self._changed_s))
                if size < len(text):
                    files.insert(0, (path, text[size:]))
                if not everything:
                    break

    @property
    def whole(self) -> bool:
        """Whether all of the input is there."""
        return not any(self._left.values())
