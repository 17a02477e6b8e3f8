"""Functions of times: date_trunc, extract. All times are UTC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Int64
from streamjoin_ds.spec.event_time import DAY_US
from streamjoin_ds.spec.expression.node import Typed, Values, decimal, nulls, refuse, wide
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, checked, constant

__all__ = ["TIMES", "microseconds"]


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


TIMES = (
    Function("date_trunc", "date_trunc('hour', t)", _truncated, _truncations, 2, 2),
    Function("extract", "extract(HOUR FROM t)", _extracted, _extractions, 2, 2),
)
