"""The buffer that kernels write the pairs they find to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.tuning.probes import ProbeTuning

__all__ = ["MIN_FREE", "MatchBuffer"]

Int32 = npt.NDArray[np.int32]

# The least room, in pairs, that a kernel is given. It writes whole registers, and stops when less room is left.
MIN_FREE = 64


class MatchBuffer:
    """A buffer of found pairs: probe, row and run of each. It grows up to a chunk, and later pushes use it again.

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
        self._whole: tuple[Int32, Int32, Int32] | None = None  # the room of an empty buffer, which each push asks for

    def room(self, used: int, chunk_rows: int) -> tuple[Int32, Int32, Int32]:
        """Return the free room behind the first `used` pairs, for `MIN_FREE` pairs at least.

        A buffer that is more than half full grows, up to a chunk and `MIN_FREE`.
        """
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
