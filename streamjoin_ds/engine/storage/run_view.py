"""A run seen in another order, for a neighbour whose conditions the run's own order does not serve.

::

    run    sorted by k   ◄── probes of d, by k
    view   sorted by c   ◄── probes of f, by c       order[i]: which row of the run is the i-th of the view

A run has one order. In a join of three streams and more its neighbours may probe it by different keys, and one of
other, and would scan it for one of them. A view is made when it is first asked for, where it leaves a probe far fewer
rows, and is kept as long as the run. It takes 4 bytes a row, and 8 for each key that is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.storage.layout import SortLayout
from streamjoin_ds.engine.storage.sorted_keys import SortedKeys

__all__ = ["RunView"]


class RunView(SortedKeys):
    """The keys of a run in another order; its rows are those of the run at `order`.

    Parameters
    ----------
    run : SortedKeys
    layout : SortLayout
    order : ndarray, shape (rows,), int32
    """

    def __init__(self, run: SortedKeys, layout: SortLayout, order: npt.NDArray[np.int32]) -> None:
        super().__init__(run.form, layout, run.zone, run.rows)
        self._run, self._order = run, order
        self._keys: dict[int, npt.NDArray[Any]] = {}

    def row_numbers(self) -> npt.NDArray[np.int32]:
        """Return which rows of the run its own are, in order."""
        return self._order

    def key(self, number: int) -> npt.NDArray[Any]:
        """Values of a key, in the view's order."""
        if number not in self._keys:
            self._keys[number] = self.form.kernels.module.gather(self._run.key(number), self._order)
        return self._keys[number]
