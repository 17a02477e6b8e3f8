"""Comparisons of plain columns: kernels decide them, but where a limit is not its value, and the pairs are the same."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.probe import residual
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.spec import Join, Stream, Table
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.testing.values import oracle_value
from tests.support.examples import examples

TIME = pa.timestamp("us", tz="UTC")
EPOCH = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
EXACT, LARGEST = 2**53, np.finfo(np.float64).max
NUMBERS = {
    pa.float64(): [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 0.1, float(EXACT), LARGEST, -LARGEST, math.inf, -math.inf,
                   math.nan],
    pa.float32(): [0.0, -0.0, 1.0, np.float32(0.1).item(), 1e-45, math.inf, -math.inf, math.nan],
    pa.int8(): [-1, 0, 1, 127],
    pa.int64(): [-1, 0, 1, EXACT - 1, EXACT, EXACT + 1, EXACT + 2, -EXACT - 1, 2**63 - 1, 2**63 - 2, -(2**63)],
    pa.uint64(): [0, 1, EXACT, EXACT + 1, 2**63, 2**64 - 1, 2**64 - 2],
    pa.decimal128(38, 0): [Decimal(n) for n in (-1, 0, 1, EXACT + 1, EXACT + 2, 10**38 - 1)],
    pa.decimal128(9, 2): [Decimal(n).scaleb(-2) for n in (-100, 0, 1, 100, 10)],
}  # fmt: skip
TIMES = {
    TIME: [EPOCH + timedelta(microseconds=n) for n in (0, 1, -1)]
    + [datetime(year, 1, 1, microsecond=n, tzinfo=timezone.utc) for year in (1, 2256, 9999) for n in (0, 1)]
}
CONDITIONS = ["e.x <= w.y", "e.x < w.y", "e.x >= w.y", "e.x BETWEEN w.y AND w.z", "e.x <= w.y AND w.z <= e.u",
              "e.x >= w.y AND e.x < w.z"]  # fmt: skip
SMALL = dataclasses.replace(DEFAULT, tail=dataclasses.replace(DEFAULT.tail, rows=4, most_arrived_rows=4))


@st.composite
def sides(draw: st.DrawFn) -> tuple[pa.Schema, list[list[dict[str, Any]]]]:
    """Draw the types of columns that can be compared, and rows of both streams; most often without extremes."""
    kinds = draw(st.sampled_from([NUMBERS, NUMBERS, TIMES]))
    names = ("x", "y", "z", "u")
    chosen = {name: draw(st.sampled_from(list(kinds))) for name in names}
    is_tame = draw(st.booleans())
    values = {
        name: st.sampled_from(kinds[kind][:3] if is_tame else [*kinds[kind], None]) for name, kind in chosen.items()
    }
    rows = st.lists(st.fixed_dictionaries(values), min_size=1, max_size=12)
    return pa.schema([("ts", TIME), *chosen.items()]), [draw(rows), draw(rows)]


def batch_of(bound: Any, stream: int, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = bound.tuple_schema(stream)
    values = {"_ts": list(range(len(rows))), "_seq": list(range(len(rows)))}
    columns = [values.get(field.name) or [row[field.name] for row in rows] for field in schema]
    kept = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(kept, schema=schema)


@examples(80)
@given(drawn=sides(), on=st.sampled_from(CONDITIONS), push=st.integers(1, 12), tuning=st.sampled_from([DEFAULT, SMALL]))
def test_pairs_are_those_of_the_values(drawn: Any, on: str, push: int, tuning: Any) -> None:
    schema, rows = drawn
    bound = bind(Join([Stream(name) for name in "ew"], on, "1h"), {"e": schema, "w": schema})
    batches = [batch_of(bound, stream, own) for stream, own in enumerate(rows)]
    join = WindowJoin(bound, tuning=tuning)
    found = []
    for first in range(0, max(map(len, rows)), push):
        for chunk in join.push({stream: batch.slice(first, push) for stream, batch in enumerate(batches)}):
            found += zip(chunk["e_seq"].to_pylist(), chunk["w_seq"].to_pylist(), strict=True)
    expression = parse_condition(on)
    wanted = [
        (i, j)
        for i, e in enumerate(rows[0])
        for j, w in enumerate(rows[1])
        if oracle_value(bound.join, expression, {"e": e, "w": w}) is True
    ]
    assert sorted(found) == wanted


PLAIN = {
    "float64": (pa.float64(), [0.5, -0.0, 0.0, 2.0], math.inf),
    "float32": (pa.float32(), [0.5, -0.0, 0.0, 2.0], math.nan),
    "int64": (pa.int64(), [0, 1, 2, 3], EXACT + 1),
    "uint64": (pa.uint64(), [0, 1, 2, 3], 2**64 - 1),
    "decimal": (pa.decimal128(20, 0), [Decimal(n) for n in range(4)], Decimal(EXACT)),
    "timestamp": (TIME, [EPOCH + timedelta(microseconds=n) for n in range(4)], TIMES[TIME][-1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("form", ["inner", "half open", "table", "three streams", "sum"])
def test_a_residual_decides_again_only_beside_values_that_are_no_limits(
    kind: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what makes bulk joins of intervals cheap; a value that float64 has not brings the decision back."""
    of, few, extreme = PLAIN[kind]
    schema = pa.schema([("ts", TIME), ("x", of), ("y", of)])
    asked = []
    holds = residual.holds
    monkeypatch.setattr(residual, "holds", lambda *args: asked.append(args[0]) or holds(*args))  # type: ignore[func-returns-value]

    def rows(values: list[Any]) -> pa.Table:
        times = pa.array(range(len(values)), pa.int64()).cast(TIME)
        return pa.table({"ts": times, "x": pa.array(values, of), "y": pa.array(values[::-1], of)}, schema=schema)

    def count(values: list[Any], others: list[Any]) -> int:
        options: dict[str, Any] = {"reduce": {"n": "count(*)"}} if form == "sum" else {}
        names = "ewv" if form == "three streams" else "ew"
        on = (
            "e.x >= w.x AND e.x "
            + ("< w.y" if form in ("half open", "table") else "<= w.y")
            + (" AND v.x <= w.x" if form == "three streams" else "")
        )
        if form == "table":
            bare = pa.schema([schema.field("x"), schema.field("y")])
            engine = JoinEngine(Join([Stream("e", schema=schema)], on, tables=[Table("w", schema=bare)]))
            engine.use_table("w", rows(others).drop_columns(["ts"]))
            return int(engine.push({"e": rows(values)}).num_rows)
        engine = JoinEngine(Join([Stream(name, schema=schema) for name in names], on, "1h", **options))
        found = engine.push({name: rows(values if name == "e" else others) for name in names})
        if form == "sum":
            return sum(engine.finish()["n"].to_pylist() + found["n"].to_pylist())
        return int(found.num_rows)

    order = few * 30
    tame = count(order, order)
    assert tame > 0
    assert not asked
    for values, others in (([extreme, *order, extreme], order), (order, [extreme, *order, extreme])):
        asked.clear()
        assert count(values, others) >= tame
        assert asked


def test_a_bucket_grid_tells_of_values_that_are_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its zone map covers all rows, also those that came into it push by push."""
    schema = pa.schema([("ts", TIME), *((name, pa.float64()) for name in ("x", "y", "lo", "hi"))])
    on = "abs(e.x - w.x) <= 0.2 AND abs(e.y - w.y) <= 0.2 AND e.lo <= w.hi"
    bound = bind(Join([Stream(name) for name in "ew"], on, "1h"), {"e": schema, "w": schema})
    asked: list[Any] = []
    holds = residual.holds
    monkeypatch.setattr(residual, "holds", lambda *args: (asked.append(args), holds(*args))[1])
    chooser, rows, push = np.random.default_rng(1), 2600, 1300
    columns = [{name: chooser.uniform(0, 20, rows) for name in ("x", "y", "lo", "hi")} for _ in "ew"]
    columns[0]["lo"][rows - 5] = columns[1]["hi"][rows - 7] = math.inf
    columns[1]["hi"][rows - 9] = LARGEST  # it stands for infinity among limits
    columns[0]["x"][rows - 5], columns[0]["y"][rows - 5] = 3.0, 3.0
    for number in (7, 9):
        columns[1]["x"][rows - number], columns[1]["y"][rows - number] = 3.0, 3.0
    join, found = WindowJoin(bound, bucket_rows=256), []
    for first in range(0, rows, push):
        part = slice(first, first + push)
        given_rows = {}
        for stream, own in enumerate(columns):
            kept = {"_ts": np.arange(rows), "_seq": np.arange(rows), **own}
            fields = bound.tuple_schema(stream)
            given_rows[stream] = pa.RecordBatch.from_arrays(
                [pa.array(kept[n][part]) for n in fields.names], schema=fields
            )
        assert bool(asked) is False
        for chunk in join.push(given_rows):
            found += zip(chunk["e_seq"].to_pylist(), chunk["w_seq"].to_pylist(), strict=True)
        assert first == 0 or any(window.is_grid for window in join.windows)
    assert asked  # in the last push
    e, w = ({name: values[:, None] for name, values in columns[0].items()}, columns[1])
    wanted = (abs(e["x"] - w["x"]) <= 0.2) & (abs(e["y"] - w["y"]) <= 0.2) & (e["lo"] <= w["hi"])
    assert sorted(found) == list(zip(*(places.tolist() for places in np.nonzero(wanted)), strict=True))
    assert (rows - 5, rows - 7) in found
    assert (rows - 5, rows - 9) not in found
