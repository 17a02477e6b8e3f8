"""The binding of a join to its streams' schemas: which predicate finds, which decides, and which columns travel.

Each band gets bounds that are exact for the types of the columns that it compares (`exact_bounds`). A band for which no
key is exact is decided as a condition (`is_decided`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from streamjoin_ds.duration import MICROSECOND
from streamjoin_ds.errors import ColumnError, PredicateError
from streamjoin_ds.spec.bound.bound_columns import column_type_compared, result_columns, travelling_columns
from streamjoin_ds.spec.bound.bound_join import BoundJoin, Condition, Key, key_number, window_conditions
from streamjoin_ds.spec.bound.calculations import Output, bound_aggregates, distance_of, outputs_of
from streamjoin_ds.spec.bound.finders import finders_of
from streamjoin_ds.spec.bound.terms import Term, band_condition, terms_of
from streamjoin_ds.spec.columns import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    lacks_zone,
    marked_needed,
    without_zone,
    zones_of,
)
from streamjoin_ds.spec.expression.predicate import Band, Bound, Column, negated
from streamjoin_ds.spec.expression.tree import Expression
from streamjoin_ds.spec.join_parts import JoinParts, named_columns
from streamjoin_ds.spec.member.computed_columns import all_columns, with_written
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.member.time_column import check_device_columns, check_time_column, check_zone_column
from streamjoin_ds.spec.member.unique_key import check_unique_columns
from streamjoin_ds.spec.nested_path import inner_type, is_inner, with_paths
from streamjoin_ds.spec.nested_values import is_nested, shape_text, type_text

__all__ = ["bind", "exact_bounds", "is_decided"]


_Member = TypeVar("_Member", Stream, Table)
_DAY = timedelta(days=1)
# Most digits of a decimal that is compared: with 18 a value always fits a 64-bit integer, and so does a difference.
_MOST_DIGITS = 18


def is_decided(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether a band between columns of these types is decided as a condition, because no key holds it exactly.

    So it is between a decimal and a number of another kind, between decimals of two scales or of more than 18 digits,
    and where one of the columns is of 64 bits without a sign, a duration, or a time of day.
    """
    both = (left, right)
    types = pa.types
    if all(map(types.is_duration, both)) or all(map(types.is_time, both)):
        return True
    if any(map(types.is_uint64, both)):
        return all(map(_is_number, both))
    decimals = [kind for kind in both if pa.types.is_decimal(kind)]
    if not decimals or not all(_is_number(kind) for kind in both):
        return False
    return len(decimals) < 2 or left.scale != right.scale or max(kind.precision for kind in both) > _MOST_DIGITS


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def exact_bounds(left: pa.DataType, right: pa.DataType, predicate: Band) -> tuple[str, int | float, int | float]:
    """Return the kind of the keys ("float", "int", "ns", "near" or "hash") and the bounds in the keys' unit.

    The kind "ns" is integers: the columns' nanoseconds. The kind "near" is for nanoseconds beside microseconds, and for
    bounds of more nanoseconds than an int64 holds. Its keys are microseconds, cut off towards the past. Its bounds
    hold wherever the predicate holds, and for some pairs more.

    Parameters
    ----------
    left, right : pyarrow.DataType
        Types of the predicate's columns, as they are compared (`compared_type`), which are not `is_decided`.
    predicate : Band
        The band whose bounds are made exact.

    Raises
    ------
    PredicateError
        The types cannot be compared, or the bounds have no meaning for them or hold for no value.
    """
    lo, hi = predicate.lo, predicate.hi
    types = pa.types
    both = (left, right)
    if any(map(types.is_floating, both)) and all(types.is_floating(t) or types.is_integer(t) for t in both):
        return ("float", *_floats(lo, hi, predicate))
    if all(map(types.is_integer, both)):
        return ("int", *_integers(_number(lo, predicate), _number(hi, predicate), predicate))
    if all(map(types.is_timestamp, both)) and NANOSECONDS in both:
        return _nanoseconds(both, _time(lo, MICROSECOND, predicate), _time(hi, MICROSECOND, predicate))
    if all(map(types.is_timestamp, both)):
        return ("int", *_integers(_time(lo, MICROSECOND, predicate), _time(hi, MICROSECOND, predicate), predicate))
    if all(map(types.is_date, both)):
        return ("int", *_integers(_time(lo, _DAY, predicate), _time(hi, _DAY, predicate), predicate))
    if all(map(types.is_decimal, both)):
        unit = 10**left.scale
        return ("int", *_integers(_number(lo, predicate) * unit, _number(hi, predicate) * unit, predicate))
    if predicate.has_no_width and all(map(types.is_boolean, both)):
        return "int", 0, 0
    if predicate.has_no_width and (all(map(types.is_string, both)) or all(map(types.is_binary, both))):
        return "hash", 0, 0
    if predicate.has_no_width and all(map(is_nested, both)) and shape_text(left) == shape_text(right):
        return "hash", 0, 0
    texts = (type_text(left), type_text(right))
    if all(map(is_nested, both)) and shape_text(left) != shape_text(right):
        hint = "both sides need the same types inside: cast one of them in the input"
        _refuse(predicate, f"compares {texts[0]} with {texts[1]}", hint)
    if left != right or predicate.has_no_width:
        _refuse(predicate, f"compares {texts[0]} with {texts[1]}", _cast_hint(predicate, left, right))
    hint = "bands are for numbers, dates and timestamps; strings, booleans, lists and structs can only be equal"
    _refuse(predicate, f"subtracts {texts[0]} values, which have no difference", hint)


def _cast_hint(predicate: Band, left: pa.DataType, right: pa.DataType) -> str:
    """Return how two columns of other types can be compared, where they can."""
    if is_nested(left) or is_nested(right):
        return "a list or struct is compared with one of the same types alone: make a field a column in the input"
    for column, kind in ((predicate.left, left), (predicate.right, right)):
        if pa.types.is_temporal(kind) and not all(map(pa.types.is_temporal, (left, right))):
            seconds = f", CAST({column} AS BIGINT) its seconds since 1970" * pa.types.is_timestamp(kind)
            return f"CAST({column} AS STRING) is its text{seconds}"
    return "CAST one of them, or give both one type in the input"


def check_units(predicate: Band) -> None:
    """Refuse a band on durations or times of day whose bounds have no unit.

    Raises
    ------
    PredicateError
    """
    for bound in (predicate.lo, predicate.hi):
        _time(bound, MICROSECOND, predicate)


def _nanoseconds(both: tuple[pa.DataType, pa.DataType], lo: Fraction, hi: Fraction) -> tuple[str, int, int]:
    """Return the kind and the bounds for two columns of which one at least holds nanoseconds.

    The given bounds are whole microseconds.
    """
    least, most = int(lo * 1000), int(hi * 1000)
    if both == (NANOSECONDS, NANOSECONDS) and INT64_MIN <= least <= most <= INT64_MAX:
        return "ns", least, most
    # Where `left <= right + hi` for a whole `hi`, the same holds for both sides cut off to whole microseconds.
    return "near", int(lo), int(hi)


def _refuse(predicate: Band, why: str, hint: str) -> NoReturn:
    msg = f"'{predicate}' {why}"
    raise PredicateError(msg, name=str(predicate.left), hint=hint)


def _floats(lo: Bound, hi: Bound, predicate: Band) -> tuple[float, float]:
    ends = []
    for bound in (lo, hi):
        if isinstance(bound, timedelta):
            _refuse(predicate, "compares numbers with a duration", "give the bound as a number")
        try:
            end = float(bound)
        except OverflowError:
            end = math.inf
        if math.isinf(end):
            _refuse(predicate, "has a bound that no float64 can hold", "give bounds below 1.8e308")
        ends.append(end + 0.0)  # makes -0.0 the same bound as 0.0
    return ends[0], ends[1]


def _integers(lo: Fraction, hi: Fraction, predicate: Band) -> tuple[int, int]:
    """Return the least and the largest integer inside the band; refuse a band without one, or beyond int64."""
    low, high = math.ceil(lo), math.floor(hi)
    if low > high:
        _refuse(
            predicate,
            "holds for no whole number",
            "the columns hold whole numbers of their unit: widen the band to include one",
        )
    if low < INT64_MIN or high > INT64_MAX:
        _refuse(
            predicate,
            "has bounds outside the 64-bit integers",
            "give bounds from -2^63 to 2^63 - 1, in the column's unit",
        )
    return low, high


def _number(bound: Bound, predicate: Band) -> Fraction:
    """Return exactly the number that was written: 0.3 is three tenths here, not the float64 next to it."""
    if isinstance(bound, timedelta):
        _refuse(predicate, "compares numbers with a duration", "give the bound as a number")
    return Fraction(Decimal(repr(bound)) if isinstance(bound, float) else bound)


def _time(bound: Bound, unit: timedelta, predicate: Band) -> Fraction:
    if isinstance(bound, timedelta):
        return Fraction(bound // MICROSECOND, unit // MICROSECOND)
    if bound:
        _refuse(
            predicate, "compares times with a bound that has no unit", "write INTERVAL 5 SECONDS, or band(l, r, '5s')"
        )
    return Fraction(0)


def bind(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> BoundJoin:
    """Check a join against its schemas, and return it with bounds that are exact for the columns' types.

    Of a stream with computed columns the schema has those that are written.

    Raises
    ------
    ColumnError
        A column is not there (the error has the nearest names), its type cannot be used, or a result name collides.
    PredicateError
        Types cannot be compared, or a bound has no meaning for them.
    """
    for stream in join.streams:
        _check_schema(stream.name, schemas.get(stream.name))
    join, schemas = _with_nested(join, schemas)
    if any(stream.columns is not None for stream in join.streams):
        join, schemas = _with_computed(join, schemas)
    for stream in join.streams:
        check_time_column(schemas[stream.name], stream)
        check_unique_columns(stream, schemas[stream.name])
        check_device_columns(stream, schemas[stream.name])
        check_zone_column(schemas[stream.name], stream)
    for table in join.tables:
        _check_schema(table.name, schemas.get(table.name))
    for member in join.members:
        _check_zones(member.name, member.schema, schemas[member.name])
    is_floating = pa.types.is_floating
    number_of = {name: number for number, name in enumerate(join.member_names)}
    found: list[tuple[Any, ...]] = []  # stream, column, stream, column, kind, lo, hi, is_equality, text
    wheres: list[Expression] = [member.where for member in join.members if member.where is not None]  # type: ignore[misc]
    asked: list[Expression] = []
    for predicate in join.predicates:
        if not isinstance(predicate, Band):
            asked.append(predicate)
            continue
        left, right = sorted((predicate.left, predicate.right), key=lambda column: number_of[column.stream])
        numbers = (number_of[left.stream], number_of[right.stream])
        types = (column_type_compared(join, schemas, left), column_type_compared(join, schemas, right))
        if left != predicate.left:
            predicate = Band(left, right, negated(predicate.hi), negated(predicate.lo), predicate.is_equality)
        if is_decided(*types):
            is_of_times = pa.types.is_duration(types[0]) or pa.types.is_time(types[0])
            if is_of_times:
                check_units(predicate)
            asked.append(band_condition(predicate, of_times=is_of_times))
            continue
        kind, lo, hi = exact_bounds(*types, predicate)
        if kind in ("hash", "near"):
            asked.append(band_condition(predicate, of_times=True))
        kind = "int" if kind == "near" else kind
        # Only two columns of floats have infinities that could be equal.
        is_equality = kind == "float" and lo == hi == 0 and (predicate.is_equality or not all(map(is_floating, types)))
        found.append((numbers[0], left.name, numbers[1], right.name, kind, lo, hi, is_equality, str(predicate)))
    keys: list[list[Key]] = [[Key(member.time, "int")] for member in join.members]
    conditions = window_conditions(join, keys)
    written = {entry[:-1]: entry[-1] for entry in sorted(found, reverse=True)}
    for entry in sorted(written):
        left_stream, left_name, right_stream, right_name, kind, lo, hi, is_equality = entry
        left_key = key_number(keys[left_stream], Key(left_name, kind))
        right_key = key_number(keys[right_stream], Key(right_name, kind))
        sides = (left_stream, right_stream, left_key, right_key)
        conditions.append(Condition(*sides, kind, lo, hi, written[entry], is_equality=is_equality))
    result = result_columns(join, schemas)
    terms = terms_of(join, schemas, [*wheres, *asked])
    deciding = tuple(term for term in terms if len(term.streams) > 1)
    of_streams = [[term for term in terms if term.streams == (n,)] for n in range(len(join.members))]
    barred = join.row_kind.lonely
    always = {term.facts for term in terms_of(join, schemas, wheres)} if barred else set()
    bars = tuple(
        tuple(term for term in own if n in barred and term.facts not in always) for n, own in enumerate(of_streams)
    )
    filters = tuple(tuple(term for term in own if term not in bars[n]) for n, own in enumerate(of_streams))
    outputs = outputs_of(join, schemas)
    aggregates = bound_aggregates(join, schemas)
    distance = distance_of(join, schemas)
    names = join.member_names
    selected = {(names[column.stream], column.column) for column in result}
    arguments = [argument for one in aggregates for argument in one.arguments]
    selected |= {(one.column.stream, one.column.name) for one in arguments if one.column is not None}
    compared = {(c.stream, c.name) for p in join.predicates if isinstance(p, Band) for c in (p.left, p.right)}
    kept: list[Term | Output] = [*deciding, *(term for own in bars for term in own), *outputs]
    compared |= {(column.stream, column.name) for column in (() if distance is None else distance.columns)}
    compared |= {(column.stream, column.name) for term in kept for column in term.columns}
    compared |= {(c.stream, c.name) for one in arguments if one.typed is not None for c in one.columns}
    read = compared | {(column.stream, column.name) for term in terms for column in term.columns}
    read |= {(each.name, column) for each in join.streams for column in (*each.unique_key, *each.device_columns)}
    read |= {(stream.name, stream.zone_column) for stream in join.streams if stream.zone_column is not None}
    needed = [{column for name, column in read if name == member.name} for member in join.members]
    finders = finders_of(deciding, number_of, {member.name: member.time for member in join.members})
    return BoundJoin(
        join,
        travelling_columns(join, schemas, selected, compared),
        tuple(map(tuple, keys)),
        tuple(conditions),
        deciding,
        filters,
        tuple(map(marked_needed, travelling_columns(join, schemas, selected, read), needed)),
        result,
        bars,
        finders.besides(
            {frozenset((Column(names[n], name), Column(names[m], other))) for n, name, m, other, *_ in found}
        ),
        distance,
        outputs,
        aggregates,
    )


def _with_nested(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> tuple[JoinParts, Mapping[str, pa.Schema]]:
    """Return the join whose streams and tables know which of their columns are paths, and the columns with these."""
    named = {(column.stream, column.name) for column in join.columns_named}
    named |= {(one.name, name) for one in join.streams for name in named_columns(one)}
    found = dict(schemas)

    def knowing(one: _Member) -> _Member:
        found[one.name] = with_paths(schemas[one.name], sorted(name for other, name in named if other == one.name))
        inner = {field.name for field in found[one.name] if is_inner(field)} | set(one.nested)
        inner |= {one.time} if inner_type(found[one.name], one.time) is not None else set()
        return replace(one, nested=tuple(sorted(inner))) if inner != set(one.nested) else one

    return _with_members(join, [*map(knowing, join.streams)], [*map(knowing, join.tables)]), found


def _with_members(join: JoinParts, streams: Sequence[Stream], tables: Sequence[Table] | None = None) -> JoinParts:
    """Return the join with other objects for its streams, and for its tables."""
    own = copy(join)
    object.__setattr__(own, "streams", tuple(streams))
    object.__setattr__(own, "tables", join.tables if tables is None else tuple(tables))
    for name in ("members", "row_kind"):  # made of the streams
        own.__dict__.pop(name, None)
    return own


def _with_computed(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> tuple[JoinParts, dict[str, pa.Schema]]:
    """Return the join with the types that its computed columns are made of, and the columns with the computed ones."""
    own = _with_members(join, [replace(one, columns=with_written(one, schemas[one.name])) for one in join.streams])
    return own, {**schemas, **{one.name: all_columns(one, schemas[one.name]) for one in join.streams}}


def _check_schema(stream: str, schema: pa.Schema | None) -> None:
    if schema is None:
        msg = f"no schema is given for {stream}"
        raise ColumnError(msg, name=stream, hint="give the columns and types of every stream and table")
    for name, count in Counter(schema.names).items():
        if count > 1:
            msg = f"{stream} has more than one column '{name}'"
            raise ColumnError(msg, name=f"{stream}.{name}", hint="rename one of them in the input")


def _check_zones(name: str, declared: object, there: pa.Schema) -> None:
    """Refuse columns whose times say no zone, where they are declared in another one than UTC."""
    for column, zone in zones_of(declared).items():
        if column in there.names and lacks_zone(there.field(column).type):
            raise without_zone(column, name, zone)
