"""Checks of a kernel's arguments, and what the twins share: limits and errors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from streamjoin_ds.engine.kernels.objects import Bound, Column, End
from streamjoin_ds.errors import KernelError
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

_Own = TypeVar("_Own")

MIN_CAPACITY = 64  # room of an output in pairs, at least: the compiled kernels write whole registers


def saturate(value: int) -> int:
    """Return the int64 nearest to a number."""
    return max(INT64_MIN, min(value, INT64_MAX))


def common_length(columns: Sequence[Column], name: str, count: int | None) -> int:
    """Return the length of all columns; refuse columns whose length differs from the others' or from `count`."""
    for column in columns:
        check_column(column, name)
        if count is not None and len(column) != count:
            refuse(f"the columns of {name} differ in length", name)
        count = len(column)
    if count is None:
        refuse("without conditions the counts are needed", name, hint="pass left_count and right_count")
    if not 0 <= count <= 2**31 - 1:
        refuse(f"{name} has more rows than int32 can number", name)
    return count


def check_column(array: Column, name: str) -> None:
    """Refuse anything but a column of keys: a plain array of float64 or int64."""
    if not isinstance(array, np.ndarray) or array.dtype not in (np.dtype(np.float64), np.dtype(np.int64)):
        refuse(f"{name} must be a float64 or int64 ndarray", name)
    check_array(array, name, array.dtype)


def check_array(array: Column, name: str, dtype: np.dtype[Any], *, writeable: bool = False) -> None:
    """Refuse anything but a plain array of this dtype: one-dimensional, C-contiguous and aligned."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        refuse(f"{name} must be an ndarray of {dtype}", name)
    if array.ndim != 1 or not array.flags.c_contiguous or not array.flags.aligned:
        refuse(f"{name} must be one-dimensional, C-contiguous and aligned", name, hint="numpy.ascontiguousarray")
    if writeable and not array.flags.writeable:
        refuse(f"{name} must be writeable", name)


def float_bound(value: Bound, name: str) -> float:
    """Return a bound of a float column; refuse NaN, and what float64 cannot hold."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if np.isnan(number):
        refuse(f"{name} must be a number that float64 can hold", name)
    return number


def ends(lo: End, hi: End) -> tuple[Bound, Bound]:
    """Return the ends of a condition's band as numbers, 0 for an equality; refuse one end alone."""
    if lo is None or hi is None:
        if lo is not hi:
            refuse("lo and hi must both be None, or neither", "lo")
        return 0.0, 0.0
    return lo, hi


def index(value: Bound, name: str) -> int:
    """Return a bound of an integer column; refuse what is no integer."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        refuse(f"{name} must be an integer for an int64 column", name)


def own(thing: object, kind: type[_Own], name: str) -> _Own:
    """Return `thing` if a twin made it; refuse an object of another kernel module."""
    if not isinstance(thing, kind):
        refuse(f"{name} was made by another kernel module", name)
    return thing


def refuse(message: str, name: str, *, hint: str = "") -> NoReturn:
    """Raise a `KernelError` about the argument of this name."""
    raise KernelError(message, name=name, hint=hint) from None
