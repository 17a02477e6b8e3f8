"""Copies of remote blocks on this machine: bounded over all folders, private, and never needed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds.blocks.remote_folder import Copies


def data(size: int) -> pa.Buffer:
    return pa.py_buffer(b"x" * size)


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_the_limit_is_that_of_all_folders_together(tmp_path: Path) -> None:
    copies = Copies(tmp_path / "home", 250)
    for name in ("a/one", "b/two", "b/c/three"):
        copies.put(name, data(100))
        # A file's clock ticks too slowly to tell these writes apart.
        os.utime(tmp_path / "home" / name, (1_000, 1_000 + len(name)))
    assert kept(tmp_path) == ["three", "two"]
    assert copies.get("b/two") == data(100)  # used last, so it goes last
    copies.put("a/four", data(100))
    assert kept(tmp_path) == ["four", "two"]
    copies.put("a/large", data(251))
    assert kept(tmp_path) == ["four", "two"]


@pytest.mark.parametrize("spoil", ["open to others", "a link"])
def test_a_folder_that_others_may_have_made_is_not_used(tmp_path: Path, spoil: str) -> None:
    home = tmp_path / "home"
    Copies(home, 1000).put("a/one", data(10))
    if spoil == "a link":
        home.rename(tmp_path / "theirs")
        home.symlink_to(tmp_path / "theirs")
    else:
        home.chmod(0o777)
    copies = Copies(home, 1000)
    assert copies.get("a/one") is None
    copies.put("a/two", data(10))
    assert kept(tmp_path) == ["one"]
    full = Copies(home, 15)  # to make room, what lies there would have to go
    full.put("a/three", data(10))
    assert not full.drop("a/one")
    assert kept(tmp_path) == ["one"]


def test_a_place_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"a file")
    copies = Copies(tmp_path / "home", 1000)
    copies.put("a/one", data(10))
    assert copies.get("a/one") is None
    assert not copies.drop("a/one")
