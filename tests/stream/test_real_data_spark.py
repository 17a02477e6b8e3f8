"""The known counts, and every row, on real Spark: streamed in small batches, in large ones, and as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.sink.reader import scanned
from tests.support.real_data import BY_NAME, REAL_JOINS, RealJoin, answer, assert_same_rows, needs_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.shared, pytest.mark.long, needs_data]


def run(spark: SparkSession, join: StreamJoin, folder: Path, **options: object) -> pa.Table:
    query = join.start(spark, folder / "matches", folder / "checkpoint", available_now=True, **options)  # type: ignore[arg-type]
    query.awaitTermination()
    return scanned(DeltaTable(str(folder / "matches"))).to_table()


@pytest.mark.parametrize(
    ("name", "layout", "exchange", "batch_rows"),
    [
        ("flights", "2x2", "reference", 10_000),
        ("flights-60s", "1x2", "packed", 50_000),
        ("flights-others", "1x1", "packed", 10_000_000),
        pytest.param("air", "1x2", "reference", 50_000, marks=pytest.mark.campaign),
        pytest.param("air-24h", "2x2", "packed", 100_000, marks=pytest.mark.campaign),
        pytest.param("air-wide", "1x1", "packed", 10_000_000, marks=pytest.mark.campaign),
    ],
)
def test_every_row_is_the_oracles(
    name: str, layout: str, exchange: str, batch_rows: int, spark: SparkSession, tmp_path: Path
) -> None:
    real = BY_NAME[name]
    matches = run(spark, real.join(), tmp_path, layout=layout, exchange=exchange, max_rows_per_batch=batch_rows)
    assert matches.num_rows == real.matches
    assert_same_rows(matches, answer(name))


@pytest.mark.campaign
@pytest.mark.parametrize("batch_rows", [1_000, 50_000, 10_000_000])
@pytest.mark.parametrize("exchange", ["reference", "packed"])
@pytest.mark.parametrize("layout", ["1x1", "1x2", "2x2"])
@pytest.mark.parametrize("real", REAL_JOINS, ids=lambda real: real.name)
def test_every_combination(
    real: RealJoin, layout: str, exchange: str, batch_rows: int, spark: SparkSession, tmp_path: Path
) -> None:
    matches = run(spark, real.join(), tmp_path, layout=layout, exchange=exchange, max_rows_per_batch=batch_rows)
    assert_same_rows(matches, answer(real.name))


def test_frames_give_the_same_rows(spark: SparkSession) -> None:
    """`dataframe` joins static frames that Spark itself has read."""
    real = BY_NAME["flights"]
    join = StreamJoin([Stream("e"), Stream("w")], on=real.on, window="15s")
    frames = {
        stream.name: spark.read.csv(str(stream.source), header=True, inferSchema=True) for stream in real.join().streams
    }
    found = pa.Table.from_pandas(join.dataframe(frames, layout="2x2").toPandas())
    shared = [name for name in answer("flights").column_names if not name.endswith("_seq")]
    keys = [(name, "ascending") for name in ("e_ts", "e_icao24", "w_ts", "w_icao24")]
    found, expected = (table.select(shared).sort_by(keys) for table in (found, answer("flights")))
    assert found.num_rows == real.matches
    for name in ("e_ts", "e_icao24", "e_latitude", "w_ts", "w_icao24", "w_altitude", "event_time"):
        assert found[name].cast(expected[name].type).to_pylist() == expected[name].to_pylist()
