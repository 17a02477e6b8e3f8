"""Three stations at once: the same air in three places within six hours, row for row as DuckDB finds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import bind
from tests.support.microbatch import MicroBatches
from tests.support.real_data import assert_same_rows, needs_data, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.shared, needs_data]

# For each stream of the join: the recording, and the station in it.
STATIONS = {"a": ("u", "Dongsi"), "b": ("s", "Changping"), "c": ("s", "Huairou")}
PAIRS = (("a", "b"), ("b", "c"), ("a", "c"))
SIX_HOURS_US = 6 * 3_600_000_000


def station(name: str, rows: int, folder: Path) -> tuple[Stream, pa.Table]:
    """Return the first rows of one station as a stream over a CSV file, and as the table for DuckDB."""
    recording, place = STATIONS[name]
    table = recorded(recording)
    table = table.filter(pc.equal(table["station"], place)).slice(0, rows).select(["ts", "station", "PM2.5", "TEMP"])
    path = folder / f"{place}.csv"
    pyarrow.csv.write_csv(table, path)
    numbers = pa.array(range(table.num_rows), pa.int64())
    return Stream(name, path), table.append_column("seq", numbers)


def same_air(rows: int, folder: Path) -> tuple[StreamJoin, dict[str, pa.Table]]:
    stations = {name: station(name, rows, folder) for name in STATIONS}
    on = [f'abs({left}."PM2.5" - {right}."PM2.5") <= 8' for left, right in PAIRS]
    on += [f"abs({left}.TEMP - {right}.TEMP) <= 1" for left, right in PAIRS]
    join = StreamJoin([stream for stream, _ in stations.values()], on=on, window="6h")
    return join, {name: table for name, (_, table) in stations.items()}


def answer(join: StreamJoin, tables: dict[str, pa.Table]) -> pa.Table:
    """Return every column of every result, by DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    columns = []
    for name, table in tables.items():
        connection.register(name, table)
        columns += [f'{name}."{column}" AS "{name}_{column}"' for column in table.column_names]
    near = [f"abs(epoch_us({left}.ts) - epoch_us({right}.ts)) <= {SIX_HOURS_US}" for left, right in PAIRS]
    bands = [f'abs({left}."PM2.5" - {right}."PM2.5") <= 8' for left, right in PAIRS]
    bands += [f"abs({left}.TEMP - {right}.TEMP) <= 1" for left, right in PAIRS]
    select = ", ".join([*columns, "greatest(a.ts, b.ts, c.ts) AS event_time"])
    return connection.sql(f"SELECT {select} FROM a, b, c WHERE {' AND '.join([*near, *bands])}").to_arrow_table()


@pytest.mark.parametrize(
    ("layout", "exchange", "batch_rows"),
    [("1x1x1", "packed", 100_000), ("1x2x1", "reference", 2_000), ("2x1x2", "packed", 900)],
)
def test_every_row_is_duckdbs(layout: str, exchange: str, batch_rows: int, tmp_path: Path) -> None:
    join, tables = same_air(2_000, tmp_path)
    bound = bind(join, {stream.name: infer_schema(stream) for stream in join.streams})
    folder = tmp_path / f"{tmp_path.name}-run"
    found = MicroBatches(bound, folder, Layout.parse(layout, 3), exchange, batch_rows).run()
    expected = answer(join, tables)
    assert expected.num_rows > 1_000
    assert_same_rows(found, expected)


@pytest.mark.spark
def test_every_row_is_duckdbs_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    join, tables = same_air(800, tmp_path)
    query = join.start(
        spark, tmp_path / "matches", tmp_path / "checkpoint", available_now=True, max_rows_per_batch=900, layout="1x2x1"
    )
    query.awaitTermination()
    expected = answer(join, tables)
    assert expected.num_rows > 300
    assert_same_rows(scanned(DeltaTable(str(tmp_path / "matches"))).to_table(), expected)
