"""Nearest partners (`Nearest`): against the contract in plain Python, and what they must not depend on."""

from __future__ import annotations

import dataclasses
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
from streamjoin_ds.engine.probe.nearest import NearestPartners
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.tuning import DEFAULT, NearestTuning, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError, PredicateSyntaxError, WindowError
from streamjoin_ds.spec import Join, Nearest, Stream, bind
from streamjoin_ds.spec.row_kind import DIRECTIONS
from streamjoin_ds.testing.arrivals import filtered_rows
from streamjoin_ds.testing.oracle import oracle_join, oracle_numbers
from tests.engine.scenarios import DOMAINS, Scenario, pushed, scenarios
from tests.engine.test_oracle import SMALL
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
FEW_KEPT = dataclasses.replace(SMALL, nearest=NearestTuning(most_kept=5))
SCHEMA = {"ts": "int64", "x": "float64", "y": "int64"}
ORDERED = ("float", "int", "timestamp", "date", "decimal", "unsigned", "duration")


def nearest_of(scenario: Scenario, k: int, how: str, direction: str, form: str) -> Scenario:
    """Return the join with nearest partners, by columns that a predicate compares where there are such."""
    join, by = scenario.join, None
    columns = [
        [
            f"{name}.{field.name}"
            for field in scenario.tables[name].schema
            if any(field.type in DOMAINS[domain].types for domain in ORDERED)
        ]
        for name in join.names
    ]
    (left, *_), (right, *_) = columns[0][1:] or columns[0], columns[1][1:] or columns[1]
    if form:
        by = form.format(left=left, right=right)
    streams, parts = join.streams, (join.predicates, join.window)
    try:
        return Scenario(Join(streams, *parts, how=how, nearest=Nearest(k, by, direction)), scenario.tables)
    except PredicateError:  # columns of two kinds
        by = None if "-" in form else left
        return Scenario(Join(streams, *parts, how=how, nearest=Nearest(k, by, direction)), scenario.tables)


def numbers_of(join: Join, *results: pa.Table) -> list[tuple[int | None, ...]]:
    """Return the results as numbers, those of a tuple in the order of their ranks."""
    rows = []
    for result in results:
        ranks = result["rank"].to_pylist() if "rank" in result.schema.names else [1] * result.num_rows
        numbers = (result[f"{name}_seq"].to_pylist() for name in join.names)
        rows += [(own, rank or 0, other) for own, other, rank in zip(*numbers, ranks, strict=True)]
    return [(own, other) for own, _, other in sorted(rows, key=lambda row: row[:2])]


@examples(60)
@given(
    scenario=scenarios(streams=(2, 2), kinds=("time",)),
    k=st.sampled_from([1, 1, 2, 5]),
    how=st.sampled_from(["inner", "left"]),
    direction=st.sampled_from(DIRECTIONS),
    form=st.sampled_from(
        ["", "abs({left} - {right})", "{right} - {left}", "{right}", "({left} - {right}) * 2", "NULL"]
    ),
    seed=st.integers(0, 1000),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 1, 2]),
    tuning=st.sampled_from([DEFAULT, SMALL, FEW_KEPT]),
    bucket_rows=st.sampled_from([None, 4]),
)
def test_rows_are_the_contracts_after_every_push(
    scenario: Scenario,
    k: int,
    how: str,
    direction: str,
    form: str,
    seed: int,
    kernel: str,
    threads: int,
    tuning: Tuning,
    bucket_rows: int | None,
) -> None:
    scenario = nearest_of(scenario, k, how, direction, form)
    join, chooser = scenario.join, random.Random(seed)
    options: dict[str, Any] = {"kernel": kernel, "threads": threads, "cores": (), "chunk_rows": 64, "tuning": tuning}
    engine, found, so_far = pushed(join, scenario, seed, chooser, bucket_rows=bucket_rows, **options)
    decided_us = engine.watermark
    if decided_us is not None:
        assert numbers_of(join, *found) == oracle_numbers(join, so_far, until_us=decided_us)
    else:
        assert not sum(table.num_rows for table in found)
    counters = engine.counters
    for name, table in so_far.items():
        assert counters["filtered_rows"][name] == len(filtered_rows(join, name, table))
    found.append(engine.finish())
    assert numbers_of(join, *found) == oracle_numbers(join, so_far)
    assert engine.counters["undecided_rows"] == engine.counters["state_rows"] == 0
    assert_rows(scenario, pa.concat_tables(found))


def assert_rows(scenario: Scenario, result: pa.Table) -> None:
    """Assert that rows have the values of their tuples, nulls for a partner that lacks, the tuple's time, the rank."""
    expected = [
        (row["s0_seq"], row["s1_seq"], row["event_time_us"], row.get("rank"))
        for row in oracle_join(scenario.join, scenario.tables)
    ]
    times = result["event_time"].cast(pa.int64()).to_pylist()
    ranks = result["rank"].to_pylist() if "rank" in result.schema.names else [None] * len(times)
    found = zip(result["s0_seq"].to_pylist(), result["s1_seq"].to_pylist(), times, ranks, strict=True)
    assert sorted(found, key=str) == sorted(expected, key=str)
    for name in scenario.join.names:
        notes = scenario.tables[name].take(result[f"{name}_seq"])["note"]
        assert result[f"{name}_note"].to_pylist() == notes.to_pylist()


def streams(*names: str, **options: Any) -> list[Stream]:
    return [Stream(name, schema=SCHEMA, **options) for name in names]


def row(ts: int, x: float | None, y: int = 0) -> dict[str, Any]:
    return {"ts": ts, "x": x, "y": y}


def test_backward_waits_for_the_tuples_own_moment_and_forward_for_the_window() -> None:
    on, both = "abs(e.x - w.x) <= 10", {"e": "10us", "w": "7us"}
    backward = JoinEngine(Join(streams("e", "w"), on, both, nearest=Nearest(direction="backward")))
    forward = JoinEngine(Join(streams("e", "w"), on, both, nearest=Nearest(direction="forward")))
    first = {"e": row(100, 1.0), "w": [row(93, 1.0), row(96, 2.0)]}
    assert backward.push(first).num_rows == forward.push(first).num_rows == 0
    # A partner of the tuple's own moment may still come: no row before the watermark has passed that moment.
    second = {"e": row(200, 50.0), "w": row(100, 9.0)}
    assert backward.push(second).num_rows == forward.push(second).num_rows == 0
    third = {"w": row(101, 5.0)}
    assert backward.push(third)["w_seq"].to_pylist() == [2]
    assert forward.push(third).num_rows == 0
    assert forward.push({"w": row(111, 5.0)})["w_seq"].to_pylist() == [2]
    assert backward.counters["undecided_rows"] == forward.counters["undecided_rows"] == 1


def test_a_direction_is_a_window_that_ends_at_the_tuple() -> None:
    asked = {"e": "10us", "w": "7us"}
    joins = [
        Join(streams("e", "w"), "e.x = w.x", window, nearest=Nearest(2, "e.x - w.x", direction))
        for window, direction in (
            (asked, "backward"), ({"e": "0us", "w": "7us"}, "both"), (asked, "both"), (asked, "forward"),
        )
    ]  # fmt: skip
    prints = [bind(join, {s.name: s.schema for s in join.streams}).fingerprint for join in joins]  # type: ignore[misc]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert Join.from_facts(joins[3].to_facts()) == joins[3]


def test_ties_go_to_the_earlier_partner_and_then_to_the_smaller_number() -> None:
    rows = [row(12, 0.0, 3), row(9, 0.0, 5), row(9, 0.0, 3), row(11, 0.0, 4), row(8, 0.0, 9)]
    engine = JoinEngine(Join(streams("e", "w", delay="9us"), (), "10us", nearest=Nearest(4, "abs(e.y - w.y)", "both")))
    engine.push({"e": row(10, 0.0, 4), "w": rows})
    found = engine.finish()
    assert found["w_seq"].to_pylist() == [3, 1, 2, 0]
    assert found["rank"].to_pylist() == [1, 2, 3, 4]


def test_a_null_or_nan_distance_is_no_partner() -> None:
    rows = {"e": [row(1, 1.0), row(2, None)], "w": [row(1, None), row(2, float("nan")), row(3, float("inf"))]}
    for how, expected in (("inner", [(0, 2)]), ("left", [(0, 2), (1, None)])):
        join = Join(streams("e", "w"), (), "10us", how=how, nearest=Nearest(3, "abs(e.x - w.x)"))
        engine = JoinEngine(join)
        assert numbers_of(join, engine.push(rows), engine.finish()) == expected


def test_exact_distances_are_told_apart_beyond_float64() -> None:
    large = (1 << 62) + 1
    rows = {"e": [row(1, 0.0, -large)], "w": [row(1, 0.0, large - n) for n in (0, 3, 1, 2, 4)]}
    join = Join(streams("e", "w"), (), "10us", nearest=Nearest(5, "abs(e.y - w.y)"))
    engine = JoinEngine(join)
    assert numbers_of(join, engine.push(rows), engine.finish()) == [(0, n) for n in (4, 1, 3, 2, 0)]


@pytest.mark.parametrize(("far", "is_inside"), [(0, True), (1 << 53, False)])
def test_no_pair_leaves_the_kernels_of_a_grid_unless_a_distance_does_not_fit(far: int, is_inside: bool) -> None:
    chooser, added = random.Random(5), []
    rows = {name: [row(n, chooser.random(), chooser.randrange(1000)) for n in range(300)] for name in "ew"}
    rows["e"] = [{**one, "y": one["y"] - far} for one in rows["e"]]
    join = Join(streams("e", "w"), "abs(e.x - w.x) <= 0.2", "100us", nearest=Nearest(2, "abs(e.y - w.y)"))
    engine, add = JoinEngine(join, bucket_rows=30), NearestPartners.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NearestPartners, "add", lambda *pairs: (added.append(len(pairs[1])), add(*pairs)))
        cuts = [{name: of[begin : begin + 50] for name, of in rows.items()} for begin in range(0, 300, 50)]
        found = [engine.push(cut) for cut in cuts]
    assert bool(sum(added)) != is_inside
    found.append(engine.finish())
    tables = {name: pa.Table.from_pylist(of, pa.schema(SCHEMA)) for name, of in rows.items()}
    assert numbers_of(join, *found) == oracle_numbers(join, tables)


def test_no_tuple_is_its_own_nearest_partner() -> None:
    pair = [Stream(name, "one.csv", schema=SCHEMA) for name in "ab"]
    rows = [row(1, 1.0), row(2, 5.0), row(3, 6.5)]
    join = Join(pair, "abs(a.x - b.x) <= 2", "10us", how="left", nearest=Nearest(by="abs(a.x - b.x)"))
    engine = JoinEngine(join)
    engine.push({"a": rows, "b": rows})
    assert numbers_of(join, engine.finish()) == [(0, None), (1, 2), (2, 1)]


def test_a_state_in_blocks_names_what_waits_and_is_restored(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    asked = Nearest(2, "abs(e.x - w.x)", "backward")
    join = Join([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 0.3", "20us", how="left", nearest=asked)
    bound = bind(join, {"e": schema, "w": schema})
    store = RunStore(BlockStore(str(tmp_path)), ["e", "w"], "test")
    whole, saved = WindowJoin(bound), WindowJoin(bound)
    pieces: list[pa.Table] = []
    expected: list[pa.Table] = []
    for n in range(40):
        chooser, batch = random.Random(n), {}
        for stream in (0, 1):
            columns = [range(3 * n, 3 * n + 3), range(3 * n, 3 * n + 3), [chooser.random() for _ in range(3)]]
            fields = bound.tuple_schema(stream)
            arrays = [pa.array(list(values), field.type) for values, field in zip(columns, fields, strict=True)]
            batch[stream] = pa.Table.from_arrays(arrays, schema=fields)
        expected += whole.push(batch, 3 * n)
        pieces += saved.push(batch, 3 * n)
        saved = WindowJoin.restored(bound, saved.save(store), store)
    assert numbers_of(join, *pieces) == numbers_of(join, *expected)
    assert len(numbers_of(join, *pieces)) > 100
    assert saved.counters["undecided_rows"] == whole.counters["undecided_rows"] > 0


def test_the_order_of_rows_does_not_depend_on_threads_or_on_how_many_are_kept_at_a_time() -> None:
    chooser = random.Random(3)
    rows = {name: [row(n, chooser.random()) for n in range(6_000)] for name in "ew"}
    kept, found = dataclasses.replace(DEFAULT, nearest=NearestTuning(most_kept=1_000)), []
    for threads, tuning in ((1, DEFAULT), (2, DEFAULT), (1, kept)):
        asked = Nearest(2, "abs(e.x - w.x)")
        join = Join(streams("e", "w"), "abs(e.x - w.x) <= 0.02", "20us", how="left", nearest=asked)
        engine = JoinEngine(join, threads=threads, cores=(), tuning=tuning)
        found.append(pa.concat_tables([engine.push(rows), engine.finish()]))
    assert found[0] == found[1] == found[2]
    assert found[0]["w_seq"].null_count > 100


def test_what_has_no_meaning_is_refused_by_name() -> None:
    for arguments, name in (((0,), "nearest"), ((100_001,), "nearest"), ((True,), "nearest"), ((1, 5), "nearest_by")):
        with pytest.raises(ArgumentError) as refused:
            Nearest(*arguments)  # type: ignore[arg-type]
        assert refused.value.name == name
    with pytest.raises(ArgumentError, match="direction") as refused:
        Nearest(direction="up")
    assert refused.value.name == "nearest_direction"
    with pytest.raises(PredicateSyntaxError):
        Nearest(by="abs(e.x -")
    with pytest.raises(ArgumentError, match="needs two streams"):
        Join(streams("e", "w", "x"), (), "1s", nearest=Nearest())
    with pytest.raises(ArgumentError, match="must be a Nearest object"):
        Join(streams("e", "w"), (), "1s", nearest=1)  # type: ignore[arg-type]
    for how in ("right", "full", "semi", "anti"):
        with pytest.raises(ArgumentError, match="has no nearest partners"):
            Join(streams("e", "w"), (), "1s", how=how, nearest=Nearest())
    for window in ("last 5", "every 1s for 2s"):
        with pytest.raises(WindowError, match="nearest needs a time window"):
            Join(streams("e", "w"), (), window, nearest=Nearest())
    with pytest.raises(ArgumentError, match="names the stream 'q'"):
        Join(streams("e", "w"), (), "1s", nearest=Nearest(by="abs(q.x - w.x)"))
    with pytest.raises(ColumnError, match="no column 'z'"):
        Join(streams("e", "w"), (), "1s", nearest=Nearest(by="abs(e.z - w.x)"))
    with pytest.raises(PredicateError, match="of type boolean"):
        Join(streams("e", "w"), (), "1s", nearest=Nearest(by="e.x < w.x"))
    with pytest.raises(ColumnError, match="collides"):
        Join(streams("e", "w"), (), "1s", ["e.x AS rank"], nearest=Nearest(2))
    assert Join(streams("e", "w"), (), "1s", ["e.x AS rank"], nearest=Nearest(1)).nearest == Nearest()
