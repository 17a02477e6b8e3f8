"""Exact sums, counts and extremes of groups: every implementation against Python's exact numbers."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.engine.probe.digits import SUM_TYPE, Digits, int64_parts, rounded_parts
from streamjoin_ds.errors import KernelError
from tests.support.examples import examples

MODULES = [twins, native]
each_module = pytest.mark.parametrize("module", MODULES, ids=["twin", "native"])

LARGEST = 1.7976931348623157e308
ENDS = st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 2.0**900, -(2.0**900), LARGEST, -LARGEST])
NEAR = st.integers(-(2**53), 2**53).map(lambda n: math.ldexp(n, -60))
FINITE = st.one_of(st.floats(allow_nan=False, allow_infinity=False), ENDS, NEAR, NEAR)
ANY = FINITE | st.sampled_from([math.inf, -math.inf, math.nan])
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -1, 0])
INT128 = st.integers(-(2**127), 2**127 - 1)


def rounded(sums):
    return Digits.of(sums).rounded()


def whole(sums):
    return Digits.of(sums).whole()


def exact(values: list[float]) -> float:
    """Return the sum of floats, rounded once."""
    beyond = [value for value in values if not math.isfinite(value)]
    if beyond:
        return math.nan if len({repr(value) for value in beyond}) > 1 else beyond[0]
    total = sum(map(Fraction, values))
    try:
        return float(total) + 0.0
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def number_of(value: float) -> int:
    """Return the int64 that stands for a float among floats."""
    (bits,) = np.array([math.nan if value != value else value]).view(np.int64).tolist()
    return bits if bits >= 0 else bits ^ (2**63 - 1)


def given_to(add, pairs, dtype, cut):
    """Give pairs of a group and a value to a method, so many at a time."""
    for begin in range(0, len(pairs), cut):
        part = pairs[begin : begin + cut]
        add(np.array([group for group, _ in part], np.int32), np.array([value for _, value in part], dtype))


def mixed(groups, seed):
    """Return pairs of a group and a value: by group, as probes mostly give them, or in any order."""
    pairs = [(group, value) for group, values in enumerate(groups) for value in values]
    if seed % 2:
        random.Random(seed).shuffle(pairs)
    return pairs


@each_module
@examples(150)
@given(
    groups=st.lists(st.lists(FINITE, max_size=12) | st.lists(ANY, max_size=6), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    cut=st.integers(1, 50),
)
def test_floats_are_rounded_once_in_any_order_and_cut(module, groups, seed, cut) -> None:
    sums = module.ExactSums(len(groups))
    given_to(sums.add_floats, mixed(groups, seed), np.float64, cut)
    assert repr(rounded(sums).tolist()) == repr([exact(values) for values in groups])


def together(module, groups, seed, add, dtype):
    """Return the digits of sums that were added up in parts: each has some of the groups, in an order of its own."""
    dice = random.Random(seed)
    parts = [[] for _ in range(dice.randint(1, 4))]
    for pair in mixed(groups, seed):
        dice.choice(parts).append(pair)
    partials = []
    for part in parts[1:]:
        positions = dice.sample(range(len(groups)), len(groups))
        sums = module.ExactSums(len(groups))
        given_to(getattr(sums, add), [(positions.index(group), value) for group, value in part], dtype, 50)
        has = {group for group, _ in part}
        told = [place for place, group in enumerate(positions) if group in has or dice.random() < 0.5]
        partial = Digits.of(sums).partial().take(pa.array(told, pa.int64()))
        assert partial.type == SUM_TYPE
        partials.append((np.array(positions, np.int32)[told], partial))
    sums = module.ExactSums(len(groups))
    given_to(getattr(sums, add), parts[0], dtype, 50)
    return Digits.of(sums).with_partials(partials)


@each_module
@examples(150)
@given(
    groups=st.lists(st.lists(FINITE, max_size=12) | st.lists(ANY, max_size=6), min_size=1, max_size=4),
    seed=st.integers(0, 999),
)
def test_floats_that_were_added_up_in_parts_are_rounded_once(module, groups, seed) -> None:
    digits = together(module, groups, seed, "add_floats", np.float64)
    wanted = repr([exact(values) for values in groups])
    assert repr(digits.rounded().tolist()) == wanted
    again = Digits.of(module.ExactSums(len(groups)))
    again = again.with_partials([(np.arange(len(groups), dtype=np.int32), digits.partial())])
    assert repr(again.rounded().tolist()) == wanted


@each_module
@examples(100)
@given(groups=st.lists(st.lists(INT64, max_size=8), min_size=1, max_size=3), seed=st.integers(0, 999))
def test_integers_that_were_added_up_in_parts_are_exact(module, groups, seed) -> None:
    digits = together(module, groups, seed, "add_integers", np.int64)
    wanted = [sum(values) for values in groups]
    assert digits.whole() == wanted
    found = digits.int64_sums()
    fits = all(-(2**63) <= value < 2**63 for value in wanted)
    assert (found is not None) == fits
    assert not fits or found.tolist() == wanted


@each_module
def test_sums_at_ties_and_ends_are_those_of_exact_numbers(module) -> None:
    cases = [
        [],
        [-0.0],
        [1.0, 2.0**-53],
        [1.0, 2.0**-53, 5e-324],
        [1.0 + 2.0**-52, 2.0**-53],
        [1.0, -(2.0**-54)],
        [5e-324] * 3,
        [2.2250738585072014e-308, -5e-324],
        [LARGEST, 9.9e291],
        [LARGEST, 9.98e291],
        [LARGEST, 1e308, -1e308],
        [LARGEST] * 9 + [-LARGEST] * 8,
        [2.0**899, 2.0**900, -(2.0**900)],
        [LARGEST, 1.0, 5e-324, -LARGEST, -1.0],
        [-1.0, 1e-30],
        [2.0**62] * 5,
        [math.inf, LARGEST, LARGEST],
        [math.inf, -math.inf],
        [math.nan, math.inf],
    ]
    for values in cases:
        sums = module.ExactSums(2)
        sums.add_floats(np.ones(len(values), np.int32), np.array(values, np.float64))
        assert repr(rounded(sums).tolist()) == repr([0.0, exact(values)]), values


@each_module
@examples(100)
@given(groups=st.lists(st.lists(INT64, max_size=8), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_integers_are_summed_exactly_or_said_not_to_fit(module, groups, seed) -> None:
    sums = module.ExactSums(len(groups))
    given_to(sums.add_integers, mixed(groups, seed), np.int64, 5)
    wanted = [sum(values) for values in groups]
    assert whole(sums) == wanted
    found = Digits.of(sums).int64_sums()
    assert (None if found is None else found.tolist()) == (
        wanted if all(-(2**63) <= each < 2**63 for each in wanted) else None
    )
    assert sums.digits()[0] == 0


@each_module
@examples(60)
@given(groups=st.lists(st.lists(INT128, max_size=8), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_integers_of_128_bits_are_summed_exactly(module, groups, seed) -> None:
    sums, pairs = module.ExactSums(len(groups)), mixed(groups, seed)
    words = b"".join(value.to_bytes(16, "little", signed=True) for _, value in pairs)
    sums.add_wide(np.array([group for group, _ in pairs], np.int32), np.frombuffer(words, np.int64))
    assert whole(sums) == [sum(values) for values in groups]


@each_module
def test_many_numbers_do_not_overflow_a_limb(module) -> None:
    """Limbs are carried every 4 194 304 numbers, in the middle of an array too."""
    n = (1 << 22) + 5 if module is native else 99
    positions, one = np.zeros(n, np.int32), np.ones(1, np.int32)
    sums, floats, wide = (module.ExactSums(2) for _ in range(3))
    sums.add_integers(one, np.array([-7]))
    floats.add_floats(one, np.array([-0.75]))
    for sign in (-1, 1, -1):
        sums.add_integers(positions, np.full(n, sign * (2**63 - 1)))
        floats.add_floats(positions, np.full(n, sign * LARGEST))
    floats.add_floats(positions, np.full(n, LARGEST))
    floats.add_floats(one, np.array([-(2.0**-60)]))
    half = n // 2 + 1
    for _ in range(2):
        wide.add_wide(positions[:half], np.tile(np.array([-1, 2**63 - 1]), half))
    small, turns = module.ExactSums(2), np.arange(n, dtype=np.int32) % 2
    for _ in range(5):
        small.add_integers(turns, np.where(turns == 0, 2**40 - 1, 1 - 2**40))
    assert whole(small) == [5 * (n // 2 + 1) * (2**40 - 1), -5 * (n // 2) * (2**40 - 1)]
    assert whole(sums) == [-n * (2**63 - 1), -7]
    assert rounded(floats).tolist() == [0.0, -0.75 - 2.0**-60]
    assert whole(wide) == [2 * half * (2**127 - 1), 0]


@each_module
@given(st.lists(st.integers(0, 3), max_size=30))
def test_positions_are_counted(module, positions) -> None:
    counts = np.array([5, 0, -1, 0])
    module.tally(np.array(positions, np.int32), counts)
    assert counts.tolist() == [start + positions.count(group) for group, start in enumerate([5, 0, -1, 0])]


@each_module
@given(
    groups=st.lists(st.lists(ANY, max_size=6), min_size=1, max_size=3)
    | st.lists(st.lists(INT64, max_size=6), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    largest=st.booleans(),
    first=INT64,
)
def test_extremes_are_those_of_all_values(module, groups, seed, largest, first) -> None:
    is_float = any(isinstance(value, float) for values in groups for value in values)
    best = np.full(len(groups), first)
    given_to(
        lambda positions, values: module.extremes(positions, values, best, largest=largest),
        mixed(groups, seed),
        np.float64 if is_float else np.int64,
        4,
    )
    numbers = [[first, *(number_of(value) if is_float else value for value in values)] for values in groups]
    assert best.tolist() == [(max if largest else min)(each) for each in numbers]


@each_module
def test_every_nan_is_the_largest_number(module) -> None:
    strange = np.array([-1, 0x7FF0000000000001]).view(np.float64)
    best = np.full(2, -(2**63))
    module.extremes(np.array([0, 1], np.int32), strange, best, largest=True)
    assert best.tolist() == [number_of(math.nan)] * 2
    sums = module.ExactSums(2)
    sums.add_floats(np.array([0, 1], np.int32), strange)
    assert sums.beyond().view(np.int64).tolist() == [number_of(math.nan)] * 2


@each_module
def test_what_is_outside_is_refused_and_adds_nothing(module) -> None:
    one, value, count = np.zeros(1, np.int32), np.ones(1), np.ones(1, np.int64)
    for wrong in (-1, 1 << 31, 1.5):
        with pytest.raises(KernelError) as caught:
            module.ExactSums(wrong)
        assert caught.value.name == "count"
    sums = module.ExactSums(2)
    for outside in (-1, 2):
        positions = np.array([1, outside], np.int32)
        for call in (
            lambda: sums.add_floats(positions, np.ones(2)),  # noqa: B023 - it is called here
            lambda: sums.add_integers(positions, np.ones(2, np.int64)),  # noqa: B023
            lambda: sums.add_wide(positions, np.ones(4, np.int64)),  # noqa: B023
            lambda: module.tally(positions, np.zeros(2, np.int64)),  # noqa: B023
            lambda: module.extremes(positions, np.ones(2), np.zeros(2, np.int64), largest=True),  # noqa: B023
        ):
            with pytest.raises(KernelError, match="outside the groups"):
                call()
    locked = np.ones(1, np.int64)
    locked.flags.writeable = False
    for call, name in (
        (lambda: sums.add_floats(one, np.ones(2)), "values"),
        (lambda: sums.add_floats(one, count), "values"),
        (lambda: sums.add_floats(np.zeros(1, np.int64), value), "positions"),
        (lambda: sums.add_floats(np.zeros(4, np.int32)[::2], np.ones(2)), "positions"),
        (lambda: sums.add_integers(one, np.ones(2, np.int64)), "values"),
        (lambda: sums.add_integers(one, value), "values"),
        (lambda: sums.add_wide(one, count), "words"),
        (lambda: sums.add_wide(one, np.ones(4, np.int64)), "words"),
        (lambda: sums.add_wide(one, np.ones(2)), "words"),
        (lambda: module.tally(one, value), "counts"),
        (lambda: module.tally(one, locked), "counts"),
        (lambda: module.extremes(one, value, value, largest=True), "best"),
        (lambda: module.extremes(one, value, locked, largest=True), "best"),
        (lambda: module.extremes(one, np.ones(2), count, largest=True), "values"),
        (lambda: module.extremes(one, one, count, largest=True), "values"),
    ):
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.name == name
    assert rounded(sums).tolist() == [0.0, 0.0]
    nothing = module.ExactSums(0)
    nothing.add_floats(np.empty(0, np.int32), np.empty(0))
    assert (whole(nothing), rounded(nothing).tolist()) == ([], [])


PARTS = st.tuples(*[st.integers(-(2**52), 2**52)] * 3)


@examples(300)
@given(st.lists(PARTS, min_size=1, max_size=5), st.integers(-300, 300))
def test_a_sum_of_three_parts_is_rounded_once(rows, exponent):
    scaled = [[math.ldexp(part, exponent - 33 * place) for place, part in enumerate(row)] for row in rows]
    found = rounded_parts([np.array(parts) for parts in zip(*scaled, strict=True)])
    assert found is None or found.tolist() == [float(sum(map(Fraction, row))) for row in scaled]


def test_three_parts_that_lie_close_are_rounded_without_digits():
    parts = [np.array([2.0**60, 0.0, -3.5]), np.array([2.0**7, 0.0, 3.5]), np.array([2.0**-30, 0.0, 2.0**-60])]
    assert rounded_parts(parts).tolist() == [2.0**60 + 256, 0.0, 2.0**-60]
    assert rounded_parts([np.array([2.0**100]), np.array([2.0**47]), np.array([2.0**-60])]) is None


def test_parts_of_integers_are_an_int64_or_none():
    values = [-(2**63), 2**63 - 1, -1, 0, 2**40 + 7]
    upper, lower = np.array([value >> 32 for value in values]), np.array([value & 2**32 - 1 for value in values])
    assert int64_parts((upper, lower)).tolist() == values
    assert int64_parts((upper - 3, lower + 3 * 2**32)).tolist() == values
    assert int64_parts((upper[1:2], lower[1:2] + 1)) is None
