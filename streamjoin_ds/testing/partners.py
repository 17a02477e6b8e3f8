"""The contract of rows about a tuple's partners, in plain Python: no partner, the nearest ones, aggregates over all.

An aggregate (`reduce`) is a function of the set of a tuple's partners.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Aggregate, Call, Expression
from streamjoin_ds.spec.join import Join
from streamjoin_ds.testing.values import event_time_us, oracle_value, plain_value

__all__ = ["Times", "nearest_rows", "oracle_aggregates", "rows_of_each", "rows_of_kind"]

Times: TypeAlias = "Sequence[Sequence[int | None]]"  # microseconds of every stream's records
Row = Mapping[str, Any]


def rows_of_kind(
    join: Join,
    times: Times,
    usable: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, ...]],
    until_us: int | None,
) -> list[tuple[Any, ...]]:
    """Return the results of a join of another kind than inner, or of one that sums up partners, from its pairs."""
    lonely: list[list[int]] = []
    for stream, numbers in enumerate(usable):
        found = {pair[stream] for pair in pairs}
        wanted = [number for number in numbers if (number in found) == (join.how in ("semi", "inner"))]
        wanted = [*numbers] if join.reduce and join.how == "left" else wanted
        lonely.append([n for n in wanted if _is_decided(join, stream, times[stream][n], until_us)])
    if join.how in ("semi", "anti") or join.reduce:
        return sorted((number,) for number in lonely[0])
    rows: list[tuple[Any, ...]] = list(pairs)
    if join.how in ("left", "full"):
        rows += [(number, None) for number in lonely[0]]
    if join.how in ("right", "full"):
        rows += [(None, number) for number in lonely[1]]
    return sorted(rows, key=lambda numbers: [(number is None, number or 0) for number in numbers])


def rows_of_each(
    join: Join,
    times: Times,
    usable: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, ...]],
    until_us: int | None,
) -> list[tuple[Any, ...]]:
    """Return the decided tuples of the first stream with a partner in each other stream, or in none of them."""
    others = range(1, len(join.names))
    met = {number: {other for own, other, _ in pairs if own == number} for number in usable[0]}
    wanted = set(others) if join.how == "semi" else set()
    chosen = [number for number in usable[0] if met[number] == wanted]
    return [(n,) for n in sorted(chosen) if _is_decided(join, 0, times[0][n], until_us)]


def nearest_rows(
    join: Join,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    times: Times,
    usable: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, ...]],
    until_us: int | None,
    seqs: Sequence[int] | None = None,
) -> list[tuple[Any, ...]]:
    """Return each decided tuple of the first stream with its nearest partners, the nearest first.

    `seqs` are the numbers of the second stream's records, where they are not their places.
    """
    assert join.nearest is not None, "the join asks for the nearest"
    (first, second), (left, right) = join.streams, join.names
    by = join.nearest.by or Call("abs", (Call("-", (Column(left, first.time), Column(right, second.time))),))
    found: list[tuple[Any, ...]] = []
    for number in usable[0]:
        time = times[0][number]
        if not _is_decided(join, 0, time, until_us):
            continue
        ranked = []
        for own, other in pairs:
            other_time = times[1][other]
            assert time is not None, "a usable tuple has an event time"
            assert other_time is not None, "a usable tuple has an event time"
            is_wrong = {"backward": other_time > time, "forward": other_time < time}
            if own != number or is_wrong.get(join.nearest.direction, False):
                continue
            distance = oracle_value(join, by, {left: rows[left][own], right: rows[right][other]})
            if distance is not None and not (isinstance(distance, float) and math.isnan(distance)):
                ranked.append((distance, other_time, other if seqs is None else seqs[other], other))
        nearest = [other for *_, other in sorted(ranked)[: join.nearest.k]]
        found += [(number, other) for other in nearest]
        if not nearest and join.how == "left":
            found.append((number, None))
    return found


def _is_decided(join: Join, stream: int, time: int | None, until_us: int | None) -> bool:
    """Whether the watermark has passed a tuple's horizon: nothing that it could meet can come any more."""
    assert time is not None
    return until_us is None or time + join.window.extent(stream) < until_us


def oracle_aggregates(join: Join, row: Row, partners: Sequence[tuple[int, int, Row]]) -> dict[str, Any]:
    """Return the aggregates of a tuple of the first stream.

    Parameters
    ----------
    join : Join
    row : mapping
        The tuple.
    partners : sequence of (int, int, mapping)
        The event time in microseconds, the number, and the row of each partner, in any order.

    Returns
    -------
    dict
        Whole numbers, decimals and times are fractions; times and durations are in microseconds. Sums of floats are
        exact, then rounded once.
    """
    ordered = sorted(partners, key=lambda partner: partner[:2])
    own, other = join.member_names
    pairs = [{own: row, other: partner} for _, _, partner in ordered]
    return {one.name: _aggregate(join, one, pairs) for one in join.reduce}


def _aggregate(join: Join, one: Aggregate, pairs: Sequence[Mapping[str, Row]]) -> Any:
    if not one.args:
        return len(pairs)
    values = [_value(join, one.args[0], pair) for pair in pairs]
    if one.function in ("first", "last"):
        return values[0 if one.function == "first" else -1] if values else None
    if one.function in ("arg_min", "arg_max"):
        keys = [_value(join, one.args[1], pair) for pair in pairs]
        known = [place for place, key in enumerate(keys) if key is not None]
        best = (min if one.function == "arg_min" else max)((_order(keys[place]) for place in known), default=None)
        return next((values[place] for place in known if _order(keys[place]) == best), None)
    found = [value for value in values if value is not None]
    if one.function == "collect":
        assert one.constant is not None
        return found[: int(one.constant)]
    if one.function == "count":
        return len(found)
    if not found:
        return None
    column = one.args[0]
    if one.function == "avg" and isinstance(column, Column) and _has_decimals(column, pairs):
        return _decimal_average(join, column, found)
    return _OF_VALUES[one.function](found) if one.constant is None else _quantile(found, float(one.constant))


def _has_decimals(column: Column, pairs: Sequence[Mapping[str, Row]]) -> bool:
    return any(isinstance(pair[column.stream][column.name], Decimal) for pair in pairs)


def _value(join: Join, expression: Expression, pair: Mapping[str, Row]) -> Any:
    if not isinstance(expression, Column):
        return oracle_value(join, expression, pair)
    stream, given = join.members[join.member_names.index(expression.stream)], pair[expression.stream][expression.name]
    if expression.name == stream.time:
        time_us = event_time_us(given, stream.time_unit)
        return None if time_us is None else Fraction(time_us)
    value = plain_value(given)
    return Fraction(math.floor(value)) if hasattr(given, "nanosecond") and value is not None else value


def _order(value: Any) -> Any:
    """Return what a value is ordered by: NaN is the largest number, and -0.0 is below 0.0."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value) if value == 0 else 0)
    return value


def _sum(values: Sequence[Any]) -> Any:
    if not isinstance(values[0], float):
        return sum(values)
    beyond = [value for value in values if not math.isfinite(value)]
    if beyond:
        return sum(beyond)
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _average(values: Sequence[Any]) -> float:
    total = _sum(values)
    return total / len(values) if isinstance(total, float) else float(Fraction(total, len(values)))


def _deviation(values: Sequence[Any]) -> float | None:
    if len(values) < 2:
        return None
    floats = [float(value) for value in values]
    mean = _sum(floats) / len(floats)
    return math.sqrt(_sum([_square(value - mean) for value in floats]) / (len(floats) - 1))


def _square(value: float) -> float:
    return value * value


def _quantile(values: Sequence[Any], share: float) -> float:
    floats = sorted((float(value) for value in values), key=_order)
    place = share * (len(floats) - 1)
    low, high = floats[math.floor(place)], floats[math.ceil(place)]
    if low == high or math.floor(place) == math.ceil(place):
        return low
    return (math.ceil(place) - place) * low + (place - math.floor(place)) * high


def _decimal_average(join: Join, column: Column, values: Sequence[Fraction]) -> Fraction:
    """Return the mean of decimals with four more places than their type has, rounded half up."""
    schema: Any = join.members[join.member_names.index(column.stream)].schema
    places = min(schema.field(column.name).type.scale + 4, 38)
    exact = Fraction(sum(values), len(values)) * 10**places
    whole = math.floor(abs(exact) + Fraction(1, 2))
    return Fraction(-whole if exact < 0 else whole, 10**places)


_OF_VALUES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sum": _sum,
    "avg": _average,
    "stddev": _deviation,
    "min": lambda values: min(values, key=_order),
    "max": lambda values: max(values, key=_order),
}
