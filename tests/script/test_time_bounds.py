"""Bounds on event times and the window that they are: the same pairs, whatever the bounds."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.script.sql_text import Span
from streamjoin_ds.script.time_bounds import Contradiction, TimeBound, Unbounded, time_bounds, window_of
from streamjoin_ds.spec import TimeWindow
from streamjoin_ds.spec.expression.parser import parse_condition
from tests.support.examples import examples

TIMES = {"e": "ts", "w": "ts", "v": "at"}
HERE = Span(3, 9)
S = 1_000_000


def bounds(text: str, *, is_fine: bool = False) -> set[tuple[str, str, int]] | None:
    found = time_bounds(parse_condition(text), TIMES, HERE, is_fine=is_fine)
    return None if found is None else {(bound.later, bound.earlier, bound.us) for bound in found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "e.ts BETWEEN w.ts - INTERVAL 15 SECONDS AND w.ts + INTERVAL '1' MINUTE",
            {("e", "w", 60 * S), ("w", "e", 15 * S)},
        ),
        ("abs(e.ts - w.ts) <= INTERVAL 15 SECONDS", {("e", "w", 15 * S), ("w", "e", 15 * S)}),
        ("INTERVAL 15 SECONDS > abs(e.ts - w.ts)", {("e", "w", 15 * S - 1), ("w", "e", 15 * S - 1)}),
        ("e.ts - w.ts BETWEEN INTERVAL 5 SECONDS AND INTERVAL 15 SECONDS", {("e", "w", 15 * S), ("w", "e", -5 * S)}),
        ("e.ts >= w.ts", {("w", "e", 0)}),
        ("e.ts > w.ts", {("w", "e", -1)}),
        ("e.ts < v.at + INTERVAL 1 SECOND", {("e", "v", S - 1)}),
        ("w.ts + INTERVAL 2 SECONDS >= e.ts - INTERVAL 1 SECOND", {("e", "w", 3 * S)}),
        ("-INTERVAL 1 SECOND <= e.ts - w.ts", {("w", "e", S)}),
        ("e.ts = w.ts", {("e", "w", 0), ("w", "e", 0)}),
        ("e.ts = w.ts - INTERVAL 1 MICROSECOND", {("e", "w", -1), ("w", "e", 1)}),
        ("e.ts <> w.ts", None),
        ("abs(e.ts - w.ts) >= INTERVAL 15 SECONDS", None),
        ("e.ts + w.ts <= INTERVAL 1 SECOND", None),
        ("e.ts - e.ts <= INTERVAL 1 SECOND", None),
        ("e.ts <= TIMESTAMP '2024-01-01 00:00:00'", None),
        ("e.ts <= v.ts + INTERVAL 1 SECOND", None),
        ("e.x <= w.ts", None),
        ("abs(e.ts - w.ts) <= 15", None),
        ("e.ts <= w.ts OR e.x = 1", None),
        ("NOT e.ts <= w.ts", None),
    ],
)  # fmt: skip
def test_bounds_are_found_in_every_form(text: str, expected: set[tuple[str, str, int]] | None) -> None:
    assert bounds(text) == expected


def test_a_strict_bound_leaves_parts_of_a_microsecond() -> None:
    assert bounds("e.ts < w.ts", is_fine=True) == {("e", "w", 0)}


def window(*found: tuple[str, str, int], streams: tuple[str, ...] = ("e", "w")) -> object:
    return window_of(streams, TIMES, [TimeBound(*bound, HERE) for bound in found])


def test_bounds_become_a_window_for_each_stream() -> None:
    assert window(("e", "w", 15), ("w", "e", 5)) == (TimeWindow((5, 15)), [])
    found = window(("e", "w", 15), ("w", "e", -5))
    assert isinstance(found, tuple)
    (band,) = found[1]
    assert (found[0], band.lo, band.hi) == (TimeWindow((0, 15)), timedelta(microseconds=5), timedelta(microseconds=15))


def test_what_is_missing_or_contradictory_is_told() -> None:
    assert window() == Unbounded("e", "w")
    assert window(("w", "e", 5)) == Unbounded("e", "w")
    assert window(("e", "w", 5), ("w", "e", -6)) == Contradiction(HERE)
    assert window(("e", "w", -5), ("w", "v", 2), ("v", "e", 2), streams=("e", "w", "v")) == Contradiction(HERE)


US = st.integers(-6, 12)


@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), US), max_size=8),
    st.lists(st.integers(0, 14), min_size=4, max_size=4),
)
@examples(150)
def test_window_and_bands_are_the_bounds(count: int, given: list[tuple[int, int, int]], moments: list[int]) -> None:
    """Tuples satisfy the bounds iff the window allows each pair of them and each band holds."""
    streams = [f"s{number}" for number in range(count)]
    times = dict.fromkeys(streams, "ts")
    written = [TimeBound(streams[a], streams[b], us, HERE) for a, b, us in given if a != b and max(a, b) < count]
    found = window_of(streams, times, written)
    ts = dict(zip(streams, moments, strict=False))
    holds = all(ts[bound.later] - ts[bound.earlier] <= bound.us for bound in written)
    if isinstance(found, Contradiction):
        assert not holds
    elif isinstance(found, Unbounded):
        assert not any(bound.later == found.later and bound.earlier == found.earlier for bound in written)
    else:
        kind, bands = found
        allowed = all(
            ts[left] - ts[right] <= kind.extent(streams.index(right))
            for left, right in itertools.permutations(streams, 2)
        )
        between = all(
            band.lo <= timedelta(microseconds=ts[band.left.stream] - ts[band.right.stream]) <= band.hi for band in bands
        )
        assert holds == (allowed and between)
