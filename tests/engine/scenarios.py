"""Random joins and streams for hypothesis: every type that can be compared, with the values that find errors."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.spec import Column, CountWindow, Join, PeriodicWindow, Stream, TimeWindow, WindowKind, not_equal
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.expression.parser import parse_predicates
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.testing.arrivals import random_batches
from streamjoin_ds.testing.oracle import oracle_join, source_order
from tests.engine.streams import engine_options

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

_EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
_US = timedelta(microseconds=1)
_YEARS = timedelta(days=365)
_MOMENTS_US = [
    *(_EPOCH + n * _US for n in (*range(-3, 4), *range(-3, 4))),
    *(datetime(year, 1, 1, tzinfo=timezone.utc) for year in (1, 1677, 2262)),
    datetime.max.replace(tzinfo=timezone.utc),
]
_MOMENTS_NS = [
    *(
        pd.Timestamp(_EPOCH) + pd.Timedelta(n, "ns")
        for n in (-1001, -1000, -999, -1, 0, 1, 1, 2, 999, 1000, 1001, 2000)
    ),
    pd.Timestamp.min.tz_localize("UTC"),
    pd.Timestamp.max.tz_localize("UTC"),
]


@dataclass(frozen=True)
class Domain:
    """Types that can be compared with each other, values to choose from, and bounds between them."""

    values: dict[pa.DataType, list[Any]]
    bounds: tuple[tuple[Any, Any], ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.values)


_NUMBERS = list(range(-4, 5))
_HALVES = [n / 2 for n in range(-8, 9)]
_FLOATS = [*_HALVES, *(n / 10 for n in range(-8, 9)), -0.0, math.inf, -math.inf, math.nan, 1e300, 5e-324, 0.1 + 0.2]
_INT64 = [*_NUMBERS, *_NUMBERS, INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]
_CENTS = [Decimal(n).scaleb(-2) for n in (*_NUMBERS, 10**16 - 1, 1 - 10**16)]
_LISTS = [[], [None], [0.0], [-0.0], [math.nan], [1.5], [1.5, None], [None, 1.5], [1.5, 1.5]]
_STRUCT = pa.struct(
    [("a", pa.int8()), ("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.timestamp("us", tz="UTC"))])))]
)
_STRUCTS = [
    {"a": a, "b": b}
    for a in (None, 1)
    for b in (None, [], [None], [{"c": None, "d": None}], [{"c": "", "d": _EPOCH}], [{"c": "x", "d": _EPOCH}] * 2)
]

_TABLELESS = pa.struct([("a", pa.uint64()), ("b", pa.list_(pa.duration("ns")))])
_TABLELESS_STRUCTS = [
    {"a": a, "b": b}
    for a in (None, 0, 2**64 - 1)
    for b in (None, [], [None], [pd.Timedelta(1, "ns")], [pd.Timedelta(1, "ns"), pd.Timedelta(1, "us")])
]

DOMAINS = {
    "float": Domain(
        {
            pa.float64(): _FLOATS,
            pa.float32(): [*_HALVES, -0.0, math.inf, math.nan, 0.125, float(2**24)],
            pa.int32(): _NUMBERS,
            pa.int64(): _INT64,
        },
        ((0, 0), (-0.5, 0.5), (-0.1, 0.1), (-1, 0.25), (0.5, 2), (-0.0, 1e300)),
    ),
    "int": Domain(
        {pa.int64(): _INT64, pa.int32(): _NUMBERS, pa.int16(): _NUMBERS, pa.int8(): [*_NUMBERS, -128, 127]},
        ((0, 0), (-1, 1), (-2, 3), (1, 2), (-INT64_MAX, 0), (0, INT64_MAX), (-INT64_MAX, INT64_MAX), (-0.5, 2.5)),
    ),
    "timestamp": Domain(
        {pa.timestamp("us", tz="UTC"): _MOMENTS_US, pa.timestamp("ns", tz="UTC"): _MOMENTS_NS},
        ((0, 0), (0, 0), (-_US, _US), (timedelta(0), 2 * _US), (-250 * _YEARS, timedelta(0)), (-_US, 300 * _YEARS)),
    ),
    "date": Domain(
        {pa.date32(): [date(2024, 2, 28) + timedelta(days=n) for n in range(-3, 4)]},
        ((0, 0), (timedelta(days=-1), timedelta(days=2))),
    ),
    "decimal": Domain({pa.decimal128(18, 2): _CENTS}, ((0, 0), (Decimal("-0.01"), Decimal("0.02")))),
    "unsigned": Domain(
        {
            pa.uint64(): [0, 1, 2, 3, 3, 4, 2**63, 2**64 - 1, 2**64 - 2],
            pa.int64(): _INT64,
            pa.float64(): [*_FLOATS, 2.0**63],
        },
        ((0, 0), (-1, 1), (0, 2**62)),
    ),
    "duration": Domain(
        {
            pa.duration("us"): [n * _US for n in (*range(-3, 4), 10**15)],
            pa.duration("s"): [0 * _US, 10**6 * _US],
            pa.duration("ns"): [pd.Timedelta(n, "ns") for n in (-2000, -1001, -1000, -1, 0, 0, 1, 999, 1000, 2000)],
        },
        ((0, 0), (-_US, _US), (0 * _US, 300 * _YEARS)),
    ),
    "time of day": Domain(
        {
            pa.time64("us"): [time(0), time(0, 0, 1), time(0, 0, 1, 1), time(23, 59, 59, 999_999)],
            pa.time32("s"): [time(0), time(0, 0, 1), time(12)],
            pa.time64("ns"): [time(0), time(0, 0, 1), time(0, 0, 1, 1), time(23, 59, 59, 999_999)],
        },
        ((0, 0), (-_US, _US), (timedelta(seconds=-1), timedelta(hours=12))),
    ),
    "mixed": Domain(
        {
            pa.decimal128(9, 2): [*_CENTS[:-2], Decimal("20.15"), Decimal("21.15")],
            pa.decimal128(18, 5): [*_CENTS[:-2], Decimal("0.00001"), Decimal(10**12)],
            pa.decimal128(38, 3): [*(value * 10 for value in _CENTS[:-2]), Decimal(10**30), Decimal(-(10**33))],
            pa.int64(): _INT64,
            pa.float64(): [*_FLOATS, 0.02, 20.15, 21.15, 1e30],
        },
        ((0, 0), (-0.5, 0.5), (-0.02, 0.02), (-1, 1), (Decimal("-0.01"), 3)),
    ),
    "bool": Domain({pa.bool_(): [False, True]}, ((0, 0),)),
    "string": Domain({pa.string(): ["", "a", "b", "\u00e4", "a" * 40]}, ((0, 0),)),
    "binary": Domain({pa.binary(): [b"", b"\0", b"\0\0", b"x"]}, ((0, 0),)),
    "list": Domain({pa.list_(pa.float64()): _LISTS, pa.large_list(pa.float64()): _LISTS}, ((0, 0),)),
    "struct": Domain({_STRUCT: _STRUCTS}, ((0, 0),)),
    "tableless struct": Domain({_TABLELESS: _TABLELESS_STRUCTS}, ((0, 0),)),
}
# Those of columns that a Delta table can hold.
_NO_TABLE_HAS = {"unsigned", "duration", "time of day", "tableless struct"}
TABLE_DOMAINS = tuple(name for name in DOMAINS if name not in _NO_TABLE_HAS)


# Conditions that find by intervals, and those that look like such.
_INTERVALS = (
    "{lp} BETWEEN {rp} AND {rq}",
    "{lp} <= {rq} AND {rp} <= {lq}",
    "{lp} < {rp}",
    "{lp} = {rp} + ({rq} - {rq})",
    "{lp} IS NOT DISTINCT FROM {rp}",
)
_EQUALITIES = (
    *("{lp} IS NOT DISTINCT FROM {rp}", "{lp} IS NOT DISTINCT FROM {rp} AND {lq} IS DISTINCT FROM {rq}"),
    "{lp} = {rp} OR {lq} <> {rq}",
)
FINDING = {
    "float": (
        *_INTERVALS,
        *("abs({lp} - {rp}) <= {rq}", "abs({lp} - {rp}) <= 0.05 * {rp}", "abs({lp} - {rp}) / 2 < {rq} + {lq}"),
        "({lp} - {rp}) * ({lp} - {rp}) + ({lq} - {rq}) * ({lq} - {rq}) <= 2.5",
        "({lp} - {rp}) * ({lp} - {rp}) + ({lq} - 1.5) * ({lq} - 1.5) <= {rq} * {rq}",
        "sqrt(({lp} - {rp}) * ({lp} - {rp}) + 2 * (({lq} - {rq}) * ({lq} - {rq}))) <= {rq}",
        "{lp} - {lq} <= {rp} - 0.1 AND 3 * {rq} - {lp} < {rp}",
    ),
    "int": (
        *_INTERVALS,
        *("abs({lp} - {rp}) <= {rq}", "20 * abs({lp} - {rp}) <= {rp}", "({lp} - {rp}) * ({lp} - {rp}) <= 5"),
        "{lp} - {rp} BETWEEN {rq} AND {lq}",
    ),
    "timestamp": (
        *_INTERVALS[:3],
        *("{lp} - {rp} < INTERVAL 2 MICROSECONDS AND {lp} >= {rp}", "abs({lp} - {rp}) <= {lq} - {rq}"),
        "{l}.t >= {r}.t - INTERVAL 3 MICROSECONDS AND {lp} <= {rp} + INTERVAL 1 MICROSECONDS",
        "{l}.t < {r}.t AND {r}.t - INTERVAL 9 MICROSECONDS <= {l}.t",
    ),
    "date": (*_INTERVALS[:3], "{lp} IS NOT DISTINCT FROM {rp}"),
    "string": _EQUALITIES[:2],
    "bool": ("{lp} IS NOT DISTINCT FROM {rp}",),
    "list": _EQUALITIES,
    "struct": _EQUALITIES,
    "tableless struct": _EQUALITIES,
    "unsigned": (*_INTERVALS, "abs({lp} - {rp}) <= {rq}", "{lp} - 1 <= {rp}"),
    "duration": (*_INTERVALS[:3], "abs({lp} - {rp}) <= {lq}", "{lp} + {lq} < {rp}", "{lp} IS NOT DISTINCT FROM {rp}"),
    "time of day": (*_INTERVALS[:3], "{lp} IS NOT DISTINCT FROM {rp}", "abs({lp} - {rp}) <= {lp} - {lq}"),
    "mixed": (*_INTERVALS, "abs({lp} - {rp}) <= {rq}", "2 * {lp} - {rp} <= 0.5 AND {rp} - 2 * {lp} < {lq}"),
    "decimal": (*_INTERVALS, "abs({lp} - {rp}) <= {rq}", "abs({lp} - {rp}) <= 0.05 * {rp}"),
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
    rows: int = 24,
    domains: tuple[str, ...] = tuple(DOMAINS),
    delays: tuple[int, ...] = (0, 10, 40, 40),
    extreme_times: bool = True,
    kinds: tuple[str, ...] = ("time", "count", "periodic"),
    note: bool = True,
    finds: bool = True,
) -> Scenario:
    """Draw a join of 2 to 4 streams with up to three predicates between random pairs of them.

    `note` adds a column of text to each stream. `finds` adds a condition whose bounds are columns, in two of three.
    """
    # The tables come from a seed: hypothesis by itself draws mostly empty and equal ones.
    chooser = random.Random(draw(st.integers(0, 2**32)))
    count = draw(st.integers(*streams))
    most = {2: rows, 3: rows * 2 // 3, 4: rows // 2}[count]
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
        comparable = shared[0][2] == kind or domain in (
            "float",
            "int",
            "timestamp",
            "mixed",
            "unsigned",
            "duration",
            "time of day",
            "list",
        )
        if comparable and draw(st.integers(0, 2)) == 2:
            predicates.append(not_equal(*columns))
            continue
        lo, hi = draw(st.sampled_from(DOMAINS[domain].bounds))
        if {shared[0][2], kind} <= {pa.int32(), pa.int64()} and domain == "float":
            lo, hi = (
                math.ceil(lo),
                math.floor(min(hi, 5.0)) if math.floor(min(hi, 5.0)) >= math.ceil(lo) else math.ceil(lo),
            )
        predicates.append(Band(*columns, lo, hi, is_equality=not lo and not hi and number % 2 == 0))
    if finds and draw(st.integers(0, 2)):
        left, right = draw(st.permutations(range(count)))[:2]
        domain = draw(st.sampled_from([name for name in domains if name in FINDING] or ["float"]))
        for side in (left, right):
            fields[side] += [(f"{name}{side}", domain, draw(st.sampled_from(DOMAINS[domain].types))) for name in "pq"]
        places = {"l": names[left], "r": names[right], "lp": f"{names[left]}.p{left}", "lq": f"{names[left]}.q{left}"}
        places |= {"rp": f"{names[right]}.p{right}", "rq": f"{names[right]}.q{right}"}
        predicates += parse_predicates(draw(st.sampled_from(FINDING[domain])).format(**places))
    window = window_of(chooser, draw(st.sampled_from(kinds)), count)
    tables, listed = {}, []
    for name, stream_fields in zip(names, fields, strict=True):
        schema = pa.schema(
            [
                ("t", pa.int64()),
                *((column, kind) for column, _, kind in stream_fields),
                *([("note", pa.string())] if note else []),
            ]
        )
        listed.append(Stream(name, time="t", delay=f"{chooser.choice(delays)}us", schema=schema))
        tables[name] = _table(
            chooser, schema, {column: domain for column, domain, _ in stream_fields}, most, extreme_times
        )
    return Scenario(Join(listed, predicates, window), tables)


def window_of(chooser: random.Random, kind: str, streams: int) -> WindowKind:
    if kind == "count":
        return CountWindow(tuple(chooser.choice((0, 1, 2, 3, 5, 8, 1 << 40)) for _ in range(streams)))
    if kind == "periodic":
        every_us = chooser.choice((1, 3, 7, 10, 20))
        # A tuple is in a few windows at most: a result is found in each of them.
        windows_us = tuple(chooser.choice((1, 2, 5, every_us, 2 * every_us, 3 * every_us + 1)) for _ in range(streams))
        lags = tuple(chooser.choice((0, 0, 0, 1, -1, 2)) for _ in range(streams - 1))
        return PeriodicWindow(every_us, windows_us, (0, *lags))
    return TimeWindow(tuple(chooser.choice((0, 5, 30, 30, 10**15)) for _ in range(streams)))


def _table(
    chooser: random.Random, schema: pa.Schema, domains: dict[str, str], most: int, extreme_times: bool
) -> pa.Table:
    count = chooser.choice([most // 4, most // 2, most, most, most])
    times = list(range(41))
    if extreme_times and chooser.random() < 0.1:
        beyond = (INT64_MIN, MIN_TS_US - 1, MAX_TS_US + 1, INT64_MAX)  # rejected
        times = [*times[:4], MIN_TS_US, MIN_TS_US + 2, MAX_TS_US, MAX_TS_US - 2, chooser.choice(beyond)]
    columns = [pa.array(chooser.choices(times, k=count), pa.int64())]
    if chooser.random() < 0.5:
        columns = [columns[0].sort()]
    for field in list(schema)[1:]:
        values = ["", "n", "note", None] if field.name == "note" else DOMAINS[domains[field.name]].values[field.type]
        if chooser.random() < 0.3:
            values = [*values, None]
        columns.append(pa.array(chooser.choices(values, k=count), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def cuts_of(scenario: Scenario, seed: int, most: int = 8) -> dict[str, list[pa.Table]]:
    """Return the pieces of each stream, one a push; for a count window a push is a stretch of the source's order."""
    if not isinstance(scenario.join.window, CountWindow):
        tables = enumerate(scenario.tables.items())
        return {name: list(random_batches(table, seed + n, most)) for n, (name, table) in tables}
    cuts: dict[str, list[pa.Table]] = {name: [] for name in scenario.tables}
    done = dict.fromkeys(cuts, 0)
    for stretch in random_batches(source_order(scenario.join, scenario.tables), seed, most):
        for name, pieces in cuts.items():
            count = sum(stream == name for stream, _ in stretch)
            pieces.append(scenario.tables[name].slice(done[name], count))
            done[name] += count
    return cuts


def run_engine(scenario: Scenario, cuts: dict[str, list[pa.Table]], **options: Any) -> tuple[pa.Table, JoinEngine]:
    """Return all results of an engine that gets each stream in these pieces, and the engine."""
    engine = JoinEngine(scenario.join, **engine_options(**options))
    pushes = max(len(pieces) for pieces in cuts.values())
    results = [
        engine.push({name: pieces[n] for name, pieces in cuts.items() if n < len(pieces)}) for n in range(pushes)
    ]
    return pa.concat_tables(results), engine


def numbers_of(join: Join, result: pa.Table) -> list[tuple[int, ...]]:
    """Return the results as their tuples' numbers, sorted."""
    return sorted(zip(*(result[f"{name}_seq"].to_pylist() for name in join.names), strict=True))


def plain(result: pa.Table) -> str:
    """Return a result as text: NaN equals itself, -0.0 is not 0.0, and times that no calendar has are numbers."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in result.columns]
    return repr([column.to_pylist() for column in columns])


def assert_values(scenario: Scenario, result: pa.Table) -> None:
    """Assert that each result has the values of its tuples, its window id and its event time."""
    for name in scenario.join.names:
        rows = scenario.tables[name].take(result[f"{name}_seq"])
        for column in rows.schema.names:
            found, given = result[f"{name}_{column}"], rows[column].to_pylist()
            if column == "t":
                found = found.cast(pa.int64())
            if pa.types.is_timestamp(rows[column].type) and rows[column].type.unit == "ns":
                found = found.cast(pa.int64())
                given = [None if ns is None else ns // 1000 for ns in rows[column].cast(pa.int64()).to_pylist()]
            # repr: NaN equals itself and -0.0 is not 0.0
            assert repr(found.to_pylist()) == repr(given), (name, column)
    if result.num_rows:
        if "window_id" in result.schema.names:
            columns = [*(f"{name}_seq" for name in scenario.join.names), "window_id"]
            expected = [tuple(row[c] for c in columns) for row in oracle_join(scenario.join, scenario.tables)]
            assert sorted(zip(*(result[c].to_pylist() for c in columns), strict=True)) == expected
        times = [result[f"{name}_t"].cast(pa.int64()).to_pylist() for name in scenario.join.names]
        assert result["event_time"].cast(pa.int64()).to_pylist() == [max(row) for row in zip(*times, strict=True)]


def pushed(
    join: Join, scenario: Scenario, seed: int, chooser: random.Random, **options: Any
) -> tuple[JoinEngine, list[pa.Table], dict[str, pa.Table]]:
    """Push a scenario's tuples in pieces of any size into an engine, which is saved and restored between some of them.

    Return the engine, the results of each push, and the tuples that it was given of each stream.
    """
    engine, found = JoinEngine(join, **engine_options(**options)), []
    cuts = cuts_of(scenario, seed)
    done = dict.fromkeys(join.names, 0)
    for push in range(max(len(pieces) for pieces in cuts.values())):
        given_now = {name: pieces[push] for name, pieces in cuts.items() if push < len(pieces)}
        for name, table in given_now.items():
            done[name] += table.num_rows
        found.append(engine.push(given_now))
        if chooser.random() < 0.3:
            blob, engine = engine.save(), JoinEngine(join, **engine_options(**options))
            engine.restore(blob)
    return engine, found, {name: table.slice(0, done[name]) for name, table in scenario.tables.items()}
