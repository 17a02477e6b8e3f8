"""Bad files, over which the stream goes on: what can be read is read, the rest is one rejected row with its name."""

from __future__ import annotations

import gzip
import json
import os
import random
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamjoin_ds.errors import FileFormatError, FileOrderError, SchemaDriftError, StreamJoinError
from streamjoin_ds.source.files import text_blocks
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.records import Chunk, Reject
from tests.source.feeds import (
    FORMATS,
    SCHEMA,
    compressed,
    csv_text,
    expected,
    feed,
    json_text,
    rows,
    steps,
    tuples,
    write,
)

SIZES = (1, 3, 7, 100)


def careful(path: Path, **more: Any) -> FileFeed:
    return feed(path, on_bad_file="quarantine", **more)


def batches(path: Path, size: int, start: FilePosition | None = None, *, restarts: bool = False) -> list[Chunk]:
    """Return the chunks of all there is, read in batches.

    Each batch is read by a task of its own, to which the planner tells the files, and once more as by a replay.
    """
    planner, at, found = careful(path), start or FilePosition(), []
    while count := planner.frontier(at, size).rows:
        planner = careful(path) if restarts else planner
        planner.frontier(at, size)
        end = planner.position(json.loads(json.dumps(planner.advance(at, count).to_facts())))
        files = planner.files_between(at, end)
        chunks = list(careful(path).read(at, end, files=files))
        again = list(careful(path).read(at, end))  # a replay, whose planner lists anew
        assert [(chunk.first_seq, chunk.count, chunk.rejects) for chunk in again] == [
            (chunk.first_seq, chunk.count, chunk.rejects) for chunk in chunks
        ]
        assert sum(chunk.count for chunk in chunks) == count
        found += chunks
        at = end
    return found


def rejects(chunks: list[Chunk]) -> list[Reject]:
    return [reject for chunk in chunks for reject in chunk.rejects]


def data(chunks: list[Chunk]) -> list[Any]:
    """Return the tuples without their numbers, which rejected rows move."""
    return [(row[0], *row[2:]) for row in tuples(chunks)]


def rows_of(items: list[Any]) -> list[Any]:
    return [(row[0], *row[2:]) for row in expected(items)]


def cut_gz(path: Path) -> int:
    whole = gzip.compress(csv_text(rows(40, 5)).encode(), mtime=0)
    path.write_bytes(whole[: len(whole) * 2 // 3])
    return zlib.decompressobj(31).decompress(path.read_bytes()).count(b"\n") - 1


def damaged_gz(path: Path) -> int:
    whole = bytearray(gzip.compress(csv_text(rows(40, 5)).encode(), mtime=0))
    whole[-6] ^= 0xFF  # in its checksum, which zlib checks before it gives the last byte
    path.write_bytes(whole)
    return 39


def cut_frames(path: Path) -> int:
    """Write a whole frame, and one that lacks its end."""
    first, second = csv_text(rows(20, 5)).encode(), csv_text(rows(20, 25), header=False).encode()
    whole = compressed(second, path.suffix)
    path.write_bytes(compressed(first, path.suffix) + whole[: len(whole) // 2])
    return 20


def no_gz(path: Path) -> int:
    path.write_bytes(b"this is not gzip")
    return 0


def no_header(path: Path) -> int:
    path.write_bytes(b"\n\n1,2\n")
    return 0


def other_header(path: Path) -> int:
    path.write_text(csv_text(rows(40, 5)).replace("ts,name,x,n", "ts,name,y,n"))
    return 0


def no_parquet(path: Path) -> int:
    path.write_bytes(b"PAR1 and nothing else")
    return 0


def other_type(path: Path) -> int:
    table = pa.table({"ts": pa.array([0], SCHEMA[0].type), "name": ["a"], "x": ["text"], "n": [1]})
    pq.write_table(table, path)
    return 0


def damaged_parquet(path: Path) -> int:
    """Damage column x of the third row group; return how many rows can be read.

    A planner that looks at times alone would not see it.
    """
    write(path, rows(40, 5), group_rows=8)
    column = pq.ParquetFile(path).metadata.row_group(2).column(2)
    begin = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(path.read_bytes())
    content[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)
    return 16


POISON: list[tuple[str, Callable[[Path], int]]] = [
    ("csv.gz", cut_gz),
    ("csv.gz", damaged_gz),
    ("csv.gz", no_gz),
    ("csv.zst", cut_frames),
    ("csv.lz4", cut_frames),
    ("csv.bz2", cut_frames),
    ("csv.zst", no_gz),
    ("csv", no_header),
    ("csv", other_header),
    ("parquet", no_parquet),
    ("parquet", other_type),
    ("parquet", damaged_parquet),
]


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("ending", "poison"), POISON)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_can_be_read_is_read_and_the_stream_goes_on(
    tmp_path: Path, ending: str, poison: Callable[[Path], int], size: int, restarts: bool
) -> None:
    write(tmp_path / f"a.{ending}", rows(5))
    readable = poison(tmp_path / f"b.{ending}")
    write(tmp_path / f"c.{ending}", rows(5, 45))
    with pytest.raises((FileFormatError, SchemaDriftError)) as caught:
        _ = [list(feed(tmp_path).read(*pair)) for pair in pairwise(steps(feed(tmp_path), FilePosition(), 100))]
    chunks = batches(tmp_path, size, restarts=restarts)
    assert data(chunks) == rows_of([*rows(5), *rows(readable, 5), *rows(5, 45)])
    (reject,) = rejects(chunks)
    assert reject.file == str(tmp_path / f"b.{ending}")
    assert reject.seq == 5 + readable
    assert caught.value.code in reject.reason
    if ending.startswith("csv") and readable:
        assert reject.line == readable + 2
    write(tmp_path / f"d.{ending}", rows(5, 50))
    assert data(batches(tmp_path, size, restarts=restarts))[-5:] == rows_of(rows(5, 50))


@pytest.mark.parametrize("ending", [".gz", ".zst", ".lz4", ".bz2"])
def test_how_much_of_a_damaged_file_is_read_does_not_depend_on_the_batches(tmp_path: Path, ending: str) -> None:
    random.seed(5)
    items = [(ts, f"{random.random():.17f}" * 9, x, n) for ts, _, x, n in rows(9000)]
    whole = bytearray(compressed(csv_text(items).encode(), ending))
    if ending in (".gz", ".bz2"):
        whole[len(whole) * 3 // 4] ^= 0x55
    else:  # Arrow writes no checksums, so other bytes may be no damage
        del whole[len(whole) * 3 // 4 :]
    path = tmp_path / f"a.csv{ending}"
    path.write_bytes(whole)
    ends = {steps(careful(path), FilePosition(), size)[-1] for size in (100, 1777, 100_000)}
    assert len({(end.offset, end.seq, end.line, end.digest) for end in ends}) == 1
    middle = steps(careful(path), FilePosition(), 1777)[2]
    last = steps(careful(path), middle, 100_000)[-1]
    assert (last.offset, last.seq) == next((end.offset, end.seq) for end in ends)
    assert last.seq > 4000  # a block of bz2 is 900 kB of text


@pytest.mark.parametrize(("ending", "poison"), POISON[:-1])
def test_a_bad_file_stops_the_planner_before_a_batch_has_it(
    tmp_path: Path, ending: str, poison: Callable[[Path], int]
) -> None:
    """Once a batch with such a file is logged, its task fails at every start, and quarantine comes too late."""
    write(tmp_path / f"a.{ending}", rows(5))
    poison(tmp_path / f"b.{ending}")
    with pytest.raises((FileFormatError, SchemaDriftError)):
        feed(tmp_path).frontier(FilePosition(), 100)


@pytest.mark.each_value
@pytest.mark.parametrize("block_bytes", [7, 64, 150, 4096])
@pytest.mark.parametrize("length", [99, 100, 101, 150])
def test_a_line_is_too_long_wherever_its_reading_begins(
    tmp_path: Path, block_bytes: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_blocks, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
    text = csv_text(rows(10))
    (tmp_path / "a.csv").write_text(text + "x" * length + "\n" + csv_text(rows(3, 10), header=False))
    for size in SIZES:
        chunks = batches(tmp_path, size)
        assert data(chunks) == rows_of(rows(13 if length <= 100 else 10))
        assert [reject.line for reject in rejects(chunks)] == [12]


@pytest.mark.parametrize("size", SIZES)
def test_a_line_over_the_limit(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "MAX_LINE_BYTES", 2000)
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 512)
    text = csv_text(rows(10))
    (tmp_path / "a.csv").write_text(text + "x" * 3000 + "\n" + csv_text(rows(3), header=False))
    write(tmp_path / "b.csv", rows(5, 10))
    chunks = batches(tmp_path, size)
    assert data(chunks) == rows_of(rows(15))
    (reject,) = rejects(chunks)
    assert (reject.line, reject.file) == (12, str(tmp_path / "a.csv"))
    with pytest.raises(FileFormatError):
        steps(feed(tmp_path), FilePosition(), 100)


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("size", SIZES)
def test_values_of_another_type_are_rejected_one_by_one(tmp_path: Path, ending: str, size: int) -> None:
    write(tmp_path / f"a.{ending}", rows(5))
    text = csv_text(rows(6)) if ending == "csv" else json_text(rows(6))
    for k in range(6):
        text = text.replace(f",{k}\n", ",text\n").replace(f'"n": {k}', '"n": "text"')
    (tmp_path / f"b.{ending}").write_text(text)
    write(tmp_path / f"c.{ending}", rows(5, 5))
    chunks = batches(tmp_path, size)
    assert data(chunks) == rows_of([*rows(5), *rows(5, 5)])
    assert len(rejects(chunks)) == 6


@pytest.mark.each_value
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("late", [1, 3])
def test_files_out_of_order_are_set_aside(tmp_path: Path, ending: str, late: int, restarts: bool) -> None:
    for number in range(4):
        write(tmp_path / f"{number}0.{ending}", rows(5, 5 * number))
    planner = careful(tmp_path)
    at = planner.initial()
    at = planner.advance(at, planner.frontier(at, 18).rows)
    for number in range(late):
        path = write(tmp_path / f"{number}5.{ending}", rows(3))
        os.utime(path, (4_000_000_000 + number,) * 2)
    write(tmp_path / f"40.{ending}", rows(5, 20))
    with pytest.raises(FileOrderError):
        feed(tmp_path).frontier(at, 9)
    planner = careful(tmp_path) if restarts else planner
    found, places = [], [at]
    while count := planner.frontier(places[-1], 2).rows:
        end = planner.position(json.loads(json.dumps(planner.advance(places[-1], count).to_facts())))
        found += list(careful(tmp_path).read(places[-1], end, files=planner.files_between(places[-1], end)))
        places.append(end)
    assert data(found) == rows_of(rows(25)[18:])
    assert {reject.file for reject in rejects(found)} == {str(tmp_path / f"{k}5.{ending}") for k in range(late)}
    assert len(rejects(found)) == late
    assert all("FILE_ORDER" in reject.reason for reject in rejects(found))
    # Each of them is known from now on: to this process, to the next one, and to a stream without quarantine.
    for later in (planner, careful(tmp_path), feed(tmp_path)):
        assert later.frontier(places[-1], 9).rows == 0


@pytest.mark.parametrize("restart", [False, True])
def test_a_finished_file_that_changes_is_named_and_the_stream_goes_on(tmp_path: Path, restart: bool) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.csv", rows(5, 5 * number))
    planner = careful(tmp_path)
    at = steps(planner, FilePosition(), 100)[-1]
    write(tmp_path / "0.csv", rows(7))
    write(tmp_path / "3.csv", rows(5, 15))
    planner = careful(tmp_path) if restart else planner
    end = steps(planner, at, 100)[-1]
    chunks = list(careful(tmp_path).read(at, end))
    assert data(chunks) == rows_of(rows(5, 15))
    (reject,) = rejects(chunks)
    assert reject.file.startswith(str(tmp_path / ("" if restart else "0.csv")))
    assert feed(tmp_path).frontier(end, 9).rows == 0


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ending", FORMATS)
def test_the_file_that_is_read_is_rewritten(tmp_path: Path, restart: bool, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", rows(30))
    planner = careful(tmp_path)
    at = planner.initial()
    at = planner.advance(at, planner.frontier(at, 30).rows)
    aside = write(tmp_path / f".aside.{ending}", rows(20, 100))
    aside.replace(path)
    write(tmp_path / f"b.{ending}", rows(5, 30))
    planner = careful(tmp_path) if restart else planner
    end = steps(planner, at, 100)[-1]
    chunks = list(careful(tmp_path).read(at, end))
    assert data(chunks) == rows_of(rows(5, 30))
    assert "FILE_CHANGED" in rejects(chunks)[0].reason
    assert careful(tmp_path).frontier(end, 9).rows == 0


def test_a_line_that_goes_on_after_it_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv_text(rows(6))[:-1])
    frozen = careful(tmp_path)
    frozen.freeze()
    at = steps(frozen, FilePosition(), 100)[-1]
    with path.open("a") as file:
        file.write("7\nand more\n")
    write(tmp_path / "b.csv", rows(5, 6))
    chunks = batches(tmp_path, 100, at)
    assert data(chunks) == rows_of(rows(5, 6))
    (reject,) = rejects(chunks)
    assert (reject.line, "FILE_CHANGED" in reject.reason) == (7, True)


def test_a_repaired_file_does_not_come_back(tmp_path: Path) -> None:
    write(tmp_path / "a.csv.gz", rows(5))
    readable = cut_gz(tmp_path / "b.csv.gz")
    at = steps(careful(tmp_path), FilePosition(), 100)[-1]
    assert at.closed
    write(tmp_path / "b.csv.gz", rows(40, 5))
    planner = careful(tmp_path)
    assert planner.frontier(at, 9).rows == 0
    write(tmp_path / "c.csv.gz", rows(5, 45))
    end = steps(planner, at, 100)[-1]
    assert end.seq == 5 + readable + 1 + 5
    assert data(list(careful(tmp_path).read(at, end))) == rows_of(rows(5, 45))


def test_it_is_decided_once(tmp_path: Path) -> None:
    """The file is repaired between a batch's plan and its replay, and the batch stays what it was."""
    write(tmp_path / "a.csv.gz", rows(5))
    readable = cut_gz(tmp_path / "b.csv.gz")
    write(tmp_path / "c.csv.gz", rows(5, 45))
    planner = careful(tmp_path)
    end = planner.advance(FilePosition(), planner.frontier(FilePosition(), 100).rows)
    end = planner.position(json.loads(json.dumps(end.to_facts())))
    before = list(careful(tmp_path).read(FilePosition(), end))
    write(tmp_path / "b.csv.gz", rows(40, 5))
    again = list(careful(tmp_path).read(FilePosition(), end))
    assert data(again) == data(before) == rows_of([*rows(5), *rows(readable, 5), *rows(5, 45)])
    assert rejects(again) == rejects(before)


def test_errors_that_no_file_is_to_blame_for_still_stop(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", rows(5))
    write(tmp_path / "b.csv", rows(5, 5))
    at = steps(careful(tmp_path), FilePosition(), 100)[-1]
    (tmp_path / "a.csv").unlink()
    with pytest.raises(StreamJoinError, match="FILE_MISSING"):
        careful(tmp_path).frontier(at, 9)


def test_empty_files_first(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").touch()
    write(tmp_path / "c.csv", rows(5))
    assert data(batches(tmp_path, 2)) == rows_of(rows(5))
