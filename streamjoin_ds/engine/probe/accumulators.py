"""Aggregates that keep a number for each decided tuple: counts, sums, averages, extremes of numbers and times."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.probe.aggregation.exact_sums import SUM_TYPE, Digits
from streamjoin_ds.engine.probe.aggregation.pairs import Int32, Int64, Pairs
from streamjoin_ds.errors import AggregateOverflowError
from streamjoin_ds.spec.bound.calculations import BoundAggregate

__all__ = ["Accumulator", "Average", "Count", "Extreme", "Sum", "float_key", "ordered_key"]


_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_EXACT_FLOAT = 1 << 53  # whole numbers up to this are exact in float64
_DIGITS = Context(prec=100)
_SUMS_TYPE = pa.struct({"values": pa.int64(), "sum": SUM_TYPE})
_EXTREME_TYPE = pa.struct({"values": pa.int64(), "key": pa.int64()})


class Accumulator(Protocol):
    """What becomes of one aggregate."""

    def add(self, pairs: Pairs, /) -> None:
        """Take some pairs, in any order."""

    def column(self) -> pa.Array:
        """Return the aggregate of each decided tuple, after all pairs were taken."""

    def partial(self) -> pa.Array:
        """Return what is known of each decided tuple, after all pairs were taken: an element without nulls."""

    def add_partial(self, positions: Int32, partial: pa.Array, /) -> None:
        """Take what `partial` gave over other pairs, each element for the tuple at a position, none of them twice."""


class Count:
    """How many partners a tuple has, or how many values of an expression are not null."""

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        del module
        self._argument = aggregate.arguments[0] if aggregate.arguments else None
        self.counts: Int64 = np.zeros(count, np.int64)

    @property
    def counts_pairs(self) -> bool:
        """Whether it counts the partners, not values of theirs."""
        return self._argument is None

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        self.counts += pairs.counts if self._argument is None else pairs.present_counts(self._argument)

    def column(self) -> pa.Array:
        """Return the counts."""
        return pa.array(self.counts)

    def partial(self) -> pa.Array:
        """Return the counts."""
        return pa.array(self.counts)

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other counts."""
        self.counts[positions] += partial.to_numpy()


class _Sums:
    """The exact sums of an aggregate's values, and how many there were."""

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        self._aggregate, (self._argument,) = aggregate, aggregate.arguments
        self._counts: Int64 = np.zeros(count, np.int64)
        kind = self._argument.kind
        self._is_float, self._is_decimal = pa.types.is_floating(kind), pa.types.is_decimal(kind)
        self._sums = module.ExactSums(count)
        self._partials: list[tuple[Int32, pa.Array]] = []

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        positions, values = pairs.present(self._argument)
        self._counts += pairs.present_counts(self._argument)
        if self._is_float:
            self._sums.add_floats(positions, np.ascontiguousarray(values.to_numpy(), np.float64))
        elif self._is_decimal:
            words = np.frombuffer(values.buffers()[1], np.int64)
            self._sums.add_wide(positions, words[2 * values.offset : 2 * (values.offset + len(values))])
        else:
            self._sums.add_integers(positions, np.ascontiguousarray(values.to_numpy(), np.int64))

    def partial(self) -> pa.Array:
        """Return the digits of the sums, and how many values there were."""
        return pa.StructArray.from_arrays([pa.array(self._counts), self._digits().partial()], fields=list(_SUMS_TYPE))

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other sums."""
        counts, sums = partial.flatten()
        self._counts[positions] += counts.to_numpy()
        self._partials.append((positions, sums))

    def _digits(self) -> Digits:
        return Digits.of(self._sums).with_partials(self._partials)

    def _overflow(self) -> AggregateOverflowError:
        one = self._aggregate
        msg = f"'{one.text}' over the partners of some tuple does not fit {one.field.type}"
        return AggregateOverflowError(msg, name=one.name, hint="divide by 1, which sums floats: sum(w.x / 1)")

    def _decimals(self, sums: list[int | None], scale: int) -> pa.Array:
        kind = self._aggregate.field.type
        most = 10**kind.precision
        if any(each is not None and abs(each) >= most for each in sums):
            raise self._overflow()
        return pa.array([None if each is None else Decimal(each).scaleb(-scale, _DIGITS) for each in sums], kind)


class Sum(_Sums):
    """The sum of the values that are not null; null where there is none."""

    def column(self) -> pa.Array:
        """Return the sums.

        Raises
        ------
        AggregateOverflowError
            A sum does not fit its column.
        """
        is_none, digits = self._counts == 0, self._digits()
        if self._is_float:
            return pa.array(digits.rounded(), mask=is_none)
        if self._is_decimal:
            scale = self._argument.kind.scale
            sums = zip(digits.whole(), is_none, strict=True)
            return self._decimals([None if lacks else each for each, lacks in sums], scale)
        found = digits.int64_sums()
        if found is None:
            raise self._overflow()
        return pa.array(found, mask=is_none)


class Average(_Sums):
    """The mean of the values that are not null; null where there is none.

    Of floats it is the sum, rounded, divided by their number. Of integers the exact quotient is rounded once. Of
    decimals it has four more places, rounded half up.
    """

    def column(self) -> pa.Array:
        """Return the means."""
        is_none, digits = self._counts == 0, self._digits()
        if self._is_float:
            return pa.array(digits.rounded() / np.maximum(self._counts, 1), mask=is_none)
        if self._is_decimal:
            more = self._aggregate.field.type.scale - self._argument.kind.scale
            sums = zip(digits.whole(), self._counts.tolist(), strict=True)
            means = [_half_up(each * 10**more, count) if count else None for each, count in sums]
            return self._decimals(means, self._aggregate.field.type.scale)
        found = digits.int64_sums()
        if found is not None and np.all(np.abs(found.astype(np.float64)) < _EXACT_FLOAT):
            return pa.array(found / np.maximum(self._counts, 1), mask=is_none)
        both = zip(digits.whole(), self._counts.tolist(), strict=True)
        return pa.array([each / count if count else None for each, count in both], pa.float64())


class Extreme:
    """The smallest or largest value that is not null, of numbers, times and booleans.

    NaN is larger than every number, and -0.0 smaller than 0.0.
    """

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        (self._argument,), self._module = aggregate.arguments, module
        self._is_max = aggregate.function == "max"
        self._keys: Int64 = np.full(count, _INT64_MIN if self._is_max else _INT64_MAX, np.int64)
        self._counts: Int64 = np.zeros(count, np.int64)

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        positions, values = pairs.present(self._argument)
        self._counts += pairs.present_counts(self._argument)
        # The kernel finds the numbers of floats itself.
        is_float = pa.types.is_floating(values.type)
        keys = np.ascontiguousarray(values.to_numpy(), np.float64) if is_float else ordered_key(values)
        assert keys is not None
        self._module.extremes(positions, keys, self._keys, largest=self._is_max)

    def column(self) -> pa.Array:
        """Return the values."""
        is_none = self._counts == 0
        return _value_of_key(np.where(is_none, 0, self._keys), self._argument.kind, is_none)

    def partial(self) -> pa.Array:
        """Return the keys of the values, and how many values there were."""
        return pa.StructArray.from_arrays([pa.array(self._counts), pa.array(self._keys)], fields=list(_EXTREME_TYPE))

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other keys; that of no value is beyond all."""
        counts, keys = (part.to_numpy() for part in partial.flatten())
        self._counts[positions] += counts
        extreme = np.maximum if self._is_max else np.minimum
        self._keys[positions] = extreme(self._keys[positions], keys)


def float_key(values: npt.NDArray[np.float64]) -> Int64:
    """Return int64 numbers in the order of floats: NaN is the largest, -0.0 is below 0.0."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & np.int64(_INT64_MAX)), np.int64)


def ordered_key(values: pa.Array) -> Int64 | None:
    """Return int64 numbers in the order of values without nulls; None for types that these cannot hold."""
    kind, types = values.type, pa.types
    if types.is_floating(kind):
        return float_key(values.to_numpy().astype(np.float64))
    if types.is_boolean(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
    if types.is_signed_integer(kind) or types.is_timestamp(kind) or types.is_duration(kind) or types.is_time64(kind):
        plain = values if types.is_integer(kind) else values.view(pa.int64())
        return np.ascontiguousarray(plain.to_numpy(), dtype=np.int64)
    if types.is_date32(kind):
        return np.ascontiguousarray(values.view(pa.int32()).to_numpy(), dtype=np.int64)
    return None


def _value_of_key(keys: Int64, kind: pa.DataType, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the values of which `ordered_key` made these numbers."""
    types = pa.types
    if types.is_floating(kind):
        floats = (keys ^ ((keys >> 63) & np.int64(_INT64_MAX))).view(np.float64)
        return pa.array(floats, mask=is_null).cast(kind)
    if types.is_boolean(kind):
        return pa.array(keys != 0, mask=is_null)
    if types.is_date32(kind):
        return pa.array(keys.astype(np.int32), mask=is_null).view(kind)
    whole = pa.array(keys, mask=is_null)
    return whole.cast(kind) if types.is_integer(kind) else whole.view(kind)


def _half_up(dividend: int, divisor: int) -> int:
    quotient, rest = divmod(abs(dividend), divisor)
    quotient += 2 * rest >= divisor
    return -quotient if dividend < 0 else quotient
