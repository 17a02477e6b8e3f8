"""The folder of blocks: a block is written aside first, a replay keeps it, no name leads outside, damage is named."""

from __future__ import annotations

import multiprocessing
import os
import stat
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.blocks import BlockRef, BlockStore, checksum, encode
from streamjoin_ds.errors import ArgumentError, BlockCorruptError, BlockMissingError


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"_ts": pa.array(range(start, start + count), pa.int64()), "s": [f"row {n}" for n in range(count)]})


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(str(tmp_path / "checkpoint" / "blocks"))


def test_a_block_is_named_by_its_bytes(store: BlockStore) -> None:
    reference = store.write("batch-7/e-0", rows(10), {"stream": "e"})
    data = encode(rows(10), {"stream": "e"})
    assert reference == BlockRef(f"batch-7/e-0-{checksum(data)}.arrow", 10, data.size)
    assert (Path(store.root) / reference.name).read_bytes() == data.to_pybytes()
    assert store.read(reference.name).equals(rows(10))


def test_the_same_block_is_the_same_file(store: BlockStore) -> None:
    first = store.write("e", rows(10))
    file = Path(store.root) / first.name
    written = file.stat().st_ino
    os.utime(file, (1, 1))
    assert store.write("e", rows(10)) == first
    assert file.stat().st_ino == written  # the file is not written again,
    assert file.stat().st_mtime > 1  # but gets a new time, so that it does not look like one that was left behind
    assert store.names() == [first.name]
    assert store.write("e", rows(10, 1)).name != first.name


def test_no_rows(store: BlockStore) -> None:
    reference = store.write("e", rows(0))
    assert reference.rows == 0
    assert store.read(reference.name).schema == rows(0).schema


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "longer", "other"])
def test_damage_is_named_and_a_replay_heals_it(store: BlockStore, damage: str) -> None:
    reference = store.write("e", rows(10))
    path = Path(store.root) / reference.name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    damaged = {"truncate": data[:-7], "empty": b"", "longer": data + b"x", "other": encode(rows(11)).to_pybytes()}
    path.write_bytes(damaged.get(damage, data))
    with pytest.raises(BlockCorruptError) as caught:
        store.read(reference.name)
    assert caught.value.name == reference.name
    assert store.write("e", rows(10)) == reference
    assert store.read(reference.name).equals(rows(10))


def test_every_byte_of_a_file(store: BlockStore) -> None:
    reference = store.write("e", rows(2))
    path = Path(store.root) / reference.name
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), 5):
        data[place] ^= 0x10
        path.write_bytes(data)
        with pytest.raises(BlockCorruptError):
            store.read(reference.name)
        data[place] ^= 0x10


def test_missing(store: BlockStore) -> None:
    with pytest.raises(BlockMissingError) as caught:
        store.read("e-0123.arrow")
    assert caught.value.name == "e-0123.arrow"
    reference = store.write("e", rows(1))
    store.remove([reference.name])
    with pytest.raises(BlockMissingError):
        store.read(reference.name)


def test_a_folder_in_a_blocks_place(store: BlockStore) -> None:
    (Path(store.root) / "e-0.arrow").mkdir(parents=True)
    with pytest.raises(BlockMissingError, match="cannot be opened"):
        store.read("e-0.arrow")


@pytest.mark.parametrize("name", ["notes.arrow", "e-0123.arrow", "e.arrow", "e-.arrow"])
def test_a_foreign_file(store: BlockStore, name: str) -> None:
    reference = store.write("e", rows(3))
    (Path(store.root) / name).write_bytes((Path(store.root) / reference.name).read_bytes())
    with pytest.raises(BlockCorruptError) as caught:
        store.read(name)
    assert caught.value.name == name


def test_a_foreign_file_with_the_right_checksum(store: BlockStore) -> None:
    Path(store.root).mkdir(parents=True)
    name = f"e-{checksum(b'hello')}.arrow"
    (Path(store.root) / name).write_bytes(b"hello")
    with pytest.raises(BlockCorruptError, match="not written by this package"):
        store.read(name)


ESCAPES = [
    "",
    ".",
    "..",
    "../e",
    "a/../../e",
    "a/..",
    "a/../e",
    "/etc/passwd",
    "//etc/passwd",
    "/",
    "./../e",
    "a/./../../e",
    "e\0",
    "..\0",
    ".e",
    "a/.b/e",
    "link/e",
    "link/deep/e",
    "../blocks-not/e",
]


@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_outside_the_folder(store: BlockStore, name: str) -> None:
    outside = Path(store.root).parent / "blocks-not"
    outside.mkdir(parents=True)
    Path(store.root).mkdir()
    (Path(store.root) / "link").symlink_to(outside)
    (outside / "e").write_text("precious")
    actions = [lambda: store.read(name), lambda: store.remove([name])]
    if name:  # an empty name is not tried: with a checksum behind it, it is a valid name
        actions.append(lambda: store.write(name, rows(1)))
    for action in actions:
        with pytest.raises(ArgumentError, match="leads out of") as caught:
            action()
        assert caught.value.hint
    assert sorted(path.name for path in outside.iterdir()) == ["e"]
    assert store.names() == []


def test_a_linked_file_is_not_read(store: BlockStore) -> None:
    Path(store.root).mkdir(parents=True)
    secret = Path(store.root).parent / "secret"
    secret.write_bytes(encode(rows(1)).to_pybytes())
    name = f"e-{checksum(secret.read_bytes())}.arrow"
    (Path(store.root) / name).symlink_to(secret)
    with pytest.raises(ArgumentError, match="leads out of the folder"):
        store.read(name)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    store = BlockStore(str(tmp_path / "here"))
    assert store.read(store.write("a/e", rows(2)).name).num_rows == 2


def test_only_the_owner_may_look_in(store: BlockStore) -> None:
    before = os.umask(0)
    try:
        store.write("batch-1/cell-2/e", rows(1))
    finally:
        os.umask(before)
    for folder in (Path(store.root), Path(store.root) / "batch-1", Path(store.root) / "batch-1" / "cell-2"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_left_aside_is_no_block(store: BlockStore) -> None:
    reference = store.write("batch-1/e", rows(1))
    (Path(store.root) / "batch-1" / f".{Path(reference.name).name}.123-abc").write_bytes(b"half")
    (Path(store.root) / ".hidden").mkdir()
    (Path(store.root) / ".hidden" / "e-1.arrow").write_bytes(b"")
    (Path(store.root) / "notes.txt").write_text("x")
    assert store.names() == [reference.name]
    assert store.names("batch-1/") == [reference.name]
    assert store.names("batch-2") == []


def test_names_are_sorted_and_a_folder_that_is_not_there_has_none(store: BlockStore) -> None:
    assert store.names() == []
    written = [store.write(f"b{n}/e", rows(1, n)).name for n in (3, 1, 2)]
    assert store.names() == sorted(written)


def test_a_failed_write_leaves_nothing(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        store.write("e", rows(1))
    assert list(Path(store.root).iterdir()) == []


def test_remove_counts_what_went(store: BlockStore) -> None:
    names = [store.write("e", rows(1, n)).name for n in range(3)]
    assert store.remove(names[:2]) == 2
    assert store.remove(names) == 1
    assert store.remove([]) == 0


def test_a_mapped_block_outlives_its_file(store: BlockStore) -> None:
    reference = store.write("e", rows(1000))
    table = store.read(reference.name)
    store.remove([reference.name])
    assert table.equals(rows(1000))


def test_threads_write_and_read_the_same_blocks(store: BlockStore) -> None:
    problems: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        try:
            barrier.wait()
            for n in range(12):
                assert store.read(store.write(f"batch-{n}/e", rows(50, n)).name).equals(rows(50, n))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(store.names()) == 12
    assert sum(1 for path in Path(store.root).rglob("*") if path.is_file()) == 12


def write_all(root: str) -> list[str]:
    store = BlockStore(root)
    return [store.write(f"batch-{n}/e", rows(50, n)).name for n in range(12)]


@pytest.mark.slow
def test_processes_write_the_same_blocks(store: BlockStore) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(write_all, [str(Path(store.root))] * 2))
    assert found[0] == found[1] == write_all(str(Path(store.root)))
    assert store.names() == sorted(found[0])
    for n, name in enumerate(found[0]):
        assert store.read(name).equals(rows(50, n))


def test_what_is_found_again_is_not_removed(store: BlockStore) -> None:
    """A cleaner lists a block. Before it removes the block, a batch that is done again finds and names the block."""
    name = store.write("a", rows(5)).name
    path = Path(store.root) / name
    os.utime(path, (1, 1))
    listed = store.files()
    assert store.write("a", rows(5)).name == name
    assert store.discard(listed) == 0
    assert store.read(name).equals(rows(5))
    os.utime(path, (1, 1))
    assert store.discard(store.files()) == 1
    assert store.files() == []


def test_what_is_removed_while_it_is_found_is_written_again(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write finds the block whole, but the block is gone before the write can renew its time."""
    name = store.write("a", rows(5)).name
    os.utime(Path(store.root) / name, (1, 1))
    listed, holds = store.files(), BlockStore._holds

    def held_and_removed(self: BlockStore, *arguments: Any) -> bool:
        found = holds(self, *arguments)
        assert store.discard(listed) == 1
        return found

    monkeypatch.setattr(BlockStore, "_holds", held_and_removed)
    assert store.write("a", rows(5)).name == name
    assert store.read(name).equals(rows(5))
