"""Columns, formats and units of times as flags and as keys of the file, like those of a stream's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.request.request import request_of
from streamjoin_ds.spec.member.stream import Stream

STREAMS = ("e=kafka://broker:9092/t?format=csv", "w=w.csv")
NESTED = pa.struct({"y": pa.float64(), "z": pa.decimal128(9, 2)})
OF_W = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.decimal128(10, 2)})


def streams_of(config: Path | None = None, **given: Any) -> dict[str, Stream]:
    given = {"streams": STREAMS, "on": ("abs(e.x - w.x) <= 1",), "window": "1s", "select": "e.x", **given}
    return {stream.name: stream for stream in request_of(config, given).join.streams}


def test_flags_say_them_for_all_streams_or_for_one() -> None:
    found = streams_of(
        schema=(
            "ts int64, x int64, `a b` list<struct<y: double, z: decimal(9, 2)>>",
            "w= ts timestamp[us, tz=UTC] , x decimal(10, 2)",
        ),
        time_unit="e=ms",
        format="w=csv",
    )
    assert found["e"].schema == pa.schema({"ts": pa.int64(), "x": pa.int64(), "a b": pa.list_(NESTED)})
    assert found["w"].schema == OF_W
    assert (found["e"].time_unit, found["w"].time_unit) == ("ms", "us")
    assert (found["e"].is_topic, found["w"].source.format) == (True, "csv")
    assert streams_of(time_unit="ns", schema=("ts int64, x double",))["w"].time_unit == "ns"


def test_the_file_may_say_them_for_several_and_a_flag_wins(tmp_path: Path) -> None:
    config = tmp_path / "join.toml"
    of_w = '[streams.w]\nschema = {ts = "date32", x = "double"}\n'
    config.write_text(f'schema = "ts int64, x double"\ntime_unit = {{e = "s"}}\n{of_w}')
    found = streams_of(config)
    assert {name: stream.schema.field("ts").type for name, stream in found.items()} == {
        "e": pa.int64(),
        "w": pa.date32(),
    }
    assert found["e"].time_unit == "s"
    assert streams_of(config, schema=("w=ts timestamp[us, tz=UTC], x decimal(10, 2)",))["w"].schema == OF_W


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        ({"schema": ("ts",)}, "schema", "without a name or a type"),
        ({"schema": ("ts int64,",)}, "schema", "without a name or a type"),
        ({"schema": ("ts int64, ts double",)}, "schema", "'ts' twice"),
        ({"schema": ("x=ts int64",)}, "x", "not in the join"),
        ({"schema": ("ts int64, x hunter2",)}, "x", "unknown type"),
        ({"schema": ("x double",)}, "ts", "no column 'ts'"),
        ({"format": "e=csv"}, "format", "is a topic"),
        ({"format": "w=hunter2"}, "format", "unknown format"),
        ({"time_unit": "hunter2"}, "time_unit", "unknown time_unit"),
        ({"time_unit": "x=ms"}, "x", "not in the join"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], name: str, words: str) -> None:
    with pytest.raises((ArgumentError, ColumnError), match=words) as caught:
        streams_of(**given)
    assert caught.value.name == name
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_explain_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text("ts,x\n1700000000000,1\n")
    flags = ["--format", "csv", "--time-unit", "ms", "--schema", "ts int64, x decimal(10, 2)"]
    streams = ["--stream", f"e={path}", "--stream", f"w={path}", "--on", "abs(e.x - w.x) <= 1", "--window", "1s"]
    done = CliRunner().invoke(group, ["explain", *streams, *flags], prog_name="streamjoin")
    assert done.exit_code == 0, done.output
    assert "[-100, 100] of 1e-2 by exact integers" in done.output
