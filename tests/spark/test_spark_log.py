"""Spark's logs: each is bounded while Spark runs, and goes some time after its processes have ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamjoin_ds.spark import local_files
from streamjoin_ds.spark.local_files import hold, new_log, remove_dead, shorten

NOW_S = 2_000_000_000.0


def old_log(folder: Path, age_s: float, name: str = "") -> Path:
    path = folder / f"streamjoin-spark-{name or int(age_s)}.log"
    path.write_text("a line\n")
    path.with_name(path.name + ".1").write_text("before\n")
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


def test_logs_of_the_dead_go_but_for_the_newest(tmp_path: Path) -> None:
    logs = [old_log(tmp_path, 1_000.0 * age) for age in range(1, 10)]
    young = old_log(tmp_path, 1, "young")
    other = tmp_path / "streamjoin-other.log"
    other.write_text("")
    assert sorted(remove_dead(tmp_path, NOW_S)) == sorted(logs[5:])
    assert sorted(tmp_path.glob("*.log")) == sorted([*logs[:5], young, other])
    assert len(list(tmp_path.glob("*.log.1"))) == 6
    assert remove_dead(tmp_path, NOW_S) == []


def test_a_log_stays_as_long_as_any_process_writes_to_it(tmp_path: Path) -> None:
    """The process that opened the log has closed it, but the one that it started still writes to it."""
    path = old_log(tmp_path, 9_999)
    with path.open("ab") as log:
        hold(log)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=log)
    assert remove_dead(tmp_path, NOW_S, kept=0) == []
    child.communicate(b"\n")
    assert remove_dead(tmp_path, NOW_S, kept=0) == [path]


def test_neither_links_nor_what_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "precious"
    target.write_text("x")
    (tmp_path / "streamjoin-spark-link.log").symlink_to(target)
    (tmp_path / "streamjoin-spark-folder.log").mkdir()
    assert remove_dead(tmp_path, NOW_S, kept=0) == []
    old_log(tmp_path, 9_999)
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    assert remove_dead(tmp_path, NOW_S, kept=0) == []


def test_a_new_log_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in range(1, 20):
        old_log(tmp_path, 1_000.0 * age)
    monkeypatch.setattr(local_files.time, "time", lambda: NOW_S)
    path = new_log(tmp_path)
    assert path.parent == tmp_path
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.glob("streamjoin-spark-*.log"))) == 6


def test_a_log_is_bounded_while_others_append(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    with path.open("ab", buffering=0) as java:
        for number in range(5_000):
            java.write(b"line %06d\n" % number)
            if number % 100 == 0:
                shorten(path, 4_000)
                assert path.stat().st_size <= 4_000 + 100 * 12
        before, now = (tmp_path / "spark.log.1").read_text(), path.read_text()
        assert len(before) <= 4_000
        lines = (before + now).splitlines()
        assert lines == [f"line {number:06d}" for number in range(5_000)][-len(lines) :]
        assert len(lines) > 300
    assert sorted(child.name for child in tmp_path.iterdir()) == ["spark.log", "spark.log.1"]
    assert not shorten(tmp_path / "absent", 10)


def test_without_room_for_a_copy_the_log_is_emptied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spark.log"
    path.write_bytes(b"x" * 100)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_files, "_copy_end", full)
    assert shorten(path, 10)
    assert path.read_bytes() == b""
