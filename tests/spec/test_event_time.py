"""Event times as integers: the one rule for range and rounding, against Python's exact numbers."""

from __future__ import annotations

import math
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec.event_time import DAY_US, MAX_TS_US, MIN_TS_US, counted_times, fine_times
from streamjoin_ds.testing.values import event_time_us
from tests.support.examples import examples

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
QUICK = examples(300)


def found(values: pa.Array, unit: str = "us") -> list[int | None]:
    ts, valid = counted_times(values, unit)
    assert not ts[~valid].any()
    return [int(time) if there else None for time, there in zip(ts, valid, strict=True)]


def expected(ns: Fraction) -> int | None:
    us = math.floor(ns / 1000)
    return us if MIN_TS_US <= us <= MAX_TS_US else None


@st.composite
def counts(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a unit, and an int64 near zero, near the ends of int64, or near the ends of the years in that unit."""
    unit = draw(st.sampled_from(list(UNITS)))
    ends = [0, INT64_MIN, INT64_MAX, MIN_TS_US * 1000 // UNITS[unit], MAX_TS_US * 1000 // UNITS[unit]]
    count = draw(st.sampled_from(ends)) + draw(st.one_of(st.integers(-2, 2), st.integers(-(10**6), 10**6)))
    return unit, min(max(count, INT64_MIN), INT64_MAX)


@QUICK
@given(st.lists(counts(), min_size=1, max_size=5))
def test_whole_numbers_and_timestamps_of_every_unit(given_counts: list[tuple[str, int]]) -> None:
    for unit, count in given_counts:
        exact = expected(Fraction(count * UNITS[unit]))
        assert found(pa.array([count, None], pa.int64()), unit) == [exact, None]
        assert found(pa.array([None, count], pa.int64()).cast(pa.timestamp(unit, tz="Asia/Tokyo"))) == [None, exact]
        assert exact == event_time_us(count, unit)
        fine, valid = fine_times(pa.array([count], pa.timestamp(unit)), "us")
        ns = count * UNITS[unit]
        assert bool(valid[0]) is (exact is not None and INT64_MIN <= ns <= INT64_MAX)
        assert not valid[0] or (int(fine[0]) == ns and ns // 1000 == exact)


@QUICK
@given(st.integers(0, (1 << 64) - 1), st.sampled_from(list(UNITS)))
def test_unsigned_numbers(count: int, unit: str) -> None:
    exact = expected(Fraction(count * UNITS[unit])) if count <= INT64_MAX else None
    assert found(pa.array([count, None], pa.uint64()), unit) == [exact, None]


@QUICK
@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(INT64_MIN, INT64_MAX))
def test_dates(days: int, milliseconds: int) -> None:
    assert found(pa.array([days, None], pa.int32()).cast(pa.date32())) == [
        expected(Fraction(days * DAY_US * 1000)),
        None,
    ]
    whole_day = milliseconds // 86_400_000
    assert found(pa.array([milliseconds], pa.int64()).view(pa.date64())) == [
        expected(Fraction(whole_day * DAY_US * 1000))
    ]


def test_the_last_days() -> None:
    assert found(pa.array([date.min, date.max])) == [MIN_TS_US, MAX_TS_US - DAY_US + 1]


@st.composite
def near_ties(draw: st.DrawFn) -> float:
    """Draw a float next to half a microsecond, in seconds, milliseconds or microseconds."""
    half = (2 * draw(st.integers(-(10**7), 10**7)) + 1) / 2
    value = half / draw(st.sampled_from([1e6, 1e3, 1.0, 1e-3])) + draw(st.sampled_from([0.0, 0.0, 1e9]))
    return float(np.nextafter(value, draw(st.sampled_from([-math.inf, value, math.inf]))))


@QUICK
@given(st.one_of(st.floats(), near_ties(), st.floats(-3e20, 3e20), st.floats(0, 3e9)), st.sampled_from(list(UNITS)))
def test_a_float_is_the_nearest_microsecond(value: float, unit: str) -> None:
    exact = None
    if math.isfinite(value):
        nearest = round(Fraction(value) * UNITS[unit] / 1000)
        exact = nearest if MIN_TS_US <= nearest <= MAX_TS_US else None
    assert found(pa.array([value, None], pa.float64()), unit) == [exact, None]
    assert exact == event_time_us(value, unit)


def test_floats_as_clocks_give_them() -> None:
    assert found(pa.array([1_700_000_000.1, 1_700_000_000.123457, -0.1]), "s") == [
        1_700_000_000_100_000,
        1_700_000_000_123_457,
        -100_000,
    ]
    assert found(pa.array([1.5, math.nan], pa.float32()), "ms") == [1_500, None]


@pytest.mark.parametrize("values", [pa.array(["1"]), pa.array([True]), pa.array([[1]]), pa.nulls(1)])
def test_other_types_are_no_times(values: pa.Array) -> None:
    assert found(values) == [None]
