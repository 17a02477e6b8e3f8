"""Periodic windows that tuples have in common: every implementation against exact integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.duration import MAX_DURATION_US
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError

LEAST, MOST = -(1 << 63), (1 << 63) - 1
TIMES = st.one_of(st.integers(LEAST, MOST), st.integers(-1000, 1000))
SPANS = st.one_of(st.integers(1, 50), st.integers(1, MAX_DURATION_US))
MODULES = [native, twins]


def part(module, times, cut=0):
    """Return all times of one stream, in two runs cut at `cut`, and each time's run and row."""
    values = np.array(times, dtype=np.int64)
    numbers = np.arange(len(times), dtype=np.int32)
    runs = module.RunColumns([[values[:cut].copy()], [values[cut:].copy()]])
    run_numbers = (numbers >= cut).astype(np.int32)
    return runs, run_numbers, (numbers - run_numbers * cut).astype(np.int32)


def drained(common, room, *, with_ids=True):
    found = []
    while not common.is_done:
        results, ids = np.empty(room, np.int32), np.empty(room, np.int64)
        count = common.filling(results, ids if with_ids else None).do()
        found += zip(results[:count].tolist(), ids[:count].tolist() if with_ids else [None] * count, strict=True)
        assert count == room or common.is_done
    return found


@pytest.mark.parametrize("module", MODULES)
@given(
    times=st.lists(st.lists(TIMES, min_size=4, max_size=4), min_size=1, max_size=3),
    every=SPANS,
    spans=st.lists(st.tuples(SPANS, st.integers(-3, 3)), min_size=3, max_size=3),
    room=st.integers(1, 9),
)
@example([[LEAST, MOST, 0, 1]], 1, [(1, 1)] * 3, 2)
@example([[LEAST, MOST, LEAST, MOST], [MOST, LEAST, LEAST, MOST]], 1, [(MAX_DURATION_US, 3), (5, -3), (1, 0)], 3)
@example([[LEAST, MOST, LEAST + 1, -1]], 2, [(MAX_DURATION_US, -3)] * 3, 4)
def test_ids_are_those_whose_windows_hold_the_times(module, times, every, spans, room) -> None:
    """Window ``i`` holds ``(i*T - W, i*T]``; the test looks at the ids on both sides of each end of what was found."""
    every = min(every, MAX_DURATION_US // 3)
    windows = spans[: len(times)]
    make = lambda: module.CommonWindows(every, windows, [part(module, own, 2) for own in times])  # noqa: E731
    once = [result for result, _ in drained(make(), room, with_ids=False)]
    assert once == sorted(set(once))
    for result in range(4):
        # Integers are exact here; numbers beyond int64 are no ids.
        lows = [-(-own[result] // every) - lag for own, (_, lag) in zip(times, windows, strict=True)]
        highs = [(own[result] + window - 1) // every - lag for own, (window, lag) in zip(times, windows, strict=True)]
        low, high = max(*lows, LEAST), min(*highs, MOST)
        assert (result in once) == (low <= high)
        for number in (low - 1, low, high, high + 1):
            ends = [((number + lag) * every, window) for window, lag in windows]
            holds = all(end - window < own[result] <= end for own, (end, window) in zip(times, ends, strict=True))
            assert holds == (low <= number <= high) or not LEAST <= number <= MOST
    if all(window // every < 60 for window, _ in windows):
        expected = []
        for result in once:
            lows = [-(-own[result] // every) - lag for own, (_, lag) in zip(times, windows, strict=True)]
            highs = [(o[result] + window - 1) // every - lag for o, (window, lag) in zip(times, windows, strict=True)]
            expected += [(result, number) for number in range(max(*lows, LEAST), min(*highs, MOST) + 1)]
        assert drained(make(), room) == expected


@pytest.mark.parametrize("module", MODULES)
def test_a_result_may_be_in_more_windows_than_there_is_room_for(module) -> None:
    one = part(module, [5, 7])
    assert drained(module.CommonWindows(10, [(1000, 0)], [one]), 7) == [
        (row, n) for row in (0, 1) for n in range(1, 101)
    ]


@pytest.mark.parametrize("module", MODULES)
def test_gaps_hold_nothing(module) -> None:
    held = drained(module.CommonWindows(10, [(3, 0)], [part(module, range(21))]), 64)
    assert held == [(0, 0), (8, 1), (9, 1), (10, 1), (18, 2), (19, 2), (20, 2)]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"every": 0}, "every"),
        ({"every": 1 << 61}, "every"),
        ({"every": "x"}, "every"),
        ({"windows": []}, "windows"),
        ({"windows": [(1, 0), (1, 0)]}, "windows"),
        ({"windows": [(0, 0)]}, "windows"),
        ({"windows": [(1, 1 << 60)]}, "windows"),
    ],
)
def test_what_is_out_of_range_is_refused(module, change, name) -> None:
    told = {"every": 10, "windows": [(5, 0)], "parts": [part(module, [1, 2])]} | change
    with pytest.raises(KernelError) as caught:
        module.CommonWindows(**told)
    assert caught.value.name == name


@pytest.mark.parametrize("module", MODULES)
def test_rows_that_are_not_there_are_refused(module) -> None:
    (columns, runs, rows), one, two = part(module, [1, 2]), np.int32(1), np.int32(2)
    for wrong in ((runs, rows + two), (runs + two, rows), (runs, rows - one)):
        common = module.CommonWindows(10, [(5, 0)], [(columns, *wrong)])
        with pytest.raises(KernelError):
            common.filling(np.empty(8, np.int32), np.empty(8, np.int64)).do()
    with pytest.raises(KernelError):
        module.CommonWindows(10, [(5, 0), (5, 0)], [(columns, runs, rows), (columns, runs[:1], rows[:1])])
    with pytest.raises(KernelError):
        module.CommonWindows(10, [(5, 0)], [(columns, runs, rows)]).filling(
            np.empty(8, np.int32), np.empty(7, np.int64)
        )
