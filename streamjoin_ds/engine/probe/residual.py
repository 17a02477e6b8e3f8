"""The decisions on found pairs that no kernel makes: residuals, self-pairs, conditions beyond the 16th."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import INT64_MAX, INT64_MIN
from streamjoin_ds.engine.probe.near_places import NearTerm
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.selection import Selection, sequence_numbers
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.terms import Term
from streamjoin_ds.spec.expression.evaluation import holds
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["Residual", "same_inputs"]

Mask = npt.NDArray[np.bool_]


def same_inputs(bound: BoundJoin) -> tuple[tuple[int, int], ...]:
    """Return the pairs of streams over one input, in which no tuple may be paired with itself."""
    join = bound.join
    if join.include_self_pairs:
        return ()
    sources = [stream.source for stream in join.streams]
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
