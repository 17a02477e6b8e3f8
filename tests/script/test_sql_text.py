"""A text's tokens, and errors that point into it."""

from __future__ import annotations

import pytest

from streamjoin_ds.errors import ColumnError, SqlSyntaxError
from streamjoin_ds.script.sql_text import MAX_TEXT, Span, SqlText


def tokens(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in SqlText(text).tokens]


def test_names_texts_and_numbers_are_told_apart() -> None:
    assert tokens("e.`a``b` >= 'it''s' -- c\n AND /* d */ w.x = 10L") == [
        ("word", "e"), ("sign", "."), ("name", "a`b"), ("sign", ">="), ("text", "its"), ("word", "AND"),
        ("word", "w"), ("sign", "."), ("word", "x"), ("sign", "="), ("number", "10"),
    ]  # fmt: skip
    assert tokens("\"double\" r'raw\\n' 'back\\'s'") == [("text", "doubleraw\\nback's")], "as Spark, not as other SQL"
    assert tokens("SELECT /*+ BROADCAST(w) */ 1") == [("word", "SELECT"), ("number", "1")]


def test_an_error_says_where_it_arose() -> None:
    text = SqlText("SELECT *\nFROM e JOIN\tw ON e.x = w.y")
    token = text.tokens[-1]
    error = text.located(ColumnError("there is no such column", name="y", hint="try x"), token.span)
    assert isinstance(error, ColumnError)
    assert error.name == "y"
    assert str(error) == (
        "COLUMN: line 2, column 26: there is no such column. Hint: try x\n"
        "  FROM e JOIN w ON e.x = w.y\n"
        "                           ^"
    )


def test_a_long_line_is_cut_around_the_place() -> None:
    text = SqlText("SELECT " + ", ".join(f"e.column_{n}" for n in range(100)) + ", here")
    shown = str(text.refused(text.tokens[-1].span, "no", "yes")).splitlines()
    assert shown[1].endswith("here")
    assert len(shown[1]) <= 102
    assert shown[2].index("^") == shown[1].index("here")
    assert shown[2].count("^") == 4


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM e WITH (source = 'hunter2', delay = 5)",
        "CREATE STREAM e WITH (delay = 5, source = hunter2 + 'hunter2')",
        "SET source = hunter2; SELECT 1",
        "INSERT INTO t WITH (checkpoint = hunter2",
    ],
)
def test_no_error_shows_the_value_of_an_option(text: str) -> None:
    read = SqlText(text)
    for token in read.tokens:
        shown = str(read.refused(token.span, "no", "yes"))
        assert "hunter2" not in shown
        assert "'...'" in shown
        assert "^" in shown


@pytest.mark.parametrize("text", ["SELECT 'abc", "SELECT 1 /* abc", "SET a = 'hunter2", 'x "y" `z', "-- ' \n 'it"])
def test_a_quote_that_is_not_closed_is_named(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match="not closed") as caught:
        SqlText(text)
    assert "hunter2" not in str(caught.value)


def test_a_text_may_not_be_endless() -> None:
    with pytest.raises(SqlSyntaxError, match="longer than"):
        SqlText(" " * (MAX_TEXT + 1))
    assert SqlText("").tokens == ()
    assert "^" in str(SqlText("").refused(Span(0, 0), "no", "yes"))
