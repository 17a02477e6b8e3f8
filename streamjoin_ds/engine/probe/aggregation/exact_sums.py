"""What becomes of exact sums in the end: floats rounded once, whole numbers of any size, or int64.

Kernels add the numbers (`ExactSums`), and give the sum of each group as digits of 30 bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.reference.kernel_objects import ExactSums

__all__ = ["int64_sums", "rounded", "whole"]

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LIMB_BITS = 30
_LOW = np.int64((1 << _LIMB_BITS) - 1)


def rounded(sums: ExactSums) -> Floats:
    """Return each group's sum, rounded once: the float that is nearest to the exact sum, ties to even.

    As with floats everywhere, NaN or both infinities in a group make NaN, and what is too large is infinite. A sum that
    is zero is positive zero.
    """
    lowest, digits = sums.digits()
    is_negative = digits[-1] < 0
    if is_negative.any():
        digits[:, is_negative] = _carried(-digits[:, is_negative])
    found = _nearest(lowest, digits)
    beyond = sums.beyond()
    return np.where(beyond == 0.0, np.where(is_negative, -found, found), beyond)


def whole(sums: ExactSums) -> list[int]:
    """Return each group's sum of integers as a whole number of any size."""
    lowest, digits = sums.digits()
    found = digits[-1].astype(object)
    for row in digits[-2::-1]:
        found = (found << _LIMB_BITS) + row.astype(object)
    return [int(each) << (_LIMB_BITS * lowest) for each in found]


def int64_sums(sums: ExactSums) -> Int64 | None:
    """Return the sums of int64 numbers as int64; None if one does not fit."""
    _, digits = sums.digits()
    is_negative = digits[-1] < 0
    for place, row in enumerate(digits[3:], 3):
        sign = -1 if place == len(digits) - 1 else (1 << _LIMB_BITS) - 1
        if not np.array_equal(row, np.where(is_negative, sign, 0)):
            return None
    high = digits[2] - (is_negative.astype(np.int64) << _LIMB_BITS)
    if not np.all((high >= -8) & (high < 8)):
        return None
    return np.asarray((high << 60) | (digits[1] << 30) | digits[0], np.int64)


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
