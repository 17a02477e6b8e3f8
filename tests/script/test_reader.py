"""Statements: what is read, and that what is not understood is refused with the place and what is valid there."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from streamjoin_ds.errors import SqlSyntaxError
from streamjoin_ds.script.reader import statements
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import Explained, Option, Statement, StreamStatement


def read(text: str) -> list[object]:
    return list(statements(SqlText(text)))


def one(text: str) -> Statement:
    (statement,) = read(text)
    assert isinstance(statement, Statement)
    return statement


def test_a_stream_has_columns_and_options() -> None:
    (made,) = read(
        "create stream e (ts TIMESTAMP, `a b` DECIMAL(12, 2), d decimal, n bigint, xs ARRAY<ARRAY<INT>>, "
        "s STRUCT<a: INT, b STRING>, local TIMESTAMP_NTZ) WITH (source = 'e/', delay = \"30s\", rate = 1e3, "
        "starting_version = 12, pace = -1, on = true)"
    )
    assert isinstance(made, StreamStatement)
    assert made.columns == pa.schema(
        [
            ("ts", pa.timestamp("us", tz="UTC")),
            ("a b", pa.decimal128(12, 2)),
            ("d", pa.decimal128(10, 0)),
            ("n", pa.int64()),
            ("xs", pa.list_(pa.list_(pa.int32()))),
            ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
            ("local", pa.timestamp("us")),
        ]
    )
    values = {name: option.value for name, option in made.options.items()}
    assert values == {"source": "e/", "delay": "30s", "rate": 1000.0, "starting_version": 12, "pace": -1, "on": True}
    (plain,) = read(";; CREATE STREAM stream ;")
    assert isinstance(plain, StreamStatement)
    assert (plain.name, plain.columns, plain.options) == ("stream", None, {})


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("SET trigger = 500ms", "trigger", "500ms"),
        ("SET spark.sql.shuffle.partitions=10", "spark.sql.shuffle.partitions", 10),
        ("SET Spark.App = a b/c", "Spark.App", "a b/c"),
        ("SET AVAILABLE_NOW = true;", "available_now", True),
        ("SET to = 'a;b'", "to", "a;b"),
        ("SET checkpoint = ./near-by/x", "checkpoint", "./near-by/x"),
    ],
)
def test_an_option_is_set(text: str, name: str, value: object) -> None:
    (option,) = read(text)
    assert isinstance(option, Option)
    assert (option.name, option.value) == (name, value)


def test_a_query_is_read() -> None:
    statement = one(
        "INSERT INTO near WITH (cells = 4) SELECT e.*, w.x AS a, w.y b, z, * FROM eastbound AS e JOIN w ON e.left = 1 "
        "CROSS JOIN cat.`d b`.t u INNER JOIN v ON left(e.s, 3) = v.s AND (a, b) IN (1), x "
        "WHERE a.order > 3 AND limit < offset"
    )
    assert (statement.table, statement.is_path, statement.options["cells"].value) == ("near", False, 4)
    assert [(item.stream, item.column, item.name) for item in statement.query.items] == [
        ("e", None, None), ("w", "x", "a"), ("w", "y", "b"), (None, "z", None), (None, None, None),
    ]  # fmt: skip
    inputs = statement.query.inputs
    assert [(one.source, one.alias, one.how, len(one.on)) for one in inputs] == [
        (("eastbound",), "e", "inner", 0), (("w",), "w", "inner", 5), (("cat", "d b", "t"), "u", "inner", 0),
        (("v",), "v", "inner", 22), (("x",), "x", "inner", 0),
    ]  # fmt: skip
    assert " ".join(token.value for token in statement.query.where) == "a . order > 3 AND limit < offset"


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("JOIN", "inner"), ("LEFT JOIN", "left"), ("LEFT OUTER JOIN", "left"), ("RIGHT OUTER JOIN", "right"),
        ("FULL JOIN", "full"), ("LEFT SEMI JOIN", "semi"), ("SEMI JOIN", "semi"), ("LEFT ANTI JOIN", "anti"),
        ("ANTI JOIN", "anti"),
    ],
)  # fmt: skip
def test_every_kind_of_join_is_read(words: str, how: str) -> None:
    assert one(f"SELECT * FROM e {words} w ON e.x = w.x").query.inputs[1].how == how


def test_tables_and_options() -> None:
    written = one("INSERT INTO 'a/b' SELECT * FROM e"), one("INSERT INTO TABLE delta.`/x` SELECT * FROM e")
    assert [(statement.table, statement.is_path) for statement in written] == [("a/b", True), ("/x", True)]
    text = "SET cells = 2; SET trigger = 1s; INSERT INTO t WITH (cells = 3) SELECT * FROM e; SELECT * FROM w"
    *_, first, second = read(text)
    assert isinstance(first, Statement)
    assert isinstance(second, Statement)
    assert {name: option.value for name, option in first.options.items()} == {"cells": 3, "trigger": "1s"}
    assert {name: option.value for name, option in second.options.items()} == {"cells": 2, "trigger": "1s"}
    assert set(first.own_options) == {"cells"}
    (explained,) = read("EXPLAIN INSERT INTO t SELECT * FROM e")
    assert isinstance(explained, Explained)


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("DROP TABLE x", "DROP", "valid here is CREATE STREAM, CREATE TABLE, CREATE VIEW, SET, INSERT"),
        ("CREATE INDEX x", "INDEX", "valid here is STREAM, TABLE or VIEW"),
        ("CREATE STREAM e (x MAP<INT, INT>)", "MAP", "valid here is a type: BOOLEAN"),
        ("CREATE STREAM e (x INT NOT NULL)", "NOT", "valid here is , or )"),
        ("CREATE STREAM e (x DECIMAL(99, 2))", "99", "at most 38 digits"),
        ("CREATE STREAM e (x INT, x INT)", "x INT)", "is there twice"),
        ("CREATE STREAM e WITH (a = 1, A = 2)", "A = 2", "the option a is there twice"),
        ("CREATE STREAM e WITH (a = b)", "b)", "valid here is a value"),
        ("CREATE STREAM e WITH (delay = 1s)", "1s)", "valid here is a value"),
        ("CREATE STREAM e OPTIONS (a = 1)", "OPTIONS", "valid here is (, WITH or ;"),
        ("SET a", "", "the text ends here"),
        ("EXPLAIN CREATE STREAM e", "CREATE", "valid here is INSERT INTO or SELECT"),
        ("INSERT OVERWRITE t SELECT * FROM e", "OVERWRITE", "only ever added"),
        ("INSERT INTO a.b SELECT * FROM e", "a.b", "results go to a folder"),
        ("INSERT INTO t (a, b) SELECT * FROM e", "(a", "SELECT e.x AS a"),
        ("INSERT INTO t VALUES (1)", "VALUES", "select from a join"),
        ("SELECT DISTINCT * FROM e", "DISTINCT", "each result is there once"),
        ("SELECT e.x + 1 FROM e", "e.x + 1", "this expression has no name in the results"),
        ("SELECT abs(e.x) FROM e", "abs(e.x)", "this expression has no name in the results"),
        ("SELECT e.x AS a b FROM e", "b FROM", "valid here is , or FROM"),
        ("SELECT * FROM e JOIN (SELECT 1) ON a", "(", "a query inside a query is not possible"),
        ("SELECT * FROM e JOIN w USING (id)", "USING", "write ON e.id = w.id"),
        ("SELECT * FROM e NATURAL JOIN w", "NATURAL", "name the columns"),
        ("SELECT * FROM e ASOF JOIN w", "", "valid here is MATCH_CONDITION (e.ts >= w.ts)"),
        ("SELECT * FROM e FULL ASOF JOIN w", "FULL", "write ASOF JOIN or LEFT ASOF JOIN"),
        ("SELECT * FROM e JOIN w ON e.x = w.x ORDER BY e.x", "ORDER", "order the table when you read it"),
        ("SELECT * FROM e, w WHERE e.x = w.x LIMIT 3", "LIMIT", "limit the rows"),
        ("SELECT * FROM e JOIN w ON e.x = w.x UNION SELECT 1", "UNION", "write two INSERT statements"),
        ("SELECT * FROM e WINDOW w AS (x)", "WINDOW", "WITH (window = 'last 1000')"),
        ("SELECT * FROM e JOIN w ON WHERE e.x = 1", "WHERE", "valid here is a condition"),
        ("SELECT * FROM e JOIN w ON (e.x = w.x", "", "valid here is )"),
        ("SELECT * FROM e JOIN w ON e.x = w.x)", ")", "valid here is AND, OR, JOIN, WHERE or ;"),
        ("SELECT * FROM e SELECT * FROM w", "SELECT * FROM w", "valid here is JOIN, WHERE, GROUP BY, or ; and"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH", "a query has no tables of its own"),
        ("SELECT * FROM e LEFT JOIN", "", "valid here is a stream's name"),
        ("SELECT * FROM e RIGHT SEMI JOIN w ON e.x = w.x", "SEMI", "LEFT SEMI JOIN"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_where_it_stands(text: str, at: str, says: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        read(text)
    error = caught.value
    assert says in str(error)
    column = int(re.findall(r"column (\d+):", str(error))[0])
    assert text[column - 1 :].startswith(at) if at else column == len(text) + 1
    assert not re.search(r"[a-z][A-Z]", error.message), "a parser's class name is no word of a user"
