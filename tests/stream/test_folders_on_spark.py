"""Folders as people have them, on real Spark: sub-folders as columns, files by modification, a log that is rotated."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.errors import FingerprintMismatchError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.testing.oracle import oracle_join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

START_US = 1_704_067_200_000_000


def test_a_tree_of_uploads_beside_a_log_that_is_rotated(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(1)
    rows: dict[str, list[dict[str, Any]]] = {"up": [], "log": []}
    log = tmp_path / "app.json"

    def hour_of(hour: int) -> None:
        """Write an hour: two uploads under names that mean nothing, and lines of a log."""
        for half in range(2):
            first_us = START_US + (hour * 60 + half * 30) * 1_000_000
            made = [{"ts": first_us + k * 1_000_000, "x": dice.randrange(9)} for k in range(9)]
            folder = tmp_path / "up" / "site=a%2Fb" / f"hour={hour}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{dice.getrandbits(64):016x}.csv"
            path.write_text("ts,x\n" + "".join(f"{row['ts']},{row['x']}\n" for row in made))
            os.utime(path, (1000 + 2 * hour + half,) * 2)
            rows["up"] += [{**row, "hour": hour} for row in made]
        made = [{"ts": START_US + (hour * 60 + k) * 1_000_000, "x": dice.randrange(9)} for k in range(0, 60, 4)]
        with log.open("a") as file:
            file.write("".join(f'{{"ts": {row["ts"]}, "x": {row["x"]}}}\n' for row in made))
        rows["log"] += made

    def joined(**facts: Any) -> StreamJoin:
        facts = {"sub_folders": "read", "file_order": "modified"} | facts
        streams = [Stream("up", tmp_path / "up", **facts), Stream("log", log)]
        select = ["up.hour", "up.site", "up.x", "log.x"] if facts["sub_folders"] == "read" else ["up.x"]
        return StreamJoin(streams, on=[band("up.x", "log.x", 1)], window="20s", select=select)

    def run(join: StreamJoin) -> None:
        options: dict[str, Any] = {"max_rows_per_batch": 25, "available_now": True}
        join.start(spark, tmp_path / "matches", tmp_path / "checkpoint", **options).awaitTermination()

    for hour in (9, 10):
        hour_of(hour)
        run(joined())
    expected = oracle_join(joined(), rows)
    found = scanned(DeltaTable(str(tmp_path / "matches"))).to_table().to_pylist()
    assert len(found) == len(expected) > 50
    assert sorted((row["up_seq"], row["log_seq"]) for row in found) == sorted(
        (row["up_seq"], row["log_seq"]) for row in expected
    )
    assert {(row["up_site"], row["up_hour"]) for row in found} == {("a/b", 9), ("a/b", 10)}
    assert all(row["up_hour"] == rows["up"][row["up_seq"]]["hour"] for row in found)
    assert "by time of change" in str(joined().explain())
    with pytest.raises(FingerprintMismatchError, match="order of files of up"):
        run(joined(file_order="name"))

    hour_of(11)
    log.rename(tmp_path / "app.json.1")
    log.write_text((tmp_path / "app.json.1").read_text().splitlines()[-1] + "\n")
    with pytest.raises(StreamingQueryException, match=r"FILE_ROTATED: the file \S*/app\.json was rotated"):
        run(joined())
    (tmp_path / "app.json.1").rename(log)  # as the hint says
    run(joined())
    assert len(scanned(DeltaTable(str(tmp_path / "matches"))).to_table()) == len(oracle_join(joined(), rows))
