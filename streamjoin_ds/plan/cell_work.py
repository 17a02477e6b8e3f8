"""What a row and a pair cost a cell: the unit in which loads of cells are compared."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_WORK", "CellWork"]


@dataclass(frozen=True, slots=True)
class CellWork:
    """Weights of a cell's load: ``row * rows received + pair * pairs found``.

    Parameters
    ----------
    row, pair : float
        Only their ratio counts. RecPart uses 4 to 1 (Li, Gatterbauer and Riedewald, 2020). Here a row that is shipped
        costs a few hundred nanoseconds and a result row about sixty, which is about the same ratio. A cell
        finds pairs by an index, so the pairs that it tests are about those that match.
    """

    row: float = 4.0
    pair: float = 1.0


DEFAULT_WORK = CellWork()
