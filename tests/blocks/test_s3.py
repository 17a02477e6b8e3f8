"""Blocks in an S3 bucket: written whole or not at all, even if the line breaks; errors by name, without secrets."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from streamjoin_ds.blocks import BlockStore, RemoteFolder, encode
from streamjoin_ds.errors import ArgumentError, BlockCorruptError, BlockMissingError, BlockWriteError, StreamJoinError
from tests.support.s3 import BUCKET, S3, SECRET, needs_s3, served

pytestmark = [needs_s3, pytest.mark.slow]

LARGE_ROWS = 2_000_000  # 16 MB: an upload of two parts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with served(tmp_path_factory.mktemp("s3")) as s3:
        yield s3


class Place:
    """A folder in the bucket; each call of `store` gives the store of one more machine."""

    def __init__(self, s3: S3, name: str, here: Path) -> None:
        self.s3, self.uri, self._here, self._machines = s3, s3.uri(f"{name}/blocks"), here, 0
        self.path, self.files = f"{BUCKET}/{name}/blocks", s3.files()

    def store(self, cache_bytes: int = 1 << 30) -> BlockStore:
        self._machines += 1
        folder = RemoteFolder(self.uri, cache=self._here / str(self._machines), cache_bytes=cache_bytes)
        return BlockStore(self.uri, folder=folder)

    def impatient(self) -> BlockStore:
        """Return a store that does not try again when the line breaks."""
        return BlockStore(self.uri, folder=RemoteFolder(self.path, self.files, cache=self._here / "impatient"))

    def spoil(self, name: str, data: bytes) -> None:
        with self.files.open_output_stream(f"{self.path}/{name}") as file:
            file.write(data)

    def copies(self, machine: int = 1) -> list[Path]:
        return sorted(path for path in (self._here / str(machine)).rglob("*.arrow"))


@pytest.fixture
def place(server: S3, tmp_path: Path) -> Iterator[Place]:
    yield Place(server, tmp_path.name, tmp_path / "copies")
    server.line.left_bytes = None


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"_ts": pa.array(np.arange(start, start + count))})


def test_written_read_elsewhere_listed_removed(place: Place) -> None:
    here, there = place.store(), place.store()
    assert here.names() == there.names() == []
    block = here.write("a/e", rows(9), {"stream": "e"})
    assert there.read(block.name).column("_ts").to_pylist() == list(range(9))
    assert there.read(block.name).schema.metadata == {b"stream": b"e"}
    assert here.names() == there.names("a/") == [block.name]
    assert there.names("b/") == []
    assert there.size_bytes(block.name) == block.size_bytes
    assert there.remove([block.name]) == 1
    assert here.remove([block.name]) == 0
    assert here.names() == []
    assert here.size_bytes(block.name) is None
    with pytest.raises(BlockMissingError, match=f"{block.name} is not there"):
        here.read(block.name)


def test_a_small_block_is_one_upload_and_a_replay_none(place: Place) -> None:
    store = place.store()
    block = store.write("e", rows(100))
    store.write("e", rows(100))
    asked = [text for text in place.s3.requests() if block.name in text]
    uploads = [text for text in asked if not text.startswith(("HEAD", "GET"))]
    assert len(uploads) == 1
    assert uploads[0].startswith("PUT")


def test_an_upload_of_parts(place: Place) -> None:
    block = place.store().write("e", rows(LARGE_ROWS))
    assert any(block.name in text and "partNumber=2" in text for text in place.s3.requests())
    assert place.store().read(block.name).equals(rows(LARGE_ROWS))


@pytest.mark.parametrize("count", [LARGE_ROWS, 20_000], ids=["in-parts", "at-once"])
def test_an_upload_broken_off_leaves_nothing_and_is_made_again(place: Place, count: int) -> None:
    store = place.impatient()
    place.s3.line.left_bytes = 4 * count  # half of the block's bytes
    with pytest.raises(BlockWriteError, match="cannot be written: network connection"):
        store.write("e", rows(count))
    place.s3.line.left_bytes = None
    assert store.names() == []
    assert place.copies(1) == []
    block = store.write("e", rows(count))
    assert place.store().read(block.name).num_rows == count


def test_a_line_that_is_cut_and_comes_back(place: Place) -> None:
    store, other = place.impatient(), place.impatient()
    block = store.write("e", rows(50))
    place.s3.line.left_bytes = 0
    for attempt in (
        lambda: store.write("e", rows(60)),
        lambda: store.remove([block.name]),
        lambda: store.size_bytes(block.name),
        store.names,
        lambda: store.read(f"e-{'0' * 32}.arrow"),
    ):
        with pytest.raises(StreamJoinError, match=r"network connection.*credentials and rights") as caught:
            attempt()
        assert SECRET not in str(caught.value)
    place.s3.line.left_bytes = None
    assert other.read(block.name).num_rows == 50
    assert store.names() == [block.name]


def test_what_is_kept_here_is_read_without_a_line(place: Place) -> None:
    store = place.store()
    block = store.write("e", rows(50))
    place.s3.line.left_bytes = 0
    assert store.read(block.name).num_rows == 50


def test_a_read_that_breaks_off_is_no_block(place: Place) -> None:
    name = place.store().write("e", rows(LARGE_ROWS)).name
    whole = encode(rows(LARGE_ROWS)).to_pybytes()
    reader = place.store()
    for spoilt in (whole[:-1], b"", whole[:-1] + b"\0", b"x" * 100):
        place.spoil(name, spoilt)
        with pytest.raises(BlockCorruptError, match=name):
            reader.read(name)
    place.spoil(name, whole)
    assert reader.read(name).num_rows == LARGE_ROWS
    assert place.copies(2)[0].read_bytes() == whole


def test_a_spoilt_object_is_healed_by_a_replay(place: Place) -> None:
    store = place.store()
    block = store.write("e", rows(9))
    place.spoil(block.name, b"spoilt")
    assert store.write("e", rows(9)) == block
    assert place.store().read(block.name).num_rows == 9


def test_tasks_that_write_and_remove_the_same_block(place: Place) -> None:
    errors: list[BaseException] = []

    def work(store: BlockStore) -> None:
        try:
            for number in range(8):
                block = store.write("e", rows(1_000, number))
                assert store.read(block.name).equals(rows(1_000, number))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(place.store(),)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    store = place.store()
    names = store.names()
    assert len(names) == 8
    assert all(store.read(name).num_rows == 1_000 for name in names)
    counts: list[int] = []
    removers = [threading.Thread(target=lambda: counts.append(place.store().remove(names))) for _ in range(3)]
    for remover in removers:
        remover.start()
    for remover in removers:
        remover.join()
    assert len(counts) == 3  # a block that is gone already is no error
    assert store.names() == []


def test_many_are_removed_at_once(place: Place) -> None:
    store = place.store()
    names = [store.write("e", rows(10, number)).name for number in range(12)]
    assert store.remove([*names[1:], f"e-{'0' * 32}.arrow"]) == 11
    assert place.store().names() == names[:1]
    place.s3.line.left_bytes = 0
    with pytest.raises(BlockWriteError, match="cannot be removed: network connection"):
        place.impatient().remove([names[0]] * 5)


def test_an_old_block_that_is_written_again_is_new(place: Place, tmp_path: Path) -> None:
    """`vacuum` goes by age. A block that a dead task left, and a running one writes again, must not look old."""
    store = place.store()
    block = store.write("e", rows(9))
    first = next(file.changed_s for file in store.files())
    assert first is not None
    uploads = len([text for text in place.s3.requests() if text.startswith("PUT") and block.name in text])
    for later_s, expected in ((60.0, uploads), (3600.0, uploads + 1)):
        folder = RemoteFolder(place.uri, cache=tmp_path / "c", now_s=lambda: first + later_s)  # noqa: B023
        BlockStore(place.uri, folder=folder).write("e", rows(9))
        assert len([t for t in place.s3.requests() if t.startswith("PUT") and block.name in t]) == expected


def test_credentials_that_are_refused(tmp_path: Path) -> None:
    with served(tmp_path, checks_credentials=True) as s3:
        folder = RemoteFolder(s3.uri("blocks"), cache=tmp_path / "c")
        store = BlockStore(s3.uri("blocks"), folder=folder)
        name = f"e-{'0' * 32}.arrow"
        for attempt in (
            lambda: store.write("e", rows(3)),
            lambda: store.read(name),
            lambda: store.size_bytes(name),
            lambda: store.remove([name]),
            store.names,
        ):
            with pytest.raises(StreamJoinError, match=r"invalid access key id|access denied") as caught:
                attempt()
            assert "check this machine's connection, credentials and rights" in caught.value.hint
            assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_bucket_that_is_not_there(server: S3, tmp_path: Path) -> None:
    uri = server.uri("blocks").replace(f"@{BUCKET}/", "@nowhere/")
    store = BlockStore(uri, folder=RemoteFolder(uri, cache=tmp_path / "c"))
    with pytest.raises(BlockWriteError, match="no such bucket"):
        store.write("e", rows(3))


@pytest.mark.parametrize("uri", ["s4://k:sEcReT@b/p", "s3://k:sEcReT@b u/p", "s3://k:sEcReT@b/p?sEcReT=1", "s3://"])
def test_a_uri_that_is_none_is_refused_without_being_shown(uri: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        BlockStore(uri)
    assert caught.value.name == "blocks"
    assert "sEcReT" not in "".join(traceback.format_exception(caught.value))


def test_a_slash_at_the_end_is_the_same_folder(place: Place) -> None:
    block = place.store().write("a/e", rows(9))
    store = BlockStore(place.uri, folder=RemoteFolder(place.uri.replace("/blocks?", "/blocks/?")))
    assert store.names() == [block.name]


def test_a_connection_is_made_once_in_a_process(place: Place) -> None:
    assert RemoteFolder(place.uri)._files is RemoteFolder(place.uri)._files
    assert isinstance(RemoteFolder(place.uri)._files, fs.S3FileSystem)
