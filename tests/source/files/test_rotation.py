"""Files that are rotated while they are read: noticed, named, and never read twice."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.errors import FileChangedError, FileRotatedError
from streamjoin_ds.source.position import FilePosition
from tests.source.feeds import csv_text, expected, feed, json_text, rows, steps, tuples

LOG: dict[str, Any] = {"format": "json"}


def grown(path: Path, first: int, count: int) -> None:
    with path.open("a") as file:
        file.write(json_text(rows(count, first)))


def copytruncated(path: Path) -> None:
    shutil.copy2(path, path.with_name(path.name + ".1"))
    os.truncate(path, 0)


def renamed(path: Path) -> None:
    path.rename(path.with_name(path.name + ".1"))
    path.touch()


def compressed(path: Path) -> None:
    path.with_name(path.name + ".1.gz").write_bytes(gzip.compress(path.read_bytes()))
    os.truncate(path, 0)


@pytest.mark.each_value
@pytest.mark.parametrize("how", [copytruncated, renamed, compressed])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("lines", "after"), [(9, 0), (9, 2), (9, 40), (20_000, 2)])
def test_a_rotated_log_is_named(tmp_path: Path, how: Any, after: int, restarted: bool, lines: int) -> None:
    """Also where it has grown beyond what was read, and where a new process finds it."""
    log = tmp_path / "app.log"
    grown(log, 0, lines)
    running = feed(log, **LOG)
    at = steps(running, FilePosition(), lines)[-1]
    assert at.seq == lines
    how(log)
    grown(log, lines, after)
    reader = feed(log, **LOG) if restarted else running
    with pytest.raises(FileRotatedError, match=r"app\.log was rotated: it begins anew.*app\.log\.1") as caught:
        reader.frontier(at, 99)
    assert caught.value.code == "FILE_ROTATED"
    assert "dateext" in caught.value.hint


def test_a_file_that_was_cut_off_is_named_where_nothing_was_kept(tmp_path: Path) -> None:
    log = tmp_path / "app.json"
    grown(log, 0, 9)
    reader = feed(log)
    at = steps(reader, FilePosition(), 9)[-1]
    os.truncate(log, 0)
    grown(log, 9, 1)
    with pytest.raises(FileRotatedError, match="cut off in place"):
        reader.frontier(at, 9)
    with pytest.raises(FileChangedError, match="shorter"):
        feed(log).frontier(at, 9)


def test_what_cannot_be_read_twice_is_set_aside_with_quarantine(tmp_path: Path) -> None:
    log = tmp_path / "app.json"
    grown(log, 0, 9)
    reader = feed(log, on_bad_file="quarantine")
    at = steps(reader, FilePosition(), 9)[-1]
    copytruncated(log)
    grown(log, 9, 3)
    assert reader.frontier(at, 9).rows == 1
    end = reader.advance(at, 1)
    (chunk,) = feed(log, on_bad_file="quarantine").read(at, end)
    assert "FILE_ROTATED" in chunk.rejects[0].reason


@pytest.mark.parametrize("restarted", [False, True])
def test_a_read_file_that_comes_again_under_another_name_is_not_read_twice(tmp_path: Path, restarted: bool) -> None:
    """A pattern that also holds the rotated names, and files that may go."""
    log = tmp_path / "app.log-1"
    log.write_text(csv_text(rows(5)))
    asked: dict[str, Any] = {"format": "csv", "ignore_missing": True}
    running = feed(tmp_path / "app.log-*", **asked)
    running.freeze()
    at = steps(running, FilePosition(), 9)[-1]
    running = feed(tmp_path / "app.log-*", **asked)
    running.frontier(at, 9)
    for end in ("", ".gz"):
        name = tmp_path / f"app.log-1{end}" if end else tmp_path / "app.log-2"
        name.write_bytes(gzip.compress(log.read_bytes()) if end else log.read_bytes())
        if not end:
            log.rename(tmp_path / "aside")
        reader = feed(tmp_path / "app.log-*", **asked) if restarted else running
        with pytest.raises(FileRotatedError, match="would be read twice"):
            reader.frontier(at, 9)
        name.unlink()
        if not end:
            (tmp_path / "aside").rename(log)
            os.utime(log)
            running = feed(tmp_path / "app.log-*", **asked)
            running.frontier(at, 9)


def test_logs_that_were_rotated_by_date_are_read_by_a_pattern(tmp_path: Path) -> None:
    """The way out that the errors name: logrotate with dateext and nocompress."""
    (tmp_path / "app.log").write_text("half a li")
    for day in (1, 2, 3):
        (tmp_path / f"app.log-2024010{day}").write_text(csv_text(rows(4, 4 * (day - 1))))
    (tmp_path / "other.log-20240101").write_text("no data")
    reader = feed(tmp_path / "app.log-*", format="csv")
    reader.freeze()
    end = steps(reader, FilePosition(), 99)[-1]
    assert tuples(feed(tmp_path / "app.log-*", format="csv").read(FilePosition(), end)) == expected(rows(12))
