"""Durations: text and timedelta to whole microseconds, and back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.duration import MAX_DURATION_US, duration_text, duration_us, signed_duration
from streamjoin_ds.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0s", 0),
        ("15s", 15_000_000),
        ("15 seconds", 15_000_000),
        ("15 SECONDS", 15_000_000),
        ("1h 30m", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1.5s", 1_500_000),
        ("0.000001s", 1),
        ("250 ms", 250_000),
        ("7us", 7),
        ("2w", 14 * 86_400_000_000),
        ("  6h  ", 21_600_000_000),
        ("3 days", 3 * 86_400_000_000),
    ],
)
def test_reads_what_people_write(text: str, microseconds: int) -> None:
    assert duration_us(text, "window") == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "15",
        "s",
        "15 parsecs",
        "-5s",
        "+5s",
        "1e3s",
        "5s,",
        "5s 5",
        "0.5us",
        "1M",
        "5 months",
        "٥s",  # noqa: RUF001
        "NaN s",
        "inf",
        ".5s",
    ],
)
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(ArgumentError, match="window") as caught:
        duration_us(text, "window")
    assert caught.value.name == "window"
    assert "15s" in caught.value.hint


@pytest.mark.parametrize("value", [None, 15, 1.5, b"15s", ["15s"]])
def test_refuses_other_types(value: object) -> None:
    with pytest.raises(ArgumentError, match=type(value).__name__):
        duration_us(value, "window")


def test_a_part_of_a_microsecond_is_never_rounded_away() -> None:
    with pytest.raises(ArgumentError, match="whole microseconds"):
        duration_us("3000000d 0.0000000000000000000000001us", "window")


def test_limits() -> None:
    assert duration_us(timedelta(microseconds=MAX_DURATION_US), "w") == MAX_DURATION_US
    for value in (
        timedelta(microseconds=MAX_DURATION_US + 1),
        timedelta(microseconds=-1),
        "9" * 150 + "s",
        "9" * 10_000 + "s",
    ):
        with pytest.raises(ArgumentError):
            duration_us(value, "w")


@given(st.integers(0, MAX_DURATION_US))
def test_text_comes_back(microseconds: int) -> None:
    assert duration_us(duration_text(microseconds), "w") == microseconds
    assert duration_us(timedelta(microseconds=microseconds), "w") == microseconds


@pytest.mark.parametrize(("text", "seconds"), [("-5s", -5), ("- 5s", -5), ("+5s", 5), ("5s", 5), ("-0s", 0)])
def test_signed(text: str, seconds: int) -> None:
    assert signed_duration(text, "bound") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["--5s", "+-5s", "-+5s", "-", "5s -3s"])
def test_one_sign_at_most(text: str) -> None:
    with pytest.raises(ArgumentError, match="bound"):
        signed_duration(text, "bound")
