"""Predicates between two streams: bands, equalities (a band of width zero) and inequalities."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from streamjoin_ds.errors import ArgumentError, PredicateError
from streamjoin_ds.spec.duration import duration_us

__all__ = ["Band", "Bound", "Column", "NotEqual", "Predicate", "band", "equal", "not_equal", "stream_name"]

Bound = int | float | Decimal | timedelta

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def stream_name(text: str) -> str:
    """`text`, if it can name a stream: it becomes a prefix of column names, so letters, digits and underscores."""
    if not isinstance(text, str) or not _NAME.fullmatch(text) or len(text) > 64:
        msg = "a stream's name must be letters, digits and underscores, not starting with a digit"
        raise ArgumentError(msg, name=str(text)[:64], hint="for example 'e' or 'north_gate'")
    return text


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """One column of one stream; written ``stream.column`` (the column may hold dots: ``u.PM2.5``)."""

    stream: str
    name: str

    @classmethod
    def of(cls, text: str | Column) -> Column:
        """Split ``stream.column`` at its first dot."""
        if isinstance(text, Column):
            return text
        stream, dot, name = text.partition(".")
        if not dot or not name:
            msg = f"'{text}' does not name a stream's column"
            raise ArgumentError(msg, name=text, hint="write stream.column, for example 'e.latitude'")
        return cls(stream_name(stream), name.strip("`\""))

    def __str__(self) -> str:
        return f"{self.stream}.{self.name}"


@dataclass(frozen=True, slots=True)
class Band:
    """``lo <= left - right <= hi``, both ends included; null and NaN never match.

    Parameters
    ----------
    left, right : Column
        Columns of two different streams.
    lo, hi : int, float, Decimal or timedelta
        Finite, ``lo <= hi``. In the unit of the columns; a timedelta for timestamps and dates.
    """

    left: Column
    right: Column
    lo: Bound
    hi: Bound

    def __post_init__(self) -> None:
        _two_streams(self.left, self.right)
        for bound in (self.lo, self.hi):
            if isinstance(bound, bool) or not isinstance(bound, (int, float, Decimal, timedelta)):
                msg = f"the bounds of the band on {self.left} must be numbers or durations"
                raise PredicateError(msg, name=str(self.left), hint="for example band('e.x', 'w.x', 10)")
            if not isinstance(bound, timedelta) and not math.isfinite(bound):
                msg = f"the bounds of the band on {self.left} must be finite"
                raise PredicateError(msg, name=str(self.left), hint="give both ends as finite numbers")
        if isinstance(self.lo, timedelta) != isinstance(self.hi, timedelta):
            msg = f"one bound of the band on {self.left} is a duration, the other is not"
            raise PredicateError(msg, name=str(self.left), hint="give both as durations or both as numbers")
        if self.lo > self.hi:  # type: ignore[operator]
            msg = f"the band on {self.left} and {self.right} is empty: its lower end is above its upper end"
            raise PredicateError(msg, name=str(self.left), hint="lo <= hi; a width is not negative")

    @property
    def is_equality(self) -> bool:
        """Whether both ends are zero, so that the band asks for equal values."""
        return not self.lo and not self.hi

    def __str__(self) -> str:
        if self.is_equality:
            return f"{self.left} = {self.right}"
        if self.lo == -self.hi:
            return f"abs({self.left} - {self.right}) <= {self.hi}"
        return f"{self.left} - {self.right} BETWEEN {self.lo} AND {self.hi}"


@dataclass(frozen=True, slots=True)
class NotEqual:
    """``left <> right`` with SQL's null rule: null is not unequal to anything. Decides, finds nothing."""

    left: Column
    right: Column

    def __post_init__(self) -> None:
        _two_streams(self.left, self.right)

    def __str__(self) -> str:
        return f"{self.left} <> {self.right}"


Predicate = Band | NotEqual


def _two_streams(left: Column, right: Column) -> None:
    if left.stream == right.stream:
        msg = f"{left} and {right} are columns of one stream; a predicate is between two"
        raise PredicateError(msg, name=str(left), hint="for a self-join list the input twice, under two names")


def band(
    left: str | Column,
    right: str | Column,
    eps: Bound | str | None = None,
    *,
    lo: Bound | str | None = None,
    hi: Bound | str | None = None,
) -> Band:
    """``lo <= left - right <= hi``; ``eps`` alone means ``lo=-eps, hi=+eps``. Both ends are included.

    Examples
    --------
    >>> str(band("r.x", "s.a", 10))
    'abs(r.x - s.a) <= 10'
    >>> str(band("r.x", "s.a", lo=0, hi=5))
    'r.x - s.a BETWEEN 0 AND 5'
    """
    left, right = Column.of(left), Column.of(right)
    if (eps is None) == (lo is None and hi is None):
        msg = f"the band on {left} needs either eps or both lo and hi"
        raise PredicateError(msg, name=str(left), hint="band(l, r, 10) or band(l, r, lo=-5, hi=10)")
    if eps is not None:
        width = _bound(eps, left)
        return Band(left, right, -width, width)
    if lo is None or hi is None:
        msg = f"the band on {left} has only one end"
        raise PredicateError(msg, name=str(left), hint="give both lo and hi; both are included")
    return Band(left, right, _bound(lo, left), _bound(hi, left))


def equal(left: str | Column, right: str | Column) -> Band:
    """``left = right``: a band of width zero; the only predicate that strings and booleans know besides ``<>``."""
    return Band(Column.of(left), Column.of(right), 0, 0)


def not_equal(left: str | Column, right: str | Column) -> NotEqual:
    """``left <> right``; null on either side does not match."""
    return NotEqual(Column.of(left), Column.of(right))


def _bound(value: Bound | str, column: Column) -> Bound:
    if not isinstance(value, str):
        return value
    text = value.strip()
    sign = -1 if text.startswith("-") else 1
    return sign * timedelta(microseconds=duration_us(text.lstrip("+-"), f"the band on {column}"))
