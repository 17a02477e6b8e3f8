"""Functions of times: date_trunc, extract, to_timestamp, make_timestamp. All times are UTC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Int64
from streamjoin_ds.spec.event_time import DAY_US, MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.expression.node import Typed, Values, decimal, nulls, refuse, wide
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, checked, constant
from streamjoin_ds.spec.time_format import TimeForm
from streamjoin_ds.spec.time_text import to_timestamp

__all__ = ["TIMES", "microseconds"]

_WHOLE, _SECONDS = pa.decimal256(20, 0), pa.decimal256(50, 9)


_HOUR_US, _MINUTE_US, _SECOND_US = 3_600_000_000, 60_000_000, 1_000_000
_MONDAY_US = 4 * DAY_US  # 1970-01-05
_UNITS_US = {
    "week": 7 * DAY_US,
    "day": DAY_US,
    "hour": _HOUR_US,
    "minute": _MINUTE_US,
    "second": _SECOND_US,
    "millisecond": 1000,
    "microsecond": 1,
}
_ENDS = ((pc.greater_equal, INT64_MIN), (pc.less_equal, INT64_MAX))
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_SAME = {"dow": "dayofweek", "seconds": "second", "minutes": "minute", "hours": "hour", "days": "day"}


def microseconds(node: Typed, rows: Rows) -> pa.Array:
    """Return times or durations as int64 microseconds, rounded down; null where they do not fit."""
    values = rows.array(rows.value(node))
    if values.type != pa.int64():
        return fitting(pc.floor(wide(values, node))).cast(pa.int64())
    if not node.scale:
        return values
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(plain // 10**node.scale, mask=nulls(values))


def fitting(exact: Values) -> Values:
    """Return exact numbers; null where one does not fit int64."""
    fits = pc.and_(*(compare(exact, pa.scalar(decimal(end, 0))) for compare, end in _ENDS))
    return pc.if_else(fits, exact, pa.scalar(None, exact.type))


def _truncated(expression: Call, args: tuple[Typed, ...]) -> Typed:
    unit = str(constant(expression, args[0], "string", "a unit")).lower()
    checked(expression, args[1:], "timestamp", "date")
    if unit not in _MONTHS and unit not in _UNITS_US:
        refuse(expression, "has a unit that is not known", f"units are {', '.join([*_MONTHS, *_UNITS_US])}")
    return Typed(expression.op, "timestamp", args, magnitude=1 << 63)


def _truncations(node: Typed, rows: Rows) -> Values:
    values = microseconds(node.args[1], rows)
    plain: Int64 = values.fill_null(0).to_numpy(zero_copy_only=False)
    unit = str(node.args[0].value).lower()
    if unit in _MONTHS:
        months = plain.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
        months = months // _MONTHS[unit] * _MONTHS[unit]
        found = months.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
    else:
        shift = _MONDAY_US if unit == "week" else 0
        found = (plain - shift) // _UNITS_US[unit] * _UNITS_US[unit] + shift
    return pa.array(found, mask=nulls(values))


def _year(us: Int64) -> Int64:
    return us.astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64) + 1970


def _month(us: Int64) -> Int64:
    return us.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12 + 1


def _day(us: Int64) -> Int64:
    days = us.astype("datetime64[us]").astype("datetime64[D]")
    found: Int64 = (days - days.astype("datetime64[M]")).astype(np.int64) + 1
    return found


def _day_of_year(us: Int64) -> Int64:
    days = us.astype("datetime64[us]").astype("datetime64[D]")
    found: Int64 = (days - days.astype("datetime64[Y]")).astype(np.int64) + 1
    return found


def _day_of_week(us: Int64) -> Int64:
    return (us // DAY_US + 4) % 7 + 1  # 1 is Sunday


def _week(us: Int64) -> Int64:
    thursday = (us - _MONDAY_US) // (7 * DAY_US) * 7 + 4 + 3  # of the same week: its year is the week's
    return (_day_of_year(thursday * DAY_US) - 1) // 7 + 1


def _remainder(of_us: int, unit_us: int) -> Callable[[Int64], Int64]:
    return lambda us: us % of_us // unit_us


# The fields of times; the second has six decimal places, so it is in microseconds here.
_FIELDS: dict[str, Callable[[Int64], Int64]] = {
    "year": _year,
    "quarter": lambda us: (_month(us) - 1) // 3 + 1,
    "month": _month,
    "week": _week,
    "day": _day,
    "dayofweek": _day_of_week,
    "doy": _day_of_year,
    "hour": _remainder(DAY_US, _HOUR_US),
    "minute": _remainder(_HOUR_US, _MINUTE_US),
    "second": _remainder(_MINUTE_US, 1),
}
# The fields of durations: what is left of the larger one, with the duration's sign.
_OF_DURATIONS: dict[str, Callable[[Int64], Int64]] = {
    "day": lambda us: us // DAY_US,
    "hour": _FIELDS["hour"],
    "minute": _FIELDS["minute"],
    "second": _FIELDS["second"],
}


def _extracted(expression: Call, args: tuple[Typed, ...]) -> Typed:
    field = _field(str(constant(expression, args[0], "string", "a field")))
    checked(expression, args[1:], "timestamp", "date", "interval")
    valid = _OF_DURATIONS if args[1].family == "interval" else _FIELDS
    if field not in valid:
        refuse(expression, f"has a field that a {args[1].family} does not have", f"fields are {', '.join(valid)}")
    is_second = field == "second"
    return Typed(expression.op, "number", args, 60 * 10**6 if is_second else 1 << 31, 6 if is_second else 0)


def _field(written: str) -> str:
    return _SAME.get(written.lower(), written.lower())


def _extractions(node: Typed, rows: Rows) -> Values:
    field, (_, inner) = _field(str(node.args[0].value)), node.args
    values = microseconds(inner, rows)
    plain: Int64 = values.fill_null(0).to_numpy(zero_copy_only=False)
    if inner.family == "interval":
        found = np.sign(plain) * _OF_DURATIONS[field](np.abs(plain))
    else:
        found = _FIELDS[field](plain)
    array = pa.array(found, mask=nulls(values))
    if field != "second":
        return array
    whole = array.cast(pa.decimal256(19, 0))  # the digits are right; the type below only moves the point
    return pa.Array.from_buffers(
        pa.decimal256(node.digits, 6), len(whole), whole.buffers(), whole.null_count, whole.offset
    )


def _read(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:1], "string", "number", "float", "timestamp", "date")
    if len(args) == 2:
        form = _form(expression, args)
        checked(expression, args[:1], *(("string",) if form == "iso" else ("string", "number")))
        try:
            if form != "iso":
                TimeForm.of(form)
        except ArgumentError as error:
            refuse(expression, "has a form of times that cannot be read", error.hint)
    return Typed(expression.op, "timestamp", args, magnitude=1 << 63)


def _form(expression: Call, args: tuple[Typed, ...]) -> str:
    return str(constant(expression, args[1], "string", "a form, such as '%d/%m/%Y %H:%M:%S',"))


def _readings(node: Typed, rows: Rows) -> Values:
    """Return texts as times, in a form or in one that is nearly ISO 8601; numbers as seconds since 1970."""
    inner = node.args[0]
    if len(node.args) == 2:
        values = rows.array(rows.value(inner))
        return to_timestamp(values, str(node.args[1].value)).cast(pa.int64())
    if inner.family == "string":
        return to_timestamp(rows.array(rows.value(inner)), "iso").cast(pa.int64())
    if inner.family in ("timestamp", "date"):
        return microseconds(inner, rows)
    if inner.family == "number":
        scaled = pc.multiply(wide(rows.array(rows.value(inner)), inner).cast(_SECONDS), pa.scalar(1_000_000, _WHOLE))
        return _in_years(fitting(pc.floor(scaled)).cast(pa.int64()))
    seconds = rows.floats(inner)
    fits = pc.less(pc.abs(seconds), float(MAX_TS_US // 1_000_000 + 1))
    micros = pc.round(pc.multiply(pc.if_else(fits, seconds, pa.scalar(None, pa.float64())), 1e6))
    return _in_years(micros.cast(pa.int64()))


def _in_years(micros: pa.Array) -> pa.Array:
    """Return times; null beyond the years 1 to 9999."""
    fits = pc.and_(pc.greater_equal(micros, MIN_TS_US), pc.less_equal(micros, MAX_TS_US))
    return pc.if_else(fits, micros, pa.scalar(None, pa.int64()))


def _of_parts(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args, "number", "float")
    for argument in args[:5]:
        if argument.family == "float" or argument.scale:
            refuse(expression, "has a part that is no whole number", "only the seconds have a fraction")
    return Typed(expression.op, "timestamp", args, magnitude=1 << 63)


def _times_of_parts(node: Typed, rows: Rows) -> Values:
    """Return the times of years, months, days, hours, minutes and seconds; null where there is none."""
    whole = [pc.cast(rows.array(rows.value(one)), pa.int64(), safe=False) for one in node.args[:5]]
    given = [pc.fill_null(one, -1).to_numpy(zero_copy_only=False) for one in whole]
    year, month, day, hour, minute = given
    second = rows.floats(node.args[5])
    seconds = pc.fill_null(second, -1.0).to_numpy(zero_copy_only=False)
    ok = np.ones(rows.count, np.bool_)
    for values, low, high in zip(given, (1, 1, 1, 0, 0), (9999, 12, 31, 23, 59), strict=True):
        ok &= (values >= low) & (values <= high)
    ok &= (seconds >= 0) & (seconds < 60)
    months = (np.where(ok, year, 1970) - 1970) * 12 + np.where(ok, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    ok &= np.where(ok, day, 1) <= after - first
    micros = np.rint(np.where(ok, seconds, 0.0) * 1e6).astype(np.int64)
    whole_us = (np.where(ok, hour, 0) * 60 + np.where(ok, minute, 0)) * _MINUTE_US
    return pa.array((first + np.where(ok, day, 1) - 1) * DAY_US + whole_us + micros, mask=~ok)


TIMES = (
    Function(
        "to_timestamp",
        "to_timestamp(x [, '%d/%m/%Y %H:%M:%S'])",
        _read,
        _readings,
        1,
        2,
        reason="no time, or one of another form",
    ),
    Function(
        "make_timestamp",
        "make_timestamp(year, month, day, hour, minute, second)",
        _of_parts,
        _times_of_parts,
        6,
        6,
        reason="parts of a time that there is not",
    ),
    Function("date_trunc", "date_trunc('hour', t)", _truncated, _truncations, 2, 2),
    Function("extract", "extract(HOUR FROM t)", _extracted, _extractions, 2, 2),
)
