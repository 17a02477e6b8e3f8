"""Conditions as a probe sees them, and which of them the order of a run serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamjoin_ds.engine.storage.layout import SortLayout
from streamjoin_ds.spec.bound import BoundJoin

__all__ = ["MAX_CONDITIONS", "ProbeCondition", "oriented", "serving", "tightest"]

MAX_CONDITIONS = 16


class ProbeCondition(NamedTuple):
    """``lo <= probe key - run key <= hi``: a condition seen from the probe.

    Attributes
    ----------
    stream, probe_key : int
        The probe's side.
    run_key : int
        The run's side.
    lo, hi : int or float
        May lie one beyond int64 where an extreme bound changed its sign.
    """

    stream: int
    probe_key: int
    run_key: int
    lo: int | float
    hi: int | float

    @property
    def extent(self) -> int | float:
        """How far apart the band's ends are."""
        return self.hi - self.lo


def oriented(bound: BoundJoin, probes: Sequence[int], target: int) -> tuple[ProbeCondition, ...]:
    """Return all conditions between streams already joined and the one whose runs are probed."""
    conditions = []
    for condition in bound.conditions:
        left, right = condition.left_stream, condition.right_stream
        if right == target and left in probes:
            conditions.append(ProbeCondition(left, condition.left_key, condition.right_key, condition.lo, condition.hi))
        elif left == target and right in probes:
            conditions.append(
                ProbeCondition(right, condition.right_key, condition.left_key, -condition.hi, -condition.lo)
            )
    return tuple(conditions)


def serving(grid: SortLayout, conditions: Sequence[ProbeCondition]) -> tuple[int, int]:
    """Return the numbers of the conditions that a run's order serves: by buckets, and by sorted key; -1: none."""
    first, second = tightest(grid.first, conditions), tightest(grid.second, conditions)
    if grid.first >= 0 and first < 0:
        return -1, -1
    return first, second


def tightest(key: int, conditions: Sequence[ProbeCondition]) -> int:
    """Return the number of the condition with the narrowest band on a run's key, the first of equal ones.

    -1: there is none, or `key` is -1.
    """
    places = [n for n, condition in enumerate(conditions) if condition.run_key == key]
    return min(places, key=lambda n: (conditions[n].extent, n)) if key >= 0 and places else -1
