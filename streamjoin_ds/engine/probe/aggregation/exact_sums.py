"""Exact sums of many groups of numbers: whatever the order in which the numbers come, the sums are the same.

A number is cut into *limbs*: whole numbers times a power of 2**32. Each group has a sum for each limb, which is an
int64 and exact, since no limb of a number is larger than 2**33 (compare Neal, 2015, "Fast exact summation using small
and large superaccumulators"). In the end a group's limbs are put together, and rounded once where the result is a
float.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FloatSums", "LimbSums"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LIMB_BITS = 32
_LOW = np.int64((1 << _LIMB_BITS) - 1)
_LEAST_EXPONENT = -1126  # of the smallest float, as a whole number of 53 bits times a power of two
_MOST_ADDED = 1 << 19  # numbers whose limbs a float64 adds exactly: 2**19 * 2**33 < 2**53


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

    def add(self, limb: int, positions: Int32, parts: Int64) -> None:
        """Add whole numbers times ``2**(32 * limb)`` to the groups at these positions; none is larger than 2**33."""
        for begin in range(0, len(positions), _MOST_ADDED):
            rows = slice(begin, begin + _MOST_ADDED)
            sums = np.bincount(positions[rows], weights=parts[rows], minlength=self._count).astype(np.int64)
            self._limbs[limb] = sums if limb not in self._limbs else self._limbs[limb] + sums

    def add_int64(self, positions: Int32, values: Int64) -> None:
        """Add int64 numbers."""
        self.add(0, positions, values & _LOW)
        self.add(1, positions, values >> _LIMB_BITS)

    def digits(self) -> tuple[int, Int64]:
        """Return the number of the lowest limb, and all limbs as digits, shape (limbs, groups).

        A group's sum is ``sum(digits[k] << (32 * (lowest + k)))``. All digits but the last are from 0 to 2**32 - 1.
        """
        if not self._limbs:
            return 0, np.zeros((2, self._count), np.int64)
        lowest, highest = min(self._limbs), max(self._limbs)
        digits = np.zeros((highest - lowest + 3, self._count), np.int64)
        for limb, sums in self._limbs.items():
            digits[limb - lowest] = sums
        for place in range(len(digits) - 1):
            digits[place + 1] += digits[place] >> _LIMB_BITS
            digits[place] &= _LOW
        return lowest, digits

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

    def add(self, positions: Int32, values: Floats) -> None:
        """Add numbers to the groups at these positions."""
        is_finite = np.isfinite(values)
        if not is_finite.all():
            with np.errstate(invalid="ignore"):
                np.add.at(self._beyond, positions[~is_finite], values[~is_finite])
            positions, values = positions[is_finite], values[is_finite]
        mantissas, exponents = np.frexp(values)
        whole = np.ldexp(mantissas, 53).astype(np.int64)
        places = exponents - 53 - _LEAST_EXPONENT
        limbs, shifts = places >> 5, (places & 31).astype(np.int64)
        low, high = (whole & _LOW) << shifts, (whole >> _LIMB_BITS) << shifts
        parts = (low & _LOW, (low >> _LIMB_BITS) + (high & _LOW), high >> _LIMB_BITS)
        numbers = np.flatnonzero(np.bincount(limbs)) if len(limbs) else ()
        for limb in numbers:
            rows = slice(None) if len(numbers) == 1 else np.flatnonzero(limbs == limb)
            for place, part in enumerate(parts):
                self._sums.add(int(limb) + place, positions[rows], part[rows])

    def rounded(self) -> Floats:
        """Return each group's sum."""
        lowest, digits = self._sums.digits()
        is_negative = digits[-1] < 0
        if is_negative.any():
            digits = digits.copy()
            digits[:, is_negative] = _negated(digits[:, is_negative])
        sums = _nearest(lowest, digits)
        sums = np.where(is_negative, -sums, sums)
        return np.where(self._beyond == 0.0, sums, self._beyond)


def _negated(digits: Int64) -> Int64:
    digits = -digits
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
    high, low = (first << np.uint64(32)) | second, (third << np.uint64(32)) | below.astype(np.uint64)
    # The float of a digit is exact, so its exponent is the number of the digit's bits.
    bits = np.frexp(first.astype(np.float64))[1]
    shift = np.where(first == 0, 0, 32 - bits).astype(np.uint64)
    carried = np.where(shift == 0, np.uint64(0), low >> (np.uint64(64) - np.maximum(shift, np.uint64(1))))
    high, low = (high << shift) | carried, low << shift
    kept, rest = high >> np.uint64(11), high & np.uint64(0x7FF)
    half = np.uint64(0x400)
    is_up = (rest > half) | ((rest == half) & ((low != 0) | ((kept & np.uint64(1)) == 1)))
    kept = kept + is_up.astype(np.uint64)
    exponents = 32 * (lowest + highest - 1) + _LEAST_EXPONENT + 11 - shift.astype(np.int64)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(kept.astype(np.float64), exponents.astype(np.int32)), np.float64)
