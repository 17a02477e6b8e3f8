"""A query as a join: a text gives the rows that DuckDB gives over static tables, or is refused where it stands."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamjoin_ds import Execution, JoinEngine
from streamjoin_ds.errors import (
    ArgumentError,
    ColumnError,
    PredicateError,
    PredicateSyntaxError,
    SqlSyntaxError,
    StreamJoinError,
)
from streamjoin_ds.request.request import Request
from streamjoin_ds.script.query_builder import AskedJoin
from streamjoin_ds.script.script import Script
from streamjoin_ds.spec import CountWindow, PeriodicWindow, TimeWindow

START = datetime(2024, 1, 1)
COLUMNS = "(ts TIMESTAMP, x DOUBLE, n BIGINT, s STRING, day DATE)"
STREAMS = "".join(f"CREATE STREAM {name} {COLUMNS} WITH (source = '{name}.csv');" for name in ("e", "w", "v"))


def rows(step: int, count: int = 60) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "ts": pa.array([START + timedelta(microseconds=n * step * 250_001 % 30_000_000) for n in numbers]),
            "x": pa.array([None if n % 13 == 5 else n * step % 17 / 4 for n in numbers], pa.float64()),
            "n": pa.array([None if n % 11 == 3 else n * step % 7 for n in numbers], pa.int64()),
            "s": pa.array([None if n % 9 == 2 else "abc'"[n * step % 4] for n in numbers]),
            "day": pa.array([START.date() + timedelta(days=n % 3) for n in numbers]),
        }
    )


TABLES = {"e": rows(3), "w": rows(7), "v": rows(5)}


def asked(text: str, streams: str = STREAMS, **flags: Any) -> AskedJoin:
    (step,) = Script(streams + text, flags).steps
    return step.asked.joined()


def ours(text: str) -> Counter[tuple[Any, ...]]:
    """Return the rows that the join of a text finds, by the columns of its SELECT list."""
    found = asked(text)
    engine = JoinEngine(found.request.join)
    utc = pa.timestamp("us", tz="UTC")
    names = {stream.name: "e" if stream.name == "f" else stream.name for stream in found.request.join.streams}
    sorted_ = {name: TABLES[source].sort_by("ts") for name, source in names.items()}
    pushed = {name: table.set_column(0, "ts", table["ts"].cast(utc)) for name, table in sorted_.items()}
    results = pa.concat_tables([engine.push(pushed), engine.finish()])
    results = results.select(list(found.columns or [f"e_{name}" for name in TABLES["e"].column_names]))
    return Counter(zip(*([plain(value) for value in column.to_pylist()] for column in results.columns), strict=True))


@cache
def duck() -> duckdb.DuckDBPyConnection:
    """Return a database with the tables."""
    connection = duckdb.connect()
    for name, table in TABLES.items():
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return connection


def theirs(text: str) -> Counter[tuple[Any, ...]]:
    begin, *joined = re.split(r" LEFT (SEMI|ANTI) JOIN (\w) ON ", text)
    if joined:  # DuckDB's SEMI JOIN loses nulls and garbles texts; EXISTS means the same
        joined[-1], _, where = joined[-1].partition(" WHERE ")
        parts = zip(*(joined[place::3] for place in range(3)), strict=True)
        exists = [f"{'NOT ' * (how == 'ANTI')}EXISTS (SELECT 1 FROM {of} WHERE {on})" for how, of, on in parts]
        text = f"{begin} WHERE {' AND '.join(exists)} AND ({where or 'true'})"
    return Counter(tuple(map(plain, row)) for row in duck().execute(text).fetchall())


def plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


NEAR = "e.ts BETWEEN w.ts - INTERVAL 2 SECONDS AND w.ts + INTERVAL 5 SECONDS"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT e.ts, w.ts AS other, e.x, w.x b FROM e JOIN w ON abs(e.x - w.x) <= 0.5 AND {NEAR}",
        f"SELECT e.n, w.n AS m, w.s FROM e, w WHERE e.n = w.n AND e.s <> w.s AND {NEAR}",
        "SELECT e.ts, w.ts AS other FROM e JOIN w ON e.ts < w.ts + INTERVAL 250001 MICROSECONDS AND w.ts < e.ts",
        "SELECT e.ts, w.ts AS o FROM e CROSS JOIN w WHERE e.ts - w.ts BETWEEN INTERVAL 1 SECOND AND INTERVAL 3 SECOND",
        "SELECT e.ts, w.ts AS other FROM e JOIN w ON e.ts = w.ts",
        f"SELECT E.ts, w.X FROM e JOIN W ON (E.N BETWEEN w.n - 1 AND w.n + 1 AND {NEAR}) "
        "WHERE w.s IN ('a', 'c') OR e.n IS NULL",
        f"SELECT e.n, w.n AS m FROM e JOIN w ON e.n = 3 AND e.n * 2 > w.n OR e.s = w.s WHERE {NEAR}",
        f"SELECT e.day, w.n FROM e JOIN w ON e.day = w.day AND {NEAR} AND e.day >= DATE '2024-01-02'",
        "SELECT e.n, f.n AS m FROM e JOIN e AS f ON abs(e.x - f.x) <= 0.25 "
        "AND f.ts BETWEEN e.ts AND e.ts + INTERVAL 3 SECONDS",
        "SELECT e.ts, w.ts AS b, v.ts AS c FROM e JOIN w ON e.n = w.n "
        "AND e.ts BETWEEN w.ts - INTERVAL 4 SECONDS AND w.ts "
        "JOIN v ON abs(w.x - v.x) <= 1 AND v.ts >= w.ts AND v.ts < w.ts + INTERVAL 2 SECONDS WHERE e.s <> v.s",
        "SELECT e.n, e.s, w.n AS m FROM e JOIN w ON e.s IS NOT DISTINCT FROM w.s AND e.n IS DISTINCT FROM w.n "
        f"AND {NEAR}",
        f"SELECT e.n, w.x FROM e JOIN w ON true AND e.x <= sqrt(w.x) AND {NEAR} WHERE 1 = 1",
        f"SELECT e.ts, e.n, w.ts AS other FROM e LEFT JOIN w ON e.n = w.n AND {NEAR} AND e.s <> 'a' WHERE e.x > 1",
        f"SELECT e.n AS a, w.n, w.ts FROM e RIGHT JOIN w ON e.n = w.n AND {NEAR} AND w.s <> 'a' WHERE w.x > 1",
        f"SELECT e.n, w.n AS m, w.ts FROM e FULL OUTER JOIN w ON e.n = w.n AND e.x > w.x AND {NEAR}",
        f"SELECT e.ts, e.n FROM e LEFT SEMI JOIN w ON e.n = w.n AND {NEAR} WHERE e.x > 1",
        f"SELECT e.* FROM e LEFT ANTI JOIN w ON e.n = w.n AND {NEAR} AND e.s <> 'b'",
        f"SELECT * FROM e LEFT ANTI JOIN w ON abs(e.x - w.x) <= 1 AND {NEAR}",
        f"SELECT e.ts, e.n FROM e LEFT SEMI JOIN w ON e.n = w.n AND {NEAR} AND w.s <> 'b' LEFT SEMI JOIN v "
        "ON abs(e.x - v.x) <= 3 AND e.ts BETWEEN v.ts - INTERVAL 9 SECONDS AND v.ts + INTERVAL 1 SECOND WHERE e.x > 1",
        f"SELECT * FROM e LEFT ANTI JOIN w ON e.n = w.n AND {NEAR} LEFT ANTI JOIN v ON e.s = v.s AND e.ts = v.ts",
        f"SELECT e.ts FROM e LEFT ANTI JOIN w ON e.n = w.n AND {NEAR} AND e.x > 2 LEFT ANTI JOIN v ON e.n = v.n "
        f"AND {NEAR.replace('w.', 'v.')} AND e.s <> 'b'",
        f"SELECT e.ts FROM e LEFT ANTI JOIN w ON e.n = w.n AND {NEAR} LEFT ANTI JOIN v "
        "ON NOT (e.x > 2 OR e.n <> v.n) AND e.ts = v.ts",
        f"SELECT e.ts FROM e LEFT ANTI JOIN w ON e.n = w.n AND {NEAR} AND FALSE LEFT ANTI JOIN v ON e.n = v.n "
        f"AND {NEAR.replace('w.', 'v.')} AND TRUE",
    ],
)  # fmt: skip
def test_a_text_gives_the_rows_of_duckdb(text: str) -> None:
    expected = theirs(text)
    assert len(expected) > 3
    assert ours(text) == expected


def test_a_between_of_doubles_is_decided_as_it_is_written() -> None:
    """Sums and differences are rounded at different places; a band is on the difference."""
    numbers = [n / 100 for n in range(300)]
    made = "".join(f"CREATE STREAM {name} (ts TIMESTAMP, x DOUBLE) WITH (source = '{name}.csv');" for name in "ew")
    text = "SELECT e.x, w.x AS y FROM e JOIN w ON e.x BETWEEN w.x - 1 AND w.x + 0.1 AND e.ts = w.ts"
    engine = JoinEngine(asked(text, made).request.join)
    times = pa.array([0] * len(numbers), pa.timestamp("us", tz="UTC"))
    table = pa.table({"ts": times, "x": numbers})
    result = engine.push({"e": table, "w": table})
    found = Counter(zip(result["e_x"].to_pylist(), result["y"].to_pylist(), strict=True))
    expected = Counter((x, y) for x in numbers for y in numbers if y - 1 <= x <= y + 0.1)
    assert expected != Counter((x, y) for x in numbers for y in numbers if -1 <= x - y <= 0.1)
    assert found == expected


@pytest.mark.parametrize(
    ("unused", "at"),
    [
        ("CREATE STREAM u WITH (origin = 'u.csv')", "origin"),
        ("CREATE STREAM u WITH (source = 'u.csv', delay = 'soon')", "delay"),
        ("CREATE TABLE u WITH (source = 'u.csv', refresh = 'soon')", "refresh"),
    ],
)
def test_what_no_query_names_is_checked_too(unused: str, at: str) -> None:
    text = f"{unused}; SELECT e.n FROM e JOIN w ON {NEAR}"
    with pytest.raises(StreamJoinError) as refused:
        asked(text, f"{STREAMS}\n")
    assert text[int(re.findall(r"column (\d+):", str(refused.value))[0]) - 1 :].startswith(at)


@pytest.mark.parametrize(
    ("joins", "found", "message"),
    [
        (f"SEMI JOIN w ON {NEAR} SEMI JOIN v ON w.x = v.x AND e.ts = v.ts", "w.x = v.x", "and w is not there"),
        (f"SEMI JOIN w ON {NEAR} SEMI JOIN v ON w.ts = v.ts", "w.ts = v.ts", "and w is not there"),
        (f"SEMI JOIN w ON {NEAR} ANTI JOIN v ON e.ts = v.ts", "SEMI JOIN", "SEMI JOIN needs two streams"),
        (f"SEMI JOIN w ON {NEAR} SEMI JOIN v ON e.x = v.x", "SEMI JOIN v", "nothing bounds"),
    ],
)
def test_what_several_streams_cannot_be_asked_for_is_shown_where_it_stands(
    joins: str, found: str, message: str
) -> None:
    with pytest.raises(StreamJoinError, match=message) as refused:
        asked(f"SELECT e.n FROM e {joins}")
    assert found.split()[0] in str(refused.value)


def test_columns_without_a_stream_are_found() -> None:
    streams = (
        "CREATE STREAM e (ts TIMESTAMP, x DOUBLE) WITH (source = 'e');"
        "CREATE STREAM w (ts TIMESTAMP, Y DOUBLE, `date` DATE) WITH (source = 'w');"
    )
    text = (
        "SELECT x, y AS z, `date` FROM e JOIN w ON abs(x - y) <= 1 AND e.ts = w.ts AND date < DATE '2024-01-01' "
        "AND e.ts > TIMESTAMP '2023-01-01' - INTERVAL 1 DAY"
    )
    join = asked(text, streams).request.join
    assert join.select == ("e.`x`", "w.`Y` AS `z`", "w.`date`")
    assert str(join.predicates[0]) == "abs(e.x - w.Y) <= 1"
    assert "w.date < DATE '2024-01-01'" in map(str, join.predicates)


def test_the_window_of_bounds_and_of_options() -> None:
    on = "SELECT * FROM e JOIN w ON abs(e.x - w.x) <= 1"
    assert asked(f"{on} AND {NEAR}").request.join.window == TimeWindow((2_000_000, 5_000_000))
    assert len(asked(f"{on} AND {NEAR}").request.join.predicates) == 1
    insert = "INSERT INTO t WITH (window = 'last 10') "
    assert asked(insert + on).request.join.window == CountWindow((10, 10))
    assert len(asked(f"{insert}{on} AND {NEAR}").request.join.predicates) == 2, "the bounds decide besides"
    periodic = asked(f"SET window = 'every 10s for 60s'; {on}").request.join.window
    assert isinstance(periodic, PeriodicWindow)
    each = asked(f"INSERT INTO t WITH (window = 'e=6h,w=0s') {on}").request.join.window
    assert each == TimeWindow((6 * 3_600_000_000, 0))


def test_a_self_join_keeps_pairs_of_a_tuple_with_itself_as_sql_does() -> None:
    text = "SELECT * FROM e JOIN {} ON e.x = f.x AND e.ts = f.ts"
    assert asked(text.format("e f")).request.join.include_self_pairs
    twice = f"CREATE STREAM f {COLUMNS} WITH (source = 'e.csv');"
    assert asked(text.format("f"), STREAMS + twice).request.join.include_self_pairs
    assert not asked(f"SELECT * FROM e JOIN w ON {NEAR}").request.join.include_self_pairs


def test_nanoseconds_are_compared_as_such(tmp_path: Path) -> None:
    """The window has microseconds; a bound on times that are finer decides besides."""
    first = pa.array([1_000, 1_999], pa.timestamp("ns", tz="UTC"))
    for name in ("a", "b"):
        pq.write_table(pa.table({"ts": first, "n": [1, 2]}), tmp_path / f"{name}.parquet")
    made = "".join(f"CREATE STREAM {name} WITH (source = '{tmp_path}/{name}.parquet');" for name in ("a", "b"))
    text = "SELECT a.n, b.n AS m FROM a JOIN b ON a.ts > b.ts AND a.ts < b.ts + INTERVAL 1 MICROSECOND"
    join = asked(text, made).request.join
    assert join.window == TimeWindow((0, 1))
    table = pq.read_table(tmp_path / "a.parquet")
    found = JoinEngine(join).push({"a": table, "b": table})
    assert found.select(["a_n", "m"]).to_pylist() == [{"a_n": 2, "m": 1}]


def test_nanoseconds_leave_a_condition_of_anti_join_with_its_stream(tmp_path: Path) -> None:
    """The text is read once more where event times are finer than microseconds."""
    times = pa.array([1_000, 1_999], pa.timestamp("ns", tz="UTC"))
    table = pa.table({"ts": times, "n": [1, 2]})
    for name in "abc":
        pq.write_table(table, tmp_path / f"{name}.parquet")
    made = "".join(f"CREATE STREAM {name} WITH (source = '{tmp_path}/{name}.parquet');" for name in "abc")
    joined = "LEFT ANTI JOIN {0} ON a.n = {0}.n AND a.ts = {0}.ts"
    engine = JoinEngine(
        asked(f"SELECT a.n FROM a {joined.format('b')} AND FALSE {joined.format('c')}", made).request.join
    )
    engine.push({"a": table, "b": table, "c": table.slice(0, 1)})
    assert engine.finish()["a_n"].to_pylist() == [2]


def test_a_key_of_unique_rows_is_asked_for_with_a_stream_or_with_the_join() -> None:
    made = "CREATE STREAM e WITH (source = 'e/', unique = 'device,n'); CREATE STREAM w WITH (source = 'w/');"
    text = "INSERT INTO t WITH (checkpoint = 'c', window = '1s'{}) SELECT * FROM e JOIN w ON abs(e.x - w.x) <= 1"
    keys = [
        [stream.unique_key for stream in asked(text.format(more), made).request.join.streams]
        for more in ("", ", unique = 'w=id'")
    ]
    assert keys == [[("device", "n"), ()], [("device", "n"), ("id",)]]


def test_every_option_is_that_of_the_file() -> None:
    made = (
        "CREATE STREAM e WITH (source = 'e/', time = 'at', delay = '30s', format = 'csv', time_unit = 'ms', "
        "delimiter = 'tab', where = 'x > 1', idle_timeout = '10m', max_ahead = '1h', on_bad_file = 'quarantine', "
        "rate = 20000);"
        "CREATE STREAM w WITH (source = 'lake/w', on_change = 'ignore', starting_version = 12);"
        "CREATE STREAM v WITH (source = 'v/', starting_timestamp = '2026-01-31');"
        "CREATE STREAM u WITH (source = 'u/', partition_by = 'file');"
    )
    text = (
        "SET spark.ui.enabled = false; SET max_delay = 500ms; SET delay = 'w=3s'; SET pace = 60; SET durable = false; "
        "INSERT INTO t WITH (checkpoint = 'c', available_now = true, max_rows_per_batch = 50, layout = '1x2', "
        "exchange = 'packed', kernel = 'scalar', threads = 2, pin = false, index = 'e.x', `order` = 'w,e', "
        "merge_runs = 8, take_over = true, restart = true, parts = 2, missing_files = 'ignore', window = '1s') "
        "SELECT * FROM e JOIN w ON abs(e.x - w.x) <= 1"
    )
    request: Request = asked(text, made, max_rows_per_batch=70).request
    e, w = request.join.streams
    assert (e.time, e.delay, e.time_unit, e.source.delimiter, e.idle_timeout, e.max_ahead) == (
        "at",
        "30s",
        "ms",
        "\t",
        "10m",
        "1h",
    )
    assert (str(e.where), e.source.on_bad_file, e.rate, e.source.format) == ("e.x > 1", "quarantine", 20000, "csv")
    assert (w.source.on_change, w.source.starting_version, w.delay) == ("ignore", 12, "3s")
    assert (request.to, request.checkpoint) == ("t", "c")
    assert request.run == {
        "available_now": True, "max_rows_per_batch": 70, "take_over": True, "restart": True, "layout": "1x2",
        "exchange": "packed", "execution": Execution("scalar", 2, pin=False, index="e.x", order="w,e", merge_runs=8),
        "durable": False, "max_delay": "500ms",
        "source_options": {"pace": "60", "parts": "2", "missing_files": "ignore"},
    }  # fmt: skip
    assert Script(made + text).session == {"conf": {"spark.ui.enabled": "false"}}


ON = "SELECT * FROM e JOIN w ON "
Q = "SELECT * FROM q JOIN w ON q.ts = w.ts"


@pytest.mark.parametrize(
    ("text", "at", "kind", "says"),
    [
        (f"{ON}abs(e.x - w.x) <= 1", "w ON", SqlSyntaxError, "write AND e.ts BETWEEN w.ts - INTERVAL 15 SECONDS AND"),
        (f"{ON}e.ts >= w.ts", "w ON", SqlSyntaxError, "write AND e.ts <= w.ts + INTERVAL 15 SECONDS"),
        (f"{ON}e.ts <= w.ts", "w ON", SqlSyntaxError, "write AND w.ts <= e.ts + INTERVAL 15 SECONDS"),
        (f"{ON}e.ts >= w.ts + INTERVAL 5 SECONDS AND e.ts < w.ts", "e.ts < w", SqlSyntaxError, "no tuples can satisfy"),
        (f"{ON}abs(e.ts - w.ts) <= 15 AND e.x = w.x", "w ON", SqlSyntaxError, "INTERVAL"),
        (f"{ON}{NEAR} AND frobnicate(e.x) > 3", "frobnicate", PredicateSyntaxError, "'frobnicate'"),
        (f"{ON}{NEAR} AND", "AND", SqlSyntaxError, "a condition is missing beside AND"),
        (f"{ON}AND {NEAR}", "AND", SqlSyntaxError, "a condition is missing beside AND"),
        (f"{ON}{NEAR} AND q.x = 3", "q.x", SqlSyntaxError, "the streams of this query are e, w"),
        (f"{ON}{NEAR} AND e. = 3", "= 3", SqlSyntaxError, "write e.column"),
        (f"{ON}{NEAR} AND e.x IN (SELECT x FROM w)", "SELECT x", SqlSyntaxError, "a query inside a condition"),
        (f"{ON}{NEAR} AND e.x = w.s", "e.x = w.s", PredicateError, "compares double with string"),
        (f"{ON}{NEAR} AND x = 3", "x = 3", SqlSyntaxError, "write e.x or w.x"),
        (f"{ON}{NEAR} AND zz = 3", "zz", SqlSyntaxError, "no stream of this query has a column 'zz'"),
        (f"{ON}{NEAR} AND e.yy = w.x", "e.yy", ColumnError, "stream e has no column 'yy'"),
        (f"SELECT q.* FROM e JOIN w ON {NEAR}", "q.*", SqlSyntaxError, "the streams of this query are e, w"),
        (f"SELECT e.q FROM e JOIN w ON {NEAR}", "e.q", ColumnError, "stream e has no column 'q'"),
        (f"SELECT e.x AS a, w.x AS A FROM e JOIN w ON {NEAR}", "A FROM", ColumnError, "collides"),
        (f"SELECT e.x AS `a b` FROM e JOIN w ON {NEAR}", "`a b`", ColumnError, "Delta does not allow"),
        (f"SELECT e.x AS a, e.n + uppers(e.s) AS b FROM e JOIN w ON {NEAR}", "uppers", PredicateSyntaxError, "upper?"),
        (f"SELECT abs(e.x) AS a, upper(e.x) AS b FROM e JOIN w ON {NEAR}", "upper", PredicateError, "has a float"),
        (f"{ON}{NEAR} AND |e.x - w.x| <= 1", "|", SqlSyntaxError, "write abs(e.x - w.x)"),
        ("SELECT * FROM e", "e", SqlSyntaxError, "a query joins two streams"),
        (f"SELECT * FROM e JOIN e ON {NEAR}", "e ON", SqlSyntaxError, "FROM e JOIN e AS f"),
        (f"SELECT * FROM e LEFT OUTER JOIN w ON {NEAR} JOIN v ON e.ts = v.ts", "LEFT",
         SqlSyntaxError, "LEFT OUTER JOIN needs two"),
        (f"SELECT * FROM e LEFT JOIN w ON {NEAR} WHERE e.n = 1 AND w.n = 1", "w.n",
         SqlSyntaxError, "a stream other than e"),
        (f"SELECT * FROM e RIGHT JOIN w ON {NEAR} WHERE e.n = w.n", "e.n", SqlSyntaxError, "a stream other than w"),
        (f"SELECT * FROM e FULL JOIN w ON {NEAR} WHERE e.n = 1", "e.n", SqlSyntaxError, "not possible with FULL JOIN"),
        (f"SELECT w.x FROM e ANTI JOIN w ON {NEAR}", "w.x", ColumnError, "has a tuple of e alone"),
        (f"INSERT INTO t WITH (cells = 'x') {ON}{NEAR}", "cells", ArgumentError, "cells is not a whole number"),
        (f"INSERT INTO t WITH (cell = 3) {ON}{NEAR}", "cell", SqlSyntaxError, "did you mean 'cells'"),
        (f"INSERT INTO t WITH (`on` = 'x') {ON}{NEAR}", "`on`", SqlSyntaxError, "write the condition after ON"),
        (f"INSERT INTO t WITH (master = 'local') {ON}{NEAR}", "master", SqlSyntaxError, "write SET master"),
        (f"INSERT INTO t WITH (window = 'soon') {ON}{NEAR}", "window", ArgumentError, "window is not a duration"),
        (f"INSERT INTO t WITH (delay = 'q=3s') {ON}{NEAR}", "delay", ArgumentError, "not in the join"),
        (f"SET conf = 3; {ON}{NEAR}", "conf", SqlSyntaxError, "SET spark.ui.enabled = false"),
        (f"CREATE STREAM q WITH (schema = 'x', source = 'a'); {Q}",
         "schema", SqlSyntaxError, "write the columns after"),
        (f"CREATE STREAM q WITH (sauce = 'x'); {Q}",
         "sauce", SqlSyntaxError, "did you mean 'source'"),
        (f"CREATE STREAM q WITH (time = 'x'); {Q}",
         "q WITH", SqlSyntaxError, "neither source nor table"),
        (f"CREATE STREAM q WITH (source = 'x', delay = 'soon'); {Q}",
         "delay", ArgumentError, "is not a duration"),
        (f"CREATE STREAM q WITH (source = 'x', delay = 3); {Q}",
         "delay", ArgumentError, "is not a text"),
        (f"CREATE STREAM q WITH (source = 'x', where = 'foo('); {Q}",
         "where", PredicateSyntaxError, "cannot read"),
        (f"CREATE STREAM q WITH (source = 'x', order_by = 'a'); {Q}",
         "order_by", SqlSyntaxError, "tables and views"),
        (f"CREATE STREAM q WITH (table = 'x'); {Q}",
         "q JOIN", SqlSyntaxError, "all streams of a query come from"),
        ("CREATE STREAM E WITH (source = 'x'); SELECT * FROM e", "E WITH", SqlSyntaxError, "is there twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_where_it_stands(
    text: str, at: str, kind: type[StreamJoinError], says: str
) -> None:
    streams = STREAMS + "\n"
    with pytest.raises(StreamJoinError) as caught:
        asked(text, streams)
    assert type(caught.value) is kind
    assert says in str(caught.value)
    line, column = map(int, re.findall(r"line (\d+), column (\d+): ", str(caught.value))[0])
    assert line == 2
    assert text[column - 1 :].startswith(at)
    assert "'...'" in str(caught.value) or "WITH" not in text


def test_a_query_needs_a_table_and_a_checkpoint_of_its_own() -> None:
    insert = f"INSERT INTO {{}} {ON}{NEAR};"

    def checked(text: str) -> None:
        script = Script(STREAMS + text)
        script.checked(script.steps, None)

    checked(insert.format("a WITH (checkpoint = 'x')") + insert.format("b WITH (checkpoint = 'y')"))
    for text, says in (
        (insert.format("a"), "has no checkpoint"),
        (f"SET checkpoint = 'x'; {insert.format('a')} {insert.format('b')}", "have one checkpoint"),
        (insert.format("a WITH (checkpoint = 'x')") + insert.format("'./a' WITH (checkpoint = 'y')"), "have one table"),
        (f"{ON}{NEAR}", "does not say where its results go"),
    ):
        with pytest.raises(SqlSyntaxError, match=says):
            checked(text)
