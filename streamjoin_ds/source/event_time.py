"""Event times as integers: whatever a source writes, inside the house it is int64 microseconds UTC."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["MAX_TS_US", "MIN_TS_US", "NO_TIME", "event_times"]

# The years 1..9999: what Python, Spark and Delta all can show. Anything else is rejected, not wrapped around.
MIN_TS_US = -62_135_596_800_000_000
MAX_TS_US = 253_402_300_799_999_999

# Stands for "no event time yet"; below every event time.
NO_TIME = -(1 << 63)

_UTC = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")
_INTEGER = r"^[+-]?[0-9]{1,19}$"
_ZONED = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_DATED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
_FINE_FRACTION = r"(\.[0-9]{6})[0-9]+"
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


def event_times(values: pa.Array, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Event times in microseconds and which of them are readable.

    Parameters
    ----------
    values : pyarrow.Array
        Timestamps (without a zone: UTC), dates (midnight UTC), integers in `unit`, or texts: ISO 8601 with ``Z``, an
        offset or nothing (UTC), a date, or an integer in `unit`. Parts of a microsecond are cut off (towards the past).
    unit : {"s", "ms", "us", "ns"}
        Of integers.

    Returns
    -------
    ts : numpy.ndarray, int64
        Microseconds UTC; 0 where not valid.
    valid : numpy.ndarray, bool
        False for nulls, unreadable texts and times outside the years 1..9999.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind = values.type
    if pa.types.is_dictionary(kind):
        return event_times(values.dictionary_decode(), unit)
    if pa.types.is_timestamp(kind):
        return _scaled(values.cast(pa.int64()), kind.unit)
    if pa.types.is_date(kind):
        return _bounded(values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    if pa.types.is_integer(kind):
        return _scaled(_int64(values), unit)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _texts(values.cast(pa.string()), unit)
    return np.zeros(len(values), np.int64), np.zeros(len(values), bool)


def _int64(values: pa.Array) -> pa.Array:
    if pa.types.is_uint64(values.type):  # beyond int64 is beyond the year 9999 in every unit
        values = pc.if_else(pc.greater(values, pa.scalar((1 << 63) - 1, pa.uint64())), None, values)
    return values.cast(pa.int64())


def _scaled(values: pa.Array, unit: str) -> tuple[np.ndarray, np.ndarray]:
    if unit == "ns":
        counts, valid = _bounded(values, 1)
        if pa.types.is_integer(values.type):
            numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
            return np.floor_divide(numbers, 1000), ~np.asarray(values.is_null())
        return counts, valid
    return _bounded(values, _UNIT_US[unit])


def _bounded(values: pa.Array, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers times `factor`, where that lies in the years 1..9999: compared before it is multiplied."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    low, high = -(-MIN_TS_US // factor), MAX_TS_US // factor
    valid = (numbers >= low) & (numbers <= high)
    if values.null_count:
        valid &= np.asarray(values.is_valid())
    return np.where(valid, numbers, 0) * factor, valid


def _texts(texts: pa.Array, unit: str) -> tuple[np.ndarray, np.ndarray]:
    # One cast for a column that is written one way, which nearly every column is.
    for kind in (_UTC, _NAIVE):
        try:
            return _scaled(texts.cast(kind).cast(pa.int64()), "us")
        except pa.ArrowInvalid:  # noqa: PERF203 - two turns at most, a whole column each
            continue
    if pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():  # nulls aside
        return _scaled(_readable(texts, pa.int64()), unit)
    trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), _FINE_FRACTION, r"\1")
    upper = pc.utf8_upper(trimmed)
    integer = pc.match_substring_regex(upper, _INTEGER).fill_null(False)
    dated = pc.match_substring_regex(upper, _DATED).fill_null(False)
    # A date alone ends in "-01", which is no offset: an offset needs a time of day before it.
    has_time = pc.greater(pc.utf8_length(upper).fill_null(0), 10)
    zoned = pc.and_(pc.and_(dated, has_time), pc.match_substring_regex(upper, _ZONED).fill_null(False))
    ts, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for mask, kind, scale in (
        (integer, pa.int64(), unit),
        (zoned, _UTC, "us"),
        (pc.and_not(dated, zoned), _NAIVE, "us"),
    ):
        where = np.flatnonzero(np.asarray(mask))
        if len(where):
            part_ts, part_valid = _scaled(_readable(upper.take(pa.array(where)), kind), scale)
            ts[where], valid[where] = part_ts, part_valid
    return ts, valid


def _readable(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast to `kind` as int64, null where a text cannot be; halves until the culprits are alone."""
    try:
        return texts.cast(kind).cast(pa.int64())
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, pa.int64())
        middle = len(texts) // 2
        return pa.concat_arrays([_readable(texts[:middle], kind), _readable(texts[middle:], kind)])
