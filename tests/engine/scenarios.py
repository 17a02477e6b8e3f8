"""Random joins and streams for hypothesis: every type that can be compared, with the values that bite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamjoin_ds.engine import JoinEngine
from streamjoin_ds.spec import Column, Join, NotEqual, Stream, TimeWindow
from streamjoin_ds.spec.predicate import Band

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

_EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
_US = timedelta(microseconds=1)


@dataclass(frozen=True)
class Domain:
    """Types that can be compared with each other, their values, and bounds between them."""

    types: tuple[pa.DataType, ...]
    values: dict[pa.DataType, st.SearchStrategy[Any]]
    bounds: tuple[tuple[Any, Any], ...]


def _same(types: tuple[pa.DataType, ...], values: st.SearchStrategy[Any], *bounds: tuple[Any, Any]) -> Domain:
    return Domain(types, dict.fromkeys(types, values), bounds)


_NUMBERS = st.integers(-4, 4)
_FLOATS = st.one_of(
    st.integers(-8, 8).map(lambda n: n / 2),
    st.integers(-8, 8).map(lambda n: n / 10),
    st.sampled_from([-0.0, 0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, 5e-324, 0.1 + 0.2]),
)
_FLOATS32 = st.one_of(
    st.integers(-8, 8).map(lambda n: n / 2), st.sampled_from([-0.0, math.inf, math.nan, 0.125, float(2**24)])
)
_INT64 = st.one_of(_NUMBERS, st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]))

DOMAINS = {
    "float": Domain(
        (pa.float64(), pa.float32(), pa.int32(), pa.int64()),
        {pa.float64(): _FLOATS, pa.float32(): _FLOATS32, pa.int32(): _NUMBERS, pa.int64(): _INT64},
        ((0, 0), (-0.5, 0.5), (-0.1, 0.1), (-1, 0.25), (0.5, 2), (-0.0, 1e300)),
    ),
    "int": Domain(
        (pa.int64(), pa.int32(), pa.int16(), pa.int8()),
        {pa.int64(): _INT64, pa.int32(): _NUMBERS, pa.int16(): _NUMBERS, pa.int8(): st.integers(-128, 127)},
        ((0, 0), (-1, 1), (-2, 3), (1, 2), (INT64_MIN + 1, 0), (0, INT64_MAX), (INT64_MIN + 1, INT64_MAX), (-0.5, 2.5)),
    ),
    "timestamp": _same(
        (pa.timestamp("us", tz="UTC"),),
        st.integers(-3, 3).map(lambda n: _EPOCH + n * _US),
        (0, 0),
        (-_US, _US),
        (timedelta(0), 2 * _US),
    ),
    "date": _same(
        (pa.date32(),),
        st.integers(-3, 3).map(lambda n: date(2024, 2, 28) + timedelta(days=n)),
        (0, 0),
        (timedelta(days=-1), timedelta(days=2)),
    ),
    "decimal": _same(
        (pa.decimal128(18, 2),),
        st.one_of(_NUMBERS, st.sampled_from([10**16 - 1, -(10**16) + 1])).map(lambda n: Decimal(n).scaleb(-2)),
        (0, 0),
        (Decimal("-0.01"), Decimal("0.02")),
    ),
    "bool": _same((pa.bool_(),), st.booleans(), (0, 0)),
    "string": _same((pa.string(),), st.sampled_from(["", "a", "b", "ä", "a" * 40]), (0, 0)),
    "binary": _same((pa.binary(),), st.sampled_from([b"", b"\0", b"\0\0", b"x"]), (0, 0)),
}


@dataclass(frozen=True)
class Scenario:
    """A join and its streams as tables, in the streams' order."""

    join: Join
    tables: dict[str, pa.Table]


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    streams: tuple[int, int] = (2, 4),
    rows: int = 14,
    domains: tuple[str, ...] = tuple(DOMAINS),
    delays: tuple[int, ...] = (0, 3, 40),
    extreme_times: bool = True,
) -> Scenario:
    """Joins of 2 to 4 streams with up to three predicates between random pairs of them."""
    count = draw(st.integers(*streams))
    most = {2: rows, 3: rows, 4: max(4, rows - 5)}[count]
    names = [f"s{n}" for n in range(count)]
    fields: list[list[tuple[str, str, pa.DataType]]] = [[] for _ in names]
    predicates = []
    for number in range(draw(st.integers(0, 3))):
        left, right = draw(st.permutations(range(count)))[:2]
        domain = draw(st.sampled_from(domains))
        shared = [entry for entry in fields[left] if entry[1] == domain]
        if not shared or draw(st.booleans()):
            shared = [(f"c{number}", domain, draw(st.sampled_from(DOMAINS[domain].types)))]
            fields[left] += shared
        kind = draw(st.sampled_from(DOMAINS[domain].types))
        fields[right].append((f"c{number}", domain, kind))
        columns = Column(names[left], shared[0][0]), Column(names[right], f"c{number}")
        comparable = shared[0][2] == kind or domain in ("float", "int")
        if comparable and draw(st.integers(0, 3)) == 0:
            predicates.append(NotEqual(*columns))
            continue
        lo, hi = draw(st.sampled_from(DOMAINS[domain].bounds))
        if {shared[0][2], kind} <= {pa.int32(), pa.int64()} and domain == "float":
            lo, hi = math.ceil(lo), math.floor(min(hi, 5.0)) if math.floor(min(hi, 5.0)) >= math.ceil(lo) else math.ceil(lo)
        predicates.append(Band(*columns, lo, hi))
    window = TimeWindow(tuple(draw(st.sampled_from((0, 1, 5, 30, 10**15))) for _ in names))
    tables, listed = {}, []
    for name, stream_fields in zip(names, fields, strict=True):
        schema = pa.schema(
            [("t", pa.int64()), *((column, kind) for column, _, kind in stream_fields), ("note", pa.string())]
        )
        listed.append(Stream(name, time="t", delay=f"{draw(st.sampled_from(delays))}us", schema=schema))
        tables[name] = _table(draw, schema, {column: domain for column, domain, _ in stream_fields}, most, extreme_times)
    return Scenario(Join(listed, predicates, window), tables)


def _table(draw: st.DrawFn, schema: pa.Schema, domains: dict[str, str], most: int, extreme_times: bool) -> pa.Table:
    count = draw(st.integers(0, most))
    times = st.integers(0, 40)
    if extreme_times and draw(st.integers(0, 9)) == 0:
        times = st.one_of(times, st.sampled_from([INT64_MIN, INT64_MIN + 2, INT64_MAX, INT64_MAX - 2]))
    columns = [pa.array(draw(st.lists(times, min_size=count, max_size=count)), pa.int64())]
    for field in list(schema)[1:]:
        if field.name == "note":
            values = st.one_of(st.none(), st.sampled_from(["", "n", "note"]))
        else:
            values = DOMAINS[domains[field.name]].values[field.type]
            if draw(st.booleans()):
                values = st.one_of(values, values, values, st.none())
        columns.append(pa.array(draw(st.lists(values, min_size=count, max_size=count)), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def run_engine(scenario: Scenario, cuts: dict[str, list[pa.Table]], **options: Any) -> tuple[pa.Table, JoinEngine]:
    """All results of an engine that gets each stream in these pieces, and the engine."""
    engine = JoinEngine(scenario.join, **options)
    pushes = max(len(pieces) for pieces in cuts.values())
    results = [
        engine.push({name: pieces[n] for name, pieces in cuts.items() if n < len(pieces)}) for n in range(pushes)
    ]
    return pa.concat_tables(results), engine


def numbers_of(join: Join, result: pa.Table) -> list[tuple[int, ...]]:
    """The results as the tuples' numbers, sorted."""
    return sorted(zip(*(result[f"{name}_seq"].to_pylist() for name in join.names), strict=True))


def assert_values(scenario: Scenario, result: pa.Table) -> None:
    """Every selected value is that of the tuple with the result's number."""
    for name in scenario.join.names:
        rows = scenario.tables[name].take(result[f"{name}_seq"])
        for column in rows.schema.names:
            found = result[f"{name}_{column}"]
            if column == "t":
                found = found.cast(pa.int64())
            # repr: NaN equals itself and -0.0 is not 0.0
            assert repr(found.to_pylist()) == repr(rows[column].to_pylist()), (name, column)
    if result.num_rows:
        times = [result[f"{name}_t"].cast(pa.int64()).to_pylist() for name in scenario.join.names]
        assert result["event_time"].cast(pa.int64()).to_pylist() == [max(row) for row in zip(*times, strict=True)]
