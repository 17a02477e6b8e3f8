"""Pairs of places on the globe that are near each other, decided where their columns lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Bytes, Column, Int32
from streamjoin_ds.engine.kernels.twins.arguments import check_array, float_bound, refuse
from streamjoin_ds.engine.kernels.twins.arguments import own as own_object
from streamjoin_ds.engine.kernels.twins.runs import RunColumns
from streamjoin_ds.spec.functions.globe import NearBounds, answers

__all__ = ["NearPlaces"]


class NearPlaces:
    """A decision on pairs of places.

    Parameters
    ----------
    bounds : sequence of 5 float
        As `NearBounds`.
    implementation : str, optional
        The twin has one.
    """

    def __init__(self, bounds: Sequence[float], implementation: str | None = None) -> None:
        if implementation not in (None, "reference"):
            refuse("this implementation is not available here", "implementation")
        if len(bounds) != 5:
            refuse("there must be five bounds", "bounds")
        self._bounds = NearBounds(*(float_bound(of, "bounds") for of in bounds))

    def decide(
        self,
        left: objects.RunColumns,
        left_runs: Int32 | int | None,
        left_rows: Int32,
        right: objects.RunColumns,
        right_runs: Int32 | int | None,
        right_rows: Int32,
        out: Bytes,
    ) -> None:
        """Write for each pair 0 where it is far, 1 where it is near, and 2 where only its distance tells.

        Parameters
        ----------
        left, right : RunColumns
            Two columns of float64: latitudes and longitudes in degrees. Where they are no places, a pair is far.
        left_runs, left_rows, right_runs, right_rows
            The tuples of each pair, as for `RunColumns.gather`.
        out : ndarray, shape (n,), uint8
        """
        check_array(out, "out", np.dtype(np.uint8), writeable=True)
        if not len(left_rows) == len(right_rows) == len(out):
            refuse("left_rows, right_rows and out differ in length", "out")
        places: list[Column] = []
        for columns, run_numbers, rows, name in (
            (left, left_runs, left_rows, "left"),
            (right, right_runs, right_rows, "right"),
        ):
            own = own_object(columns, RunColumns, name)
            if own.dtypes != [np.dtype(np.float64)] * 2:
                refuse(f"{name} must have two columns of float64", name)
            gathered = [np.empty(len(rows)) for _ in range(2)]
            own.gather(run_numbers, rows, gathered)
            places += gathered
        out[:] = answers(self._bounds, places)
