from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.batch_plan import Pacing, parse_pace, rows_of_prefix
from streamjoin_ds.source.feed import ArrayFrontier

streams = st.lists(st.lists(st.integers(-5, 5), max_size=12), min_size=1, max_size=4)


def merged(times: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return the contract's order, spelled out: by running maximum, stream and seq."""
    order = []
    for stream, ts in enumerate(times):
        order += [(int(m), stream, seq) for seq, m in enumerate(np.maximum.accumulate(ts) if ts else [])]
    return sorted(order)


def frontiers(times: list[list[int]], taken: list[int], limit: int) -> list[ArrayFrontier]:
    running = [np.maximum.accumulate(np.array(ts, np.int64)) if ts else np.empty(0, np.int64) for ts in times]
    return [ArrayFrontier(r[t : t + limit]) for r, t in zip(running, taken, strict=True)]


@given(streams, st.integers(1, 9), st.integers(0, 7))
def test_batches_are_prefixes_of_one_order(times: list[list[int]], limit: int, ahead: int) -> None:
    order, taken, done = merged(times), [0] * len(times), 0
    while True:
        rows = rows_of_prefix(frontiers(times, taken, limit + ahead), limit)
        if not sum(rows):
            break
        assert sum(rows) == min(limit, len(order) - done)
        done += sum(rows)
        taken = [a + b for a, b in zip(taken, rows, strict=True)]
        assert taken == [sum(1 for _, s, _ in order[:done] if s == stream) for stream in range(len(times))]
    assert done == len(order)


@given(streams, st.integers(1, 50), st.integers(-6, 6))
def test_nothing_beyond_the_horizon(times: list[list[int]], limit: int, horizon: int) -> None:
    rows = rows_of_prefix(frontiers(times, [0] * len(times), limit), limit, horizon)
    due = [entry for entry in merged(times) if entry[0] <= horizon]
    assert rows == [sum(1 for _, s, _ in due[:limit] if s == stream) for stream in range(len(times))]


def test_extreme_times() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    times = [ArrayFrontier(np.array([low, high])), ArrayFrontier(np.array([low, low, high]))]
    assert rows_of_prefix(times, 2) == [1, 1]
    assert rows_of_prefix(times, 4) == [2, 2]


def test_pacing_follows_the_clock_it_is_given() -> None:
    now = [100.0]
    pacing = Pacing(60.0, lambda: now[0])
    assert pacing.horizon_us(None) is None
    assert pacing.horizon_us(5_000_000) == 5_000_000
    now[0] += 2
    assert pacing.horizon_us(9_000_000) == 5_000_000 + 120_000_000
    assert Pacing(None).horizon_us(1) is None


@pytest.mark.parametrize("text", ["0", "-1", "nan", "fast", "", "1e99"])
def test_pace_is_max_or_a_speed(text: str) -> None:
    assert parse_pace("MAX") is None
    assert parse_pace("2.5") == 2.5
    with pytest.raises(ArgumentError) as caught:
        parse_pace(text)
    assert caught.value.name == "pace"
