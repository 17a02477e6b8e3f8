"""The files of sql/ and Spark's view of our tables, through real Spark SQL."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.reader import between, complete, follow, scanned
from streamjoin_ds.sink.tables import TIMESTAMP
from tests.sink.conftest import MATCH_SCHEMA, ROWS, STEP_US, Join, match_rows
from tests.support.further import further

pytestmark = [pytest.mark.spark, pytest.mark.delta]
SQL = Path(__file__).resolve().parents[2] / "sql"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module", autouse=True)
def small_listings(spark):
    # VACUUM lists a folder in as many tasks as this setting says. The default of 10 000 takes two cores a minute to
    # start.
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A join of five batches; the last punctuation is in the middle of the last batch."""
    join = Join(f"{tmp_path_factory.mktemp('sql')}/matches")
    committer = join.committer()
    for batch_id in range(5):
        punctuation_us = 4 * STEP_US + 3 if batch_id == 4 else (batch_id + 1) * STEP_US
        join.commit(committer, batch_id, punctuation_us=punctuation_us)
    return join


@pytest.fixture
def join(tmp_path):
    return Join(f"{tmp_path}/matches")


def run(spark, name, root):
    """Run all statements of a file as they are, as a user does; return the rows of the last one."""
    spark.conf.set("streamjoin.root", root)
    lines = (SQL / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    frames = [spark.sql(statement) for statement in text.split(";\n") if statement.strip()]
    spark.conf.unset("streamjoin.root")
    return frames[-1]


def instant(micros):
    return f"TIMESTAMP '{EPOCH + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S.%f}+00:00'"


@pytest.mark.parametrize("name", ["late", "rejects", "ledger", "metrics", "punctuations", "matches"])
def test_spark_sees_the_columns_that_were_declared(spark, filled, name):
    schema = spark.table(f"delta.`{filled.tables.path_of(name)}`").schema
    ours = DeltaTable(filled.tables.path_of(name)).schema()
    assert [(field.name, field.nullable) for field in schema] == [(field.name, field.nullable) for field in ours.fields]
    names = {"long": "bigint", "integer": "int"}
    types = [json.loads(field.type.to_json()) for field in ours.fields]
    assert [field.dataType.simpleString() for field in schema] == [names.get(kind, kind) for kind in types]


def test_spark_reads_the_rows_and_properties(spark, filled):
    found = spark.sql(f"SELECT * FROM delta.`{filled.root}` ORDER BY r_seq").toArrow().cast(MATCH_SCHEMA)
    assert found.equals(pa.concat_tables([match_rows(batch_id) for batch_id in range(5)]).sort_by("r_seq"))
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{filled.root}`").collect()}
    assert properties["streamjoin.joinId"] == "join-1"
    assert properties["streamjoin.fingerprint"] == "f1"


@pytest.mark.parametrize(
    ("condition", "accept", "files"),
    [
        (f"event_time >= {instant(3 * STEP_US + 1)}", lambda us, _: us >= 3 * STEP_US + 1, 3),
        (f"event_time < {instant(STEP_US + 2)}", lambda us, _: us < STEP_US + 2, 2),
        (f"event_time > {instant(4 * STEP_US + ROWS)}", lambda us, _: us > 4 * STEP_US + ROWS, 1),
        (f"event_time > {instant(9 * STEP_US)}", lambda *_: False, 0),
        ("batch_id = 2", lambda _, batch_id: batch_id == 2, 1),
        ("batch_id > 4", lambda *_: False, 0),
    ],
)
def test_spark_skips_files_by_our_statistics(spark, filled, condition, accept, files):
    """Spark rounds time bounds to whole milliseconds, so a file may be read in vain, but none is overlooked."""
    frame = spark.table(f"delta.`{filled.root}`").where(condition)
    table = scanned(DeltaTable(filled.root)).to_table()
    times = table.column("event_time").cast("int64").to_pylist()
    assert frame.count() == sum(map(accept, times, table.column("batch_id").to_pylist()))
    assert len(frame.inputFiles()) == files


def test_complete_results(spark, filled):
    assert run(spark, "complete_results", filled.root) is not None
    found = spark.sql("SELECT * FROM complete_results").toArrow().cast(MATCH_SCHEMA).sort_by("r_seq")
    expected = complete(filled.root).cast(MATCH_SCHEMA).sort_by("r_seq")
    assert found.equals(expected)
    assert found.num_rows == 4 * ROWS + 2


def test_ordered_between(spark, filled):
    begin_us, end_us = STEP_US + 2, 4 * STEP_US + 2
    spark.sql(f"DECLARE OR REPLACE VARIABLE streamjoin_begin TIMESTAMP = {instant(begin_us)}")
    spark.sql(f"DECLARE OR REPLACE VARIABLE streamjoin_end TIMESTAMP = {instant(end_us)}")
    found = run(spark, "ordered_between", filled.root).toArrow()
    expected = between(filled.root, begin_us, end_us)
    assert found.column("event_time").cast(TIMESTAMP).equals(expected.column("event_time").cast(TIMESTAMP))
    assert found.column("s_seq").to_pylist() == expected.column("s_seq").to_pylist()
    spark.sql(f"SET VAR streamjoin_end = {instant(10**9)}")
    cut = run(spark, "ordered_between", filled.root).collect()
    assert len(cut) == between(filled.root, begin_us, 4 * STEP_US + 3).num_rows  # cut at the punctuation


def test_ledger(spark, filled):
    rows = {row.stream: row for row in run(spark, "ledger", filled.root).collect()}
    assert set(rows) == {"r", "s"}
    r = rows["r"]
    assert (r.read, r.stored, r.late, r.rejected, r.filtered) == (65, 40, 5, 5, 15)
    assert [rows[name].unaccounted for name in "rs"] == [0, 0]
    assert (rows["r"].late_kept, rows["r"].rejected_kept) == (5, 0)
    assert (rows["s"].late_kept, rows["s"].rejected_kept) == (0, 5)
    assert rows["s"].batches == 5


def test_latency_per_batch(spark, filled):
    rows = run(spark, "latency_per_batch", filled.root).collect()
    assert [row.batch_id for row in rows] == list(range(5))
    assert [row.matches for row in rows] == [ROWS] * 5
    assert float(rows[2].latency_seconds) == pytest.approx(1_700_000_000 - 2 * STEP_US / 1e6)
    assert float(rows[2].behind_seconds) == pytest.approx(-STEP_US / 1e6)
    assert (rows[0].slowest_cell_ms, rows[0].candidates) == (2, 3)


def test_verify_finds_missing_and_surplus_pairs(spark, join):
    r = pa.table(
        {
            "seq": [0, 1, 2, 3],
            "x": pa.array([5, 5, 100, 5], pa.int32()),
            "y": pa.array([0.1, float("nan"), 3.0, 1e9], pa.float32()),
            "ts": pa.array([10, 11, 12, 9_000_000_000], TIMESTAMP),
        }
    )
    s = pa.table(
        {
            "seq": [0, 1],
            "a": pa.array([15, 16], pa.int32()),
            "b": pa.array([10.1, float("nan")], pa.float32()),
            "ts": pa.array([13, 14], TIMESTAMP),
        }
    )
    spark.createDataFrame(r).createOrReplaceTempView("r")
    spark.createDataFrame(s).createOrReplaceTempView("s")
    schema = pa.schema([MATCH_SCHEMA.field(name) for name in ("r_seq", "s_seq", "event_time", "batch_id")])

    def commit(batch_id, pairs, root):
        other = Join(root)
        committer = other.committer(schema=schema)
        rows = [{"r_seq": a, "s_seq": b, "event_time": 13, "batch_id": batch_id} for a, b in pairs]
        reports = other.write(batch_id, pa.Table.from_pylist(rows, schema=schema))
        # The last batch ends the input, so everything is complete.
        other.commit(committer, batch_id, reports, punctuation_us=13 if batch_id == 0 else 10**10)

    def verified(root):
        return [tuple(row) for row in run(spark, "verify", root).collect()]

    wrong, right = f"{join.root}_wrong", f"{join.root}_right"
    commit(0, [(2, 1), (2, 1)], wrong)
    commit(1, [], wrong)
    # float32 0.1 and 10.1, widened: the difference is 10.000000378, more than 10. As decimals it would be 10.
    assert verified(wrong) == [("surplus", 2, 1), ("surplus", 2, 1)]
    s = s.set_column(2, "b", pa.array([10.0, float("nan")], pa.float32()))
    spark.createDataFrame(s).createOrReplaceTempView("s")
    assert verified(wrong) == [("missing", 0, 0), ("surplus", 2, 1), ("surplus", 2, 1)]
    commit(0, [], right)
    commit(1, [(0, 0)], right)
    assert verified(right) == []


@pytest.mark.long
def test_maintenance_beside_the_join(spark, join):
    committer = join.committer()
    for batch_id in range(3):
        join.commit(committer, batch_id)
    history = run(spark, "maintenance", join.root).collect()
    assert history[0].operation.startswith("VACUUM")
    assert "OPTIMIZE" in {row.operation for row in history}
    facts = [json.loads(row.userMetadata)["streamjoin"] for row in history if row.operation == "WRITE"]
    assert [fact["batch_id"] for fact in facts] == [2, 1, 0]
    assert len(DeltaTable(join.root).file_uris()) == 1
    join.commit(committer, 3)
    assert join.commit(join.committer(), 2).already_there
    join.assert_each_once(range(4))
    assert sum(rows.num_rows for _, rows in follow(join.root)) == 4 * ROWS


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        *further(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (r_x >= 0)",
            "ALTER TABLE {t} CLUSTER BY (event_time)",
            "ALTER TABLE {t} ADD COLUMNS (more STRING)",
        ),
    ],
)
def test_tables_changed_by_spark_beyond_this_writer_are_refused(spark, join, change):
    committer = join.committer()
    join.commit(committer, 0)
    spark.sql(change.format(t=f"delta.`{join.root}`"))
    with pytest.raises(TableError) as raised:
        join.commit(committer, 1)
    assert join.root in str(raised.value)
    with pytest.raises(TableError):
        join.committer()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        *further(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            "ALTER TABLE {t} ALTER COLUMN r_x COMMENT 'the x of r'",
            "ALTER TABLE {t} ALTER COLUMN r_x DROP NOT NULL",
            "COMMENT ON TABLE {t} IS 'pairs'",
        ),
    ],
)
def test_harmless_changes_by_spark_are_accepted(spark, join, change):
    committer = join.committer()
    join.commit(committer, 0)
    spark.sql(change.format(t=f"delta.`{join.root}`"))
    join.commit(committer, 1)
    assert join.commit(join.committer(), 1).already_there
    assert spark.table(f"delta.`{join.root}`").count() == 2 * ROWS


def test_a_spark_stream_of_the_matches_sees_each_row_once(spark, filled, tmp_path):
    query = (
        spark.readStream.format("delta")
        .load(filled.root)
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert spark.table("seen").count() == 5 * ROWS


def test_every_file_opens_with_its_table():
    files = sorted(SQL.glob("*.sql"))
    assert [file.stem for file in files] == [
        "complete_results",
        "latency_per_batch",
        "ledger",
        "maintenance",
        "ordered_between",
        "verify",
    ]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert text.startswith(f"-- {file.stem}: ")
        assert "-- |---" in text


def test_an_odd_path_works(spark, tmp_path):
    join = Join(f"{tmp_path}/it's a path; -- with ä, 100 %")
    join.commit(join.committer(), 0)
    assert len(run(spark, "latency_per_batch", join.root).collect()) == 1
    assert isinstance(join.committer(), Committer)
