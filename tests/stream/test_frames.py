"""`StreamJoin.dataframe`: DataFrames of others, streaming or static, give the rows of `start` and the contract."""

from __future__ import annotations

import json
import os
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin, band, equal
from streamjoin_ds.errors import ArgumentError, ColumnError, WatermarkMissingError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.testing import oracle_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
DDL = "ts TIMESTAMP, x DOUBLE, n BIGINT, s STRING, d DATE, m DECIMAL(12,2), b BOOLEAN, `a.b` BIGINT, i INT"
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("m", pa.decimal128(12, 2)),
        ("b", pa.bool_()),
        ("a.b", pa.int64()),
        ("i", pa.int32()),
    ]
)
LARGE = (1 << 53) + 1  # the first integer that a float64 cannot hold
FILES, ROWS = 4, 25


def tuples(step: int) -> list[dict[str, Any]]:
    """A tuple a second, with nulls in every column but the time."""
    rows: list[dict[str, Any]] = []
    for n in range(FILES * ROWS):
        row = {
            "ts": START + timedelta(seconds=n),
            "x": n * step % 13 / 4,
            "n": LARGE + 2 * (n * step % 5),
            "s": f"\u00e4{n % 3}",
            "d": date(2024, 2, 28) + timedelta(days=n % 4),
            "m": Decimal(n * step % 700).scaleb(-2),
            "b": n % 2 == 0,
            "a.b": LARGE + n,
            "i": n,
        }
        for place, name in enumerate(SCHEMA.names[1:]):
            if n % 17 == place * 2:
                row[name] = None
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two streams as folders of JSON-lines files, in the order of time."""
    folder = tmp_path_factory.mktemp("frames")
    for name, step in (("l", 3), ("r", 7)):
        rows = tuples(step)
        (folder / name).mkdir()
        for number in range(FILES):
            part = rows[number * ROWS : (number + 1) * ROWS]
            path = folder / name / f"{number}.json"
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in part))
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark's file source goes by the files' times
    return {name: folder / name for name in ("l", "r")}


def joins() -> dict[str, StreamJoin]:
    """One join for each kind of key."""
    plain_streams = [Stream("l"), Stream("r")]
    keys = {
        "floats": [band("l.x", "r.x", 0.25)],
        "large": [band("l.n", "r.n", 1)],
        "dotted": [band("l.a.b", "r.a.b", 3)],
        "strings": [equal("l.s", "r.s"), equal("l.b", "r.b")],
        "decimals": [band("l.m", "r.m", Decimal("0.40"))],
        "dates": [band("l.d", "r.d", timedelta(days=1))],
        "conditions": ["l.x + r.x > 3 OR l.n IS NULL AND l.s <> r.s", "l.i % 3 <> 1 AND l.`a.b` > r.i"],
    }
    streams = [Stream("l", where="m IS NOT NULL"), Stream("r", where="NOT (b AND d = DATE '2024-02-29')")]
    filtered = StreamJoin(streams, on=[band("l.x", "r.x", 0.25)], window="4s", select="l.x,r.x,l.ts,r.ts")
    return {name: StreamJoin(plain_streams, on=on, window="4s") for name, on in keys.items()} | {"filters": filtered}


def plain(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as sorted texts, without numbers: foreign tuples have none."""
    kept = []
    for row in rows:
        values = {name: value for name, value in row.items() if not name.endswith("_seq") and name != "batch_id"}
        moments = {
            name: value.replace(tzinfo=value.tzinfo or timezone.utc).timestamp()
            for name, value in values.items()
            if isinstance(value, datetime)
        }
        kept.append(repr(sorted((values | moments).items())))
    return sorted(kept)


def expected(join: StreamJoin) -> list[str]:
    results = oracle_join(join, {"l": tuples(3), "r": tuples(7)})
    for row in results:
        row["event_time"] = START + timedelta(
            microseconds=row.pop("event_time_us") - int(START.timestamp()) * 1_000_000
        )
    if not any(text.endswith("*") for text in join.select):
        wanted = {"event_time", *(text.replace(".", "_", 1) for text in join.select)}
        results = [{name: value for name, value in row.items() if name in wanted} for row in results]
    return plain(results)


def collected(frame: DataFrame) -> list[str]:
    return plain([row.asDict() for row in frame.collect()])


def moving(spark: SparkSession, inputs: dict[str, Path], delay: str = "0 seconds") -> dict[str, DataFrame]:
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
    return {name: reader.json(str(path)).withWatermark("ts", delay) for name, path in inputs.items()}


def still(spark: SparkSession, inputs: dict[str, Path]) -> dict[str, DataFrame]:
    return {name: spark.read.schema(DDL).json(str(path)) for name, path in inputs.items()}


def forced(name: str) -> dict[str, Any]:
    """How the engine is to work, of some of the joins: no row depends on it."""
    options = {"threads": 2, "merge_runs": 2, "kernel": "scalar"}
    return {"decimals": options, "floats": {"threads": 3, "pin": False, "index": "scan"}}.get(name, {})


@pytest.mark.parametrize("name", list(joins()))
def test_static_frames_give_the_contracts_rows(name: str, spark: SparkSession, inputs: dict[str, Path]) -> None:
    join = joins()[name]
    found = collected(join.dataframe(still(spark, inputs), layout="1x2" if name == "large" else None, **forced(name)))
    assert len(found) > 50
    assert found == expected(join)


@pytest.mark.parametrize("name", ["floats", "large", "dotted", "decimals", "filters"])
def test_streaming_frames_give_the_contracts_rows(
    name: str, spark: SparkSession, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """A file a batch; Spark's watermark goes on between them."""
    join = joins()[name]
    result = join.dataframe(moving(spark, inputs), layout="2x1" if name == "large" else None, **forced(name))
    assert result.isStreaming
    query = (
        result.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(batch["numInputRows"] > 0 for batch in query.recentProgress) > 2
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == expected(join)


def test_start_gives_the_same_rows(spark: SparkSession, inputs: dict[str, Path], tmp_path: Path) -> None:
    join = joins()["large"]
    for name, step in (("l", 3), ("r", 7)):
        pq.write_table(pa.Table.from_pylist(tuples(step), schema=SCHEMA), tmp_path / f"{name}.parquet")
    streams = [Stream(name, tmp_path / f"{name}.parquet") for name in ("l", "r")]
    sourced = StreamJoin(streams, on=join.predicates, window="4s")
    sourced.start(spark, tmp_path / "matches", tmp_path / "checkpoint", available_now=True).awaitTermination()
    rows = scanned(DeltaTable(str(tmp_path / "matches"))).to_table().to_pylist()
    assert plain(rows) == expected(join) == collected(join.dataframe(still(spark, inputs)))


def test_integers_keep_every_digit_and_nulls_stay(spark: SparkSession, inputs: dict[str, Path]) -> None:
    join = StreamJoin([Stream("l"), Stream("r")], on=[band("l.x", "r.x", 0.25)], window="4s")
    frame = join.dataframe(still(spark, inputs))
    assert dict(frame.dtypes)["l_i"] == "int"
    rows = [row.asDict() for row in frame.collect()]
    values = {row["l_a.b"] for row in rows}
    assert None in values
    assert any(value is not None and value % 2 == 0 and value > LARGE for value in values)
    assert {type(value) for value in values} == {int, type(None)}


def test_a_streaming_frame_needs_a_watermark(spark: SparkSession, inputs: dict[str, Path]) -> None:
    frames = moving(spark, inputs)
    frames["r"] = spark.readStream.schema(DDL).json(str(inputs["r"]))
    with pytest.raises(WatermarkMissingError, match="frame of r has no watermark on 'ts'") as caught:
        joins()["floats"].dataframe(frames)
    assert caught.value.name == "r"
    frames["r"] = frames["r"].withColumn("other", frames["r"]["ts"]).withWatermark("other", "1 second")
    with pytest.raises(WatermarkMissingError):
        joins()["floats"].dataframe(frames)


def test_what_the_engine_cannot_do_is_refused_at_once(spark: SparkSession, inputs: dict[str, Path]) -> None:
    with pytest.raises(ColumnError, match="which nothing is compared with"):
        joins()["floats"].dataframe(still(spark, inputs), index="l.s")
    with pytest.raises(ArgumentError, match="number of threads is out of range"):
        joins()["floats"].dataframe(still(spark, inputs), threads=0)


def test_frames_are_all_streaming_or_all_static(spark: SparkSession, inputs: dict[str, Path]) -> None:
    mixed = {"l": moving(spark, inputs)["l"], "r": still(spark, inputs)["r"]}
    with pytest.raises(ArgumentError, match=r"static \(r\)"):
        joins()["floats"].dataframe(mixed)
    with pytest.raises(ArgumentError, match="not those of the join's streams: r"):
        joins()["floats"].dataframe({"l": mixed["l"]})


def test_self_joined_frames(spark: SparkSession, inputs: dict[str, Path]) -> None:
    """One DataFrame under two names; nothing tells Spark's tuples apart, so each also meets itself."""
    frame = still(spark, inputs)["l"]
    join = StreamJoin([Stream("l"), Stream("r")], on=[band("l.n", "r.n", 0)], window="2s")
    results = oracle_join(join, {"l": tuples(3), "r": tuples(3)})
    assert join.dataframe({"l": frame, "r": frame}).count() == len(results) > 0
