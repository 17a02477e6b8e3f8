"""What every layout of cells can tell, whether it is a grid or ranges of a band attribute.

::

    tuples ──► shares ──► groups ──► cells_of ──► cells ──► received: which of them the cell counts, and keeps
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.spec import BoundJoin

__all__ = ["CellLayout", "Received"]


@dataclass(frozen=True, slots=True)
class Received:
    """What a cell does with tuples that were dealt to it.

    Attributes
    ----------
    is_counted : ndarray of bool, or bool
        Which tuples this cell counts and reports: each tuple is counted in one cell, its home. A bool: all, or none.
    is_kept : ndarray of bool, or None
        Which tuples are joined; None: all. The others match nothing.
    """

    is_counted: npt.NDArray[np.bool_] | bool
    is_kept: npt.NDArray[np.bool_] | None = None


class CellLayout(Protocol):
    """A layout of cells: `Layout` or `RangeLayout`."""

    @property
    def cells(self) -> int:
        """The number of cells."""

    @property
    def streams(self) -> int:
        """The number of streams."""

    def cells_of(self, stream: int, group: int) -> tuple[int, ...]:
        """Return the cells to which a group of the stream is copied, ascending."""

    def window_group(self, cell: int, stream: int) -> int:
        """Return the group of the stream that the cell keeps in its windows.

        Cells with the same one hold the same rows of the stream, so they share its blocks.
        """

    def deals_like(self, stream: int) -> Hashable:
        """Return a value that is equal for layouts that deal the stream's tuples to the same groups."""

    def shares(self, bound: BoundJoin, stream: int, tuples: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield groups, ascending, with their tuples in the order given. Groups without tuples may be left out.

        Parameters
        ----------
        bound : BoundJoin
        stream : int
        tuples : pyarrow.Table
            Of ``bound.tuple_schema(stream)``.
        """

    def matches_nothing(self, stream: int, group: int) -> bool:
        """Whether the group's tuples can be in no result. They are counted, and go to no other epoch."""

    def received(self, bound: BoundJoin, cell: int, stream: int, tuples: pa.Table) -> Received:
        """Return what the cell does with the stream's tuples that `shares` and `cells_of` gave it."""

    def to_facts(self) -> Any:
        """Return the layout as plain JSON values, which `layout_from_facts` reads: a list for a grid."""
