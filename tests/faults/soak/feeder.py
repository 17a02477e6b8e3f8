"""Files that grow as devices write them: a few lines at a time, a new file now and then, one side silent at times."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.faults.soak.rows import NAMES, START_US, TICK_US, Recorded

__all__ = ["Feeder"]

_FILE_ROWS = 5_000


class Feeder:
    """Writes the input of the soak.

    Parameters
    ----------
    root : Path
        A folder a stream is made below it.
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
        for name in NAMES:
            (root / name).mkdir(parents=True)
            self._write(name, 0)

    @property
    def silent(self) -> str | None:
        """The stream that writes nothing now."""
        return self._silent

    def fall_silent(self, name: str) -> None:
        """Write nothing for this stream until `come_back`; time goes on."""
        self._silent = name

    def come_back(self) -> None:
        """Write for the silent stream again, and only for it: the next `step` goes on with both.

        What it writes is as young as what the others have written, so it is late by no clock; but only if it is read
        before the others go on.
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

    def _write(self, name: str, count: int) -> None:
        recorded, dice = self.recorded[name], self._dice[name]
        path = self.root / name / f"{len(recorded) // _FILE_ROWS:08d}.csv"
        header = "" if path.exists() else "ts,x\n"
        lines = [recorded.line(dice, self._now_us, is_measured=number > 0) for number in range(count)]
        with path.open("a") as file:
            file.write(header + "".join(lines))
