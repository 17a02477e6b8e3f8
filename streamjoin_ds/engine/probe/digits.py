"""Exact sums of groups of numbers, as digits of 30 bits.

Kernels add the numbers (`ExactSums`), and give the sum of each group as digits. Digits of several cells are added as
well: sums of whole numbers, which no order changes. In the end a sum becomes a float that is rounded once, a whole
number of any size, or int64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import LIMB_BITS
from streamjoin_ds.engine.kernels.objects import ExactSums, Int32, Int64
from streamjoin_ds.spec.columns import Float64

__all__ = ["SUM_TYPE", "Digits", "int64_parts", "rounded_parts"]

SUM_TYPE = pa.struct({"lowest": pa.int64(), "digits": pa.list_(pa.int64()), "beyond": pa.float64()})

_LOW = np.int64((1 << LIMB_BITS) - 1)


class Digits:
    """The exact sums of groups of numbers: ``sum(digits[k] << (30 * (lowest + k)))`` each, and what is not finite.

    Parameters
    ----------
    lowest : int
        The number of the lowest limb; 0 for sums of integers.
    digits : ndarray, shape (limbs, groups), int64
        All but the last from 0 to 2**30 - 1; at least four.
    beyond : ndarray, shape (groups,), float64
        The sum of each group's numbers that are not finite, 0.0 where there is none.
    """

    def __init__(self, lowest: int, digits: Int64, beyond: Float64) -> None:
        self._lowest, self._digits, self._beyond = lowest, digits, beyond

    @classmethod
    def of(cls, sums: ExactSums) -> Digits:
        """Return what a kernel has added up."""
        return cls(*sums.digits(), sums.beyond())

    def partial(self) -> pa.Array:
        """Return the sums as an array of `SUM_TYPE`, an element for each group."""
        limbs, groups = self._digits.shape
        edges = np.arange(groups + 1, dtype=np.int32) * np.int32(limbs)
        digits = pa.ListArray.from_arrays(edges, np.ascontiguousarray(self._digits.T).reshape(-1))
        lowest = pa.array(np.full(groups, self._lowest, np.int64))
        return pa.StructArray.from_arrays([lowest, digits, pa.array(self._beyond)], fields=list(SUM_TYPE))

    def with_partials(self, partials: Sequence[tuple[Int32, pa.Array]]) -> Digits:
        """Return these sums and others together: for each a group of these, none twice, and what `partial` gave."""
        of_each = [_Limbs(positions, partial) for positions, partial in partials if len(positions)]
        if not of_each:
            return self
        lowest = min(self._lowest, *(limbs.lowest for limbs in of_each))
        highest = max(self._lowest + len(self._digits), *(limbs.highest for limbs in of_each))
        digits = np.zeros((highest - lowest + 1, self._digits.shape[1]), np.int64)  # one more, for what is carried
        begin = self._lowest - lowest
        digits[begin : begin + len(self._digits)] = self._digits
        beyond = self._beyond.copy()
        with np.errstate(invalid="ignore"):
            for limbs in of_each:
                # No limb of a group is there twice, so each is added.
                digits[limbs.numbers - lowest, limbs.positions] += limbs.values
                beyond[limbs.groups] += limbs.beyond
        return Digits(lowest, _carried(digits), beyond)

    def rounded(self) -> Float64:
        """Return each group's sum, rounded once: the float that is nearest to the exact sum, ties to even.

        As with floats everywhere, NaN or both infinities in a group make NaN, and what is too large is infinite. A sum
        that is zero is positive zero.
        """
        digits, is_negative = self._digits, self._digits[-1] < 0
        if is_negative.any():
            digits = digits.copy()
            digits[:, is_negative] = _carried(-digits[:, is_negative])
        found = _nearest(self._lowest, digits)
        return np.where(self._beyond == 0.0, np.where(is_negative, -found, found), self._beyond)

    def whole(self) -> list[int]:
        """Return each group's sum of integers as a whole number of any size."""
        found = self._digits[-1].astype(object)
        for row in self._digits[-2::-1]:
            found = (found << LIMB_BITS) + row.astype(object)
        return [int(each) << (LIMB_BITS * self._lowest) for each in found]

    def int64_sums(self) -> Int64 | None:
        """Return the sums of int64 numbers as int64; None if one does not fit."""
        digits, is_negative = self._digits, self._digits[-1] < 0
        for place, row in enumerate(digits[3:], 3):
            sign = -1 if place == len(digits) - 1 else (1 << LIMB_BITS) - 1
            if not np.array_equal(row, np.where(is_negative, sign, 0)):
                return None
        high = digits[2] - (is_negative.astype(np.int64) << LIMB_BITS)
        if not np.all((high >= -8) & (high < 8)):
            return None
        return np.asarray((high << 60) | (digits[1] << 30) | digits[0], np.int64)


def rounded_parts(parts: Sequence[Float64]) -> Float64 | None:
    """Return the rounded sum of three floats for each group, as `Digits.rounded` would; None: some need more digits.

    Each step keeps what its addition loses (Knuth's two-sum). The last but one has all that the sum lacks.
    """
    first, second, third = parts
    lower, lost = _two_sum(second, third)
    upper, more = _two_sum(first, lower)
    rest, beyond = _two_sum(more, lost)
    return None if beyond.any() else upper + rest


def _two_sum(left: Float64, right: Float64) -> tuple[Float64, Float64]:
    """Return the rounded sum, and what it lacks."""
    total = left + right
    other = total - left
    return total, (left - (total - other)) + (right - other)


def int64_parts(parts: Sequence[Int64]) -> Int64 | None:
    """Return sums of integers that are given as upper parts, times 2**32, and lower ones; None if one is not int64."""
    upper, lower = parts
    upper = upper + (lower >> 32)
    if len(upper) and not -(1 << 31) <= upper.min() <= upper.max() < 1 << 31:
        return None
    return np.asarray((upper << 32) | (lower & ((1 << 32) - 1)), np.int64)


class _Limbs:
    """What `Digits.partial` gave, one limb of one group at a time."""

    def __init__(self, groups: Int32, partial: pa.Array) -> None:
        lowest, digits, self.beyond = partial.flatten()
        self.groups, self.beyond = groups, self.beyond.to_numpy()
        counts, first = digits.value_lengths().to_numpy(), lowest.to_numpy()
        self.lowest, self.highest = int(first.min()), int((first + counts).max())
        self.values, self.positions = digits.flatten().to_numpy(), np.repeat(groups, counts)
        self.numbers = np.arange(len(self.values)) + np.repeat(first - np.cumsum(counts) + counts, counts)


def _carried(digits: Int64) -> Int64:
    """Return numbers given as digits of any size with all but the last from 0 to 2**30 - 1, in place."""
    for place in range(len(digits) - 1):
        digits[place + 1] += digits[place] >> LIMB_BITS
        digits[place] &= _LOW
    return digits


def _nearest(lowest: int, digits: Int64) -> Float64:
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
    shift = np.where(first == 0, 0, LIMB_BITS - bits).astype(np.uint64)
    carried = np.where(shift == 0, np.uint64(0), low >> (np.uint64(64) - np.maximum(shift, np.uint64(1))))
    high, low = (high << shift) | carried, low << shift
    kept, rest = high >> np.uint64(11), high & np.uint64(0x7FF)
    half = np.uint64(0x400)
    is_up = (rest > half) | ((rest == half) & ((low != 0) | ((kept & np.uint64(1)) == 1)))
    kept = kept + is_up.astype(np.uint64)
    exponents = LIMB_BITS * (lowest + highest - 2) + 26 + 11 - shift.astype(np.int64)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(kept.astype(np.float64), exponents.astype(np.int32)), np.float64)
