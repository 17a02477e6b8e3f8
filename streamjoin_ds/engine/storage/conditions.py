"""Conditions as a probe sees them, and which of them the order of a run serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from streamjoin_ds.engine.kernels.objects import End
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.spec.bound.bound_join import BoundJoin, Condition

__all__ = ["ProbeCondition", "finding", "oriented", "past_of", "serving", "tightest"]


class ProbeCondition(NamedTuple):
    """``lo <= probe key - run key <= hi``, or an equality: a condition seen from the probe.

    Attributes
    ----------
    stream, probe_key : int
        The probe's side.
    run_key : int
        The run's side.
    lo, hi : int or float
        May lie one beyond int64 where an extreme bound changed its sign. A condition that only finds may have an
        infinite end.
    interval_number : int
        As in `bound_join.Condition`. Of an interval, the condition whose `hi` is finite says where a probe's rows
        begin, in ascending order of its run key; the other says where they end.
    is_equality : bool
        As in `bound_join.Condition`.
    """

    stream: int
    probe_key: int
    run_key: int
    lo: int | float
    hi: int | float
    interval_number: int = -1
    is_equality: bool = False

    @property
    def ends(self) -> tuple[End, End]:
        """The ends as kernels take them: None, None for an equality of floats."""
        return (None, None) if self.is_equality else (self.lo, self.hi)

    @property
    def extent(self) -> int | float:
        """How far apart the band's ends are."""
        return self.hi - self.lo


def oriented(bound: BoundJoin, probes: Sequence[int], target: int) -> tuple[ProbeCondition, ...]:
    """Return all conditions between streams already joined and the one whose runs are probed."""
    return _oriented(bound.conditions, probes, target)


def finding(bound: BoundJoin, probes: Sequence[int], target: int) -> tuple[ProbeCondition, ...]:
    """Return the conditions that only find, between streams already joined and the one whose runs are probed."""
    return _oriented(bound.finding, probes, target)


def _oriented(asked: Sequence[Condition], probes: Sequence[int], target: int) -> tuple[ProbeCondition, ...]:
    conditions = []
    for of in asked:
        left, right, number = of.left_stream, of.right_stream, of.interval_number
        if right == target and left in probes:
            conditions.append(ProbeCondition(left, of.left_key, of.right_key, of.lo, of.hi, number, of.is_equality))
        elif left == target and right in probes:
            conditions.append(ProbeCondition(right, of.right_key, of.left_key, -of.hi, -of.lo, number, of.is_equality))
    return tuple(conditions)


def past_of(second: int, conditions: Sequence[ProbeCondition]) -> int:
    """Return the number of the condition that ends the rows of an interval.

    -1: `second` is none that begins them, or they have no end.
    """
    if second < 0 or conditions[second].interval_number < 0 or conditions[second].hi == math.inf:
        return -1
    same = conditions[second].interval_number, conditions[second].stream
    ends = (n for n, one in enumerate(conditions) if (one.interval_number, one.stream) == same and n != second)
    return next(ends, -1)


def serving(grid: SortLayout, conditions: Sequence[ProbeCondition]) -> tuple[int, int]:
    """Return the numbers of the conditions that a run's order serves: by buckets, and by sorted key; -1: none."""
    first, second = tightest(grid.first, conditions), tightest(grid.second, conditions)
    if grid.first >= 0 and (first < 0 or conditions[first].extent == math.inf):
        return -1, -1
    return first, second


def tightest(key: int, conditions: Sequence[ProbeCondition]) -> int:
    """Return the number of the condition with the narrowest band on a run's key, the first of equal ones.

    Of the ends of an interval it is the one that begins a probe's rows. -1: there is none, or `key` is -1.
    """
    places = [n for n, condition in enumerate(conditions) if condition.run_key == key]
    return (
        min(places, key=lambda n: (conditions[n].extent, conditions[n].hi == math.inf, n))
        if key >= 0 and places
        else -1
    )
