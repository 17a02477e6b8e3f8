"""A table beside a stream on Spark: a restart goes on with the version that is there then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

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
