"""What is said of event times and late records: what a number may have meant, how much delay is enough, each once."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.event_time import counted_times
from streamjoin_ds.spec.input_warnings import InputWarnings, LateSeen, TimesSeen
from tests.support.examples import examples

SCHEMA = {"ts": "int64", "x": "float64"}
NOW_S = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
GOOD_US = 1_709_629_207_000_000
HOUR_US = 3_600_000_000


def warnings(window: str = "1s", now_s: float = NOW_S, **options: str) -> InputWarnings:
    streams = [Stream("e", schema=SCHEMA, **options), Stream("w", schema=SCHEMA)]
    join = Join(streams, "abs(e.x - w.x) <= 1", window)
    return InputWarnings(bind(join, dict.fromkeys("ew", pa.schema(list(SCHEMA.items())))), clock=lambda: now_s)


def seen(*times_us: int) -> TimesSeen:
    found = TimesSeen.of(np.array(times_us), np.arange(len(times_us)))
    assert found is not None
    return TimesSeen.from_facts(found.to_facts())


@pytest.mark.parametrize(
    ("number", "unit", "said"),
    [
        (1_709_629_207, "us", "time_unit='s' the first is 2024-03-05T09:00:07Z"),
        (1_709_629_207, "ms", "time_unit='s' the first is 2024-03-05T09:00:07Z"),
        (1_709_629_207_120, "us", "time_unit='ms' the first is 2024-03-05T09:00:07.12Z"),
        (1_709_629_207_120_000, "ns", "time_unit='us' the first is 2024-03-05T09:00:07.12Z"),
        (20_240_305, "us", "the date 2024-03-05, written as a number"),
        (20_240_305, "s", "the date 2024-03-05, written as a number"),
        (202_403_050_900, "us", "the date 2024-03-05T09:00:00"),
        (20_240_305_090_007, "us", "the date 2024-03-05T09:00:07"),
        (45_356, "us", "days of Excel? Then the first is 2024-03-05T00:00:00Z"),
        (45_356.375, "s", "days of Excel? Then the first is 2024-03-05T09:00:00Z"),
        (3_792_474_007, "us", "seconds since 1904? Then the first is 2024-03-05T09:00:07Z"),
        (20_240_305, "us", "time_format='%Y%m%d'"),
        (202_403_050_900, "us", "time_format='%Y%m%d%H%M'"),
        (45_356.375, "s", "time_format='excel'"),
        (3_792_474_007, "us", "time_format='labview'"),
        (2_024_065, "us", "day 65 of the year 2024? time_format='doy'"),
        (20_240_650_900, "us", "day 65 of the year 2024? time_format='doy'"),
        (2024, "us", "Is it a year?"),
        (7, "us", "7 is 1970-01-01T00:00:00.000007Z"),
        (7, "us", "The first is in seconds 1970-01-01T00:00:07Z, in milliseconds 1970-01-01T00:00:00.007Z"),
    ],
)
def test_what_a_number_may_have_meant(number: float, unit: str, said: str) -> None:
    (at_us,), _ = counted_times(pa.array([number]), unit)
    (told,) = warnings(time_unit=unit).times({"e": seen(int(at_us))})
    assert told.startswith("stream e: its first event times, of column 'ts', lie before 1990: ")
    assert said in told
    assert f"{number} is 19" in told


def test_the_clock_decides_about_the_future_alone_and_nothing_is_said_twice() -> None:
    ahead = seen(GOOD_US)
    assert list(warnings(now_s=GOOD_US / 1e6 - 364 * 86400).times({"e": ahead})) == []
    early = warnings(now_s=GOOD_US / 1e6 - 366 * 86400)
    (told,) = early.times({"e": ahead})
    assert "more than a year ahead of the clock: 1709629207000000 is 2024-03-05T09:00:07Z" in told
    assert list(early.times({"e": ahead})) == []
    assert list(warnings().times({"e": seen(GOOD_US), "w": seen(GOOD_US)})) == []


@pytest.mark.parametrize(
    ("e", "w", "window", "said"),
    [
        ((1_709_629_207,), (GOOD_US,), "1s", "is time_unit of e seconds?"),
        ((GOOD_US,), (1_709_629_207_000,), "1s", "is time_unit of w milliseconds?"),
        ((GOOD_US + HOUR_US,), (GOOD_US,), "59m", "are those of one local times, and not UTC?"),
        ((GOOD_US + HOUR_US,), (GOOD_US,), "1h", None),
        (range(GOOD_US, GOOD_US + 10), range(GOOD_US + 10_000_000, GOOD_US + 10_000_010), "1s", "local times"),
        ((GOOD_US,), (GOOD_US + 10_000_000,), "1s", None),  # one record each: the others may be on their way
        ((GOOD_US, GOOD_US + 100 * HOUR_US), (GOOD_US + 50 * HOUR_US,), "1s", None),  # one lies within the other
        ((GOOD_US,), (GOOD_US + 100 * HOUR_US,), "last 10", None),
    ],
)
def test_streams_that_never_meet(e: range, w: range, window: str, said: str | None) -> None:
    apart = [text for text in warnings(window).times({"e": seen(*e), "w": seen(*w)}) if text.startswith("e: ")]
    assert len(apart) == (said is not None)
    assert not said or said in apart[0]


def test_a_stream_that_has_gone_on_until_the_other_began_meets_it() -> None:
    for largest_us, count in ((GOOD_US + 99 * HOUR_US, 1), (GOOD_US + 100 * HOUR_US, 0)):
        log = warnings()
        assert list(log.times({"e": seen(GOOD_US)}, {"e": GOOD_US, "w": None})) == []
        assert list(log.times({}, {"e": largest_us, "w": None})) == []
        told = list(log.times({"w": seen(GOOD_US + 100 * HOUR_US)}, {"e": largest_us, "w": GOOD_US + 100 * HOUR_US}))
        assert len(told) == count


def test_late_records_are_told_the_first_time_and_when_they_are_many() -> None:
    def late(rows: int) -> LateSeen:
        found = LateSeen()
        found.add(np.full(rows, 5_000_000))
        return LateSeen.from_facts(found.to_facts())

    def told(log: InputWarnings, *counts: tuple[int, int]) -> list[int]:
        return [len(list(log.late("e", late(rows), read, GOOD_US))) for rows, read in counts]

    assert told(warnings(), (0, 100), (1, 1000), (1, 1000), (10, 1000), (11, 1000), (999, 1000), (1, 1000)) == [
        *(0, 1, 0, 0, 1, 0, 0)
    ]
    assert told(warnings(), (500, 1000), (1, 1000), (999, 1000)) == [1, 0, 0]
    assert "A delay of 5s would have kept 99.9 %: delay='5s'" in "".join(warnings().late("e", late(2), 1000, GOOD_US))
    assert "A delay of 5s would have kept all: delay='5s'" in "".join(warnings().late("e", late(1), 1000, GOOD_US))


@examples(60)
@given(st.lists(st.integers(1, 10**13), min_size=1, max_size=80), st.integers(0, 5), st.integers(1, 4))
def test_the_delay_that_is_named_leaves_no_more_late_than_may_be(late_by: list[int], left: int, cells: int) -> None:
    together = LateSeen()
    for cell in range(cells):
        part = LateSeen()
        part.add(np.array(late_by[cell::cells], np.int64))
        together.join(LateSeen.from_facts(part.to_facts()).buckets)
    assert together.rows == len(late_by)
    enough, exact = together.delay_us(left), sorted(late_by)[-1 - left] if left < len(late_by) else 0
    assert sum(one > enough for one in late_by) <= left
    assert exact <= enough <= 1.2 * exact + 1


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(-(10**15), 10**15)), min_size=1, unique_by=lambda pair: pair[0])
)
def test_parts_show_together_what_all_records_show(records: list[tuple[int, int]]) -> None:
    def shown(part: list[tuple[int, int]]) -> TimesSeen | None:
        return TimesSeen.of(np.array([us for _, us in part], np.int64), np.array([n for n, _ in part], np.int64))

    assert TimesSeen.together([shown(records[::2]), shown(records[1::2])]) == shown(records)
    found = shown(records)
    assert found is not None
    assert found.first == tuple(sorted(records)[:3])
    assert (found.least_us, found.most_us) == (min(us for _, us in records), max(us for _, us in records))
