"""A table beside a stream on Spark: a restart goes on with the version that is there then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin, Table
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.testing import oracle_table_join
from tests.stream.test_tables import join_of, numbers, tuples, write_streams, write_version, zones

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_a_restart_joins_the_version_that_is_there_then(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path)
    for name in "ew":  # the second half comes later
        lines = (tmp_path / f"{name}.csv").read_text().splitlines(keepends=True)
        (tmp_path / f"{name}.csv").write_text("".join(lines[:31]))
        (tmp_path / f"{name}.rest").write_text("".join(lines[31:]))
    write_version(tmp_path, 0, "zones")
    join = join_of(tmp_path)
    matches, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    join.start(spark, matches, checkpoint, available_now=True).awaitTermination()
    write_version(tmp_path, 2, "zones")
    for name in "ew":
        with (tmp_path / f"{name}.csv").open("a") as file:
            file.write((tmp_path / f"{name}.rest").read_text())
    join.start(spark, matches, checkpoint, available_now=True).awaitTermination()
    rows = {name: tuples(name) for name in "ew"}
    ends = [dict.fromkeys("ew", 30), dict.fromkeys("ew", len(rows["e"]))]
    expected = oracle_table_join(join, rows, [{"z": zones(0)}, {"z": zones(2)}], ends=ends)
    assert numbers("ew", scanned(DeltaTable(str(matches))).to_table().to_pylist()) == numbers("ew", expected)
    metrics = scanned(DeltaTable(f"{matches}_metrics")).to_table().to_pylist()
    assert {row["batch_id"]: json.loads(row["table_versions"])["z"] for row in metrics} == {0: "0", 1: "1"}


def over_frames(**table: str) -> StreamJoin:
    streams = [Stream(name, delay="1s") for name in "ew"]
    on = ["abs(e.x - w.x) <= 1", "e.x BETWEEN z.lo AND z.hi", "e.ts >= z.since"]
    return StreamJoin(streams, on, "9s", ["e.tag", "w.tag", "z.zone"], tables=[Table("z", **table)])


@pytest.mark.long
def test_a_static_frame_beside_streaming_ones_and_beside_static_ones(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path)
    (tmp_path / "zones").mkdir()
    pq.write_table(zones(1), tmp_path / "zones" / "0.parquet")
    beside = spark.read.parquet(str(tmp_path / "zones"))
    ddl, join = "ts TIMESTAMP, x BIGINT, tag STRING", over_frames()
    found = []
    for is_moving in (False, True):
        frames = {"z": beside}
        for name in "ew":
            folder = tmp_path / f"folder-{name}"
            folder.mkdir(exist_ok=True)
            (folder / "0.csv").write_text((tmp_path / f"{name}.csv").read_text())
            reader = spark.readStream if is_moving else spark.read
            frame = reader.schema(ddl).option("header", "true").csv(str(folder))
            frames[name] = frame.withWatermark("ts", "1 second") if is_moving else frame
        result = join.dataframe(frames)
        if is_moving:
            query = result.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
            result = spark.read.parquet(str(tmp_path / "out"))
        found.append(sorted(tuple(row)[:3] for row in result.collect()))
    rows = {name: tuples(name) for name in "ew"}
    whole = oracle_table_join(over_frames(), rows, {"z": zones(1)})
    assert found[0] == found[1] == sorted((row["e_tag"], row["w_tag"], row["z_zone"]) for row in whole)
    assert len(whole) > 20
    for wrong, told in (
        ({name: frames[name] for name in "ew"}, "no frame for table z"),
        ({**frames, "z": frames["e"]}, "the frame of table z is streaming"),
    ):
        with pytest.raises(ArgumentError, match=told):
            join.dataframe(wrong)
    with pytest.raises(ArgumentError, match="table z has a source"):
        over_frames(source="zones").dataframe(frames)
    with pytest.raises(ArgumentError, match="table z has refresh"):
        over_frames(refresh="5m").dataframe(frames)
    with pytest.raises(ArgumentError, match=r"start\(frames=...\) does not have"):
        join.start(spark, tmp_path / "to", tmp_path / "c", frames={name: frames[name] for name in "ew"})
