"""What the kernels leave to be decided on pairs that were found: residuals, self-pairs, conditions beyond the 16th."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.engine.conditions import ProbeCondition
from streamjoin_ds.engine.keys import INT64_MAX, INT64_MIN, key_column
from streamjoin_ds.engine.picks import Picks, sequence_numbers
from streamjoin_ds.spec.bound import BoundJoin, Residual

__all__ = ["Decision", "same_inputs"]

Mask = npt.NDArray[np.bool_]


def same_inputs(bound: BoundJoin) -> tuple[tuple[int, int], ...]:
    """Pairs of streams over one input, whose tuples must not be paired with themselves."""
    join = bound.join
    if join.include_self_pairs:
        return ()
    sources = [stream.source for stream in join.streams]
    count = len(sources)
    pairs = ((left, right) for left in range(count) for right in range(left + 1, count))
    return tuple((i, j) for i, j in pairs if sources[i] is not None and sources[i] == sources[j])


class Decision:
    """Decides on partial results after one stream has joined them.

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
        def joins(left: int, right: int) -> bool:
            return {left, right} <= earlier | {newcomer} and newcomer in (left, right)

        self._bound = bound
        self._newcomer = newcomer
        self._conditions = conditions
        self._residuals = tuple(r for r in bound.residuals if joins(r.left_stream, r.right_stream))
        self._self_pairs = tuple(pair for pair in same_inputs(bound) if joins(*pair))

    @property
    def is_empty(self) -> bool:
        """Whether every partial result stands."""
        return not (self._conditions or self._residuals or self._self_pairs)

    def mask(self, picks: Mapping[int, Picks]) -> Mask:
        """Which partial results stand."""
        count = len(picks[self._newcomer])
        mask = np.ones(count, dtype=np.bool_)
        for condition in self._conditions:
            left = picks[condition.stream].key(condition.probe_key)
            mask &= _within(left, picks[self._newcomer].key(condition.run_key), condition.lo, condition.hi)
        for left_stream, right_stream in self._self_pairs:
            mask &= sequence_numbers(picks[left_stream]) != sequence_numbers(picks[right_stream])
        for residual in self._residuals:
            mask &= self._stands(residual, picks)
        return mask

    def _stands(self, residual: Residual, picks: Mapping[int, Picks]) -> Mask:
        left, right = (
            picks[stream].column(key_column(self._bound, stream, column))
            for stream, column in (
                (residual.left_stream, residual.left_column),
                (residual.right_stream, residual.right_column),
            )
        )
        equal = _equal(left, right)
        return equal if residual.kind == "equal" else ~equal


def _equal(left: pa.Array, right: pa.Array) -> Mask:
    """Equality as SQL has it where neither side is null: NaN equals NaN, a number its widened self."""
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        l_values, r_values = (
            np.asarray(side.to_numpy(zero_copy_only=False), dtype=np.float64) for side in (left, right)
        )
        return np.asarray((l_values == r_values) | (np.isnan(l_values) & np.isnan(r_values)))
    return np.asarray(pc.equal(left, right).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _within(left: npt.NDArray[Any], right: npt.NDArray[Any], lo: int | float, hi: int | float) -> Mask:
    """``lo <= left - right <= hi``, pair by pair, exact for integers of any size."""
    if left.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            difference = left - right
        return np.asarray((difference >= lo) & (difference <= hi))
    with np.errstate(over="ignore"):
        wrapped = left - right
    overflowed = ((left ^ right) & (left ^ wrapped)) < 0
    # Where it overflowed, the true difference is 2^64 off: at least 2^63 where left >= 0, below -2^63 where not.
    mask = (wrapped >= max(int(lo), INT64_MIN)) & (wrapped <= min(int(hi), INT64_MAX)) & ~overflowed
    if lo > INT64_MAX:
        mask[:] = False
    if hi > INT64_MAX:
        mask |= overflowed & (left >= 0) & (wrapped.view(np.uint64) <= np.uint64(hi))
    return np.asarray(mask)
