"""Calculated columns of a result (``expression AS name``), against the contract in plain Python."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.errors import ColumnError, PredicateError, PredicateSyntaxError
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.input_warnings import other_names
from streamjoin_ds.spec.join_parts import Calculated
from streamjoin_ds.spec.row_kind import HOWS, Nearest
from streamjoin_ds.testing.oracle import oracle_join
from tests.engine.scenarios import Scenario, cuts_of, scenarios
from tests.engine.test_oracle import SMALL
from tests.support.examples import examples

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("n", pa.int32()), ("s", pa.string())])
OF_BOTH = [
    "s0.t - s1.t AS lag",
    "coalesce(s1.note, s0.note, '-') AS any_note",
    "upper(s0.note) || s1.note AS both",
    "s0.note = s1.note AS is_same",
    "greatest(s0.t, s1.t) AS later",
    "CASE WHEN s0.note = 'n' THEN 1 WHEN s1.note IS NULL THEN 2.5 END AS kind",
]
OF_FIRST = ["upper(s0.note) AS loud", "s0.t + INTERVAL 1 SECOND AS after", "s0.note LIKE 'n%' AS is_n", "1 AS one"]


def plain(value: Any) -> Any:
    """Return a value of a result as the oracle has it."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value if isinstance(value, (str, bool)) or value is None else Fraction(value)


@examples(40)
@given(
    scenario=scenarios(streams=(2, 3), rows=14, extreme_times=False),
    how=st.sampled_from(HOWS),
    chosen=st.lists(st.sampled_from([*OF_BOTH, *OF_FIRST]), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 1000),
)
def test_calculated_columns_are_the_contracts(scenario: Scenario, how: str, chosen: list[str], seed: int) -> None:
    join = scenario.join
    if len(join.streams) > 2 or join.window.kind != "time":
        how = "inner"
    if how in ("semi", "anti"):
        chosen = [text for text in chosen if text in OF_FIRST] or OF_FIRST[:1]
    join = Join(join.streams, join.predicates, join.window, ["s0.t", *chosen], how=how)
    assert Join.from_facts(join.to_facts()) == join
    engine = JoinEngine(join, tuning=SMALL, chunk_rows=64)
    cuts = cuts_of(scenario, seed)
    found = [
        engine.push({name: pieces[push] for name, pieces in cuts.items() if push < len(pieces)})
        for push in range(max(len(pieces) for pieces in cuts.values()))
    ]
    result = pa.concat_tables([*found, engine.finish()])
    names = [one.name for one in join.select if isinstance(one, Calculated)]
    assert set(names) <= set(result.schema.names)
    keys = [name for name in result.schema.names if name.endswith("_seq") or name == "window_id"]
    rows = result.set_column(0, "none", pa.nulls(result.num_rows))
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int64()))
    wanted = {
        tuple(row[key] for key in keys): [plain(row[name]) for name in names]
        for row in oracle_join(join, scenario.tables)
    }
    given_rows = {tuple(row[key] for key in keys): [plain(row[name]) for name in names] for row in rows.to_pylist()}
    assert given_rows == {key: [floored(one) for one in values] for key, values in wanted.items()}


def floored(value: Any) -> Any:
    """Return a time of nanoseconds as a result has it, in microseconds."""
    is_fine = isinstance(value, Fraction) and value.denominator in (8, 25, 40, 50, 100, 125, 200, 250, 500, 1000)
    return Fraction(math.floor(value)) if is_fine else value


def streams(**options: Any) -> list[Stream]:
    return [Stream(name, schema=SCHEMA, **options) for name in "ew"]


def row(second: int, x: float | None, n: int | None = 1, s: str | None = "a") -> dict[str, Any]:
    return {"ts": datetime.fromisoformat(f"2024-01-01T00:00:{second:02}+00:00"), "x": x, "n": n, "s": s}


def test_columns_come_first_then_expressions_then_numbers() -> None:
    select = "abs(e.x - w.x) AS gap, w.s AS `who`, round(power(e.n, 2), 1) AS square, e.ts - w.ts AS lag, e.n"
    engine = JoinEngine(Join(streams(), "abs(e.x - w.x) <= 1", "9s", select))
    engine.push({"e": row(1, 0.25), "w": row(3, 0.5, s="b")})
    names = ["e_n", "who", "gap", "square", "lag", "e_seq", "w_seq", "event_time"]
    result = engine.push({"e": row(4, 1.5, None)})
    assert result.schema.names == names
    assert result.drop_columns(["event_time"]).to_pylist() == [
        {"e_n": None, "who": "b", "gap": 1.0, "square": None, "lag": 1_000_000, "e_seq": 1, "w_seq": 0}
    ]
    assert result.schema.field("gap").nullable


def test_only_what_an_expression_needs_travels() -> None:
    bound = bind(Join(streams(), "e.n = w.n", "1s", ["upper(e.s) AS loud"]), {"e": SCHEMA, "w": SCHEMA})
    assert [schema.names for schema in bound.schemas] == [["ts", "n", "s"], ["ts", "n"]]


def test_a_fingerprint_tells_expressions_apart_and_ways_of_writing_not() -> None:
    def made(*select: str) -> str:
        return bind(Join(streams(), "e.n = w.n", "1s", select), {"e": SCHEMA, "w": SCHEMA}).fingerprint

    assert made("e.x + w.x AS a") == made("w.x + (e.x) AS a")
    others = [("e.x - w.x AS a",), ("e.x + w.x AS b",), ("e.x", "w.x"), ("e.x + w.x AS a", "e.x - w.x AS b")]
    assert len({made("e.x + w.x AS a"), *(made(*one) for one in others)}) == 5


@pytest.mark.parametrize(
    ("select", "error", "why", "hint"),
    [
        (["abs(e.x)"], ColumnError, "'abs(e.x)' has no name in the result", "write abs(e.x) AS name"),
        (["CAST(e.x AS INT)"], ColumnError, "has no name in the result", "AS INT) AS name"),
        (["e.x - 1"], ColumnError, "has no name", "e.x - 1 AS name"),
        (
            ["foo(e.x) AS a"],
            PredicateSyntaxError,
            "cannot read the expression 'foo(e.x)': the function 'foo'",
            "functions",
        ),
        (
            ["e.x - y AS a"],
            PredicateSyntaxError,
            "not written as stream.column",
            "write it with its stream, such as e.y",
        ),
        (["v.x + 1 AS a"], ColumnError, "names the stream 'v'", "the streams are e, w"),
        (["e.y + 1 AS a"], ColumnError, "stream e has no column 'y'", "its columns are"),
        (["e.x + 1 AS E_x", "e.x"], ColumnError, "collides", "another name"),
        (["e.x + 1 AS a", "e.x + 2 AS a"], ColumnError, "collides", "another name"),
        (["e.x + 1 AS event_time"], ColumnError, "collides", "another name"),
        (["e.x + 1 AS `a b`"], ColumnError, "Delta does not allow", "another name"),
        (["e.s + 1 AS a"], PredicateError, "calculates string + number", "calculate with numbers"),
        (["NULL AS a"], PredicateError, "a NULL without a type", "select"),
    ],
)
def test_what_cannot_be_calculated_is_refused(select: list[str], error: type[Exception], why: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        Join(streams(), "e.n = w.n", "1s", select)
    assert why in caught.value.message  # type: ignore[attr-defined]
    assert hint in caught.value.hint  # type: ignore[attr-defined]


def test_a_row_of_one_stream_has_no_expression_of_the_other() -> None:
    with pytest.raises(ColumnError, match="has a tuple of e alone"):
        Join(streams(), "e.n = w.n", "1s", "e.x - w.x AS gap", how="anti")


def test_odd_columns_are_columns_still() -> None:
    odd = pa.schema([("ts", pa.int64()), ("PM2.5", pa.float64()), ("a b", pa.int64()), ("a-b", pa.int64())])
    select = ["e.PM2.5", "e.`a b` AS c", "e.a-b", "w.*"]
    join = Join([Stream("e", schema=odd), Stream("w", schema=SCHEMA)], (), "1s", select)
    assert join.select == tuple(select)


def test_names_that_delta_refuses_are_others_in_the_result() -> None:
    names = ("Temp (C)", "a = b;", "%RH", "PM2.5", "x_")
    odd = pa.schema([("ts", pa.int64()), *((name, pa.int64()) for name in names)])
    row = {"ts": 1, **{name: number for number, name in enumerate(names)}}
    for select in (None, ["e.*", "w.`Temp (C)`", "w.`a = b;` AS c"]):
        join = Join([Stream(name, schema=odd) for name in "ew"], "e.`Temp (C)` = w.`Temp (C)`", "1s", select)
        engine = JoinEngine(join)
        found = engine.push({"e": [row], "w": [row]}).select(
            ["e_Temp_C", "e_a_b", "e_%RH", "e_PM2.5", "e_x_", "w_Temp_C"]
        )
        assert found.to_pylist()[0] == dict(zip(found.column_names, (0, 1, 2, 3, 4, 0), strict=True))
    bound = bind(join, dict.fromkeys("ew", odd))
    assert [text.partition(" in the tables")[0] for text in other_names(bound)] == [
        "column 'Temp (C)' of e is e_Temp_C", "column 'a = b;' of e is e_a_b", "column 'Temp (C)' of w is w_Temp_C",
    ]  # fmt: skip
    both = pa.schema([("ts", pa.int64()), ("a b", pa.int64()), ("a_b", pa.int64())])
    with pytest.raises(ColumnError, match="collides"):
        bind(Join([Stream(name) for name in "ew"], (), "1s"), dict.fromkeys("ew", both))


def test_a_selection_as_one_text_is_parted_outside_of_brackets() -> None:
    join = Join(streams(), (), "1s", "e.x, power(e.x, 2) AS a, concat(e.s, ',') AS b")
    assert [str(one) for one in join.select] == ["e.x", "power(e.x, 2) AS `a`", "concat(e.s, ',') AS `b`"]
    assert dataclasses.replace(join.select[1]) == join.select[1]  # type: ignore[type-var]


def test_the_nearest_partner_is_calculated_with() -> None:
    join = Join(
        streams(), "abs(e.x - w.x) <= 9", "9s", "e.x - w.x AS gap", how="left", nearest=Nearest(1, "abs(e.x - w.x)")
    )
    tables = {name: [row(n, n * step % 7 / 2) for n in range(6)] for name, step in (("e", 3), ("w", 5))}
    engine = JoinEngine(join)
    engine.push(tables)
    found = engine.finish()["gap"].to_pylist()
    assert found == [one["gap"] for one in oracle_join(join, tables)]
