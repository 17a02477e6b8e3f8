"""Tables beside streams in SQL: CREATE TABLE, the rows that DuckDB gives, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamjoin_ds import JoinEngine
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.script.script import Script

READINGS = "CREATE STREAM r (ts TIMESTAMP, id BIGINT, value DOUBLE) WITH (source = '{0}/r.csv', delay = '1s');"
TABLE = "CREATE TABLE z WITH (source='{0}/z.parquet', refresh='5m', finished_after='0s', where='most IS NOT NULL');"
QUERY = """
SELECT r.id, z.most, z.name AS zone FROM r JOIN z
  ON r.id = z.id AND r.value > z.most AND r.ts >= z.since AND (z.until IS NULL OR r.ts < z.until)
 WHERE z.name <> 'none'
"""


def zones() -> pa.Table:
    moment = pa.timestamp("us", tz="UTC")
    times = [0, 3_000_000, 0, 0, 5_000_000]
    return pa.table(
        {
            "id": [1, 1, 2, 3, 3],
            "most": [1.0, 2.0, None, 0.5, 1.5],
            "name": ["a", "b", "c", "none", "d"],
            "since": pa.array(times, moment),
            "until": pa.array([3_000_000, None, None, None, None], moment),
        }
    )


def readings() -> pa.Table:
    ts = pa.array([n * 500_000 for n in range(60)], pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": ts, "id": [n % 4 for n in range(60)], "value": [n % 7 / 2 for n in range(60)]})


def joined(folder: Path, text: str) -> Any:
    pq.write_table(zones(), folder / "z.parquet")
    script = Script(text.format(folder))
    return script.steps[-1].asked.joined()


def test_a_table_gives_the_rows_that_duckdb_gives(tmp_path: Path) -> None:
    insert = f"INSERT INTO found WITH (checkpoint = 'c') {QUERY};"
    asked = joined(tmp_path, READINGS + TABLE + insert)
    join = asked.request.join
    (table,) = join.tables
    assert (join.names, join.member_names, table.refresh) == (("r",), ("r", "z"), "5m")
    assert table.finished_after == "0s"
    engine = JoinEngine(join, {"z": zones().schema})
    engine.use_table("z", zones())
    found = engine.push({"r": readings()})
    ours = sorted(zip(*(found[name].to_pylist() for name in ("r_id", "z_most", "zone")), strict=True))
    r, z = readings(), zones()  # noqa: F841 - DuckDB reads them by their names
    query = QUERY.replace("JOIN z", "JOIN (SELECT * FROM z WHERE most IS NOT NULL) z")
    assert ours == sorted(duckdb.connect().sql(query).fetchall())
    assert len(ours) > 3


ON = "ON r.id = z.id AND r.value > z.most"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (f"SELECT r.id, r.value, z.name AS zone FROM r LEFT JOIN z {ON} AND r.id > 0 WHERE r.value < 3", "r_id zone"),
        (f"SELECT r.id, z.name AS zone FROM z RIGHT JOIN r {ON} AND z.name <> 'a'", "r_id zone"),
        (f"SELECT r.id, r.value FROM r LEFT SEMI JOIN z {ON}", "r_id r_value"),
        (f"SELECT r.id, r.value FROM r LEFT ANTI JOIN z {ON}", "r_id r_value"),
        (
            f"SELECT r.id, r.ts, max(z.most) AS high, count(z.id) AS n FROM r LEFT JOIN z {ON} GROUP BY r.seq",
            "r_id high n",
        ),
        (
            "SELECT r.id, z.name AS zone FROM r ASOF JOIN z MATCH_CONDITION (r.ts >= z.since) ON r.id = z.id",
            "r_id zone",
        ),
        (
            "SELECT r.id, z.name AS zone FROM r LEFT ASOF JOIN z MATCH_CONDITION (r.value > z.most) ON r.id = z.id",
            "r_id zone",
        ),
        (f"SELECT r.id, r.ts, min(z.name) AS low FROM r JOIN z {ON} GROUP BY r.id, r.ts", "r_id low"),
    ],
)
def test_lookups_give_the_rows_that_duckdb_gives(tmp_path: Path, query: str, names: str) -> None:
    join = joined(tmp_path, READINGS + TABLE.replace(", where='most IS NOT NULL'", "") + query).request.join
    engine = JoinEngine(join, {"z": zones().schema})
    engine.use_table("z", zones())
    pushed = [engine.push({"r": readings().slice(begin, 20)}) for begin in (0, 20, 40)]
    found = pa.concat_tables(pushed)
    ours = zip(*(found[name].to_pylist() for name in names.split()), strict=True)
    r, z = readings().add_column(0, "seq", [list(range(60))]), zones()  # noqa: F841 - DuckDB reads them by their names
    query = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI").replace("BY r.seq", "BY r.id, r.ts")
    query = query.replace("r.*", "r.id, r.ts").replace("LEFT ASOF", "ASOF LEFT")
    if "MATCH_CONDITION" in query:  # DuckDB has it among the conditions
        query = query.replace("MATCH_CONDITION (", "ON ").replace(") ON", " AND")
    wanted = ", ".join(name.removeprefix("r_") for name in names.split())
    theirs = duckdb.connect().sql(f"SELECT {wanted} FROM ({query})").fetchall()
    assert sorted(ours, key=str) == sorted(theirs, key=str)
    assert len(theirs) > 9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (READINGS + "CREATE TABLE z WITH (refresh = '5m');" + QUERY, "no source: a table of results"),
        (READINGS + TABLE.replace("refresh", "delay") + QUERY, "'delay' is not an option of a table"),
        (READINGS + TABLE + TABLE + QUERY, "the table z is there twice"),
        (READINGS + TABLE + QUERY.replace("r JOIN", "r FULL JOIN").replace("WHERE z.name <> 'none'", ""), "how=full"),
        (READINGS + TABLE + f"SELECT z.id FROM z LEFT JOIN r {ON}", "how=right has rows of a table"),
        (READINGS + TABLE + f"SELECT z.id FROM z LEFT ANTI JOIN r {ON}", "rows are about those of z, which is a table"),
        (
            READINGS + TABLE + "SELECT r.id FROM z ASOF JOIN r MATCH_CONDITION (z.since <= r.ts) ON z.id = r.id",
            "z, which is a table",
        ),
        (READINGS + TABLE + f"SELECT r.id FROM r LEFT JOIN z {ON} WHERE z.id = 1", "a stream other than r"),
        (READINGS + TABLE + "SET window = '5s';" + QUERY, "a window is between two streams"),
        (TABLE + "SELECT z.id FROM z JOIN z AS y ON z.id = y.id", "there is no stream|needs a stream"),
        (
            READINGS + "SET refresh = '5m'; SELECT r.id FROM r JOIN r AS q ON r.id = q.id AND r.ts = q.ts",
            "refresh is of",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(StreamJoinError, match=told):
        joined(tmp_path, text)


def test_a_setting_names_streams_and_tables(tmp_path: Path) -> None:
    insert = f"INSERT INTO found WITH (checkpoint = 'c', finished_after = 'r=3s,z=4s') {QUERY};"
    join = joined(tmp_path, READINGS + TABLE.replace("finished_after='0s', ", "") + insert).request.join
    assert [one.finished_after for one in (*(stream.source for stream in join.streams), *join.tables)] == ["3s", "4s"]
