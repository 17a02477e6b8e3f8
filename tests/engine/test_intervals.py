"""Conditions whose bounds are columns, on windows of thousands of rows: the pairs are NumPy's, and few are tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import Join, Stream
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from tests.engine.streams import engine_options

TIME = pa.timestamp("us", tz="UTC")
POINTS = pa.schema([("ts", TIME), ("x", pa.float64()), ("y", pa.float64())])
INTERVALS = pa.schema([("ts", TIME), ("lo", pa.float64()), ("hi", pa.float64())])
ROWS = 4500
Columns = dict[str, npt.NDArray[Any]]
Pairs = npt.NDArray[np.bool_]

# Each text with its pairs, and how many pairs may be tested at most, as a share of all.
CASES: dict[str, tuple[str, Callable[[Columns, Columns], Pairs], float]] = {
    "points in intervals": (
        "e.x BETWEEN w.lo AND w.hi",
        lambda e, w: (e["x"] >= w["lo"]) & (e["x"] <= w["hi"]),
        0.05,
    ),
    "a width in a column": (
        "abs(e.x - w.lo) <= w.hi - w.lo",
        lambda e, w: abs(e["x"] - w["lo"]) <= w["hi"] - w["lo"],
        0.08,
    ),
    "a share": ("abs(e.x - w.lo) <= 0.01 * w.lo", lambda e, w: abs(e["x"] - w["lo"]) <= 0.01 * w["lo"], 0.08),
    "one side": ("e.x < w.lo - 950", lambda e, w: e["x"] < w["lo"] - 950, 0.05),
    "circles": (
        "(e.x - w.lo) * (e.x - w.lo) + (e.y - w.hi) * (e.y - w.hi) <= 100",
        lambda e, w: (e["x"] - w["lo"]) * (e["x"] - w["lo"]) + (e["y"] - w["hi"]) * (e["y"] - w["hi"]) <= 100,
        0.02,
    ),
}


def columns(seed: int, rows: int = ROWS) -> tuple[Columns, Columns]:
    """Return points, and intervals of which most are short and some are long."""
    chooser = np.random.default_rng(seed)
    numbers = np.arange(rows)
    common = {"_ts": numbers * 10, "_seq": numbers}
    lows = chooser.uniform(0, 1000, rows)
    lengths = 10 ** chooser.uniform(-4, 2, rows)
    lengths[::97] = -1.0  # empty: they match nothing
    points = {"x": chooser.uniform(0, 1000, rows), "y": chooser.uniform(0, 1000, rows)}
    points["x"][:200] = lows[:200]  # on the very bounds
    points["x"][200:400] = lows[200:400] + lengths[200:400]
    points["x"][7], points["x"][8], lows[9] = np.nan, np.inf, -np.inf
    return {**common, **points}, {**common, "lo": lows, "hi": lows + lengths}


def bound_of(on: str) -> BoundJoin:
    return bind(Join([Stream(name) for name in "ew"], on, "1h"), {"e": POINTS, "w": INTERVALS})


def batch_of(bound: BoundJoin, stream: int, values: Columns) -> pa.RecordBatch:
    schema = bound.tuple_schema(stream)
    return pa.RecordBatch.from_arrays([pa.array(values[name]) for name in schema.names], schema=schema)


def pairs_of(holds: Callable[[Columns, Columns], Pairs], points: Columns, intervals: Columns) -> list[tuple[int, int]]:
    with np.errstate(invalid="ignore"):
        found = holds({name: values[:, None] for name, values in points.items()}, intervals)
    return sorted(zip(*(places.tolist() for places in np.nonzero(found)), strict=True))


@pytest.mark.each_value
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("push", "options"),
    [
        (ROWS, {}),
        (1500, {}),
        (1500, {"threads": 2, "cores": ()}),
        (700, {"bucket_rows": 1024}),
        (190, {}),
    ],
)
def test_pairs_are_numpys_and_few_are_tested(case: str, push: int, options: dict[str, Any]) -> None:
    on, holds, share = CASES[case]
    bound, (points, intervals) = bound_of(on), columns(1)
    batches = batch_of(bound, 0, points), batch_of(bound, 1, intervals)
    join = WindowJoin(bound, **engine_options(**options))
    found = []
    for first in range(0, ROWS, push):
        for chunk in join.push({stream: batch.slice(first, push) for stream, batch in enumerate(batches)}):
            found += zip(chunk["e_seq"].to_pylist(), chunk["w_seq"].to_pylist(), strict=True)
    assert sorted(found) == pairs_of(holds, points, intervals)
    if push >= 1500:  # else most tuples meet the tail, which is scanned
        assert join.counters["candidates"] < share * ROWS**2


@pytest.mark.parametrize("first", ["points", "intervals"])
def test_long_intervals_do_not_slow_the_search_for_short_ones(first: str) -> None:
    """Whichever stream is in the window, a probe tests little more than it finds."""
    on, holds, _ = CASES["points in intervals"]
    bound, (points, intervals) = bound_of(on), columns(2)
    batches = [batch_of(bound, 0, points), batch_of(bound, 1, intervals)]
    join = WindowJoin(bound)
    order = (0, 1) if first == "points" else (1, 0)
    for _ in join.push({order[0]: batches[order[0]]}):
        pass
    found = sum(chunk.num_rows for chunk in join.push({order[1]: batches[order[1]]}))
    assert found == len(pairs_of(holds, points, intervals)) > ROWS
    assert join.counters["candidates"] < 4 * found
    told = "\n".join(join.explain())
    assert "sorted by e.x" in told
    assert ("parts by length" in told) == (first == "intervals")


def test_a_state_has_no_limits_in_it_and_goes_on_whatever_its_layout_was() -> None:
    """So states from before there were limits can be restored, too."""
    on, holds, _ = CASES["a width in a column"]
    points, intervals = columns(3, 1200)
    tables = {
        name: pa.table({"ts": pa.array(values["_ts"]).cast(TIME), **{n: values[n] for n in schema.names[1:]}})
        for name, values, schema in (("e", points, POINTS), ("w", intervals, INTERVALS))
    }
    join = Join([Stream("e", schema=POINTS), Stream("w", schema=INTERVALS)], on, "1h")
    found = []
    engine = JoinEngine(
        join, execution=Execution(index={"e": ["ts"], "w": "scan"})
    )  # layouts that any version could choose
    for part in range(4):
        result = engine.push({name: table.slice(part * 300, 300) for name, table in tables.items()})
        found += zip(result["e_seq"].to_pylist(), result["w_seq"].to_pylist(), strict=True)
        blob = engine.save()
        assert b"_key_" not in blob
        engine = JoinEngine(join)
        engine.restore(blob)
    assert sorted(found) == pairs_of(holds, points, intervals)


def test_three_streams_and_a_self_join_are_found_too() -> None:
    schema = pa.schema([("ts", TIME), ("x", pa.float64()), ("eps", pa.float64())])
    chooser = np.random.default_rng(4)
    rows = 600
    table = pa.table(
        {
            "ts": pa.array(np.arange(rows)).cast(TIME),
            "x": chooser.uniform(0, 300, rows),
            "eps": 10 ** chooser.uniform(-3, 1, rows),
        }
    )
    streams = [Stream(name, source="one.csv", time="ts", schema=schema) for name in "abc"]
    join = Join(streams, "abs(a.x - b.x) <= b.eps AND b.x BETWEEN c.x AND c.x + c.eps", "1h")
    engine = JoinEngine(join)
    found = []
    for first in range(0, rows, 150):
        result = engine.push(dict.fromkeys("abc", table.slice(first, 150)))
        found += zip(*(result[f"{name}_seq"].to_pylist() for name in "abc"), strict=True)
    x, eps = table["x"].to_numpy(), table["eps"].to_numpy()
    near = (abs(x[:, None] - x) <= eps) & ~np.eye(rows, dtype=np.bool_)
    inside = (x[:, None] >= x) & (x[:, None] <= x + eps) & ~np.eye(rows, dtype=np.bool_)
    wanted = [
        (a, b, c)
        for b in range(rows)
        for a in np.flatnonzero(near[:, b]).tolist()
        for c in np.flatnonzero(inside[b]).tolist()
        if a != c
    ]
    assert len(wanted) > 1000
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.float64(), pa.int64(), pa.bool_(), pa.date32()])
def test_null_meets_null_where_values_are_not_distinct(kind: pa.DataType) -> None:
    """And they are found: of many values few pairs are tested."""
    rows = 1200
    chooser = np.random.default_rng(5)
    numbers = chooser.integers(0, 2 if pa.types.is_boolean(kind) else 300, rows).tolist()
    texts = {pa.string(): str, pa.binary(): lambda n: str(n).encode()}
    make: Callable[[int], Any] = texts.get(kind, int)
    make = bool if pa.types.is_boolean(kind) else float if pa.types.is_floating(kind) else make
    values = [None if n % 50 == 7 else make(n) for n in numbers]
    if pa.types.is_floating(kind):
        values[:40] = [float("nan")] * 20 + [float("inf")] * 10 + [-0.0] * 10
    cells = pa.array(values, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(values, kind)
    schema = pa.schema([("ts", TIME), ("k", kind)])
    table = pa.table({"ts": pa.array(np.arange(rows)).cast(TIME), "k": cells}, schema=schema)
    streams = [Stream("e", schema=schema), Stream("w", schema=schema)]
    engine = JoinEngine(Join(streams, "e.k IS NOT DISTINCT FROM w.k", "1h"))
    found = [engine.push({"e": table}), engine.push({"w": table})]
    pairs = sorted(pair for one in found for pair in zip(*(one[f"{n}_seq"].to_pylist() for n in "ew"), strict=True))
    plain = [repr(value + 0.0) if isinstance(value, float) else repr(value) for value in values]
    wanted = [(i, j) for i in range(rows) for j in range(rows) if plain[i] == plain[j]]
    assert pairs == wanted
    assert engine.counters["candidates"] < (1.01 if pa.types.is_boolean(kind) else 0.05) * rows**2
    assert set(engine.counters["null_keys"].values()) == {0}


def test_constants_are_conditions() -> None:
    table = pa.table({"ts": pa.array([0, 1]).cast(TIME), "x": [1.0, 2.0], "y": [0.0, 0.0]}, schema=POINTS)
    streams = [Stream("e", schema=POINTS), Stream("w", schema=POINTS)]
    for on, count in (
        ("TRUE", 4),
        ("1 = 1 AND e.x = w.x", 2),
        ("FALSE", 0),
        ("NULL", 0),
        ("e.x = w.x AND 2 < 1", 0),
        ("1 = 1 OR e.x > w.x", 4),
    ):
        join = Join(streams, on, "1h")
        assert JoinEngine(join).push({"e": table, "w": table}).num_rows == count, on
        assert Join.from_facts(join.to_facts()) == join
    lonely = Join(streams, "FALSE", "1h", how="left")
    engine = JoinEngine(lonely)
    assert engine.push({"e": table, "w": table}).num_rows == 0
    assert engine.finish().num_rows == 2
