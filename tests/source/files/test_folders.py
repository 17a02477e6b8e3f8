"""Folders as people have them: sub-folders, names that do not sort in time, several writers at once."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.errors import (
    ArgumentError,
    FileChangedError,
    FileFormatError,
    FileMissingError,
    FileOrderError,
    SchemaDriftError,
)
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.files.file_names import FileOrder, is_label
from streamjoin_ds.source.files.listing import Location
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Join, Stream, band, bind
from streamjoin_ds.spec.columns import marked_needed
from tests.source.feeds import SCHEMA, csv_text, expected, feed, rows, steps, tuples, write
from tests.source.files.test_listing import Calls

IN_TREE: dict[str, Any] = {"sub_folders": "read"}
NAMED = pa.schema([*SCHEMA, pa.field("date", pa.date32()), pa.field("hour", pa.int64())])
S = 1_000_000_000  # a second


def put(path: Path, items: Sequence[Any], at_s: float | None = None) -> Path:
    """Write a file, in sub-folders if need be; its last change was `at_s` seconds after 1970."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, items)
    if at_s is not None:
        os.utime(path, ns=(int(at_s * S), int(at_s * S)))
    return path


def replayed(reader: FileFeed, make: Any, size: int) -> list[tuple[Any, ...]]:
    """Return all that is read in steps of `size`, each step by a process of its own."""
    found = []
    for low, high in pairwise(steps(reader, FilePosition(), size)):
        found += tuples(make().read(low, high))
    return found


class Now:
    """A clock in nanoseconds since 1970."""

    def __init__(self, second: float) -> None:
        self.second = second

    def __call__(self) -> int:
        return int(self.second * S)


@pytest.mark.parametrize("ending", ["csv", "json.gz", "parquet", "spool"])
def test_sub_folders_are_read_in_the_order_of_their_paths_with_their_names_as_columns(
    tmp_path: Path, ending: str
) -> None:
    items, first = rows(12), 0
    for day in ("2024-01-01", "2024-01-02"):
        for hour in (9, 10, 11):  # as Spark writes them
            put(tmp_path / f"date={day}" / f"hour={hour}" / f"part.{ending}", items[first : first + 2])
            first += 2
    (tmp_path / "date=2024-01-01" / "_temporary").mkdir()
    stream = Stream("e", str(tmp_path), **IN_TREE)
    assert {column.name: column.type for column in infer_schema(stream)}["date"] == pa.date32()
    assert infer_schema(stream).field("hour").type == pa.int64()

    def make() -> FileFeed:
        return feed(tmp_path, schema=NAMED, **IN_TREE)

    for size in (1, 5, 100):
        found = replayed(make(), make, size)
        assert [row[:5] for row in found] == expected(items)
        assert [(str(row[5]), row[6]) for row in found] == [
            (f"2024-01-0{1 + k // 6}", 9 + k // 2 % 3) for k in range(12)
        ]
    assert make().passed_over == []


def test_labels_sort_as_files_are_read_and_tell_their_paths() -> None:
    order, modified = FileOrder(), FileOrder(by_modification=True)
    paths = ["hour=3/x.csv", "hour=10/a.csv", "b/hour=2/y=1:2/c.csv", "t=0:7/a=5", "t=3:abc/x", "9.csv", "10.csv"]
    for path in paths:
        assert order.path(order.label(path, 7)) == path
        assert modified.path(modified.label(path, 7)) == path
        assert is_label(order.label(path, 7))
        assert is_label(modified.label(path, 7))
    assert order.label("hour=3/x", 0) < order.label("hour=10/a", 0)
    assert modified.label("z", 5) < modified.label("a", 11)
    assert order.label("hour=3.csv", 0) == "hour=3.csv"  # names of files are as they were
    for text in ("../a.csv", "/etc/passwd", "a//b", "a/../b", "a\0", "."):
        assert not is_label(text)


def test_folder_names_may_be_declared_escaped_and_null(tmp_path: Path) -> None:
    put(tmp_path / "site=a%2Fb" / "k=__HIVE_DEFAULT_PARTITION__" / "1.csv", rows(1))
    put(tmp_path / "site=c" / "k=1.5" / "1.csv", rows(1, 1))
    put(tmp_path / "site=d" / "plain" / "1.csv", rows(1, 2))
    declared = pa.schema([*SCHEMA, pa.field("site", pa.string()), pa.field("k", pa.float64())])
    found = tuples(feed(tmp_path, schema=declared, **IN_TREE).read(FilePosition(), None))
    assert [row[5:] for row in found] == [("a/b", None), ("c", 1.5), ("d", None)]
    declared = marked_needed(declared, {"k"})
    with pytest.raises(SchemaDriftError) as caught:  # no folder of the last file names k, nor does the file
        _ = tuples(feed(tmp_path, schema=declared, **IN_TREE).read(FilePosition(), None))
    assert caught.value.name == "k"
    (tmp_path / "site=d" / "plain" / "1.csv").unlink()
    found = tuples(feed(tmp_path, schema=declared, **IN_TREE).read(FilePosition(), None))
    assert [row[5:] for row in found] == [("a/b", None), ("c", 1.5)]
    assert infer_schema(Stream("e", str(tmp_path), **IN_TREE)).field("k").type == pa.string()


def test_a_folder_wins_over_the_file_but_not_for_the_event_time(tmp_path: Path) -> None:
    put(tmp_path / "n=77" / "ts=2030-01-01" / "1.csv", rows(2))
    found = tuples(feed(tmp_path, **IN_TREE).read(FilePosition(), None))
    assert [row[-1] for row in found] == [77, 77]
    assert [row[0] for row in found] == [row[0] for row in expected(rows(2))]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_whose_value_does_not_fit_is_a_bad_file(tmp_path: Path, ending: str) -> None:
    put(tmp_path / "hour=1" / f"1.{ending}", rows(2))
    put(tmp_path / "hour=x" / f"1.{ending}", rows(2, 2))
    put(tmp_path / "hour=y" / "z=1" / "hour=2" / f"1.{ending}", rows(2, 4))
    schema = pa.schema([*SCHEMA, pa.field("hour", pa.int64())])
    with pytest.raises(SchemaDriftError, match="hour=x") as caught:
        steps(feed(tmp_path, schema=schema, **IN_TREE), FilePosition(), 9)
    assert caught.value.name == "hour"
    careful = feed(tmp_path, schema=schema, on_bad_file="quarantine", **IN_TREE)
    chunks = []
    for low, high in pairwise(steps(careful, FilePosition(), 3)):
        chunks += list(
            feed(tmp_path, schema=schema, on_bad_file="quarantine", **IN_TREE).read(
                low, high, files=careful.files_between(low, high)
            )
        )
    assert [row[-1] for row in tuples(chunks)] == [1, 1, 2, 2]
    (reject,) = [reject for chunk in chunks for reject in chunk.rejects]
    assert reject.file == str(tmp_path / "hour=x" / f"1.{ending}")


def test_a_trigger_over_many_folders_costs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(20):
        for hour in range(24):
            put(tmp_path / f"day={day}" / f"hour={hour}" / "1.csv", rows(1, day * 24 + hour))
    reader = feed(tmp_path, **IN_TREE)
    at = steps(reader, FilePosition(), 600)[-1]
    assert at.seq == 480
    counts = []
    calls = Calls(monkeypatch)
    for hour in range(3):
        put(tmp_path / "day=19" / "hour=23" / f"{hour + 2}.csv", rows(1, 480 + hour))
        calls.taken()
        at = reader.advance(at, reader.frontier(at, 9).rows)
        counts.append(calls.taken())
    assert at.seq == 483
    put(tmp_path / "day=20" / "hour=0" / "1.csv", rows(1, 483))
    assert reader.frontier(at, 9).rows == 1
    assert all(count["stat"] <= 260 for count in counts), counts
    (tmp_path / "day=3" / "hour=7" / "1.csv").unlink()  # noticed by turns
    with pytest.raises(FileMissingError, match="hour=7"):
        _ = [reader.frontier(at, 9) for _ in range(20)]


def test_folders_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    location = Location(str(tmp_path), "auto", "e", sub_folders=True)
    assert location.names() == []
    put(tmp_path / "a" / "b" / "1.csv", rows(1))
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    put(tmp_path / "c.csv", rows(1))
    assert location.names() == ["a/b/1.csv", "c.csv"]
    assert "leads back" in caplog.text
    (tmp_path / "a").rename(tmp_path / "d")
    assert location.names() == ["c.csv", "d/b/1.csv"]
    (tmp_path / "d" / "_delta_log").mkdir()
    with pytest.raises(FileFormatError, match="sub-folder that is a Delta table"):
        location.names()
    flat = feed(tmp_path)
    steps(flat, FilePosition(), 1)
    assert flat.passed_over == ["d"]
    assert "sub_folders=read" in caplog.text


@pytest.mark.parametrize("in_tree", [False, True])
def test_by_modification_names_do_not_matter(tmp_path: Path, in_tree: bool) -> None:
    items, places = rows(30), list(range(10))
    random.Random(1).shuffle(places)
    for place in places:
        name = f"k={9 - place}/{place % 3}.csv" if in_tree else f"{place * 7 % 10}.csv"
        put(tmp_path / name, items[3 * place : 3 * place + 3], at_s=1000 + place)
    facts = {"file_order": "modified", "sub_folders": "read" if in_tree else "skip"}
    for size in (1, 4, 50):
        assert replayed(feed(tmp_path, **facts), lambda: feed(tmp_path, **facts), size) == expected(items)
    at = steps(feed(tmp_path, **facts), FilePosition(), 50)[-1]
    put(tmp_path / "new.csv", rows(3, 30), at_s=1010)
    put(tmp_path / "a-new.csv", rows(3, 33), at_s=1010 + 1e-9 * 1000)
    reader = feed(tmp_path, **facts)
    end = reader.advance(at, reader.frontier(at, 9).rows)
    assert tuples(feed(tmp_path, **facts).read(at, end)) == expected(rows(6, 30), 30)
    put(tmp_path / "late.csv", rows(1), at_s=1003.5)
    with pytest.raises(FileOrderError, match="came late") as caught:
        feed(tmp_path, **facts).frontier(end, 9)
    assert "touch" in caught.value.hint
    os.utime(tmp_path / "late.csv", ns=(2000 * S, 2000 * S))
    assert feed(tmp_path, **facts).frontier(end, 9).rows == 1


def test_by_modification_a_file_is_read_once_it_is_finished(tmp_path: Path) -> None:
    now = Now(1000)
    reader = FileFeed(Stream("e", str(tmp_path), file_order="modified"), SCHEMA, clock=now)
    put(tmp_path / "b.csv", rows(2), at_s=995)
    put(tmp_path / "a.csv", rows(2, 2), at_s=999)
    start = FilePosition()
    assert reader.frontier(start, 9).rows == 0
    now.second = 1005  # ten seconds, where nothing is said
    assert reader.frontier(start, 9).rows == 2
    at = reader.advance(start, 2)
    with (tmp_path / "a.csv").open("a") as file:  # it goes on
        file.write(csv_text(rows(1, 4), header=False))
    os.utime(tmp_path / "a.csv", ns=(1006 * S, 1006 * S))
    now.second = 1010
    assert reader.frontier(at, 9).rows == 0
    now.second = 1016
    assert reader.frontier(at, 9).rows == 3
    end = reader.advance(at, 3)
    assert tuples(feed(tmp_path, file_order="modified").read(at, end)) == expected(rows(3, 2), 2)
    frozen = FileFeed(Stream("e", str(tmp_path), file_order="modified"), SCHEMA, clock=Now(1006))
    frozen.freeze()  # what is there when an available-now query begins is taken
    assert frozen.frontier(start, 9).rows == 5


def test_a_file_that_is_written_again_is_a_new_one(tmp_path: Path) -> None:
    facts = {"file_order": "modified", "finished_after": "0s"}
    for place, name in enumerate(("b", "a", "c")):
        put(tmp_path / f"{name}.csv", rows(2, 2 * place), at_s=1000 + place)
    running = feed(tmp_path, **facts)
    at = steps(running, FilePosition(), 5)[-1]
    lax = feed(tmp_path, ignore_missing=True, **facts)
    kept = steps(lax, FilePosition(), 5)[-1]
    put(tmp_path / "b.csv", rows(3, 6), at_s=1010)
    for reader in (running, feed(tmp_path, **facts)):
        with pytest.raises(FileMissingError) as caught:
            _ = [reader.frontier(at, 9) for _ in range(3)]
        assert "missing_files=ignore" in caught.value.hint
    for reader in (lax, feed(tmp_path, ignore_missing=True, **facts)):
        assert [reader.frontier(kept, 9).rows for _ in range(3)][-1] == 3
    end = reader.advance(kept, 3)
    assert tuples(feed(tmp_path, ignore_missing=True, **facts).read(kept, end)) == expected(rows(3, 6), 6)


def test_later_files_wait_until_one_is_finished(tmp_path: Path) -> None:
    """Several writers: a later file is there while the first is still written."""
    now = Now(1000)
    reader = FileFeed(Stream("e", str(tmp_path), finished_after="30s"), SCHEMA, clock=now)
    text = csv_text(rows(4))
    (tmp_path / "a.csv").write_text(text[:-20])
    os.utime(tmp_path / "a.csv", ns=(1000 * S, 1000 * S))
    put(tmp_path / "b.csv", rows(2, 4), at_s=980)
    assert reader.frontier(FilePosition(), 9).rows == 3
    at = reader.advance(FilePosition(), 3)
    assert reader.held_back_bytes > 0  # the last line waits
    (tmp_path / "a.csv").write_text(text)
    os.utime(tmp_path / "a.csv", ns=(1020 * S, 1020 * S))
    now.second = 1040
    assert reader.frontier(at, 9).rows == 1
    now.second = 1050
    assert reader.frontier(at, 9).rows == 3
    end = reader.advance(at, 3)
    assert tuples(feed(tmp_path).read(at, end)) == expected(rows(6))[3:]
    frozen = FileFeed(Stream("e", str(tmp_path), finished_after="30s"), SCHEMA, clock=Now(1045))
    frozen.freeze()
    assert frozen.frontier(FilePosition(), 9).rows == 4  # what is said holds for an available-now query too


def test_a_look_that_takes_long_finishes_no_file(tmp_path: Path) -> None:
    """The machine may sleep within a look: a file that had just been written when it began may go on."""
    seconds = iter([1001])
    reader = FileFeed(Stream("e", str(tmp_path), finished_after="30s"), SCHEMA, clock=lambda: next(seconds, 1100) * S)
    put(tmp_path / "a.csv", rows(2), at_s=1000)
    put(tmp_path / "b.csv", rows(2, 2), at_s=1000)
    assert reader.frontier(FilePosition(), 9).rows == 2
    assert reader.frontier(FilePosition(), 9).rows == 4


def test_without_it_a_file_that_goes_on_is_named_with_the_way_out(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", rows(2))
    put(tmp_path / "b.csv", rows(2, 2))
    reader = feed(tmp_path)
    at = steps(reader, FilePosition(), 9)[-1]
    with (tmp_path / "a.csv").open("a") as file:
        file.write(csv_text(rows(1, 4), header=False))
    with pytest.raises(FileChangedError, match="a later file is there") as caught:
        reader.frontier(at, 9)
    assert "finished_after" in caught.value.hint
    assert "partition_by=file" in caught.value.hint


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet"])
def test_a_file_that_must_be_whole_is_begun_once_it_is_finished(tmp_path: Path, name: str) -> None:
    whole = put(tmp_path / "aside" / name, rows(5)).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[: len(whole) // 2])  # somebody copies it
    os.utime(path, ns=(1000 * S, 1000 * S))
    now = Now(1001)
    reader = FileFeed(Stream("e", str(tmp_path), finished_after="5s"), SCHEMA, clock=now)
    assert reader.frontier(FilePosition(), 9).rows == 0
    path.write_bytes(whole)
    os.utime(path, ns=(1002 * S, 1002 * S))
    now.second = 1006
    assert reader.frontier(FilePosition(), 9).rows == 0
    now.second = 1007
    assert reader.frontier(FilePosition(), 9).rows == 5


def test_sub_folders_of_partitions_are_read_and_a_partitions_name_is_a_column(tmp_path: Path) -> None:
    for device in (7, 12):
        for day in (1, 2, 10):
            put(tmp_path / f"device={device}" / f"day={day}" / "x.csv", rows(2, 2 * day))
    for by in ("folder", "file"):
        stream = Stream("e", str(tmp_path), partition_by=by, **IN_TREE)
        schema = infer_schema(stream)
        assert schema.field("device").type == pa.int64()
        wanted = pa.schema([*SCHEMA, pa.field("device", pa.int64()), pa.field("day", pa.int64())])
        reader = open_feed(stream, wanted)
        start = reader.initial()
        end = reader.advance(start, reader.frontier(start, 99).rows)
        again = open_feed(stream, wanted)
        end = again.position(json.loads(json.dumps(end.to_facts())))
        files = reader.files_between(start, end)
        found = tuples(again.read(start, end, files=files))
        assert sorted({(row[-2], row[-1]) for row in found}) == [(d, k) for d in (7, 12) for k in (1, 2, 10)]
        assert len(found) == 12
        for device in (7, 12):  # the order in a folder is that of the numbers
            days = [row[-1] for row in found if row[-2] == device]
            assert by == "file" or days == sorted(days)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"sub_folders": "yes"}, "sub_folders"),
        ({"file_order": "size"}, "file_order"),
        ({"finished_after": "soon"}, "finished_after of e"),
        ({"source": "gen:band2d?side=r", "sub_folders": "read"}, "sub_folders"),
        ({"source": "kafka://b:1/t?format=json", "file_order": "modified"}, "file_order"),
        ({"source": None, "finished_after": "5s"}, "finished_after"),
        ({"format": "delta", "file_order": "modified"}, "file_order"),
        ({"format": "spool", "file_order": "modified"}, "file_order"),
        ({"partition_by": "file", "file_order": "modified"}, "file_order"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(facts: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("e", **{"source": "folder", **facts})
    assert caught.value.name == name


def test_order_and_sub_folders_are_part_of_what_a_join_means() -> None:
    def printed(**facts: Any) -> str:
        streams = [Stream("l", "l", **facts), Stream("r", "r")]
        schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
        bound = bind(Join(streams, [band("l.x", "r.x", 1)], "1s"), {"l": schema, "r": schema})
        assert Stream.from_facts(json.loads(json.dumps(bound.join.streams[0].to_facts()))) == bound.join.streams[0]
        return bound.fingerprint

    plain = printed()
    assert plain == printed(finished_after="30s")
    assert len({plain, printed(sub_folders="read"), printed(file_order="modified")}) == 3


@pytest.mark.parametrize("order", ["name", "modified"])
@pytest.mark.parametrize("restarted", [False, True])
def test_old_folders_may_go_as_a_whole(tmp_path: Path, order: str, restarted: bool) -> None:
    """Retention removes days that were read; one that was not read may not go."""
    facts: dict[str, Any] = {"sub_folders": "read", "file_order": order, "finished_after": "0s"}
    for day in range(8, 12):
        for half in range(2):
            first = 4 * (day - 8) + 2 * half
            put(tmp_path / f"day={day}" / f"{half}.csv", rows(2, first), at_s=1000 + 2 * day + half)
    reader = feed(tmp_path, ignore_missing=True, **facts)
    at = FilePosition()
    for _ in range(2):
        reader.frontier(at, 5)
        at = reader.advance(at, 5)
    assert at.seq == 10
    shutil.rmtree(tmp_path / "day=8")
    reader = feed(tmp_path, ignore_missing=True, **facts) if restarted else reader
    assert reader.frontier(at, 99).rows == 6
    end = reader.advance(at, 6)
    assert tuples(feed(tmp_path, ignore_missing=True, **facts).read(at, end)) == expected(rows(16))[10:]
    shutil.rmtree(tmp_path / "day=10")
    if not restarted:  # a new process cannot know that there was more
        with pytest.raises(FileMissingError, match="day=10"):
            reader.frontier(at, 99)
