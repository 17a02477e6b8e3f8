"""Streams and windows: their checks, Arrow types, and their way through JSON; no location holds a secret."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.duration import MAX_DURATION_US
from streamjoin_ds.errors import ArgumentError, ColumnError, StreamJoinError, WindowError
from streamjoin_ds.spec import Generator, Stream, TimeWindow
from streamjoin_ds.spec.columns import arrow_type, result_type

UTC = pa.timestamp("us", tz="UTC")

# Every type that may come in, and the type that it has inside.
ACCEPTED = [
    (pa.int8(), pa.int8()),
    (pa.int16(), pa.int16()),
    (pa.int32(), pa.int32()),
    (pa.int64(), pa.int64()),
    (pa.uint8(), pa.int16()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.float32(), pa.float32()),
    (pa.float64(), pa.float64()),
    (pa.bool_(), pa.bool_()),
    (pa.string(), pa.string()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.null(), pa.string()),
    (pa.binary(), pa.binary()),
    (pa.large_binary(), pa.binary()),
    (pa.binary(16), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.date32(), pa.date32()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("s"), UTC),
    (pa.timestamp("ms", tz="Europe/Vienna"), UTC),
    (pa.timestamp("us", tz="+05:30"), UTC),
    (pa.timestamp("ns", tz="UTC"), UTC),
    (pa.decimal128(38, 18), pa.decimal128(38, 18)),
    (pa.decimal128(5, 0), pa.decimal128(5, 0)),
    (pa.decimal32(7, 2), pa.decimal128(7, 2)),
    (pa.decimal64(12, 3), pa.decimal128(12, 3)),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.list_(pa.uint8()), pa.list_(pa.int16())),
    (pa.large_list(pa.float64()), pa.list_(pa.float64())),
    (pa.list_(pa.float32(), 3), pa.list_(pa.float32())),
    (
        pa.struct([pa.field("a", pa.uint8(), False), ("b", pa.list_(pa.date64()))]),
        pa.struct([pa.field("a", pa.int16(), False), ("b", pa.list_(pa.date32()))]),
    ),
]
REFUSED = [
    pa.uint64(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.duration("us"),
    pa.decimal256(40, 2),
    pa.decimal128(5, -2),
    pa.struct([]),
    pa.struct([("a b", pa.int8())]),
    pa.struct([("a", pa.uint64())]),
    pa.list_(pa.duration("s")),
    pa.map_(pa.string(), pa.int8()),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.month_day_nano_interval(),
]


@pytest.mark.parametrize(("kind", "inside"), ACCEPTED, ids=str)
def test_types_inside_the_house(kind: pa.DataType, inside: pa.DataType) -> None:
    assert result_type(kind, "e.x") == inside
    assert result_type(inside, "e.x") == inside


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_types_that_delta_has_not(kind: pa.DataType) -> None:
    with pytest.raises(ColumnError) as caught:
        result_type(kind, "e.x")
    assert "e.x" in str(caught.value)


def test_a_stream_with_every_type_comes_back_from_json() -> None:
    schema = pa.schema(
        [pa.field("ts", UTC, nullable=False), *((f"c{n}", kind) for n, (kind, _) in enumerate(ACCEPTED))]
    )
    stream = Stream("e", "a.csv", schema=schema, delay="2s", format="csv", time_unit="ms")
    facts = json.loads(json.dumps(stream.to_facts()))
    again = Stream.from_facts(facts)
    assert again == stream
    assert again.schema.equals(schema, check_metadata=True)
    assert again.to_facts() == stream.to_facts()


@pytest.mark.parametrize(
    "stream",
    [
        Stream("e"),
        Stream("e", Generator("band2d", {"rate": 10, "share": 0.1, "side": "r"})),
        Stream("e", "dir/a.json", time="when", delay=timedelta(milliseconds=1500), format="json", time_unit="ns"),
        Stream("e", schema={"ts": "timestamp", "x": "double", "d": "decimal(10, 2)", "n": pa.int8()}),
    ],
)
def test_streams_come_back_from_json(stream: Stream) -> None:
    assert Stream.from_facts(json.loads(json.dumps(stream.to_facts()))) == stream


def test_a_path_becomes_text() -> None:
    assert Stream("e", Path("a") / "b.csv").location == "a/b.csv"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"name": "1e"}, "1e"),
        ({"name": "e-f"}, "e-f"),
        ({"name": ""}, ""),
        ({"name": None}, "None"),
        ({"name": "e", "source": 3}, "e"),
        ({"name": "e", "source": b"a"}, "e"),
        ({"name": "e", "time": ""}, "e"),
        ({"name": "e", "delay": "5"}, "delay of e"),
        ({"name": "e", "delay": "-5s"}, "delay of e"),
        ({"name": "e", "format": "xml"}, "format"),
        ({"name": "e", "time_unit": "m"}, "time_unit"),
        ({"name": "e", "schema": ["ts"]}, "e"),
    ],
)
def test_a_stream_is_checked(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream(**arguments)
    assert caught.value.name == name
    assert caught.value.hint


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"x": "int64"}, "its columns are x"),
        ({"TS": "timestamp"}, "did you mean 'TS', as names are case-sensitive"),
        ({"tss": "timestamp"}, "did you mean 'tss'?"),
        ({"ts": "bool"}, "a timestamp, a date, or a number"),
        ({"ts": "string"}, "time_format says how the texts are written"),
        ({"ts": "timestamp", "x": "integer"}, "an Arrow type"),
        ({"ts": "timestamp", "x": "decimal(99, 2)"}, "an Arrow type"),
        ({"ts": "timestamp[fortnight]"}, "an Arrow type"),
        ({"ts": "timestamp", "x": 3}, "an Arrow type"),
    ],
)
def test_a_schema_is_checked(schema: dict[str, Any], hint: str) -> None:
    with pytest.raises(ColumnError) as caught:
        Stream("e", schema=schema)
    assert hint in caught.value.hint


def test_two_time_columns() -> None:
    with pytest.raises(ColumnError, match="more than one"):
        Stream("e", schema=pa.schema([("ts", UTC), ("ts", UTC)]))


def test_type_names() -> None:
    for kind in (
        pa.int8(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.date64(),
        pa.timestamp("ns"),
        pa.timestamp("us", tz="UTC"),
        pa.decimal128(9, 3),
        pa.duration("ms"),
        pa.time64("ns"),
        pa.list_(pa.int32()),
        pa.large_list(pa.timestamp("us", tz="+01:00")),
        pa.list_(pa.field("item", pa.decimal128(9, 3), nullable=False)),
        pa.list_(pa.float32(), 3),
        pa.struct(
            [("x", pa.int32()), pa.field("y z", pa.list_(pa.struct([("at", pa.timestamp("ns", tz="UTC"))])), False)]
        ),
    ):
        assert arrow_type(str(kind)) == kind
    assert arrow_type("list< struct<x:int32,y: list<string>> >") == pa.list_(
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    )


@pytest.mark.parametrize(
    "text",
    ["list<>", "list<int32", "struct<>", "struct<int32>", "struct<x: >", "list<" * 99 + ">" * 99, "list<x: y: int8>"],
)
def test_what_is_no_type_is_refused_by_the_columns_name(text: str) -> None:
    with pytest.raises(ColumnError, match="unknown type") as caught:
        Stream("e", schema={"ts": "int64", "x": text})
    assert caught.value.name == "x"
    assert "list<int32>" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("window", "extents"),
    [
        ("15s", (15_000_000, 15_000_000)),
        (timedelta(seconds=1), (1_000_000, 1_000_000)),
        ({"e": "6h", "w": "0s"}, (21_600_000_000, 0)),
        ("e=6h, w=0s", (21_600_000_000, 0)),
        ("w=0s,e=6h", (21_600_000_000, 0)),
    ],
)
def test_windows(window: Any, extents: tuple[int, int]) -> None:
    made = TimeWindow.of(window, ["e", "w"])
    assert (made.extent(0), made.extent(1)) == extents
    assert TimeWindow.of(made.describe(["e", "w"]), ["e", "w"]) == made


@pytest.mark.parametrize(
    "window",
    [
        "e=6h",
        "e=6h,w=0s,x=1s",
        "e=6h,e=1s",
        "e=6h,,w=0s",
        {"e": "1s"},
        {"e": "1s", "W": "1s"},
        "e=,w=",
        None,
        15,
        "15",
        "-1s",
    ],
)
def test_windows_are_checked(window: Any) -> None:
    with pytest.raises(StreamJoinError) as caught:
        TimeWindow.of(window, ["e", "w"])
    assert caught.value.code in ("WINDOW", "ARGUMENT")
    assert caught.value.hint


@pytest.mark.parametrize("extent", [-1, 1.5, True, MAX_DURATION_US + 1, "1"])
def test_a_windows_extent_is_whole_microseconds(extent: Any) -> None:
    with pytest.raises(WindowError):
        TimeWindow((0, extent))


def test_options_of_tables_come_back_from_their_facts() -> None:
    for options in (
        {"starting_version": 12, "on_change": "ignore"},
        {"starting_version": "latest", "format": "delta"},
        {"starting_timestamp": "2026-01-31T12:00:00+02:00"},
    ):
        stream = Stream("e", "table/", **options)  # type: ignore[arg-type]
        assert Stream.from_facts(stream.to_facts()) == stream
    assert Stream("e", "table/", starting_version="12").source.starting_version == 12
    assert Stream("e", "table/", starting_timestamp="2026-01-31T12:00:00Z").source.starting_timestamp == (
        "2026-01-31T12:00:00+00:00"
    )
    assert "on_change" not in Stream("e", "table/").to_facts()
    results = Stream("e", "matches/", format="results")
    assert results.time == "event_time"
    assert Stream.from_facts(results.to_facts()) == results


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"starting_version": -1}, "starting_version"),
        ({"starting_version": True}, "starting_version"),
        ({"starting_version": "newest"}, "starting_version"),
        ({"starting_timestamp": "soon"}, "starting_timestamp"),
        ({"starting_timestamp": "2026-01-31", "starting_version": 1}, "starting_version"),
        ({"on_change": "skip"}, "on_change"),
        ({"on_change": "ignore", "format": "csv"}, "on_change"),
        ({"starting_version": 1, "format": "results"}, "starting_version"),
        ({"starting_version": 1, "source": None}, "starting_version"),
        ({"on_change": "ignore", "source": "kafka://broker:9092/topic?format=json"}, "on_change"),
        ({"time": "at", "format": "results"}, "time"),
    ],
)
def test_options_of_tables_that_mean_nothing_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("e", **{"source": "table/", **options})
    assert caught.value.name == name


SECRET = "hunter2canary"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (f"s3://me:{SECRET}@bucket/folder", "source"),
        (f"s3://bucket/folder?secret_key={SECRET}", "source"),
        (f"hdfs://me:{SECRET}@name:9000/folder", "source"),
        (f"kafka://me:{SECRET}@broker/topic?format=json", "url"),
        (f"kafka://broker/topic?format=avro&registry=http://me:{SECRET}@registry:8081", "registry"),
        (f"kafka://broker/topic?format=avro&registry=https%3A%2F%2Fme%3A{SECRET}%40registry", "registry"),
        (f"kafka://broker/topic?format=avro&registry=http://[{SECRET}", "registry"),
    ],
)
def test_a_secret_is_refused_before_there_is_a_stream(source: str, name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("e", source)
    assert caught.value.name == name
    assert SECRET not in f"{caught.value} {caught.value.hint}"
    assert caught.value.__cause__ is None


def test_what_is_no_secret_is_taken() -> None:
    for source in (
        "kafka://broker/topic?format=avro&registry=http://registry:8081",
        "kafka://broker/topic@2?format=json",
        "hdfs://me@name:9000/folder",
        "abfss://container@account.dfs.core.windows.net/folder",
        "s3://bucket/a@b",
        "folder/a@b?c",
    ):
        assert Stream("e", source).location == source
