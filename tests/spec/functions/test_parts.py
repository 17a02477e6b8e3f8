"""Functions of parts of texts, lists and JSON, beside DuckDB and plain Python, on what is odd; and what is refused."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.expression.calculation import output_type, output_values
from streamjoin_ds.spec.expression.parser import parse_value
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Literal, normalised
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.testing.values import PLAIN

_TEXTS = ["", "a", "it's", "Straße", "ÄÖü", "  pad ", "a,b,c", "a,,c", "x\ny", "🦆x", "é", None, "12"]
_TEXTS += ["aXbXc", "[a](b)"]
_JSON = [
    '{"a": 1.5}',
    '{"a": {"b": [1, "x", true]}}',
    '{"a": null}',
    '[1, 2, "é"]',
    '{"a b": "q"}',
    '{"a": 1000, "c": -0}',
    '{"a": 12345678901234567890}',
    None,
    '"t"',
    "5",
    '{"a": false}',
    "{}",
    "[]",
    '{"a": "\\u00e9\\n"}',
    '{"a": "1"}',
]
ROWS = pa.table(
    {
        "s": _TEXTS,
        "k": pa.array([5, 1, 2, 3, -1, -2, 10, 7, -9, 1, 2, 3, None, -20, 1 << 30], pa.int64()),
        "l": pa.array([*([[1, 2], [], None, [None, 5], [3], [4, 5, 6]] * 2), [7], [7, 8], [9]], pa.list_(pa.int32())),
        "t": pa.array([["a", None, "é"], [], None] * 5, pa.list_(pa.string())),
        "j": _JSON,
        "x": pa.array([*([0.0, 1.5, -1.5, 1e9, 1709629207.25, None] * 2), 1.0, 2.0, 3.0]),
        "w": ["05/03/2024 09:00:07", "29/02/2023 00:00:00", None] * 5,
        "b": pa.array([True, False, None] * 5),
    }
)
LIKE_DUCKDB = {
    "split_part(s, ',', 2)": None,
    "split_part(s, ',', -1)": None,
    "split_part(s, ',', -9)": None,
    "split_part(s, 'X', 3)": None,
    "split_part(s, ',', k)": None,
    "regexp_extract(s, '([a-z])([A-Z])', 2)": None,
    "regexp_extract(s, '[a-z]+', 0)": None,
    "regexp_extract(s, '([^,]*),?', 1)": None,
    "regexp_extract(s, '[(](x)|(a)', 2)": None,
    "regexp_extract(s, '(?:a)(.)', 1)": None,
    r"regexp_extract(s, '\((\w)\)', 1)": None,
    "s RLIKE '^[a-z]'": "regexp_matches(s, '^[a-z]')",
    "s NOT RLIKE 'ß'": "not regexp_matches(s, 'ß')",
    "length(s)": None,
    "trim(s)": None,
    "ltrim(s)": None,
    "rtrim(s)": None,
    "trim(s, 'xa')": None,
    "ltrim(s, 'xa')": None,
    "replace(s, 'X', '--')": None,
    "replace(s, '', '-')": None,
    "replace(s, s, 'z')": None,
    "lpad(s, 4, 'ab')": None,
    "rpad(s, 4, '*')": None,
    "lpad(k, 4, '0')": "lpad(k::VARCHAR, 4, '0')",
    "lpad(s, k % 100, '0')": "lpad(s, (k % 100)::INT, '0')",
    "hex(s)": None,
    "hex(k)": None,
    "unhex('4A4b')": None,
    "unhex(hex(s))": None,
    "json_value(j, '$.a')": None,
    "json_value(j, '$.a.b[1]')": None,
    "json_value(j, '$.a.b[2]')": None,
    "json_value(j, '$[1]')": None,
    "json_value(j, '$')": None,
    """json_value(j, '$."a b"')""": None,
    "element_at(l, 1)": None,
    "element_at(l, -1)": None,
    "element_at(l, 3)": None,
    "element_at(l, k)": None,
    "element_at(t, -1)": None,
    "size(l)": None,
    "size(t)": None,
    "to_timestamp(x)": None,
    "to_timestamp(k)": None,
    "to_timestamp(w, '%d/%m/%Y %H:%M:%S')": "try_strptime(w, '%d/%m/%Y %H:%M:%S')",
    "make_timestamp(2024, 2, 29, 1, 2, 3.25)": None,
    "concat(s, '-', 'x')": "s || '-' || 'x'",
    "s || k": None,
    "s || b": None,
    "coalesce(nullif(s, 'a'), '?')": None,
}
# What DuckDB says of a list or an object in JSON: its text, where a value is asked for.
_NO_VALUE = re.compile(r"\s*[\[{]")


def values(text: str) -> list[Any]:
    expression = normalised(parse_value(text, "e"))
    node = typed_value(expression, lambda column: ROWS.schema.field(column.name).type)
    kind = output_type(expression, node)
    found = output_values(node, kind, ROWS.num_rows, lambda column: ROWS.column(column.name).combine_chunks())
    return plain(found)


def plain(found: pa.Array | pa.ChunkedArray) -> list[Any]:
    return (found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found).to_pylist()


def test_functions_mean_what_they_mean_to_duckdb() -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", ROWS.append_column("place", pa.array(range(ROWS.num_rows))))
        for text, other in LIKE_DUCKDB.items():
            asked = other or text.replace("element_at(", "list_extract(").replace("size(", "len(")
            is_json = asked.startswith("json_value")
            asked = asked.replace("json_value", "json_extract_string")
            found = plain(connection.sql(f"SELECT {asked} AS c FROM rows ORDER BY place").to_arrow_table()["c"])
            if is_json:
                found = [None if one is not None and _NO_VALUE.match(one) else one for one in found]
            assert values(text) == found, text


@pytest.mark.parametrize("text", LIKE_DUCKDB)
def test_functions_mean_what_they_mean_in_plain_python(text: str) -> None:
    expression = normalised(parse_value(text, "e"))

    def value(one: Any, row: int) -> Any:
        if isinstance(one, Column):
            given = ROWS.column(one.name)[row].as_py()
        elif isinstance(one, Literal):
            given = one.value
        else:
            args = [value(argument, row) for argument in one.args]
            if one.op == "%":
                return None if None in args else args[0] - args[1] * int(args[0] / args[1])
            return own(one.op, args)
        is_number = isinstance(given, int) and not isinstance(given, bool)
        return Fraction(given) if is_number or type(given).__name__ == "Decimal" else given

    def own(op: str, args: list[Any]) -> Any:
        if op == "not":
            return None if args[0] is None else not args[0]
        if op == "nullif":
            return None if args[0] == args[1] else args[0]
        if op == "coalesce":
            return next((one for one in args if one is not None), None)
        return None if None in args else PLAIN[op](*args)

    found = values(text)
    assert found == [value(expression, row) for row in range(ROWS.num_rows)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("split_part(k, ',', 1)", "has a number where a string belongs"),
        ("split_part(s, ',', 1.5)", "no whole number"),
        ("regexp_extract(s, '(a', 1)", "a pattern that cannot be read"),
        ("regexp_extract(s, '(?=a)', 0)", "a pattern that cannot be read"),
        ("regexp_extract(s, '(a)', 2)", "asks for a group"),
        ("regexp_extract(s, s)", "a pattern that is written out"),
        ("s RLIKE 'a{'", None),
        ("length(k)", "has a number where a string or binary belongs"),
        ("hex(x)", "has a float where a string or binary or number belongs"),
        ("json_value(j, 'a')", "a path that cannot be read"),
        ("json_value(j, s)", "a path that is written out"),
        ("element_at(s, 1)", "has a string where a list belongs"),
        ("element_at(l, 'a')", "has a string where a number belongs"),
        ("size(s)", "has a string where a list belongs"),
        ("to_timestamp(s, '%Q')", "a form of times that cannot be read"),
        ("to_timestamp(s, s)", "that is written out"),
        ("to_timestamp(k, 'iso')", "has a number where a string belongs"),
        ("to_timestamp(b)", "has a boolean where a"),
        ("make_timestamp(1.5, 1, 1, 1, 1, 1)", "no whole number"),
        ("concat(l, s)", "has a list or struct where a"),
    ],
)
def test_what_a_function_does_not_take_is_refused(text: str, why: str | None) -> None:
    if why is None:
        assert values(text)[1] is False
        return
    with pytest.raises(PredicateError, match=re.escape(why)):
        values(text)


def test_the_name_of_a_form_is_one() -> None:
    found = values("to_timestamp(coalesce(nullif(s, s), '2024/03/05 09:00:07'), 'iso')")
    assert found == [1_709_629_207_000_000] * ROWS.num_rows


def test_a_condition_may_be_a_pattern_and_is_written_as_it_was_read() -> None:
    expression = parse_value("s RLIKE 'a|b' AND NOT s RLIKE 'c'", "e")
    assert str(expression) == "(e.s RLIKE 'a|b') AND (NOT (e.s RLIKE 'c'))"
    assert parse_value(str(expression)) == expression
    assert isinstance(expression, Call)
