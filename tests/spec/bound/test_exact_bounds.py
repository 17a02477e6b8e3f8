"""Bounds made exact: the bound condition accepts a pair iff the written predicate does, in exact arithmetic."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec import Condition, band
from tests.spec.joins import bound_pair

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def condition(lo: Any, hi: Any, kind: pa.DataType, right: pa.DataType | None = None) -> Condition:
    return bound_pair(band("e.x", "w.x", lo=lo, hi=hi), kind, kind if right is None else right).conditions[1]


int64s = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(
    [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX]
)
fractional = st.one_of(
    st.integers(-(2**62), 2**62),
    st.floats(-1e18, 1e18, allow_nan=False),
    st.decimals(-(10**18), 10**18, allow_nan=False, places=4),
)


@given(int64s, int64s, fractional, fractional)
def test_integers(left: int, right: int, one: Any, other: Any) -> None:
    lo, hi = sorted((one, other))
    assume(math.ceil(lo) <= math.floor(hi))
    found = condition(lo, hi, pa.int64())
    assert isinstance(found.lo, int)
    assert isinstance(found.hi, int)
    assert (found.lo <= left - right <= found.hi) == (lo <= left - right <= hi)


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [
        (-0.5, 0.5, (0, 0)),
        (-2.5, 2.5, (-2, 2)),
        (Decimal("-2.999"), Decimal("2.999"), (-2, 2)),
        (0.1, 1, (1, 1)),
        (-1e18, 1e18, (-(10**18), 10**18)),
        (INT64_MIN, INT64_MAX, (INT64_MIN, INT64_MAX)),
        (Decimal(INT64_MIN) - Decimal("0.9"), 0, (INT64_MIN, 0)),
    ],
)
def test_fractions_between_integers(lo: Any, hi: Any, expected: tuple[int, int]) -> None:
    found = condition(lo, hi, pa.int64())
    assert (found.lo, found.hi) == expected


@pytest.mark.parametrize(
    ("lo", "hi", "why"),
    [
        (0.2, 0.8, "no whole number"),
        (INT64_MIN - 1, 0, "64-bit"),
        (0, INT64_MAX + 1, "64-bit"),
        (-1e300, 1e300, "64-bit"),
    ],
)
def test_bounds_no_integer_meets(lo: Any, hi: Any, why: str) -> None:
    with pytest.raises(PredicateError, match=why):
        condition(lo, hi, pa.int64())


@given(
    st.integers(0, 18),
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.decimals(0, 100, places=3),
)
def test_decimals(scale: int, left: int, right: int, eps: Decimal) -> None:
    unit = Fraction(1, 10**scale)
    assume(Fraction(eps) / unit <= INT64_MAX)
    found = condition(eps.copy_negate(), eps, pa.decimal128(18, scale))
    assert (found.lo <= left - right <= found.hi) == (abs(left * unit - right * unit) <= Fraction(eps))


@pytest.mark.parametrize("eps", [0.1, 0.3, 0.7, 1.1, 2.3, 1e-5, 123.456])
def test_a_float_means_the_decimal_that_was_written(eps: float) -> None:
    # 0.3 is 0.299999999999999988897769753748 as a float64: its floor at one digit would be 0.2.
    for scale in (1, 3, 5, 9):
        kind = pa.decimal128(18, scale)
        as_float, as_decimal = condition(-eps, eps, kind), condition(-Decimal(str(eps)), Decimal(str(eps)), kind)
        assert (as_float.lo, as_float.hi) == (as_decimal.lo, as_decimal.hi)


@given(
    st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
)
def test_timestamps(one: timedelta, other: timedelta) -> None:
    lo, hi = sorted((one, other))
    found = condition(lo, hi, pa.timestamp("ns"), pa.timestamp("s", tz="Asia/Tokyo"))
    assert (found.lo, found.hi) == (lo // timedelta(microseconds=1), hi // timedelta(microseconds=1))
    assert found.kind == "int"


@pytest.mark.parametrize(
    ("lo", "hi", "days"),
    [("-2d", "2d", (-2, 2)), ("-36h", "36h", (-1, 1)), ("0s", "23h", (0, 0)), ("-1us", "1us", (0, 0)), (0, 0, (0, 0))],
)
def test_dates_differ_by_whole_days(lo: Any, hi: Any, days: tuple[int, int]) -> None:
    found = condition(lo, hi, pa.date32(), pa.date64())
    assert (found.lo, found.hi) == days


def test_a_band_of_dates_without_a_whole_day() -> None:
    with pytest.raises(PredicateError, match="no whole number"):
        condition("1h", "23h", pa.date32())


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.duration("ns"), pa.time64("us"), pa.timestamp("us")])
def test_a_band_of_times_needs_a_unit(kind: pa.DataType) -> None:
    for lo, hi in ((-5, 5), (0, 5), (Decimal("-0.5"), 0)):
        with pytest.raises(PredicateError, match="a bound that has no unit"):
            condition(lo, hi, kind)


def test_durations_beyond_any_time() -> None:
    with pytest.raises(PredicateError, match="10000 years"):
        condition(timedelta.min, timedelta.max, pa.timestamp("us"))


@given(st.decimals(0, 10**6, places=5) | st.floats(0, 1e300) | st.integers(0, 2**53))
def test_floats_are_the_nearest_float64(eps: Any) -> None:
    for kinds in ((pa.float64(), pa.float32()), (pa.int64(), pa.float16()), (pa.float64(), pa.uint32())):
        found = bound_pair(band("e.x", "w.x", eps), *kinds).conditions[1]
        assert found.kind == "float"
        assert (found.lo, found.hi) == (-float(eps), float(eps))
        assert math.copysign(1, found.hi) == 1
        assert math.copysign(1, found.lo) == (1 if eps == 0 else -1) or float(eps) == 0


def test_a_width_below_every_float_is_equality() -> None:
    found = condition(Decimal("-1e-390"), Decimal("1e-390"), pa.float64())
    assert (found.lo, found.hi) == (0.0, 0.0)


@pytest.mark.parametrize("bound", [2**1024 - 1, Decimal("1e309")])
def test_a_width_no_float_can_hold(bound: Any) -> None:
    with pytest.raises(PredicateError, match="float64"):
        condition(0, bound, pa.float64())


@pytest.mark.parametrize("kind", [pa.bool_(), pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize("zero", [0, 0.0, Decimal(0), timedelta(0)], ids=repr)
def test_values_without_a_difference_can_be_equal(kind: pa.DataType, zero: Any) -> None:
    found = condition(zero, zero, kind)
    assert (found.lo, found.hi) == (0, 0)
    assert found.kind == ("int" if kind == pa.bool_() else "hash")
