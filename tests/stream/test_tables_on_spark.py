"""A table beside a stream on Spark: a restart goes on with the version that is there then."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Stream, StreamJoin, Table
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.testing.oracle import oracle_table_join
from tests.stream.test_tables import START, join_of, numbers, tuples, write_streams, write_version, zones
from tests.support.further import further

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("is_frame", [True, *further(False)])
def test_a_restart_joins_the_version_that_is_there_then(spark: SparkSession, tmp_path: Path, is_frame: bool) -> None:
    write_streams(tmp_path)
    for name in "ew":  # the second half comes later
        lines = (tmp_path / f"{name}.csv").read_text().splitlines(keepends=True)
        (tmp_path / f"{name}.csv").write_text("".join(lines[:31]))
        (tmp_path / f"{name}.rest").write_text("".join(lines[31:]))
    join = join_of(tmp_path, source=None if is_frame else "zones")
    matches, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"

    def run(seed: int) -> None:
        write_version(tmp_path, seed, "zones")
        given = {"frames": {"z": frame_of(spark, tmp_path, seed)}} if is_frame else {}
        join.start(spark, matches, checkpoint, available_now=True, **given).awaitTermination()

    run(0)
    for name in "ew":
        with (tmp_path / f"{name}.csv").open("a") as file:
            file.write((tmp_path / f"{name}.rest").read_text())
    run(2)
    rows = {name: tuples(name) for name in "ew"}
    ends = [dict.fromkeys("ew", 30), dict.fromkeys("ew", len(rows["e"]))]
    expected = oracle_table_join(join, rows, [{"z": zones(0)}, {"z": zones(2)}], ends=ends)
    assert numbers("ew", scanned(DeltaTable(str(matches))).to_table().to_pylist()) == numbers("ew", expected)
    metrics = scanned(DeltaTable(f"{matches}_metrics")).to_table().to_pylist()
    told = {row["batch_id"]: json.loads(row["table_versions"])["z"] for row in metrics}
    assert len(set(told.values())) == 2 if is_frame else told == {0: "0", 1: "1"}


def frame_of(spark: SparkSession, folder: Path, seed: int) -> DataFrame:
    path = folder / f"zones-{seed}.parquet"
    pq.write_table(zones(seed), path)
    return spark.read.parquet(str(path))


@pytest.mark.long
def test_a_batch_that_is_done_again_joins_what_it_joined_whatever_the_frame_has_by_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, ddl = over_frames(), "ts TIMESTAMP, x BIGINT, tag STRING, n BIGINT"
    rows, whole = {name: tuples(name) for name in "ew"}, Committer.commit

    def run(seed: int, *files: int) -> None:
        frames = {"z": frame_of(spark, tmp_path, seed)}
        for name in "ew":
            for number in files:
                path = tmp_path / name / f"{number}.csv"
                path.parent.mkdir(exist_ok=True)
                numbered = list(enumerate(rows[name]))[20 * number : 20 * number + 20]
                path.write_text(
                    "".join(f"{row['ts'].isoformat()},{row['x']},{row['tag']},{n}\n" for n, row in numbered)
                )
                os.utime(path, (1_700_000_000 + number,) * 2)  # Spark's file source goes by the files' times
            frames[name] = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).csv(str(tmp_path / name))
        options = {"frames": frames, "order_by": "n", "available_now": True, "cells": 2}
        join.start(spark, tmp_path / "m", tmp_path / "c", **options).awaitTermination()

    def breaks(self: Committer, batch: int, *arguments: Any, **options: Any) -> Any:
        if batch == 1:
            raise OSError(5, "the driver dies")
        return whole(self, batch, *arguments, **options)

    monkeypatch.setattr(Committer, "commit", breaks)
    with pytest.raises(StreamingQueryException):
        run(0, 0, 1)
    monkeypatch.setattr(Committer, "commit", whole)
    run(2, 2)
    ends = [dict.fromkeys("ew", end) for end in (20, 40, 60)]
    expected = oracle_table_join(join, rows, [{"z": zones(seed)} for seed in (0, 0, 2)], ends=ends)
    found = scanned(DeltaTable(str(tmp_path / "m"))).to_table().to_pylist()
    assert numbers("ew", found) == numbers("ew", expected)
    assert len(found) > 20
    assert [first for first, _ in json.loads((tmp_path / "c" / "tables.json").read_text())] == [0, 2]


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
    with pytest.raises(ArgumentError, match="no frame for table z"):
        join.start(spark, tmp_path / "to", tmp_path / "c", frames={name: frames[name] for name in "ew"})
    for options, wrong, told in (
        ({}, {"q": beside}, "a frame of q, which is no table"),
        ({}, {"z": frames["e"]}, "the frame of table z is streaming"),
        ({"refresh": "5m"}, {"z": beside}, "table z has refresh, and its frame is read once"),
        ({"source": "zones"}, {"z": beside}, "table z has a source, and a frame"),
    ):
        with pytest.raises(ArgumentError, match=told):
            over_frames(**options).start(spark, tmp_path / "to", tmp_path / "c", frames=wrong)


@pytest.mark.long
def test_lists_and_structs_are_keys_between_streams_and_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """From JSON lines and Parquet through Spark's exchange, state and restart into a Delta table."""
    place = pa.struct([("at", pa.list_(pa.int32())), ("since", pa.timestamp("us", tz="UTC"))])
    columns = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string())), ("place", place)])
    since = START.isoformat()
    rows: dict[str, list[dict[str, Any]]] = {
        name: [
            {
                "ts": (START + timedelta(seconds=n * step % 41)).isoformat(),
                "tags": [None, [], ["a"], ["a", None]][n * step % 4],
                "place": None if n % 11 == 4 else {"at": [n * step % 3, None], "since": since if n % 2 else None},
            }
            for n in range(60)
        ]
        for name, step in (("e", 7), ("w", 5))
    }
    zones = pa.table(
        {
            "tags": pa.array([["a"], ["a", None], [], None, ["a"]], pa.large_list(pa.string())),
            "name": ["one", "two", "none", "null", "again"],
        }
    )
    pq.write_table(zones, tmp_path / "zones.parquet")
    streams = [Stream(name, str(tmp_path / f"{name}.json"), delay="1m", schema=columns) for name in "ew"]
    table = Table("z", str(tmp_path / "zones.parquet"), finished_after="0s")
    select = ["e.*", "w.place", "z.name"]
    join = StreamJoin(
        streams, "e.place = w.place AND e.tags = z.tags AND w.tags <> z.tags", "20s", select, tables=[table]
    )
    for done in (30, 60):
        for name in "ew":
            (tmp_path / f"{name}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows[name][:done]))
        join.start(spark, tmp_path / "m", tmp_path / "c", available_now=True, cells=2).awaitTermination()
    for row in (*rows["e"], *rows["w"]):
        row["ts"] = datetime.fromisoformat(row["ts"])
    given = {name: pa.Table.from_pylist(of) for name, of in rows.items()}
    expected = oracle_table_join(join, given, [{"z": zones}])
    found = scanned(DeltaTable(str(tmp_path / "m"))).to_table()
    assert found.schema.field("e_tags").type == pa.list_(pa.string())
    assert numbers("ew", found.to_pylist()) == numbers("ew", expected)
    assert len(expected) > 20
    read = spark.read.format("delta").load(str(tmp_path / "m"))
    assert dict(read.dtypes)["w_place"] == "struct<at:array<int>,since:timestamp>"
    assert read.where("w_place.at[0] = e_place.at[0]").count() == len(expected)
