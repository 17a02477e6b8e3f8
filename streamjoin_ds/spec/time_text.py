"""Times as texts and numbers of an input: how they are read where an option gives no form, and where one does.

Event times follow the rule of `spec.event_time`. Forms that an option gives are those of `spec.time_format`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import NANOSECONDS, TIMESTAMP, foreign_zone, is_text
from streamjoin_ds.spec.event_time import counted_times, fine_times
from streamjoin_ds.spec.time_format import TimeForm

__all__ = ["event_times", "event_times_ns", "no_timestamps", "number_texts", "times_of", "timestamps", "to_timestamp"]

_INTEGER = r"^[+-]?[0-9]{1,19}$"
_WORD = r"^[A-Za-z]"  # no form of a time begins so
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
_FINE_FRACTION = {"us": r"(\.[0-9]{6})[0-9]+", "ns": r"(\.[0-9]{9})[0-9]+"}

Counted: TypeAlias = "Callable[[pa.Array, str], tuple[np.ndarray, np.ndarray]]"


class TimedStream(Protocol):
    """What is asked of a stream here; each property is that of `Stream`."""

    @property
    def time_zone(self) -> str | None:
        """The foreign zone of its declared event time."""

    @property
    def time_format(self) -> object:
        """How its event times are written."""

    @property
    def time_forms(self) -> tuple[str, ...]:
        """The same as a tuple."""


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
    return _times(values, unit, "us", counted_times, zoned=zoned, forms=forms)


def event_times_ns(
    values: pa.Array, unit: str, *, zoned: bool = False, forms: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return event times in nanoseconds, read as by `event_times`; valid where an int64 holds them (`fine_times`)."""
    return _times(values, unit, "ns", fine_times, zoned=zoned, forms=forms)


def times_of(stream: TimedStream) -> tuple[Counted, Counted]:
    """Return the functions that read a stream's event times, in microseconds and in nanoseconds, for `to_inside`."""
    if stream.time_zone is None and stream.time_format is None:
        return event_times, event_times_ns
    zoned, forms = stream.time_zone is not None, stream.time_forms
    return partial(event_times, zoned=zoned, forms=forms), partial(event_times_ns, zoned=zoned, forms=forms)


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


def _times(
    values: pa.Array, unit: str, finest: str, counted: Counted, *, zoned: bool, forms: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _times(values.dictionary_decode(), unit, finest, counted, zoned=zoned, forms=forms)
    if forms and (
        is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ):
        texts = values.cast(pa.string()) if is_text(kind) else number_texts(values)
        return _of_forms(texts, forms, unit, finest, counted, zoned=zoned)
    if is_text(kind):
        return _texts(values.cast(pa.string()), unit, finest, counted, zoned=zoned)
    return counted(values, unit)


def _of_forms(
    texts: pa.Array, forms: Sequence[str], unit: str, finest: str, counted: Counted, *, zoned: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of texts by the first form that each is of."""
    ts, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    left, rest = np.arange(len(texts)), texts
    for form in forms:
        if form == "iso":
            part_ts, part_valid = _texts(rest, unit, finest, counted, zoned=zoned)
        else:
            moments = TimeForm.of(form).read(rest)
            part_ts, part_valid = moments.counted(finest)
            if zoned:
                part_valid = part_valid & ~moments.local
        ts[left], valid[left] = np.where(part_valid, part_ts, 0), part_valid
        left = left[~part_valid]
        if not len(left):
            break
        rest = texts.take(pa.array(left))
    return ts, valid


def _texts(texts: pa.Array, unit: str, finest: str, counted: Counted, *, zoned: bool) -> tuple[np.ndarray, np.ndarray]:
    utc, naive = (TIMESTAMP, pa.timestamp("us")) if finest == "us" else (NANOSECONDS, pa.timestamp("ns"))
    # A cast that fails writes an error for each text, which takes as long as reading ten good ones.
    if len(texts) and re.match(_WORD, texts[0].as_py() or ""):
        worded = np.asarray(pc.match_substring_regex(texts, _WORD).fill_null(False))
        return _beside_words(texts, worded, unit, finest, counted, zoned=zoned)
    # Nearly every column is written in one way: then one cast reads it whole.
    texts = _as_iso(texts, _rules_of((texts[0].as_py() or "").strip() if len(texts) else ""))
    for kind in (utc,) if zoned else (utc, naive):
        try:
            return counted(texts.cast(kind), finest)
        except pa.ArrowInvalid:  # noqa: PERF203 - two turns at most, a whole column each
            continue
    if pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():  # pc.all skips nulls
        return counted(_readable(texts, pa.int64()), unit)
    worded = np.asarray(pc.match_substring_regex(texts, _WORD).fill_null(False))
    if worded.any():
        return _beside_words(texts, worded, unit, finest, counted, zoned=zoned)
    trimmed = _as_iso(pc.utf8_trim_whitespace(texts), [*_NEARLY_ISO, (_FINE_FRACTION[finest], r"\1")])
    upper = pc.utf8_upper(trimmed)
    integer = pc.match_substring_regex(upper, _INTEGER).fill_null(False)
    number = pc.match_substring_regex(upper, _NUMBER).fill_null(False)
    dated = pc.match_substring_regex(upper, _DATED).fill_null(False)
    # A date alone ends in "-01", which is no offset: an offset needs a time of day before it.
    has_time = pc.greater(pc.utf8_length(upper).fill_null(0), 10)
    offset = pc.and_(pc.and_(dated, has_time), pc.match_substring_regex(upper, _ZONED).fill_null(False))
    ts, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for mask, kind, part in (
        (integer, pa.int64(), upper),
        # A float keeps all its digits: `trimmed` lacks those beyond the unit of a timestamp.
        (pc.and_not(number, integer), pa.float64(), pc.utf8_trim_whitespace(texts)),
        (offset, utc, upper),
        *(() if zoned else ((pc.and_not(dated, offset), naive, upper),)),
    ):
        where = np.flatnonzero(np.asarray(mask))
        if len(where):
            part_ts, part_valid = counted(_readable(part.take(pa.array(where)), kind), unit)
            ts[where], valid[where] = part_ts, part_valid
    return ts, valid


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


def _beside_words(
    texts: pa.Array, worded: np.ndarray, unit: str, finest: str, counted: Counted, *, zoned: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return times of texts, where those that begin with a letter are none."""
    ts, valid = np.zeros(len(texts), np.int64), ~worded
    ts[~worded], valid[~worded] = _texts(texts.filter(pa.array(~worded)), unit, finest, counted, zoned=zoned)
    return ts, valid


def _readable(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts cast to `kind`, null where a text cannot be cast. Halve the texts until each bad one is alone."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        middle = len(texts) // 2
        return pa.concat_arrays([_readable(texts[:middle], kind), _readable(texts[middle:], kind)])
