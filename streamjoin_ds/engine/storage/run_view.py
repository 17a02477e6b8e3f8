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

from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.layout import Grid
from streamjoin_ds.engine.storage.run import Run

__all__ = ["RunView", "seen_by"]

# A smaller run is as soon scanned.
_MIN_ROWS = 256


class RunView(Run):
    """The keys of a run in another order; its rows are those of the run at `order`.

    Parameters
    ----------
    run : Run
    grid : Grid
    order : ndarray, shape (rows,), int32
    """

    def __init__(self, run: Run, grid: Grid, order: npt.NDArray[np.int32]) -> None:
        super().__init__(run.form, None, grid, run.zone)
        self._run, self.rows, self.order = run, run.rows, order

    def key(self, number: int) -> npt.NDArray[Any]:
        """Values of a key, in the view's order."""
        if number not in self._keys:
            self._keys[number] = self.form.kernels.module.gather(self._run.key(number), self.order)
        return self._keys[number]


def seen_by(run: Run, conditions: tuple[ProbeCondition, ...]) -> Run:
    """The run, or a view of it where that serves these conditions far better; a function of the run's rows."""
    if run.rows < _MIN_ROWS or not run.form.chooser.is_contested:
        return run
    partners = frozenset(condition.stream for condition in conditions)
    if partners not in run.views:
        keys = [run.key(number) for number in range(len(run.form.keys))]
        grid = run.form.chooser.better(run.grid, partners, keys, run.rows)
        like = [view for view in list(run.views.values()) if view is not None and view.grid == grid]
        if grid is not None and not like:
            like = [RunView(run, grid, run.form.ordering(keys, grid).do())]
        run.views[partners] = like[0] if like else None
    return run.views[partners] or run
