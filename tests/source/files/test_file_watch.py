from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streamjoin_ds.errors import FileChangedError, FileMissingError, FileOrderError
from streamjoin_ds.source.files.file_watch import late_names
from streamjoin_ds.source.files.listing import Location
from streamjoin_ds.source.position import FilePosition, name_sum
from tests.source.feeds import FORMATS, csv_text, expected, feed, rows, steps, tuples, write


def other(count: int, first: int = 0) -> list[tuple[int, str, float, int]]:
    """Return rows of the same length as those of `rows`, with other values."""
    return [(ts, name.replace("n", "m"), x, n) for ts, name, x, n in rows(count, first)]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_rewritten_between_crash_and_restart(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", rows(30))
    positions = steps(feed(path), FilePosition(), 10)
    write(path, other(30))
    for read in (
        lambda: feed(path).frontier(positions[1], 5),
        lambda: list(feed(path).read(positions[0], positions[1])),
        lambda: list(feed(path).read(positions[1], positions[2])),
    ):
        with pytest.raises(FileChangedError) as caught:
            read()
        assert str(path) in str(caught.value)


def test_only_the_prefix_must_be_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(30))
    positions = steps(feed(path), FilePosition(), 10)
    path.write_text(csv_text(rows(10)) + csv_text(other(20, 10), header=False))
    assert feed(path).frontier(positions[1], 100).rows == 20
    with pytest.raises(FileChangedError):
        feed(path).frontier(positions[2], 100)


def rewritten(path: Path) -> None:
    write(path, other(30))


def shrunk(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def replaced(path: Path) -> None:
    aside = path.with_suffix(".aside")
    aside.write_text(csv_text(other(40)))
    aside.replace(path)


@pytest.mark.parametrize("change", [rewritten, shrunk, replaced])
def test_a_file_changed_while_it_is_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = write(tmp_path / "a.csv", rows(30))
    reader = feed(path)
    at = reader.initial()
    at = reader.advance(at, reader.frontier(at, 20).rows)
    change(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChangedError) as caught:
        reader.frontier(at, 20)
    assert caught.value.name == str(path)


def test_a_copy_in_its_place_is_no_change(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(30))
    reader = feed(path)
    at = reader.advance(reader.initial(), reader.frontier(reader.initial(), 30).rows)
    aside = tmp_path / "aside"
    aside.write_text(csv_text(rows(33)))
    aside.replace(path)
    assert reader.frontier(at, 30).rows == 3
    assert tuples(feed(path).read(at, reader.advance(at, 3))) == expected(rows(33))[30:]


def folder_of(tmp_path: Path, files: int) -> Path:
    for number in range(files):
        write(tmp_path / f"{number * 2}.csv", rows(5, number * 5))
    return tmp_path


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_sorts_before_those_read(tmp_path: Path, restart: bool) -> None:
    reader = feed(folder_of(tmp_path, 3))
    at = steps(reader, FilePosition(), 4)[-1]
    write(tmp_path / "3.csv", rows(1))
    with pytest.raises(FileOrderError) as caught:
        (feed(tmp_path) if restart else reader).frontier(at, 5)
    assert caught.value.name == str(tmp_path / "3.csv")


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_was_read_vanishes(tmp_path: Path, restart: bool) -> None:
    reader = feed(folder_of(tmp_path, 3))
    at = steps(reader, FilePosition(), 4)[-1]
    (tmp_path / "0.csv").unlink()
    with pytest.raises(FileMissingError):
        (feed(tmp_path) if restart else reader).frontier(at, 5)


@pytest.mark.parametrize("restart", [False, True])
def test_committed_files_may_vanish_where_that_is_allowed(tmp_path: Path, restart: bool) -> None:
    reader = feed(folder_of(tmp_path, 3), ignore_missing=True)
    at = steps(reader, FilePosition(), 4)[-1]
    for number in (0, 2, 4):
        (tmp_path / f"{number}.csv").unlink()
    write(tmp_path / "6.csv", rows(5, 15))
    later = feed(tmp_path, ignore_missing=True) if restart else reader
    assert later.frontier(at, 9).rows == 5
    end = later.advance(at, 5)
    assert tuples(feed(tmp_path, ignore_missing=True).read(at, end)) == expected(rows(20))[15:]


def test_a_file_not_read_to_its_end_may_not_vanish(tmp_path: Path) -> None:
    reader = feed(folder_of(tmp_path, 2), ignore_missing=True)
    at = reader.advance(FilePosition(), min(7, reader.frontier(FilePosition(), 7).rows))
    (tmp_path / "2.csv").unlink()
    for later in (reader, feed(tmp_path, ignore_missing=True)):
        with pytest.raises(FileMissingError) as caught:
            later.frontier(at, 5)
        assert caught.value.name == str(tmp_path / "2.csv")


@pytest.mark.parametrize("restart", [False, True])
def test_a_finished_file_changes(tmp_path: Path, restart: bool) -> None:
    reader = feed(folder_of(tmp_path, 3))
    at = steps(reader, FilePosition(), 4)[-1]
    with (tmp_path / "0.csv").open("a") as file:
        file.write(csv_text(rows(1), header=False))
    with pytest.raises(FileChangedError):
        (feed(tmp_path) if restart else reader).frontier(at, 5)


def test_a_task_sees_what_happened_between_the_files_of_its_range(tmp_path: Path) -> None:
    folder_of(tmp_path, 3)
    start, *_, end = steps(feed(tmp_path), FilePosition(), 15)
    assert len(tuples(feed(tmp_path).read(start, end))) == 15
    write(tmp_path / "1.csv", rows(1))
    with pytest.raises(FileOrderError, match=r"1\.csv"):
        list(feed(tmp_path).read(start, end))
    (tmp_path / "1.csv").unlink()
    write(tmp_path / "2.csv", other(5, 5))
    with pytest.raises(FileChangedError):
        list(feed(tmp_path).read(start, end))
    (tmp_path / "2.csv").unlink()
    with pytest.raises(FileMissingError):
        list(feed(tmp_path).read(start, end))


@pytest.mark.parametrize("late", [("a-late",), ("a-late", "b-late"), ("a-late", "b-late", "c-late")])
@pytest.mark.parametrize("change", [None, "first", "between", "last"])
def test_files_that_came_late_are_told_from_one_that_changed(
    tmp_path: Path, late: tuple[str, ...], change: str | None
) -> None:
    """Late files are new, and so is a file that was read and has changed since: the digests tell which is which."""
    read = [f"r{number:02d}" for number in range(6)]
    names = [f"{name}.csv" for name in (*read, *late)]
    order = [f"{name}.csv" for name in late]
    if change is not None:
        order.insert({"first": 0, "between": len(order) // 2, "last": len(order)}[change], "r03.csv")
    for when, name in enumerate([*(name for name in names if name not in order), *order]):
        (tmp_path / name).write_text("ts\n1\n")
        os.utime(tmp_path / name, ns=(when * 10**9, when * 10**9))
    found = late_names(sorted(names), name_sum(f"{name}.csv" for name in read), Location(str(tmp_path), "csv", "s"))
    assert found is not None
    assert sorted(found) == [f"{name}.csv" for name in late]
