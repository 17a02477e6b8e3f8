"""Files and tables that grow as devices write them: a few records at a time, sometimes a new file, one side silent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from tests.faults.soak.rows import START_US, STEP_ROWS, TICK_US, Recorded
from tests.support.kinds import SCHEMA, Kind, Record, csv_line

__all__ = ["HEADER", "Feeder"]

HEADER = ",".join(SCHEMA.names) + "\n"
_FILE_ROWS = 5_000
_TABLE_STEPS = 50  # after so many steps the table beside the streams has another version


class Feeder:
    """Writes the input of the soak.

    Parameters
    ----------
    root : Path
        The folder below which each stream gets a folder, or a table.
    seed : int
    kind : Kind

    Attributes
    ----------
    recorded : dict of str to Recorded
        What was written, and what must become of it.
    """

    def __init__(self, root: Path, seed: int, kind: Kind) -> None:
        self.root, self.kind = root, kind
        self.recorded = {name: Recorded(kind, name) for name in kind.names}
        self._dice = {name: np.random.default_rng((seed, number)) for number, name in enumerate(kind.names)}
        self._now_us = START_US
        self._silent: str | None = None
        self._steps = 0
        self._numbers = dict.fromkeys(kind.names, 0)
        self._rows = dict.fromkeys(kind.names, 0)  # rows of the file that is written now
        root.mkdir(exist_ok=True)
        for name in kind.names:
            self._write(name, [])
        if kind.has_table:
            kind.change_table(root, 0)

    @property
    def names(self) -> str:
        """Return the streams, a letter each."""
        return self.kind.names

    @property
    def silent(self) -> str | None:
        """Return the stream that writes nothing now, if there is one."""
        return self._silent

    def fall_silent(self, name: str) -> None:
        """Write nothing for this stream until `come_back`; time goes on."""
        self._silent = name

    def come_back(self) -> None:
        """Write for the silent stream again, and only for it: the next `step` goes on with all.

        What it writes is as young as what the others have written, so no clock finds it late. This holds only if it is
        read before the others go on.
        """
        assert self._silent is not None
        name, self._silent = self._silent, None
        self._write(name, self._records(name, [self._now_us] * STEP_ROWS))

    def step(self) -> None:
        """Let the streams that are not silent grow."""
        times_us = [self._now_us + number * TICK_US for number in range(1, STEP_ROWS + 1)]
        self._now_us = times_us[-1]
        self._steps += 1
        if self.kind.has_table and self._steps % _TABLE_STEPS == 0:
            self.kind.change_table(self.root, self._steps // _TABLE_STEPS)
        for name in self.names:
            if name != self._silent:
                self._write(name, self._records(name, times_us))

    def next_file(self, name: str) -> Path:
        """Return the file that is written now; later lines go into another one."""
        path = self._path(name)
        self._numbers[name] += 1
        self._rows[name] = 0
        return path

    def lines(self, name: str, count: int) -> tuple[list[str], list[int]]:
        """Record the next lines of one stream; return them, and the stream's largest time after each."""
        recorded, lines, largest_us = self.recorded[name], [], []
        recorded.pause()
        for _ in range(count):
            for record in recorded.next(self._dice[name], self._now_us):
                lines.append(csv_line(record))
                largest_us.append(recorded.largest_us)
        return lines, largest_us

    def _records(self, name: str, times_us: list[int]) -> list[Record]:
        recorded = self.recorded[name]
        recorded.pause()
        return [record for now_us in times_us for record in recorded.next(self._dice[name], now_us)]

    def _path(self, name: str) -> Path:
        return self.root / name / f"{self._numbers[name]:08d}.{self.kind.ending}"

    def _write(self, name: str, records: list[Record]) -> None:
        if self.kind.form == "delta":
            write_deltalake(str(self.root / name), pa.Table.from_pylist(records, SCHEMA), mode="append")
            return
        if self._rows[name] >= _FILE_ROWS:
            self.next_file(name)
        self._rows[name] += len(records)
        path = self._path(name)
        if self.kind.form != "folder":
            self._append(path, records)
            return
        recorded = self.recorded[name]
        for part in range(recorded.partitions):
            own = [record for record in records if recorded.partition_of(record["id"]) == part]
            self._append(path.parent / f"device-{part}" / path.name, own)

    def _append(self, path: Path, records: list[Record]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        header = HEADER if path.suffix == ".csv" and not path.exists() else ""
        with path.open("a") as file:
            file.write(header + self.kind.text(records))
