"""Local times of zones, beside zoneinfo: each moment by its text and back, hours that a clock shows twice or skips."""

from __future__ import annotations

import struct
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec.time_zone import Zone, value_zone, zone_names, zone_of
from tests.support.examples import examples
from tests.support.further import further

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


@pytest.mark.parametrize("name", ["Africa/Freetown", "America/Boa_Vista", "Africa/Tunis"])
def test_changes_some_days_apart_are_found(name: str) -> None:
    zone = Zone(name, ZoneInfo(name))
    days = [datetime(year, 1, 1, 12) + timedelta(days=day) for year in (1939, 1943, 2000) for day in range(366)]
    assert offsets(zone, *days) == [by_zoneinfo(name, one) for one in days]


def changes_of(name: str) -> tuple[bytes, list[int]]:
    """Return a zone's file of the tz database (RFC 8536), and the moments in it at which the offset may change."""
    paths = [Path(root, name) for root in TZPATH]
    found = next((path for path in paths if path.is_file()), files("tzdata.zoneinfo").joinpath(*name.split("/")))
    data = found.read_bytes()
    utc, standard, leaps, times, types, letters = struct.unpack_from(">6l", data, 20)
    begin = 44 + 5 * times + 6 * types + letters + 8 * leaps + standard + utc  # after the part with 32 bits
    assert data[begin : begin + 4] == b"TZif"
    count = struct.unpack_from(">l", data, begin + 32)[0]
    return data, np.frombuffer(data, ">i8", count, begin + 44).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, *further(1)])
def test_around_all_changes_of_all_zones_every_local_time_is_what_zoneinfo_says(every: int) -> None:
    """What a change skips or shows twice, both ends of it, and a second beside them; from 1970 to 2037."""
    begin, end = seconds(datetime(1970, 1, 2)), seconds(datetime(2037, 12, 31))
    compared = set()
    for name in NAMES[::every]:
        data, moments = changes_of(name)
        if data in compared:
            continue  # another name of a zone
        compared.add(data)
        zone = Zone(name, ZoneInfo(name))
        zone.offsets(np.array([begin, end], np.int64))
        # Of the newer years a file may have the rule alone.
        places = {place for place in [*moments, *zone._changes.tolist()] if begin <= place < end}
        local = set()
        for place in places:
            ends = sorted(zone._offset_at(place + step) + place for step in (-1, 0))
            local |= {one + step for one in (*ends, sum(ends) // 2) for step in (-1, 0, 1)}
        wanted = sorted(local)
        found = np.array(zone.offsets(np.array(wanted, np.int64))).T.tolist() if wanted else []
        info = ZoneInfo(name)
        for second, pair in zip(wanted, found, strict=True):
            moment = EPOCH + timedelta(seconds=second)
            told = [moment.replace(tzinfo=info, fold=fold).utcoffset() for fold in (0, 1)]
            assert pair == [one.total_seconds() for one in told if one is not None], (name, moment)
    assert len(compared) > 300 // every


@pytest.mark.parametrize("name", ["Africa/Casablanca", "Asia/Gaza", "Europe/Dublin", "America/Nuuk"])
def test_zones_with_changes_of_their_own_after_2038_are_right_in_any_year(name: str) -> None:
    """The tz database foretells Ramadan's changes until 2087; from then on a zone's rule is the same each year."""
    zone = Zone(name, ZoneInfo(name))
    moments = [
        datetime(year, month, 15, 12) for year in (2037, 2050, 2086, 2440, 2470, 2850, 9990) for month in range(1, 13)
    ]
    assert offsets(zone, *moments) == [by_zoneinfo(name, one) for one in moments]


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


def test_utc_of_a_fixed_offset() -> None:
    zone = zone_of("+05:30")
    assert zone is not None
    assert offsets(zone, datetime(2024, 3, 5)) == [(19_800, 19_800)]
    assert timezone(timedelta(hours=5, minutes=30)).utcoffset(None) == timedelta(seconds=19_800)
