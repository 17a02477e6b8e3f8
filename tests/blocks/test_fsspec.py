"""Blocks on foreign file systems: Arrow's own in memory, fsspec's, and one that refuses to move onto a file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from streamjoin_ds.blocks import BlockStore, RemoteFolder, encode
from streamjoin_ds.errors import BlockCorruptError, BlockMissingError, BlockWriteError


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"_ts": pa.array(range(start, start + count), pa.int64())})


class NoMoveOntoAFile(fs.FSSpecHandler):
    """A file system like HDFS: a move onto a file that is there fails."""

    def move(self, src: str, dest: str) -> None:
        if self.fs.exists(dest):
            msg = f"{dest} is there"
            raise OSError(msg)
        super().move(src, dest)


def _memory(handler: type[fs.FSSpecHandler]) -> fs.FileSystem:
    memory = pytest.importorskip("fsspec", reason="pip install 'streamjoin-ds[s3-test]'").filesystem("memory")
    memory.store.clear()
    return fs.PyFileSystem(handler(memory))


@pytest.fixture(params=["mock", "memory", "no-move"])
def files(request: pytest.FixtureRequest) -> Iterator[fs.FileSystem]:
    if request.param == "mock":
        yield fs._MockFileSystem()
    else:
        yield _memory(fs.FSSpecHandler if request.param == "memory" else NoMoveOntoAFile)


def store(files: fs.FileSystem, here: Path) -> BlockStore:
    """Return the store of one more machine, which has no copies yet."""
    return BlockStore("far://blocks", folder=RemoteFolder("blocks", files, cache=here / uuid.uuid4().hex))


def test_written_read_listed_removed(files: fs.FileSystem, tmp_path: Path) -> None:
    here, there = store(files, tmp_path), store(files, tmp_path)
    assert here.names() == []
    block = here.write("a/e", rows(9), {"stream": "e"})
    assert there.read(block.name).column("_ts").to_pylist() == list(range(9))
    assert there.names() == [block.name]
    assert [file.size_bytes for file in there.files()] == [block.size_bytes]
    assert there.size_bytes(block.name) == block.size_bytes
    assert there.write("a/e", rows(9), {"stream": "e"}) == block
    assert here.remove([block.name, block.name]) == 1
    assert there.names() == []
    with pytest.raises(BlockMissingError, match="is not there"):
        store(files, tmp_path).read(block.name)


def test_a_spoilt_file_is_named_and_healed_by_a_replay(files: fs.FileSystem, tmp_path: Path) -> None:
    block = store(files, tmp_path).write("e", rows(9))
    for spoilt in (b"", b"spoilt", encode(rows(9)).to_pybytes()[:-1] + b"x"):
        with files.open_output_stream(f"blocks/{block.name}") as file:
            file.write(spoilt)
        with pytest.raises(BlockCorruptError, match=block.name):
            store(files, tmp_path).read(block.name)
    with files.open_output_stream(f"blocks/{block.name}") as file:
        file.write(b"spoilt")
    assert store(files, tmp_path).write("e", rows(9)) == block
    assert store(files, tmp_path).read(block.name).num_rows == 9
    # No file that was written aside is left.
    assert [file.name for file in store(files, tmp_path).files()] == [block.name]


def test_another_task_was_first(tmp_path: Path) -> None:
    """Two tasks find no block, and both write it aside. The second one's move fails, but the block is there."""
    files = _memory(NoMoveOntoAFile)
    folder = RemoteFolder("blocks", files, cache=tmp_path)
    data = encode(rows(9))
    folder.write("e-0.arrow", [data])
    folder.write("e-0.arrow", [data])
    assert [file.name for file in folder.files()] == ["e-0.arrow"]


def test_a_move_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class NoMove(fs.FSSpecHandler):
        def move(self, src: str, dest: str) -> None:
            raise OSError

    with pytest.raises(BlockWriteError, match="the file system refuses"):
        store(_memory(NoMove), tmp_path).write("e", rows(9))
    assert store(_memory(fs.FSSpecHandler), tmp_path).files() == []


def test_a_uri_of_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="pip install 'streamjoin-ds[s3-test]'")
    uri = f"fsspec+memory://{uuid.uuid4().hex}/blocks"
    here = BlockStore(uri, folder=RemoteFolder(uri, cache=tmp_path))
    block = here.write("e", rows(9))
    assert here.names() == [block.name]
    assert BlockStore(uri, folder=RemoteFolder(uri, cache=tmp_path / "b")).read(block.name).num_rows == 9
