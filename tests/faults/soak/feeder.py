"""Files that grow as devices write them: a few lines at a time, sometimes a new file, sometimes one side silent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.faults.soak.rows import NAMES, START_US, TICK_US, Recorded

__all__ = ["HEADER", "Feeder"]

HEADER = "ts,x\n"
_FILE_ROWS = 5_000


class Feeder:
    """Writes the input of the soak.

    Parameters
    ----------
    root : Path
        The folder below which each stream gets a folder.
    seed : int
    step_rows : int
        Records of each stream that `step` writes.

    Attributes
    ----------
    recorded : dict of str to Recorded
        What was written, and what must become of it.
    """

    def __init__(self, root: Path, seed: int, step_rows: int) -> None:
        self.root, self.step_rows = root, step_rows
        self.recorded = {name: Recorded() for name in NAMES}
        self._dice = {name: np.random.default_rng((seed, number)) for number, name in enumerate(NAMES)}
        self._now_us = START_US
        self._silent: str | None = None
        self._numbers = dict.fromkeys(NAMES, 0)
        self._rows = dict.fromkeys(NAMES, 0)  # rows of the file that is written now
        for name in NAMES:
            (root / name).mkdir(parents=True)
            self._write(name, 0)

    @property
    def silent(self) -> str | None:
        """Return the stream that writes nothing now, if there is one."""
        return self._silent

    def fall_silent(self, name: str) -> None:
        """Write nothing for this stream until `come_back`; time goes on."""
        self._silent = name

    def come_back(self) -> None:
        """Write for the silent stream again, and only for it: the next `step` goes on with both.

        What it writes is as young as what the others have written, so no clock finds it late. This holds only if it is
        read before the others go on.
        """
        assert self._silent is not None
        name, self._silent = self._silent, None
        self._write(name, self.step_rows)

    def step(self) -> None:
        """Let the streams that are not silent grow."""
        self._now_us += self.step_rows * TICK_US
        for name in NAMES:
            if name != self._silent:
                self._write(name, self.step_rows)

    def next_file(self, name: str) -> Path:
        """Return the file that is written now; later lines go into another one."""
        path = self._path(name)
        self._numbers[name] += 1
        self._rows[name] = 0
        return path

    def lines(self, name: str, count: int) -> tuple[list[str], list[int]]:
        """Record the next lines of one stream; return them, and the stream's largest time after each."""
        recorded, lines, largest_us = self.recorded[name], [], []
        for number in range(count):
            lines.append(recorded.line(self._dice[name], self._now_us, is_measured=number > 0))
            largest_us.append(recorded.largest_us)
        return lines, largest_us

    def _path(self, name: str) -> Path:
        return self.root / name / f"{self._numbers[name]:08d}.csv"

    def _write(self, name: str, count: int) -> None:
        if self._rows[name] >= _FILE_ROWS:
            self.next_file(name)
        self._rows[name] += count
        path = self._path(name)
        header = "" if path.exists() else HEADER
        with path.open("a") as file:
            file.write(header + "".join(self.lines(name, count)[0]))
