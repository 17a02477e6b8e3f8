"""Predicates as objects: what they accept, what they refuse, how they print."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from streamjoin_ds.errors import ArgumentError, PredicateError
from streamjoin_ds.spec import Band, Column, band, equal, not_equal


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("e.x", Column("e", "x")),
        ("e.PM2.5", Column("e", "PM2.5")),
        ("e.`PM2.5`", Column("e", "PM2.5")),
        ('e."PM2.5"', Column("e", "PM2.5")),
        ("e.`a``b`", Column("e", "a`b")),
        ('e.a"', Column("e", 'a"')),
        ("e.`", Column("e", "`")),
    ],
)
def test_a_column_is_split_at_the_first_dot(text: str, column: Column) -> None:
    assert Column.of(text) == column
    assert Column.of(str(column)) == column


@pytest.mark.parametrize("text", ["", "x", ".x", "e.", "e.``", 'e.""', "1e.x", "e-f.x", "é.x", "a" * 65 + ".x", "e .x"])
def test_what_names_no_column(text: str) -> None:
    with pytest.raises(ArgumentError):
        Column.of(text)


@pytest.mark.parametrize("value", [None, 3, ("e", "x")])
def test_a_column_is_text(value: Any) -> None:
    with pytest.raises(ArgumentError, match="does not name"):
        Column.of(value)


def test_eps_is_both_ends() -> None:
    assert band("e.x", "w.x", 10) == Band(Column("e", "x"), Column("w", "x"), -10, 10)
    assert band("e.t", "w.t", "5s") == band("e.t", "w.t", lo="-5s", hi=timedelta(seconds=5))


@pytest.mark.parametrize(
    "arguments", [{}, {"lo": 1}, {"hi": 1}, {"eps": 1, "lo": 0}, {"eps": 1, "lo": 0, "hi": 1}, {"eps": None}]
)
def test_either_eps_or_both_ends(arguments: dict[str, Any]) -> None:
    with pytest.raises(PredicateError) as caught:
        band("e.x", "w.x", **arguments)
    assert caught.value.name == "e.x"


@pytest.mark.parametrize(
    "bound",
    [
        True,
        np.True_,
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("1e400000"),
        Decimal("1e-999999"),
        10**400,
        1j,
        b"1",
        [1],
    ],
)
def test_unusable_bounds(bound: Any) -> None:
    with pytest.raises(PredicateError) as caught:
        band("e.x", "w.x", lo=0, hi=bound)
    assert caught.value.name == "e.x"


@pytest.mark.parametrize("eps", [-1, -0.5, Decimal("-0.1"), "-5s", timedelta(microseconds=-1)])
def test_a_width_is_not_negative(eps: Any) -> None:
    with pytest.raises(PredicateError, match="empty"):
        band("e.x", "w.x", eps)


@pytest.mark.parametrize(
    ("bound", "plain"),
    [
        (np.int64(3), 3),
        (np.float64(0.1), 0.1),
        (np.uint8(7), 7),
        (np.float32(0.5), 0.5),
        (Decimal("0.1"), Decimal("0.1")),
    ],
)
def test_numpy_numbers_become_pythons(bound: Any, plain: Any) -> None:
    made = band("e.x", "w.x", bound)
    assert made == band("e.x", "w.x", plain)
    assert type(made.hi) is type(plain)
    assert "np." not in str(made)


def test_a_decimal_is_negated_exactly() -> None:
    width = Decimal("0.1234567890123456789012345678901234567890")
    made = band("e.x", "w.x", width)
    assert made.lo == width.copy_negate()
    assert made.is_equality is False


def test_zero_needs_no_unit() -> None:
    assert band("e.t", "w.t", lo=0, hi="5s") == band("e.t", "w.t", lo="0s", hi="5s")
    with pytest.raises(PredicateError, match="duration"):
        band("e.t", "w.t", lo=-1, hi="5s")


@pytest.mark.parametrize(
    "make", [lambda: equal("e.x", "e.y"), lambda: band("e.x", "e.y", 1), lambda: not_equal("e.x", "e.y")]
)
def test_a_predicate_is_between_two_streams(make: Any) -> None:
    with pytest.raises(PredicateError, match="one stream") as caught:
        make()
    assert "self-join" in caught.value.hint


def test_every_zero_is_a_band_without_width_and_no_equality() -> None:
    for zero in (0, 0.0, -0.0, Decimal(0), Decimal("-0"), timedelta(0), "0s"):
        found = band("e.x", "w.x", zero)
        assert (found.has_no_width, found.is_equality) == (True, False)
        assert str(found) == "abs(e.x - w.x) <= 0"
    assert str(equal("e.x", "w.x")) == "e.x = w.x"
    with pytest.raises(PredicateError, match="bounds that are not 0"):
        Band(Column("e", "x"), Column("w", "x"), 0, 1, is_equality=True)
