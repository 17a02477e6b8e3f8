"""The listing of a folder: which files it finds, and what it costs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.errors import ArgumentError, FileChangedError, FileFormatError, FileMissingError, FileOrderError
from streamjoin_ds.source.files.listing import Location
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Files, Generator, Stream
from streamjoin_ds.stream.query_options import SourceOptions
from tests.source.feeds import SCHEMA, compressed, csv_text, expected, feed, json_text, rows, steps, tuples, write


def folder_of(folder: Path, files: int, first: int = 0) -> Path:
    for number in range(first, first + files):
        write(folder / f"{number:05d}.csv", rows(1, number))
    return folder


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Calls:
    """Counts the calls that look at files and folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = {"stat": 0, "listdir": 0, "scandir": 0}
        for name in self.counts:
            monkeypatch.setattr(os, name, self._counting(name, getattr(os, name)))

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.counts[name] += 1
            return call(*arguments, **more)

        return counted

    def taken(self) -> dict[str, int]:
        counts, self.counts = self.counts, dict.fromkeys(self.counts, 0)
        return counts


def test_a_trigger_costs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path, 500)
    reader = feed(tmp_path)
    at = steps(reader, FilePosition(), 600)[-1]
    calls = Calls(monkeypatch)
    assert reader.frontier(at, 9).rows == 0
    assert calls.taken()["stat"] <= 40
    folder_of(tmp_path, 2, 500)
    calls.taken()
    assert reader.frontier(at, 9).rows == 2
    end = reader.advance(at, 2)
    files = reader.files_between(at, end)
    assert files == ("00499.csv", "00500.csv", "00501.csv")
    assert calls.taken()["stat"] <= 60
    task = feed(tmp_path)
    assert tuples(task.read(at, end, files=files)) == expected(rows(502))[500:]
    found = calls.taken()
    assert (found["listdir"], found["scandir"]) == (0, 0)
    assert found["stat"] <= 10


def test_a_folder_that_rests_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path, 3)
    os.utime(tmp_path, (1, 1))  # an old time: file systems round times
    clock = Clock()
    location = Location(str(tmp_path), "auto", "e", clock)
    assert len(location.names()) == 3
    calls = Calls(monkeypatch)

    def listed() -> int:
        location.names()
        return calls.taken()["listdir"]

    # Nothing tells yet that the folder's time moves with its names.
    assert [listed() for clock.now in (1.0, 5.0, 9.0)] == [1, 1, 1]
    folder_of(tmp_path, 1, 3)
    assert [listed() for clock.now in (10.0, 12.0, 13.5, 14.0, 15.0, 23.0, 24.0)] == [1, 1, 1, 0, 0, 0, 1]
    folder_of(tmp_path, 1, 4)
    assert listed() == 1
    assert len(location.names()) == 5
    clock.now = 30.0
    location.names()
    assert location.names(fresh=True) == [f"{k:05d}.csv" for k in range(5)]
    assert calls.taken()["listdir"] == 3


def test_names_come_and_go(tmp_path: Path) -> None:
    location = Location(str(tmp_path), "auto", "e")
    assert location.names() == []
    (tmp_path / "00001.csv").symlink_to(tmp_path / "aside")
    assert location.names() == []
    (tmp_path / "aside").write_text("ts\n")
    assert location.names() == ["00001.csv"]
    folder_of(tmp_path, 200, 2)
    assert len(location.names()) == 201
    generation = location.generation
    assert len(location.names(fresh=True)) == 201
    assert location.generation == generation
    for number in range(2, 100):
        (tmp_path / f"{number:05d}.csv").unlink()
    assert location.names() == ["00001.csv", *(f"{k:05d}.csv" for k in range(100, 202))]
    assert location.generation > generation


def test_changes_to_many_files_that_were_read_are_found_by_turns(tmp_path: Path) -> None:
    reader = feed(folder_of(tmp_path, 200))
    at = steps(reader, FilePosition(), 600)[-1]
    write(tmp_path / "00077.csv", rows(2, 7))
    with pytest.raises(FileChangedError, match="00077"):
        _ = [reader.frontier(at, 9) for _ in range(20)]
    with pytest.raises(FileChangedError):
        feed(tmp_path).frontier(at, 9)


@pytest.mark.parametrize("late", ["000005.csv", "000305.csv", "000385.csv", "00000.csv.csv"])
@pytest.mark.parametrize("gone", [0, 1, 25])
def test_where_files_may_vanish_none_may_come_too_late(tmp_path: Path, late: str, gone: int) -> None:
    """The oldest files are removed while nothing runs; then a file comes that sorts before what was read."""
    for number in range(40):
        write(tmp_path / f"{number:05d}0.csv", rows(1, number))
    reader = feed(tmp_path, ignore_missing=True)
    positions = steps(reader, FilePosition(), 3)
    assert len(positions[-1].to_facts()["kept"]) <= 25
    for number in range(gone):
        (tmp_path / f"{number:05d}0.csv").unlink()
    assert steps(feed(tmp_path, ignore_missing=True), positions[-1], 9) == [positions[-1]]
    write(tmp_path / late, rows(1))
    if late < f"{gone:05d}0.csv":
        # It sorts among the removed files, and is seen only if nothing of their group is left.
        return
    with pytest.raises(FileOrderError) as caught:
        feed(tmp_path, ignore_missing=True).frontier(positions[-1], 9)
    assert caught.value.name == str(tmp_path / late)


def test_what_cannot_be_told_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder_of(tmp_path, 40)
    at = steps(feed(tmp_path, ignore_missing=True), FilePosition(), 100)[-1]
    (tmp_path / "00000.csv").unlink()
    with caplog.at_level(logging.WARNING):
        feed(tmp_path, ignore_missing=True).frontier(at, 9)
    assert "a file that came late would not" in caplog.text


def test_offsets_without_the_files_kept_are_read(tmp_path: Path) -> None:
    folder_of(tmp_path, 5)
    at = steps(feed(tmp_path), FilePosition(), 100)[-1]
    assert at.kept == ()
    assert feed(tmp_path, ignore_missing=True).frontier(at, 9).rows == 0
    write(tmp_path / "000025.csv", rows(1))
    with pytest.raises(FileOrderError, match="000025"):
        feed(tmp_path, ignore_missing=True).frontier(at, 9)


@pytest.mark.parametrize(
    "mark", ["_delta_log/0.json", "metadata/version-hint.text", "metadata/a.metadata.json", ".hoodie/x"]
)
@pytest.mark.parametrize("source", ["table", "table/day=1", "table/day=1/a.parquet", "table/*.parquet"])
@pytest.mark.parametrize("declared", [False, True])
def test_a_table_is_no_folder_of_files(tmp_path: Path, mark: str, source: str, declared: bool) -> None:
    inner = tmp_path / "table" / "day=1"
    inner.mkdir(parents=True)
    if mark.startswith("_delta_log") and source == "table":
        pytest.skip("a Delta table is a source")
    for folder in (inner, inner.parent):
        write(folder / "a.parquet", rows(3))
    sign = tmp_path / "table" / mark
    sign.parent.mkdir()
    sign.write_text("{}")
    with pytest.raises(FileFormatError) as caught:
        infer_schema(Stream("e", str(tmp_path / source), schema=SCHEMA if declared else None))
    assert caught.value.name == str(tmp_path / "table")
    assert "dataframe" in caught.value.hint
    for scheme in ("file://", "file:"):
        with pytest.raises(FileFormatError):
            SourceOptions.parse({"path": f"{scheme}{tmp_path / source}"})


def test_folders_beside_tables_are_folders(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "in" / "metadata").mkdir(parents=True)
    (tmp_path / "in" / "metadata" / "notes.json").write_text("{}")
    write(tmp_path / "in" / "a.csv", rows(3))
    assert infer_schema(Stream("e", str(tmp_path / "in"))).names == SCHEMA.names


def test_sub_folders_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=2.csv").mkdir()
    (tmp_path / "_spark").mkdir()
    with pytest.raises(FileMissingError) as caught:
        infer_schema(Stream("e", str(tmp_path)))
    assert "day=1" in caught.value.hint
    write(tmp_path / "a.csv", rows(3))
    caplog.clear()
    reader = feed(tmp_path)
    at = steps(reader, FilePosition(), 2)[-1]
    assert reader.passed_over == ["day=1", "day=2.csv"]
    assert caplog.text.count("sub-folders") == 1
    (tmp_path / "day=3").mkdir()
    reader.frontier(at, 2)
    assert reader.passed_over == ["day=1", "day=2.csv", "day=3"]
    assert "day=3" in caplog.text


@pytest.mark.parametrize("source", ["mqtt://me:secret@broker/readings", "s4://me:secret@bucket/readings"])
def test_a_location_elsewhere_is_named_by_its_kind_alone(source: str) -> None:
    with pytest.raises(ArgumentError, match=r"is a (mqtt|s4) location, and not a path") as caught:
        infer_schema(Stream("r", source))
    assert caught.value.name == "source"
    assert "secret" not in str(caught.value)


def test_a_generator_is_one_wherever_it_is_written(tmp_path: Path) -> None:
    stream = Stream("r", "gen:band2d?side=r&rate=10&rows=5")
    assert stream.source == Generator("band2d", {"side": "r", "rate": 10, "rows": 5})
    assert "x" in infer_schema(stream).names
    (options,) = SourceOptions.parse({"path": "gen:band2d?rate=10&rows=5"}).streams
    assert options.source == Generator("band2d", {"rate": 10, "rows": 5})
    write(tmp_path / "gen:x.csv", rows(1))
    assert isinstance(Stream("r", f"{tmp_path}/gen:x.csv").source, Files)


def test_endings_of_names_have_no_case(tmp_path: Path) -> None:
    for number, name in enumerate(("a.CSV", "b.csv.GZ", "c.Csv.gzip", "d.JSON", "e.NdJson.Zst", "f.PARQUET")):
        given = rows(2, 2 * number)
        if name == "f.PARQUET":
            write(tmp_path / "f.parquet", given).rename(tmp_path / name)
            continue
        text = csv_text(given) if "csv" in name.lower() else json_text(given)
        (tmp_path / name).write_bytes(compressed(text.encode(), Path(name).suffix.lower()))
    (tmp_path / "g.csvx").write_text("passed over")
    reader = feed(tmp_path)
    places = steps(reader, reader.initial(), 5)
    found = [one for low, high in pairwise(places) for one in tuples(reader.read(low, high))]
    assert found == expected(rows(12))


def test_batches_of_files_replay_by_their_names(tmp_path: Path) -> None:
    folder_of(tmp_path, 9)
    reader = feed(tmp_path)
    positions = steps(reader, FilePosition(), 2)
    found = []
    for low, high in pairwise(positions):
        found += tuples(feed(tmp_path).read(low, high, files=feed(tmp_path).files_between(low, high)))
    assert found == expected(rows(9))
    low, high = next(pair for pair in pairwise(positions) if "00003.csv" in reader.files_between(*pair))
    (tmp_path / "00003.csv").unlink()
    with pytest.raises(FileMissingError, match="00003"):
        list(feed(tmp_path).read(low, high, files=("00002.csv", "00003.csv")))
