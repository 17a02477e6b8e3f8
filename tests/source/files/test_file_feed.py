from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from streamjoin_ds.errors import FileFormatError, FileMissingError
from streamjoin_ds.source.position import SEGMENT_BYTES, FilePosition
from tests.source.feeds import (
    FORMATS,
    SCHEMA,
    compressed,
    csv_text,
    expected,
    feed,
    iso,
    json_text,
    read_all,
    rows,
    steps,
    tuples,
    write,
)
from tests.support.examples import examples

ROWS = rows(40)


@pytest.mark.each_value
@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_batches_of_any_size_are_the_same_tuples(tmp_path: Path, ending: str, size: int) -> None:
    path = write(tmp_path / f"a.{ending}", ROWS)
    assert read_all(path, size) == expected(ROWS)
    assert tuples(feed(path).read(FilePosition(), None)) == expected(ROWS)


@pytest.mark.parametrize("ending", FORMATS)
@examples(10, HealthCheck.function_scoped_fixture)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 15))
def test_a_folder_is_its_files_in_name_order(tmp_path_factory: Any, ending: str, sizes: list[int], size: int) -> None:
    folder = tmp_path_factory.mktemp("in")
    first = 0
    for number, count in enumerate(sizes):
        if ending == "parquet" and not count:
            continue
        write(folder / f"f{number}.{ending}", rows(count, first))
        first += count
    (folder / f".hidden.{ending}").write_bytes(b"x")
    (folder / f"_note.{ending}").write_bytes(b"x")
    (folder / "other.doc").write_bytes(b"x")
    assert read_all(folder, size) == expected(rows(first))


def test_a_position_replays_from_any_process(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.csv", rows(20, 20 * number))
    positions = steps(feed(tmp_path), FilePosition(), 9)
    assert [position.seq for position in positions] == [*range(0, 60, 9), 60]
    for low, at in enumerate(positions):
        for high in positions[low + 1 :]:
            found = tuples(feed(tmp_path).read(at, high))
            assert found == expected(rows(60))[at.seq : high.seq]
        again = steps(feed(tmp_path), at, 9)  # a planner that starts here
        assert again == positions[low:]


@pytest.mark.each_value
@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("size", [7, 50, 1000])
def test_the_parts_of_a_batch_are_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, size: int
) -> None:
    """A plain text is cut at any block, other files where one ends; each part is read by a task of its own."""
    monkeypatch.setattr("streamjoin_ds.source.files.text_blocks.BLOCK_BYTES", 256)
    monkeypatch.setattr("streamjoin_ds.source.files.file_scan.PART_ROWS", 1)
    for number in range(3):
        write(tmp_path / f"{number}.{ending}", rows(40, 40 * number))
    planner, start, most = feed(tmp_path), FilePosition(), 0
    while there := planner.frontier(start, size).rows:
        end = planner.advance(start, there)
        for parts in (1, 2, 5, 50):
            ranges = planner.split(start, end, parts)
            assert (ranges[0][0], ranges[-1][1]) == (start, end)
            assert all(high.seq == low.seq for (_, high), (low, _) in pairwise(ranges))
            assert all(low.seq < high.seq for low, high in ranges)
            found = []
            for low, high in ranges:
                task = feed(tmp_path)
                found += tuples(task.read(low, high, None, task.files_between(low, high)))
            assert found == expected(rows(120))[start.seq : end.seq]
            assert len(ranges) <= parts
            most = max(most, len(ranges))
        assert feed(tmp_path).split(start, end, 50) == [(start, end)]  # a planner that has not read it
        start = end
    assert start.seq == 120
    plain = ending in ("csv", "json")
    assert most > 4 if plain and size > 40 else most >= (1 if size < 40 else 2)


def test_small_batches_have_one_part(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", rows(40))
    write(tmp_path / "b.csv", rows(40, 40))
    planner = feed(tmp_path)
    end = planner.advance(FilePosition(), planner.frontier(FilePosition(), 100).rows)
    assert planner.split(FilePosition(), end, 5) == [(FilePosition(), end)]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_plain_file_cut_at_every_byte(tmp_path: Path, ending: str) -> None:
    text = (csv_text(ROWS[:6]) if ending == "csv" else json_text(ROWS[:6])).encode()
    path = tmp_path / f"a.{ending}"
    header = text.index(b"\n") + 1 if ending == "csv" else 0
    for cut in range(len(text) + 1):
        path.write_bytes(text[:cut])
        whole = text[header:cut].count(b"\n") if cut >= header else 0
        reader = feed(path)
        assert [*steps(reader, FilePosition(), 100)][-1].seq == whole
        held = cut - (text.rfind(b"\n", 0, cut) + 1)
        assert reader.held_back_bytes == held


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_growing_file_is_read_as_it_grows(tmp_path: Path, ending: str) -> None:
    text = (csv_text(ROWS[:12]) if ending == "csv" else json_text(ROWS[:12])).encode()
    path, at, found = tmp_path / f"a.{ending}", FilePosition(), []
    path.write_bytes(b"")
    reader = feed(path)
    for cut in range(0, len(text) + 1, 11):
        with path.open("ab") as file:
            file.write(text[cut : cut + 11])
        if count := reader.frontier(at, 100).rows:
            end = reader.advance(at, count)
            found += tuples(feed(path).read(at, end))
            at = end
    assert found == expected(ROWS[:12])


@pytest.mark.parametrize("ending", ["csv.gz", "json.gz", "csv.zst", "csv.lz4", "csv.bz2"])
def test_a_compressed_file_cut_at_every_byte_is_refused(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", ROWS[:6])
    data = path.read_bytes()
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(FileFormatError) as caught:
            steps(feed(path), FilePosition(), 3)
        assert caught.value.name == str(path)
        assert "byte" in str(caught.value)
    path.write_bytes(data)
    assert len(read_all(path, 4)) == 6


def test_gz_members_follow_one_another_and_padding_is_passed_over(tmp_path: Path) -> None:
    text = csv_text(ROWS).encode()
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]) + b"\0" * 17)
    assert read_all(path, 9) == expected(ROWS)
    path.write_bytes(gzip.compress(text) + b"rubbish")
    with pytest.raises(FileFormatError):
        read_all(path, 9)


@pytest.mark.parametrize("ending", [".zst", ".lz4", ".bz2"])
def test_frames_follow_one_another(tmp_path: Path, ending: str) -> None:
    text = csv_text(ROWS).encode()
    path = tmp_path / f"a.csv{ending}"
    path.write_bytes(compressed(text[:100], ending) + compressed(text[100:], ending))
    assert read_all(path, 9) == expected(ROWS)
    path.write_bytes(compressed(text, ending) + b"rubbish")
    with pytest.raises(FileFormatError):
        read_all(path, 9)


def test_an_unfinished_last_line_is_a_record_where_no_more_can_come(tmp_path: Path) -> None:
    text = csv_text(ROWS[:3]).rstrip("\n").encode()
    gz, plain = tmp_path / "a.csv.gz", tmp_path / "b.csv"
    gz.write_bytes(gzip.compress(text))
    plain.write_bytes(text)
    assert read_all(gz, 2) == expected(ROWS[:3])
    assert read_all(plain, 2) == expected(ROWS[:2])
    assert tuples(feed(plain).read(FilePosition(), None)) == expected(ROWS[:3])
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "1.csv").write_bytes(text)
    write(folder / "2.csv", rows(2, 3))
    assert read_all(folder, 2) == expected(rows(5))


@pytest.mark.slow
def test_large_files_cross_segments(tmp_path: Path) -> None:
    many = rows(60_000)
    for name in ("a.csv", "a.csv.gz", "a.csv.zst"):
        path = write(tmp_path / name, many)
        positions = steps(feed(path), FilePosition(), 13_001)
        assert positions[-1].offset > 2 * SEGMENT_BYTES
        found = [t for low, high in pairwise(positions) for t in tuples(feed(path).read(low, high))]
        assert found == expected(many)
        middle = positions[2]
        assert steps(feed(path), middle, 13_001) == positions[2:]


def test_columns_by_name_in_any_order_and_none_too_many(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [f'{n},"a ""quoted"", name",more,{iso(ts)},{x}' for ts, _, x, n in ROWS]
    path.write_text("\ufeffn,name,extra,ts,x\r\n" + "\r\n\r\n".join(lines) + "\r\n", newline="")
    assert read_all(path, 7) == [(ts, seq, 'a "quoted", name', x, n) for seq, (ts, _, x, n) in enumerate(ROWS)]


def test_nulls_and_nan(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,name,x,n\n2024-01-01,,,\n2024-01-01,NA,NaN,NA\n")
    (_, _, *first), (_, _, *second) = read_all(path, 5)
    assert first == [None, None, None]
    assert (second[0], second[2]) == ("NA", None)
    assert second[1] != second[1]


def test_other_timestamps_and_units(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,sent\n5,2024-01-01T01:00:00+01:00\n6,\n7,later\n")
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("sent", pa.timestamp("us", tz="UTC"))])
    (chunk,) = feed(path, schema=schema, time_unit="s").read(FilePosition(), None)
    assert chunk.tuples.column("_ts").to_pylist() == [5_000_000, 6_000_000]
    assert [str(v) for v in chunk.tuples.column("sent").to_pylist()] == ["2024-01-01 00:00:00+00:00", "None"]
    assert [(r.line, r.column) for r in chunk.rejects] == [(4, "sent")]


def test_json_times_as_numbers_and_absent_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"ts": 5, "x": 1}\n{"ts": "1970-01-01", "x": 2.5, "other": [1]}\n{"ts": 7}\n{"x": 1}\n')
    (chunk,) = feed(path, schema=SCHEMA.remove(3).remove(1)).read(FilePosition(), None)
    assert tuples([chunk]) == [(5, 0, 1.0), (0, 1, 2.5), (7, 2, None)]
    assert [(r.line, r.column, r.reason) for r in chunk.rejects] == [(4, "ts", "no event time")]


def test_formats_and_paths(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ROWS[:3])
    write(tmp_path / "b.json", rows(3, 3))
    assert len(read_all(tmp_path, 2)) == 6
    assert len(read_all(tmp_path, 2, format="json")) == 3
    assert len(read_all(tmp_path / "*.csv", 2)) == 3
    (tmp_path / "a.csv").rename(tmp_path / "sensor_log")
    assert len(read_all(tmp_path / "sensor_log", 2, format="csv")) == 3
    for path, error in ((tmp_path / "sensor_log", FileFormatError), (tmp_path / "none", FileMissingError)):
        with pytest.raises(error):
            read_all(path, 2)
    with pytest.raises(FileFormatError):
        feed(tmp_path / "a*b*.csv")


def test_freeze_sees_nothing_new(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", ROWS[:3])
    reader = feed(tmp_path)
    reader.freeze()
    with (tmp_path / "1.csv").open("a") as file:
        file.write(csv_text(rows(2, 3), header=False))
    write(tmp_path / "2.csv", rows(2, 5))
    assert steps(reader, FilePosition(), 2)[-1].seq == 3
    assert steps(feed(tmp_path), FilePosition(), 2)[-1].seq == 7


def test_damaged_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileFormatError) as caught:
        read_all(path, 5)
    assert caught.value.name == str(path)
