"""Some pairs of decided tuples and partners, and the values of aggregates' arguments over them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.storage.selection import Selection, sequence_numbers
from streamjoin_ds.errors import AggregateOverflowError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.calculations import BoundArgument, output_values
from streamjoin_ds.spec.columns import TS
from streamjoin_ds.spec.expression.evaluation import Rows
from streamjoin_ds.spec.expression.node import wide
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["Pairs"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
        rows = Rows(len(self.positions), column)
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
