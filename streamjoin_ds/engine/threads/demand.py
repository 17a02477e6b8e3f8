"""How many threads a batch of a cell asks for: as many as have enough to do, by what earlier batches cost.

::

    new tuples x cost of one  =  work  ──► one thread for each 20 ms of it, `most` at most
         ▲             ▲
    of this batch   of the batches before, in this process

CellJoin compares the rate at which tuples come with the rate at which they are joined, and takes or frees a processor
(Gedik et al., 2007, section 7.3). A batch has all its tuples when it begins, so its work is known before it is done: a
stream that grows makes larger batches, and these ask for more threads. A number of threads is kept until it is clearly
too large or too small. What was measured is in memory only: a process that knows nothing begins with a usual cost.
"""

from __future__ import annotations

from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.engine.tuning.probes import ThreadTuning

__all__ = ["ThreadDemand"]


class ThreadDemand:
    """What the cells of one join asked for and cost so far, in this process.

    Parameters
    ----------
    tuning : ThreadTuning

    Attributes
    ----------
    row_ns : float
        What a new tuple costs, in nanoseconds of all threads together.
    """

    def __init__(self, tuning: ThreadTuning = DEFAULT.threads) -> None:
        self._tuning = tuning
        self.row_ns = tuning.first_row_ns
        self._is_known = False
        self._last: dict[int, int] = {}

    def wanted(self, cell: int, rows: int, most: int) -> int:
        """Return how many threads a cell's batch of so many new tuples asks for: 1 to `most`."""
        worth = rows * self.row_ns / self._tuning.worth_ns
        last = min(self._last.get(cell, 1), most)
        is_right = self._tuning.kept_share * last <= worth < last + 1
        self._last[cell] = wanted = last if is_right else max(1, min(int(worth), most))
        return wanted

    def did(self, rows: int, cpu_ns: int) -> None:
        """Learn what a batch of so many new tuples cost, in nanoseconds of all threads together."""
        if rows:
            row_ns = cpu_ns / rows
            weight = self._tuning.cost_weight if self._is_known else 1.0
            self.row_ns += weight * (row_ns - self.row_ns)
            self._is_known = True
