"""Joins by any condition, and filters, against the contract in plain Python."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.tuning import CHUNK_ROWS
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError, PredicateError
from streamjoin_ds.spec import BoundJoin, Expression, Join, Stream, band, bind, bound_from_facts, equal
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.expression.tree import columns_of
from streamjoin_ds.testing.arrivals import filtered_rows, late_rows
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine.scenarios import Scenario, cuts_of, numbers_of, run_engine, window_of
from tests.engine.streams import TIME
from tests.support.conditions import SCHEMA, conditions, table
from tests.support.examples import examples

QUICK = examples(60)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw two or three streams with columns of every type, conditions on any of them, at times a band and a filter."""
    names = ["e", "w", "v"][: draw(st.sampled_from([2, 2, 3]))]
    seed = draw(st.integers(0, 2**32))
    chooser = random.Random(seed)
    predicates: list[Expression | Band] = draw(st.lists(conditions(2, names), min_size=1, max_size=2))
    predicates = [predicate for predicate in predicates if columns_of(predicate)]  # type: ignore[arg-type]
    if chooser.random() < 0.5:
        predicates.append(chooser.choice([band("e.f", "w.f", 1), equal("e.u", "w.s"), band("e.i32", "w.i8", 3)]))
    schema = pa.schema([("when", pa.int64()), *SCHEMA])
    tables, streams = {}, []
    for number, name in enumerate(names):
        count = chooser.choice([6, 14]) if len(names) == 2 else chooser.choice([4, 7])
        times = pa.array([chooser.choice([None, *range(40)]) for _ in range(count)], pa.int64())
        tables[name] = table(seed + number, count).add_column(0, "when", times)
        where = draw(conditions(1, [name])) if chooser.random() < 0.4 else None
        where = where if where is not None and columns_of(where) else None
        streams.append(Stream(name, time="when", delay=f"{chooser.choice([0, 10, 40])}us", schema=schema, where=where))
    try:
        window = window_of(chooser, chooser.choice(["time", "time", "count", "periodic"]), len(names))
        return Scenario(Join(streams, predicates, window), tables)
    except PredicateError as error:
        assume("76 digits" not in error.message and "holds for no tuple" not in error.message)
        raise


@QUICK
@given(scenario=scenarios(), seed=st.integers(0, 1000))
def test_results_and_ledger_are_the_contracts(scenario: Scenario, seed: int) -> None:
    join = Join.from_facts(scenario.join.to_facts())
    cuts = cuts_of(scenario, seed)
    result, engine = run_engine(Scenario(join, scenario.tables), cuts, chunk_rows=64)
    assert numbers_of(join, result) == oracle_numbers(scenario.join, scenario.tables)
    for field in result.schema:
        assert field.nullable or result[field.name].null_count == 0
    counters = engine.counters
    for name, rows in scenario.tables.items():
        ledger = {what: counters[f"{what}_rows"][name] for what in ("read", "stored", "late", "rejected", "filtered")}
        assert ledger["filtered"] == len(filtered_rows(join, name, rows))
        assert ledger["late"] == len(late_rows(join, name, rows))
        assert ledger["rejected"] == rows["when"].null_count
        assert ledger["read"] == rows.num_rows == sum(ledger.values()) - ledger["read"]
    restored = JoinEngine(join)
    restored.restore(engine.save())
    assert restored.counters["filtered_rows"] == counters["filtered_rows"]
    assert restored.save() == engine.save()


@QUICK
@given(scenario=scenarios(), seed=st.integers(0, 1000))
def test_a_filter_and_the_same_condition_in_the_predicates_are_one(scenario: Scenario, seed: int) -> None:
    wheres = [stream.where for stream in scenario.join.streams if stream.where is not None]
    streams = [replace(stream, where=None) for stream in scenario.join.streams]
    moved = Join(streams, [*scenario.join.predicates, *wheres], scenario.join.window)  # type: ignore[list-item]
    cuts = cuts_of(scenario, seed)
    here, one = run_engine(scenario, cuts)
    there, other = run_engine(Scenario(moved, scenario.tables), cuts)
    assert numbers_of(moved, here) == numbers_of(moved, there)
    assert one.bound.fingerprint == other.bound.fingerprint
    assert one.save() == other.save()


def bound(on: str, **wheres: str) -> BoundJoin:
    """Return the bound join of r(x, y, s) and t(x, y, s)."""
    schema = pa.schema([("ts", TIME), ("x", pa.float64()), ("y", pa.int64()), ("s", pa.string())])
    streams = [Stream(name, where=wheres.get(name)) for name in ("r", "t")]
    return bind(Join(streams, on, "1s", ["r.s", "t.s"]), dict.fromkeys(("r", "t"), schema))


def test_columns_that_only_filters_need_are_read_and_do_not_travel() -> None:
    join = bound("abs(r.x - t.x) < 1 AND r.y % 2 = 0 AND r.x + t.x > 3", t="y IN (1, 2)")
    assert [schema.names for schema in join.read_schemas] == [["ts", "x", "y", "s"]] * 2
    assert [schema.names for schema in join.schemas] == [["ts", "x", "s"]] * 2
    assert [[term.text for term in terms] for terms in join.filters] == [
        ["(r.y % 2) = 0"],
        ["(t.y = 1) OR (t.y = 2)"],
    ]
    assert {term.text for term in join.terms} == {"3 < (r.x + t.x)", "abs(r.x - t.x) < 1"}
    assert bound_from_facts(join.to_facts()).fingerprint == join.fingerprint


def test_the_band_of_a_strict_width_finds() -> None:
    strict, wide = (WindowJoin(bound(f"abs(r.x - t.x) {op} 1")) for op in ("<", "<="))
    rows = pa.table(
        {"_ts": [0] * 4000, "_seq": range(4000), "x": [float(n) for n in range(4000)], "s": ["a"] * 4000},
        schema=strict.bound.tuple_schema(0),
    )
    found = [sum(chunk.num_rows for chunk in join.push({0: rows, 1: rows})) for join in (strict, wide)]
    assert found == [4000, 4000 + 2 * 3999]
    assert strict.counters["candidates"] == wide.counters["candidates"] < 50_000


def test_what_no_stream_is_asked_is_left_out_where_it_is_true() -> None:
    assert bound("1 = 1 AND r.x = t.x").fingerprint == bound("r.x = t.x").fingerprint
    assert bound("1 = 2 AND r.x = t.x").filters != bound("r.x = t.x").filters  # no tuple passes
    with pytest.raises(PredicateError, match="holds for no tuple"):
        bound("r.x = t.x", t="y = 1 AND 1 = 2")


COLUMN = pa.schema([("ts", pa.int64()), ("n", pa.int64())])


def product(on: str = "") -> JoinEngine:
    """Return a join of two streams in which all tuples of a push are in each other's windows."""
    return JoinEngine(Join([Stream("e", schema=COLUMN), Stream("w", schema=COLUMN)], on or (), "1s"))


def numbers(count: int) -> pa.Table:
    return pa.table({"ts": pa.array([0] * count, pa.int64()), "n": range(count)})


@pytest.mark.parametrize("on", ["", "e.n + w.n >= 0", "abs(e.n - w.n) <= 1000000"])
def test_a_product_comes_in_chunks_and_says_how_far_it_is(on: str) -> None:
    engine = product(on)
    fractions, found = [], 0
    for chunk in engine.push_chunks({"e": numbers(3000), "w": numbers(2000)}):
        assert chunk.num_rows <= CHUNK_ROWS
        found += chunk.num_rows
        assert engine.progress.matches == found
        assert engine.progress.fraction == pytest.approx(found / 6e6, abs=0.05)
        fractions.append(engine.progress.fraction)
    assert found == 6_000_000 == engine.counters["matches"]
    assert fractions == sorted(fractions)
    assert engine.progress.fraction == 1
    assert len(list(engine.push_chunks({}))) == 0
    assert engine.progress.fraction == 1


def test_progress_of_a_join_by_index_reaches_its_end() -> None:
    engine = product("abs(e.n - w.n) <= 3")
    engine.push({"w": numbers(20_000)})
    pushed = engine.push_chunks({"e": numbers(20_000), "w": numbers(20_000)})
    fractions = [engine.progress.fraction for _ in pushed]
    assert fractions == sorted(fractions)
    assert engine.progress.fraction == 1


def test_a_push_that_is_given_up_was_none() -> None:
    engine = product()
    engine.push({"e": numbers(3)})
    before, counters = engine.save(), engine.counters
    chunks = engine.push_chunks({"e": numbers(2000), "w": numbers(2000)})
    next(chunks)
    with pytest.raises(ArgumentError, match="a push is running"):
        engine.push({"e": numbers(1)})
    chunks.close()
    assert engine.save() == before
    assert {k: v for k, v in engine.counters.items() if k != "candidates"} == {
        k: v for k, v in counters.items() if k != "candidates"
    }
    assert engine.push({"w": numbers(2)}).num_rows == 6


MEMORY = """
import resource
import pyarrow as pa
from streamjoin_ds import Join, JoinEngine, Stream

schema = {"ts": "int64", "n": "int64"}
engine = JoinEngine(Join([Stream("e", schema=schema), Stream("w", schema=schema)], ON, "1s"))
count = 200_000
rows = pa.table({"ts": pa.array([0] * count, pa.int64()), "n": range(count)})
engine.push({"w": rows.slice(0, 1)})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found, chunks = 0, engine.push_chunks({"e": rows, "w": rows})
while found < 100_000_000:
    found += next(chunks).num_rows
share = engine.progress.fraction
assert 0.9 * found / count**2 <= share <= 1.1 * found / count**2 + 0.01, share
chunks.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("on", ["()", "'e.n + w.n >= 0'"])
def test_memory_of_a_product_of_forty_billion_is_bounded(on: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY.replace("ON", on)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150 << 10  # KiB; the results read are 4 GB
