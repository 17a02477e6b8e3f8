"""Conditions decided on whole columns, against two oracles: plain Python, row by row, and DuckDB."""

from __future__ import annotations

import json
import math
import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec import Expression, Join, Stream
from streamjoin_ds.spec.bound.terms import rejecting_columns
from streamjoin_ds.spec.expression.evaluation import holds
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.spec.expression.tree import COMPARISONS, columns_of, expression_facts, expression_from, normalised
from streamjoin_ds.spec.expression.types import typed_condition
from streamjoin_ds.testing.values import oracle_value
from tests.support.conditions import EPOCH, NUMBERS, SCHEMA, conditions, table
from tests.support.examples import examples

QUICK = examples(300)
JOIN = Join([Stream("e", time="none"), Stream("w", time="none")], (), "1s")


def decided(expression: Expression, rows: pa.Table) -> list[bool]:
    """Return what the package decides, row by row."""
    condition = typed_condition(normalised(expression), lambda column: SCHEMA.field(column.name).type)
    batch = rows.combine_chunks().to_batches()[0]
    return holds(condition, rows.num_rows, lambda column: batch.column(column.name)).tolist()


def expected(expression: Expression, rows: pa.Table) -> list[bool]:
    """Return what plain Python decides, row by row."""
    return [oracle_value(JOIN, expression, {"e": row}) is True for row in rows.to_pylist()]


@QUICK
@given(expression=conditions(), seed=st.integers(0, 2**32))
def test_every_condition_is_decided_as_plain_python_does(expression: Expression, seed: int) -> None:
    rows = table(seed, 60)
    try:
        found = decided(expression, rows)
    except PredicateError as error:
        if "76 digits" in error.message:  # products of 64-bit columns need too many digits
            return
        raise
    assert found == expected(expression, rows)


@QUICK
@given(expression=conditions(), seed=st.integers(0, 2**32))
def test_what_is_printed_and_what_is_sent_means_the_same(expression: Expression, seed: int) -> None:
    rows = table(seed, 30)
    wanted = expected(expression, rows)
    assert expected(parse_condition(str(expression)), rows) == wanted
    assert expression_from(json.loads(json.dumps(expression_facts(expression)))) == expression
    normal = normalised(expression)
    assert expected(normal, rows) == wanted
    assert normalised(normal) == normal
    again = normalised(parse_condition(str(normal)))  # sums of literals have become literals
    assert expected(again, rows) == wanted
    assert normalised(parse_condition(str(again))) == again


@QUICK
@given(expression=conditions(), seed=st.integers(0, 2**32))
def test_a_null_in_a_rejecting_column_keeps_a_condition_from_being_true(expression: Expression, seed: int) -> None:
    normal = normalised(expression)
    for column in rejecting_columns(normal):
        assert column in columns_of(normal)
        rows = table(seed, 30)
        place = rows.schema.get_field_index(column.name)
        rows = rows.set_column(place, rows.schema.field(place), pa.nulls(30, rows.schema.field(place).type))
        assert not any(expected(expression, rows))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("e.i64 = 1 AND e.f < 2", {"i64", "f"}),
        ("e.i64 = 1 OR e.f < 2", set()),
        ("e.i64 = 1 OR e.i64 + e.f < 2", {"i64"}),
        ("e.i64 IS NULL", set()),
        ("e.i64 + e.f IS NOT NULL", {"i64", "f"}),
        ("NOT (e.i64 IS NULL OR e.f = 1)", {"i64", "f"}),
        ("NOT (e.b AND e.c)", set()),
        ("e.b AND NOT e.c", {"b", "c"}),
        ("(e.i64 = 1 AND e.f = 1) IS NULL", set()),
    ],
)
def test_which_nulls_are_hopeless_is_known(text: str, found: set[str]) -> None:
    assert {column.name for column in rejecting_columns(normalised(parse_condition(text)))} == found


SAME = [
    ("e.f > 1", "1 < e.f", "NOT e.f <= 1", "NOT (1 >= e.f)"),
    ("e.f BETWEEN 1 AND 2", "e.f >= 1 AND e.f <= 2.0", "NOT (e.f < 1 OR e.f > 2)"),
    ("e.f IN (1, 2)", "e.f = 2 OR e.f = 1", "2 = e.f OR (e.f = 1 OR e.f = 2.00)", "NOT e.f NOT IN (2, 1)"),
    ("e.f <> 0.1", "NOT 0.10 = e.f", "e.f <> 1e-1", "e.f != .1"),
    ("e.i32 + e.i64 = 3", "3 = e.i64 + e.i32"),
    ("e.b AND NOT e.c", "NOT (e.c OR NOT e.b)", "e.b AND (e.b AND NOT NOT NOT e.c)"),
]


@pytest.mark.parametrize("texts", SAME, ids=[texts[0] for texts in SAME])
def test_ways_of_writing_a_meaning_are_one(texts: tuple[str, ...]) -> None:
    facts = {json.dumps(expression_facts(normalised(parse_condition(text)))) for text in texts}
    assert len(facts) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "e.i64 + e.j64 > 9223372036854775807",
        "e.i64 * e.j64 * e.i32 = -9223372036854775808 * -9223372036854775808 * -2147483648",
        "e.i64 - e.j64 < -9223372036854775808 AND -e.i64 > 9223372036854775807",
        "abs(e.i64) = 9223372036854775808",
        "e.i64 % -1 = 0",
        "(e.i64 + e.j64) % 7 = 0",
        "e.d5 * e.d5 * e.d2 > 0.000000000001",
        "e.i64 + 0.00001 > e.d5",
    ],
)
def test_exact_numbers_neither_wrap_nor_overflow(text: str) -> None:
    expression, rows = parse_condition(text), table(1, 20_000)
    found = decided(expression, rows)
    assert found == expected(expression, rows)
    assert any(found)


def test_numbers_are_compared_with_floats_as_float64() -> None:
    rows = table(0, 1).to_pylist()[0] | {"i64": 2**53 + 1, "f": 2.0**53}
    one = pa.Table.from_pylist([rows], schema=SCHEMA)
    assert decided(parse_condition("e.i64 = e.f"), one) == [True]
    assert decided(parse_condition("e.i64 = 9007199254740992"), one) == [False]


@pytest.mark.parametrize("op", COMPARISONS)
def test_nan_is_unknown_under_not_too(op: str) -> None:
    one = pa.Table.from_pylist([{"f": math.nan, "g": 1.0}], schema=SCHEMA)
    for text in (f"e.f {op} e.g", f"e.g {op} e.f", f"e.f {op} e.f", f"e.f {op} 1"):
        assert decided(parse_condition(text), one) == decided(parse_condition(f"NOT ({text})"), one) == [False]
        assert decided(parse_condition(f"({text}) IS NULL"), one) == [True]


DUCKDB = [
    "i / j > 0.3 AND i % j <> 0",
    "i % j = -1 OR j % 3 = 2",
    "x / i > 1 OR x % 0.7 < 0.2",
    "NOT (i > j OR s = 'a')",
    "i IN (1, NULL, 3) OR s IN ('b', t)",
    "NOT i IN (1, NULL) OR i = 3",
    "NOT (i IN (1, 2) AND x IS NOT NULL)",
    "i BETWEEN j AND x OR x NOT BETWEEN -1.5 AND j",
    "(i = j) = (s = t)",
    "(i = j) IS NULL AND s IS NOT NULL",
    "s < t OR s >= 'it''s'",
    "abs(i - j) * 2 + 1 <= abs(x)",
    "d * d - e > 0.015 AND d <> 1",
    "d = i OR d > 0.10",
    "d > x OR e % 0.07 = 0.01",
    "b OR NOT c AND i > 0",
    "b = c AND b <> (i > 0)",
    "ts > TIMESTAMP '2024-02-29 12:00:00' AND ts < TIMESTAMP '2024-02-29 13:00:00'",
    "ts - seen > INTERVAL 90 SECOND OR ts + INTERVAL 1 HOUR < seen",
    "day > ts OR day = DATE '2024-02-29'",
    "-i > x AND -(i + j) < 2",
    "NULL OR i > 0",
    "i > NULL OR NOT (s = NULL AND i > 5)",
]


@pytest.mark.parametrize("text", DUCKDB)
def test_text_means_what_it_means_to_duckdb(text: str) -> None:
    chooser = random.Random(text)
    moments = [EPOCH + timedelta(seconds=n) for n in (-60, 0, 1, 90, 3600, 7200)]
    of: dict[str, tuple[pa.DataType, list[Any]]] = {
        "i": (pa.int32(), NUMBERS),
        "j": (pa.int64(), NUMBERS),
        "x": (pa.float64(), [-1.5, 0.0, 0.3, 0.7, 1.0, 2.0, 1e300, math.inf]),
        "d": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (-100, -10, 1, 10, 11, 100)]),
        "e": (pa.decimal128(9, 3), [Decimal(n) / 1000 for n in (-100, 0, 10, 80, 1000)]),
        "s": (pa.string(), ["", "a", "b", "it's", "z"]),
        "t": (pa.string(), ["", "a", "b", "\u00e4"]),
        "b": (pa.bool_(), [True, False]),
        "c": (pa.bool_(), [True, False]),
        "ts": (pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in moments]),
        "seen": (pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in moments]),
        "day": (pa.date32(), [date(2024, 2, 29), date(2024, 3, 1)]),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in of.items()])
    drawn = {name: chooser.choices([*choices, None], k=3000) for name, (_, choices) in of.items()}
    rows = pa.table(drawn, schema=schema)
    with duckdb.connect() as connection:
        connection.execute("SET ieee_floating_point_ops = false; SET error_on_division_by_zero = false")
        connection.register("r", rows.append_column("n", pa.array(range(3000))))
        wanted = [n for (n,) in connection.execute(f"SELECT n FROM r WHERE {text} ORDER BY n").fetchall()]
    condition = typed_condition(normalised(parse_condition(text, "r")), lambda column: schema.field(column.name).type)
    batch = rows.to_batches()[0]
    mask = holds(condition, 3000, lambda column: batch.column(column.name))
    assert mask.nonzero()[0].tolist() == wanted
    assert 0 < len(wanted) < 3000
