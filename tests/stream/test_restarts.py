"""A query that is started again: after which errors, after which pauses, and how it ends."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from streamjoin_ds import Stream, StreamJoin, errors
from streamjoin_ds.errors import (
    ArgumentError,
    CheckpointInUseError,
    FileChangedError,
    KafkaUnreachableError,
    StoreUnreachableError,
    StreamJoinError,
    WorkerMemoryError,
    WorkerStartError,
    named_in,
)
from streamjoin_ds.stream.restarts import RestartedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkError(Exception):
    """Stands for an error of Spark's own."""


SparkError.__module__ = "pyspark.errors.exceptions.captured"


def carried(error: StreamJoinError) -> SparkError:
    """Return an error of a worker as Spark tells it to the driver."""
    kind = type(error)
    return SparkError(f"[STREAM_FAILED] ...\nTraceback ...\n{kind.__module__}.{kind.__name__}: {error}\n\tat java...")


class Query:
    """A streaming query that ends by an error, at once; by None where it is stopped."""

    def __init__(self, error: BaseException | None, *, has_progress: bool = False) -> None:
        self.error, self.name = error, "its name"
        self.lastProgress = {"batchId": 7} if has_progress else None
        self._stopped = threading.Event()
        self.isActive = True

    def awaitTermination(self) -> None:
        if self.error is not None:
            raise self.error
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


class Lives:
    """Starts one query after the other, and keeps the pauses."""

    def __init__(self, *lives: Query | BaseException) -> None:
        self.lives, self.begun, self.pauses = list(lives), [], []  # type: ignore[var-annotated]

    def begin(self, restarts: int) -> Any:
        self.begun.append(restarts)
        life = self.lives.pop(0)
        if isinstance(life, BaseException):
            raise life
        return life

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        return event.is_set()

    def query(self) -> RestartedQuery:
        return RestartedQuery(self.begin, wait=self.wait)


AWAY = KafkaUnreachableError("no broker answers", name="e")


def test_it_is_started_again_with_pauses_that_grow_until_a_batch_is_done(caplog: pytest.LogCaptureFixture) -> None:
    lives = Lives(
        Query(carried(AWAY), has_progress=True),
        *(Query(AWAY) for _ in range(3)),
        StoreUnreachableError("the store does not answer"),  # a start may fail too
        Query(AWAY, has_progress=True),
        *(Query(AWAY) for _ in range(11)),
        Query(FileChangedError("the file holds something else", name="a.csv")),
    )
    query = lives.query()
    with pytest.raises(FileChangedError):
        query.awaitTermination()
    assert not query.isActive
    assert lives.pauses == [1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert lives.begun == list(range(len(lives.pauses) + 1))
    assert query.restarts == len(lives.pauses)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told[0] == "the query ended and is started again in 1 s (restart 1): KAFKA_UNREACHABLE: no broker answers"


def test_errors_of_spark_s_own_pass_some_times_in_a_row() -> None:
    lives = Lives(*(Query(SparkError("lost an executor")) for _ in range(9)))
    with pytest.raises(SparkError):
        lives.query().awaitTermination()
    assert len(lives.pauses) == 5
    lives = Lives(*(Query(SparkError("lost an executor"), has_progress=True) for _ in range(9)), Query(ValueError("x")))
    with pytest.raises(ValueError, match="x"):
        lives.query().awaitTermination()
    assert lives.pauses == [1.0] * 9


def test_what_a_first_start_is_refused_for_is_raised_and_what_may_pass_is_waited_for() -> None:
    with pytest.raises(ArgumentError):
        Lives(ArgumentError("wrong", name="to")).query()
    with pytest.raises(SparkError):
        Lives(SparkError("no such function")).query()
    lives = Lives(AWAY, Query(None))
    query = lives.query()
    query.stop()
    assert query.awaitTermination(0) is True


def test_stop_ends_a_pause_at_once_and_starts_no_more() -> None:
    pausing = threading.Event()

    def wait(event: threading.Event, seconds: float) -> bool:
        pausing.set()
        return event.wait()  # a pause without an end but that of `stop`

    lives = Lives(Query(AWAY))
    query = RestartedQuery(lives.begin, wait=wait)
    assert pausing.wait(60)
    assert query.isActive
    assert query.awaitTermination(0) is False
    query.stop()
    assert not query.isActive
    assert query.awaitTermination() is None  # stopped, not failed
    assert lives.begun == [0]


def test_a_query_that_is_stopped_or_has_read_all_ends_for_good() -> None:
    running = Query(None)
    query = Lives(running).query()
    assert (query.name, query.lastProgress, query.isActive) == ("its name", None, True)
    running.stop()
    assert query.awaitTermination(60) is True
    assert not hasattr(query, "no_such_name")


def test_a_query_whose_checkpoint_was_taken_over_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = CheckpointInUseError("another driver has taken the checkpoint over", name="checkpoint")

    def refuse(_: object) -> None:
        raise taken

    monkeypatch.setattr("streamjoin_ds.stream.restarts.check_not_taken_over", refuse)
    running = Query(None)
    query = Lives(running).query()
    running.stop()
    with pytest.raises(CheckpointInUseError):
        query.awaitTermination(60)


def test_each_error_says_whether_it_may_pass_and_is_found_in_spark_s_text() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, StreamJoinError)]
    assert {kind.code for kind in kinds if kind.passes} == {
        "BLOCK_WRITE", "KAFKA_SCHEMA", "KAFKA_UNREACHABLE", "STORE_UNREACHABLE", "TABLE_WRITE", "WORKER_START",
    }  # fmt: skip
    for kind in kinds:
        error = kind("it is so", name="x", hint="do that")
        assert named_in(carried(error)) == named_in(error) == (kind, str(error))
    assert named_in(SparkError("streamjoin_ds.errors.Unheard: UNHEARD: x")) == (StreamJoinError, "UNHEARD: x")
    assert named_in(SparkError("something else")) is None


@pytest.mark.parametrize(
    "told",
    [
        "  File x.py, line 3\nMemoryError\n\tat org.apache...",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array",
        "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
        "OSError: [Errno 12] Cannot allocate memory",
        "ImportError: /.../pyarrow/lib.so: failed to map segment from shared object",
        "... (localhost executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "Query [id = 1, runId = 2] terminated with exception: Broken pipe SQLSTATE: XXKST",  # the planner's process
        "Query [id = 1, runId = 2] terminated with exception: Connection reset SQLSTATE: XXKST",  # asked, and gone
        "Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST",  # gone while it planned
        "java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_what_ran_out_of_memory_is_named_with_what_to_do_and_is_tried_again_some_times(told: str) -> None:
    error = SparkError(f"[STREAM_FAILED] ... Reason:\n{told}")
    kind, line = named_in(error) or (None, "")
    assert kind is WorkerMemoryError
    assert line.startswith("WORKER_MEMORY: ")
    assert "max_rows_per_batch" in line
    assert named_in(MemoryError()) is not None  # of the driver's own
    lives = Lives(*(Query(error) for _ in range(9)))
    with pytest.raises(SparkError):
        lives.query().awaitTermination()
    assert len(lives.pauses) == 5


def test_a_worker_that_did_not_start_is_named_and_is_tried_again() -> None:
    for told in ("Python worker failed to connect back.", "Timed out while waiting for the Python worker to connect"):
        error = SparkError(f"[STREAM_FAILED] ... org.apache.spark.SparkException: {told}")
        kind, line = named_in(error) or (None, "")
        assert kind is WorkerStartError
        assert line.startswith("WORKER_START: ")
    lives = Lives(*(Query(error) for _ in range(9)), Query(FileChangedError("it does not pass", name="a.csv")))
    with pytest.raises(FileChangedError):
        lives.query().awaitTermination()
    assert len(lives.pauses) == 9


def flaky(folder: Path) -> type[DataSource]:
    """Return a source of 40 rows, ten a batch, whose broker is away when the second and fourth are planned."""
    path = str(folder)

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"row": 0}

        def latestOffset(self) -> dict[str, int]:
            at = Path(path, "planned")
            first = int(at.read_text()) if at.exists() else 0
            if first in (10, 30) and not Path(path, f"was away at {first}").exists():
                Path(path, f"was away at {first}").touch()
                raise AWAY
            row = min(40, 10 + first)
            at.write_text(str(row))
            return {"row": row}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition((start["row"], end["row"]))]

        def read(self, partition: InputPartition) -> Iterator[tuple[datetime, float]]:
            first, end = partition.value
            for row in range(first, end):
                yield datetime.fromtimestamp(row, timezone.utc), 1.0

    class Flaky(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"flaky_{folder.name}"

        def schema(self) -> str:
            return "ts timestamp, x double"

        def streamReader(self, schema: object) -> DataSourceStreamReader:
            return Reader()

    return Flaky


def test_a_source_that_fails_twice_costs_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """The real thing: the broker is away at two batches; each match is there once, and the metrics count."""
    frames = {}
    for name in ("e", "w"):
        (tmp_path / name).mkdir()
        source = flaky(tmp_path / name)
        spark.dataSource.register(source)
        frames[name] = spark.readStream.format(source.name()).load()
    join = StreamJoin([Stream(name, time="ts") for name in ("e", "w")], on="abs(e.x - w.x) <= 1", window="0s")
    query = join.start(spark, tmp_path / "m", tmp_path / "c", frames=frames, restart=True)
    try:
        while query.isActive and not committed(tmp_path, 4):
            query.awaitTermination(1)
    finally:
        query.stop()
    assert sorted(path.name for path in tmp_path.glob("?/was*")) == ["was away at 10"] * 2 + ["was away at 30"] * 2
    found = spark.read.format("delta").load(str(tmp_path / "m")).select("e_ts", "w_ts").collect()
    assert len(found) == len(set(found)) == 40
    metrics = spark.read.format("delta").load(str(tmp_path / "m_metrics")).orderBy("batch_id").collect()
    restarts = [row.restarts for row in metrics]
    assert restarts == sorted(restarts)
    assert (restarts[0], restarts[-1]) == (0, query.restarts)  # type: ignore[attr-defined]
    assert 2 <= query.restarts <= 4  # type: ignore[attr-defined]


def committed(folder: Path, batches: int) -> bool:
    return len(list(folder.glob("c/**/commits/[0-9]*"))) >= batches
