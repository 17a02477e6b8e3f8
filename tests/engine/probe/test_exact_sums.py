"""Exact sums of groups: the exact number rounded once, whatever the order of the addends."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.probe.aggregation.accumulators import _decimal_limbs, _int64_sums
from streamjoin_ds.engine.probe.aggregation.exact_sums import FloatSums, LimbSums
from tests.support.examples import examples

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NEAR = st.integers(-(2**53), 2**53).map(lambda n: math.ldexp(n, -60))
INT64 = st.integers(-(2**63), 2**63 - 1)


def exact(values: list[float]) -> float:
    total = sum(map(Fraction, values))
    try:
        return float(total) + 0.0
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@examples(150)
@given(st.lists(st.lists(st.one_of(FINITE, NEAR, NEAR), max_size=12), min_size=1, max_size=4), st.integers(0, 99))
def test_floats_are_rounded_once(groups: list[list[float]], seed: int) -> None:
    pairs = [(group, value) for group, values in enumerate(groups) for value in values]
    found = []
    for order in (0, 1):
        random.Random(seed + order).shuffle(pairs)
        sums, cut = FloatSums(len(groups)), len(pairs) // 3
        for part in (pairs[:cut], pairs[cut:]):
            sums.add(np.array([group for group, _ in part], np.int64), np.array([value for _, value in part], float))
        found.append(sums.rounded().tolist())
    assert repr(found[0]) == repr(found[1]) == repr([exact(values) for values in groups])


def test_sums_at_ties_and_ends_are_those_of_exact_numbers() -> None:
    cases = [
        [1.0, 2.0**-53],
        [1.0, 2.0**-53, 5e-324],
        [1.0 + 2.0**-52, 2.0**-53],
        [1.0, -(2.0**-54)],
        [5e-324] * 3,
        [2.2250738585072014e-308, -5e-324],
        [1.7976931348623157e308, 9.9e291],
        [1.7976931348623157e308, 9.98e291],
        [1.7976931348623157e308, 1e308, -1e308],
        [2.0**899, 2.0**900, -(2.0**900)],
        [-1.0, 1e-30],
        [2.0**62] * 5,
    ]
    for values in cases:
        sums = FloatSums(2)
        sums.add(np.ones(len(values), np.int64), np.array(values))
        assert repr(sums.rounded().tolist()) == repr([0.0, exact(values)]), values


@examples(100)
@given(st.lists(INT64, max_size=8))
def test_whole_numbers_are_summed_exactly_or_said_not_to_fit(values: list[int]) -> None:
    sums = LimbSums(2)
    sums.add_int64(np.ones(len(values), np.int64), np.array(values, np.int64))
    assert sums.whole() == [0, sum(values)]
    found = _int64_sums(sums)
    assert (None if found is None else found.tolist()) == (
        [0, sum(values)] if -(2**63) <= sum(values) < 2**63 else None
    )


@examples(60)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=8))
def test_decimals_are_summed_exactly(values: list[int]) -> None:
    from decimal import Decimal

    import pyarrow as pa

    array = pa.array([Decimal(0), *map(Decimal, values)], pa.decimal128(38, 0)).slice(1)
    sums = LimbSums(1)
    for limb, parts in enumerate(_decimal_limbs(array)):
        sums.add(limb, np.zeros(len(values), np.int64), parts)
    assert sums.whole() == [sum(values)]
