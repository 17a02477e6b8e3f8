"""The rate that an input begins with."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds import Generator, Stream
from streamjoin_ds.source.stream_source import infer_schema, sampled_rate


def rate_of(stream: Stream) -> float | None:
    return sampled_rate(stream, infer_schema(stream))


def lines(seconds: list[float]) -> str:
    return "ts,x\n" + "".join(f"{int(second * 1e6)},1\n" for second in seconds)


def test_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(lines([number / 50 for number in range(500)]))
    assert rate_of(Stream("r", path)) == pytest.approx(50)


def test_disorder_is_no_faster_than_order(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(lines([(number ^ 1) / 50 for number in range(500)]))
    assert rate_of(Stream("r", path, delay="1s")) == pytest.approx(50, rel=0.01)


def test_only_the_beginning_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(
        lines([number / 50 for number in range(20_000)] + [400 + number / 5_000 for number in range(40_000)])
    )
    assert rate_of(Stream("r", path)) == pytest.approx(50, rel=0.01)


@pytest.mark.parametrize("seconds", [[], [1.0] * 500, [float(number) for number in range(99)]])
def test_too_little_says_nothing(tmp_path: Path, seconds: list[float]) -> None:
    path = tmp_path / "r.csv"
    path.write_text(lines(seconds))
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    assert sampled_rate(Stream("r", path, schema=schema), schema) is None


def test_an_input_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.int64())])
    assert sampled_rate(Stream("r", tmp_path / "none" / "r.csv", schema=schema), schema) is None
    path = tmp_path / "r.csv.gz"
    path.write_bytes(b"no gzip at all")
    assert sampled_rate(Stream("r", path, schema=schema), schema) is None


def test_of_a_generator() -> None:
    stream = Stream("r", Generator("band2d", {"side": "r", "rates": "0s:200,1h:90000"}))
    assert rate_of(stream) == pytest.approx(200, rel=0.01)
