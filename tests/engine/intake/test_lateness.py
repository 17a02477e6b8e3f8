"""Lateness is a function of the stream alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.intake.lateness import StreamClock

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
TIMES = st.lists(st.one_of(st.integers(0, 30), st.sampled_from([INT64_MIN, INT64_MIN + 3, INT64_MAX])), max_size=40)


def _late(times: list[int], delay: int) -> list[bool]:
    return [any(earlier - delay > time for earlier in times[:n]) for n, time in enumerate(times)]


@given(times=TIMES, delay=st.integers(0, 12), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_split_is_the_contract_whatever_the_cuts(times: list[int], delay: int, cuts: list[int]) -> None:
    clock = StreamClock(delay)
    found: list[bool] = []
    edges = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    for start, stop in pairwise(edges):
        found += clock.split(np.array(times[start:stop], dtype=np.int64)).tolist()
    assert found == _late(times, delay)
    assert clock.largest == (max(times) if times else None)


@given(times=TIMES, delay=st.integers(0, 12), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_parts_cleaned_inside_give_the_same_rows(times: list[int], delay: int, cuts: list[int]) -> None:
    clock, found = StreamClock(delay), []
    edges = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    for start, stop in pairwise(edges):
        part = np.array(times[start:stop], dtype=np.int64)
        inside = StreamClock(delay).split(part)
        across = clock.part(part[~inside], int(part.max()) if len(part) else INT64_MIN)
        late = inside.copy()
        late[~inside] = across
        found += late.tolist()
    assert found == _late(times, delay)


def test_the_watermark_follows_the_largest_time() -> None:
    clock = StreamClock(5)
    assert clock.watermark is None
    clock.advance(None)
    clock.advance(INT64_MIN)
    assert clock.watermark is None
    clock.advance(20)
    clock.advance(7)
    assert clock.watermark == 15
    clock.largest = INT64_MIN + 2
    assert clock.watermark == INT64_MIN


@given(times=st.lists(st.integers(0, 50), min_size=1), delay=st.integers(0, 9))
def test_what_is_not_late_is_never_older_than_the_watermark(times: list[int], delay: int) -> None:
    clock = StreamClock(delay)
    for time in times:
        before = clock.watermark
        late = bool(clock.split(np.array([time]))[0])
        assert late == (before is not None and time < before)
