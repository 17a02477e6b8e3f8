"""Sums over a tuple's partners (`reduce`): against the contract in plain Python, and what they must not depend on."""

from __future__ import annotations

import dataclasses
import math
import random
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.tuning import DEFAULT, Tuning, WaitingTuning
from streamjoin_ds.errors import (
    AggregateOverflowError,
    ArgumentError,
    ColumnError,
    PredicateSyntaxError,
    WindowError,
)
from streamjoin_ds.spec import Join, Nearest, Stream, bind
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.testing.oracle import oracle_join
from streamjoin_ds.testing.values import plain_value
from tests.engine.scenarios import Scenario, pushed, scenarios
from tests.engine.streams import engine_options
from tests.engine.test_oracle import SMALL
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
FEW = dataclasses.replace(SMALL, waiting=WaitingTuning(ratio=2, most_merged_rows=9, summed_rows=5, held_rows=3))
SCHEMA = {"ts": "int64", "x": "float64", "y": "int64", "s": "string"}


def aggregates_of(scenario: Scenario, chooser: random.Random) -> dict[str, str]:
    """Return aggregates over columns of both streams, each function that a column's type allows."""
    found = {"n": "count(*)", "dt": "avg(s1.t - s0.t)", "lag": "max(abs(s0.t - s1.t))"}
    columns = [(name, field) for name, table in scenario.tables.items() for field in table.schema]
    ordered = [(name, field) for name, field in columns if not pa.types.is_nested(field.type)]
    for number in range(6):
        name, field = chooser.choice(columns)
        column, types = f"{name}.{field.name}", pa.types
        functions = ["count({})", "first({})", "last({})", "collect({}, 3)", "min({})", "max({})", "arg_max({}, {by})"]
        is_small = types.is_integer(field.type) and field.type.bit_width < 64
        if is_small or types.is_floating(field.type) or types.is_decimal(field.type):
            functions += ["sum({})", "avg({})", "stddev({})", "quantile({}, 0.3)"]
        if types.is_int64(field.type) and field.name != "t":
            functions += ["avg({})", "quantile({}, 0.5)"]
        if types.is_floating(field.type):
            functions += ["sum({} * 2)", "max(abs({}))", "sum({} / 3)"]
        by = ".".join((lambda one: (one[0], one[1].name))(chooser.choice(ordered)))
        if pa.types.is_nested(field.type):
            functions = [one for one in functions if not one.startswith(("min", "max"))]
        found[f"a{number}"] = chooser.choice(functions).format(column, by=by)
        found[f"b{number}"] = f"arg_min({column}, {by})"
    return found


def counts_of(join: Join) -> dict[str, str]:
    """Return aggregates that are the number of partners: kernels count them."""
    bands = [band for band in join.predicates if isinstance(band, Band)]
    ends = [f"{end.stream}.{end.name}" for band in bands for end in (band.left, band.right)]
    return {"n": "count(*)", **{f"of{number}": f"count({end})" for number, end in enumerate(ends)}}


def plain(value: Any) -> Any:
    """Return a value in the oracle's form; NaN equals itself."""
    if isinstance(value, (list, tuple, dict)):
        return [plain(each) for each in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, float):
        return repr(value) if value == value else "NaN"
    value = plain_value(value)
    return math.floor(value) if isinstance(value, Fraction) and value.denominator == 1 else value


def rows_of(join: Join, *results: pa.Table) -> dict[int, list[Any]]:
    found = {}
    for result in results:
        arrays = {one.name: result[one.name] for one in join.reduce}
        arrays = {n: a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for n, a in arrays.items()}
        columns = [arrays[one.name].to_pylist() for one in join.reduce]
        for number, *values in zip(result[f"{join.names[0]}_seq"].to_pylist(), *columns, strict=True):
            assert number not in found
            found[number] = [plain(value) for value in values]
    return found


def expected_rows(join: Join, tables: Any, until_us: int | None = None) -> dict[int, list[Any]]:
    rows = oracle_join(join, tables, until_us=until_us)
    return {row[f"{join.names[0]}_seq"]: [plain(row[one.name]) for one in join.reduce] for row in rows}


@examples(60)
@given(
    scenario=scenarios(streams=(2, 2), kinds=("time",), rows=20),
    how=st.sampled_from(["inner", "left"]),
    seed=st.integers(0, 1000),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 1, 2]),
    tuning=st.sampled_from([DEFAULT, FEW]),
    bucket_rows=st.sampled_from([None, 4]),
)
def test_rows_are_the_contracts_after_every_push(
    scenario: Scenario, how: str, seed: int, kernel: str, threads: int, tuning: Tuning, bucket_rows: int | None
) -> None:
    chooser, streams, given_join = random.Random(seed), scenario.join.streams, scenario.join
    reduce = counts_of(given_join) if seed % 4 == 0 else aggregates_of(scenario, chooser)
    join = Join(streams, given_join.predicates, given_join.window, ["s0.*"], how=how, reduce=reduce)
    options: dict[str, Any] = {"kernel": kernel, "threads": threads, "cores": (), "chunk_rows": 64, "tuning": tuning}
    engine, found, so_far = pushed(join, scenario, seed, chooser, bucket_rows=bucket_rows, **options)
    decided_us = engine.watermark
    if decided_us is not None:
        assert rows_of(join, *found) == expected_rows(join, so_far, decided_us)
    found.append(engine.finish())
    assert rows_of(join, *found) == expected_rows(join, so_far)
    assert engine.counters["undecided_rows"] == engine.counters["state_rows"] == 0


def streams(**options: Any) -> list[Stream]:
    return [Stream(name, schema=SCHEMA, **options) for name in "ew"]


def summed(reduce: dict[str, str], rows: dict[str, Any], how: str = "left", on: Any = (), **options: Any) -> pa.Table:
    engine = JoinEngine(Join(streams(), on, "100us", how=how, reduce=reduce), **engine_options(**options))
    return pa.concat_tables([engine.push(rows), engine.finish()])


def row(ts: int, x: float | None = 0.0, y: int | None = 0, s: str | None = "") -> dict[str, Any]:
    return {"ts": ts, "x": x, "y": y, "s": s}


def test_a_sum_of_floats_is_exact_and_rounded_once_in_whatever_order_partners_come() -> None:
    values = [1e16, 1.0, -1e16, 1e-3, 0.1, 0.2, 3e300, -3e300, 5e-324]
    rows = [row(n, x) for n, x in enumerate(values)]
    seen = set()
    for seed in range(6):
        chosen = rows[:]
        random.Random(seed).shuffle(chosen)
        engine = JoinEngine(Join(streams(delay="100us"), (), "100us", reduce={"t": "sum(w.x)", "m": "avg(w.x)"}))
        parts = [engine.push({"e": row(5)}), *(engine.push({"w": one}) for one in chosen), engine.finish()]
        (found,) = pa.concat_tables(parts).to_pylist()
        seen.add((found["t"], found["m"]))
    exact = float(sum(map(Fraction, values)))
    assert seen == {(exact, exact / len(values))}
    assert exact != math.fsum([]) != sum(values)


def test_nulls_nans_and_infinities_are_those_of_sql() -> None:
    reduce = {name: f"{name}(w.x)" for name in ("count", "sum", "min", "max", "avg", "stddev", "first", "last")} | {
        "q": "quantile(w.x, 1)",
        "all": "collect(w.x, 9)",
        "by": "arg_min(w.y, w.x)",
    }
    cases: list[tuple[list[float | None], dict[str, Any]]] = [
        ([], {"count": 0, "sum": None, "min": None, "avg": None, "stddev": None, "first": None, "all": [], "q": None}),
        ([None, None], {"count": 0, "sum": None, "max": None, "all": [], "by": None, "last": None}),
        ([2.0], {"count": 1, "sum": 2.0, "stddev": None, "q": 2.0, "all": [2.0]}),
        ([None, 1.0, 3.0], {"count": 2, "avg": 2.0, "first": None, "last": 3.0, "all": [1.0, 3.0], "by": 1}),
        ([math.nan, 1.0], {"min": 1.0, "max": math.nan, "sum": math.nan, "q": math.nan, "by": 1, "stddev": math.nan}),
        ([math.inf, -math.inf], {"sum": math.nan, "min": -math.inf, "max": math.inf}),
        ([math.inf, 1.0], {"sum": math.inf, "avg": math.inf, "stddev": math.nan}),
        ([0.0, -0.0], {"min": -0.0, "max": 0.0, "sum": 0.0}),
        ([1.7e308, 1.7e308], {"sum": math.inf, "max": 1.7e308}),
        ([5e-324, 5e-324], {"sum": 1e-323, "avg": 5e-324}),
    ]
    for values, wanted in cases:
        partners = [row(n, x, n) for n, x in enumerate(values)]
        (found,) = summed(reduce, {"e": row(1), "w": partners}).to_pylist()
        assert repr({name: found[name] for name in wanted}) == repr(wanted), values


def test_left_has_tuples_without_a_partner_and_inner_has_not() -> None:
    rows = {"e": [row(1, 1.0), row(2, None), row(3, 9.0)], "w": [row(4, 1.0, 7), row(5, 1.0, 8)]}
    reduce = {"n": "count(*)", "total": "sum(w.y)", "own": "max(e.x)", "ids": "collect(w.y, 5)"}
    left = summed(reduce, rows, on="e.x = w.x").select(["e_seq", *reduce]).sort_by("e_seq").to_pylist()
    assert left == [
        {"e_seq": 0, "n": 2, "total": 15, "own": 1.0, "ids": [7, 8]},
        {"e_seq": 1, "n": 0, "total": None, "own": None, "ids": []},
        {"e_seq": 2, "n": 0, "total": None, "own": None, "ids": []},
    ]
    inner = summed(reduce, rows, "inner", on="e.x = w.x")
    assert inner["e_seq"].to_pylist() == [0]
    assert inner.column_names == ["e_ts", "e_x", "e_y", "e_s", *reduce, "e_seq", "event_time"]


def test_ties_go_to_the_smaller_time_then_the_smaller_number() -> None:
    partners = [row(7, 1.0, 0), row(3, 1.0, 1), row(3, 1.0, 2), row(7, 2.0, 3), row(9, 2.0, 4), row(9, 2.0, 5)]
    reduce = {"least": "min_by(w.y, w.x)", "most": "max_by(w.y, w.x)", "first": "first(w.y)", "last": "last(w.y)"}
    engine = JoinEngine(Join(streams(delay="100us"), (), "100us", reduce=reduce))
    engine.push({"e": row(5), "w": partners})
    (found,) = engine.finish().to_pylist()
    assert {name: found[name] for name in reduce} == {"least": 1, "most": 3, "first": 1, "last": 5}


@pytest.mark.parametrize(
    ("aggregate", "values"), [("sum(w.y)", [2**62, 2**62]), ("max(w.y * 4)", [2**62]), ("sum(w.y * 2)", [-(2**63)])]
)
def test_a_sum_that_its_column_cannot_hold_is_an_error_that_names_it(aggregate: str, values: list[int]) -> None:
    rows = {"e": row(1), "w": [row(n, 0.0, y) for n, y in enumerate(values)]}
    with pytest.raises(AggregateOverflowError, match="does not fit int64"):
        summed({"t": aggregate}, rows)
    fits = summed({"t": "sum(w.y)", "m": "avg(w.y)"}, {"e": row(1), "w": [row(0, 0.0, y) for y in (2**62, -(2**63))]})
    assert fits.select(["t", "m"]).to_pylist() == [{"t": -(2**62), "m": -(2.0**61)}]


def test_an_average_of_numbers_beyond_int64_is_rounded_once() -> None:
    values = [2**63 - 1, 2**63 - 2, 2**63 - 5]
    found = summed({"m": "avg(w.y)"}, {"e": row(1), "w": [row(0, 0.0, y) for y in values]})
    assert found["m"].to_pylist() == [float(Fraction(sum(values), 3))]


@pytest.mark.parametrize("most_held", [8, 1 << 20])
def test_many_partners_of_one_tuple_come_in_many_chunks(most_held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe writes the pairs of one chunk over those of the one before."""
    from streamjoin_ds.engine.probe import held_values

    monkeypatch.setattr(held_values, "_MOST_HELD", most_held)
    chooser = random.Random(3)
    partners = [row(n % 50, float(chooser.randint(0, 3)), n, f"s{chooser.randint(0, 99):02}") for n in range(400)]
    reduce = {"some": "collect(w.y, 4)", "least": "arg_min(w.y, w.s)", "most": "max(w.s)", "first": "first(w.x)"}
    reduce |= {"half": "quantile(w.y, 0.5)", "spread": "stddev(w.y)", "total": "sum(w.y)"}
    join = Join(streams(delay="100us"), "e.x < w.x + 1", "100us", reduce=reduce)
    engine = JoinEngine(join, chunk_rows=64)
    rows = {"e": [row(9, 0.0), row(20, 2.0)], "w": partners}
    found = pa.concat_tables([engine.push(rows), engine.finish()])
    assert rows_of(join, found) == expected_rows(join, rows)


REFUSED = [
    ("median(w.x)", "there is no function median", "write quantile"),
    ("collect_list(w.x)", "there is no function collect_list", "write collect"),
    ("percentile_approx(w.x, 0.5)", "there is no function percentile_approx", "quantile"),
    ("count(DISTINCT w.x)", "DISTINCT is not possible", "valid are"),
    ("sum(w.x) FILTER (WHERE w.x > 1)", "not one function|not a function|not an SQL", "valid are"),
    ("w.x", "not a function", "valid are"),
    ("sum(w.x, w.y)", "takes one expression, not 2", "valid are"),
    ("arg_min(w.x)", "takes two expressions, not 1", "valid are"),
    ("sum()", "takes one expression, not 0", "valid are"),
    ("quantile(w.x, 1.5)", "not a number from 0 to 1", "valid are"),
    ("collect(w.x, 0)", "not a whole number from 1", "valid are"),
    ("collect(w.x, w.y)", "not a whole number from 1", "valid are"),
]


@pytest.mark.parametrize(("text", "why", "hint"), REFUSED)
def test_an_aggregate_that_is_not_understood_is_refused_with_what_is(text: str, why: str, hint: str) -> None:
    with pytest.raises(PredicateSyntaxError, match=why) as refused:
        Join(streams(), (), "1s", reduce={"a": text})
    assert hint in refused.value.hint


def test_what_has_no_meaning_is_refused_by_name() -> None:
    def joined(reduce: Any = None, window: str = "1s", names: str = "ew", **options: Any) -> Join:
        given = [Stream(name, schema=SCHEMA) for name in names]
        return Join(given, (), window, reduce=reduce or {"n": "count(*)"}, **options)

    for how in ("right", "full", "semi", "anti"):
        with pytest.raises(ArgumentError, match=f"how={how} is not possible with reduce"):
            joined(how=how)
    with pytest.raises(ArgumentError, match="reduce is not possible with nearest"):
        joined(nearest=Nearest())
    with pytest.raises(ArgumentError, match="reduce needs two streams") as refused:
        joined(names="ewx")
    assert refused.value.name == "reduce"
    for window in ("last 5", "every 1s for 2s"):
        with pytest.raises(WindowError, match="reduce needs a time window"):
            joined(window=window)
    with pytest.raises(ColumnError, match="a row of reduce has a tuple of e alone"):
        joined(select=["e.x", "w.x"])
    for reduce, why in (
        ({"e_x": "count(*)"}, "collides with e.x"),
        ({"event_time": "count(*)"}, "collides with a column that every result has"),
        ({"a": "sum(w.x)", "A": "sum(w.y)"}, "'A' of 'sum"),
        ({"": "count(*)"}, "a name that Delta does not allow"),
        ({"a": "sum(w.s)"}, "type string, which are no numbers"),
        ({"a": "avg(w.ts)"}, "UTC], which are no numbers"),
        ({"a": "sum(w.nothing)"}, "no column 'nothing'"),
    ):
        with pytest.raises(ColumnError, match=why):
            joined(reduce)
    with pytest.raises(ArgumentError, match="names the stream 'v'"):
        joined({"a": "sum(v.x)"})
    for reduce in (["count(*)"], "count(*)", {"a": 1}, {f"a{n}": "count(*)" for n in range(101)}):
        with pytest.raises(ArgumentError) as error:
            joined(reduce)
        assert error.value.name == "reduce"


def test_a_joins_text_and_fingerprint_say_reduce_and_are_what_they_were_without() -> None:
    schemas = {stream.name: stream.schema for stream in streams()}
    plain_join = Join(streams(), "e.x = w.x", "1s")
    assert "reduce" not in plain_join.to_facts()
    asked = [{"n": "count(*)"}, {"n": "count(w.x)"}, {"m": "count(*)"}, {"n": "quantile(w.x, 0.5)"}]
    asked += [{"n": "quantile(w.x, 0.50)"}, {"n": "percentile(w.x, 0.5)"}]
    joins = [Join(streams(), "e.x = w.x", "1s", reduce=reduce) for reduce in asked]
    prints = [bind(join, schemas).fingerprint for join in (plain_join, *joins)]
    assert len(set(prints)) == 5
    assert len(set(prints[4:])) == 1
    for join in joins:
        again = Join.from_facts(join.to_facts())
        assert again.reduce == join.reduce
        assert again.with_streams(streams()).reduce == join.reduce


def test_numbers_of_64_bits_without_a_sign_are_added_up_as_decimals() -> None:
    schema = pa.schema([("ts", pa.int64()), ("u", pa.uint64())])
    asked = {"total": "sum(w.u)", "mean": "avg(w.u)", "spread": "stddev(w.u)", "half": "quantile(w.u, 0.5)"}
    engine = JoinEngine(Join([Stream(name, schema=schema) for name in "ew"], (), "10us", reduce=asked))
    largest = 2**64 - 1
    rows = pa.table({"ts": [1, 1], "u": pa.array([largest, largest], pa.uint64())}, schema=schema)
    engine.push({"e": rows.slice(0, 1), "w": rows})
    (row,) = engine.finish().select(list(asked)).to_pylist()
    assert row == {"total": 2 * largest, "mean": largest, "spread": 0.0, "half": float(largest)}


NUMBERS = {"f": pa.float64(), "g": pa.float32(), "i": pa.int64(), "j": pa.int32(), "d": pa.date32()}


def measured(rows: int, seed: int, odd: bool) -> pa.Table:
    """Return rows with a column of each type that kernels add up; `odd` has values that a sum cannot cut."""
    chooser = random.Random(seed)
    floats = [round(chooser.gauss(20, 5), 2) for _ in range(rows)]
    for value in (math.nan, math.inf, 1e300, 5e-324) if odd else ():
        floats[chooser.randrange(rows)] = value
    return pa.table(
        {
            "ts": [n // 4 for n in range(rows)],
            "x": [chooser.random() * 50 for _ in range(rows)],
            "f": floats,
            "g": pa.array(floats, pa.float64()).cast(pa.float32()),
            "i": [chooser.randrange(-(2**40), 2**40) for _ in range(rows)],
            "j": pa.array([chooser.randrange(-(2**31), 2**31) for _ in range(rows)], pa.int32()),
            "d": pa.array([chooser.randrange(20_000) for _ in range(rows)], pa.int32()).cast(pa.date32()),
        }
    )


@pytest.mark.each_value
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("bucket_rows", [None, 8])
def test_columns_that_are_added_up_while_partners_are_counted_give_what_their_pairs_do(
    kernel: str, odd: bool, bucket_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamjoin_ds.engine.probe.aggregates import Aggregation

    schema = pa.schema([("ts", pa.int64()), ("x", pa.float64()), *NUMBERS.items()])
    reduce = {f"{one}_{name}": f"{one}(w.{name})" for name in "fgij" for one in ("sum", "avg", "min", "max")}
    reduce |= {"n": "count(*)", "first": "min(w.d)", "when": "max(w.ts)", "fs": "count(w.f)"}
    sides = [Stream(name, schema=schema) for name in "ew"]
    join = Join(sides, "abs(e.x - w.x) <= 9", "20us", how="left", reduce=reduce)
    rows = 100 if kernel == "reference" else 500
    tables = {name: measured(rows, seed, odd) for seed, name in enumerate("ew")}
    found, counted = [], []
    for by_pairs in (False, True):
        if by_pairs:
            monkeypatch.setattr(Aggregation, "inside", lambda self, probing: None)
        for batch, threads, tuning in ((rows, 1, DEFAULT), (rows // 2, 2, FEW)):
            options = engine_options(kernel=kernel, threads=threads, cores=(), bucket_rows=bucket_rows, tuning=tuning)
            engine = JoinEngine(join, **options)
            begins = range(0, rows, batch)
            parts = [engine.push({name: of.slice(at, batch) for name, of in tables.items()}) for at in begins]
            found.append(rows_of(join, *parts, engine.finish()))
            counted.append(engine.counters["candidates"])
    assert all(one == found[0] for one in found)
    assert len(found[0]) == rows
    assert odd or counted[:2] == counted[2:]  # no tuple was looked at twice
