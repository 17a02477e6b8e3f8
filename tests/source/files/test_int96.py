"""Timestamps as Spark writes them to Parquet by default: INT96, days and nanoseconds."""

from __future__ import annotations

import datetime as dt
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Stream
from tests.source.feeds import feed, steps, tuples

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", UTC), ("seen", UTC), ("n", pa.int64())])
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
TIMES = [FIRST, dt.datetime(1816, 3, 30), dt.datetime(2024, 2, 29, 1, 2, 3, 456789), dt.datetime(2262, 5, 1), LAST]
_JULIAN_EPOCH = 2_440_588


def micros(time: dt.datetime | None) -> int | None:
    return None if time is None else (time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def write(path: Path, ts: list[dt.datetime | None], seen: list[dt.datetime | None]) -> Path:
    columns = [pa.array(values, pa.timestamp("us")) for values in (ts, seen)]
    table = pa.table([*columns, pa.array(range(len(ts)))], names=SCHEMA.names)
    pq.write_table(
        table,
        path,
        use_deprecated_int96_timestamps=True,
        compression="none",
        use_dictionary=False,
        row_group_size=3,
        write_statistics=False,
    )
    return path


def patch(path: Path, time: dt.datetime, day: int, nanoseconds: int = 0) -> None:
    """Put another day in the place of a time that occurs once; Arrow's writer refuses such days."""
    since = time - dt.datetime(1970, 1, 1)
    old = struct.pack("<qI", (since.seconds * 1_000_000 + since.microseconds) * 1000, since.days + _JULIAN_EPOCH)
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, struct.pack("<qI", nanoseconds, day)))


def test_years_1_to_9999_are_what_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", sorted(TIMES), [None, *TIMES[1:]])
    assert infer_schema(Stream("e", str(path))).field("seen").type == pa.timestamp("us")
    positions = steps(feed(path, schema=SCHEMA), FilePosition(), 2)
    assert positions[-1].time == micros(LAST)
    found = tuples(feed(path, schema=SCHEMA).read(FilePosition(), positions[-1]), SCHEMA)
    assert [row[0] for row in found] == [micros(time) for time in sorted(TIMES)]
    seen = pa.array([row[2] and row[2].replace(tzinfo=None) for row in found], pa.timestamp("us"))
    assert seen.to_pylist() == [None, *TIMES[1:]]


@pytest.mark.parametrize("day", [1, _JULIAN_EPOCH + 2_932_897, (1 << 31) - 1, (1 << 32) - 1])
def test_times_out_of_range_are_rejected_rows(tmp_path: Path, day: int) -> None:
    poison = dt.datetime(2024, 7, 7, 7, 7, 7, 777777)
    usual = [dt.datetime(2024, 1, 1 + k) for k in range(5)]
    path = write(tmp_path / "a.parquet", [*usual[:4], poison], usual)
    patch(path, poison, day)
    positions = steps(feed(path, schema=SCHEMA), FilePosition(), 2)
    assert (positions[-1].seq, positions[-1].time) == (5, micros(usual[3]))
    chunks = list(feed(path, schema=SCHEMA).read(FilePosition(), positions[-1]))
    assert [row[1] for row in tuples(chunks, SCHEMA)] == [0, 1, 2, 3]
    (reject,) = (reject for chunk in chunks for reject in chunk.rejects)
    assert (reject.seq, reject.line, reject.column) == (4, 5, "ts")
    assert "n=4" in reject.text


@pytest.mark.parametrize("day", [(1 << 31) - 1, (1 << 32) - 1])
def test_so_are_those_of_other_columns_which_would_wrap(tmp_path: Path, day: int) -> None:
    poison = dt.datetime(2024, 7, 7, 7, 7, 7, 777777)
    usual = [dt.datetime(2024, 1, 1 + k) for k in range(5)]
    path = write(tmp_path / "a.parquet", usual, [poison, *usual[1:]])
    patch(path, poison, day)
    positions = steps(feed(path, schema=SCHEMA), FilePosition(), 2)
    assert positions[-1].time == micros(usual[4])
    chunks = list(feed(path, schema=SCHEMA).read(FilePosition(), positions[-1]))
    assert [row[1] for row in tuples(chunks, SCHEMA)] == [1, 2, 3, 4]
    (reject,) = (reject for chunk in chunks for reject in chunk.rejects)
    assert (reject.seq, reject.line, reject.column) == (0, 1, "seen")


def test_a_time_that_python_cannot_show_is_a_rejected_row(tmp_path: Path) -> None:
    far = pa.array([0, 1 << 60], pa.int64()).cast(UTC)
    pq.write_table(pa.table([far, far, pa.array([1, 2])], schema=SCHEMA), tmp_path / "a.parquet")
    at = steps(feed(tmp_path, schema=SCHEMA), FilePosition(), 9)[-1]
    chunks = list(feed(tmp_path, schema=SCHEMA).read(FilePosition(), at))
    assert [(reject.seq, reject.column) for chunk in chunks for reject in chunk.rejects] == [(1, "ts")]
