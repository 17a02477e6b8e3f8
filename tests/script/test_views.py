"""Computed columns of CREATE STREAM, and views of a stream: the rows that DuckDB gives over such columns and views."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from streamjoin_ds import JoinEngine
from streamjoin_ds.errors import ColumnError, SqlSyntaxError, StreamJoinError
from streamjoin_ds.script.script import Script
from tests.script.test_queries import COLUMNS, STREAMS, TABLES, asked, duck, plain

JOINED = "v2.ts BETWEEN w.ts - INTERVAL 3 SECONDS AND w.ts + INTERVAL 3 SECONDS"


def rows(streams: str, query: str) -> tuple[list[str], Counter[tuple[object, ...]]]:
    found = asked(f"INSERT INTO t WITH (checkpoint = 'c') {query}", streams)
    engine = JoinEngine(found.request.join)
    sources = {stream.name: str(stream.source).removesuffix(".csv") for stream in found.request.join.streams}
    utc = pa.timestamp("us", tz="UTC")
    sorted_ = {name: TABLES[source].sort_by("ts") for name, source in sources.items()}
    results = pa.concat_tables(
        [engine.push({n: t.set_column(0, "ts", t["ts"].cast(utc)) for n, t in sorted_.items()}), engine.finish()]
    )
    names = [name for name in results.column_names if not name.endswith("_seq") and name != "event_time"]
    columns = [[plain(value) for value in results[name].to_pylist()] for name in names]
    return names, Counter(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("view", "selected"),
    [
        ("SELECT ts, x * 2 AS twice, upper(s) AS big FROM e", "v2.twice, v2.big, w.x"),
        ("SELECT * FROM e WHERE n > 2", "v2.x, v2.n, w.n AS m"),
        ("SELECT e.*, e.x + n AS total FROM e WHERE e.s <> 'it''s' AND x IS NOT NULL", "v2.total, v2.day, w.x"),
        ("SELECT ts, x AS y, x AS z FROM e AS other WHERE other.x > 1", "v2.y, v2.z, w.s"),
        ("SELECT ts, x, coalesce(try_cast(s AS INT), n, 0) AS c FROM e", "v2.x, v2.c, w.x AS other"),
    ],
)
def test_a_view_of_a_stream_is_a_stream(view: str, selected: str) -> None:
    query = f"SELECT {selected} FROM v2 JOIN w ON {JOINED}"
    _, found = rows(f"{STREAMS} CREATE VIEW v2 AS {view};", query)
    duck().execute(f"CREATE OR REPLACE VIEW v2 AS {view}")
    wanted = Counter(tuple(plain(value) for value in row) for row in duck().sql(query).fetchall())
    assert found == wanted
    assert sum(found.values()) > 10


def test_all_columns_of_a_view_are_those_that_it_selects() -> None:
    streams = (
        f"{STREAMS} CREATE VIEW v1 AS SELECT ts, x * 2 AS twice, n FROM e; CREATE VIEW v2 AS SELECT ts, n FROM v1;"
    )
    names, _ = rows(streams, f"SELECT v2.*, w.x FROM v2 JOIN w ON {JOINED}")
    assert names == ["v2_ts", "v2_n", "w_x"]
    names, _ = rows(streams.replace("ts, n FROM v1", "* FROM v1"), f"SELECT v2.*, w.x FROM v2 JOIN w ON {JOINED}")
    assert sorted(names) == ["v2_n", "v2_ts", "v2_twice", "w_x"]


def test_a_stream_declares_computed_columns_beside_those_that_are_written() -> None:
    streams = STREAMS.replace(
        f"e {COLUMNS}", "v2 (ts TIMESTAMP, x DOUBLE, s STRING, y AS x / 4 + 1, c DECIMAL(9, 2) AS v2.x)"
    )
    streams = streams.replace("v.csv", "v.csv").replace("'v2.csv'", "'e.csv'")
    query = f"SELECT v2.y, v2.c, w.x FROM v2 JOIN w ON {JOINED}"
    _, found = rows(streams, query)
    duck().execute("CREATE OR REPLACE VIEW v2 AS SELECT ts, x / 4 + 1 AS y, x::DECIMAL(9, 2) AS c FROM e")
    assert found == Counter(tuple(plain(value) for value in row) for row in duck().sql(query).fetchall())


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("CREATE VIEW v2 AS SELECT x FROM nowhere;", SqlSyntaxError, "'nowhere' is no stream that was created before"),
        ("CREATE VIEW v2 AS SELECT count(*) AS n FROM e;", SqlSyntaxError, "aggregates stand in the query"),
        ("CREATE VIEW v2 AS SELECT x * 2 FROM e;", SqlSyntaxError, "has no name in the results"),
        ("CREATE VIEW v2 AS SELECT x FROM e JOIN w ON e.x = w.x;", SqlSyntaxError, "WHERE or ;"),
        ("CREATE VIEW e AS SELECT x FROM e;", SqlSyntaxError, "is there twice"),
        ("CREATE STREAM q (x DOUBLE, y AS) WITH (source = 'q.csv');", SqlSyntaxError, "an expression, such as"),
        (
            "CREATE STREAM q (x DOUBLE, y AS x +) WITH (source = 'q.csv');",
            StreamJoinError,
            "cannot read the expression",
        ),
        ("CREATE TABLE q (x DOUBLE, y AS x) WITH (source = 'q.csv');", SqlSyntaxError, "has a computed column"),
        (
            f"CREATE VIEW v2 AS SELECT ts, no_such + 1 AS y FROM e; SELECT v2.y, w.x FROM v2 JOIN w ON {JOINED};",
            ColumnError,
            "no column 'no_such', of which 'y' is computed",
        ),
    ],
)
def test_what_is_no_view_or_computed_column_is_refused(text: str, error: type[Exception], said: str) -> None:
    def read() -> None:
        for step in Script(STREAMS + text).steps:
            step.asked.joined()

    with pytest.raises(error, match=said):
        read()
