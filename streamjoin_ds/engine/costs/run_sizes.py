"""The sizes of runs that a window keeps to: three numbers that belong together."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RunSizes"]


@dataclass(frozen=True, slots=True)
class RunSizes:
    """The sizes of the runs of a window in memory.

    Attributes
    ----------
    seal_rows : int
        Rows of a tail, at most; it is then sealed into a run.
    most_arrived_rows : int
        New rows of one push that go to the tail, at most; more become a run at once. It is `seal_rows` at most.
    most_gridded_rows : int
        The same of a window in a bucket grid.
    ratio : int
        The merge ratio: so many runs of like size become one, 2 or more.
    """

    seal_rows: int
    most_arrived_rows: int
    most_gridded_rows: int
    ratio: int
