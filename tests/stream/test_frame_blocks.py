"""`StreamJoin.dataframe` with a folder of blocks: the windows lie where the folder says, however it is written."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamjoin_ds import Stream, StreamJoin, equal
from streamjoin_ds.blocks.place import absolute_location
from streamjoin_ds.checkpoint.inspection import inspected
from streamjoin_ds.errors import ArgumentError
from tests.support.further import further

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
FILES, ROWS = 3, 2_000
TEXT = "x" * 40  # a batch of a stream is too large for the tail, and above the 64 KiB from which a run is a block


@pytest.mark.parametrize(
    ("written", "root"),
    [
        ("/data/blocks", "/data/blocks"),
        ("file:/data/blocks", "/data/blocks"),
        ("file:///data/blocks", "/data/blocks"),
        ("/data/a%20b", "/data/a%20b"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("/data/../blocks/", "/blocks"),
        ("s3://bucket/blocks", "s3://bucket/blocks"),
        ("hdfs://host/blocks", "hdfs://host/blocks"),
    ],
)
def test_a_local_folder_is_an_absolute_path_and_another_a_uri(written: str, root: str) -> None:
    assert absolute_location(written) == root


def test_a_relative_folder_is_seen_from_here() -> None:
    assert absolute_location("blocks") == str(Path.cwd() / "blocks")


def tuples(step: int) -> list[dict[str, Any]]:
    return [
        {"ts": START + timedelta(milliseconds=n), "x": n * step % 1_009, "text": f"{n}{TEXT}"}
        for n in range(FILES * ROWS)
    ]


def expected() -> list[tuple[str, str]]:
    """Return the pairs of texts, sorted; all tuples lie within the window."""
    by_x: dict[int, list[str]] = {}
    for row in tuples(7):
        by_x.setdefault(row["x"], []).append(row["text"])
    return sorted((row["text"], other) for row in tuples(3) for other in by_x.get(row["x"], ()))


@pytest.mark.spark
@pytest.mark.parametrize("scheme", ["file:", *further("")])
def test_blocks_lie_in_the_folder_and_nowhere_else(
    scheme: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version took ``file:`` literally: it made a folder of that name in the driver's working folder."""
    monkeypatch.chdir(tmp_path)
    for name, step in (("l", 3), ("r", 7)):
        (tmp_path / name).mkdir()
        rows = tuples(step)
        for number in range(FILES):
            path = tmp_path / name / f"{number}.json"
            part = rows[number * ROWS : (number + 1) * ROWS]
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in part))
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark's file source goes by the files' times
    join = StreamJoin([Stream("l"), Stream("r")], on=[equal("l.x", "r.x")], window="1h")
    reader = spark.readStream.schema("ts TIMESTAMP, x BIGINT, text STRING").option("maxFilesPerTrigger", 1)
    frames = {name: reader.json(str(tmp_path / name)).withWatermark("ts", "0 seconds") for name in ("l", "r")}
    before = set(tmp_path.iterdir())
    query = (
        join.dataframe(frames, layout="1x1", blocks=f"{scheme}{tmp_path}/windows/of this")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).select("l_text", "r_text").collect()
    assert sorted(map(tuple, found)) == expected()
    blocks = list((tmp_path / "windows" / "of this").rglob("*.arrow"))
    assert sum(path.stat().st_size for path in blocks) > 2 * FILES * ROWS * len(TEXT)  # all of the input is in them
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"windows", "out", "checkpoint"}
    with pytest.raises(ArgumentError, match="--blocks-in"):
        inspected(lambda: spark, str(tmp_path / "checkpoint"))
