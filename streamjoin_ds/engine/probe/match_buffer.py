"""Where kernels write the pairs they find."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.tuning import ProbeTuning

__all__ = ["MIN_FREE", "MatchBuffer"]

Int32 = npt.NDArray[np.int32]

# Kernels write whole registers: they want this much room, or they stop.
MIN_FREE = 64


class MatchBuffer:
    """Probe, row and run of each pair found; it grows to a chunk, and is used again by later pushes.

    Parameters
    ----------
    tuning : ProbeTuning

    Attributes
    ----------
    rows : ndarray, shape (3, capacity), int32
        Probes, rows of the run, numbers of the run.
    """

    def __init__(self, tuning: ProbeTuning) -> None:
        self._growth = tuning.pairs_growth
        self.rows: Int32 = np.empty((3, max(tuning.first_pairs, MIN_FREE)), dtype=np.int32)
        self._whole: tuple[Int32, Int32, Int32] | None = None  # the room of an empty buffer: each push begins with it

    def room(self, used: int, chunk_rows: int) -> tuple[Int32, Int32, Int32]:
        """What is free behind `used`, `MIN_FREE` at least; a buffer that is nearly full grows, up to a chunk."""
        if not used and self._whole is not None:
            return self._whole
        capacity = self.rows.shape[1]
        if capacity - used < MIN_FREE or capacity < min(2 * used, chunk_rows + MIN_FREE):
            grown = np.empty((3, min(self._growth * capacity, chunk_rows + MIN_FREE)), dtype=np.int32)
            grown[:, :used] = self.rows[:, :used]
            self.rows, self._whole = grown, None
        end = min(self.rows.shape[1], chunk_rows + MIN_FREE)
        free = self.rows[0, used:end], self.rows[1, used:end], self.rows[2, used:end]
        if not used:
            self._whole = free
        return free
