"""Zone maps: the smallest and the largest value of each key, by which a probe skips rows that it cannot meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

__all__ = ["Range", "range_of", "spanning"]

Range = tuple[int | float, int | float]


def spanning(zones: Iterable[tuple[Range, ...]]) -> tuple[Range, ...]:
    """Return the smallest zone map that covers all given ones; without any, the empty one."""
    ends = zip(*zones, strict=True)
    return tuple((min([low for low, _ in key]), max([high for _, high in key])) for key in ends)


def range_of(values: npt.NDArray[Any]) -> Range:
    """Return the smallest and the largest value; (0, 0) where there is no value.

    A zero is returned without its sign, so that the range of all values equals the range of their parts' ranges.
    """
    return (values.min().item() + 0, values.max().item() + 0) if len(values) else (0, 0)
