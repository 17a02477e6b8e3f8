"""Exact sums, counts and extremes of many groups of numbers: whatever the order in which the numbers come.

A number is cut into *limbs*: whole numbers times a power of 2**30. Each group has a sum for each limb, which is an
int64 and exact (compare Neal, 2015, "Fast exact summation using small and large superaccumulators").

A float is cut without looking at its bits: with ``s = 1.5 * 2**(52 + e)`` the difference ``(x + s) - s`` is the
multiple of ``2**e`` that is nearest to a smaller ``x``, and what is left of ``x`` is exact too (Rump, Ogita and Oishi,
2008, "Accurate floating-point summation part I", section 3).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.contract import LIMB_BITS
from streamjoin_ds.engine.kernels.objects import Column, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, check_column, index, refuse
from streamjoin_ds.spec.columns import Float64

__all__ = ["ExactSums", "extremes", "tally"]

Parts = npt.NDArray[np.signedinteger | np.floating]

_LOW = np.int64((1 << LIMB_BITS) - 1)
_MOST_ADDED = 1 << 20  # parts that a float64 adds exactly: each is smaller than 2**32
_LARGE = 2.0**900  # floats from here on are scaled before they are cut
_SCALED_LIMBS = 10
_MAX_ROWS = 2**31 - 1


class ExactSums:
    """The exact sums of numbers, for groups that are numbered from 0.

    Parameters
    ----------
    count : int
        How many groups there are.
    """

    def __init__(self, count: int) -> None:
        self._count = index(count, "count")
        if not 0 <= self._count <= _MAX_ROWS:
            refuse("count is out of range", "count", hint="0 to 2^31 - 1")
        self._limbs: dict[int, Int64] = {}
        self._has = np.zeros((3, self._count), np.bool_)  # infinity, -infinity, NaN

    def add_floats(self, positions: Int32, values: Float64) -> None:
        """Add float64 numbers to the groups at these positions.

        Parameters
        ----------
        positions : ndarray, shape (n,), int32
        values : ndarray, shape (n,), float64
        """
        check_array(values, "values", np.dtype(np.float64))
        _check_positions(positions, self._count, len(values), "values")
        for kind, is_one in enumerate((values == np.inf, values == -np.inf, np.isnan(values))):
            self._has[kind, positions[is_one]] = True
        is_finite = np.isfinite(values)
        positions, values = positions[is_finite], values[is_finite]
        is_large = np.abs(values) >= _LARGE
        scaled = np.ldexp(values[is_large], -LIMB_BITS * _SCALED_LIMBS)
        self._cut(positions[is_large], scaled, _SCALED_LIMBS)
        self._cut(positions[~is_large], values[~is_large], 0)

    def add_integers(self, positions: Int32, values: Int64) -> None:
        """Add int64 numbers to the groups at these positions.

        Parameters
        ----------
        positions : ndarray, shape (n,), int32
        values : ndarray, shape (n,), int64
        """
        check_array(values, "values", np.dtype(np.int64))
        _check_positions(positions, self._count, len(values), "values")
        self._add(0, positions, values & _LOW)
        self._add(1, positions, (values >> LIMB_BITS) & _LOW)
        self._add(2, positions, values >> (2 * LIMB_BITS))

    def add_wide(self, positions: Int32, words: Int64) -> None:
        """Add integers of 128 bits to the groups at these positions.

        Parameters
        ----------
        positions : ndarray, shape (n,), int32
        words : ndarray, shape (2 * n,), int64
            Two words of each number, the lower one first.
        """
        check_array(words, "words", np.dtype(np.int64))
        if len(words) % 2:
            refuse("there must be two words for each number", "words")
        _check_positions(positions, self._count, len(words) // 2, "words")
        low, high = words.reshape(-1, 2).T
        crossing = ((low >> 60) & 0xF) | ((high & ((1 << 26) - 1)) << 4)
        parts = [low & _LOW, (low >> LIMB_BITS) & _LOW, crossing, (high >> 26) & _LOW, high >> 56]
        for limb, each in enumerate(parts):
            self._add(limb, positions, each)

    def digits(self) -> tuple[int, Int64]:
        """Return the number of the lowest limb, and all limbs as digits, shape (limbs, groups).

        A group's sum is ``sum(digits[k] << (30 * (lowest + k)))``, without the numbers that are not finite. All digits
        but the last are from 0 to 2**30 - 1. The last three tell no more than the sign, unless a sum is larger than
        every number. Which limb is the lowest may differ between implementations; of integers it is 0.
        """
        if not self._limbs:
            return 0, np.zeros((4, self._count), np.int64)
        lowest, highest = min(self._limbs), max(self._limbs)
        digits = np.zeros((highest - lowest + 4, self._count), np.int64)
        for limb, sums in self._limbs.items():
            digits[limb - lowest] = sums
        for place in range(len(digits) - 1):
            digits[place + 1] += digits[place] >> LIMB_BITS
            digits[place] &= _LOW
        return lowest, digits

    def beyond(self) -> Float64:
        """Return the sum of each group's numbers that are not finite, 0.0 where there is none."""
        infinite, negative, nan = self._has
        sums = np.where(infinite, np.inf, np.where(negative, -np.inf, 0.0))
        return np.where(nan | (infinite & negative), np.nan, sums)

    def _cut(self, positions: Int32, values: Float64, more_limbs: int) -> None:
        """Add numbers that are smaller than `_LARGE`, times ``2**(30 * more_limbs)``."""
        rest = values
        while len(rest) and (largest := float(np.abs(rest).max())):
            # The largest is smaller than 2**(30 * limb + 31).
            limb = -(-(math.frexp(largest)[1] - 31) // LIMB_BITS)
            exponent = LIMB_BITS * limb
            step = math.ldexp(1.5, 52 + exponent)
            parts = (rest + step) - step
            rest = rest - parts
            self._add(limb + more_limbs, positions, np.ldexp(parts, -exponent))

    def _add(self, limb: int, positions: Int32, parts: Parts) -> None:
        """Add whole numbers times ``2**(30 * limb)``; each is smaller than 2**32."""
        for begin in range(0, len(positions), _MOST_ADDED):
            rows = slice(begin, begin + _MOST_ADDED)
            sums = np.bincount(positions[rows], weights=parts[rows], minlength=self._count).astype(np.int64)
            self._limbs[limb] = sums if limb not in self._limbs else self._limbs[limb] + sums


def tally(positions: Int32, counts: Int64) -> None:
    """Add to the count of each group how many positions are its own.

    Parameters
    ----------
    positions : ndarray, shape (n,), int32
    counts : ndarray, shape (groups,), int64
        It is changed.
    """
    check_array(counts, "counts", np.dtype(np.int64), writeable=True)
    _check_positions(positions, len(counts), None, "counts")
    counts += np.bincount(positions, minlength=len(counts))


def extremes(positions: Int32, values: Column, best: Int64, *, largest: bool) -> None:
    """Lower the number of each group to that of its smallest value, or raise it to that of its largest one.

    Parameters
    ----------
    positions : ndarray, shape (n,), int32
    values : ndarray, shape (n,), float64 or int64
        A float goes by its number in the order of floats: its bits, those below the sign reversed where it is
        negative. NaN is the largest, whatever its bits, and -0.0 is below 0.0.
    best : ndarray, shape (groups,), int64
        It is changed.
    largest : bool
    """
    check_column(values, "values")
    check_array(best, "best", np.dtype(np.int64), writeable=True)
    _check_positions(positions, len(best), len(values), "values")
    numbers = values
    if values.dtype == np.float64:
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
        numbers = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    (np.maximum if largest else np.minimum).at(best, positions, numbers)


def _check_positions(positions: Int32, groups: int, count: int | None, name: str) -> None:
    check_array(positions, "positions", np.dtype(np.int32))
    if len(positions) and not 0 <= positions.min() <= positions.max() < groups:
        refuse("positions point outside the groups", "positions")
    if count is not None and len(positions) != count:
        refuse(f"positions and {name} differ in length", name)
