"""Sums and extremes of columns over each probe's partners, while these are counted: no pair leaves the kernels.

A sum of floats is exact. With ``s = 1.5 * 2**(52 + e)`` the difference ``(x + s) - s`` is the multiple of ``2**e`` that
is nearest to a smaller ``x``, and what it leaves of ``x`` is exact too (Rump, Ogita and Oishi, 2008, "Accurate
floating-point summation part I", section 3). So each value is cut into three parts of 33 bits, and up to `MOST_SUMMED`
parts are added as float64 without an error. A group that has a value that the cuts do not fit is *left open*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Column, Int32
from streamjoin_ds.engine.kernels.twins.arguments import index, own, refuse
from streamjoin_ds.engine.kernels.twins.run_columns import RunColumns
from streamjoin_ds.engine.kernels.twins.sums import extremes
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Float64, Mask

__all__ = ["PartnerSums"]

_PART_BITS = 33
_HEADROOM = 14  # bits that a value may have above the first that was seen
_HALF_BITS = 32
_KINDS = {"f8": np.float64, "f4": np.float32, "i8": np.int64, "i4": np.int32}
_NONE = {"sum": 0, "min": INT64_MAX, "max": INT64_MIN}


class PartnerSums:
    """Sums and extremes over partners, for groups that are numbered from 0: given to `counting` of a probing.

    Parameters
    ----------
    count : int
        How many groups there are. A probe is a group.
    columns : RunColumns
        The columns of the runs that are probed.
    wanted : sequence of (int, str, str)
        What is wanted: the number of a column; "sum", "min" or "max"; and what the column's items are, "f8", "f4", "i8"
        or "i4".
    """

    def __init__(
        self,
        count: int,
        columns: objects.RunColumns,
        wanted: Sequence[tuple[int, str, str]],
        implementation: str | None = None,
    ) -> None:
        del implementation
        self.count, self._columns = index(count, "count"), own(columns, RunColumns, "columns")
        self._wanted, self._open = list(wanted), np.zeros(self.count, np.bool_)
        self._exponents: dict[int, int] = {}
        self._parts: list[tuple[Column, ...]] = []
        for column, function, kind in self._wanted:
            if function not in _NONE or kind not in _KINDS or not 0 <= column < len(self._columns.dtypes):
                refuse("wanted has a column that is not there, or what cannot be done with it", "wanted")
            if self._columns.item_bytes[column] != np.dtype(_KINDS[kind]).itemsize:
                refuse("a column's items are of another width", "wanted")
            if function == "sum":
                parts = [np.zeros(self.count, kind[0] + "8") for _ in range(3 if kind[0] == "f" else 2)]
            else:
                parts = [np.full(self.count, _NONE[function], np.int64)]
            self._parts.append(tuple(parts))

    def parts(self, number: int) -> tuple[Column, ...]:
        """Return what is known of each group's values, by the number in `wanted`.

        Of a sum of floats these are three float64 arrays, whose sum is the sum; of integers two int64 arrays, the first
        of which counts 2**32 times. An extreme is one int64 array, in the order that `extremes` has for floats. What is
        in a group without values, or left open, means nothing.
        """
        if not 0 <= number < len(self._parts):
            refuse("there is no such number", "number")
        return self._parts[number]

    def left_open(self) -> Mask:
        """Return which groups are to be added up otherwise; which these are may differ between implementations."""
        return self._open

    def add(self, groups: Int32, run_numbers: Int32 | int, rows: Int32) -> None:
        """Add the rows of some runs, each to a group."""
        for number, (column, function, kind) in enumerate(self._wanted):
            items = np.empty(len(rows), self._columns.dtypes[column])
            outs: list[Column | None] = [None] * len(self._columns.dtypes)
            outs[column] = items
            self._columns.gather(run_numbers, rows, outs)
            values = items.view(_KINDS[kind]).astype(kind[0] + "8")
            parts = self._parts[number]
            if function != "sum":
                extremes(groups, values, parts[0], largest=function == "max")
            elif kind[0] == "i":
                np.add.at(parts[0], groups, values >> _HALF_BITS)
                np.add.at(parts[1], groups, values & ((1 << _HALF_BITS) - 1))
            else:
                self._add_floats(number, groups, values)

    def _add_floats(self, number: int, groups: Int32, values: Float64) -> None:
        if number not in self._exponents and values.any():
            largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
            self._exponents[number] = min(max(math.frexp(largest)[1] + _HEADROOM, -900), 1000)
        exponent, rest = self._exponents.get(number, 0), values
        with np.errstate(invalid="ignore"):
            for place, sums in enumerate(self._parts[number], 1):
                step = math.ldexp(1.5, 52 + exponent - _PART_BITS * place)
                part = (rest + step) - step
                if place == len(self._parts[number]):
                    is_unfit = ~(np.abs(values) < math.ldexp(1.0, exponent)) | (part != rest)
                    part = rest
                    self._open[groups[is_unfit]] = True
                rest = rest - part
                np.add.at(sums, groups, part)
