"""Times as texts of a given form: strptime's letters, and forms that have names.

::

    %d/%m/%Y %H:%M:%S.%f     letters: `LETTERS`
    iso                      what is read where no form is given (`spec.time_text`)
    excel                    45356.375081: days since 1899-12-30, rounded to the microsecond
    doy                      2024 65 900, 2024-065T09:00, 2024065, 2024 65.375: year, day of the year, time of day
    labview                  3792474008: seconds since 1904-01-01
    gps                      1393664425, or 2304 205225: seconds since 1980-01-06, or week and second of the week

Each letter of a form takes its bytes of all texts at once (`TextBytes`).

GPS has no leap seconds, and event times have none either: as many seconds are taken off as UTC had had by then, 18
since 2017 (`_LEAPS`). The leap second itself is the second after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Int64, Mask
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.text_bytes import BLANKS, MOST_BYTES, TextBytes, text_bytes

__all__ = ["LETTERS", "NAMED_FORMS", "Moments", "TimeForm"]

LETTERS = (
    "%Y %y (00-68: 2000-2068) %m %b %B (English names) %d %j %H %I with %p %M %S %f (1 to 9 digits) %z %Z %a %A %F %T "
    "%D %R %%"
)
NAMED_FORMS = ("iso", "excel", "doy", "labview", "gps")

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_PIVOT = 69  # strptime's: the years 69 to 99 are those of 1900
_SAME = {
    "F": "%Y-%m-%d", "T": "%H:%M:%S", "D": "%m/%d/%y", "R": "%H:%M", "e": "%d", "h": "%b", "k": "%H", "l": "%I",
    "n": " ", "t": " ", "P": "%p",
}  # fmt: skip
# Letters of numbers: what they are, and their digits, at least and at most.
_NUMBERS = {
    "Y": ("year", 4, 4), "y": ("short_year", 2, 2), "m": ("month", 1, 2), "d": ("day", 1, 2),
    "j": ("day_of_year", 1, 3), "H": ("hour", 1, 2), "I": ("hour12", 1, 2), "M": ("minute", 1, 2),
    "S": ("second", 1, 2),
}  # fmt: skip
_OTHERS = {
    "b": "month_name",
    "B": "month_name",
    "a": "weekday",
    "A": "weekday",
    "p": "half",
    "z": "offset",
    "Z": "zone",
}
_IN_UTC = re.compile(r"\s*(Z|UTC|GMT)$", re.IGNORECASE)  # a form that ends so says the offset of all its texts
# The letters of Java's patterns, which Spark has, and what they are here.
_OF_JAVA = {
    "yyyy": "%Y", "uuuu": "%Y", "YYYY": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%m",
    "DDD": "%j", "dd": "%d", "DD": "%d", "d": "%d", "HH": "%H", "H": "%H", "hh": "%I", "h": "%I", "mm": "%M",
    "ss": "%S", "SSSSSS": "%f", "SSS": "%f", "XXX": "%z", "Z": "%z", "a": "%p",
}  # fmt: skip

_EXCEL_S = -25_569 * 86_400  # 1899-12-30
_LABVIEW_S = -2_082_844_800  # 1904-01-01
_GPS_S = 315_964_800  # 1980-01-06
_WEEK_S = 604_800
# The days from which on UTC has had one more leap second since 1980.
_LEAP_DAYS = (
    "1981-07-01", "1982-07-01", "1983-07-01", "1985-07-01", "1988-01-01", "1990-01-01", "1991-01-01", "1992-07-01",
    "1993-07-01", "1994-07-01", "1996-01-01", "1997-07-01", "1999-01-01", "2006-01-01", "2009-01-01", "2012-07-01",
    "2015-07-01", "2017-01-01",
)  # fmt: skip
# The same in GPS's seconds at which those days begin.
_LEAPS = np.array(_LEAP_DAYS, "datetime64[s]").astype(np.int64) - _GPS_S + np.arange(1, len(_LEAP_DAYS) + 1)

# Days from 1970-01-01 to the first of each month from January of the year 0 on, and to the end of the year 9999.
_MONTH_STARTS = np.arange("0000-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int32)


class Moments(Struct):
    """Texts read as times.

    Attributes
    ----------
    seconds, ns : ndarray, shape (n,), int64
        Seconds since 1970, and nanoseconds more: UTC where the text says its offset, else of the clock on the wall.
    valid : ndarray, shape (n,), bool
        Which texts could be read.
    local : ndarray, shape (n,), bool
        Which of them say no offset.
    zones : mapping of str to ndarray of bool, optional
        Which texts name a zone, by the zones other than UTC that a form with ``%Z`` found.
    """

    seconds: Int64
    ns: Int64
    valid: Mask
    local: Mask
    zones: dict[str, Mask] | None = None

    def counted(self, unit: str) -> tuple[Int64, Mask]:
        """Return the times in a unit, "us" or "ns", as `event_time.counted_times` does: cut off, 0 where not valid."""
        if unit == "us":
            ts = self.seconds * 1_000_000 + self.ns // 1_000
            valid = self.valid & (ts >= MIN_TS_US) & (ts <= MAX_TS_US)
        else:
            whole = np.clip(self.seconds, INT64_MIN // 10**9 + 1, INT64_MAX // 10**9 - 1)
            ts, valid = whole * 1_000_000_000 + self.ns, self.valid & (whole == self.seconds)
        return np.where(valid, ts, 0), valid


class TimeForm(Struct, frozen=True):
    """A form in which times are written.

    Parameters
    ----------
    text : str
        Letters, or one of `NAMED_FORMS` but "iso".
    steps : tuple of (str, object)
        What stands in a text, one after the other; empty for a named form.
    is_utc : bool
        Whether the form ends in Z or UTC, so that all its texts say their offset.
    """

    text: str
    steps: tuple[tuple[str, Any], ...] = ()
    is_utc: bool = False

    @classmethod
    def of(cls, text: str) -> TimeForm:
        """Return the form that a text names.

        Raises
        ------
        ArgumentError
            It has a letter that is not known, or does not say the day.
        """
        return _form(text)

    def read(self, texts: pa.Array) -> Moments:
        """Return texts as times."""
        read = _NAMED.get(self.text, self._read)
        parts = [read(piece) for piece in text_bytes(texts)]
        if len(parts) == 1:
            return parts[0]
        whole, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return Moments(
            np.concatenate([whole, *(part.seconds for part in parts)]),
            np.concatenate([whole, *(part.ns for part in parts)]),
            np.concatenate([flags, *(part.valid for part in parts)]),
            np.concatenate([flags, *(part.local for part in parts)]),
            _zones_together(parts),
        )

    def _read(self, texts: TextBytes) -> Moments:
        found: dict[str, Any] = {}
        for kind, about in self.steps:
            _STEPS[kind](texts, about, found)
        texts.ok = texts.ended()
        return _moments(texts.ok, found, is_utc=self.is_utc)


def _zones_together(parts: Sequence[Moments]) -> dict[str, Mask] | None:
    names = {name for part in parts for name in part.zones or ()}
    if not names:
        return None
    none = [np.zeros(len(part.valid), np.bool_) for part in parts]
    return {
        name: np.concatenate([(part.zones or {}).get(name, no) for part, no in zip(parts, none, strict=True)])
        for name in sorted(names)
    }


def _moments(ok: Mask, found: dict[str, Any], *, is_utc: bool) -> Moments:
    """Return the moments that the parts of times are; a part that is not there is its smallest value."""
    count = len(ok)
    year = found.get("year")
    if year is None:
        short = found["short_year"]
        year = short + np.where(short < _PIVOT, 2000, 1900)
    month, day, hour = found.get("month"), found.get("day"), found.get("hour", 0)
    if "hour12" in found:
        ok = ok & (found["hour12"] >= 1) & (found["hour12"] <= 12)
        hour = found["hour12"] % 12 + np.where(found["is_pm"], 12, 0)
    minute, second = found.get("minute", 0), found.get("second", 0)
    ok = ok & (year >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    if "day_of_year" in found:
        place = np.where(ok, year * 12, 0)
        within, size = found["day_of_year"], _MONTH_STARTS[place + 12] - _MONTH_STARTS[place]
    else:
        month = np.ones(count, np.int64) if month is None else month
        ok = ok & (month >= 1) & (month <= 12)
        place = np.where(ok, year * 12 + month - 1, 0)
        within, size = 1 if day is None else day, _MONTH_STARTS[place + 1] - _MONTH_STARTS[place]
    ok = ok & (within >= 1) & (within <= size)
    seconds = (_MONTH_STARTS[place] + np.where(ok, within - 1, 0)).astype(np.int64) * 86_400
    seconds += hour * 3600 + minute * 60 + second
    if "offset" in found:
        seconds -= found["offset"]
    local = ok & ~found["is_zoned"] if "is_zoned" in found else np.zeros(count, np.bool_) if is_utc else ok.copy()
    ns = found.get("fraction")
    return Moments(
        np.where(ok, seconds, 0), np.zeros(count, np.int64) if ns is None else ns, ok, local, found.get("zones")
    )


def _number(texts: TextBytes, about: tuple[str, int, int, int | None], found: dict[str, Any]) -> None:
    """Read a number. Among numbers without anything between them only the first may be shorter than it can be."""
    name, least, most, others = about
    if others is None:
        found[name] = texts.number(least, most)
    else:
        width = texts.digits(most + others)
        found[name] = texts.number(1, most, np.where(width > others, width - np.minimum(width, others), 0))


def _blanks(texts: TextBytes, about: None, found: dict[str, Any]) -> None:
    del about, found
    texts.ok &= texts.between(BLANKS) > 0


def _fraction(texts: TextBytes, about: bool, found: dict[str, Any]) -> None:
    """Read the digits of a fraction; with a point before them (`about`) both may be missing."""
    found["fraction"] = texts.decimals(9, None if about else np.ones(texts.count, np.bool_))


def _half(texts: TextBytes, about: None, found: dict[str, Any]) -> None:
    del about
    lower = texts.byte() | 32
    found["is_pm"] = lower == ord("p")
    texts.ok &= found["is_pm"] | (lower == ord("a"))
    texts.go_on(1)
    texts.optional(b".")
    texts.optional(b"mM")  # loggers of weather write 9:05a
    texts.optional(b".")


def _offset(texts: TextBytes, about: None, found: dict[str, Any]) -> None:
    """Read Z, +0100, +01:00, +01 or +01:00:00; a blank may stand before it."""
    del about
    texts.between(BLANKS)
    is_z = texts.byte() | 32 == ord("z")
    has_sign, is_minus = texts.sign()
    texts.ok &= is_z | has_sign
    texts.go_on(1 if has_sign.all() or is_z.all() else (is_z | has_sign).astype(np.uint8))
    total = np.zeros(texts.count, np.int64)
    for unit, most in ((3600, 24), (60, 60), (1, 60)):
        if unit < 3600:
            colon = (texts.byte() == ord(":")) & ~is_z
            texts.go_on(colon.astype(np.uint8))
        else:
            colon = ~is_z
        width = np.where(is_z, 0, texts.digits(2))
        texts.ok &= (width == 2) | ((width == 0) & ~colon)
        part = texts.number(0, 2, width)
        texts.ok &= part < most
        total += part * unit
    found["offset"] = np.where(is_minus, -total, total)
    found["is_zoned"] = np.ones(texts.count, np.bool_)


def _zone(texts: TextBytes, about: None, found: dict[str, Any]) -> None:
    """Read the name of a zone: UTC, CET, Europe/Berlin."""
    del about
    others = np.frombuffer(b"/_+-:0123456789", np.uint8)
    width = texts.run(MOST_BYTES, lambda ahead: texts.is_letter(ahead) | np.isin(texts.byte(ahead), others))
    texts.ok &= width > 0
    words = np.where(texts.ok, texts.words(width), b"")
    texts.go_on(width)
    zones: dict[str, Mask] = {}
    is_zoned = np.zeros(texts.count, np.bool_)
    for word in np.unique(words).tolist():
        name = word.decode()
        if name.upper() in ("UTC", "GMT", "Z", "UT"):
            is_zoned |= words == word
        elif name:
            zones[name] = words == word
    found["is_zoned"], found["zones"] = is_zoned, zones


def _weekday(texts: TextBytes, about: None, found: dict[str, Any]) -> None:
    del about, found
    texts.name(_DAYS)


def _month_name(texts: TextBytes, about: None, found: dict[str, Any]) -> None:
    del about
    found["month"] = texts.name(_MONTHS) + 1


_STEPS: dict[str, Callable[[TextBytes, Any, dict[str, Any]], None]] = {
    "literal": lambda texts, about, found: texts.literal(about),
    "blanks": _blanks,
    "number": _number,
    "fraction": _fraction,
    "month_name": _month_name,
    "weekday": _weekday,
    "half": _half,
    "offset": _offset,
    "zone": _zone,
}


@lru_cache(maxsize=256)
def _form(text: str) -> TimeForm:
    if text in _NAMED:
        return TimeForm(text)
    steps: list[tuple[str, Any]] = []
    expanded = re.sub(r"%[-#_0]?([a-zA-Z])", lambda m: _SAME.get(m[1], f"%{m[1]}"), text.strip())
    expanded = re.sub(r"%([a-zA-Z])", lambda m: _SAME.get(m[1], f"%{m[1]}"), expanded)
    for part in re.findall(r"%.|%|\s+|[^%\s]+", expanded):
        letter = part[1:] if part[0] == "%" else ""
        if part == "%%":
            steps.append(("literal", b"%"))
        elif letter == "f":
            follows_point = bool(steps) and steps[-1][0] == "literal" and steps[-1][1][-1:] in (b".", b",")
            if follows_point:
                before = steps.pop()[1][:-1]
                steps += [("literal", before)] if before else []
            steps.append(("fraction", follows_point))
        elif letter in _NUMBERS:
            steps.append(("number", (*_NUMBERS[letter], None)))
        elif letter in _OTHERS:
            steps.append((_OTHERS[letter], None))
        elif part[0] == "%":
            msg = "time_format has a letter that is not known"
            raise ArgumentError(
                msg, name="time_format", hint=f"letters are {LETTERS}; or one of {', '.join(NAMED_FORMS)}"
            )
        else:
            steps.append(("blanks", None) if part.isspace() else ("literal", part.encode()))
    _check_parts(steps, text)
    return TimeForm(text, tuple(_with_widths(steps)), bool(_IN_UTC.search(re.sub(r"%.", "%", expanded))))


def _check_parts(steps: Sequence[tuple[str, Any]], text: str) -> None:
    """Refuse a form whose texts say no day, or say one thing twice."""
    names = [about[0] if kind == "number" else kind for kind, about in steps if kind not in ("literal", "blanks")]
    names = ["month" if name == "month_name" else name for name in names]
    why, hint = "", f"for example %d/%m/%Y %H:%M:%S; letters are {LETTERS}; or one of {', '.join(NAMED_FORMS)}"
    if not names:
        why = "is no form of a time"
        plain = text.replace("'", "")
        if all(
            word in _OF_JAVA or word == "T" for word in re.findall(r"(?=([A-Za-z]))(\1+)", plain) for word in word[1:]
        ):
            java = re.sub(r"([A-Za-z])\1*", lambda m: _OF_JAVA.get(m[0], m[0]), plain)
            hint = f"its letters are strptime's: write {java}"
    elif not {"year", "short_year"} & set(names):
        why = "names no year"
        hint = "a text that says no year gets one before: time=\"'2024 ' || column\", with %Y before the rest"
    elif "day" in names and "month" not in names:
        why = "names a day and no month"
    elif "hour12" in names and "half" not in names:
        why = "has %I, which may be morning or evening"
        hint = "add %p for AM and PM, or write %H for hours from 0 to 23"
    elif len(set(names)) < len(names) or {"year", "short_year"} <= set(names) or {"hour", "hour12"} <= set(names):
        why = "says one part of a time twice"
    if why:
        msg = f"time_format {why}"
        raise ArgumentError(msg, name="time_format", hint=hint)


def _with_widths(steps: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the steps, where numbers without anything between them have their full width, but for the first one."""
    found, place = [], 0
    while place < len(steps):
        end = place
        while end < len(steps) and steps[end][0] == "number":
            end += 1
        run = steps[place:end]
        ends_open = end < len(steps) and steps[end] == ("fraction", False)
        if len(run) > 1 or (run and ends_open):
            rest = sum(about[2] for _, about in run[1:])
            name, least, most, _ = run[0][1]
            found.append(("number", (name, most if ends_open else least, most, None if ends_open else rest)))
            found += [("number", (about[0], about[2], about[2], None)) for _, about in run[1:]]
        else:
            found += run
        if end == place:
            found.append(steps[end])
            end += 1
        place = end
    return found


def _counted(texts: TextBytes, seconds: Int64, ns: Int64, *, local: bool) -> Moments:
    ok = texts.ended()
    is_local = ok.copy() if local else np.zeros(len(ok), np.bool_)
    return Moments(np.where(ok, seconds, 0), np.where(ok, ns, 0), ok, is_local)


def _excel(texts: TextBytes) -> Moments:
    days = texts.number(1, 7)
    us = (texts.decimals(12) * 86_400 + 500_000) // 1_000_000
    return _counted(texts, days * 86_400 + _EXCEL_S + us // 1_000_000, us % 1_000_000 * 1_000, local=True)


def _labview(texts: TextBytes) -> Moments:
    whole = texts.number(1, 12)
    return _counted(texts, whole + _LABVIEW_S, texts.decimals(9), local=False)


def _gps(texts: TextBytes) -> Moments:
    whole, ns = texts.number(1, 12), texts.decimals(9, texts.optional(b"."))
    between = texts.between(b" \t,;/:")
    is_pair = between > 0  # a week and its second
    if is_pair.any():
        width = np.where(is_pair, texts.digits(6), 0)
        second = texts.number(0, 6, width)
        texts.ok &= ~is_pair | ((ns == 0) & (whole < 100_000) & (width > 0) & (second < _WEEK_S))
        part = texts.decimals(9, texts.optional(b".", is_pair))
        whole, ns = np.where(is_pair, whole * _WEEK_S + second, whole), np.where(is_pair, part, ns)
    leaps = np.searchsorted(_LEAPS, whole, side="right")
    return _counted(texts, whole + _GPS_S - leaps, ns, local=False)


def _doy(texts: TextBytes) -> Moments:
    run = texts.digits(14)
    texts.ok &= np.isin(run, (4, 5, 7, 11, 13))
    has_short, is_compact = run == 5, run > 7
    year = texts.number(2, 4, np.where(has_short, 2, 4))
    year = np.where(has_short, year + np.where(year < _PIVOT, 2000, 1900), year)
    texts.ok &= (run != 4) | (texts.between(_BETWEEN) > 0)
    day = texts.number(1, 3, np.where(run == 4, texts.digits(4), 3))
    of_day_ns = texts.decimals(12, texts.optional(b".")) * 864 // 10  # of 10^-12 days
    texts.ok &= is_compact | (texts.between(_BETWEEN) >= 0)
    width = texts.digits(6)
    number = texts.number(0, 6, width)
    is_clock = (texts.optional(b":")) & (width > 0)
    minute = texts.number(0, 2, np.where(is_clock, texts.digits(2), 0))
    has_second = texts.optional(b":", is_clock)
    second = texts.number(0, 2, np.where(has_second, texts.digits(2), 0))
    is_long = ~is_clock & (width > 4)  # hhmmss
    hour = np.where(is_clock, number, number // np.where(is_long, 10_000, 100))
    minute = np.where(is_clock, minute, np.where(is_long, number // 100, number) % 100)
    second = np.where(is_long, number % 100, second)
    ns = texts.decimals(9, texts.optional(b".,", is_clock | is_long))
    of_day_s = hour * 3600 + minute * 60 + second
    texts.ok = texts.ended() & (minute < 60) & (second < 60) & (of_day_s <= 86_400) & ((of_day_ns == 0) | (width == 0))
    found = _moments(texts.ok, {"year": year, "day_of_year": day}, is_utc=False)
    found.seconds += np.where(found.valid, of_day_s + of_day_ns // 10**9, 0)
    found.ns = np.where(found.valid, ns + of_day_ns % 10**9, 0)
    return found


_BETWEEN = b" \t,;/-_T:"
_NAMED: dict[str, Callable[[TextBytes], Moments]] = {"excel": _excel, "doy": _doy, "labview": _labview, "gps": _gps}
