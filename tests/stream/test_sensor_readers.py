from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds.errors import ArgumentError, FileFormatError, StreamJoinError
from streamjoin_ds.source.delay_bound import FIRST_ROWS
from streamjoin_ds.spark.admission import ReadMaxRows, ReadMinRows
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.stream.sensor_tasks import plain_schema
from streamjoin_ds.stream.sensors import SensorsBatchReader, SensorsStreamReader
from tests.source.feeds import csv_text, rows, write

SECRET = "hunter2-canary"


def stream_reader(**options: str) -> SensorsStreamReader:
    clocks = {"clock": options.pop("clock")} if "clock" in options else {}
    parsed = SourceOptions.parse(options)
    return SensorsStreamReader(parsed, plain_schema(parsed), **clocks)  # type: ignore[arg-type]


def batch(**options: str) -> pa.Table:
    parsed = SourceOptions.parse(options)
    reader = SensorsBatchReader(parsed, plain_schema(parsed))
    found = [piece for partition in reader.partitions() for piece in reader.read(partition)]
    return pa.Table.from_batches(found, schema=plain_schema(parsed))


def test_a_batch_is_everything(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(20))
    path.write_text(path.read_text().rstrip("\n"))
    table = batch(path=str(path))
    assert table.num_rows == 20
    assert table.column_names == ["_seq", "ts", "name", "x", "n"]
    assert table["n"].to_pylist() == table["_seq"].to_pylist() == list(range(20))
    assert batch(generator="gen:band2d?rows=1000", parts="7")["_seq"].to_pylist() == list(range(1000))


def test_broken_rows_fail_or_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv_text(rows(9)) + f"soon,{SECRET},1,2\n" + csv_text(rows(1), header=False))
    with pytest.raises(FileFormatError, match="line 11, column 'ts': not an event time") as caught:
        batch(path=str(path))
    assert SECRET not in str(caught.value)
    table = batch(path=str(path), broken_rows="keep")
    assert table["_seq"].to_pylist() == list(range(11))
    assert table["_rejected"][9].as_py().endswith("a.csv:11: ts: not an event time in the years 1 to 9999")
    assert table["_rejected"].null_count == 10
    assert table["n"][9].as_py() is None


def test_bad_files_are_set_aside_in_a_batch_too(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", rows(5))
    (tmp_path / "b.csv").write_text("at,x\n1,2\n")
    write(tmp_path / "c.csv", rows(5, 5))
    options = {"path": str(tmp_path), "on_bad_file": "quarantine"}
    with pytest.raises(StreamJoinError) as caught:
        batch(**options)
    assert caught.value.name == "on_bad_file"
    with pytest.raises(StreamJoinError, match="SCHEMA_DRIFT"):
        batch(path=str(tmp_path), broken_rows="keep")
    table = batch(**options, broken_rows="keep")
    assert table["n"].to_pylist() == [0, 1, 2, 3, 4, None, 5, 6, 7, 8, 9]
    assert "b.csv:1: ts: SCHEMA_DRIFT" in table["_rejected"][5].as_py()


def test_pacing_cuts_batches_by_the_clock_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", rows(30))
    now = [0.0]
    reader = stream_reader(path=str(tmp_path), pace="2", clock=lambda: now[0])  # type: ignore[arg-type]
    offset, seqs = reader.initialOffset(), []
    while not seqs or seqs[-1] < 30:
        offset = reader.latestOffset(offset, ReadMaxRows(1000))
        seqs.append(offset["streams"]["sensors"]["seq"])
        now[0] += 1.5
    # A step is three seconds of event time; the fifth of five rows comes with the fourth.
    assert seqs[:4] == [1, 5, 7, 10]


def test_a_bound_of_delays_cuts_batches_by_the_clock_and_says_what_waits(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", rows(60_000))
    now = [0.0]
    reader = stream_reader(path=str(tmp_path), max_delay="400ms", clock=lambda: now[0])  # type: ignore[arg-type]
    offset, sizes, delays = reader.initialOffset(), [], []
    while True:
        end = reader.latestOffset(offset, ReadMaxRows(1_000_000))
        if end == offset:
            break
        sizes.append(end["streams"]["sensors"]["seq"] - offset["streams"]["sensors"]["seq"])
        delays.append(end["delay"])
        now[0] += 0.1 + sizes[-1] * 1e-5  # half of the bound holds 8 000 rows, with a tenth to spare
        offset = end
    assert sizes[0] == FIRST_ROWS
    assert sum(sizes) == 60_000
    assert max(sizes) == 30_000, "rows that have waited for long may take three times the 100 ms that each batch takes"
    assert delays[0] == {"max_delay_us": 400_000, "waiting_rows": 3 * FIRST_ROWS}
    assert delays[1]["delay_us"] == 120_000
    assert delays[-1]["delay_us"] > 400_000
    assert delays[-1]["waiting_rows"] == 0
    report = reader.reportLatestOffset()
    assert report is not None
    assert report["delay"] == delays[-1]


def test_a_bound_of_delays_never_exceeds_the_limit_of_rows() -> None:
    reader = stream_reader(generator="gen:band2d?rate=10&rows=5000", max_delay="1h", max_rows_per_batch="700")
    offset, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        sizes.append(end["streams"]["sensors"]["seq"] - offset["streams"]["sensors"]["seq"])
        offset = end
    assert sizes == [700] * 7 + [100]


def test_endless_streams_are_bounded_or_refused() -> None:
    reader = stream_reader(generator="gen:band2d?rate=10", max_rows_per_batch="100")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert end["streams"]["sensors"] == {"seq": 100}
    for refused in (reader.prepareForTriggerAvailableNow, lambda: batch(generator="gen:band2d")):
        with pytest.raises(ArgumentError) as caught:
            refused()
        assert caught.value.name == "sensors"


def test_nothing_new_is_the_same_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(10))
    reader = stream_reader(path=str(path))
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    logged = json.loads(json.dumps(end))
    with path.open("a") as file:
        file.write("2024-01-01,half a li")
    for planner in (
        reader,
        stream_reader(path=str(path), columns='{"ts":"timestamp[us]","name":"string","x":"double","n":"int64"}'),
    ):
        assert json.dumps(planner.latestOffset(logged, ReadMaxRows(100))) == json.dumps(end)
        report = planner.reportLatestOffset()
        assert report is not None
        assert report["held_back_bytes"] == {"sensors": 20}
    assert reader.latestOffset(reader.initialOffset(), ReadMinRows(11)) == reader.initialOffset()


def test_available_now_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(10))
    reader = stream_reader(path=str(path))
    reader.prepareForTriggerAvailableNow()
    at, seen = reader.initialOffset(), 0
    for _ in range(9):
        with path.open("a") as file:
            file.write(csv_text(rows(1), header=False))
        end = reader.latestOffset(at, ReadMaxRows(3))
        if end == at:
            break
        at, seen = end, seen + 1
    assert at["streams"]["sensors"]["seq"] == 10
    assert seen == 4


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"path": "/x", "password": SECRET}, "password"),
        ({"path": "/x", "max_rows_per_batch": SECRET}, "max_rows_per_batch"),
        ({"path": "/x", "max_rows_per_batch": "0"}, "max_rows_per_batch"),
        ({"path": "/x", "max_delay": SECRET}, "max_delay"),
        ({"path": "/x", "max_delay": "0s"}, "max_delay"),
        ({"path": "/x", "trigger": "1s"}, "trigger"),
        ({"path": "/x", "pace": SECRET}, "pace"),
        ({"path": "/x", "parts": SECRET}, "parts"),
        ({"path": "/x", "missing_files": SECRET}, "missing_files"),
        ({"path": "/x", "broken_rows": SECRET}, "broken_rows"),
        ({"path": "/x", "on_bad_file": SECRET}, "on_bad_file"),
        ({"path": "/x", "columns": SECRET}, "columns"),
        ({"path": "/x", "columns": f'{{"ts": "{SECRET}"}}'}, "ts"),
        ({"path": "/x", "time_unit": SECRET}, "time_unit"),
        ({"path": "/x", "format": SECRET}, "format"),
        ({"path": "/x", "delay": SECRET}, "delay of sensors"),
        ({"generator": f"gen:band2d?rate={SECRET}"}, "rate"),
        ({"generator": "gen:band2d", "path": SECRET}, "path"),
        ({"plan": SECRET}, "plan"),
        ({"plan": f'{{"secret": "{SECRET}"}}'}, "plan"),
        ({"plan": "[]"}, "plan"),
        ({}, "path"),
    ],
)
def test_errors_name_the_option_and_never_its_value(options: dict[str, str], name: str) -> None:
    with pytest.raises(StreamJoinError) as caught:
        SourceOptions.parse(options)
    assert caught.value.name == name
    assert SECRET not in str(caught.value)
    assert SECRET not in caught.value.hint
    assert SECRET not in repr(caught.value)
