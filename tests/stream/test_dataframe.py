"""`StreamJoin.dataframe`: foreign DataFrames, streaming or static, give the rows of `start` and of the contract."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Execution, Stream, StreamJoin, band, equal
from streamjoin_ds.errors import ArgumentError, ColumnError, LayoutError, WatermarkMissingError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.release import has_python_sources
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.further import further

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
    """Return a tuple for each second, with nulls in every column but the time."""
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
    """Return one join for each kind of key."""
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
    select = "l.x, r.x, l.ts, r.ts, abs(l.x - r.x) AS gap, concat(upper(l.s), '-', r.s) AS both"
    filtered = StreamJoin(streams, on=[band("l.x", "r.x", 0.25)], window="4s", select=select)
    return {name: StreamJoin(plain_streams, on=on, window="4s") for name, on in keys.items()} | {"filters": filtered}


def plain(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as sorted texts, without numbers, which foreign tuples do not have."""
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


def expected(join: StreamJoin, rows: dict[str, Any] | None = None, *, lateness: bool = True) -> list[str]:
    results = oracle_join(join, rows or {"l": tuples(3), "r": tuples(7)}, lateness=lateness)
    for row in results:
        row["event_time"] = START + timedelta(
            microseconds=row.pop("event_time_us") - int(START.timestamp()) * 1_000_000
        )
    names = [one if isinstance(one, str) else one.name for one in join.select]
    if not any(name.endswith("*") for name in names):
        wanted = {"event_time", *(name.replace(".", "_", 1) for name in names)}
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
    """Return settings of the engine for some of the joins; no row depends on them."""
    options = {"threads": 2, "execution": Execution("scalar", merge_runs=2)}
    return {"decimals": options, "floats": {"execution": Execution(threads=3, pin=False, index="scan")}}.get(name, {})


@pytest.mark.parametrize("name", list(joins()))
def test_static_frames_give_the_contracts_rows(name: str, spark: SparkSession, inputs: dict[str, Path]) -> None:
    join = joins()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # static frames stay
        given = join.dataframe(still(spark, inputs), layout="1x2" if name == "large" else None, **forced(name))
    found = collected(given)
    assert len(found) > 50
    assert found == expected(join)


@pytest.mark.parametrize("name", ["floats", "large", *further("dotted", "decimals", "filters")])
def test_streaming_frames_give_the_contracts_rows(
    name: str, spark: SparkSession, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """Each batch is one file, and Spark's watermark moves on between batches."""
    join = joins()[name]
    with pytest.warns(FutureWarning, match="start.frames=.*faster"):
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
    if not has_python_sources():
        pytest.skip("Spark 3.5 has no sources in Python")
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
    with pytest.raises(ColumnError, match="which no predicate and no window compares"):
        joins()["floats"].dataframe(still(spark, inputs), execution=Execution(index="l.s"))
    with pytest.raises(ArgumentError, match="number of threads is out of range"):
        joins()["floats"].dataframe(still(spark, inputs), threads=0)


def test_frames_are_all_streaming_or_all_static(spark: SparkSession, inputs: dict[str, Path]) -> None:
    mixed = {"l": moving(spark, inputs)["l"], "r": still(spark, inputs)["r"]}
    with pytest.raises(ArgumentError, match=r"static \(r\)"):
        joins()["floats"].dataframe(mixed)
    with pytest.raises(ArgumentError, match="have different names: r"):
        joins()["floats"].dataframe({"l": mixed["l"]})


def files_of(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Make a folder; return rows as the texts of `FILES` files for it."""
    folder.mkdir()
    size = -(-len(rows) // FILES)
    parts = [rows[first : first + size] for first in range(0, len(rows), size)]
    return ["".join(json.dumps(row, default=str) + "\n" for row in part) for part in parts]


def put(folder: Path, texts: list[str], first: int, last: int) -> None:
    for number in range(first, last):
        (folder / f"{number}.json").write_text(texts[number])
        os.utime(folder / f"{number}.json", (1_700_000_000 + number,) * 2)  # Spark's file source goes by these times


def taken_in(spark: SparkSession, result: DataFrame, folder: Path) -> StreamingQuery:
    """Take in all that is there, one file a batch."""
    query = (
        result.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


@pytest.fixture
def partitions(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """A function that sets the session's shuffle partitions; the setting is put back after the test."""
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    yield lambda count: spark.conf.set(key, str(count))
    spark.conf.set(key, str(before))


def test_ranges_are_refused_by_name(spark: SparkSession, inputs: dict[str, Path]) -> None:
    join = StreamJoin([Stream("l"), Stream("r")], on=band("l.x", "r.x", 1), window="10s")
    with pytest.raises(LayoutError, match="no layouts of ranges") as caught:
        join.dataframe(still(spark, inputs), layout="ranges")
    assert (caught.value.name, "grid" in caught.value.hint) == ("layout", True)
    assert join.dataframe(still(spark, inputs), layout="grid").columns == join.dataframe(still(spark, inputs)).columns


@pytest.mark.long
def test_a_restart_under_another_session_setting_gives_the_same_rows(
    spark: SparkSession, tmp_path: Path, partitions: Callable[[int], None]
) -> None:
    """The layout belongs to the state: Spark keeps its partitions, whatever the session says now."""
    join = StreamJoin([Stream("l"), Stream("r")], on=[band("l.x", "r.x", 0.5)], window="5m", select="l.ts,l.i,r.i")
    texts = {name: files_of(tmp_path / name, tuples(step)) for name, step in (("l", 3), ("r", 7))}
    for number, count in enumerate((2, 5, 1, 3)):
        for name in texts:
            put(tmp_path / name, texts[name], number, number + 1)
        partitions(count)
        frames = moving(spark, {name: tmp_path / name for name in texts})
        taken_in(spark, join.dataframe(frames), tmp_path)
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == expected(join)

    put(tmp_path / "l", [texts["l"][0]] * (FILES + 1), FILES, FILES + 1)
    with pytest.raises(StreamingQueryException, match=r"LAYOUT.*has the layout 1x2, not 2x2"):
        taken_in(spark, join.dataframe(frames, layout="2x2"), tmp_path)
    other = StreamJoin(join.streams, on=[band("l.x", "r.x", 0.75)], window="5m", select="l.ts,l.i,r.i")
    with pytest.raises(StreamingQueryException, match=r"FINGERPRINT_MISMATCH"):
        taken_in(spark, other.dataframe(frames), tmp_path)


def test_self_joined_frames(spark: SparkSession, inputs: dict[str, Path]) -> None:
    """One DataFrame under two names is one input: no tuple meets itself unless the join asks for it."""
    doubled = still(spark, inputs)["l"]
    doubled = doubled.union(doubled.where("i % 3 = 0"))  # equal rows are different tuples
    rows = tuples(3) + [row for row in tuples(3) if row["i"] is not None and row["i"] % 3 == 0]
    for selves in (False, True):
        streams = [Stream("l", where="n > 0"), Stream("r", time="ts")]
        join = StreamJoin(
            streams, on=[band("l.n", "r.n", 0)], window="2s", select="l.n,l.x,r.s", include_self_pairs=selves
        )
        sourced = StreamJoin(
            [replace(stream, source="x") for stream in join.streams],
            on=join.predicates, window="2s", select=join.select, include_self_pairs=selves,
        )  # fmt: skip
        found = collected(join.dataframe({"l": doubled, "r": doubled}))
        assert found == expected(sourced, {"l": rows, "r": rows}, lateness=False)
        assert len(found) > 50


def test_streaming_frames_joined_with_themselves(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for row in tuples(3) for _ in range(2 if row["i"] and row["i"] % 5 == 0 else 1)]
    rows.insert(len(rows) // FILES + 2, dict(rows[len(rows) // FILES - 1]))  # equal rows in two batches, too
    put(tmp_path / "l", files_of(tmp_path / "l", rows), 0, FILES)
    frame = moving(spark, {"l": tmp_path / "l"}, "2 seconds")["l"]
    join = StreamJoin([Stream("l"), Stream("r")], on=[band("l.n", "r.n", 2)], window="9s", select="l.ts,l.n,r.n,r.b")
    query = taken_in(spark, join.dataframe({"l": frame, "r": frame}, layout="2x1"), tmp_path)
    assert len(query.lastProgress["sources"]) == 1  # both names have the same rows in each batch
    sourced = StreamJoin([replace(s, source="x") for s in join.streams], join.predicates, "9s", join.select)
    found = collected(spark.read.parquet(str(tmp_path / "out")))
    assert found == expected(sourced, {"l": rows, "r": rows}, lateness=False)
    assert len(found) > 100


def test_the_streams_delay_says_what_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """The watermark at the batch's start decides, as in the contract; no session setting changes that."""
    texts, rows = {}, {name: tuples(step) for name, step in (("l", 3), ("r", 7))}
    for name in rows:
        texts[name] = files_of(tmp_path / name, rows[name])
        # The second file has a row 3 s before the watermark that a delay of 5 s gives, and one 2 s after it.
        extra = [{**rows[name][7], "ts": rows[name][ROWS - 1]["ts"] - timedelta(seconds=s)} for s in (8, 3)]
        texts[name][1] += "".join(json.dumps(row, default=str) + "\n" for row in extra)
        rows[name] = [*rows[name][: 2 * ROWS], extra[1], *rows[name][2 * ROWS :]]
        put(tmp_path / name, texts[name], 0, FILES)
    join = StreamJoin([Stream("l", delay="5s"), Stream("r", delay="5s")], on=[band("l.n", "r.n", 3)], window="20s")
    folders = {name: tmp_path / name for name in texts}
    with pytest.raises(ArgumentError, match=r"frame of l has a watermark of 2s, and the stream a delay of 5s"):
        join.dataframe(moving(spark, folders, "2 seconds"))
    key = "spark.sql.streaming.multipleWatermarkPolicy"
    spark.conf.set(key, "max")
    try:
        taken_in(spark, join.dataframe(moving(spark, folders, "5 seconds")), tmp_path)
    finally:
        spark.conf.unset(key)
    assert collected(spark.read.parquet(str(tmp_path / "out"))) == expected(join, rows, lateness=False)
