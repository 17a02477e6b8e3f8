"""Bands between two streams, and equalities, which stand as bands of width zero: what pairs are found by."""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from msgspec import Struct

from streamjoin_ds.duration import MAX_DURATION_US, duration_text, signed_duration
from streamjoin_ds.errors import ArgumentError, PredicateError
from streamjoin_ds.spec.nested_path import path_name

__all__ = [
    "MAX_EXPONENT",
    "PLAIN_NAME",
    "QUOTED",
    "Band",
    "Bound",
    "Column",
    "band",
    "equal",
    "negated",
    "quoted_name",
    "renamed",
    "sql_parts",
    "stream_name",
    "unquoted",
]


Bound = int | float | Decimal | timedelta

QUOTED = re.compile(r"""('[^']*'|"[^"]*"|`[^`]*`)""")  # what is quoted in an SQL text
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_NAME = re.compile(r"""`(?:[^`]|``)*`|"(?:[^"]|"")*\"""")
_RENAMED = re.compile(r"(.*\S)\s+AS\s+(`(?:[^`]|``)+`|[^`\s]+)\s*", re.IGNORECASE | re.DOTALL)
# A bound's most bits (whole numbers) and largest decimal exponent: the range of float64 and a little more. A larger
# one is never needed, but its digits could fill the memory.
_MAX_BITS, MAX_EXPONENT = 1024, 400


def stream_name(text: str) -> str:
    """Return `text`, or refuse it if it cannot name a stream.

    A stream's name becomes a prefix of column names: at most 64 letters, digits and underscores, not a digit first.
    """
    if not isinstance(text, str) or not PLAIN_NAME.fullmatch(text) or len(text) > 64:
        msg = "a stream's name must be at most 64 letters, digits and underscores, and not begin with a digit"
        raise ArgumentError(msg, name=str(text)[:64], hint="for example 'e' or 'north_gate'")
    return text


class Column(Struct, frozen=True, order=True):
    """One column of one stream; written ``stream.column`` (the column may hold dots: ``u.PM2.5``)."""

    stream: str
    name: str

    @classmethod
    def of(cls, text: str | Column) -> Column:
        """Return the column that ``stream.column`` names: the text is split at its first dot.

        Quotes around the column (`` ` `` or ``"``) are taken off. A path has one form: ``e.a.`b``` is ``e.a.b``.
        """
        if isinstance(text, Column):
            return text
        stream, _, name = text.partition(".") if isinstance(text, str) else ("", "", "")
        if _QUOTED_NAME.fullmatch(name):
            name = name[1:-1].replace(name[0] * 2, name[0])
        name = path_name(name)
        if not name:
            msg = f"'{str(text)[:64]}' does not name a stream's column"
            raise ArgumentError(msg, name=str(text)[:64], hint="write stream.column, for example 'e.latitude'")
        return cls(stream_name(stream), name)

    def __str__(self) -> str:
        return f"{self.stream}.{quoted_name(self.name)}"


def quoted_name(name: str) -> str:
    """Return a name as SQL has it: in back-ticks, if it is no plain word."""
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def unquoted(text: str) -> str:
    """Return an SQL text with spaces in the places of what is quoted, so that each other character stays in its own."""
    return QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)


def sql_parts(text: str) -> list[str]:
    """Return the parts of an SQL text between its commas outside of brackets and quotes."""
    parts, begin, depth = [], 0, 0
    for place, character in enumerate(unquoted(text)):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()]


def renamed(text: str) -> tuple[str, str | None]:
    """Return a selected column's text and the name that it gets: ``e.x AS y`` gives ``e.x`` and ``y``, ``e.x`` None."""
    found = _RENAMED.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return text, None
    name = found.group(2)
    return found.group(1), name[1:-1].replace("``", "`") if name[0] == "`" else name


@dataclass(frozen=True, slots=True)
class Band:
    """The predicate ``lo <= left - right <= hi``, both ends included, or ``left = right``; null and NaN never match.

    Parameters
    ----------
    left, right : Column
        Columns of two different streams.
    lo, hi : int, float, Decimal or timedelta
        The bounds, in the unit of the columns: finite, and ``lo <= hi``. For timestamps and dates they are timedeltas.
    is_equality : bool
        Whether values are compared, not subtracted: an infinity is equal to itself, but its difference from itself is
        NaN, which is in no band. Both bounds are zero then.
    """

    left: Column
    right: Column
    lo: Bound
    hi: Bound
    is_equality: bool = False

    def __post_init__(self) -> None:
        _two_streams(self.left, self.right)
        lo, hi = _plain(self.lo, self.left), _plain(self.hi, self.left)
        if isinstance(lo, timedelta) or isinstance(hi, timedelta):
            lo, hi = lo or timedelta(0), hi or timedelta(0)  # zero needs no unit
        if isinstance(lo, timedelta) != isinstance(hi, timedelta):
            msg = f"one end of the band on {self.left} is a duration, the other is a number"
            raise PredicateError(msg, name=str(self.left), hint="give both ends as durations or both as numbers")
        # Plain Python numbers are kept: NumPy's could not be written down (``repr``) and read again.
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)
        if self.lo > self.hi:  # type: ignore[operator]  # both durations or both numbers, as of the check above
            msg = f"the band on {self.left} and {self.right} is empty: its lower end is above its upper end"
            raise PredicateError(msg, name=str(self.left), hint="give lo <= hi, or a width (eps) of 0 or more")
        if self.is_equality and not self.has_no_width:
            msg = f"the equality of {self.left} and {self.right} has bounds that are not 0"
            raise PredicateError(msg, name=str(self.left), hint="write band(l, r, eps), or equal(l, r)")

    @property
    def has_no_width(self) -> bool:
        """Whether both ends are zero: but for infinities, the band asks for equal values."""
        return not self.lo and not self.hi

    def __str__(self) -> str:
        if self.is_equality:
            return f"{self.left} = {self.right}"
        if self.has_no_width:
            return f"abs({self.left} - {self.right}) <= 0"  # zero needs no unit
        if self.lo == negated(self.hi):
            return f"abs({self.left} - {self.right}) <= {_text(self.hi)}"
        return f"{self.left} - {self.right} BETWEEN {_text(self.lo)} AND {_text(self.hi)}"


def _two_streams(left: Column, right: Column) -> None:
    if left.stream == right.stream:
        msg = f"{left} and {right} are columns of one stream, but a predicate compares two streams"
        raise PredicateError(msg, name=str(left), hint="for a self-join, list the input twice under two names")


def band(
    left: str | Column,
    right: str | Column,
    eps: Bound | str | None = None,
    *,
    lo: Bound | str | None = None,
    hi: Bound | str | None = None,
) -> Band:
    """Return the band ``lo <= left - right <= hi``, both ends included; ``eps`` alone means ``lo=-eps, hi=+eps``.

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
        raise PredicateError(msg, name=str(left), hint="for example band(l, r, 10) or band(l, r, lo=-5, hi=10)")
    if eps is not None:
        width = _plain(_bound(eps, left), left)
        return Band(left, right, negated(width), width)
    if lo is None or hi is None:
        msg = f"the band on {left} has only one end"
        raise PredicateError(msg, name=str(left), hint="give both lo and hi; both are included")
    return Band(left, right, _bound(lo, left), _bound(hi, left))


def equal(left: str | Column, right: str | Column) -> Band:
    """Return the equality ``left = right``; strings, binaries and booleans have no other band."""
    return Band(Column.of(left), Column.of(right), 0, 0, is_equality=True)


def negated(bound: Bound) -> Bound:
    """Return ``-bound`` exactly: the operator ``-`` would round a Decimal to the context's digits."""
    return bound.copy_negate() if isinstance(bound, Decimal) else -bound


def _bound(value: Bound | str, column: Column) -> Bound:
    return signed_duration(value, f"the band on {column}") if isinstance(value, str) else value


def _plain(bound: Any, column: Column) -> Bound:
    """Return a bound as int, float, Decimal or timedelta; refuse one that is not finite, or is of a senseless size."""
    if isinstance(bound, timedelta):
        microseconds = bound // timedelta(microseconds=1)
        if timedelta(microseconds=microseconds) != bound:  # pandas' durations have nanoseconds
            msg = f"the bounds of the band on {column} are not whole microseconds"
            raise PredicateError(
                msg, name=str(column), hint="round them to microseconds, also for columns of nanoseconds"
            )
        if abs(microseconds) > MAX_DURATION_US:
            msg = f"the bounds of the band on {column} are longer than 10000 years"
            raise PredicateError(msg, name=str(column), hint="give both ends as shorter durations")
        return timedelta(microseconds=microseconds)
    plain: int | float | Decimal
    if isinstance(bound, Decimal):
        plain = bound
    elif isinstance(None if isinstance(bound, (bool, np.timedelta64)) else bound, numbers.Real):
        plain = int(bound) if isinstance(bound, numbers.Integral) else float(bound)
    else:
        msg = f"the bounds of the band on {column} must be numbers or durations"
        raise PredicateError(msg, name=str(column), hint="for example band('e.x', 'w.x', 10)")
    if isinstance(plain, int):
        usable = plain.bit_length() <= _MAX_BITS
    elif isinstance(plain, float):
        usable = math.isfinite(plain)
    else:
        usable = plain.is_finite() and (not plain or abs(plain.adjusted()) <= MAX_EXPONENT)
    if not usable:
        msg = f"the bounds of the band on {column} must be finite"
        raise PredicateError(msg, name=str(column), hint="give both ends as finite numbers that a float64 could hold")
    return plain


def _text(bound: Bound) -> str:
    if not isinstance(bound, timedelta):
        return str(bound)
    sign = "-" if bound < timedelta(0) else ""
    return f"{sign}INTERVAL '{duration_text(abs(bound) // timedelta(microseconds=1))}'"
