"""Computed columns of drawn expressions, read from files cut anywhere, are what DuckDB computes of the same rows.

Left out is where the docs say that the two differ: divisions by zero, comparisons with NaN, CAST to whole numbers of
floats and of texts such as 2.5 and 1e3, how CAST writes floats, and the names of truth values.
"""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spec import Join, Stream, bind, bound_from_facts
from tests.source.feeds import START_US, iso, steps
from tests.support.examples import examples

KINDS = {"i": pa.int64(), "j": pa.int64(), "x": pa.float64(), "y": pa.float64(), "s": pa.string(), "n": pa.string()}
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), *KINDS.items()])
W = Stream("w", schema={"ts": "timestamp[us]", "y": "double"})
_VALUES: dict[str, Sequence[Any]] = {
    "i": (0, 1, -1, 2, 7, -13, 100, None),
    "j": (0, 1, -2, 3, 12, None),
    "x": (0.0, 1.0, -0.5, 2.25, 1e6, -1e-3, None),
    "y": (0.0, 1.0, 0.25, -3.0, 0.1, None),
    "s": ("a", "b", "A-b", "ab-ba-a", " a ", "\u00e4B", "b%a_", None),
    "n": ("0", "1", "-7", "12", "a", "1x", " 5", None),
}


def drawn_rows(dice: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {"ts": iso(START_US + 1_000_000 * k), "k": k, **{name: dice.choice(given) for name, given in _VALUES.items()}}
        for k in range(count)
    ]


def _written(*parts: Any) -> st.SearchStrategy[str]:
    """Return expressions of a form: texts stand as they are, in brackets as a whole."""
    drawn = (st.just(part) if isinstance(part, str) else part for part in parts)
    return st.tuples(*drawn).map("".join)


def expressions() -> st.SearchStrategy[str]:
    """Return expressions that both understand, of whole numbers, floats, texts and truth values."""
    whole = st.sampled_from(["i", "j", "3", "0", "-2"])
    real = st.sampled_from(["x", "y", "0.5", "CAST(i AS DOUBLE)"])
    text = st.sampled_from(["s", "n", "'a'", "'b-c'", "''"])
    truth = st.sampled_from(["i IS NULL", "x > 0.25", "s IS NOT DISTINCT FROM n", "s LIKE 'a%'", "i = j"])
    places = st.integers(1, 4).map(str)
    for _ in range(2):
        number = st.one_of(whole, real)
        same = [whole, real, text]
        chosen = [
            _written("CASE WHEN ", truth, " THEN ", one, " WHEN ", truth, " THEN ", one, " ELSE ", one, " END")
            for one in same
        ]
        known = [_written("coalesce(", one, ", ", one, ")") for one in same]
        without = [_written("nullif(", one, ", ", one, ")") for one in same]
        ends = [_written(name, "(", one, ", ", one, ")") for one in same[:2] for name in ("greatest", "least")]
        more_whole = st.one_of(
            whole,
            _written("(", whole, st.sampled_from([" + ", " - ", " * "]), whole, ")"),
            _written("abs(", whole, ")"),
            _written("length(", text, ")"),
            _written(st.sampled_from(["floor(", "ceil("]), real, ")"),
            _written("if(", truth, ", ", whole, ", ", whole, ")"),
            st.sampled_from(["TRY_CAST(n AS BIGINT)", "CAST(n AS BIGINT)", "TRY_CAST(trim(n) AS BIGINT)"]),
            chosen[0], known[0], without[0], *ends[:2],
        )  # fmt: skip
        more_real = st.one_of(
            real,
            _written("(", real, st.sampled_from([" + ", " - ", " * "]), number, ")"),
            _written("(", number, " / nullif(", real, ", 0))"),
            _written("sqrt(abs(", number, "))"),
            st.sampled_from(["TRY_CAST(n AS DOUBLE)", "CAST(n AS DOUBLE)"]),
            _written(st.sampled_from(["coalesce(", "greatest(", "least(", "nullif("]), number, ", ", number, ")"),
            chosen[1], known[1], without[1], *ends[2:],
        )  # fmt: skip
        more_text = st.one_of(
            text,
            _written(st.sampled_from(["upper(", "lower(", "trim(", "ltrim(", "rtrim("]), text, ")"),
            _written("replace(", text, ", 'a', ", text, ")"),
            _written("substr(", text, ", ", places, ", ", places, ")"),
            _written("(", text, " || ", text, ")"),
            _written("split_part(", text, ", '-', ", places, ")"),
            _written(st.sampled_from(["lpad(", "rpad("]), text, ", ", places, ", '*')"),
            _written("regexp_extract(", text, ", '([a-z]+)', 1)"),
            st.just("CAST(i AS STRING)"),
            chosen[2], known[2], without[2],
        )  # fmt: skip
        compared = st.sampled_from([" = ", " <> ", " < ", " <= ", " > ", " >= ", " IS DISTINCT FROM "])
        more_truth = st.one_of(
            truth,
            _written("(", number, compared, number, ")"),
            _written("(", text, compared, text, ")"),
            _written("(", st.one_of(number, text), st.sampled_from([" IS NULL", " IS NOT NULL"]), ")"),
            _written("(", text, st.sampled_from([" LIKE '%a'", " NOT LIKE '_-%'"]), ")"),
            _written("(", truth, st.sampled_from([" AND ", " OR "]), truth, ")"),
            _written("(NOT ", truth, ")"),
            _written("(", number, " BETWEEN ", number, " AND ", number, ")"),
            _written("(", text, st.sampled_from([" IN ('a', 'b')", " NOT IN ('1', 'a')"]), ")"),
        )
        whole, real, text, truth = more_whole, more_real, more_text, more_truth
    return st.one_of(whole, real, text, truth)


def is_same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, (float, Decimal)) or isinstance(other, (float, Decimal)):
        return math.isclose(float(one), float(other), rel_tol=1e-12, abs_tol=1e-12)
    return bool(one == other)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".parquet":
        times = [{**row, "ts": START_US + 1_000_000 * row["k"]} for row in rows]
        plain = pa.schema([SCHEMA.field(0).with_type(pa.int64()), *list(SCHEMA)[1:]])
        table = pa.Table.from_pylist(times, plain)
        pq.write_table(table.set_column(0, SCHEMA.field(0), table.column(0).cast(SCHEMA.field(0).type)), path)
    elif path.suffix == ".json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, SCHEMA.names)
            writer.writeheader()
            writer.writerows(rows)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def fails(duck: duckdb.DuckDBPyConnection, expression: str, number: int) -> bool:
    """Whether DuckDB refuses an expression for a row."""
    try:
        duck.sql(f"SELECT {expression} FROM given WHERE k = {number}").fetchall()
    except duckdb.Error:
        return True
    return False


@given(
    st.lists(expressions(), min_size=1, max_size=4),
    st.sampled_from(["csv", "json", "parquet"]),
    st.integers(0, 1 << 30),
)
@examples(120)
def test_drawn_columns_are_what_duckdb_computes(
    tmp_path_factory: pytest.TempPathFactory, duck: Any, asked: list[str], ending: str, seed: int
) -> None:
    dice = random.Random(seed)
    rows = drawn_rows(dice, 16)
    path = tmp_path_factory.mktemp("drawn") / f"e.{ending}"
    write(path, rows)
    columns = {f"c{number}": text for number, text in enumerate(asked)}
    stream = Stream("e", path, schema=SCHEMA, columns=columns)
    join = Join([stream, W], "e.ts = w.ts", "10s", select=["e.k", *(f"e.{name}" for name in columns)])
    try:
        bound = bound_from_facts(bind(join, {"e": SCHEMA, "w": W.schema}).to_facts())
    except PredicateError as error:  # products of whole numbers are exact, and have 38 digits at most
        if "a DECIMAL has 38" in error.message:
            return
        raise
    feed = open_feed(bound.join.streams[0], bound.read_schemas[0])
    positions = steps(feed, feed.initial(), dice.choice((1, 5, 100)))
    chunks = [chunk for low, high in pairwise(positions) for chunk in feed.read(low, high)]
    found = {row["_seq"]: row for chunk in chunks for row in chunk.tuples.to_pylist()}
    rejected = {reject.seq: reject.column for chunk in chunks for reject in chunk.rejects}
    assert sorted([*found, *rejected]) == list(range(len(rows)))
    duck.register("given", pa.Table.from_pylist([{name: row[name] for name in ("k", *KINDS)} for row in rows]))
    tried = ", ".join(f"TRY({text}) AS {name}" for name, text in columns.items())
    right = duck.sql(f"SELECT {tried} FROM given ORDER BY k").to_arrow_table().to_pylist()
    for number, row in found.items():
        for name, text in columns.items():
            assert is_same(row[name], right[number][name]), (text, rows[number], row[name], right[number][name])
            if row[name] is None and "CAST(" in text.replace("TRY_CAST(", ""):
                assert not fails(duck, text, number), (text, rows[number])
    for number, column in rejected.items():
        assert fails(duck, columns[column], number), (columns[column], rows[number])
