"""The plan as JSON and in words, and what the option `layout` may say."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds import StreamJoin
from streamjoin_ds.errors import ArgumentError, ColumnError, LayoutError
from streamjoin_ds.plan import EXCHANGES, AskedLayout, Execution, Layout, Load, Plan
from streamjoin_ds.plan.explanation import explain
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind

COLUMNS = {
    "x": pa.float64(),
    "PM2.5": pa.float32(),
    "id": pa.string(),
    "when": pa.timestamp("ms"),
    "day": pa.date64(),
    "price": pa.decimal128(9, 2),
}
SECRETS = ("/very/secret/path", "hunter2", "s3cr3t-block-root", "s3cr3t-table-root", "s3cr3t-join-id")


def bound_join(names: tuple[str, ...] = ("e", "w")) -> BoundJoin:
    streams = [Stream(name, f"/very/secret/path/{name}.csv", delay="2s") for name in names[:-1]]
    streams.append(Stream(names[-1], Generator("sensor", {"password": "hunter2"})))
    e, w = names[0], names[-1]
    on = (
        f"abs({e}.x - {w}.x) <= 0.1 AND abs({w}.`PM2.5` - {e}.`PM2.5`) <= 5 AND {e}.id = {w}.id AND {e}.id <> {w}.id "
        f"AND {e}.`when` - {w}.`when` BETWEEN -INTERVAL 1 HOUR AND 0 AND abs({e}.day - {w}.day) <= INTERVAL 2 DAYS "
        f"AND abs({e}.price - {w}.price) <= 0.3"
    )
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), *COLUMNS.items()])
    return bind(Join(streams, on, dict.fromkeys(names, "15s") | {e: "6h"}), dict.fromkeys(names, schema))


def a_plan(layout: str = "2x3", **arguments: Any) -> Plan:
    bound = arguments.pop("bound", None) or bound_join()
    places = {"block_root": SECRETS[2], "table_root": SECRETS[3], "join_id": SECRETS[4]}
    return Plan(bound, Layout.parse(layout, len(bound.names)), 6, **{**places, **arguments})


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("foreign", [False, True])
def test_json_brings_back_an_equal_plan(exchange: str, foreign: bool) -> None:
    plan = a_plan(exchange=exchange, foreign=foreign, execution=Execution("scalar", 3))
    text = plan.to_json()
    again = Plan.from_json(text)
    assert again == plan
    assert again.to_json() == text
    assert json.loads(text) == json.loads(json.dumps(json.loads(text)))
    assert again.labels == plan.labels
    assert again.bound.fingerprint == plan.bound.fingerprint


def test_costs_travel_and_are_no_part_of_the_join() -> None:
    plan = a_plan(costs=(("probed_run_ns", 40.5), ("scanned_row_ns", 0.25)))
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.costs == plan.costs
    assert again.bound.fingerprint == a_plan().bound.fingerprint
    facts = json.loads(a_plan().to_json())
    del facts["costs"]  # the text of a version that measured none
    assert Plan.from_json(json.dumps(facts)).costs == ()


def test_the_same_text_is_the_same_object() -> None:
    text = a_plan().to_json()
    assert Plan.from_json(text) is Plan.from_json(text)


def test_n_streams() -> None:
    plan = a_plan("2x1x3", bound=bound_join(("a", "b", "c")))
    assert Plan.from_json(plan.to_json()) == plan
    assert "2x1x3 = 6 cells" in explain(plan)


def test_a_plan_is_checked() -> None:
    with pytest.raises(ArgumentError) as caught:
        a_plan(exchange="carrier pigeon")
    assert caught.value.name == "exchange"
    assert "pigeon" not in str(caught.value)
    with pytest.raises(LayoutError, match="3 group counts, but the join has 2 streams"):
        Plan(bound_join(), Layout((1, 1, 1)), 1)
    with pytest.raises(ArgumentError, match="partition"):
        Plan(bound_join(), Layout((1, 1)), 0)


def test_explain_says_what_is_done() -> None:
    lines = explain(a_plan()).splitlines()
    text = "\n".join(re.sub(" +", " ", line) for line in lines)
    assert "window e=6h, w=15s" in text
    assert "stream e: time ts, delay 2s, 7 columns travel (ts, x, PM2.5, id, when, day, price)" in text
    assert "find window of e and w [-6h, 15s] by exact integers" in text
    assert "find abs(e.x - w.x) <= 0.1 [-0.1, 0.1] by float64 subtraction" in text
    assert "find abs(e.`PM2.5` - w.`PM2.5`) <= 5 [-5.0, 5.0] by float64 subtraction" in text
    assert "find e.id = w.id [0, 0] by a hash, then the values" in text
    assert "[-1h, 0s] by exact integers" in text
    assert "[-2, 2] days by exact integers" in text
    assert "[-30, 30] of 1e-2 by exact integers" in text
    assert "decide e.id <> w.id" in text
    assert "layout 2x3 = 6 cells on 6 state partitions" in text
    assert "e 2 groups, each tuple in 3 cells" in text
    assert "w 3 groups, each tuple in 2 cells" in text
    assert "cost 2.50 stored rows for each row read" in text
    assert f"fingerprint {bound_join().fingerprint}" in text


def test_explain_weighs_copies_by_rates() -> None:
    load = Load((1.0, 3.0), (1000.0, 3000.0))
    text = explain(a_plan(), load, ["said", "found"])
    assert "rates       e 1/s (as given), w 3/s (from the first records)" in text
    assert "cost        2.25 stored rows" in text
    _, _, choices = text.partition("by the rows that a tuple meets\n")
    first = "2x3: 2.25 stored rows for each row read; a cell holds 1,500 rows, a tuple meets 312"
    assert choices.splitlines()[0].strip() == first
    assert "cost" not in explain(a_plan(), Load((0.0, 0.0), (0.0, 0.0)))


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("foreign", [False, True])
def test_explain_shows_no_path_and_no_options_value(exchange: str, foreign: bool) -> None:
    text = explain(a_plan(exchange=exchange, foreign=foreign))
    for secret in SECRETS:
        assert secret not in text
    assert ("watermark at each batch's start" in text) == foreign


def test_a_column_that_looks_like_an_operator_is_not_a_residual() -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("a<>b", pa.int8())])
    bound = bind(Join([Stream("e"), Stream("w")], "e.`a<>b` = w.`a<>b`", "1m"), {"e": schema, "w": schema})
    assert "decide" not in explain(Plan(bound, Layout((1, 1)), 1))


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ("e.x BETWEEN w.lo AND w.hi", "by the interval e.x <= w.hi and w.lo <= e.x"),
        ("abs(e.x - w.lo) <= 0.5 * w.hi", "by the interval e.x <= (w.hi * 0.5) + w.lo and w.lo - (w.hi * 0.5) <= e.x"),
        ("(e.x - w.lo) * (e.x - w.lo) <= 25", "e.x within 5 of w.lo"),
        ("e.ts >= w.ts - INTERVAL 3 SECONDS", "[-3s, 1m] between the event times, with the window"),
    ],
)
def test_explain_says_by_what_a_condition_finds(on: str, told: str) -> None:
    columns = pa.schema([("ts", pa.timestamp("us", tz="UTC")), *((name, pa.float64()) for name in ("x", "lo", "hi"))])
    text = explain(
        Plan(bind(Join([Stream("e"), Stream("w")], on, "1m"), {"e": columns, "w": columns}), Layout((1, 1)), 1)
    )
    assert told in text
    assert text.count("decide") == (2 if "BETWEEN" in on else 1)
    assert "every combination" not in text


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.duration("us"), pa.duration("ns"), pa.time64("us"), pa.time64("ns")], ids=str
)
@pytest.mark.parametrize("select", [["e.x"], ["e.ts"]])
def test_what_no_table_holds_is_refused_where_there_are_tables(kind: pa.DataType, select: list[str]) -> None:
    """`JoinEngine` has such columns, whether they are selected or only compared."""
    columns = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", kind)])
    bound = bind(Join([Stream("e"), Stream("w")], "e.x = w.x", "1m", select), {"e": columns, "w": columns})
    with pytest.raises(ColumnError, match="a Delta table cannot hold") as caught:
        Plan(bound, Layout((1, 1)), 1)
    assert caught.value.name == "e.x"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (None, AskedLayout("auto")),
        ("auto", AskedLayout("auto")),
        (" grid ", AskedLayout("grid")),
        ("ranges", AskedLayout("ranges")),
        ("2x3", AskedLayout("grid", Layout((2, 3)))),
    ],
)
def test_kinds_and_grids(text: str | None, asked: AskedLayout) -> None:
    assert AskedLayout.parse(text, 2) == asked


@pytest.mark.parametrize("text", ["", "range", "2", "2x2x2", "0x1", "Auto"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        AskedLayout.parse(text, 2)
    assert caught.value.name == "layout"


@pytest.mark.parametrize(
    ("on", "is_tied"),
    [
        ("abs(r.x - s.x) <= 1", True),
        ("r.n = s.n", True),
        ("r.t2 - s.t2 BETWEEN INTERVAL 0 SECONDS AND INTERVAL 1 SECOND", True),
        ("r.name = s.name", False),
        ("r.x < s.x", False),
    ],
)
def test_ranges_need_a_column_that_ties_all_streams(on: str, is_tied: bool) -> None:
    schema = {"ts": "timestamp[us]", "t2": "timestamp[us]", "x": "double", "n": "int64", "name": "string"}
    join = StreamJoin([Stream(name, schema=schema) for name in "rs"], on=on, window="1s")
    bound = bind(join, {stream.name: stream.schema for stream in join.streams})
    for kind in ("auto", "grid"):
        AskedLayout(kind).check(bound)
    if is_tied:
        AskedLayout("ranges").check(bound)
    else:
        with pytest.raises(LayoutError) as caught:
            AskedLayout("ranges").check(bound)
        assert caught.value.name == "layout"
        assert "grid" in caught.value.hint
