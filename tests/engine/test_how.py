"""Rows of one tuple alone (`how`): against the contract in plain Python, and what they must not depend on."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.tuning import DEFAULT, Tuning, WaitingTuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError, StateCorruptError, WindowError
from streamjoin_ds.spec import BoundJoin, Join, Predicate, Stream, bind
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.expression.tree import streams_of
from streamjoin_ds.spec.row_kind import HOWS
from streamjoin_ds.testing.arrivals import filtered_rows
from streamjoin_ds.testing.oracle import oracle_join, oracle_numbers
from tests.engine.scenarios import Scenario, pushed, scenarios
from tests.engine.test_oracle import SMALL
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
KINDS = [how for how in HOWS if how != "inner"]
FEW_WAITING = dataclasses.replace(SMALL, waiting=WaitingTuning(ratio=2, most_merged_rows=9))
SCHEMA = {"ts": "int64", "x": "float64", "y": "int64"}


def of_kind(scenario: Scenario, how: str, bar: str = "") -> Scenario:
    join = scenario.join
    predicates = [*join.predicates] if not bar else [*join.predicates, *Join(join.streams, bar, "1s").predicates]
    select = [text for text in join.select if how not in ("semi", "anti") or text.startswith(join.names[0] + ".")]
    return Scenario(Join(join.streams, predicates, join.window, select, how=how), scenario.tables)


def numbers_of(join: Join, *results: pa.Table) -> list[tuple[int | None, ...]]:
    shown = join.names if join.how not in ("semi", "anti") else join.names[:1]
    rows = [row for r in results for row in zip(*(r[f"{name}_seq"].to_pylist() for name in shown), strict=True)]
    return sorted(rows, key=lambda row: [(number is None, number or 0) for number in row])


@st.composite
def of_each(draw: st.DrawFn) -> tuple[Scenario, str]:
    """Draw a join of three streams and more, whose conditions are all between the first and another."""
    scenario, how = draw(scenarios(streams=(3, 4), kinds=("time",))), draw(st.sampled_from(["semi", "anti"]))
    join = scenario.join
    first = join.names[0]
    own = [one for one in join.predicates if first in (names := streams_named(one)) and len(names) == 2]
    if draw(st.integers(0, 3)) == 0:
        own += Join(join.streams, draw(st.sampled_from(BARS_OF_EACH[how])), "1s").predicates
    select = [text for text in join.select if text.startswith(first + ".")]
    return Scenario(Join(join.streams, own, join.window, select, how=how), scenario.tables), how


BARS_OF_EACH = {"semi": ["s0.note <> 'n'", "s1.note = 'n' AND s0.note IS NOT NULL"], "anti": ["s1.note = 'n'"]}


def streams_named(predicate: Predicate) -> set[str]:
    if isinstance(predicate, Band):
        return {predicate.left.stream, predicate.right.stream}
    return set(streams_of(predicate))


@examples(60)
@given(
    scenario=scenarios(streams=(2, 2), kinds=("time",)),
    how=st.sampled_from(KINDS),
    bar=st.sampled_from(["", "s0.note <> 'n'", "s1.note = 'n' AND s0.note IS NOT NULL"]),
    seed=st.integers(0, 1000),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 1, 2]),
    tuning=st.sampled_from([DEFAULT, FEW_WAITING]),
    bucket_rows=st.sampled_from([None, 4]),
)
def test_rows_are_the_contracts_after_every_push(
    scenario: Scenario,
    how: str,
    bar: str,
    seed: int,
    kernel: str,
    threads: int,
    tuning: Tuning,
    bucket_rows: int | None,
) -> None:
    options: dict[str, Any] = {"kernel": kernel, "threads": threads, "cores": (), "chunk_rows": 64, "tuning": tuning}
    check_every_push(of_kind(scenario, how, bar), seed, bucket_rows=bucket_rows, **options)


@examples(60)
@given(
    given_join=of_each(),
    seed=st.integers(0, 1000),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 1, 2]),
    tuning=st.sampled_from([DEFAULT, FEW_WAITING]),
    bucket_rows=st.sampled_from([None, 4]),
    is_ordered=st.booleans(),
)
def test_rows_about_each_of_several_streams_are_the_contracts_after_every_push(
    given_join: tuple[Scenario, str],
    seed: int,
    kernel: str,
    threads: int,
    tuning: Tuning,
    bucket_rows: int | None,
    is_ordered: bool,
) -> None:
    scenario, _ = given_join
    options: dict[str, Any] = {"kernel": kernel, "threads": threads, "cores": (), "chunk_rows": 64, "tuning": tuning}
    options |= {"order": scenario.join.names[::-1]} if is_ordered else {}
    check_every_push(scenario, seed, bucket_rows=bucket_rows, **options)


def check_every_push(scenario: Scenario, seed: int, **options: Any) -> None:
    """Assert that the rows after each push, and at the end, are those of the contract."""
    join, chooser = scenario.join, random.Random(seed)
    engine, found, so_far = pushed(join, scenario, seed, chooser, **options)
    decided_us = engine.watermark
    if decided_us is not None:
        assert numbers_of(join, *found) == oracle_numbers(join, so_far, until_us=decided_us)
    else:
        assert not [row for row in numbers_of(join, *found) if None in row]
    counters = engine.counters
    for name, table in so_far.items():
        assert counters["filtered_rows"][name] == len(filtered_rows(join, name, table))
        gone = sum(counters[f"{what}_rows"][name] for what in ("late", "rejected", "filtered"))
        assert counters["read_rows"][name] == counters["stored_rows"][name] + gone
    found.append(engine.finish())
    assert numbers_of(join, *found) == oracle_numbers(join, so_far)
    assert engine.counters["undecided_rows"] == engine.counters["state_rows"] == 0
    assert engine.finish().num_rows == 0
    assert_rows(scenario, pa.concat_tables(found))


def assert_rows(scenario: Scenario, result: pa.Table) -> None:
    """Assert that rows have the values of their tuples, nulls for the stream that lacks, and the event time."""
    join = scenario.join
    shown = join.names if join.how not in ("semi", "anti") else join.names[:1]
    assert [field.name for field in result.schema if field.name.endswith("_seq")] == [f"{name}_seq" for name in shown]
    expected = {}
    for row in oracle_join(join, scenario.tables):
        expected[tuple(row[f"{name}_seq"] for name in shown)] = row["event_time_us"]
    keys = list(zip(*(result[f"{name}_seq"].to_pylist() for name in shown), strict=True))
    times = result["event_time"].cast(pa.int64()).to_pylist()
    assert dict(zip(keys, times, strict=True)) == expected
    for name in shown:
        rows = scenario.tables[name].take(result[f"{name}_seq"])
        for column in rows.schema.names:
            values, wanted = result[f"{name}_{column}"], rows[column]
            if pa.types.is_timestamp(wanted.type) and wanted.type.unit == "ns":
                wanted = pa.chunked_array(
                    [pa.array([None if ns is None else ns // 1000 for ns in wanted.cast(pa.int64()).to_pylist()])]
                )
            if pa.types.is_timestamp(values.type):
                values, wanted = values.cast(pa.int64()), wanted.cast(pa.int64())
            assert repr(values.to_pylist()) == repr(wanted.to_pylist()), (name, column)


def streams(*names: str, **options: Any) -> list[Stream]:
    return [Stream(name, schema=SCHEMA, **options) for name in names]


def row(ts: int, x: float | None, y: int = 0) -> dict[str, Any]:
    return {"ts": ts, "x": x, "y": y}


def test_a_lonely_row_comes_in_the_push_that_passes_its_horizon_and_once() -> None:
    engine = JoinEngine(Join(streams("e", "w"), "abs(e.x - w.x) <= 1", {"e": "10us", "w": "3us"}, how="left"))
    assert engine.push({"e": row(100, 5.0), "w": row(90, 5.0)}).num_rows == 0
    assert engine.push({"e": row(200, 50.0), "w": row(110, 9.0)}).num_rows == 0  # a partner may still come
    assert engine.push({"w": row(111, 9.0)})["e_seq"].to_pylist() == [0]
    assert engine.push({"w": row(112, 9.0)}).num_rows == 0
    assert engine.push({"w": row(197, 50.0)})["w_seq"].to_pylist() == [4]
    assert engine.finish().num_rows == 0


def test_a_partner_that_comes_later_but_is_older_is_found() -> None:
    """The other's tuples are kept beyond their own window: one that waits may have met them alone."""
    engine = JoinEngine(Join(streams("e", "w"), "e.x = w.x", {"e": "10us", "w": "5us"}, how="anti"))
    engine.push({"e": row(100, 1.0), "w": row(100, 7.0)})
    engine.push({"w": row(105, 1.0)})
    engine.push({"e": row(300, 2.0), "w": row(109, 8.0)})
    assert engine.push({"w": row(200, 8.0)}).num_rows == 0


def test_a_window_of_nothing_after_a_tuple_decides_as_soon_as_its_own_moment_has_passed() -> None:
    engine = JoinEngine(Join(streams("e", "w"), "e.x = w.x", {"e": "0us", "w": "5us"}, how="anti"))
    engine.push({"w": row(9, 1.0), "e": row(10, 1.0)})
    assert engine.push({"e": row(11, 2.0), "w": row(11, 3.0)}).num_rows == 0
    assert engine.push({"e": row(12, 2.0), "w": row(12, 3.0)})["e_seq"].to_pylist() == [1]


def test_an_idle_streams_silence_counts_as_its_watermark() -> None:
    engine = JoinEngine(Join(streams("e", "w"), "e.x = w.x", "5us", how="anti"))
    engine.push({"e": row(10, 1.0), "w": row(8, 1.0)})
    assert engine.push({"e": [row(11, 4.0), row(100, 2.0)]}).num_rows == 0
    engine.set_idle("w")
    assert engine.push({"e": row(100, 2.0)})["e_seq"].to_pylist() == [1]
    engine.push({"w": row(11, 4.0)})
    assert engine.counters["late_rows"]["w"] == 1


def test_a_condition_on_one_stream_takes_its_partners_and_where_takes_the_row() -> None:
    on = "e.x = w.x AND e.y > 3 AND w.y > 3"
    rows = {"e": [row(1, 1.0, 5), row(2, 1.0, 1), row(3, None, 9)], "w": [row(4, 1.0, 5), row(5, 2.0, 1)]}
    joined = JoinEngine(Join(streams("e", "w"), on, "10us", how="full"))
    found = pa.concat_tables([joined.push(rows), joined.finish()])
    pairs = list(zip(found["e_seq"].to_pylist(), found["w_seq"].to_pylist(), strict=True))
    assert sorted(pairs, key=str) == sorted([(0, 0), (1, None), (2, None), (None, 1)], key=str)
    assert joined.counters["filtered_rows"] == {"e": 0, "w": 0}
    left = JoinEngine(Join(streams("e", "w", where="y > 3"), "e.x = w.x", "10us", how="full"))
    found = pa.concat_tables([left.push(rows), left.finish()])
    assert left.counters["filtered_rows"] == {"e": 1, "w": 1}
    assert sorted(zip(found["e_seq"].to_pylist(), found["w_seq"].to_pylist(), strict=True), key=str) == [
        (0, 0),
        (2, None),
    ]


def test_no_tuple_is_its_own_partner() -> None:
    pair = [Stream(name, "one.csv", schema=SCHEMA) for name in "ab"]
    rows = [row(1, 1.0), row(2, 2.0), row(3, 2.0)]
    engine = JoinEngine(Join(pair, "a.x = b.x", "10us", how="anti"))
    engine.push({"a": rows, "b": rows})
    assert engine.finish()["a_seq"].to_pylist() == [0]


def test_a_push_that_is_given_up_decides_nothing() -> None:
    engine = JoinEngine(Join(streams("e", "w"), "e.x = w.x", "5us", how="anti"), chunk_rows=64)
    engine.push({"e": [row(n, float(n)) for n in range(80)], "w": row(0, -1.0)})
    chunks = engine.push_chunks({"e": row(100, 0.0), "w": row(100, 0.0)})
    assert next(chunks).num_rows == 64
    chunks.close()
    assert engine.counters["undecided_rows"] == 80
    assert engine.push({"e": row(100, 0.0), "w": row(100, 0.0)})["e_seq"].to_pylist() == list(range(80))


@pytest.mark.parametrize("how", KINDS)
def test_a_state_in_blocks_names_what_waits_and_is_restored(tmp_path: Path, how: str) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    bound = bind(
        Join([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 0.02", "20us", how=how), {"e": schema, "w": schema}
    )
    store = RunStore(BlockStore(str(tmp_path)), ["e", "w"], "test")
    whole, saved = WindowJoin(bound), WindowJoin(bound)
    pieces: list[pa.Table] = []
    expected: list[pa.Table] = []
    for n in range(40):
        batch = {s: tuples(bound, s, n * 3, 3) for s in (0, 1)}
        expected += whole.push(batch, 3 * n)
        pieces += saved.push(batch, 3 * n)
        blob = saved.save(store)
        assert {ref for ref in saved.blocks if not (tmp_path / ref).exists()} == set()
        saved = WindowJoin.restored(bound, blob, store)
    assert numbers_of(bound.join, *pieces) == numbers_of(bound.join, *expected)  # type: ignore[arg-type]
    assert saved.counters["undecided_rows"] == whole.counters["undecided_rows"] > 0


def tuples(bound: BoundJoin, stream: int, first: int, count: int) -> pa.Table:
    chooser = random.Random(first * 2 + stream)
    columns = [range(first, first + count), range(first, first + count), [chooser.random() for _ in range(count)]]
    arrays = [
        pa.array(list(values), field.type) for values, field in zip(columns, bound.tuple_schema(stream), strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=bound.tuple_schema(stream))


def test_a_state_without_what_waits_is_refused() -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    streams = [Stream("e"), Stream("w")]
    inner = bind(Join(streams, (), "1s"), {"e": schema, "w": schema})
    left = bind(Join(streams, (), "1s", how="left"), {"e": schema, "w": schema})
    from streamjoin_ds.engine.storage import state_blob

    facts, _ = state_blob.opened(inner.fingerprint, WindowJoin(inner).save())
    facts.pop("sizes")
    with pytest.raises(StateCorruptError):
        WindowJoin.restored(left, state_blob.sealed(left.fingerprint, facts, []))


FINDING = (
    "e.x IS NOT DISTINCT FROM w.x",
    "e.s IS NOT DISTINCT FROM w.s AND abs(e.x - w.x) <= w.hi",
    "e.x BETWEEN w.lo AND w.hi",
    "e.lo <= w.hi AND w.lo <= e.hi",
    "abs(e.x - w.x) <= 0.5 * w.x",
)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("on", FINDING)
def test_conditions_that_find_by_columns_and_nulls_that_meet_decide_too(on: str, how: str) -> None:
    numbers = [("x", [None, math.nan, 1.0, 2.0, 3.0]), ("lo", [None, 0.0, 1.0, 2.0]), ("hi", [None, 1.0, 2.0, 3.0])]
    kinds = {"ts": "int64", **dict.fromkeys(("x", "lo", "hi"), "float64"), "s": "string"}
    chooser = random.Random(f"{on} {how}")
    for _ in range(4):
        rows = {
            name: [
                {"ts": n + chooser.randint(6, 10), **{column: chooser.choice(values) for column, values in numbers}}
                | {"s": chooser.choice([None, "a", "b"])}
                for n in range(14)
            ]
            for name in "ew"
        }
        given = [Stream(name, schema=kinds, delay="5us") for name in "ew"]
        join = Join(given, on, {"e": "9us", "w": "4us"}, how=how)
        engine = JoinEngine(join)
        pushes = [engine.push({name: rows[name][n : n + 5] for name in "ew"}) for n in range(0, 14, 5)]
        expected = oracle_numbers(join, rows)
        assert numbers_of(join, *pushes, engine.finish()) == expected


def test_what_has_no_meaning_is_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match="how is not the name") as refused:
        Join(streams("e", "w"), (), "1s", how="outer")
    assert refused.value.name == "how"
    for how in ("left", "right", "full"):
        with pytest.raises(ArgumentError, match="needs two streams, and the join has 3"):
            Join(streams("e", "w", "z"), (), "1s", how=how)
    for window in ("last 5", "every 1s for 2s"):
        with pytest.raises(WindowError, match="needs a time window"):
            Join(streams("e", "w"), (), window, how="left")
    with pytest.raises(ColumnError, match="a tuple of e alone"):
        Join(streams("e", "w"), (), "1s", ["e.x", "w.x"], how="anti")
    assert Join(streams("e", "w"), (), "1s", how="anti").select == ("e.*",)


@pytest.mark.parametrize(
    ("how", "on", "message"),
    [
        ("semi", "w.x = z.x", "'w.x = z.x' is between w and z, and with how=semi"),
        ("anti", "e.x = w.x AND e.y + w.y < z.y", "is between e, w and z, and with how=anti"),
        ("anti", "e.x = w.x AND e.y > 3", "is on e alone, and with how=anti"),
    ],
)
def test_a_condition_that_belongs_to_no_pair_is_refused_by_name(how: str, on: str, message: str) -> None:
    with pytest.raises(PredicateError, match=message) as refused:
        Join(streams("e", "w", "z"), on, "1s", how=how)
    assert "e" in refused.value.hint


def test_a_null_keeps_a_tuple_from_partners_only_where_it_is_compared() -> None:
    on = "e.x = w.x AND e.y = z.y"
    rows = {"e": [row(1, 1.0, 1), row(1, None, 1), row(1, None, 2), row(1, math.nan, 2)]}
    rows["w"] = [row(1, 1.0), row(1, 0.0)]
    found = {}
    for how in ("semi", "anti"):
        engine = JoinEngine(Join(streams("e", "w", "z"), on, "5us", how=how))
        engine.push(rows | {"z": row(1, 1.0, 1)})
        found[how] = engine.finish()["e_seq"].to_pylist()
        assert engine.counters["null_keys"]["e"] == (3 if how == "semi" else 0)
    assert found == {"semi": [0], "anti": [2, 3]}
    assert "due e: asked of w, then of z" in engine.explain()


def test_of_several_streams_false_leaves_no_partner_in_any() -> None:
    found = {}
    for how in ("semi", "anti"):
        engine = JoinEngine(Join(streams("e", "w", "z"), ["e.x = w.x", "FALSE"], "5us", how=how))
        engine.push({name: row(1, 1.0) for name in "ewz"})
        found[how] = engine.finish()["e_seq"].to_pylist()
    assert found == {"semi": [], "anti": [0]}


def test_a_joins_text_and_fingerprint_say_how_and_are_what_they_were_without() -> None:
    inner, left = (Join(streams("e", "w"), "e.x = w.x", "1s", how=how) for how in ("inner", "left"))
    assert "how" not in inner.to_facts()
    assert Join.from_facts(left.to_facts()).how == "left"
    schemas = {stream.name: stream.schema for stream in left.streams}
    assert bind(inner, schemas).fingerprint != bind(left, schemas).fingerprint
