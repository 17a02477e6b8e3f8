"""Times of a given form, beside Python's own strptime where it knows the form, and by hand where it does not."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.time_format import TimeForm
from streamjoin_ds.spec.time_guess import guessed_forms
from streamjoin_ds.spec.time_text import event_times, event_times_ns, number_texts, to_timestamp
from tests.support.examples import examples

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
RIGHT = "2024-03-05T09:00:07"


def read(form: str, *texts: str | None) -> list[str | None]:
    """Return the times of texts as ISO 8601 without an offset; None where a text is not of the form."""
    return shown(to_timestamp(pa.array(texts, pa.string()), form))


def shown(times: pa.Array) -> list[str | None]:
    return [None if moment is None else moment.replace(tzinfo=None).isoformat() for moment in times.to_pylist()]


@pytest.mark.parametrize(
    ("form", "text", "right"),
    [
        ("%d/%m/%Y %H:%M:%S", "05/03/2024 09:00:07", RIGHT),
        ("%d/%m/%Y %H:%M:%S", "5/3/2024 9:0:7", RIGHT),
        ("%d/%m/%Y %H:%M:%S", "  05/03/2024   09:00:07 ", RIGHT),
        ("%d/%m/%Y %H:%M:%S", "05/03/2024", None),
        ("%d/%m/%Y %H:%M:%S", "05/03/2024 09:00:07x", None),
        ("%d/%m/%Y %H:%M:%S", "31/04/2024 09:00:07", None),
        ("%d/%m/%Y %H:%M:%S", "05/03/2024 24:00:00", None),
        ("%d/%m/%Y", "29/02/2024", "2024-02-29T00:00:00"),
        ("%d/%m/%Y", "29/02/2100", None),
        ("%d.%m.%Y %H:%M:%S,%f", "05.03.2024 09:00:07,120", f"{RIGHT}.120000"),
        ("%d.%m.%Y %H:%M:%S,%f", "05.03.2024 09:00:07.12", f"{RIGHT}.120000"),
        ("%d.%m.%Y %H:%M:%S.%f", "05.03.2024 09:00:07", RIGHT),
        ("%d.%m.%Y %H:%M:%S.%f", "05.03.2024 09:00:07.", None),
        ("%d.%m.%Y %H:%M:%S.%f", "05.03.2024 09:00:07.123456789", f"{RIGHT}.123456"),
        ("%m/%d/%Y %I:%M:%S %p", "03/05/2024 09:00:07 AM", RIGHT),
        ("%m/%d/%Y %I:%M:%S %p", "3/5/2024 12:00:07 a.m.", "2024-03-05T00:00:07"),
        ("%m/%d/%Y %I:%M:%S %p", "3/5/2024 12:00:07 pm", "2024-03-05T12:00:07"),
        ("%m/%d/%Y %I:%M:%S %p", "3/5/2024 13:00:07 pm", None),
        ("%m/%d/%y %I:%M%p", "03/05/24 12:05p", "2024-03-05T12:05:00"),
        ("%m/%d/%y %I:%M%p", "03/05/24 9:05ax", None),
        ("%d-%b-%y", "05-MAR-24", "2024-03-05T00:00:00"),
        ("%d-%b-%y", "05-March-68", "2068-03-05T00:00:00"),
        ("%d-%b-%y", "05-mar-69", "1969-03-05T00:00:00"),
        ("%d-%b-%y", "05-Marc-24", None),
        ("%B %d, %Y", "Sept. 5, 2024", "2024-09-05T00:00:00"),
        ("%a, %d %b %Y %H:%M:%S %Z", "Tue, 05 Mar 2024 09:00:07 GMT", RIGHT),
        ("%d/%b/%Y:%H:%M:%S %z", "05/Mar/2024:10:00:07 +0100", RIGHT),
        ("%Y-%m-%d %H:%M:%S%z", "2024-03-05 09:00:07Z", RIGHT),
        ("%Y-%m-%d %H:%M:%S%z", "2024-03-05 04:30:07 -04:30", RIGHT),
        ("%Y-%m-%d %H:%M:%S%z", "2024-03-05 09:00:07", None),
        ("%Y-%m-%d %H:%M:%S%z", "2024-03-05 09:00:07+25", None),
        ("%Y%m%d%H%M", "202403050900", "2024-03-05T09:00:00"),
        ("%Y%m%d%H%M", "20240305090", None),
        ("%Y%m%d%H%M%S%f", "20240305090007120", f"{RIGHT}.120000"),
        ("%d%m%Y", "5032024", "2024-03-05T00:00:00"),
        ("%Y%j", "2024065", "2024-03-05T00:00:00"),
        ("%Y-%j", "2023-366", None),
        ("%F %T", "2024-03-05 09:00:07", RIGHT),
        ("%Y %m %d %H", "2024 03 05 09", "2024-03-05T09:00:00"),
        ("%Y-%m", "2024-03", "2024-03-01T00:00:00"),
        ("100%% %Y", "100% 2024", "2024-01-01T00:00:00"),
        ("excel", "45356", "2024-03-05T00:00:00"),
        ("excel", "45356.375081", "2024-03-05T09:00:06.998400"),
        ("excel", "45356.37508101852", RIGHT),
        ("excel", "45356,5", "2024-03-05T12:00:00"),
        ("excel", "45356.999999999999", "2024-03-06T00:00:00"),
        ("excel", "-1", None),
        ("labview", "3792474007.25", f"{RIGHT}.250000"),
        ("gps", "2304 205225", RIGHT),
        ("gps", "2304,205225.5", f"{RIGHT}.500000"),
        ("gps", "2304 604800", None),
        ("gps", "1393664425", RIGHT),
        ("gps", "0", "1980-01-06T00:00:00"),
        ("gps", "1167264017", "2017-01-01T00:00:00"),  # the leap second, 23:59:60
        ("gps", "1167264018", "2017-01-01T00:00:00"),
        ("gps", "1167264016", "2016-12-31T23:59:59"),
        ("doy", "2024 65 900", "2024-03-05T09:00:00"),
        ("doy", "2024,65,5", "2024-03-05T00:05:00"),
        ("doy", "2024-065T09:00:07.5", f"{RIGHT}.500000"),
        ("doy", "2024 065 09:00:07", RIGHT),
        ("doy", "2024065", "2024-03-05T00:00:00"),
        ("doy", "20240650900", "2024-03-05T09:00:00"),
        ("doy", "2024065090007", RIGHT),
        ("doy", "24065.375", "2024-03-05T09:00:00"),
        ("doy", "2024 65 2400", "2024-03-06T00:00:00"),
        ("doy", "2024 65 2401", None),
        ("doy", "2024 65 960", None),
        ("doy", "2023 366 0", None),
        ("iso", "2024/3/5 9:00:07", RIGHT),
    ],
)
def test_a_text_of_a_form_is_its_time_alone_and_among_others(form: str, text: str, right: str | None) -> None:
    assert read(form, text) == [right]
    assert read(form, None, "x", text, "", text * 2)[2] == right
    assert shown(to_timestamp(pa.repeat(text, 70_000), form).unique()) == [right]


FORMS = st.sampled_from(
    [
        "%d/%m/%Y %H:%M:%S.%f", "%m-%d-%Y %H:%M:%S.%f", "%Y%m%d%H%M%S%f", "%d.%m.%y %I.%M.%S %p %f",
        "%b %d, %Y %H:%M:%S.%f", "%A %d %B %Y %H:%M:%S.%f", "%Y-%jT%H:%M:%S.%f",
        "%H:%M:%S.%f %d-%b-%Y", "%Y-%m-%d %H:%M:%S.%f%z",
    ]
)  # fmt: skip


@examples(200)
@given(
    FORMS, st.lists(st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)), min_size=1, max_size=8), st.booleans()
)
def test_any_moment_in_any_form_is_what_strptime_reads(form: str, moments: list[datetime], short: bool) -> None:
    zone = timezone(timedelta(minutes=90))
    texts = [moment.replace(tzinfo=zone).strftime(form) for moment in moments]
    if short:  # numbers without their zeros, where something stands between them
        texts = [re.sub(r"(?<![0-9.:])0(?=[0-9][/ :-])", "", text) if "%Y%m" not in form else text for text in texts]
    wanted = [datetime.strptime(text, form) for text in texts]
    wanted = [one if one.tzinfo else one.replace(tzinfo=timezone.utc) for one in wanted]
    ts, valid = event_times(pa.array(texts), "us", forms=(form,))
    assert valid.all(), texts
    assert ts.tolist() == [(one - EPOCH) // timedelta(microseconds=1) for one in wanted]


@examples(300)
@given(FORMS, st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)), st.data())
def test_a_text_that_is_spoilt_is_refused_or_read_as_strptime_does(
    form: str, moment: datetime, data: st.DataObject
) -> None:
    text = moment.replace(tzinfo=timezone.utc).strftime(form)
    place = data.draw(st.integers(0, len(text) - 1))
    spoilt = text[:place] + data.draw(st.sampled_from(["", "x", "0", "9", "é", "-", ":"])) + text[place + 1 :]
    (found,) = read(form, spoilt)
    try:
        wanted = datetime.strptime(spoilt, form)
    except ValueError:
        return  # some forms of ours are wider: a fraction of nine digits, a name of a month in full
    if found is not None:
        aware = wanted if wanted.tzinfo else wanted.replace(tzinfo=timezone.utc)
        assert found == aware.astimezone(timezone.utc).replace(tzinfo=None).isoformat()


def test_the_first_form_counts_that_a_text_is_of() -> None:
    texts = pa.array(["05/03/2024", "13/03/2024", "03/13/2024", "2024-03-05", "x", None])
    ts, valid = event_times(texts, "us", forms=("%d/%m/%Y", "%m/%d/%Y", "iso"))
    assert valid.tolist() == [True] * 4 + [False] * 2
    assert [str(day) for day in ts[:4].astype("datetime64[us]").astype("datetime64[D]")] == [
        "2024-03-05", "2024-03-13", "2024-03-13", "2024-03-05",
    ]  # fmt: skip


def test_numbers_are_read_as_they_are_written() -> None:
    assert number_texts(pa.array([202403050900.0, 45356.5, None])).to_pylist() == ["202403050900", "45356.5", None]
    for kind in (pa.int64(), pa.float64(), pa.string(), pa.large_string(), pa.decimal128(20, 0)):
        ts, valid = event_times(pa.array([202403050900]).cast(kind), "us", forms=("%Y%m%d%H%M",))
        assert valid.all()
        assert ts.tolist() == [1_709_629_200_000_000]
    moments = pa.array([datetime(2024, 3, 5)])
    assert event_times(moments, "us", forms=("excel",))[0].tolist() == [1_709_596_800_000_000]  # as it is


def test_nanoseconds_are_kept_where_they_are_wanted() -> None:
    texts = pa.array(["05/03/2024 09:00:07.123456789", "05/03/9999 09:00:07.1"])
    ts, valid = event_times_ns(texts, "us", forms=("%d/%m/%Y %H:%M:%S.%f",))
    assert (ts.tolist(), valid.tolist()) == ([1_709_629_207_123_456_789, 0], [True, False])


@pytest.mark.parametrize(
    ("form", "why", "hint"),
    [
        ("dd/MM/yyyy HH:mm:ss", "is no form of a time", "write %d/%m/%Y %H:%M:%S"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "is no form of a time", "write %Y-%m-%dT%H:%M:%S.%f%z"),
        ("hello", "is no form of a time", "for example"),
        ("%H:%M:%S", "names no year", "2024"),
        ("%d %Y", "names a day and no month", "for example"),
        ("%d/%m/%Y %I:%M", "%I", "%p"),
        ("%d/%m/%Y %d", "twice", "for example"),
        ("%d/%m/%Q", "not known", "letters are"),
    ],
)
def test_a_form_that_says_no_time_is_refused(form: str, why: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        TimeForm.of(form)
    assert caught.value.name == "time_format"
    assert why in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "forms"),
    [
        (["26/03/2024"], ("%d/%m/%Y",)),
        (["05/03/2024 09:00:07"], ("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S")),
        (["05/03/2024 09:00:07", "05/13/2024 09:00:07"], ("%m/%d/%Y %H:%M:%S",)),
        (["05.03.2024 09:00:07,120"], ("%d.%m.%Y %H:%M:%S,%f", "%m.%d.%Y %H:%M:%S,%f")),
        (["3/25/2024 9:00:07 AM"], ("%m/%d/%Y %I:%M:%S %p",)),
        (["202403050900"], ("%Y%m%d%H%M",)),
        (["05-Mar-24 09:00"], ("%d-%b-%y %H:%M",)),
        (["Tue, 05 Mar 2024 09:00:07 GMT"], ("%a, %d %b %Y %H:%M:%S %Z",)),
        (["05/Mar/2024:09:00:07 +0100"], ("%d/%b/%Y:%H:%M:%S %z",)),
        (["Tue Mar  5 09:00:07 2024"], ("%a %b %d %H:%M:%S %Y",)),
        (["Tue Mar  5 09:00:07 UTC 2024"], ("%a %b %d %H:%M:%S %Z %Y",)),
        (["Saturday, June 13, 2026 16:54:10"], ("%a, %b %d, %Y %H:%M:%S",)),
        (["Tue 05/03/2024 09:00"], ("%a %d/%m/%Y %H:%M", "%a %m/%d/%Y %H:%M")),
        (["2021-350 10:06"], ("%Y-%j %H:%M",)),
        (["2021-350"], ()),
        (["yesterday"], ()),
        ([], ()),
    ],
)
def test_a_form_is_guessed_and_two_are_said_where_texts_do_not_tell(texts: list[str], forms: tuple[str, ...]) -> None:
    assert guessed_forms(texts) == forms
