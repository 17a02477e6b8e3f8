"""For tests of joins, yours too: the contract in plain Python, and ways to cut and shuffle a stream.

`oracle_join` says which results a join has over whole streams; every engine, batching and order of arrival within the
delay must give the same. It is written to be read: no arrays, no index, one loop a stream. Nothing of the engine is
used.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.spec.count_window import CountWindow
from streamjoin_ds.spec.expression import Expression, Literal, conjuncts, normalised, streams_of
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.periodic_window import PeriodicWindow
from streamjoin_ds.spec.predicate import Band, Column

__all__ = [
    "event_time_us",
    "filtered_rows",
    "late_rows",
    "oracle_join",
    "oracle_numbers",
    "oracle_value",
    "random_batches",
    "shuffled_within",
    "source_order",
]

Row: TypeAlias = "Mapping[str, Any]"
Rows: TypeAlias = "Sequence[Row] | pa.Table"
Times: TypeAlias = "Sequence[Sequence[int | None]]"  # microseconds of every stream's records

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_DIGITS = 76
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def oracle_join(
    join: Join, streams: Mapping[str, Rows], *, lateness: bool = True, ends: Sequence[Mapping[str, int]] = ()
) -> list[dict[str, Any]]:
    """Results of a join over whole streams.

    Parameters
    ----------
    join : Join
    streams : mapping of name to table or list of dicts
        Each stream's tuples in its own order; a tuple's number (``_seq``) is its place in it.
    lateness : bool
        Whether late tuples are left out.
    ends : sequence of mapping of name to int
        For count windows over files that grow: see `source_order`.

    Returns
    -------
    list of dict
        ``<stream>_<column>`` of every stream and column, ``<stream>_seq``, ``event_time_us``, of periodic windows also
        ``window_id``; sorted by the numbers and the window.
    """
    rows = {name: _listed(streams[name]) for name in join.names}
    times, results = _times(join, rows), []
    before, place = None, 0
    for numbers in oracle_numbers(join, rows, lateness=lateness, ends=ends):
        result: dict[str, Any] = {}
        for name, number in zip(join.names, numbers, strict=True):
            result.update({f"{name}_{column}": value for column, value in rows[name][number].items()})
            result[f"{name}_seq"] = number
        found = (times[stream][number] for stream, number in enumerate(numbers))
        result["event_time_us"] = max(time for time in found if time is not None)
        if isinstance(join.window, PeriodicWindow):
            # `oracle_numbers` has a result once for each window, one after the other.
            place = place + 1 if numbers == before else 0
            result["window_id"] = _common_windows(join, times, numbers)[place]
        before = numbers
        results.append(result)
    return results


def oracle_numbers(
    join: Join, streams: Mapping[str, Rows], *, lateness: bool = True, ends: Sequence[Mapping[str, int]] = ()
) -> list[tuple[int, ...]]:
    """The results as the tuples' numbers, one a stream, sorted; of periodic windows once for each common window.

    Count windows are over the order of `source_order`; late and broken records have their places in it.
    """
    rows = {name: _listed(streams[name]) for name in join.names}
    order: dict[str, list[int]] = {name: [] for name in join.names}
    if isinstance(join.window, CountWindow):
        for place, (name, _) in enumerate(source_order(join, rows, ends)):
            order[name].append(place)
    times, usable = _times(join, rows), []
    for stream, stream_times in zip(join.streams, times, strict=True):
        late = set(late_rows(join, stream.name, rows[stream.name])) if lateness else set()
        gone = late | set(filtered_rows(join, stream.name, rows[stream.name]))
        usable.append([n for n, time in enumerate(stream_times) if time is not None and n not in gone])
    places = [order[name] for name in join.names]
    partial: list[tuple[int, ...]] = [()]
    for place in range(len(join.streams)):
        partial = [
            (*numbers, number)
            for numbers in partial
            for number in usable[place]
            if _in_windows(join, times, places, numbers, number) and _joins(join, rows, numbers, place, number)
        ]
    if isinstance(join.window, PeriodicWindow):
        partial = [numbers for numbers in partial for _ in _common_windows(join, times, numbers)]
    return sorted(partial)


def filtered_rows(join: Join, name: str, rows: Rows) -> list[int]:
    """Numbers of the tuples of a stream that a condition on it alone leaves out."""
    stream = join.streams[join.names.index(name)]
    conditions = [
        part
        for predicate in join.predicates
        if not isinstance(predicate, Band)
        for part in conjuncts(normalised(predicate))
        if streams_of(part) == (name,)
    ]
    if stream.where is not None and not isinstance(stream.where, str):
        conditions.append(stream.where)
    return [
        number
        for number, row in enumerate(_listed(rows))
        if _time(join, name, row) is not None
        and any(oracle_value(join, condition, {name: row}) is not True for condition in conditions)
    ]


def late_rows(join: Join, name: str, rows: Rows) -> list[int]:
    """Numbers of the late tuples of a stream: older than the largest event time before them minus the delay.

    Tuples that are filtered out tell the time, and are not late.
    """
    gone = set(filtered_rows(join, name, rows))
    delay_us = join.streams[join.names.index(name)].delay_us
    late, largest = [], None
    for number, row in enumerate(_listed(rows)):
        time = _time(join, name, row)
        if time is None:
            continue
        if largest is not None and time < largest - delay_us and number not in gone:
            late.append(number)
        largest = time if largest is None else max(largest, time)
    return late


def source_order(
    join: Join, streams: Mapping[str, Rows], ends: Sequence[Mapping[str, int]] = ()
) -> list[tuple[str, int]]:
    """All records of all streams, as stream and number, in the order in which a source that has them all gives them.

    By the largest event time so far in the record's own stream, then by the stream's place in the join, then by number.
    A source whose files grow has not all of them: what a later batch brings comes later. So with `ends`, of each batch
    how many records of each stream were read at its end (sums of the ledger's ``read``), the order is first by batch.
    """
    keys: list[tuple[int, int | float, int, int]] = []
    for stream, name in enumerate(join.names):
        largest: int | float = float("-inf")
        for number, row in enumerate(_listed(streams[name])):
            time = _time(join, name, row)
            largest = largest if time is None else max(largest, time)
            batch = sum(end[name] <= number for end in ends)
            keys.append((batch, largest, stream, number))
    return [(join.names[stream], number) for _, _, stream, number in sorted(keys)]


def oracle_value(join: Join, expression: Expression, rows: Mapping[str, Row]) -> Any:
    """Value of an expression over one row of each stream; None where it is null or unknown.

    Whole numbers and decimals are fractions, so are times and durations, in microseconds.
    """
    if isinstance(expression, Literal):
        return _plain(expression.value)
    if isinstance(expression, Column):
        stream = join.streams[join.names.index(expression.stream)]
        value = rows[stream.name][expression.name]
        return _plain(event_time_us(value, stream.time_unit) if expression.name == stream.time else value)
    values = [oracle_value(join, argument, rows) for argument in expression.args]
    op, first = expression.op, values[0]
    if op in ("and", "or"):
        decisive = op == "or"
        return decisive if decisive in values else None if None in values else not decisive
    if op == "is_null":
        return first is None
    if op == "in":
        found = [_compared("=", first, item) for item in values[1:]]
        return True if True in found else None if None in found else False
    if op == "between":
        ends = [_compared("<=", values[1], first), _compared("<=", first, values[2])]
        return False if False in ends else None if None in ends else True
    if None in values:
        return None
    if len(values) == 1:
        return not first if op == "not" else abs(first) if op == "abs" else -first
    return _compared(op, *values) if op in _COMPARED else _computed(op, *values)


def random_batches(rows: Sequence[Any], seed: int, most: int = 8) -> Iterator[Sequence[Any]]:
    """A stream cut into at most `most` batches, some of them empty; their concatenation is the stream."""
    chooser = random.Random(seed)
    cuts = sorted(chooser.randint(0, len(rows)) for _ in range(chooser.randint(0, most - 1)))
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        yield rows[start:stop]


def shuffled_within(times_us: Sequence[int], delay_us: int, seed: int) -> list[int]:
    """An order of arrival in which no tuple is late: the tuples' positions, each delayed by at most `delay_us`."""
    chooser = random.Random(seed)
    arrivals = [(time + chooser.randint(0, delay_us), chooser.random(), n) for n, time in enumerate(times_us)]
    return [number for _, _, number in sorted(arrivals)]


def event_time_us(value: Any, unit: str = "us") -> int | None:
    """Microseconds since 1970 UTC of an event time; None of a null."""
    if value is None:
        return None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()) // timedelta(microseconds=1)
    return int(value) // 1000 if unit == "ns" else int(value) * _UNITS[unit]


def _in_count_window(
    window: CountWindow, order: Sequence[Sequence[int]], left: tuple[int, int], right: tuple[int, int]
) -> bool:
    """Whether the earlier of two tuples (stream, number) is among the last k of its stream that precede the later."""
    places = {stream: order[stream][number] for stream, number in (left, right)}
    (stream, number), (later, _) = (left, right) if places[left[0]] < places[right[0]] else (right, left)
    preceding = [n for n, place in enumerate(order[stream]) if place < places[later]]
    return number in preceding[max(len(preceding) - window.counts[stream], 0) :]


def _windows_of(window: PeriodicWindow, stream: int, time: int) -> set[int]:
    """Ids, as the first stream counts them, of the windows ``(i*T - W, i*T]`` that hold a time; only those in int64."""
    every_us, window_us = window.every_us, window.windows_us[stream]
    near = range(time // every_us - 1, (time + window_us) // every_us + 2)
    ids = {i - window.lags[stream] for i in near if i * every_us - window_us < time <= i * every_us}
    return {i for i in ids if -(1 << 63) <= i < 1 << 63}


def _common_windows(join: Join, times: Times, numbers: Sequence[int]) -> list[int]:
    assert isinstance(join.window, PeriodicWindow)
    common: set[int] | None = None
    for stream, number in enumerate(numbers):
        time = times[stream][number]
        assert time is not None
        windows = _windows_of(join.window, stream, time)
        common = windows if common is None else common & windows
    return sorted(common or ())


def _in_windows(join: Join, times: Times, order: Sequence[Sequence[int]], numbers: Sequence[int], number: int) -> bool:
    """Whether a tuple of the next stream is near enough to those of the streams before it."""
    place = len(numbers)
    if isinstance(join.window, PeriodicWindow):
        return bool(_common_windows(join, times, [*numbers, number]))
    if isinstance(join.window, CountWindow):
        return all(_in_count_window(join.window, order, (n, numbers[n]), (place, number)) for n in range(place))
    time = times[place][number]
    assert time is not None
    for n in range(place):
        other_time = times[n][numbers[n]]
        assert other_time is not None
        if not -join.window.extent(n) <= other_time - time <= join.window.extent(place):
            return False
    return True


def _joins(join: Join, rows: Mapping[str, Sequence[Row]], numbers: Sequence[int], place: int, number: int) -> bool:
    """Whether the predicates of a tuple of stream `place` and of those of the streams before it hold."""
    name = join.names[place]
    row = rows[name][number]
    chosen = {join.names[n]: rows[join.names[n]][numbers[n]] for n in range(place)}
    for n in range(place):
        source = join.streams[place].source
        same = source is not None and join.streams[n].source == source
        if same and not join.include_self_pairs and numbers[n] == number:
            return False
    chosen[name] = row
    for predicate in join.predicates:
        if isinstance(predicate, Band):
            streams = {predicate.left.stream, predicate.right.stream}
            stands = not streams <= chosen.keys() or _holds(predicate, chosen)
        else:
            streams = set(streams_of(predicate))
            stands = not streams <= chosen.keys() or oracle_value(join, predicate, chosen) is True
        if name in streams and not stands:
            return False
    return True


def _holds(predicate: Band, rows: Mapping[str, Row]) -> bool:
    left, right = (rows[column.stream][column.name] for column in (predicate.left, predicate.right))
    if left is None or right is None:
        return False
    if isinstance(left, (str, bytes, bool)):
        return bool(left == right)
    lo, hi = predicate.lo, predicate.hi
    if isinstance(left, float) or isinstance(right, float):
        difference = float(left) - float(right)
        return float(lo) <= difference <= float(hi)  # type: ignore[arg-type]
    if isinstance(left, date):
        apart = left - right
        low, high = (bound if isinstance(bound, timedelta) else timedelta(0) for bound in (lo, hi))
        return bool(low <= apart <= high)
    exact = Fraction(left) - Fraction(right)
    least, most = (Fraction(repr(end) if isinstance(end, float) else end) for end in (lo, hi))  # type: ignore[arg-type]
    return least <= exact <= most


_COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            return None
    return bool(_COMPARED[op](left, right))


def _computed(op: str, left: Any, right: Any) -> Any:
    if op == "/" or isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if op in "/%":
        if right == 0:
            return None
        if op == "/":
            return left / right
        if isinstance(left, float):
            return math.nan if math.isinf(left) or math.isnan(left + right) else math.fmod(left, right)
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return left + right if op == "+" else left - right if op == "-" else left * right


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1))
    if isinstance(value, date):  # and moments, which are dates to Python
        return Fraction(event_time_us(value) or 0)
    if isinstance(value, Decimal) and (value.adjusted() >= _MOST_DIGITS or value.as_tuple().exponent < -_MOST_DIGITS):  # type: ignore[operator]
        return float(value)  # no exact number has so many digits
    return Fraction(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value


def _times(join: Join, rows: Mapping[str, Sequence[Row]]) -> Times:
    return [[_time(join, name, row) for row in rows[name]] for name in join.names]


def _time(join: Join, name: str, row: Row) -> int | None:
    stream = join.streams[join.names.index(name)]
    return event_time_us(row[stream.time], stream.time_unit)


def _listed(rows: Rows) -> Sequence[Row]:
    if isinstance(rows, pa.Table):
        listed: list[dict[str, Any]] = rows.to_pylist()
        return listed
    return rows
