"""A reader that was written for Spark 4.2, as 4.0 and 4.1 ask: without a start, and without a limit."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spark import admission
from streamjoin_ds.spark.admission import ReadAllAvailable, SelfLimitedReader, end_when_read
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.stream.sensor_tasks import plain_schema
from streamjoin_ds.stream.sensors import SensorsStreamReader
from tests.source.feeds import csv_text, rows, write


def reader(path: Path | str, **more: Any) -> SelfLimitedReader:
    options = SourceOptions.parse({"path": str(path), "max_rows_per_batch": "4"})
    return SelfLimitedReader(SensorsStreamReader(options, plain_schema(options)), **more)


def taken(asked: SelfLimitedReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    pieces = [piece for one in asked.partitions(start, end) for piece in asked.read(one)]
    return [seq for piece in pieces for seq in piece.column("_seq").to_pylist()]


def batches(asked: SelfLimitedReader, start: dict[str, Any]) -> tuple[list[list[int]], dict[str, Any]]:
    """Go on from a committed offset as Spark 4.0 does; return the rows of each batch and the last offset."""
    found = []
    while (end := json.loads(json.dumps(asked.latestOffset()))) != start:
        found.append(taken(asked, start, end))
        asked.commit(end)
        start = end
    return found, start


def test_batches_have_the_readers_own_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(10))
    asked = reader(path)
    assert batches(asked, asked.initialOffset())[0] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    whole = reader(path, limit=ReadAllAvailable())
    assert batches(whole, whole.initialOffset())[0] == [list(range(10))]


def test_a_restart_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(10))
    first = reader(path)
    zero = first.initialOffset()
    one = first.latestOffset()
    assert taken(first, zero, one) == [0, 1, 2, 3]
    # Spark names the log's last offset by an empty range, whether its batch was committed or is done again.
    committed = reader(path)
    committed.partitions(one, one)
    assert batches(committed, one)[0] == [[4, 5, 6, 7], [8, 9]]
    again = reader(path)
    again.partitions(one, one)
    assert taken(again, zero, one) == [0, 1, 2, 3]
    assert batches(again, one)[0] == [[4, 5, 6, 7], [8, 9]]


def test_what_is_asked_twice_is_answered_alike(tmp_path: Path) -> None:
    asked = reader(write(tmp_path / "a.csv", rows(10)))
    assert asked.latestOffset() == asked.latestOffset()


def test_an_available_now_run_ends_though_files_grow(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(6))
    asked = reader(path, available_now=True)
    zero = asked.initialOffset()
    one = asked.latestOffset()
    with path.open("a") as file:
        file.write(csv_text(rows(9), header=False))
    assert taken(asked, zero, one) == [0, 1, 2, 3]
    found, last = batches(asked, one)
    assert found == [[4, 5]]
    more = reader(path)
    more.partitions(last, last)
    assert [row for batch in batches(more, last)[0] for row in batch] == list(range(6, 15))


def test_a_generator_without_end_is_refused_by_name() -> None:
    options = SourceOptions.parse({"generator": "gen:band2d?rate=10"})
    asked = SelfLimitedReader(SensorsStreamReader(options, plain_schema(options)), available_now=True)
    with pytest.raises(ArgumentError) as caught:
        asked.latestOffset()
    assert caught.value.name == "sensors"


class Query:
    """A query as far as `end_when_read` uses one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.told, self.over = error, [], threading.Event()

    def processAllAvailable(self) -> None:
        self.told.append("read")
        if self.error is not None:
            self.over.set()
            raise self.error

    def stop(self) -> None:
        self.told.append("stopped")
        self.over.set()


def test_a_query_is_stopped_when_all_is_read_and_its_error_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    for query, told in ((Query(), ["read", "stopped"]), (Query(ValueError("batch 3")), ["read"])):
        end_when_read(query)  # type: ignore[arg-type]
        assert query.over.wait(10)
        for thread in threading.enumerate():
            if thread.name == "streamjoin-available-now":
                thread.join(10)
        assert query.told == told
    assert not raised


def test_older_releases_are_given_a_reader_that_limits_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamjoin_ds.stream import sensors

    path = write(tmp_path / "a.csv", rows(10))
    for has, expected in ((True, admission.DataSourceStreamReader), (False, SelfLimitedReader)):
        monkeypatch.setattr(sensors, "has_admission", lambda has=has: has)
        source = sensors.SensorsDataSource({"path": str(path)})
        asked = source.streamReader(source.schema())
        assert isinstance(asked, expected)
    # There a run with availableNow is one batch: it leaves nothing out, unless a limit was given.
    assert batches(asked, asked.initialOffset())[0] == [list(range(10))]
    limited = sensors.SensorsDataSource({"path": str(path), "max_rows_per_batch": "6"})
    asked = limited.streamReader(limited.schema())
    assert [len(batch) for batch in batches(asked, asked.initialOffset())[0]] == [6, 4]  # type: ignore[arg-type]
