"""Distances on the globe as conditions: a kernel decides pairs where their columns lie, and leaves a few open.

::

    distance_m(e.lat, e.lon, w.lat, w.lon) <= 5000      columns of float64 without nulls: the kernel `NearPlaces`
                                                        other columns, and other expressions: `spec.evaluation`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.objects import Int32, NearPlaces, RunColumns
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.terms import Term
from streamjoin_ds.spec.expression.evaluation import float_values
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.functions.globe import NearBounds, decided, near_bounds

__all__ = ["NearTerm"]

Mask = npt.NDArray[np.bool_]
_Side = tuple[RunColumns, "Int32 | int", Int32]


class NearTerm:
    """A distance of two streams' places that is at most a number, or below it.

    Parameters
    ----------
    term : Term
    bounds : NearBounds
    most : float
        Metres.
    sides : sequence of (int, tuple of str)
        Of each place the stream, and the inside columns of latitude and longitude.
    """

    def __init__(self, term: Term, bounds: NearBounds, most: float, sides: list[tuple[int, tuple[str, ...]]]) -> None:
        self._condition, self._bounds, self._most, self._sides = term.condition, bounds, most, sides
        self._kernel: NearPlaces | None = None

    @classmethod
    def of(cls, bound: BoundJoin, term: Term) -> NearTerm | None:
        """Return the decision of a term; None where no kernel decides such a term."""
        condition = term.condition
        if condition.op not in ("<", "<=") or condition.args[0].op != "distance_m" or condition.args[1].op != "literal":
            return None
        distance, literal = condition.args
        columns = [node.column for node in distance.args[:4] if node.column is not None]
        most = float(float_values(literal, 1, _no_column)[0])
        bounds = near_bounds(distance, most)
        if bounds is None or len(columns) < 4:
            return None
        sides = []
        for lat, lon in (columns[:2], columns[2:]):
            stream = bound.member_names.index(lat.stream)
            names = tuple(bound.compared_name(stream, column.name) for column in (lat, lon))
            kinds = [bound.tuple_schema(stream).field(name).type for name in names]
            if lat.stream != lon.stream or kinds != [pa.float64()] * 2:
                return None
            sides.append((stream, names))
        return cls(term, bounds, most, sides) if sides[0][0] != sides[1][0] else None

    def mask(self, selection: Mapping[int, Selection]) -> Mask | None:
        """Return which pairs are near; None where a column has nulls, so that the kernel cannot tell."""
        if any(selection[stream].run_set.plain(names) != names for stream, names in self._sides):
            return None
        kernels = selection[self._sides[0][0]].run_set.runs[0].form.kernels
        if self._kernel is None:
            self._kernel = kernels.module.NearPlaces(self._bounds, kernels.implementation)
        left, right = (selection[stream].gathered(names, 0, len(selection[stream])) for stream, names in self._sides)
        answers = np.empty(len(left[2]), np.uint8)
        self._kernel.decide(*left, *right, answers)
        return decided(
            self._condition, self._most, answers, lambda ones: [*_gathered(left, ones), *_gathered(right, ones)]
        )


def _gathered(side: _Side, pairs: npt.NDArray[np.intp]) -> list[npt.NDArray[Any]]:
    """Return latitudes and longitudes of some pairs."""
    columns, run_numbers, rows = side
    found = [np.empty(len(pairs)) for _ in range(2)]
    columns.gather(run_numbers if isinstance(run_numbers, int) else run_numbers[pairs], rows[pairs], found)
    return found


def _no_column(wanted: Column) -> pa.Array:
    raise AssertionError(wanted)
