"""Exact sums of many groups of numbers: whatever the order in which the numbers come, the sums are the same.

A number is cut into *limbs*: whole numbers times a power of 2**30. Each group has a sum for each limb, which is an
int64 and exact. In the end a group's limbs are put together, and rounded once where the result is a float (compare
Neal, 2015, "Fast exact summation using small and large superaccumulators").

A float is cut without looking at its bits: with ``s = 1.5 * 2**(52 + e)`` the difference ``(x + s) - s`` is the
multiple of ``2**e`` that is nearest to a smaller ``x``, and what is left of ``x`` is exact too (Rump, Ogita and Oishi,
2008, "Accurate floating-point summation part I", section 3).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["FloatSums", "LimbSums"]

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LIMB_BITS = 30
_LOW = np.int64((1 << _LIMB_BITS) - 1)
_MOST_ADDED = 1 << 20  # parts that a float64 adds exactly: each is smaller than 2**32
_LARGE = 2.0**900  # floats from here on are scaled before they are cut
_SCALED_LIMBS = 10


class LimbSums:
    """The sums of limbs, for groups that are numbered from 0.

    Parameters
    ----------
    count : int
        How many groups there are.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._limbs: dict[int, Int64] = {}

    def add(self, limb: int, positions: Int64, parts: npt.NDArray[np.signedinteger | np.floating]) -> None:
        """Add whole numbers times ``2**(30 * limb)`` to the groups at these positions; each is smaller than 2**32."""
        for begin in range(0, len(positions), _MOST_ADDED):
            rows = slice(begin, begin + _MOST_ADDED)
            sums = np.bincount(positions[rows], weights=parts[rows], minlength=self._count).astype(np.int64)
            self._limbs[limb] = sums if limb not in self._limbs else self._limbs[limb] + sums

    def add_int32(self, positions: Int64, values: npt.NDArray[np.signedinteger]) -> None:
        """Add whole numbers of at most 32 bits."""
        self.add(0, positions, values)

    def add_int64(self, positions: Int64, values: Int64) -> None:
        """Add int64 numbers."""
        self.add(0, positions, values & _LOW)
        self.add(1, positions, (values >> _LIMB_BITS) & _LOW)
        self.add(2, positions, values >> (2 * _LIMB_BITS))

    def digits(self) -> tuple[int, Int64]:
        """Return the number of the lowest limb, and all limbs as digits, shape (limbs, groups).

        A group's sum is ``sum(digits[k] << (30 * (lowest + k)))``. All digits but the last are from 0 to 2**30 - 1.
        """
        if not self._limbs:
            return 0, np.zeros((4, self._count), np.int64)
        lowest, highest = min(self._limbs), max(self._limbs)
        digits = np.zeros((highest - lowest + 4, self._count), np.int64)
        for limb, sums in self._limbs.items():
            digits[limb - lowest] = sums
        return lowest, _carried(digits)

    def whole(self) -> list[int]:
        """Return each group's sum as a whole number of any size."""
        lowest, digits = self.digits()
        sums = digits[-1].astype(object)
        for row in digits[-2::-1]:
            sums = (sums << _LIMB_BITS) + row.astype(object)
        return [int(each) << (_LIMB_BITS * lowest) for each in sums]


class FloatSums:
    """The sums of float64 numbers, each rounded once: the float that is nearest to the exact sum, ties to even.

    As with floats everywhere, NaN or both infinities in a group make NaN, and what is too large is infinite. A sum that
    is zero is positive zero.

    Parameters
    ----------
    count : int
        How many groups there are.
    """

    def __init__(self, count: int) -> None:
        self._sums = LimbSums(count)
        self._beyond = np.zeros(count, np.float64)  # the sum of those that are not finite

    def add(self, positions: Int64, values: Floats) -> None:
        """Add numbers to the groups at these positions."""
        is_finite = np.isfinite(values)
        if not is_finite.all():
            with np.errstate(invalid="ignore"):
                np.add.at(self._beyond, positions[~is_finite], values[~is_finite])
            positions, values = positions[is_finite], values[is_finite]
        is_large = np.abs(values) >= _LARGE
        if is_large.any():
            scaled = np.ldexp(values[is_large], -_LIMB_BITS * _SCALED_LIMBS)
            self._cut(positions[is_large], scaled, _SCALED_LIMBS)
            positions, values = positions[~is_large], values[~is_large]
        self._cut(positions, values, 0)

    def _cut(self, positions: Int64, values: Floats, more_limbs: int) -> None:
        """Add numbers that are smaller than `_LARGE`, times ``2**(30 * more_limbs)``."""
        rest = values
        while len(rest) and (largest := float(np.abs(rest).max())):
            # The largest is smaller than 2**(30 * limb + 31).
            limb = -(-(math.frexp(largest)[1] - 31) // _LIMB_BITS)
            exponent = _LIMB_BITS * limb
            step = math.ldexp(1.5, 52 + exponent)
            parts = (rest + step) - step
            rest = rest - parts
            self._sums.add(limb + more_limbs, positions, np.ldexp(parts, -exponent))

    def rounded(self) -> Floats:
        """Return each group's sum."""
        lowest, digits = self._sums.digits()
        is_negative = digits[-1] < 0
        if is_negative.any():
            digits[:, is_negative] = _carried(-digits[:, is_negative])
        sums = _nearest(lowest, digits)
        sums = np.where(is_negative, -sums, sums)
        return np.where(self._beyond == 0.0, sums, self._beyond)


def _carried(digits: Int64) -> Int64:
    """Return numbers given as digits of any size with all but the last from 0 to 2**30 - 1, in place."""
    for place in range(len(digits) - 1):
        digits[place + 1] += digits[place] >> _LIMB_BITS
        digits[place] &= _LOW
    return digits


def _nearest(lowest: int, digits: Int64) -> Floats:
    """Return the floats nearest to numbers that are not negative, given as digits."""
    count, groups = digits.shape[1], np.arange(digits.shape[1])
    places = np.arange(len(digits))[:, None]
    highest = np.where(digits != 0, places, 0).max(axis=0)
    padded = np.concatenate([np.zeros((2, count), np.int64), digits])  # two digits below the lowest
    first, second, third = (padded[highest + 2 - back, groups].astype(np.uint64) for back in range(3))
    below = np.where(places < highest - 2, digits, 0).any(axis=0)
    # 90 bits: 64 in `high`, 26 at the top of `low`, whose last bit tells of everything below.
    high = (first << np.uint64(34)) | (second << np.uint64(4)) | (third >> np.uint64(26))
    low = ((third & np.uint64((1 << 26) - 1)) << np.uint64(38)) | below.astype(np.uint64)
    # The float of a digit is exact, so its exponent is the number of the digit's bits.
    bits = np.frexp(first.astype(np.float64))[1]
    shift = np.where(first == 0, 0, _LIMB_BITS - bits).astype(np.uint64)
    carried = np.where(shift == 0, np.uint64(0), low >> (np.uint64(64) - np.maximum(shift, np.uint64(1))))
    high, low = (high << shift) | carried, low << shift
    kept, rest = high >> np.uint64(11), high & np.uint64(0x7FF)
    half = np.uint64(0x400)
    is_up = (rest > half) | ((rest == half) & ((low != 0) | ((kept & np.uint64(1)) == 1)))
    kept = kept + is_up.astype(np.uint64)
    exponents = _LIMB_BITS * (lowest + highest - 2) + 26 + 11 - shift.astype(np.int64)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(kept.astype(np.float64), exponents.astype(np.int32)), np.float64)
