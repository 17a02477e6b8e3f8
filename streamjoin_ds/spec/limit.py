"""Limits: a float64 for each tuple of one stream, by which an index finds what a condition then decides.

A condition such as ``abs(e.x - w.x) <= w.eps`` says that a number of one stream is not above one of another, here
``e.x <= w.x + w.eps`` and ``w.x - w.eps <= e.x``. The two numbers are limits. A lower limit is rounded down and an
upper limit up, by more than all rounding errors of the condition can be. So wherever the condition is TRUE the lower
limit is not above the upper one, and for some pairs more: limits find, the condition decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.spec.evaluation import float_values
from streamjoin_ds.spec.predicate import Column
from streamjoin_ds.spec.typed import Typed

__all__ = ["EPSILON", "TINY", "Limit", "Part"]

Float64: TypeAlias = npt.NDArray[np.float64]

EPSILON = 2.0**-52  # twice the relative error of one float64 operation
_LARGEST = sys.float_info.max
TINY = 1e-150  # more than the root of what a square may lose where it underflows


@dataclass(frozen=True, slots=True)
class Part:
    """A summand: ``factor * value``, where the value is that of an expression, or the root of an upper limit."""

    factor: float
    value: Typed | Limit


@dataclass(frozen=True, slots=True)
class Limit:
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
    """

    parts: tuple[Part, ...]
    constant: float
    slack: float
    is_upper: bool
    text: str

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
        if not self.slack and not self.constant and len(self.parts) == 1 and self.parts[0].factor == 1:
            assert isinstance(self.parts[0].value, Typed)
            total = float_values(self.parts[0].value, rows, column) + 0.0
            if np.isfinite(total).all():
                return total
        total = self._sum(rows, column)
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


def _columns(node: Typed) -> set[Column]:
    found = {node.column} if node.column is not None else set()
    for argument in node.args:
        found |= _columns(argument)
    return found
