"""Binds a join to the schemas of its streams: which predicate finds, which decides, and which columns travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.bound.bound_columns import column_type_compared, result_columns, travelling_columns
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.calculations import bound_aggregates
from streamjoin_ds.spec.bound.finders import finders_of
from streamjoin_ds.spec.bound.terms import Term, band_condition, terms_of
from streamjoin_ds.spec.columns import lacks_zone, without_zone, zones_of
from streamjoin_ds.spec.condition import Condition, Key, key_number, window_conditions
from streamjoin_ds.spec.distance import distance_of
from streamjoin_ds.spec.exact import check_units, exact_bounds, is_decided
from streamjoin_ds.spec.expression.predicate import Band, Column, negated
from streamjoin_ds.spec.expression.tree import Expression
from streamjoin_ds.spec.join_parts import JoinParts
from streamjoin_ds.spec.member.stream import check_time_column
from streamjoin_ds.spec.member.unique_key import check_unique_columns
from streamjoin_ds.spec.output import Output, outputs_of

__all__ = ["bind"]


def bind(join: JoinParts, schemas: Mapping[str, pa.Schema]) -> BoundJoin:
    """Check a join against its schemas, and return it with bounds that are exact for the columns' types.

    Raises
    ------
    ColumnError
        A column is not there (the error has the nearest names), its type cannot be used, or a result name collides.
    PredicateError
        Types cannot be compared, or a bound has no meaning for them.
    """
    for stream in join.streams:
        _check_schema(stream.name, schemas.get(stream.name))
        check_time_column(schemas[stream.name], stream)
        check_unique_columns(stream, schemas[stream.name])
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
    read |= {(stream.name, column) for stream in join.streams for column in stream.unique_key}
    finders = finders_of(deciding, number_of, {member.name: member.time for member in join.members})
    return BoundJoin(
        join,
        travelling_columns(join, schemas, selected, compared),
        tuple(map(tuple, keys)),
        tuple(conditions),
        deciding,
        filters,
        travelling_columns(join, schemas, selected, read),
        result,
        bars,
        finders.besides(
            {frozenset((Column(names[n], name), Column(names[m], other))) for n, name, m, other, *_ in found}
        ),
        distance,
        outputs,
        aggregates,
    )


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
