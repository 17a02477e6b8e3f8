"""Picks: which tuples of one stream, as rows of its runs; a partial result holds one list of them a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, concatenated, gathered
from streamjoin_ds.engine.run import Run

__all__ = ["Picks"]

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Picks:
    """``count`` tuples of one stream.

    Attributes
    ----------
    runs : tuple of Run
    rows : ndarray, shape (count,), int32, or None
        Row within its run; None: all rows of the one run, in order.
    places : ndarray, shape (count,), int32, or None
        Number of its run; None: all are of ``runs[0]``.
    """

    runs: tuple[Run, ...]
    rows: Int32 | None = None
    places: Int32 | None = None

    def __len__(self) -> int:
        return self.runs[0].rows if self.rows is None else len(self.rows)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Run, Int32]]) -> Picks:
        """Rows of several runs, one after the other."""
        if len(parts) == 1:
            return cls((parts[0][0],), parts[0][1])
        rows = np.concatenate([rows for _, rows in parts])
        counts = [len(rows) for _, rows in parts]
        return cls(tuple(run for run, _ in parts), rows, np.repeat(np.arange(len(parts), dtype=np.int32), counts))

    def take(self, positions: Int32) -> Picks:
        """Those picks that stand at these positions."""
        if self.rows is None:
            return Picks(self.runs, positions)
        gather = self.runs[0].form.kernels.module.gather
        places = None if self.places is None else gather(self.places, positions)
        return Picks(self.runs, gather(self.rows, positions), places)

    def key(self, number: int) -> npt.NDArray[Any]:
        """A key of each pick."""
        if self.rows is None:
            return self.runs[0].key(number)
        gather = self.runs[0].form.kernels.module.gather
        if self.places is None:
            values: npt.NDArray[Any] = gather(self.runs[0].key(number), self.rows)
            return values
        values = np.empty(len(self.rows), dtype=self.runs[0].key(number).dtype)
        for place, positions, rows in self._by_run():
            values[positions] = gather(self.runs[place].key(number), rows)
        return values

    def column(self, name: str) -> pa.Array:
        """A column of the inside form for each pick."""
        kernels = self.runs[0].form.kernels
        if self.rows is None:
            return self.runs[0].tuples.column(name)
        if self.places is None:
            return gathered(self.runs[0].tuples.column(name), self.rows, kernels)
        pieces, positions = [], []
        for place, where, rows in self._by_run():
            pieces.append(gathered(self.runs[place].tuples.column(name), rows, kernels))
            positions.append(where)
        together = concatenated(pieces)
        if np.all(self.places[1:] >= self.places[:-1]):
            return together
        back = np.empty(len(self.rows), dtype=np.int32)
        back[np.concatenate(positions)] = np.arange(len(self.rows), dtype=np.int32)
        return gathered(together, back, kernels)

    def times_us(self) -> npt.NDArray[np.int64]:
        """Event time of each pick."""
        return self.key(0)

    def timestamps(self) -> pa.Array:
        """Event time of each pick as timestamps."""
        return array_of(self.times_us(), pa.timestamp("us", tz="UTC"))

    def _by_run(self) -> list[tuple[int, npt.NDArray[np.intp], Int32]]:
        assert self.rows is not None
        assert self.places is not None
        found = []
        for place in range(len(self.runs)):
            positions = np.flatnonzero(self.places == place)
            if len(positions):
                found.append((place, positions, self.rows[positions]))
        return found


def sequence_numbers(picks: Picks) -> npt.NDArray[np.int64]:
    """``_seq`` of each pick."""
    values: npt.NDArray[np.int64] = picks.column("_seq").to_numpy()
    return values
