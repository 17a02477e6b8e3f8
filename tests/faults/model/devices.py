"""Streams of many partitions: which device each record is of, and in which of its files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.model.poison import HEADER, line_of

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
    """

    name: str
    rows: list[Row]
    places: list[tuple[str, int]]
    files: list[tuple[str, bytes]]


def devices_of(stream: str, rows: Sequence[Row], by: str, seed: int) -> tuple[Device, ...]:
    """Return the rows dealt to a few devices. One is ahead or behind of the others, and may have none."""
    dice = random.Random(f"devices {stream} {seed}")
    count = dice.choice((1, 2, 3, 5))
    skew = [dice.choice((0, 0, -2_000_000, 1_000_000)) for _ in range(count)]
    dealt: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        number = dice.randrange(count)
        dealt[number].append(row if row["ts"] is None else {**row, "ts": row["ts"] + skew[number]})
    devices = []
    for number, own in enumerate(dealt):
        cuts = sorted(dice.sample(range(1, len(own)), min(dice.choice((0, 1, 2)), len(own) - 1))) if own else []
        pieces = [own] if by == "file" else [own[a:b] for a, b in zip([0, *cuts], [*cuts, len(own)], strict=True)]
        name = f"{stream}-{number}" + (".csv" if by == "file" else "")
        files, places = [], []
        for place, piece in enumerate(pieces):
            # Rejects tell a file's name without its folder.
            file = name if by == "file" else f"{place}-{name}.csv"
            places += [(file, line) for line in range(2, len(piece) + 2)]
            text = (HEADER + "".join(f"{line_of(row)}\n" for row in piece)).encode()
            files.append((file if by == "file" else f"{name}/{file}", text))
        devices.append(Device(name, own, places, files))
    return tuple(devices)


class DeviceFiles:
    """The files of devices, which grow at any byte; each device comes, and falls silent, when it likes."""

    def __init__(self, devices: dict[str, tuple[Device, ...]], folder: Path) -> None:
        self._left = {
            (stream, device.name): [(folder / f"devices-{stream}" / file, text) for file, text in device.files]
            for stream, listed in devices.items()
            for device in listed
        }
        for stream in devices:
            (folder / f"devices-{stream}").mkdir()

    def feed(self, world: World, *, everything: bool = False) -> None:
        """Let the files grow."""
        for files in self._left.values():
            if not everything and world.clock.random() < (0.6 if "idle" in world.schedule.asks else 0.3):
                continue
            while files:
                path, text = files.pop(0)
                size = len(text) if everything or len(text) < 60 else world.dice.randint(20, 120)
                path.parent.mkdir(exist_ok=True)
                with path.open("ab") as file:
                    file.write(text[:size])
                if size < len(text):
                    files.insert(0, (path, text[size:]))
                if not everything:
                    break

    @property
    def whole(self) -> bool:
        """Whether all of the input is there."""
        return not any(self._left.values())
