"""The functions of expressions, beside Spark, DuckDB and plain Python, on extremes; and what is refused."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from streamjoin_ds.errors import PredicateError, PredicateSyntaxError
from streamjoin_ds.spec.bound.terms import rejecting_columns
from streamjoin_ds.spec.expression.calculation import output_type, output_values
from streamjoin_ds.spec.expression.parser import parse_condition, parse_value
from streamjoin_ds.spec.expression.tree import normalised
from streamjoin_ds.spec.expression.types import typed_condition, typed_value
from streamjoin_ds.spec.functions import FUNCTIONS
from streamjoin_ds.testing.values import CHOOSING, PLAIN
from tests.rooms import ROOT
from tests.spec.functions.test_parts import LIKE_DUCKDB
from tests.support.extremes import EXPRESSIONS, SCHEMA, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# floor() and ceil() of a float64 that no BIGINT holds: Spark gives the nearest BIGINT, and 0 for NaN.
_UNLIKE_SPARK = ("floor(y)", "ceil(x / 3)")


def values(text: str, rows: pa.Table | None = None) -> pa.Array:
    """Return the values of an expression over rows, as a column of a result."""
    return _values(text) if rows is None else _of(text, rows)


@cache
def _values(text: str) -> pa.Array:
    return _of(text, table())


def _of(text: str, rows: pa.Table) -> pa.Array:
    expression = parse_value(text, "e")
    node = typed_value(normalised(expression), lambda column: rows.schema.field(column.name).type)
    batch = rows.combine_chunks().to_batches()[0]
    kind = output_type(expression, node)
    found = output_values(node, kind, rows.num_rows, lambda column: batch.column(column.name))
    assert found.type == kind
    return found


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values that Python can hold: instants of the year 0 are none."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


_IN_LIBRARIES = re.compile("sin|cos|tan|atan2|exp|ln|pow")  # of which the last digits differ


def is_same(one: Any, other: Any, text: str) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        one, other = float(one), float(other)
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or (bool(_IN_LIBRARIES.match(text)) and math.isclose(one, other, rel_tol=4e-15))
    return bool(one == other)


@pytest.mark.long
def test_functions_mean_what_they_mean_to_spark(spark: SparkSession) -> None:
    spark.createDataFrame(table()).createOrReplaceTempView("extremes")
    asked = [text for text in EXPRESSIONS if text not in _UNLIKE_SPARK]
    columns = ", ".join(f"{text.replace('CAST(', 'try_cast(')} AS c{n}" for n, text in enumerate(asked))
    found = spark.sql(f"SELECT {columns} FROM extremes").toArrow()
    for place, text in enumerate(asked):
        pairs = zip(plain(values(text)), plain(found.column(place)), strict=True)
        assert [(one, other) for one, other in pairs if not is_same(one, other, text)] == [], text


# DuckDB's concat leaves out nulls, its CAST of texts and numbers has other rules, and its NaN is equal to itself.
_LIKE_DUCKDB = re.compile(
    r"(greatest|least|coalesce|nullif|ifnull|CASE|s (NOT )?LIKE|radians|degrees|exp|s \|\||date_trunc"
    r"|extract\((year|quarter|month|week|doy|hour|minute)|CAST\((b AS (INT|DOUBLE)|d AS DOUBLE))"
)
_UNLIKE_DUCKDB = ("s LIKE n", "extract(hour FROM t - u)", "coalesce(i, d, 1)", "s LIKE s ESCAPE '!'")


def test_functions_mean_what_they_mean_to_duckdb() -> None:
    rows = table().append_column("k", pa.array(range(table().num_rows)))
    asked = [text for text in EXPRESSIONS if _LIKE_DUCKDB.match(text) and text not in _UNLIKE_DUCKDB]
    assert len(asked) > 30
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("extremes", rows)
        columns = ", ".join(f"{text} AS c{n}" for n, text in enumerate(asked))
        found = connection.sql(f"SELECT {columns} FROM extremes ORDER BY k").to_arrow_table()
    for place, text in enumerate(asked):
        pairs = zip(plain(values(text)), plain(found.column(place)), strict=True)
        assert [(one, other) for one, other in pairs if not is_same(one, other, text)] == [], text


def test_every_function_has_a_twin_an_example_and_a_line_in_the_docs() -> None:
    assert sorted(FUNCTIONS) == sorted([*PLAIN, *CHOOSING])
    docs = (ROOT / "ARCHITECTURE.md").read_text()
    for function in FUNCTIONS.values():
        assert f"`{function.written.replace('|', chr(92) + '|')}`" in docs, function.name
        examples = ["distance_m", *EXPRESSIONS, *LIKE_DUCKDB]
        assert any(function.name in text.lower() for text in examples), function.name
        assert function.most >= function.least > 0


ONE = pa.Table.from_pylist(
    [{"i": 2**31 - 1, "j": 2**63 - 1, "x": math.nan, "y": 1e300, "d": -1, "s": "x", "n": "128"}], SCHEMA
)


@pytest.mark.parametrize(
    "text",
    [
        "abs(-j - 1)",
        "j + 1",
        "i / 0",
        "i % 0",
        "ln(0)",
        "ln(d)",
        "floor(x)",
        "ceil(y)",
        "CAST(n AS TINYINT)",
        "CAST(y AS BIGINT)",
        "CAST(x AS DECIMAL(3, 1))",
        "CAST(s AS DATE)",
        "CAST(j AS DECIMAL(5, 0))",
        "s LIKE '!' || n ESCAPE '!'",
    ],
)
def test_a_row_that_would_stop_an_ansi_query_gives_null(text: str) -> None:
    assert values(text, ONE).to_pylist() == [None]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i + 1", pa.int64()),
        ("j - i", pa.int64()),
        ("j * j", pa.decimal128(38, 0)),
        ("d * d", pa.decimal128(18, 4)),
        ("i / 2", pa.float64()),
        ("t - u", pa.int64()),
        ("t - INTERVAL 1 SECOND", pa.timestamp("us", "UTC")),
        ("CAST(i AS SMALLINT)", pa.int16()),
        ("CAST(i AS FLOAT)", pa.float32()),
        ("CAST(i AS DECIMAL(12, 0))", pa.decimal128(12, 0)),
        ("coalesce(day, t)", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("s LIKE 'a'", pa.bool_()),
    ],
)
def test_what_type_a_column_of_an_expression_has(text: str, kind: pa.DataType) -> None:
    assert values(text).type == kind


def test_a_duration_is_in_microseconds() -> None:
    assert values("u - INTERVAL 1 SECOND - u").drop_null().to_pylist()[0] == -1_000_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("j * j * j", "may need 57 digits"),
        ("NULL", "a NULL without a type"),
        ("coalesce(NULL, NULL)", "a NULL without a type"),
        ("d * d * d * d * d", "may need 45 digits"),
    ],
)
def test_what_no_table_can_hold_is_refused(text: str, why: str) -> None:
    with pytest.raises(PredicateError, match=why):
        values(text)


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("e.x > 1 AND foo(e.x) = 1", "the function 'foo' at character 13 is not supported", "functions are abs"),
        ("e.x = rond(e.x)", "the function 'rond' at character 7", "did you mean round? "),
        ("e.x = 'foo(' AND Foo (e.x) = 1", "'Foo' at character 18", "functions are"),
        ("power(e.x) = 1", "power has 1 operands; it is written power(x, y)", "valid are"),
        ("sqrt(e.x, 2) = 1", "sqrt has 2 operands; it is written sqrt(x)", "valid are"),
        ("count(*) = 1", "the function 'count'", "functions are"),
        ("cast(e.x, 2) = 1", "CAST is not written so", "write CAST(e.x AS INT)"),
        ("e.x = CAST(e.x AS INTERVAL)", "the type INTERVAL in it is not supported", "valid are"),
        ("e.x = CAST(e.x AS INT FORMAT 'x')", "CAST has only a value and a type", "valid are"),
        ("e.x LIKE ANY ('a', 'b')", "in it is not supported", "valid are"),
        ("power(e.x, 2) OVER () = 1", "in it is not supported", "valid are"),
        ("upper(DISTINCT e.s) = 'A'", "in it is not supported", "valid are"),
        ("e.upper(e.s) = 'A'", "in it is not supported", "valid are"),
        ("upper(e.s)", "not a condition", "valid are"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(text: str, why: str, hint: str) -> None:
    with pytest.raises(PredicateSyntaxError) as caught:
        parse_condition(text)
    assert why in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("power(s, 2) = 1", "has a string where a number belongs"),
        ("upper(i) = 'A'", "has a number where a string belongs"),
        ("round(x, i) = 1", "needs a whole number of places that is written out"),
        ("round(x, 31) = 1", "more than 30 places"),
        ("date_trunc('century', t) = t", "has a unit that is not known"),
        ("date_trunc(s, t) = t", "needs a unit that is written out"),
        ("extract(epoch FROM t) = 1", "has a field that a timestamp does not have"),
        ("extract(year FROM t - u) = 1", "has a field that a interval does not have"),
        ("s LIKE 'a!' ESCAPE '!'", "has a pattern in which ! stands before another character, or last"),
        ("s LIKE 'a' ESCAPE ''", "an ESCAPE that is not one character"),
        ("coalesce(i, s) = 1", "gives values of several types: number, string"),
        ("CASE WHEN i THEN 1 END = 1", "has a value of type number after WHEN"),
        ("CAST(t AS BOOLEAN)", "casts timestamp to boolean, which is not defined"),
        ("CAST(i AS DATE) = day", "casts number to date, which is not defined"),
        ("CAST(i AS DECIMAL(39, 1)) = 1", "casts to a type that is not known"),
        ("greatest(b, b) = b", "compares boolean values by size"),
        ("coalesce(i, 1)", "is of type number, not a condition"),
        ("substr(s, 1.5) = 'a'", "has a place that is no whole number"),
    ],
)
def test_types_that_do_not_go_together_are_refused(text: str, why: str) -> None:
    with pytest.raises(PredicateError) as caught:
        typed_condition(normalised(parse_condition(text, "e")), lambda column: SCHEMA.field(column.name).type)
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("power(e.x, e.y) > 1", {"x", "y"}),
        ("coalesce(e.x, e.y) > 1", set()),
        ("coalesce(e.x, e.x + e.y, NULL) > 1", {"x"}),
        ("greatest(e.x, e.y) > 1", set()),
        ("nullif(e.x, e.y) > 1", {"x"}),
        ("CASE WHEN e.b THEN e.x ELSE e.x + e.y END > 1", {"x"}),
        ("CASE WHEN e.b THEN e.x END > 1", {"x"}),
        ("CASE WHEN e.b THEN e.x ELSE 1 END > 1", set()),
        ("concat(e.s, e.n) = 'a'", {"s", "n"}),
        ("NOT e.s LIKE e.n", {"s", "n"}),
        ("CAST(e.n AS INT) = 1 AND date_trunc('day', e.t) = e.u", {"n", "t", "u"}),
    ],
)
def test_which_nulls_make_a_function_null_is_known(text: str, found: set[str]) -> None:
    assert {column.name for column in rejecting_columns(normalised(parse_condition(text)))} == found
