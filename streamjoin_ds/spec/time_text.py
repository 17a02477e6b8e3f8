"""Times as texts and numbers of an input: how they are read where an option gives no form, and where one does.

Event times follow the rule of `spec.event_time`. Forms that an option gives are those of `spec.time_format`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.spec.columns import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    TIMESTAMP,
    foreign_zone,
    is_text,
    lacks_zone,
    zones_of,
)
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US, counted_times, fine_times
from streamjoin_ds.spec.time_format import Moments, TimeForm
from streamjoin_ds.spec.time_zone import SeenTimes, Zone, value_zone, zone_of

__all__ = [
    "StreamTimes",
    "event_times",
    "event_times_ns",
    "moment_us",
    "no_timestamps",
    "number_texts",
    "timestamps",
    "to_timestamp",
]

_INTEGER = r"^[+-]?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_ZONED = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_DATED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{5,}(Z|[+-][0-9:]+)?)?$|[0-9.]+$")
# Forms that are nearly ISO 8601, and what makes them it: they have one meaning, so no option says it.
_NEARLY_ISO = (
    (r"^([0-9]{4})[/.]([0-9]{1,2})[/.]([0-9]{1,2})", r"\1-\2-\3"),  # 2024/03/05, 2024.3.5
    (r"^([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})", r"\1-\2-\3T\4:\5"),  # 20240305T090007
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2})([0-9]{2})", r"\1:\2"),
    (r"^([0-9]{4})-([0-9])-", r"\1-0\2-"),
    (r"^([0-9]{4}-[0-9]{2})-([0-9])([^0-9]|$)", r"\1-0\2\3"),
    (r"^([0-9-]{10}[T ])([0-9]):", r"\g<1>0\2:"),  # 9:00:07
    (r"(:[0-9]{2}),([0-9])", r"\1.\2"),  # 09:00:07,120
    (r"(:[0-9.]+) ?([+-][0-9:]+|Z)\[[^\]]*\]$", r"\1\2"),  # 09:00+01:00[Europe/Berlin]
    (r"(:[0-9.]+) ?\[?(?:UTC|GMT|Z|utc|gmt|z)\]?$", r"\1Z"),  # 09:00:07 UTC
    (r"(:[0-9.]+) ([+-][0-9]{2}(?::?[0-9]{2})?)$", r"\1\2"),  # 09:00:07 +0000
)
_FINE_TYPES = NANOSECONDS, pa.timestamp("ns")  # with an offset, and without one
_TYPES = {"us": (TIMESTAMP, pa.timestamp("us"), *_FINE_TYPES), "ns": _FINE_TYPES}
_FEW, _SAMPLE, _MOST_WAYS = 64, 8, 4
_DATE_LENGTH = len("2024-03-05")
_MOST_START_US = INT64_MAX // 2000  # a start that nanoseconds hold
_MOST_SHOWN = 60  # characters of a zone in a reason, or of a text by which others are found that are alike
_FINE_FRACTION = {"us": r"(\.[0-9]{6})[0-9]+", "ns": r"(\.[0-9]{9})[0-9]+"}


class TimedStream(Protocol):
    """What is asked of a stream here; each property is that of `Stream`."""

    @property
    def time(self) -> str:
        """Its time column."""

    @property
    def time_unit(self) -> str:
        """The unit of its numbers."""

    @property
    def time_forms(self) -> tuple[str, ...]:
        """How its event times are written."""

    @property
    def schema(self) -> object:
        """Its declared columns."""

    @property
    def timezone(self) -> str | None:
        """The zone of its event times."""

    @property
    def time_start(self) -> str | None:
        """The time from which they count."""

    @property
    def time_step(self) -> str | None:
        """The time between two records that say none."""

    @property
    def zone_column(self) -> str | None:
        """The column that holds zones."""


def event_times(
    values: pa.Array, unit: str, *, zoned: bool = False, forms: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return event times in microseconds, and which of them are readable.

    Parameters
    ----------
    values : pyarrow.Array
        Values that `counted_times` takes, or texts. A text is ISO 8601 with ``Z``, an offset or nothing (UTC), or
        nearly that (`_NEARLY_ISO`), a date, or a number in `unit`. Parts of a microsecond are cut off (towards the
        past). A number with a point is read as a float.
    unit : {"s", "ms", "us", "ns"}
        The unit of numbers.
    zoned : bool
        Whether a time without an offset is not readable, as in a column that is declared in another zone than UTC.
    forms : sequence of str
        The forms of `spec.time_format` in which texts and numbers are written instead; the first counts that one is of.

    Returns
    -------
    ts : numpy.ndarray, int64
        Microseconds UTC; 0 where `valid` is False.
    valid : numpy.ndarray, bool
        False for nulls, unreadable texts and times outside the years 1..9999.
    """
    return _ends(_read(values, unit, "us", forms), zoned=zoned)


def event_times_ns(
    values: pa.Array, unit: str, *, zoned: bool = False, forms: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return event times in nanoseconds, read as by `event_times`; valid where an int64 holds them (`fine_times`)."""
    return _ends(_read(values, unit, "ns", forms), zoned=zoned)


class StreamTimes:
    """How the event times of a stream are read: in which forms, in which unit, in which zone.

    Parameters
    ----------
    stream : TimedStream
        Its `time_unit`, `time_format`, `timezone` and `schema`.
    """

    def __init__(self, stream: TimedStream) -> None:
        self._unit, self._forms = stream.time_unit, stream.time_forms
        self._zoned = stream.time in zones_of(stream.schema)
        self._column = stream.zone_column
        self._zone = None if stream.timezone is None or self._column else zone_of(stream.timezone)
        self._start_us = 0
        if stream.time_step is not None:  # the times that were made say all
            self._forms, self._zone, self._column = (), None, None
        elif stream.time_start is not None:
            self._start_us = moment_us(stream.time_start, stream) or 0

    @property
    def zone_column(self) -> str | None:
        """The column that holds zones."""
        return self._column

    def us(self, values: pa.Array, zones: pa.Array | None = None) -> SeenTimes:
        """Return event times in microseconds; `zones` are the values of the column that holds zones."""
        if self._start_us:
            return SeenTimes(*_since(values, self._unit, self._start_us))
        read = self._in_utc(_read(values, self._unit, "us", self._forms), zones)[0]
        return SeenTimes(*_ends(read, zoned=self._zoned), read.gap_s if read.gap_s is None else read.gap_s * 1_000_000)

    def ns(
        self, values: pa.Array, zones: pa.Array | None = None, later: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return event times in nanoseconds, and which are valid; `later` are those with the later meaning."""
        if self._start_us:
            since, valid = _since(values, self._unit, 0, fine=True)
            fits = valid & (since <= INT64_MAX - max(self._start_us, 0) * 1000)
            return np.where(fits, since + self._start_us * 1000 if abs(self._start_us) < _MOST_START_US else 0, 0), fits
        read = self._in_utc(_read(values, self._unit, "ns", self._forms), zones)[0]
        ts, valid = _ends(read, zoned=self._zoned)
        if later is not None and read.gap_s is not None:
            ts = ts + np.where(later & valid, read.gap_s * 1_000_000_000, 0)
        return ts, valid

    def refused(self, values: pa.Array, zones: pa.Array | None = None) -> list[tuple[np.ndarray, str]]:
        """Return which values are no event times for a reason of their own, and the reason."""
        return self._in_utc(_read(values, self._unit, "us", self._forms), zones)[1]

    def _in_utc(self, read: _Read, zones: pa.Array | None) -> tuple[_Read, list[tuple[np.ndarray, str]]]:
        if (self._zone is None and self._column is None) or not read.local.any():
            return read, []
        if self._zone is not None:
            skipped = _to_utc(read, read.local & read.valid, self._zone)
            return read, [(skipped, _skipped(self._zone.name))] if skipped.any() else []
        assert zones is not None
        refused = []
        named = zones.combine_chunks() if isinstance(zones, pa.ChunkedArray) else zones
        named = pc.utf8_trim_whitespace(named.cast(pa.string())).fill_null("").dictionary_encode()
        codes = named.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(named.dictionary.to_pylist()):
            inside, zone = read.local & read.valid & (codes == code), value_zone(name)
            if zone is not None:
                skipped = _to_utc(read, inside, zone)
                refused += [(skipped, _skipped(name))] if skipped.any() else []
            elif inside.any():
                read.valid &= ~inside
                refused.append((inside, _no_zone(name, self._column)))
        return read, refused


def moment_us(text: str, stream: TimedStream) -> int | None:
    """Return the event time that a text is, as the options of a stream say; None where it is none."""
    bare = copy(stream)
    object.__setattr__(bare, "time_start", None)
    object.__setattr__(bare, "time_step", None)
    clock = StreamTimes(bare)
    seen = clock.us(pa.array([text]), None if clock.zone_column is None else pa.array(["UTC"]))
    return int(seen.ts[0]) if seen.valid[0] else None


def _since(values: pa.Array, unit: str, start_us: int, *, fine: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return times of numbers, or texts of numbers, that count from a start."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    read = _read(values, unit, "ns" if fine else "us")
    valid = read.valid & ~read.local
    ts = read.ts + start_us
    if not fine:
        valid &= (ts >= MIN_TS_US) & (ts <= MAX_TS_US)
    return np.where(valid, ts, 0), valid


def _skipped(zone: str) -> str:
    return f"a local time that the clock of {zone[:_MOST_SHOWN]} skips, and so no event time"


def _no_zone(name: str, column: str | None = None) -> str:
    where = "" if column is None else f" in column '{column}'"
    told = f"'{name[:_MOST_SHOWN]}'{where}, which is no zone, or has several meanings" if name else f"no zone{where}"
    return f"a local time with {told}: write an offset (+01:00) or a name (Europe/Berlin)"


class _Read(Struct):
    """Times as they were written.

    Attributes
    ----------
    ts, valid : ndarray
        Of a local time those of the clock on the wall.
    local : ndarray of bool
        Which of them say no offset.
    finest : {"us", "ns"}
        The unit of `ts`.
    gap_s : ndarray of int64, optional
        By how many seconds the other meaning of a local time is later.
    """

    ts: np.ndarray
    valid: np.ndarray
    local: np.ndarray
    finest: str
    gap_s: np.ndarray | None = None


def _ends(read: _Read, *, zoned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and which are valid: those that say no offset are not where a column is declared in a zone."""
    valid = read.valid & ~read.local if zoned else read.valid
    return np.where(valid, read.ts, 0) if zoned else read.ts, valid


def _to_utc(read: _Read, places: np.ndarray, zone: Zone) -> np.ndarray:
    """Make local times of a zone UTC, those with two meanings by the earlier one; return which its clock skips."""
    at = np.flatnonzero(places)
    skipped = np.zeros(len(read.ts), np.bool_)
    if not len(at):
        return skipped
    second = 1_000_000 if read.finest == "us" else 1_000_000_000
    local = read.ts[at]
    first, other = zone.offsets(local // second)
    skipped[at] = first < other
    low, high = (MIN_TS_US, MAX_TS_US) if read.finest == "us" else (INT64_MIN, INT64_MAX)
    shift = first * second
    fits = np.where(shift > 0, local >= low + shift, local <= high + shift)
    read.ts[at] = np.where(fits & ~skipped[at], local - np.where(fits, shift, 0), 0)
    read.valid[at] = fits & ~skipped[at]
    read.local[at] = False
    if (is_double := first > other).any():
        read.gap_s = np.zeros(len(read.ts), np.int64) if read.gap_s is None else read.gap_s
        read.gap_s[at] = np.where(is_double & fits, first - other, 0)
    return skipped


def number_texts(values: pa.Array) -> pa.Array:
    """Return numbers as they are written: a float that is a whole number without its point."""
    if not pa.types.is_floating(values.type):
        return values.cast(pa.string())
    exact = values.cast(pa.float64())
    is_whole = pc.and_(pc.equal(exact, pc.floor(exact)), pc.less(pc.abs(exact), float(1 << 53))).fill_null(False)
    whole = pc.if_else(is_whole, exact, None).cast(pa.int64()).cast(pa.string())
    return pc.coalesce(whole, exact.cast(pa.string()))


def to_timestamp(values: pa.Array, form: str) -> pa.Array:
    """Return texts or numbers of a form as timestamps; UTC where they say no offset, null where they are not of it.

    Raises
    ------
    ArgumentError
        There is no such form (`TimeForm.of`); the form "iso" is what is read where no option gives one.
    """
    ts, valid = event_times(values, "us", forms=(form,))
    return pa.array(ts, mask=~valid).cast(TIMESTAMP)


def timestamps(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return a column of timestamps that were written as text; null where the text is null.

    Parameters
    ----------
    kind : pyarrow.DataType
        `TIMESTAMP` or `NANOSECONDS`; or one of these in another zone, as `as_declared` gives it.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no timestamp, or one that `kind` cannot hold, or has no offset where `kind` has another zone.
    """
    texts = texts.combine_chunks()
    ts, valid = _read_timestamps(texts, kind)
    if (~valid & texts.is_valid().to_numpy(zero_copy_only=False)).any():
        msg = "not a timestamp"
        raise pa.ArrowInvalid(msg)
    return pa.array(ts, mask=~valid).cast(kind)


def no_timestamps(texts: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Return the places of texts that `timestamps` refuses."""
    _, valid = _read_timestamps(texts, kind)
    return np.flatnonzero(~valid & texts.is_valid().to_numpy(zero_copy_only=False))


def _read_timestamps(texts: pa.Array, kind: pa.DataType) -> tuple[np.ndarray, np.ndarray]:
    read = event_times_ns if kind.unit == "ns" else event_times
    return read(texts, "us", zoned=foreign_zone(kind) is not None)


def _read(values: pa.Array, unit: str, finest: str, forms: Sequence[str] = ()) -> _Read:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _read(values.dictionary_decode(), unit, finest, forms)
    if forms and (is_text(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        return _of_forms(values.cast(pa.string()) if is_text(kind) else number_texts(values), forms, unit, finest)
    if is_text(kind):
        return _texts(values.cast(pa.string()), unit, finest)
    return _counted(values, unit, finest)


def _counted(values: pa.Array, unit: str, finest: str) -> _Read:
    """Return times of values that are no texts: timestamps without a zone, and dates, are local."""
    ts, valid = (fine_times if finest == "ns" else counted_times)(values, unit)
    return _Read(ts, valid, np.full(len(ts), lacks_zone(values.type)), finest)


def _nothing(count: int, finest: str) -> _Read:
    return _Read(np.zeros(count, np.int64), np.zeros(count, np.bool_), np.zeros(count, np.bool_), finest)


def _put(found: _Read, places: np.ndarray, part: _Read) -> None:
    """Write times at their places."""
    found.ts[places], found.valid[places], found.local[places] = part.ts, part.valid, part.local
    if part.gap_s is not None:
        found.gap_s = np.zeros(len(found.ts), np.int64) if found.gap_s is None else found.gap_s
        found.gap_s[places] = part.gap_s


def _of_forms(texts: pa.Array, forms: Sequence[str], unit: str, finest: str) -> _Read:
    """Return the times of texts by the first form that each is of."""
    found, left, rest = _nothing(len(texts), finest), np.arange(len(texts)), texts
    for form in forms:
        part = _texts(rest, unit, finest) if form == "iso" else _formed(TimeForm.of(form).read(rest), finest)
        _put(found, left, part)
        left = left[~part.valid]
        if not len(left):
            break
        rest = texts.take(pa.array(left))
    return found


def _formed(moments: Moments, finest: str) -> _Read:
    ts, valid = moments.counted(finest)
    read = _Read(ts, valid, moments.local, finest)
    for name, places in (moments.zones or {}).items():
        zone = value_zone(name)
        if zone is None:
            read.valid &= ~places
        else:
            _to_utc(read, places & read.valid, zone)
    return read


def _texts(texts: pa.Array, unit: str, finest: str) -> _Read:
    """Return the times of texts: of a column that is written in one way by one cast, of any other way by way."""
    read = _alike(texts, unit, finest)
    if read is not None:
        return read
    found, left = _nothing(len(texts), finest), np.flatnonzero(texts.is_valid())
    for _ in range(_MOST_WAYS):
        rest = texts.take(pa.array(left))
        if not len(rest):
            return found
        is_alike = np.asarray(pc.match_substring_regex(rest, _way_of(rest[0].as_py())))
        alike = rest.filter(pa.array(is_alike))
        _put(found, left[is_alike], _alike(alike, unit, finest) or _unlike(alike, unit, finest))
        left = left[~is_alike]
    _put(found, left, _unlike(texts.take(pa.array(left)), unit, finest))
    return found


def _way_of(text: str) -> str:
    """Return the pattern of texts that differ from this one in digits alone, and in how many there are in a row.

    Of a text that is too long for any time its beginning decides.
    """
    begin = re.sub("[0-9]+", "[0-9]+", re.escape(text[:_MOST_SHOWN]))
    return f"^{begin}$" if len(text) <= _MOST_SHOWN else f"^{begin}"


def _alike(texts: pa.Array, unit: str, finest: str) -> _Read | None:
    """Return the times of texts that are all written as the first of them is; None where they are not.

    What some of many cannot be is not tried with all: a cast that fails writes an error for each text, which takes as
    long as reading thirty good ones.
    """
    sample = texts
    if len(texts) > _FEW:
        sample = texts.take(pa.array([place * (len(texts) - 1) // _SAMPLE for place in range(_SAMPLE + 1)]))
    first = next((text for text in sample.to_pylist() if text is not None), None)
    if first is None:
        return None
    kinds: Sequence[pa.DataType] = [pa.int64()]
    if first != first.strip():
        texts, sample, first = pc.utf8_trim_whitespace(texts), pc.utf8_trim_whitespace(sample), first.strip()
    if first.isascii() and first.isdecimal():
        if not pc.all(pc.ascii_is_decimal(texts)).as_py():  # Arrow takes hexadecimal digits, too
            return None
    elif re.match(_NUMBER, first):
        kinds = [pa.float64()]
        is_float = pc.and_not(pc.match_substring_regex(texts, _NUMBER), pc.match_substring_regex(texts, _INTEGER))
        if not pc.all(is_float).as_py():  # an integer keeps digits that a float has not
            return None
    else:
        if rules := _rules_of(first):
            texts, sample = _as_iso(texts, rules), _as_iso(sample, rules)
            first = next(text for text in sample.to_pylist() if text is not None)
        has_offset = len(first) > _DATE_LENGTH and re.search(_ZONED, first) is not None
        kinds = [kind for kind in _TYPES[finest] if (kind.tz is not None) == has_offset]
    for kind in kinds:
        try:
            if sample is not texts:
                sample.cast(kind)
            return _counted(texts.cast(kind), unit, finest)
        except pa.ArrowInvalid:  # noqa: PERF203 - two turns at most, a whole column each
            continue
    return None


def _unlike(texts: pa.Array, unit: str, finest: str) -> _Read:
    """Return the times of texts that are written in several ways."""
    trimmed = pc.utf8_trim_whitespace(texts)
    integer = pc.match_substring_regex(trimmed, _INTEGER).fill_null(False)
    number = pc.match_substring_regex(trimmed, _NUMBER).fill_null(False)
    upper = pc.utf8_upper(_as_iso(trimmed, [*_NEARLY_ISO, (_FINE_FRACTION[finest], r"\1")]))
    dated = pc.match_substring_regex(upper, _DATED).fill_null(False)
    # A date alone ends in "-01", which is no offset: an offset needs a time of day before it.
    has_time = pc.greater(pc.utf8_length(upper).fill_null(0), _DATE_LENGTH)
    offset = pc.and_(pc.and_(dated, has_time), pc.match_substring_regex(upper, _ZONED).fill_null(False))
    utc, local = _TYPES[finest][:2]
    found = _nothing(len(texts), finest)
    for mask, kind, part in (
        (integer, pa.int64(), trimmed),
        (pc.and_not(number, integer), pa.float64(), trimmed),
        (offset, utc, upper),
        (pc.and_not(dated, offset), local, upper),
    ):
        where = np.flatnonzero(np.asarray(mask))
        if len(where):
            _put(found, where, _counted(_readable(part.take(pa.array(where)), kind), unit, finest))
    return found


def _rules_of(text: str) -> list[tuple[str, str]]:
    """Return what makes a text ISO 8601, if anything has to be done."""
    rules: list[tuple[str, str]] = []
    for pattern, replacement in () if _ISO.match(text) else _NEARLY_ISO:
        before, text = text, re.sub(pattern, replacement, text)
        rules += [(pattern, replacement)] * (text != before)
    return rules


def _as_iso(texts: pa.Array, rules: Sequence[tuple[str, str]]) -> pa.Array:
    for pattern, replacement in rules:
        texts = pc.replace_substring_regex(texts, pattern, replacement.replace(r"\g<1>", r"\1"))
    return texts


def _readable(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts cast to `kind`, null where a text cannot be cast. Halve the texts until each bad one is alone."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        middle = len(texts) // 2
        return pa.concat_arrays([_readable(texts[:middle], kind), _readable(texts[middle:], kind)])
