"""Comparisons of two plain columns, whose limits are the columns' own values: what the limits decide for good.

A limit makes room for rounding, so the condition decides each pair again. Of a column that stands alone the limit is
the value as float64, which is never rounded past another: ``e.x <= w.hi`` says the same of the values and of the limits
where float64 holds all values as they are. That is so for floats but the infinities and NaN, for which other numbers
stand as limits, and for whole numbers and times in microseconds up to 2^53. It is asked of the values that a window has
(`streamjoin_ds.engine.probe.settled`). ``e.x < w.hi`` says ``e.x <= the float64 before w.hi``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamjoin_ds.spec.bound.limit import Limit, Part
from streamjoin_ds.spec.node import Typed

__all__ = ["PlainComparison", "are_alike", "is_exact", "limit_of", "plain_comparison", "plain_limits"]

_EXACT = 1 << 53  # whole numbers up to this are exact in float64
_LARGEST = sys.float_info.max  # stands for infinity, and for null and NaN


@dataclass(frozen=True, slots=True)
class PlainComparison:
    """``low <= high`` or ``low < high``, of a column of one stream and a column of another.

    Attributes
    ----------
    low_stream : int
    low : Limit
    high_stream : int
    high : Limit
    below : float
        Where all limits on both sides are nearer to zero than this, the limits compare as the values do.
    """

    low_stream: int
    low: Limit
    high_stream: int
    high: Limit
    below: float


def plain_comparison(condition: Typed, streams: Mapping[str, int]) -> PlainComparison | None:
    """Return what a condition says that compares two columns by ``<=`` or ``<``; None where it is another one."""
    if condition.op not in ("<", "<=") or not are_alike(condition.args):
        return None
    numbers = [streams[side.column.stream] for side in condition.args if side.column is not None]
    if numbers[0] == numbers[1]:
        return None
    low, high = plain_limits(*condition.args, is_strict=condition.op == "<", is_low_first=numbers[0] < numbers[1])
    return PlainComparison(numbers[0], low, numbers[1], high, _below(condition.args))


def plain_limits(low: Typed, high: Typed, *, is_strict: bool, is_low_first: bool) -> tuple[Limit, Limit]:
    """Return the limits of two columns that are alike, of which `low` is not above `high`, or below it (`is_strict`).

    Where it is below, the limit of the stream with the higher number makes the difference: a table's, whose intervals
    are often half open. `is_low_first`: whether that of `low` has the lower number.
    """
    if not is_strict:
        return limit_of(low), limit_of(high)
    below = _below((low, high))
    if is_low_first:
        return limit_of(low), replace(limit_of(high), open_below=below)
    return replace(limit_of(low), is_upper=False, open_below=below), limit_of(high)


def _below(sides: Sequence[Typed]) -> float:
    return _LARGEST if all(side.family == "float" for side in sides) else float(_EXACT)


def are_alike(nodes: Sequence[Typed | Limit]) -> bool:
    """Whether all are columns alone that are rounded to float64 alike: so what is not above another stays so."""
    families = {_family(node) for node in nodes}
    return len(families) == 1 and families != {None}


def _family(node: Typed | Limit) -> str | None:
    if isinstance(node, Limit) or node.op != "column":
        return None
    if node.family == "float":
        return "number"
    return node.family if node.family in ("number", "timestamp") and not node.scale else None


def is_exact(node: Typed | Limit) -> bool:
    """Whether float64 holds every value of an expression exactly."""
    if isinstance(node, Limit):
        return False
    return node.family == "float" or (node.family == "number" and not node.scale and node.magnitude <= _EXACT)


def limit_of(node: Typed) -> Limit:
    """Return a column as a limit, which is the same whether it is a lower or an upper one.

    Only where the column is NaN it would be another; there the condition is not TRUE.
    """
    return Limit((Part(1.0, node),), 0.0, 0.0, is_upper=True, text=str(node.column))
