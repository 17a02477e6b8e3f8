"""The join's metrics in Spark's own progress, against its ledger and metrics tables."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spark.session import configured
from streamjoin_ds.stream.progress import OBSERVED, OBSERVED_METRICS, tell_read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
    ledger = scanned(DeltaTable(f"{tmp_path / 'm'}_ledger")).to_table().to_pylist()
    for batch, row in seen.items():
        of_batch = [line for line in ledger if line["batch_id"] == batch]
        for column, metric in COUNTS.items():
            assert row[metric] == sum(line[column] for line in of_batch), (batch, metric)
    read = {batch: sum(line["read"] for line in ledger if line["batch_id"] == batch) for batch in seen}
    assert sum(read.values()) == 401
    assert {entry.batchId: entry.numInputRows for entry in query.recentProgress} == read
    assert {entry.batchId: entry.sources[0].numInputRows for entry in query.recentProgress} == read
    assert all(entry.processedRowsPerSecond > 0 for entry in query.recentProgress)
    assert sum(row["late_rows"] for row in seen.values()) > 0
    assert sum(row["rejected_rows"] for row in seen.values()) == 1
    metrics = scanned(DeltaTable(f"{tmp_path / 'm'}_metrics")).to_table().to_pylist()
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


def test_input_rows_over_a_replay_and_restarts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's count is of records: in a batch that is done again, and after a restart."""
    whole = Committer.commit

    def commit(self: Committer, batch: int, *arguments: Any, **options: Any) -> Any:
        outcome = whole(self, batch, *arguments, **options)
        if batch == 1 and outcome.committed:
            raise OSError(5, "the driver dies after its commit")
        return outcome

    def write(file: int) -> None:
        for stream in ("l", "r"):
            (tmp_path / stream).mkdir(exist_ok=True)
            rows = [{"ts": 1_704_067_200 + 100 * file + n, "x": n % 7} for n in range(100)]
            (tmp_path / stream / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run() -> StreamingQuery:
        streams = [Stream(name, tmp_path / name, time_unit="s") for name in ("l", "r")]
        join = StreamJoin(streams, on=band("l.x", "r.x", 0), window="5s")
        return join.start(
            spark, tmp_path / "m", tmp_path / "c", available_now=True, max_rows_per_batch=80, cells=3, layout="1x3"
        )

    def read(query: StreamingQuery) -> list[tuple[int, int]]:
        query.awaitTermination()
        return [(entry.batchId, entry.numInputRows) for entry in query.recentProgress]

    monkeypatch.setattr(Committer, "commit", commit)
    write(0)
    with pytest.raises(StreamingQueryException):
        run().awaitTermination()
    assert read(run()) == [(1, 80), (2, 40)]
    write(1)
    assert read(run()) == [(3, 80), (4, 80), (5, 40)]


@pytest.mark.parametrize("asked", [None, "FALLBACK"])
def test_a_query_makes_no_code_for_its_few_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str | None
) -> None:
    """The session keeps what it has; where it says how, the query does that."""
    rows = "".join(json.dumps({"ts": 1_704_067_200 + n, "x": n % 7}) + "\n" for n in range(20))
    for name in ("l", "r"):
        (tmp_path / f"{name}.json").write_text(rows)
    streams = [Stream(name, tmp_path / f"{name}.json", time_unit="s") for name in ("l", "r")]
    join = StreamJoin(streams, on=[band("l.x", "r.x", 0)], window="5s")
    key = "spark.sql.codegen.factoryMode"
    with configured(spark, {} if asked is None else {key: asked}):
        query = join.start(spark, tmp_path / "m", tmp_path / "c", available_now=True)
        assert spark.conf.get(key, None) == asked
    query.awaitTermination()
    query.explain()
    plan = capsys.readouterr().out
    assert "FlatMapGroupsInPandasWithState" in plan
    assert ("*(" in plan) == (asked is not None)


def test_a_spark_without_the_private_names_keeps_its_number() -> None:
    """Spark Connect's frames have no Java twin, and another version may lack what lies behind it."""
    assert not tell_read_rows(SimpleNamespace(), "id", 5)  # type: ignore[arg-type]
    assert not tell_read_rows(SimpleNamespace(_jdf=SimpleNamespace()), "id", 5)  # type: ignore[arg-type]
