"""Accumulators that hold values of partners: the value of one of them, deviations, quantiles, lists.

`Picked` holds the value of one partner: the first, the last, that of the least or the largest key. The others hold
values of many partners until all are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.engine.columns import concatenated
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import Int32, Int64
from streamjoin_ds.engine.probe.accumulators import Pairs, float_key, ordered_key
from streamjoin_ds.engine.probe.digits import Digits
from streamjoin_ds.spec.bound.calculations import BoundAggregate
from streamjoin_ds.spec.columns import Float64, Mask
from streamjoin_ds.spec.expression.node import nearest_floats

__all__ = ["Collected", "Deviation", "Picked", "Quantile", "lists_at", "value_at"]

_PARTNER = ["ts", "seq", "key", "value"]
_MOST_HELD = 1 << 20  # pairs that are held before all but the best of each tuple are let go


class Picked:
    """The value of one partner of each tuple; ties of the key go to the smaller event time, then to the smaller number.

    ``first`` and ``last`` have the event time as their key, and of equal ones the smaller or the larger number. A pair
    whose key is null is left out. A value may be null.
    """

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        self._aggregate, self._count, self._module = aggregate, count, module
        self._by = None if aggregate.function in ("first", "last") else aggregate.arguments[-1]
        self._is_reversed = aggregate.function in ("last", "max", "arg_max")
        # The best key of each tuple so far, where keys are numbers: most pairs are let go at once.
        self._best: Int64 = np.full(count, np.iinfo(np.int64).max, np.int64)
        self._positions: list[Int32] = []
        self._orders: list[tuple[Int64, Int64]] = []
        self._keys: list[pa.Array] = []
        self._values: list[pa.Array] = []
        self._held, self._limit = 0, _MOST_HELD

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        keys = pa.array(pairs.times_us) if self._by is None else pairs.values(self._by)
        kept: Mask | None = None
        if keys.null_count:
            kept = keys.is_valid().to_numpy(zero_copy_only=False)
        numbers = self._numbers(keys.filter(pa.array(kept)) if kept is not None else keys)
        positions = pairs.positions if kept is None else pairs.positions[kept]
        rows = None if kept is None else np.flatnonzero(kept).astype(np.int32)
        if numbers is not None:
            self._module.extremes(positions, numbers, self._best, largest=False)
            best = np.flatnonzero(numbers == self._best[positions]).astype(np.int32)
            rows = best if rows is None else rows[best]
        if rows is None:
            rows = np.arange(len(positions), dtype=np.int32)
        if not len(rows):
            return
        part = pairs.part(rows)
        values = pairs.values_at(self._aggregate.arguments[0], rows, part)
        self._take(part.positions, (part.times_us, part.numbers), keys.take(pa.array(rows)), values)

    def column(self) -> pa.Array:
        """Return the value of each tuple's partner; null where there is none."""
        if not self._held:
            return pa.nulls(self._count, self._aggregate.field.type)
        self._shrink()
        return value_at(self._count, self._positions[0], self._values[0])

    def partial(self) -> pa.Array:
        """Return each tuple's partner as a list of one, or of none: its time, number, key and value."""
        if not self._held:
            kinds = pa.int64() if self._by is None else self._by.kind, self._aggregate.field.type
            columns = [pa.array([], kind) for kind in (pa.int64(), pa.int64(), *kinds)]
            return lists_at(self._count, np.empty(0, np.int32), pa.StructArray.from_arrays(columns, _PARTNER))
        self._shrink()
        columns = [*self._orders[0], self._keys[0], self._values[0]]
        return lists_at(self._count, self._positions[0], pa.StructArray.from_arrays(columns, _PARTNER))

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other partners."""
        times, numbers, keys, values = partial.flatten().flatten()
        places = positions[partial.value_lengths().to_numpy() > 0]
        if len(places):
            self._take(places, (times.to_numpy(), numbers.to_numpy()), keys, values)

    def _take(self, positions: Int32, order: tuple[Int64, Int64], keys: pa.Array, values: pa.Array) -> None:
        self._positions.append(positions)
        self._orders.append(order)
        self._keys.append(keys)
        self._values.append(values)
        self._held += len(positions)
        if self._held > self._limit:
            self._shrink()
            self._limit = max(_MOST_HELD, 2 * self._held)

    def _numbers(self, keys: pa.Array) -> Int64 | None:
        numbers = ordered_key(keys)
        return numbers if numbers is None or not self._is_reversed else ~numbers

    def _shrink(self) -> None:
        """Let go of all pairs but the best of each tuple."""
        positions = np.concatenate(self._positions)
        times, numbers = (np.concatenate([order[place] for order in self._orders]) for place in (0, 1))
        keys, values = concatenated(self._keys), concatenated(self._values)
        ranks = self._numbers(keys)
        if ranks is None:
            ranks = pc.rank(keys, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
            ranks = -ranks if self._is_reversed else ranks
        ties = ~numbers if self._aggregate.function == "last" else numbers
        order = np.lexsort((ties, times, ranks, positions))
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = positions[order][1:] != positions[order][:-1]
        rows = order[is_first]
        taken = pa.array(rows)
        self._positions, self._orders = [positions[rows]], [(times[rows], numbers[rows])]
        self._keys, self._values, self._held = [keys.take(taken)], [values.take(taken)], len(rows)


def lists_at(count: int, positions: Int32, values: pa.Array) -> pa.ListArray:
    """Return the values at each of so many positions as a list; they come by position."""
    ends = np.cumsum(np.bincount(positions, minlength=count))
    return pa.ListArray.from_arrays(np.concatenate([[0], ends]).astype(np.int32), values)


def value_at(count: int, positions: Int32, values: pa.Array) -> pa.Array:
    """Return an array with a value at each of some positions, and null elsewhere."""
    places = np.full(count, -1, np.int64)
    places[positions] = np.arange(len(values))
    return values.take(pa.array(places, mask=places < 0))


class _Floats:
    """The values of an aggregate that are not null, as float64."""

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        self._aggregate, self._count, self._module = aggregate, count, module
        self._positions: list[Int32] = []
        self._values: list[Float64] = []

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

    def _held(self) -> tuple[Int32, Float64]:
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
        values = concatenated([piece[3] for piece in self._pieces])
        order = np.lexsort((numbers, times, positions))
        counts = np.bincount(positions, minlength=self._count)
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        rows = order[np.arange(len(order)) - begins < self._limit]
        piece = (positions[rows], times[rows], numbers[rows], values.take(pa.array(rows)))
        self._pieces, self._held = [piece], len(rows)


def _as_floats(values: pa.Array) -> Float64:
    if pa.types.is_decimal(values.type):
        return nearest_floats(values)
    return np.asarray(values.to_numpy(), np.float64)
