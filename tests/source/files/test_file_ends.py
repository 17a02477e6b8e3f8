"""Where files end: without a newline, without a record, without anything."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from streamjoin_ds.errors import FileChangedError
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.position import FilePosition
from tests.source.feeds import compressed, csv_text, expected, feed, json_text, read_all, rows, steps, tuples, write

NOTHING = gzip.compress(b"", mtime=0)
TEXTS = {"csv": csv_text, "json": json_text}


def frozen(path: Path) -> FileFeed:
    """Return a feed of what is there now, as available_now has it."""
    reader = feed(path)
    reader.freeze()
    return reader


@pytest.mark.parametrize("nothing", [b"", NOTHING, NOTHING * 2, b"\0" * 5], ids=["empty", "member", "members", "zeros"])
@pytest.mark.parametrize("ending", ["csv.gz", "json.gz"])
def test_a_gz_file_of_nothing_holds_nothing_up(tmp_path: Path, ending: str, nothing: bytes) -> None:
    nothing_held_up(tmp_path, ending, nothing)


@pytest.mark.parametrize("frames", [0, 1, 2])
@pytest.mark.parametrize("ending", ["csv.zst", "json.lz4", "csv.bz2"])
def test_a_compressed_file_of_nothing_holds_nothing_up(tmp_path: Path, ending: str, frames: int) -> None:
    nothing_held_up(tmp_path, ending, compressed(b"", f".{ending.partition('.')[2]}") * frames)


def nothing_held_up(tmp_path: Path, ending: str, nothing: bytes) -> None:
    write(tmp_path / f"a.{ending}", rows(5))
    for name in "bc":
        (tmp_path / f"{name}.{ending}").write_bytes(nothing)
    write(tmp_path / f"d.{ending}", rows(5, 5))
    (tmp_path / f"e.{ending}").write_bytes(nothing)
    for size in (1, 3, 100):
        assert read_all(tmp_path, size) == expected(rows(10))
    reader = feed(tmp_path)
    at = steps(reader, FilePosition(), 100)[-1]
    assert reader.held_back_bytes == 0
    write(tmp_path / f"f.{ending}", rows(3, 10))
    assert reader.frontier(at, 10).rows == 3


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_finished_files_last_line_is_a_line(tmp_path: Path, ending: str, newline: bytes) -> None:
    path = tmp_path / f"a.{ending}"
    text = TEXTS[ending](rows(6)).encode()[:-1]
    path.write_bytes(text)
    assert steps(feed(path), FilePosition(), 100)[-1].seq == 5  # the last line may go on
    reader = frozen(path)
    at = steps(reader, FilePosition(), 4)[-1]
    assert (at.seq, at.open_line, at.whole, reader.held_back_bytes) == (6, True, True, 0)
    assert tuples(feed(path).read(FilePosition(), at)) == expected(rows(6))
    # The newline comes, and lines after it. No line is lost, none comes again, and each has its number.
    path.write_bytes(text + newline)
    assert frozen(path).frontier(at, 10).rows == 0
    path.write_bytes(text + newline + TEXTS[ending](rows(9)[6:]).encode().removeprefix(b"ts,name,x,n\n") + b"oops\n")
    for later in (feed(path), frozen(path)):
        end = steps(later, at, 10)[-1]
        assert not end.open_line
        chunks = list(feed(path).read(at, end))
        assert tuples(chunks) == expected(rows(9))[6:]
        assert [reject.line for chunk in chunks for reject in chunk.rejects] == [11 if ending == "csv" else 10]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_line_that_goes_on_after_it_was_taken_is_refused_by_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    text = TEXTS[ending](rows(6)).encode()[:-1]
    path.write_bytes(text)
    reader = frozen(path)
    at = steps(reader, FilePosition(), 100)[-1]
    path.write_bytes(text + b"7\n")
    with pytest.raises(FileChangedError, match="line 7" if ending == "csv" else "line 6") as caught:
        feed(path).frontier(at, 10)
    assert caught.value.name == str(path)


def test_so_is_one_in_a_file_that_later_ones_follow(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv_text(rows(3))[:-1])
    write(tmp_path / "b.csv", rows(3, 3))
    at = feed(tmp_path)
    start = at.initial()
    at.frontier(start, 3)
    cut = at.position(json.loads(json.dumps(at.advance(start, 3).to_facts())))
    assert (cut.file, cut.open_line) == ("a.csv", True)
    with path.open("a") as file:
        file.write("4\n")
    with pytest.raises(FileChangedError, match="line 4"):
        feed(tmp_path).frontier(cut, 10)


def test_a_header_alone_without_its_newline_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,name,x,n")
    reader = frozen(tmp_path)
    assert steps(reader, FilePosition(), 100)[-1].seq == 0
    assert reader.held_back_bytes == 0
    with (tmp_path / "a.csv").open("a") as file:
        file.write("\n" + csv_text(rows(3), header=False))
    assert read_all(tmp_path, 2) == expected(rows(3))
