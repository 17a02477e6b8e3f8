"""Tables that Spark writes with features that delta-rs does not write: what a stream reads is what Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamjoin_ds.delta.table_state import TableState
from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.source.stream_source import infer_schema
from tests.source.delta.tables import feed, read_all, steps, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.delta]

PROPERTIES = {
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointInterval": "4",
    "delta.enableChangeDataFeed": "true",
}


@pytest.mark.long
def test_a_table_with_every_feature_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    table = f"features_{abs(hash(tmp_path))}"
    path = tmp_path / "table"
    told = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
    spark.sql(
        f"CREATE TABLE {table} (ts TIMESTAMP, n SMALLINT, gone STRING, what STRING) USING delta PARTITIONED BY "
        f"(what) LOCATION '{path}' TBLPROPERTIES ({told})"
    )

    def insert(first: int, last: int, columns: str) -> None:
        spark.sql(
            f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ timestamp_seconds(1704067200 + id), {columns} "
            f"FROM range({first}, {last})"
        )

    insert(0, 3000, "CAST(id AS SMALLINT), 'x', IF(id % 2 = 0, 'even', NULL)")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN n TO m")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN gone")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN m TYPE INT")
    spark.sql(f"DELETE FROM {table} WHERE m % 7 = 3 OR (m > 500 AND m < 900)")
    insert(3000, 3100, "CAST(id * 1000 AS INT), 'odd'")
    assert list((path / "_delta_log").glob("*.checkpoint.*-*"))
    assert infer_schema(stream_of(path)).names == ["ts", "m", "what"]
    assert TableState(str(path)).configuration["delta.checkpointPolicy"] == "v2"
    found = read_all(path, 1_000, on_change="ignore")
    by_spark = spark.sql(f"SELECT unix_micros(ts), m, what FROM {table}").collect()
    assert len(by_spark) > 2_000
    assert sorted(repr((row[0], *row[2:])) for row in found) == sorted(repr(tuple(row)) for row in by_spark)
    # What a MERGE inserts is told by the change feed, with the physical names of the columns.
    reader = feed(path, on_change="ignore")
    at = steps(reader, reader.initial(), 5_000)[-1]
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT timestamp_seconds(1704067200 + id) AS ts, CAST(id AS INT) AS m, 'new' "
        "AS what FROM range(2995, 3005)) s ON t.m = s.m WHEN MATCHED THEN UPDATE SET what = 'old' "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    new = spark.sql(f"SELECT count(*) FROM {table} WHERE what = 'new'").collect()[0][0]
    count = reader.frontier(at, 99).rows
    assert count == new > 0
    chunks = feed(path, on_change="ignore").read(at, reader.advance(at, count))
    assert {value for chunk in chunks for value in chunk.tuples.column("what").to_pylist()} == {"new"}
    # A column of the stream that is renamed is missed by name.
    at = reader.advance(at, count)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN m TO k")
    with pytest.raises(SchemaDriftError, match="no column 'm'"):
        reader.frontier(at, 99)
