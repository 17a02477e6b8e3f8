"""Aggregates for which values of many partners are held until all are known: stddev, quantile, collect."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.probe.accumulators import float_key
from streamjoin_ds.engine.probe.aggregation.exact_sums import Digits
from streamjoin_ds.engine.probe.aggregation.pairs import Int32, Int64, Pairs
from streamjoin_ds.engine.probe.aggregation.picked import joined_arrays, lists_at
from streamjoin_ds.spec.bound.calculations import BoundAggregate
from streamjoin_ds.spec.expression.node import nearest_floats

__all__ = ["Collected", "Deviation", "Quantile"]


Floats = npt.NDArray[np.float64]
_MOST_HELD = 1 << 20  # pairs that `Collected` holds before it lets go of those beyond its limit


class _Floats:
    """The values of an aggregate that are not null, as float64."""

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        self._aggregate, self._count, self._module = aggregate, count, module
        self._positions: list[Int32] = []
        self._values: list[Floats] = []

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        positions, values = pairs.present(self._aggregate.arguments[0])
        if len(positions):
            self._positions.append(positions.copy())
            self._values.append(_as_floats(values))

    def partial(self) -> pa.Array:
        """Return the values of each tuple as a list."""
        positions, values = self._held()
        return lists_at(self._count, positions, pa.array(values[np.argsort(positions, kind="stable")]))

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other values."""
        self._positions.append(np.repeat(positions, partial.value_lengths().to_numpy()))
        self._values.append(partial.flatten().to_numpy())

    def _held(self) -> tuple[Int32, Floats]:
        if not self._positions:
            return np.empty(0, np.int32), np.empty(0, np.float64)
        return np.concatenate(self._positions), np.concatenate(self._values)


class Deviation(_Floats):
    """The standard deviation of a sample: null of fewer than two values.

    It is ``sqrt(sum((x - mean)**2) / (n - 1))``, where both sums are exact before they are rounded, so it does not
    depend on the order of the partners.
    """

    def column(self) -> pa.Array:
        """Return the deviations."""
        positions, values = self._held()
        counts = np.bincount(positions, minlength=self._count)
        sums, squares = self._module.ExactSums(self._count), self._module.ExactSums(self._count)
        sums.add_floats(positions, values)
        with np.errstate(invalid="ignore", over="ignore"):
            means = Digits.of(sums).rounded() / np.maximum(counts, 1)
            squares.add_floats(positions, (values - means[positions]) ** 2)
            found = np.sqrt(Digits.of(squares).rounded() / np.maximum(counts - 1, 1))
        return pa.array(found, mask=counts < 2)


class Quantile(_Floats):
    """The exact quantile: between the two values next to ``share * (n - 1)`` it is interpolated. NaN is the largest."""

    def column(self) -> pa.Array:
        """Return the quantiles; null where there is no value."""
        positions, values = self._held()
        values = values[np.lexsort((float_key(values), positions))]
        counts = np.bincount(positions, minlength=self._count)
        if not len(values):
            return pa.nulls(self._count, pa.float64())
        begins = np.cumsum(counts) - counts
        assert self._aggregate.constant is not None
        places = np.maximum(counts - 1, 0) * self._aggregate.constant
        below, above = np.floor(places), np.ceil(places)
        last = len(values) - 1
        low, high = (values[np.minimum(begins + place.astype(np.int64), last)] for place in (below, above))
        with np.errstate(invalid="ignore", over="ignore"):
            between = (above - places) * low + (places - below) * high
        return pa.array(np.where(low == high, low, np.where(below == above, low, between)), mask=counts == 0)


class Collected:
    """The values of the first partners that have one, as a list; by event time, then number."""

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        del module
        assert aggregate.constant is not None
        self._aggregate, self._count, self._limit = aggregate, count, int(aggregate.constant)
        self._pieces: list[tuple[Int32, Int64, Int64, pa.Array]] = []
        self._held, self._most_held = 0, _MOST_HELD

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        argument = self._aggregate.arguments[0]
        values = pairs.values(argument)
        positions, present = pairs.present(argument)
        rows: Any = slice(None)
        if values.null_count:
            rows = values.is_valid().to_numpy(zero_copy_only=False)
        if not len(positions):
            return
        self._take((positions.copy(), pairs.times_us[rows], pairs.numbers[rows], present))

    def column(self) -> pa.Array:
        """Return the lists; an empty one where there is no value."""
        positions, _, _, values = self._best()
        return lists_at(self._count, positions, values).cast(self._aggregate.field.type)

    def partial(self) -> pa.Array:
        """Return the partners of each tuple as a list: time, number and value of each."""
        positions, times, numbers, values = self._best()
        return lists_at(
            self._count, positions, pa.StructArray.from_arrays([times, numbers, values], ["ts", "seq", "value"])
        )

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other partners."""
        times, numbers, values = partial.flatten().flatten()
        self._take(
            (np.repeat(positions, partial.value_lengths().to_numpy()), times.to_numpy(), numbers.to_numpy(), values)
        )

    def _take(self, piece: tuple[Int32, Int64, Int64, pa.Array]) -> None:
        self._pieces.append(piece)
        self._held += len(piece[0])
        if self._held > self._most_held:
            self._shrink()
            self._most_held = max(_MOST_HELD, 2 * self._held)

    def _best(self) -> tuple[Int32, Int64, Int64, pa.Array]:
        """Return the partners within the limit, in order."""
        if not self._pieces:
            none: Int64 = np.empty(0, np.int64)
            return np.empty(0, np.int32), none, none, pa.array([], self._aggregate.field.type.value_type)
        self._shrink()
        return self._pieces[0]

    def _shrink(self) -> None:
        """Let go of all partners beyond the limit, and put the others in order."""
        positions, times, numbers = (np.concatenate([piece[place] for piece in self._pieces]) for place in range(3))
        values = joined_arrays([piece[3] for piece in self._pieces])
        order = np.lexsort((numbers, times, positions))
        counts = np.bincount(positions, minlength=self._count)
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        rows = order[np.arange(len(order)) - begins < self._limit]
        piece = (positions[rows], times[rows], numbers[rows], values.take(pa.array(rows)))
        self._pieces, self._held = [piece], len(rows)


def _as_floats(values: pa.Array) -> Floats:
    if pa.types.is_decimal(values.type):
        return nearest_floats(values)
    return np.asarray(values.to_numpy(), np.float64)
