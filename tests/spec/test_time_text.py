from __future__ import annotations

import math
import random
import time
from datetime import date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.time_text import event_times, event_times_ns

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


TEXTS = [
    ("2018-08-01T05:00:00Z", 1_533_099_600_000_000),
    ("2018-08-01T05:00:00z", 1_533_099_600_000_000),
    ("2018-08-01 05:00:00", 1_533_099_600_000_000),
    (" 2018-08-01T05:00:00Z ", 1_533_099_600_000_000),
    ("2018-08-01T07:00:00+02:00", 1_533_099_600_000_000),
    ("2018-08-01T07:00:00+0200", 1_533_099_600_000_000),
    ("2018-08-01", 1_533_081_600_000_000),
    ("2018-08-01T05:00:00.123456789Z", 1_533_099_600_123_456),
    ("1533099600000000", 1_533_099_600_000_000),
    ("-1", -1),
    ("0001-01-01T00:00:00Z", MIN_TS_US),
    ("9999-12-31T23:59:59.999999Z", MAX_TS_US),
    ("0000-12-31T23:59:59Z", None),
    ("9999-12-31T23:59:59-01:00", None),
    ("10000-01-01", None),
    ("2018-13-01", None),
    ("2018-08-01T05:00:00 Europe/Berlin", None),
    ("yesterday", None),
    ("2018/08/01 05:00", 1_533_099_600_000_000),
    ("2018.8.1 5:00:00", 1_533_099_600_000_000),
    ("2018-8-1", 1_533_081_600_000_000),
    ("20180801T050000Z", 1_533_099_600_000_000),
    ("20180801T0700+0200", 1_533_099_600_000_000),
    ("2018-08-01 05:00:00,120", 1_533_099_600_120_000),
    ("2018-08-01 05:00:00 UTC", 1_533_099_600_000_000),
    ("2018-08-01 05:00:00.5 gmt", 1_533_099_600_500_000),
    ("2018-08-01 05:00:00 +0000", 1_533_099_600_000_000),
    ("2018-08-01 07:00:00 +02:00", 1_533_099_600_000_000),
    ("2018-08-01T07:00:00+02:00[Europe/Berlin]", 1_533_099_600_000_000),
    ("2018-08-01T05:00:00Z[UTC]", 1_533_099_600_000_000),
    ("2018-08-01T05:00:00[UTC]", 1_533_099_600_000_000),
    ("2018-08-01T05:00:00[Europe/Berlin]", None),
    ("2018-08-01 05:00:00 CEST", None),
    ("2018-08-01 +02", None),
    ("2018/13/01", None),
    ("01/08/2018 05:00", None),
    ("2018-08/01", None),
    ("2018-08-01 05:00,5", None),
    ("", None),
    ("9223372036854775807", None),
    ("99999999999999999999", None),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_texts_alone_and_among_others(text: str, expected: int | None) -> None:
    beside = ["2020/1/1 0:00:00,5 UTC", text]
    for texts, place in (
        ([text], 0), ([text, "2020-01-01"], 0), (["2020-01-01T00:00:00Z", text, "2020-01-01"], 1),
        (["7", None, text], 2), (beside, 1), (beside[::-1], 0),
    ):  # fmt: skip
        ts, valid = event_times(pa.array(texts), "us")
        assert (int(ts[place]) if valid[place] else None) == expected
        assert [bool(v) for v in valid] == [t is not None and (t != text or expected is not None) for t in texts]


@pytest.mark.parametrize("seed", range(6))
def test_texts_of_many_ways_in_a_long_column(seed: int) -> None:
    """Some in one way, with others among them: what is read part by part is what each text is alone."""
    dice = random.Random(seed)
    kept = dict(TEXTS)
    usual = dice.choice([text for text, expected in TEXTS if expected is not None])
    odd = [*kept, "-5", "+5", "0x1F", "12.5", "1e3", "2018-08-01T05:00:00.1234567", "9" * 5000, "(a[", "\n", "\0x"]
    texts = [usual if dice.random() < (0.9, 0.999)[seed % 2] else dice.choice(odd) for _ in range(4000)]
    texts[: seed % 3] = [None] * (seed % 3)
    for read in (event_times, event_times_ns):
        alone = {text: [found[0] for found in read(pa.array([text], pa.string()), "us")] for text in {*texts}}
        ts, valid = read(pa.array(texts), "us")
        assert ts.tolist() == [alone[text][0] for text in texts]
        assert valid.tolist() == [alone[text][1] for text in texts]


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f001Z", "%Y-%m-%d", " %Y-%m-%d %H:%M", "%s"],
)
def test_no_usual_way_to_write_a_time_takes_long(form: str) -> None:
    """A way took 30 to 180 times as long as ISO 8601 with a Z, as a cast was tried with all that failed for each."""
    moments = [EPOCH + timedelta(seconds=977 * number) for number in range(20_000)]

    def seconds(texts: list[str]) -> float:
        column, least = pa.array(texts), math.inf
        for _ in range(5):
            begun = time.process_time()
            assert event_times(column, "s")[1].all()
            least = min(least, time.process_time() - begun)
        return least

    texts = [str(us(moment) // 1_000_000) if form == "%s" else moment.strftime(form) for moment in moments]
    assert seconds(texts) < 10 * seconds([moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in moments])


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_integers_by_unit_end_at_the_years(unit: str, factor: int) -> None:
    last = MAX_TS_US // factor
    ts, valid = event_times(pa.array([0, last, last + 1, None, -(1 << 63), (1 << 63) - 1]), unit)
    assert valid.tolist() == [True, True, False, False, False, False]
    assert ts[:2].tolist() == [0, last * factor]


def test_nanoseconds_are_cut_towards_the_past() -> None:
    ts, valid = event_times(pa.array([1_999, -1, 0, None]), "ns")
    assert ts[:3].tolist() == [1, -1, 0]
    assert valid.tolist() == [True, True, True, False]


def test_typed_columns() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
    for array in (
        pa.array([moment], pa.timestamp("ms", tz="UTC")),
        pa.array([moment.replace(tzinfo=None)], pa.timestamp("s")),
        pa.array([moment], pa.timestamp("ns", tz="Europe/Zurich")),
        pa.array([us(moment)], pa.int64()),
        pa.array(["2024-05-06T07:08:09Z"]).dictionary_encode(),
    ):
        assert event_times(array, "us")[0].tolist() == [us(moment)]
    assert event_times(pa.array([date(1970, 1, 2)]), "us")[0].tolist() == [86_400_000_000]
    assert event_times(pa.array([1.5]), "s")[0].tolist() == [1_500_000]
    assert not event_times(pa.array([True]), "us")[1].any()


def test_numbers_with_a_point_as_text() -> None:
    texts = pa.array(["1700000000.5", " 1.7e9 ", "-0.0000015", "1700000000", "nan", "1e400", "2024-01-01", "."])
    ts, valid = event_times(texts, "s")
    assert valid.tolist() == [True, True, True, True, False, False, True, False]
    assert ts[:4].tolist() == [1_700_000_000_500_000, 1_700_000_000_000_000, -2, 1_700_000_000_000_000]


def test_nanoseconds_of_text() -> None:
    texts = pa.array(
        ["2024-01-01T00:00:00.123456789Z", "1970-01-01", "9999-12-31T00:00:00Z", None, "1970-01-01T00:00:00.0000000019"]
    )
    ts, valid = event_times_ns(texts, "us")
    assert valid.tolist() == [True, True, False, False, True]
    assert ts[[0, 1, 4]].tolist() == [1_704_067_200_123_456_789, 0, 1]
    assert (ts // 1000)[valid].tolist() == event_times(texts, "us")[0][valid].tolist()
    assert event_times_ns(pa.array(["1700000000123456789", "-1"]), "ns")[0].tolist() == [1_700_000_000_123_456_789, -1]


@given(st.lists(st.datetimes(timezones=st.just(timezone.utc)), min_size=1, max_size=20), st.integers(-14, 14))
def test_any_moment_in_any_zone(moments: list[datetime], hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    shown = [m for m in moments if 2 <= m.year <= 9998]
    texts = [m.astimezone(zone).isoformat() for m in shown] + ["2000-01-01T00:00:00"]
    ts, valid = event_times(pa.array(texts), "us")
    assert valid.all()
    assert ts[:-1].tolist() == [us(m) for m in shown]


_NEARLY = st.tuples(
    st.sampled_from(
        ["{d:%Y-%m-%d}", "{d:%Y/%m/%d}", "{d:%Y.%m.%d}", "{d.year}/{d.month}/{d.day}", "{d.year}-{d.month}-{d.day}"]
    ),
    st.sampled_from(["T", " "]),
    st.sampled_from(["{d:%H:%M:%S}", "{d.hour}:{d:%M:%S}", "{d:%H:%M:%S}.{ms:03d}", "{d:%H:%M:%S},{ms:03d}"]),
    st.sampled_from(["", "Z", " Z", " UTC", " gmt", "[UTC]", "+00:00", " +0000", "+00", " -00:00[Etc/UTC]"]),
)


@given(st.lists(st.tuples(st.datetimes(datetime(1000, 1, 1)), st.integers(0, 999), _NEARLY), min_size=1, max_size=8))
def test_what_is_nearly_iso_is_the_moment_that_it_says(given: list[tuple[datetime, int, tuple[str, ...]]]) -> None:
    """In any company: what is beside a text does not decide how it is read."""
    texts, moments = [], []
    for moment, milliseconds, form in given:
        texts.append("".join(form).format(d=moment, ms=milliseconds))
        shown = timedelta(milliseconds=milliseconds if "{ms" in form[2] else 0)
        moments.append(us(moment.replace(microsecond=0, tzinfo=timezone.utc) + shown))
    ts, valid = event_times(pa.array(texts), "us")
    assert valid.all(), texts
    assert ts.tolist() == moments
