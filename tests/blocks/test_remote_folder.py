"""Blocks on a file system that is not this machine's: the same blocks, read through copies: bounded, private."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from streamjoin_ds.blocks import BlockStore, RemoteFolder, encode
from streamjoin_ds.blocks.remote_folder import Copies
from streamjoin_ds.errors import BlockCorruptError, BlockMissingError, BlockWriteError


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"_ts": pa.array(range(start, start + count), pa.int64())})


class Remote:
    """A folder of this machine that its store reaches only through Arrow's file system."""

    def __init__(self, folder: Path, cache_bytes: int = 1 << 30) -> None:
        self.files, self.cache = folder / "far", folder / "near"
        self.files.mkdir(exist_ok=True)
        there = fs.SubTreeFileSystem(str(self.files), fs.LocalFileSystem())
        self.folder = RemoteFolder("blocks", there, cache=self.cache, cache_bytes=cache_bytes)
        self.store = BlockStore("far://blocks", folder=self.folder)

    def copies(self) -> list[Path]:
        return sorted(path for path in self.cache.rglob("*.arrow"))


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path)


def test_written_read_listed_removed(remote: Remote) -> None:
    block = remote.store.write("a/e", rows(9), {"stream": "e"})
    assert (remote.files / "blocks" / block.name).read_bytes() == encode(rows(9), {"stream": "e"}).to_pybytes()
    assert remote.store.read(block.name).column("_ts").to_pylist() == list(range(9))
    assert remote.store.names() == [block.name]
    assert remote.store.size_bytes(block.name) == block.size_bytes
    assert remote.store.remove([block.name, block.name]) == 1
    assert remote.store.names() == []
    assert remote.copies() == []
    with pytest.raises(BlockMissingError):
        remote.store.read(block.name)


def test_a_copy_is_read_again_and_a_bad_one_is_fetched_anew(remote: Remote) -> None:
    block = remote.store.write("e", rows(9))
    there = remote.files / "blocks" / block.name
    whole = there.read_bytes()
    there.write_bytes(b"gone bad")  # the copy answers, and the file itself is not opened
    assert remote.store.read(block.name).num_rows == 9
    there.write_bytes(whole)
    remote.copies()[0].write_bytes(whole[:-3])
    assert remote.store.read(block.name).num_rows == 9
    assert remote.copies()[0].read_bytes() == whole
    remote.copies()[0].unlink()
    assert remote.store.read(block.name).num_rows == 9
    assert len(remote.copies()) == 1
    remote.copies()[0].unlink()
    there.write_bytes(whole[:-3])
    with pytest.raises(BlockCorruptError):
        remote.store.read(block.name)
    assert remote.store.write("e", rows(9)) == block  # a replay heals it
    assert there.read_bytes() == whole


def test_copies_stay_within_their_limit(tmp_path: Path) -> None:
    size = encode(rows(100)).size
    remote = Remote(tmp_path, cache_bytes=3 * size)
    blocks = [remote.store.write("e", rows(100, start)) for start in range(0, 1000, 100)]
    assert len(remote.copies()) == 3
    assert all(remote.store.read(block.name).num_rows == 100 for block in blocks)
    assert sum(path.stat().st_size for path in remote.copies()) <= 3 * size
    assert len(remote.store.names()) == 10
    tiny = Remote(tmp_path, cache_bytes=10)
    assert tiny.store.read(blocks[0].name).num_rows == 100


def test_a_place_that_cannot_be_written(remote: Remote) -> None:
    (remote.files / "blocks").write_bytes(b"a file where the folder should be")
    with pytest.raises(BlockWriteError):
        remote.store.write("e", rows(3))


def test_a_uri_says_which_file_system(tmp_path: Path) -> None:
    store = BlockStore((tmp_path / "b").as_uri())
    block = store.write("e", rows(4))
    assert (tmp_path / "b" / block.name).is_file()
    assert BlockStore((tmp_path / "b").as_uri()).read(block.name).num_rows == 4


def test_what_was_fetched_is_mapped(remote: Remote) -> None:
    block = remote.store.write("e", rows(9))
    for _ in range(2):  # first the copy that the write kept, then a fetched one
        table = remote.store.read(block.name)
        assert str(remote.copies()[0]) in Path("/proc/self/maps").read_text()
        assert table.num_rows == 9
        del table
        remote.copies()[0].unlink()


def data(size: int) -> pa.Buffer:
    return pa.py_buffer(b"x" * size)


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_the_limit_is_that_of_all_folders_together(tmp_path: Path) -> None:
    copies = Copies(tmp_path / "home", 250)
    for name in ("a/one", "b/two", "b/c/three"):
        copies.put(name, [data(100)])
        # A file's clock ticks too slowly to tell these writes apart.
        os.utime(tmp_path / "home" / name, (1_000, 1_000 + len(name)))
    assert kept(tmp_path) == ["three", "two"]
    assert copies.get("b/two") == data(100)  # used last, so it goes last
    copies.put("a/four", [data(100)])
    assert kept(tmp_path) == ["four", "two"]
    copies.put("a/large", [data(251)])
    assert kept(tmp_path) == ["four", "two"]


@pytest.mark.parametrize("spoil", ["open to others", "a link"])
def test_a_folder_that_others_may_have_made_is_not_used(tmp_path: Path, spoil: str) -> None:
    home = tmp_path / "home"
    Copies(home, 1000).put("a/one", [data(10)])
    if spoil == "a link":
        home.rename(tmp_path / "theirs")
        home.symlink_to(tmp_path / "theirs")
    else:
        home.chmod(0o777)
    copies = Copies(home, 1000)
    assert copies.get("a/one") is None
    copies.put("a/two", [data(10)])
    assert kept(tmp_path) == ["one"]
    full = Copies(home, 15)  # to make room, what lies there would have to go
    full.put("a/three", [data(10)])
    assert not full.drop("a/one")
    assert kept(tmp_path) == ["one"]


def test_a_place_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"a file")
    copies = Copies(tmp_path / "home", 1000)
    copies.put("a/one", [data(10)])
    assert copies.get("a/one") is None
    assert not copies.drop("a/one")
