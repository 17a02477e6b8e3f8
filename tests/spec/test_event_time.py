"""Event times as integers: the one rule for range and rounding, and the one for records from the future."""

from __future__ import annotations

import math
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec import Generator, Stream
from streamjoin_ds.spec.event_time import (
    DAY_US,
    MAX_TS_US,
    MIN_TS_US,
    AheadLimit,
    counted_times,
    fine_times,
    running_maximum,
    too_far_ahead,
)
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


NONE = -(1 << 63)
TIMES = st.lists(st.one_of(st.none(), st.integers(0, 40), st.integers((1 << 63) - 5, (1 << 63) - 1)), max_size=30)


def plainly(times: list[int | None], largest: int, limit: int, is_measured: bool) -> list[bool]:
    far = []
    for time in times:
        beyond = time is not None and largest != NONE and is_measured and time > largest + limit
        far.append(beyond)
        if time is not None and not beyond and time > largest:
            largest, is_measured = time, True
    return far


@given(
    times=TIMES, limit=st.integers(1, 30), cut=st.integers(0, 30), begin=st.sampled_from((NONE, 20)), idle=st.booleans()
)
def test_cuts_change_nothing(times: list[int | None], limit: int, cut: int, begin: int, idle: bool) -> None:
    ts = np.array([0 if time is None else time for time in times], np.int64)
    valid = np.array([time is not None for time in times], np.bool_)
    most = AheadLimit(limit, is_measured=not idle)
    whole = too_far_ahead(ts, valid, begin, most)
    assert whole.tolist() == plainly(times, begin, limit, is_measured=not idle)
    first = too_far_ahead(ts[:cut], valid[:cut], begin, most)
    running = running_maximum(ts[:cut], valid[:cut] & ~first, begin)
    before = int(running[-1]) if len(running) else begin
    rest = too_far_ahead(ts[cut:], valid[cut:], before, most.after(begin, before))
    assert [*first.tolist(), *rest.tolist()] == whole.tolist()


def test_the_first_after_a_silence_is_measured_against_nothing() -> None:
    times = np.array([1000, 1001, 2000, 5], np.int64)
    assert too_far_ahead(times, None, 10, AheadLimit(50)).tolist() == [True, True, True, False]
    assert too_far_ahead(times, None, 10, AheadLimit(50, is_measured=False)).tolist() == [False, False, True, False]
    assert too_far_ahead(times, None, 5000, AheadLimit(50, is_measured=False)).tolist() == [False] * 4


def test_streams_say_both_and_facts_of_old_have_neither() -> None:
    stream = Stream("r", "r.csv", idle_timeout="10 minutes", max_ahead="90m")
    assert (stream.idle_timeout, stream.max_ahead) == ("10m", "1h 30m")
    assert Stream.from_facts(stream.to_facts()) == stream
    plain = Stream("r", "r.csv")
    assert not {"idle_timeout_us", "max_ahead_us"} & set(plain.to_facts())
    assert (plain.idle_timeout_us, plain.max_ahead_us) == (None, None)
    with pytest.raises(ArgumentError, match="stream r is generated"):
        Stream("r", Generator("band2d"), max_ahead="1h")
    with pytest.raises(ArgumentError, match="idle_timeout of r must be longer than 0"):
        Stream("r", idle_timeout="0s")
