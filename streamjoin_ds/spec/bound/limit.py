"""Limits: a float64 for each tuple of one stream, by which an index finds what a condition then decides.

A condition such as ``abs(e.x - w.x) <= w.eps`` says that a number of one stream is not above one of another, here
``e.x <= w.x + w.eps`` and ``w.x - w.eps <= e.x``. The two numbers are limits. A lower limit is rounded down and an
upper limit up, by more than all rounding errors of the condition can be. So wherever the condition is TRUE the lower
limit is not above the upper one, and for some pairs more: limits find, the condition decides.

Of a column that stands alone the limit is the value as float64, which is never rounded past another, and it may decide
(`PlainComparison`): ``e.x <= w.hi`` says the same of the values and of the limits where float64 holds all values as
they are. That is so for floats but the infinities and NaN, for which other numbers stand as limits, and for whole
numbers and times in microseconds up to 2^53. The engine's probe asks it of the values that a window has. ``e.x < w.hi``
says ``e.x <= the float64 before w.hi``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from streamjoin_ds.spec.columns import Float64
from streamjoin_ds.spec.expression.evaluation import float_values
from streamjoin_ds.spec.expression.node import EXACT_FLOAT, Typed
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.nested_values import encoded

__all__ = [
    "EPSILON",
    "TINY",
    "Limit",
    "Part",
    "PlainComparison",
    "are_alike",
    "is_exact",
    "limit_of",
    "plain_comparison",
    "plain_limits",
]


EPSILON = 2.0**-52  # twice the relative error of one float64 operation
_LARGEST = sys.float_info.max
_BYTES_AT_ONCE = 1 << 20  # that are hashed together: some arrays of 8 bytes for each of them
_MISSING = 1.5e308  # stands for null and NaN where these can meet
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits all over: 2^64 by the golden ratio
TINY = 1e-150  # more than the root of what a square may lose where it underflows


class Part(Struct, frozen=True):
    """A summand: ``factor * value``, where the value is that of an expression, or the root of an upper limit."""

    factor: float
    value: Typed | Limit


class Limit(Struct, frozen=True):
    """The sum of some parts and a constant, for each tuple of one stream.

    Parameters
    ----------
    parts : tuple of Part
    constant : float
    slack : float
        The relative error for which it makes room: 0 where the only part is a column that float64 holds exactly.
    is_upper : bool
        Whether it is rounded up; else down.
    text : str
        The sum for people.
    meets_nulls : bool
        Whether it is for IS NOT DISTINCT FROM: its only part is a value of any type that can be equal, and of equal
        values the limits are equal, of nulls and NaN too.
    open_below : float
        Whether the value itself is outside: a limit nearer to zero than this is the float64 next to it, the smaller one
        of an upper limit and the larger one of a lower one. 0: the value is inside. Its only part is a column.
    """

    parts: tuple[Part, ...]
    constant: float
    slack: float
    is_upper: bool
    text: str
    meets_nulls: bool = False
    open_below: float = 0.0

    @property
    def columns(self) -> frozenset[Column]:
        """The columns in it."""
        found: set[Column] = set()
        for part in self.parts:
            found |= part.value.columns if isinstance(part.value, Limit) else _columns(part.value)
        return frozenset(found)

    def values(self, rows: int, column: Callable[[Column], pa.Array]) -> Float64:
        """Return the limit of each tuple, finite, and never NaN.

        Parameters
        ----------
        rows : int
        column : callable
            As for `evaluation.holds`.

        Notes
        -----
        Where a value is null, NaN, or the difference of two infinities, a lower limit is the smallest float64 and an
        upper limit the largest: they rule nothing out. Infinities become the finite numbers next to them. That keeps
        their order, and so whatever was not above another is not above it now.
        """
        if self.meets_nulls:
            return _equal_values(self.parts[0].value, rows, column)
        if not self.slack and not self.constant and len(self.parts) == 1 and self.parts[0].factor == 1:
            assert isinstance(self.parts[0].value, Typed)
            total = float_values(self.parts[0].value, rows, column)
            if not self.open_below and np.isfinite(total).all():
                return total + 0.0  # as below: a limit does not depend on the rows beside it
        total = self._sum(rows, column)
        if self.open_below:
            with np.errstate(over="ignore"):
                beside = np.nextafter(total, -np.inf if self.is_upper else np.inf)
            total = np.where(np.abs(total) < self.open_below, beside, total)
        total = np.where(np.isnan(total), _LARGEST if self.is_upper else -_LARGEST, total)
        return np.clip(total, -_LARGEST, _LARGEST) + 0.0  # makes -0.0 the same limit as 0.0

    def _sum(self, rows: int, column: Callable[[Column], pa.Array]) -> Float64:
        total, size = np.full(rows, self.constant), np.full(rows, abs(self.constant))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in self.parts:
                if isinstance(part.value, Limit):
                    inner = part.value._sum(rows, column)
                    found = part.factor * (np.sqrt(np.maximum(inner, 0.0)) * (1.0 + 4 * EPSILON) + TINY)
                else:
                    found = part.factor * float_values(part.value, rows, column)
                total = total + found
                size = size + np.abs(found)
            if not self.slack:
                return total
            room = size * self.slack + sys.float_info.min
            return total + room if self.is_upper else total - room


def _equal_values(node: Typed | Limit, rows: int, column: Callable[[Column], pa.Array]) -> Float64:
    assert isinstance(node, Typed)
    if node.family in ("string", "binary"):
        assert node.column is not None
        return _hashes(column(node.column))
    if node.shape:
        assert node.column is not None
        return _hashes(encoded(column(node.column)))
    if node.family == "boolean":
        assert node.column is not None
        values = column(node.column).cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        values = float_values(node, rows, column)
    return np.asarray(np.clip(np.where(np.isnan(values), _MISSING, values), -_LARGEST, _LARGEST) + 0.0)


def _hashes(texts: pa.Array) -> Float64:
    """Return for each text a number of 52 bits that is equal for equal texts: a polynomial in its bytes, mixed."""
    _, ends, data = texts.buffers()
    count = len(texts)
    offsets = np.zeros(count + 1, np.int64)
    if count:
        dtype = np.dtype(np.int64 if pa.types.is_large_binary(texts.type) else np.int32)
        offsets[:] = np.frombuffer(ends, dtype, count + 1, texts.offset * dtype.itemsize)
    if count > 1 and offsets[-1] - offsets[0] > _BYTES_AT_ONCE:
        return np.concatenate([_hashes(texts[: count // 2]), _hashes(texts[count // 2 :])])
    items = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    starts = offsets[:-1] - offsets[0]
    places = np.arange(len(items)) - np.repeat(starts, lengths)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _FACTOR, np.uint64))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((items.astype(np.uint64) + 1) * powers[places])])
        mixed = sums[starts + lengths] - sums[starts]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _FACTOR
    found = (mixed >> np.uint64(12)).astype(np.float64)
    if texts.null_count:
        found[np.asarray(texts.is_null().to_numpy(zero_copy_only=False))] = _MISSING
    return np.asarray(found)


def _columns(node: Typed) -> set[Column]:
    found = {node.column} if node.column is not None else set()
    for argument in node.args:
        found |= _columns(argument)
    return found


class PlainComparison(Struct, frozen=True):
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
    return _LARGEST if all(side.family == "float" for side in sides) else float(EXACT_FLOAT)


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
    return node.family == "float" or (node.family == "number" and not node.scale and node.magnitude <= EXACT_FLOAT)


def limit_of(node: Typed) -> Limit:
    """Return a column as a limit, which is the same whether it is a lower or an upper one.

    Only where the column is NaN it would be another; there the condition is not TRUE.
    """
    return Limit((Part(1.0, node),), 0.0, 0.0, is_upper=True, text=str(node.column))
