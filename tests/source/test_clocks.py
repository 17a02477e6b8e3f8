"""The options that say how event times are written, over every source: files, spools, tables, topics, pushes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import bind
from tests.source.feeds import segment
from tests.source.kafka.formats.messages import messages_of

AT_US = 1_709_629_207_000_000  # 2024-03-05T09:00:07Z
DAY_FIRST = ["05/03/2024 09:00:07", "31/03/2024 09:00:07", "32/03/2024 09:00:07"]
FORM = "%d/%m/%Y %H:%M:%S"
SOURCES = ("csv", "jsonl", "spool", "parquet", "delta", "csv.gz")


def written(folder: Path, form: str, times: list[Any]) -> str:
    """Write times, and numbers beside them, as a source."""
    path = folder / {"spool": "0.spool"}.get(form, f"e.{form}")
    rows = [{"at": at, "x": float(x)} for x, at in enumerate(times)]
    lines = [json.dumps(row).encode() for row in rows]
    if form in ("parquet", "delta"):
        table = pa.Table.from_pylist(rows)
        (pq.write_table if form == "parquet" else lambda table, path: write_deltalake(str(path), table))(table, path)
    elif form == "spool":
        path.write_bytes(segment(lines))
    elif form == "csv.gz":
        pa.output_stream(path, compression="gzip").write(b"at,x\n" + csv_of(rows))
    else:
        path.write_bytes(b"at,x\n" + csv_of(rows) if form == "csv" else b"".join(line + b"\n" for line in lines))
    return str(path)


def csv_of(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(f"{row['at']},{row['x']}\n".encode() for row in rows)


def read(stream: Stream) -> tuple[list[int], list[tuple[str, str]]]:
    """Return the event times that a feed gives, and what it rejects; the planner sees the times that the task sees."""
    schemas = {"e": infer_schema(stream), "w": pa.schema([("ts", pa.int64()), ("x", pa.float64())])}
    bound = bind(Join([stream, Stream("w", schema=schemas["w"])], "e.x <= w.x", "1s"), schemas)
    feed = open_feed(stream, bound.read_schemas[0])
    end = feed.advance(feed.initial(), feed.frontier(feed.initial(), 100).rows)
    chunks = list(feed.read(feed.initial(), end))
    times = [ts for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
    known = [ts for ts in feed.running_max(feed.initial(), end).tolist() if ts > 0]
    assert set(known) >= set(np.maximum.accumulate(times).tolist())
    return times, [(one.column, one.reason) for chunk in chunks for one in chunk.rejects]


@pytest.mark.parametrize("form", SOURCES)
def test_texts_of_a_form_are_read_and_others_are_rejects_that_say_it(tmp_path: Path, form: str) -> None:
    stream = Stream("e", written(tmp_path, form, DAY_FIRST), time="at", time_format=FORM)
    times, rejects = read(stream)
    assert times == [AT_US, AT_US + 26 * 86_400_000_000]
    assert [column for column, _ in rejects] == ["at"]
    assert FORM in rejects[0][1]


@pytest.mark.parametrize("form", SOURCES)
@pytest.mark.parametrize(
    ("name", "values", "right"),
    [
        ("excel", [45356.37508101852], AT_US),
        ("labview", [3_792_474_007], AT_US),
        ("%Y%m%d%H%M", [202403050900], AT_US - 7_000_000),
        ("doy", [20240650900], AT_US - 7_000_000),
        ("iso|%d.%m.%Y", ["2024-03-05T09:00:07Z"], AT_US),
    ],
)
def test_numbers_of_a_form_are_read_as_they_are_written(
    tmp_path: Path, form: str, name: str, values: list[Any], right: int
) -> None:
    assert read(Stream("e", written(tmp_path, form, values), time="at", time_format=name)) == ([right], [])


@pytest.mark.parametrize("form", SOURCES[:3])
def test_a_column_of_other_texts_is_refused_with_a_value_and_a_way(tmp_path: Path, form: str) -> None:
    with pytest.raises(ColumnError) as caught:
        infer_schema(Stream("e", written(tmp_path, form, DAY_FIRST[:2]), time="at"))
    assert "'05/03/2024 09:00:07' is not ISO 8601" in str(caught.value)
    assert caught.value.hint == f"time_format='{FORM}'"


def test_topics_read_times_of_a_form() -> None:
    schema = pa.schema([("at", pa.string()), ("x", pa.float64())])
    stream = Stream("e", "kafka://b:1/t?format=json", time="at", schema=schema, time_format=FORM)
    inside = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    for form, payloads in {
        "json": [json.dumps({"at": at, "x": 1.0}).encode() for at in DAY_FIRST],
        "csv": [f"{at},1.0".encode() for at in DAY_FIRST],
    }.items():
        found = MessageRecords(form, stream, inside, "t").chunk(messages_of(payloads), 0, 0)
        assert found.tuples.column("_ts").to_pylist() == [AT_US, AT_US + 26 * 86_400_000_000]
        assert [(one.column, one.seq) for one in found.rejects] == [("at", 2)]


def test_pushes_read_times_of_a_form() -> None:
    schema = {"at": "string", "x": "double"}
    streams = [Stream("e", time="at", schema=schema, time_format=f"{FORM}|excel"), Stream("w", schema={"ts": "int64"})]
    rows = [{"at": DAY_FIRST[0], "x": 1.0}, {"at": 45356.37508101852, "x": 2.0}, {"at": DAY_FIRST[2], "x": 3.0}]
    other = [{"ts": AT_US}]
    for form in (rows, pa.table({"at": [DAY_FIRST[0], "45356.37508101852", "x"], "x": [1.0, 2.0, 3.0]})):
        assert JoinEngine(Join(streams, [], "0s")).push({"e": form, "w": other}).num_rows == 2


def test_an_option_without_a_meaning_is_refused() -> None:
    with pytest.raises(ArgumentError, match="time_format"):
        Stream("e", "gen:sensor", time_format="excel")
    for wrong in ("", [], [1], 3, "|"):
        with pytest.raises(ArgumentError, match="time_format") as caught:
            Stream("e", "a.csv", time_format=wrong)
        assert caught.value.name == "time_format"


def test_facts_and_fingerprints_have_the_forms_and_older_ones_stay() -> None:
    plain, formed = Stream("e", "a.csv"), Stream("e", "a.csv", time_format=["%d/%m/%Y", "iso"])
    assert "time_format" not in plain.to_facts()
    assert Stream.from_facts(formed.to_facts()) == formed
    assert formed == Stream("e", "a.csv", time_format="%d/%m/%Y | iso")
    schemas = {"e": pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64())])}
    prints = {
        bind(Join([one, Stream("w", "b.csv")], "e.x <= w.x", "1s"), schemas | {"w": schemas["e"]}).fingerprint
        for one in (plain, formed)
    }
    assert len(prints) == 2
