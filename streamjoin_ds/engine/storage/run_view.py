"""A run seen in another order, for a neighbour whose conditions the run's own order does not serve.

::

    run    sorted by k   ◄── probes of d, by k
    view   sorted by c   ◄── probes of f, by c       order[i]: which row of the run is the i-th of the view

A run has one order. In a join of three streams and more its neighbours may probe it by different keys. Then the order
serves one of them, and the run would be scanned for the other. A view is made when it is first asked for, if it leaves
a probe far fewer rows, and is kept as long as the run. It takes 4 bytes a row, and 8 for each key that is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.storage.sorted_keys import SortedKeys

__all__ = ["RunView"]


class RunView(SortedKeys):
    """The keys of a run in another order: row i of the view is row ``order[i]`` of the run.

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
        """Return, for each row of the view, its number in the run."""
        return self._order

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, in the view's order."""
        if number not in self._keys:
            self._keys[number] = self.form.kernels.module.gather(self._run.key(number), self._order)
        return self._keys[number]
