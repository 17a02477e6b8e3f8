"""Local times of zones, beside zoneinfo: each moment by its text and back, hours that a clock shows twice or skips."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, too_far_ahead
from streamjoin_ds.spec.time_zone import SeenTimes, Zone, in_order, running_times, value_zone, zone_names, zone_of
from tests.support.examples import examples

NAMES = sorted(zone_names())
EPOCH = datetime(1970, 1, 1)
HOUR_US = 3_600_000_000


def seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)


def offsets(zone: Zone, *local: datetime) -> list[tuple[int, int]]:
    found = zone.offsets(np.array([seconds(one) for one in local], np.int64))
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def by_zoneinfo(name: str, local: datetime) -> tuple[int, int]:
    """Return what zoneinfo says of both meanings of a local time (PEP 495)."""
    told = [local.replace(tzinfo=ZoneInfo(name), fold=fold).utcoffset() for fold in (0, 1)]
    return tuple(int(one.total_seconds()) for one in told)  # type: ignore[return-value,union-attr]


@examples(60)
@given(
    st.sampled_from(NAMES),
    st.lists(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), min_size=1, max_size=4),
)
def test_any_local_time_of_any_zone_is_what_zoneinfo_says(name: str, moments: list[datetime]) -> None:
    zone = zone_of(name)
    assert zone is not None
    near = [one.replace(microsecond=0, year=min(max(one.year, 1850), 2037)) for one in moments if one.day < 29]
    moments = [one.replace(microsecond=0) for one in moments] + near
    assert offsets(zone, *moments) == [by_zoneinfo(name, one) for one in moments]


@pytest.mark.parametrize(
    "name",
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "Europe/London"],
)
def test_around_each_change_of_a_zone_every_local_time_is_what_zoneinfo_says(name: str) -> None:
    zone = Zone(name, ZoneInfo(name))
    zone.offsets(np.array([seconds(datetime(year, 6, 1)) for year in (1970, 2040)], np.int64))
    steps = [-90_000, -7201, -3600, -1801, -1800, -1, 0, 1, 899, 1799, 1800, 3599, 3600, 7199, 90_000]
    changes = [int(change) for change in zone._changes]
    assert len(changes) > 2
    local = [EPOCH + timedelta(seconds=change + step + base) for change in changes for step in steps
             for base in {int(one) for one in zone._offsets[-3:]}]  # fmt: skip
    assert offsets(zone, *local) == [by_zoneinfo(name, one) for one in local]


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("CET", 1), ("cest", 2), ("EST", -5), ("UTC", 0), ("+01:00", 1), ("-0530", -5.5), ("UTC+2", 2), ("Z", 0),
        ("CST", None), ("BST", None), ("XYZ", None), ("", None), ("../etc/passwd", None), ("+25", None),
    ],
)  # fmt: skip
def test_a_value_of_a_zone_is_one_offset_or_none(name: str, hours: float | None) -> None:
    zone = value_zone(name)
    if hours is None:
        assert zone is None
        return
    assert zone is not None
    assert offsets(zone, datetime(2024, 1, 1), datetime(2024, 7, 1)) == [(int(hours * 3600),) * 2] * 2


def local_seen(zone: str, texts: list[str]) -> SeenTimes:
    """Return local times of a zone as the reader gives them, by zoneinfo alone."""
    ts, gaps, valid = [], [], []
    for text in texts:
        first, second = by_zoneinfo(zone, datetime.fromisoformat(text))
        ts.append((seconds(datetime.fromisoformat(text)) - first) * 1_000_000)
        gaps.append(max(first - second, 0) * 1_000_000)
        valid.append(first >= second)
    return SeenTimes(np.array(ts), np.array(valid), np.array(gaps))


def test_an_hour_that_is_shown_twice_goes_by_the_order() -> None:
    texts = [f"2024-10-27 {hour:02}:{minute:02}:00" for hour in (0, 1, 2, 2, 3) for minute in range(0, 60, 10)]
    ts, _, later = in_order(local_seen("Europe/Berlin", texts), NO_TIME)
    assert (np.diff(ts) == 600_000_000).all()
    assert later is not None
    assert later.sum() == 6


def one_by_one(seen: SeenTimes, before: int, limit: AheadLimit | None) -> list[tuple[int, bool]]:
    """Return each time, and whether it is too far ahead, by the rule as it is written down."""
    found, largest = [], before
    assert seen.gap_us is not None
    for ts, valid, gap in zip(seen.ts.tolist(), seen.valid.tolist(), seen.gap_us.tolist(), strict=True):
        if gap and largest != NO_TIME and abs(ts + gap - largest) <= abs(ts - largest):
            ts += gap
        far = limit is not None and valid and largest != NO_TIME and ts > largest + limit.max_us
        if valid and not far:
            largest = max(largest, ts)
        found.append((ts if valid else 0, far))
    return found


@examples(300)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([0, 2, 4]), st.booleans()), min_size=1, max_size=30
    ),
    st.sampled_from([NO_TIME, 0, 3, 9]),
    st.sampled_from([None, AheadLimit(3), AheadLimit(100)]),
    st.integers(0, 30),
)  # fmt: skip
def test_any_order_cut_anywhere_goes_by_the_rule(
    records: list[tuple[int, int, bool]], before: int, limit: AheadLimit | None, cut: int
) -> None:
    seen = SeenTimes(
        np.array([ts if valid else 0 for ts, _, valid in records]),
        np.array([valid for _, _, valid in records]),
        np.array([gap if valid else 0 for _, gap, valid in records]),
    )
    wanted = one_by_one(seen, before, limit)
    found: list[tuple[int, bool]] = []
    for part in (seen.part(0, cut), seen.part(cut)):
        ts, far, _ = in_order(part, before, limit)
        told = np.zeros(len(ts), np.bool_) if far is None else far
        found += zip(np.where(part.valid, ts, 0).tolist(), told.tolist(), strict=True)
        if len(ts):
            before = int(running_times(part, before, limit)[-1])
    assert found == wanted


def test_a_limit_alone_is_what_it_was() -> None:
    seen = SeenTimes(np.array([1, 9, 2]), np.ones(3, np.bool_))
    ts, far, later = in_order(seen, 0, AheadLimit(3))
    assert far is not None
    assert far.tolist() == too_far_ahead(ts, seen.valid, 0, AheadLimit(3)).tolist() == [False, True, False]
    assert later is None


def test_utc_of_a_fixed_offset() -> None:
    zone = zone_of("+05:30")
    assert zone is not None
    assert offsets(zone, datetime(2024, 3, 5)) == [(19_800, 19_800)]
    assert timezone(timedelta(hours=5, minutes=30)).utcoffset(None) == timedelta(seconds=19_800)
