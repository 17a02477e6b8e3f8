"""SQL on Spark: tables and views are streams by their names, and a text gives the rows that Spark's own SQL gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from streamjoin_ds import sql
from streamjoin_ds.errors import ArgumentError, ColumnError, SqlSyntaxError, StreamJoinError, TableError
from streamjoin_ds.sink.reader import scanned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
DDL = "ts TIMESTAMP, x DOUBLE, n BIGINT, s STRING"
NEAR = "l.ts BETWEEN r.ts - INTERVAL 2 SECONDS AND r.ts + INTERVAL 5 SECONDS"


def rows(step: int) -> list[tuple[Any, ...]]:
    return [
        (
            START + timedelta(microseconds=n * 250_001 + step),
            None if n % 13 == 5 else n * step % 17 / 4,
            n * step % 7,
            None if n % 9 == 2 else "abc"[n * step % 3],
        )
        for n in range(60)
    ]


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> Iterator[None]:
    """The static views l and r, and `Odd name` whose event time has another name."""
    for name, step in (("l", 3), ("r", 7)):
        spark.createDataFrame(rows(step), DDL).createOrReplaceTempView(name)
    spark.table("r").withColumnRenamed("ts", "at").createOrReplaceTempView("`Odd name`")
    yield
    for name in ("l", "r", "Odd name"):
        spark.catalog.dropTempView(name)


def collected(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


@pytest.mark.usefixtures("static")
def test_a_select_gives_the_rows_of_sparks_sql(spark: SparkSession) -> None:
    text = (
        "SELECT r.ts, l.x AS `left`, s2.s, l.n b, abs(l.x - r.x) AS gap, "
        "upper(s2.s) || '-' || CAST(s2.n AS STRING) AS tag, "
        "CASE WHEN l.n > r.n THEN 'more' ELSE coalesce(r.s, 'none') END AS kind, date_trunc('SECOND', l.ts) AS at "
        f"FROM l JOIN r ON abs(l.x - r.x) <= 0.5D AND {NEAR} "
        "JOIN r AS s2 ON s2.n = l.n AND s2.ts - l.ts BETWEEN INTERVAL '1' SECOND AND INTERVAL '3' SECONDS "
        'WHERE r.s <> "c" OR l.n IN (1, 2)'
    )
    (found,) = sql(spark, text)
    expected = spark.sql(text)
    assert found.columns == ["r_ts", "left", "s2_s", "b", "gap", "tag", "kind", "at"]  # type: ignore[union-attr]
    assert len(collected(expected)) > 20
    assert collected(found) == collected(expected)  # type: ignore[arg-type]


@pytest.mark.usefixtures("static")
def test_a_created_stream_says_what_a_view_does_not(spark: SparkSession) -> None:
    text = "SELECT * FROM l JOIN `Odd name` o ON l.n = o.n AND l.ts BETWEEN o.at AND o.at + INTERVAL 1 SECOND"
    with pytest.raises(ColumnError, match=r"which column of o is its event time is not known.*or CREATE TABLE if"):
        sql(spark, text)
    made = "CREATE STREAM `Odd name` WITH (table = '`Odd name`', time = 'at', where = 'n > 1');"
    found, plan = sql(spark, f"{made} {text}; EXPLAIN {text}")
    assert collected(found) == collected(spark.sql(f"{text} WHERE o.n > 1"))  # type: ignore[arg-type]
    assert isinstance(plan, str)
    assert "window      l=1s, o=0s" in plan or "window      l=0s, o=1s" in plan
    assert "filter      1 < o.n" in plan


@pytest.mark.usefixtures("static")
@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (f"SELECT * FROM l JOIN nosuch r ON {NEAR}", TableError, "no stream, table or view named"),
        (f"INSERT INTO t WITH (checkpoint = 'c') SELECT * FROM l JOIN r ON {NEAR}", ArgumentError, "over static data"),
        (f"SET trigger = 1s; SELECT * FROM l JOIN r ON {NEAR}", ArgumentError, "trigger is an option of INSERT"),
        (f"SET spark.x = 1; SELECT * FROM l JOIN r ON {NEAR}", SqlSyntaxError, "spark.conf.set('spark.x'"),
        (f"SET master = 'local'; SELECT * FROM l JOIN r ON {NEAR}", SqlSyntaxError, "start Spark with it"),
        (f"SELECT * FROM l JOIN r ON {NEAR} AND l.xx = r.x", ColumnError, "column 'xx'"),
        ("SELECT * FROM l JOIN r ON l.n = r.n WHERE qq > 1", SqlSyntaxError, "no stream of this query has a column"),
    ],
)
def test_what_spark_lacks_is_refused_where_it_stands(
    spark: SparkSession, text: str, kind: type[StreamJoinError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        sql(spark, text)
    assert says in str(caught.value)
    assert "line 1, column " in str(caught.value)
    assert "^" in str(caught.value)


def plain(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_the_plan_of_an_insert_over_views_is_that_of_its_start(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(rows(3), DDL).coalesce(1).write.parquet(str(tmp_path / "l"))
    for name in ("l", "r"):
        spark.readStream.schema(DDL).parquet(str(tmp_path / "l")).createOrReplaceTempView(f"told_{name}")
    made = "".join(
        f"CREATE STREAM told_{name} WITH (table = 'told_{name}', time = 'ts', delay = '10s', order_by = 'n', "
        "idle_timeout = '1m'); "
        for name in ("l", "r")
    )
    query = f"SELECT l.n, r.s FROM told_l l JOIN told_r r ON abs(l.x - r.x) <= 0.5 AND {NEAR}"
    (text,) = sql(spark, f"{made} EXPLAIN INSERT INTO '{tmp_path}/m' WITH (checkpoint = 'c', cells = 3) {query}")
    for line in ("idle after 1m", "1x3 = 3 cells", "of l by the order of its numbers", "numbers     r: n"):
        assert line in text  # type: ignore[operator]
    with pytest.raises(ArgumentError, match="DataFrames have none"):
        sql(spark, f"{made} EXPLAIN {query}")


@pytest.mark.long
def test_several_queries_run_over_streams_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    for name, step in (("l", 3), ("r", 7)):
        spark.createDataFrame(rows(step), DDL).coalesce(1).write.parquet(str(tmp_path / name))
        frame = spark.readStream.schema(DDL).parquet(str(tmp_path / name))
        frame.withWatermark("ts", "10 seconds").createOrReplaceTempView(f"live_{name}")
    spark.read.parquet(str(tmp_path / "r")).write.format("delta").saveAsTable("kept_r")
    try:
        first = (
            "SELECT l.ts, r.x AS other, abs(l.x - r.x) AS gap, l.n * 2 - r.n AS more "
            f"FROM live_l l JOIN live_r r ON abs(l.x - r.x) <= 0.5 AND {NEAR}"
        )
        second = f"SELECT l.n, r.s FROM live_l l JOIN kept_r AS r ON l.n = r.n AND {NEAR}"
        text = (
            "CREATE STREAM kept_r WITH (table = 'kept_r', time = 'ts', delay = '10s'); SET available_now = true;"
            f"INSERT INTO '{tmp_path}/first' WITH (checkpoint = '{tmp_path}/first.ckpt') {first};"
            f"INSERT INTO delta.`{tmp_path}/second` WITH (checkpoint = '{tmp_path}/second.ckpt', cells = 2) {second};"
        )
        # Static views and tables are tables beside them where they cannot be streams, or CREATE TABLE says so.
        spark.table("kept_r").where("x > 0.5").createOrReplaceTempView("some_r")
        third = "SELECT l.n, z.s, y.x AS yx FROM live_l l JOIN some_r z ON l.n = z.n JOIN kept_z y ON y.s = z.s"
        fourth = "SELECT f.n, z.x, z.s FROM f LEFT JOIN some_r AS z ON f.n = z.n AND f.x > z.x"
        made_z = "CREATE TABLE kept_z WITH (table = 'kept_r', where = 'x > 1'); "
        made_f = f"CREATE STREAM f WITH (source = '{tmp_path}/l', delay = '10s'); "
        text += (
            f"{made_z} INSERT INTO '{tmp_path}/third' WITH (checkpoint = '{tmp_path}/third.ckpt', cells = 1) {third};"
            f"{made_f} INSERT INTO '{tmp_path}/fourth' WITH (checkpoint = '{tmp_path}/4.ckpt', cells = 1) {fourth};"
        )
        over_frames, over_sources, live = sql(spark, f"{made_z} {made_f} EXPLAIN {third}; EXPLAIN {fourth}; {third}")
        for plan in (over_frames, over_sources):
            assert "table       z: no window, its rows are read at each start, " in plan  # type: ignore[operator]
        assert live.isStreaming  # type: ignore[union-attr]
        with pytest.raises(ArgumentError, match="live_r is streaming, and a table beside streams is static"):
            sql(spark, f"{made_f} EXPLAIN SELECT * FROM f JOIN live_r ON f.n = live_r.n")
        with pytest.raises(TableError, match="did you mean 'made_f'"):
            sql(spark, f"{made_f.replace(' f ', ' made_f ')} EXPLAIN SELECT * FROM made_f JOIN mad_f ON TRUE")
        started = sql(spark, text)
        for query in started:
            query.awaitTermination()  # type: ignore[union-attr]
        for name, step in (("live_l", 3), ("live_r", 7)):
            spark.createDataFrame(rows(step), DDL).createOrReplaceTempView(name)
        spark.table("live_l").createOrReplaceTempView("f")
        columns = {"first": ["l_ts", "other", "gap", "more"], "second": ["l_n", "r_s"]}
        columns |= {"third": ["l_n", "z_s", "yx"], "fourth": ["f_n", "z_x", "z_s"]}
        of_z = "(SELECT * FROM kept_r WHERE x > 1) y"
        queries = {"first": first, "second": second, "third": third.replace("kept_z y", of_z), "fourth": fourth}
        for place, query_text in queries.items():
            table = scanned(DeltaTable(str(tmp_path / place))).to_table().select(columns[place])
            found = Counter(zip(*(map(plain, column.to_pylist()) for column in table.columns), strict=True))
            expected = collected(spark.sql(query_text))
            assert expected.total() > 20
            assert found == expected, place
        with pytest.raises(SqlSyntaxError, match="Spark's catalog has a table kept_r"):
            sql(spark, f"{text.split('SET')[0]} INSERT INTO kept_r WITH (checkpoint = 'c') {second}")
    finally:
        spark.sql("DROP TABLE kept_r")
        for name in ("live_l", "live_r", "some_r", "f"):
            spark.catalog.dropTempView(name)


@pytest.mark.parametrize("on", ["l.a = r.a", "l.s = r.s", "l.s <=> r.s", "l.a <> r.a OR NOT (l.s <=> r.s)"])
def test_lists_and_structs_are_equal_where_sparks_are(spark: SparkSession, on: str) -> None:
    nan = float("nan")
    lists = [[0.0, nan], [-0.0, nan], [1.0, None], [None, 1.0], [], None, [nan]]
    structs = [(1, ["x", None], 0.0), (1, None, -0.0), (None, [], nan), None, (1, ["x"], nan), (None, None, None)]
    ddl = "ts TIMESTAMP, n INT, a ARRAY<DOUBLE>, s STRUCT<x: INT, y: ARRAY<STRING>, z: DOUBLE>"
    given = [(START, n, lists[n % 7], structs[n % 6]) for n in range(14)]
    for name in ("l", "r"):
        spark.createDataFrame(given, ddl).createOrReplaceTempView(f"nested_{name}")
    text = (
        "SELECT l.n, r.n AS other, l.a, r.s FROM nested_l l JOIN nested_r r "
        f"ON ({on}) AND l.ts BETWEEN r.ts - INTERVAL 1 SECONDS AND r.ts + INTERVAL 1 SECONDS"
    )
    (found,) = sql(spark, text)
    expected = spark.sql(text)
    assert expected.count() > 20
    assert Counter(map(repr, map(tuple, found.collect()))) == Counter(map(repr, map(tuple, expected.collect())))  # type: ignore[union-attr]


@pytest.mark.long
def test_a_script_reads_lists_and_structs_of_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    for name in "lr":
        (tmp_path / f"{name}.json").write_text(
            "".join(
                f'{{"ts": "2024-01-01T00:00:{n:02}Z", "n": {n}, "a": [{n % 3}, null], '
                f'"s": {{"on": "2024-01-0{n % 2 + 1}", "xs": [{{"x": {n % 2}}}], "more": 1}}}}\n'
                for n in range(20)
            )
        )
    columns = "(ts TIMESTAMP, n INT, a ARRAY<INT>, s STRUCT<`on`: DATE, xs: ARRAY<STRUCT<x: INT>>>)"
    streams = "".join(f"CREATE STREAM {name} {columns} WITH (source = '{tmp_path}/{name}.json'); " for name in "lr")
    (query,) = sql(
        spark,
        f"{streams} SET available_now = true; "
        f"INSERT INTO '{tmp_path}/out' WITH (checkpoint = '{tmp_path}/ckpt', cells = 2) "
        "SELECT l.n, r.n AS other, l.a, r.s FROM l JOIN r ON l.a = r.a AND l.s = r.s "
        "AND l.ts BETWEEN r.ts - INTERVAL 9 SECONDS AND r.ts + INTERVAL 9 SECONDS",
    )
    query.awaitTermination()  # type: ignore[union-attr]
    table = scanned(DeltaTable(str(tmp_path / "out"))).to_table().to_pylist()
    found = {(row["l_n"], row["other"]): row for row in table}
    assert len(found) == len(table)
    assert found.keys() == {(n, m) for n in range(20) for m in range(20) if (n - m) % 6 == 0 and abs(n - m) <= 9}
    for (n, _), row in found.items():
        assert row["l_a"] == [n % 3, None]
        assert row["r_s"] == {"on": date(2024, 1, n % 2 + 1), "xs": [{"x": n % 2}]}
    read = spark.read.format("delta").load(str(tmp_path / "out"))
    assert read.where("r_s.xs[0].x = 1 AND l_a[0] = 2").count() == sum(n % 6 == 5 for n, _ in found)
