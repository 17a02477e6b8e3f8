"""The join's metrics in Spark's own progress, against its ledger and metrics tables."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.stream.observed import OBSERVED, OBSERVED_METRICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNTS = {"read": "input_rows", "stored": "stored_rows", "late": "late_rows", "rejected": "rejected_rows"}


def test_progress_says_what_the_tables_say(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("l", "r"):
        rows = [{"ts": 1_704_067_200 + n - 30 * (n % 20 == 19), "x": n % 7} for n in range(200)]
        broken = ['{"x": "text"}'] if name == "l" else []
        lines = [*map(json.dumps, rows), *broken]
        (tmp_path / f"{name}.json").write_text("".join(line + "\n" for line in lines))
    schema = {"ts": "int64", "x": "int64"}
    streams = [Stream(name, tmp_path / f"{name}.json", delay="2s", time_unit="s", schema=schema) for name in ("l", "r")]
    join = StreamJoin(streams, on=band("l.x", "r.x", 0), window="5s")
    query = join.start(
        spark, tmp_path / "m", tmp_path / "c", available_now=True, max_rows_per_batch=150, cells=3, layout="1x3"
    )
    query.awaitTermination()
    seen = {entry.batchId: entry.observedMetrics[OBSERVED].asDict() for entry in query.recentProgress}
    assert len(seen) == 3
    assert all(tuple(row) == OBSERVED_METRICS for row in seen.values())
    ledger = DeltaTable(f"{tmp_path / 'm'}_ledger").to_pyarrow_table().to_pylist()
    for batch, row in seen.items():
        of_batch = [line for line in ledger if line["batch_id"] == batch]
        for column, metric in COUNTS.items():
            assert row[metric] == sum(line[column] for line in of_batch), (batch, metric)
    assert sum(row["late_rows"] for row in seen.values()) > 0
    assert sum(row["rejected_rows"] for row in seen.values()) == 1
    metrics = DeltaTable(f"{tmp_path / 'm'}_metrics").to_pyarrow_table().to_pylist()
    for name in ("matches", "candidates", "state_rows", "state_bytes"):
        for batch, row in seen.items():
            assert row[name] == sum(line[name] for line in metrics if line["batch_id"] == batch), (batch, name)
    waits = {line["batch_id"]: (line["backlog_rows"], line["backlog_us"]) for line in metrics}
    assert {b: (row["backlog_rows"], row["backlog_s"]) for b, row in seen.items()} == {
        batch: (rows, None if us is None else us / 1e6) for batch, (rows, us) in waits.items()
    }
    assert waits[0][0] > 0
    assert waits[max(seen)] == (0, None)
    last = seen[max(seen)]
    largest = datetime.fromtimestamp(1_704_067_200 + 198, timezone.utc)
    assert datetime.fromisoformat(str(last["watermark"])).replace(tzinfo=timezone.utc).timestamp() == (
        largest.timestamp() - 2
    )
    assert last["watermark_lag_s"] == 2.0
