"""Marks of the tuples that have partners: of decided ones, and of the new ones of a push."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.storage.selection import Selection

__all__ = ["HasPartner", "NewPartners"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class HasPartner:
    """The reduction that tells which of some tuples have a partner: `mask`, one bool for each."""

    def __init__(self, count: int) -> None:
        self.mask: Mask = np.zeros(count, np.bool_)

    def add(self, positions: Int32, found: Selection) -> None:
        """Take some pairs; see `Reduction`."""
        del found
        self.mask[positions] = True

    def counted(self, counts: Int64) -> None:
        """Take the number of partners of each tuple."""
        self.mask |= counts > 0


class NewPartners:
    """Tells which new tuples of a push are in a pair of the same push.

    Parameters
    ----------
    numbers : ndarray, shape (n,), int64
        The new tuples' numbers.
    column : str
        The column of result rows that holds them.

    Attributes
    ----------
    mask : ndarray, shape (n,), bool
    """

    def __init__(self, numbers: npt.NDArray[np.int64], column: str) -> None:
        self._numbers, self._column = numbers, column
        self.mask: Mask = np.zeros(len(numbers), np.bool_)
        self._lowest = int(numbers.min())
        span = int(numbers.max()) - self._lowest + 1
        # Numbers of one stream mostly follow each other: then a table of them is quicker than a search.
        self._flags = np.zeros(span, np.bool_) if span <= 8 * len(numbers) + 1024 else None

    def add(self, rows: pa.Table) -> None:
        """Take some pairs as result rows."""
        found = rows.column(self._column).to_numpy()
        if self._flags is None:
            self.mask |= np.isin(self._numbers, found)
            return
        places = found - self._lowest
        self._flags[places[(places >= 0) & (places < len(self._flags))]] = True

    def alone(self) -> Mask:
        """Return which of the new tuples are in no pair so far."""
        if self._flags is not None:
            self.mask = self._flags[self._numbers - self._lowest]
        return ~self.mask
