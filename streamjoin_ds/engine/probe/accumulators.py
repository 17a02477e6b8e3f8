"""Accumulators that keep numbers for each decided tuple: counts, sums, averages, extremes of numbers and times.

::

    pairs, some at a time ──► values of an argument ──► accumulator: add ──► value, or what one cell knows of it
    (position, partner)       (`Pairs`)                 (`Accumulator`)      (`partial`, `add_partial`)

*While partners are counted.* Of plain columns without nulls kernels add up numbers and find extremes while they count
(`PartnerSums`), and no pair is written: `wanted` says what, and `add_parts` takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import Int32, Int64
from streamjoin_ds.engine.probe.digits import SUM_TYPE, Digits, int64_parts, rounded_parts
from streamjoin_ds.engine.storage.selection import Selection, sequence_numbers
from streamjoin_ds.errors import AggregateOverflowError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.calculations import BoundAggregate, BoundArgument
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, TS, Float64, Mask
from streamjoin_ds.spec.expression.calculation import output_values
from streamjoin_ds.spec.expression.evaluation import Evaluation
from streamjoin_ds.spec.expression.node import EXACT_FLOAT, wide
from streamjoin_ds.spec.expression.predicate import Column

__all__ = [
    "Accumulator",
    "Average",
    "Count",
    "Extreme",
    "Pairs",
    "Sum",
    "Wanted",
    "float_key",
    "ordered_key",
]

_ITEMS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("f8", pa.types.is_float64),
    ("f4", pa.types.is_float32),
    ("i8", pa.types.is_int64),
    ("i4", pa.types.is_int32),
)
_DIGITS = Context(prec=100)
_HALF_BITS = np.int64(32)
_SUMS_TYPE = pa.struct({"values": pa.int64(), "sum": SUM_TYPE})
_EXTREME_TYPE = pa.struct({"values": pa.int64(), "key": pa.int64()})


class Pairs:
    """Some pairs; what was made of an argument once is kept, since several aggregates may be over it.

    Parameters
    ----------
    bound : BoundJoin
    stream : int
        The decided stream.
    selection : Selection
        The decided tuples.
    positions : ndarray, shape (n,), int32
        For each pair the position of its decided tuple in the selection. Copy what is to stay: the probe writes the
        next pairs there.
    found : Selection
        Its partner.
    """

    def __init__(self, bound: BoundJoin, stream: int, selection: Selection, positions: Int32, found: Selection) -> None:
        self._bound, self._stream, self._selection = bound, stream, selection
        self.positions, self._found = positions, found
        self._module = selection.run_set.module
        self._values: dict[str, pa.Array] = {}
        self._present: dict[str, tuple[Int32, pa.Array]] = {}

    @cached_property
    def counts(self) -> Int64:
        """How many of the pairs each decided tuple has."""
        return self._tallied(self.positions)

    def present_counts(self, argument: BoundArgument) -> Int64:
        """Return how many of the pairs of each decided tuple have a value that is not null."""
        positions = self.present(argument)[0]
        return self.counts if positions is self.positions else self._tallied(positions)

    def _tallied(self, positions: Int32) -> Int64:
        counts = np.zeros(len(self._selection), np.int64)
        self._module.tally(positions, counts)
        return counts

    @cached_property
    def times_us(self) -> Int64:
        """The partners' event times, in microseconds."""
        return np.ascontiguousarray(self._found.times_us(), dtype=np.int64)

    @cached_property
    def numbers(self) -> Int64:
        """The partners' numbers within their stream."""
        return sequence_numbers(self._found)

    def part(self, rows: Int32) -> Pairs:
        """Return the pairs with these numbers."""
        return Pairs(self._bound, self._stream, self._selection, self.positions[rows], self._found.take(rows))

    def values_at(self, argument: BoundArgument, rows: Int32, part: Pairs) -> pa.Array:
        """Return an argument's values for the pairs with these numbers, which are `part`.

        A column is gathered for these alone. An expression is calculated for all: an error does not depend on which
        pairs come together.
        """
        if argument.column is not None and argument.text not in self._values:
            return part.values(argument)
        return self.values(argument).take(pa.array(rows))

    def values(self, argument: BoundArgument) -> pa.Array:
        """Return an argument's values, one for each pair.

        Raises
        ------
        AggregateOverflowError
            One does not fit the argument's type.
        """
        if argument.text not in self._values:
            self._values[argument.text] = self._valued(argument)
        return self._values[argument.text]

    def present(self, argument: BoundArgument) -> tuple[Int32, pa.Array]:
        """Return the positions and the values of those pairs whose value is not null."""
        if argument.text not in self._present:
            values, positions = self.values(argument), self.positions
            if values.null_count:
                mask = values.is_valid()
                values, positions = values.filter(mask), positions[mask.to_numpy(zero_copy_only=False)]
            self._present[argument.text] = positions, values
        return self._present[argument.text]

    def _of(self, stream: int) -> Selection:
        return self._decided if stream == self._stream else self._found

    @cached_property
    def _decided(self) -> Selection:
        return self._selection.take(self.positions)

    def _valued(self, argument: BoundArgument) -> pa.Array:
        if argument.column is not None:
            assert argument.stream is not None
            inside = self._bound.inside_name(argument.stream, argument.column.name)
            values = self._of(argument.stream).column(inside)
            return values.view(argument.kind) if inside == TS else values
        numbers = {name: number for number, name in enumerate(self._bound.member_names)}

        def column(wanted: Column) -> pa.Array:
            stream = numbers[wanted.stream]
            return self._of(stream).column(self._bound.compared_name(stream, wanted.name))

        assert argument.typed is not None
        if argument.typed.family != "number":
            return output_values(argument.typed, argument.kind, len(self.positions), column)
        rows = Evaluation(len(self.positions), column)
        return _fitting(rows.array(rows.value(argument.typed)), argument)


def _fitting(values: pa.Array, argument: BoundArgument) -> pa.Array:
    """Return numbers in the argument's type. One that does not fit is an error: as a null it would not be summed up."""
    assert argument.typed is not None
    is_plain = values.type == pa.int64() and not argument.typed.scale and not pa.types.is_decimal(argument.kind)
    try:
        return (values if is_plain else wide(values, argument.typed)).cast(argument.kind)
    except pa.ArrowInvalid:
        msg = f"a value of '{_text(argument)}' over some pair does not fit {argument.kind}"
        hint = "divide by 1, which calculates in floats: sum(w.x * w.y / 1)"
        raise AggregateOverflowError(msg, name=_text(argument), hint=hint) from None


def _text(argument: BoundArgument) -> str:
    return ", ".join(map(str, argument.columns))


class Wanted(NamedTuple):
    """What kernels add up of a column of the partners while they count these; see `PartnerSums`.

    `function` is empty where the number of partners is enough, if the column has no nulls.
    """

    column: str
    function: str
    kind: str


def _wanted(function: str, argument: BoundArgument, column: str) -> Wanted | None:
    """Return what gives a sum or an extreme of the items of a column; None: kernels do not add up such items."""
    kind, types = argument.kind, pa.types
    for item, is_kind in _ITEMS:
        if is_kind(kind):
            return Wanted(column, function, item)
    if function == "sum":
        return None
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time64(kind):
        return Wanted(column, function, "i8")
    return Wanted(column, function, "i4") if types.is_date32(kind) else None


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

    def wanted(self, column: str) -> Wanted:
        """Return that the number of partners is enough, if the column has no nulls."""
        return Wanted(column, "", "")

    def add_parts(self, positions: Int32, counts: Int64, parts: Sequence[npt.NDArray[Any]]) -> None:
        """Take the number of partners of some tuples."""
        del parts
        self.counts[positions] += counts

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
        self._parts: Sequence[npt.NDArray[Any]] = ()  # those of all tuples, until anything else is known of one
        self._partials: list[tuple[Int32, pa.Array]] = []

    def add(self, pairs: Pairs) -> None:
        """Take some pairs."""
        self._put_parts()
        positions, values = pairs.present(self._argument)
        self._counts += pairs.present_counts(self._argument)
        if self._is_float:
            self._sums.add_floats(positions, np.ascontiguousarray(values.to_numpy(), np.float64))
        elif self._is_decimal:
            words = np.frombuffer(values.buffers()[1], np.int64)
            self._sums.add_wide(positions, words[2 * values.offset : 2 * (values.offset + len(values))])
        else:
            self._sums.add_integers(positions, np.ascontiguousarray(values.to_numpy(), np.int64))

    def wanted(self, column: str) -> Wanted | None:
        """Return the sum of the column, of integers and floats."""
        return _wanted("sum", self._argument, column)

    def add_parts(self, positions: Int32, counts: Int64, parts: Sequence[npt.NDArray[Any]]) -> None:
        """Take the sums of some tuples, and how many values these are of."""
        self._counts[positions] += counts
        if len(positions) == len(self._counts):
            self._parts = parts
        else:
            self._put(positions, parts)

    def _put_parts(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, ()
            self._put(np.arange(len(self._counts), dtype=np.int32), parts)

    def _put(self, positions: Int32, parts: Sequence[npt.NDArray[Any]]) -> None:
        if self._is_float:
            for part in parts:
                self._sums.add_floats(positions, part)
            return
        upper, lower = parts
        words = np.stack([upper << _HALF_BITS, upper >> _HALF_BITS], axis=1).reshape(-1)
        self._sums.add_wide(positions, words)
        self._sums.add_integers(positions, lower)

    def partial(self) -> pa.Array:
        """Return the digits of the sums, and how many values there were."""
        return pa.StructArray.from_arrays([pa.array(self._counts), self._digits().partial()], fields=list(_SUMS_TYPE))

    def add_partial(self, positions: Int32, partial: pa.Array) -> None:
        """Take other sums."""
        counts, sums = partial.flatten()
        self._counts[positions] += counts.to_numpy()
        self._partials.append((positions, sums))

    def _digits(self) -> Digits:
        self._put_parts()
        return Digits.of(self._sums).with_partials(self._partials)

    def _rounded(self) -> Float64:
        """Return the sums of floats."""
        found = rounded_parts(self._parts) if self._parts and not self._partials else None
        return self._digits().rounded() if found is None else found

    def _int64_sums(self) -> Int64 | None:
        """Return the sums of integers; None if one does not fit."""
        found = int64_parts(self._parts) if self._parts and not self._partials else None
        return self._digits().int64_sums() if found is None else found

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
        is_none = self._counts == 0
        if self._is_float:
            return pa.array(self._rounded(), mask=is_none)
        if self._is_decimal:
            scale = self._argument.kind.scale
            sums = zip(self._digits().whole(), is_none, strict=True)
            return self._decimals([None if lacks else each for each, lacks in sums], scale)
        found = self._int64_sums()
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
        is_none = self._counts == 0
        if self._is_float:
            return pa.array(self._rounded() / np.maximum(self._counts, 1), mask=is_none)
        if self._is_decimal:
            more = self._aggregate.field.type.scale - self._argument.kind.scale
            sums = zip(self._digits().whole(), self._counts.tolist(), strict=True)
            means = [_half_up(each * 10**more, count) if count else None for each, count in sums]
            return self._decimals(means, self._aggregate.field.type.scale)
        found = self._int64_sums()
        if found is not None and np.all(np.abs(found.astype(np.float64)) < EXACT_FLOAT):
            return pa.array(found / np.maximum(self._counts, 1), mask=is_none)
        both = zip(self._digits().whole(), self._counts.tolist(), strict=True)
        return pa.array([each / count if count else None for each, count in both], pa.float64())


class Extreme:
    """The smallest or largest value that is not null, of numbers, times and booleans.

    NaN is larger than every number, and -0.0 smaller than 0.0.
    """

    def __init__(self, aggregate: BoundAggregate, count: int, module: KernelModule) -> None:
        (self._argument,), self._module = aggregate.arguments, module
        self._is_max = aggregate.function == "max"
        self._keys: Int64 = np.full(count, INT64_MIN if self._is_max else INT64_MAX, np.int64)
        self._counts: Int64 = np.zeros(count, np.int64)

    def wanted(self, column: str) -> Wanted | None:
        """Return the extreme of the column, of integers, floats and times."""
        return _wanted("max" if self._is_max else "min", self._argument, column)

    def add_parts(self, positions: Int32, counts: Int64, parts: Sequence[npt.NDArray[Any]]) -> None:
        """Take the keys of some tuples, and how many values these are of."""
        (keys,) = parts
        self._more(positions, counts, keys)

    def _more(self, positions: Int32, counts: Int64, keys: Int64) -> None:
        self._counts[positions] += counts
        extreme = np.maximum if self._is_max else np.minimum
        self._keys[positions] = extreme(self._keys[positions], keys)

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
        self._more(positions, counts, keys)


def float_key(values: Float64) -> Int64:
    """Return int64 numbers in the order of floats: NaN is the largest, -0.0 is below 0.0."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & np.int64(INT64_MAX)), np.int64)


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


def _value_of_key(keys: Int64, kind: pa.DataType, is_null: Mask) -> pa.Array:
    """Return the values of which `ordered_key` made these numbers."""
    types = pa.types
    if types.is_floating(kind):
        floats = (keys ^ ((keys >> 63) & np.int64(INT64_MAX))).view(np.float64)
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
