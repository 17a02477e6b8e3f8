"""Local times that a clock shows twice, by their order: beside the rule as it is written down, and beside UTC."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, too_far_ahead
from streamjoin_ds.spec.time_zone import Rhythm, SeenTimes, in_order
from tests.support.examples import examples
from tests.support.local_times import EPOCH, LocalOrder, meanings, shown

MINUTE_US = 60_000_000
ZONES = {  # the moments of a change, in UTC, after which the clock shows a time again
    "Europe/Berlin": datetime(2024, 10, 27, 1),
    "America/New_York": datetime(2024, 11, 3, 6),
    "Australia/Lord_Howe": datetime(2024, 4, 6, 15),  # half an hour
    "Africa/Casablanca": datetime(2024, 3, 10, 2),
    "Europe/Dublin": datetime(2024, 10, 27, 1),  # winter is its exception
}


def local_seen(zone: str, utc_us: list[int]) -> SeenTimes:
    """Return what the clock of a zone shows at these moments, as the reader gives it, by zoneinfo alone."""
    found = np.array([meanings(zone, shown(zone, moment_us)) for moment_us in utc_us], np.int64)
    return SeenTimes(found[:, 0], np.ones(len(found), np.bool_), np.maximum(found[:, 1], 0))


def around(change: datetime, steps: list[int], rows: int = 1) -> list[int]:
    """Return moments around a change: it begins with a step before the last day, and so on to a day after it."""
    start = (change - EPOCH) // timedelta(microseconds=1)
    moments, at, number = [], start - 1440 * MINUTE_US, 0
    while at < start + 1440 * MINUTE_US:
        moments += [at] * rows
        at, number = at + steps[number % len(steps)] * MINUTE_US, number + 1
    return moments


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("step", [1, 10, 15, 30, 35, 45, 50, 60, 90, 120, 180, 360])
def test_a_constant_step_of_one_device_and_of_several_is_right_beside_utc(zone: str, rows: int, step: int) -> None:
    utc = around(ZONES[zone], [step], rows)
    assert in_order(local_seen(zone, utc), NO_TIME, None, ()).ts.tolist() == utc


@pytest.mark.parametrize("steps", [[7, 53], [20, 40], [10, 10, 5, 35], [0, 1, 59]])
def test_devices_that_send_hourly_within_half_an_hour_are_right_beside_utc(steps: list[int]) -> None:
    utc = around(ZONES["Europe/Berlin"], steps)
    assert in_order(local_seen("Europe/Berlin", utc), NO_TIME, None, ()).ts.tolist() == utc


def test_four_rows_of_an_hour_are_enough() -> None:
    utc = around(ZONES["Europe/Berlin"], [60])[20:28]
    for first in range(3):
        assert in_order(local_seen("Europe/Berlin", utc[first:]), NO_TIME, None, ()).ts.tolist() == utc[first:]


def test_a_missing_row_and_late_ones_do_not_change_the_pace() -> None:
    utc = around(ZONES["Europe/Berlin"], [60])
    before = utc.index((ZONES["Europe/Berlin"] - EPOCH) // timedelta(microseconds=1))
    gone = utc[: before - 2] + utc[before - 1 :]
    assert in_order(local_seen("Europe/Berlin", gone), NO_TIME, None, ()).ts.tolist() == gone
    late = [*utc[:before], utc[before - 7], *utc[before:]]
    assert in_order(local_seen("Europe/Berlin", late), NO_TIME, None, ()).ts.tolist() == late


@examples(150)
@given(
    st.sampled_from([[60], [60], [90], [20, 40], [5]]),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50)), max_size=6),
)
def test_what_is_no_constant_step_is_never_worse_than_by_nearness(
    steps: list[int], rows: int, moved: list[tuple[int, int]]
) -> None:
    """Some rows come late, so that groups are not of one size; some lie elsewhere."""
    utc = around(ZONES["Europe/Berlin"], steps, rows)
    for place, later in moved:
        utc.insert(min(place + later, len(utc)), utc[place % len(utc)])
    seen = local_seen("Europe/Berlin", utc)
    found = in_order(seen, NO_TIME, None, ()).ts.tolist()
    near, largest = [], NO_TIME
    for ts, gap in zip(seen.ts.tolist(), seen.gap_us.tolist(), strict=True):  # type: ignore[union-attr]
        near.append(ts + gap if gap and largest >= ts + gap - gap // 2 else ts)
        largest = max(largest, near[-1])
    wrong, wrong_near = (sum(a != b for a, b in zip(one, utc, strict=True)) for one in (found, near))
    assert wrong <= wrong_near


@examples(400)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 40), st.sampled_from([0, 6, 6, 12, 18])),
            st.sampled_from([0, 0, 3, 6, 6, 12]),
            st.sampled_from([True, True, True, False]),
        ),
        max_size=30,
    ),
    st.sampled_from([NO_TIME, 0, 3, 9]),
    st.sampled_from([None, AheadLimit(60 * MINUTE_US), AheadLimit(400 * MINUTE_US)]),
    st.lists(st.integers(0, 30), max_size=3),
    st.booleans(),
)  # fmt: skip
def test_any_order_cut_anywhere_goes_by_the_rule(
    records: list[tuple[int, int, bool]], before: int, limit: AheadLimit | None, cuts: list[int], is_late_cut: bool
) -> None:
    """Times lie ten minutes apart, so that there are silences, steps that repeat, and groups."""
    unit = 10 * MINUTE_US
    before = before if before == NO_TIME else before * unit
    seen = SeenTimes(
        np.array([ts * unit if valid else 0 for ts, _, valid in records], np.int64),
        np.array([valid for _, _, valid in records], np.bool_),
        np.array([gap * unit if valid else 0 for _, gap, valid in records], np.int64),
    )
    rule = LocalOrder(before, limit)
    wanted = [rule.next(ts * unit, gap * unit) if valid else (0, False) for ts, gap, valid in records]
    found: list[tuple[int, bool]] = []
    rhythm: tuple[int, ...] = ()
    places = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    for begin, end in pairwise(places):
        # A planner reads ahead of where a batch ends; a task reads the batch.
        part = seen.part(begin) if is_late_cut else seen.part(begin, end)
        ordered, count = in_order(part, before, limit, rhythm), end - begin
        told = np.zeros(len(ordered.ts), np.bool_) if ordered.far is None else ordered.far
        found += list(zip(np.where(part.valid, ordered.ts, 0).tolist(), told.tolist(), strict=True))[:count]
        rhythm = ordered.rhythm_after(count)
        assert Rhythm.is_one(rhythm)
        before = int(ordered.running[count - 1]) if count else before
    assert found == wanted
    assert before == rule.largest
    if rhythm:
        assert rhythm == (rule.begin, rule.step, rule.pace, rule.rows, rule.rows_before)


def test_a_limit_alone_is_what_it_was() -> None:
    seen = SeenTimes(np.array([1, 9, 2]), np.ones(3, np.bool_))
    ordered = in_order(seen, 0, AheadLimit(3))
    assert ordered.far is not None
    assert ordered.far.tolist() == too_far_ahead(ordered.ts, seen.valid, 0, AheadLimit(3)).tolist()
    assert ordered.far.tolist() == [False, True, False]
    assert (ordered.later, ordered.rhythm_after()) == (None, ())


@pytest.mark.parametrize(
    "facts", [(1,), (1, 2, 3, 4, "5"), (0, -1, 0, 0, 0), (1 << 63, 0, 0, 0, 0), (0, 0, 0, 0, True)]
)
def test_what_is_no_rhythm_is_none(facts: tuple[object, ...]) -> None:
    assert not Rhythm.is_one(facts)
