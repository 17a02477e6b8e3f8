"""The decisions on found pairs that no join kernel makes: residuals, self-pairs, conditions beyond the 16th.

Two kinds of residuals need less than an evaluation of their expression.

*Distances on the globe.* A kernel decides pairs where their columns lie, and leaves a few open::

    distance_m(e.lat, e.lon, w.lat, w.lon) <= 5000      columns of float64 without nulls: the kernel `NearPlaces`
                                                        other columns, and other expressions: `expression.evaluation`

*Comparisons of plain columns*, where the limits are the values. The kernels have decided these already::

    e.x BETWEEN w.lo AND w.hi     kernels test the limits of x, lo and hi: pairs that are found need no second look
                                  ... unless an infinity, a NaN or a whole number beyond 2^53 is among the values

Whether the limits are the values is asked of the ranges of both sides' values, which are in zone maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.engine.kernels.objects import Int32, NearPlaces, RunColumns
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run_form import Range
from streamjoin_ds.engine.storage.selection import Selection, sequence_numbers
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.limit import plain_comparison
from streamjoin_ds.spec.bound.terms import Term
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Mask
from streamjoin_ds.spec.expression.evaluation import float_values, holds
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.functions.globe import NearBounds, decided, near_bounds

__all__ = ["NearTerm", "Residual", "Settled", "same_inputs", "settled_terms"]

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


class Settled(Struct, frozen=True):
    """A residual that is decided by conditions that only find, where the values are small enough.

    Attributes
    ----------
    term : Term
    keys : tuple of (int, int)
        Stream and key of both sides.
    below : float
        The values must be nearer to zero than this.
    """

    term: Term
    keys: tuple[tuple[int, int], tuple[int, int]]
    below: float

    def is_decided(self, range_of: Callable[[int, int], Range]) -> bool:
        """Return whether it is, given the range of a stream's key."""
        for stream, key in self.keys:
            smallest, largest = range_of(stream, key)
            if not -self.below < smallest <= largest < self.below:
                return False
        return True


def settled_terms(bound: BoundJoin, joined: Sequence[int], stream: int, tested: int) -> list[Settled]:
    """Return the residuals of which kernels may have tested all that they say.

    Parameters
    ----------
    bound : BoundJoin
    joined : sequence of int
        Streams of the partial results.
    stream : int
        The stream that joins them.
    tested : int
        How many of the conditions that only find are tested: the first ones between these streams.
    """
    pairs = [{other, stream} for other in joined]
    between = [one for one in bound.finding if {one.left_stream, one.right_stream} in pairs][:tested]
    known = set()
    for one in between:
        sides = (one.left_stream, one.left_key), (one.right_stream, one.right_key)
        if (one.kind, one.lo, one.hi) == ("limit", -math.inf, 0.0):
            known.add(sides)
        elif (one.kind, one.lo, one.hi) == ("limit", 0.0, math.inf):
            known.add(sides[::-1])
    numbers = {name: number for number, name in enumerate(bound.member_names)}
    found = []
    for term in bound.terms:
        plain = plain_comparison(term.condition, numbers)
        if plain is None:
            continue
        low, high = bound.limit_key(plain.low_stream, plain.low), bound.limit_key(plain.high_stream, plain.high)
        if low is not None and high is not None:
            keys = (plain.low_stream, low), (plain.high_stream, high)
            if keys in known:
                found.append(Settled(term, keys, plain.below))
    return found


def same_inputs(bound: BoundJoin) -> tuple[tuple[int, int], ...]:
    """Return the pairs of streams over one input, in which no tuple may be paired with itself."""
    join = bound.join
    if join.include_self_pairs:
        return ()
    sources = [stream.location for stream in join.streams]
    count = len(sources)
    pairs = ((left, right) for left in range(count) for right in range(left + 1, count))
    return tuple((i, j) for i, j in pairs if sources[i] is not None and sources[i] == sources[j])


class Residual:
    """The decision on partial results after one stream has joined them.

    Parameters
    ----------
    bound : BoundJoin
    earlier : frozenset of int
        Streams of the partial results.
    newcomer : int
        The stream that joined.
    conditions : sequence of ProbeCondition
        Conditions that no kernel has tested.
    """

    def __init__(
        self, bound: BoundJoin, earlier: frozenset[int], newcomer: int, conditions: tuple[ProbeCondition, ...] = ()
    ) -> None:
        def joins(*streams: int) -> bool:
            return set(streams) <= earlier | {newcomer} and newcomer in streams

        self._bound = bound
        self._newcomer = newcomer
        self._conditions = conditions
        self._terms = tuple(term for term in bound.terms if joins(*term.streams))
        self._near = {term.facts: NearTerm.of(bound, term) for term in self._terms}
        self._self_pairs = tuple(pair for pair in same_inputs(bound) if joins(*pair))

    @property
    def is_empty(self) -> bool:
        """Whether every partial result stands."""
        return not (self._conditions or self._terms or self._self_pairs)

    def without(self, done: Collection[Term]) -> Residual:
        """Return the decision without some terms, which are known to hold."""
        left = copy(self)
        left._terms = tuple(term for term in self._terms if term not in done)
        return left

    def mask(self, selection: Mapping[int, Selection]) -> Mask:
        """Return which partial results stand, as a mask."""
        count = len(selection[self._newcomer])
        mask = np.ones(count, dtype=np.bool_)
        for condition in self._conditions:
            left = selection[condition.stream].key(condition.probe_key)
            right = selection[self._newcomer].key(condition.run_key)
            mask &= left == right if condition.is_equality else _within(left, right, condition.lo, condition.hi)
        for left_stream, right_stream in self._self_pairs:
            mask &= sequence_numbers(selection[left_stream]) != sequence_numbers(selection[right_stream])
        for term in self._terms:
            mask &= self._stands(term, selection)
        return mask

    def _stands(self, term: Term, selection: Mapping[int, Selection]) -> Mask:
        near = self._near[term.facts]
        if near is not None and (known := near.mask(selection)) is not None:
            return known
        numbers = {self._bound.member_names[stream]: stream for stream in term.streams}

        def column(wanted: Column) -> pa.Array:
            stream = numbers[wanted.stream]
            return selection[stream].column(self._bound.compared_name(stream, wanted.name))

        return holds(term.condition, len(selection[self._newcomer]), column)


def _within(left: npt.NDArray[Any], right: npt.NDArray[Any], lo: int | float, hi: int | float) -> Mask:
    """Return ``lo <= left - right <= hi`` for each pair; for int64 it is exact, also where the difference overflows."""
    if left.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):  # limits may be the largest numbers
            difference = left - right
        return np.asarray((difference >= lo) & (difference <= hi))
    with np.errstate(over="ignore"):
        wrapped = left - right
    overflowed = ((left ^ right) & (left ^ wrapped)) < 0
    # Where the subtraction overflowed, the true difference is 2^64 away from `wrapped`: it is at least 2^63 where
    # left >= 0, and below -2^63 elsewhere.
    mask = (wrapped >= max(int(lo), INT64_MIN)) & (wrapped <= min(int(hi), INT64_MAX)) & ~overflowed
    if lo > INT64_MAX:
        mask[:] = False
    if hi > INT64_MAX:
        mask |= overflowed & (left >= 0) & (wrapped.view(np.uint64) <= np.uint64(hi))
    return np.asarray(mask)
