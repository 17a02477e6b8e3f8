"""Runs in blocks: the same join, every block written once, and no block believed that the state does not confirm."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyarrow import fs

from streamjoin_ds.blocks import BlockStore, Cache, RemoteFolder
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import BlockCorruptError, BlockMissingError
from streamjoin_ds.plan import Execution
from tests.engine.streams import band_join, filled, tuples
from tests.support.examples import examples

STEMS = ("00-0000", "01-0000")
# Fewer rows go to the tail, which is never a block.
ROWS = 1500
SIZES = (0, 1, 40, 120, 900, 1100)


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_store, "worker_cache", Cache(1 << 30))


def stored(folder: Path, owner: str = "", least_bytes: int = 0) -> RunStore:
    return RunStore(BlockStore(str(folder)), STEMS, owner, least_bytes)


def held(join: WindowJoin) -> list[list[tuple[object, ...]]]:
    return [[(run.sort_layout, run.zone, run.tuples.to_pylist()) for run in window.runs] for window in join.windows]


@pytest.mark.parametrize("least_bytes", [0, 40_000, 1 << 40])
def test_a_join_restored_from_blocks_is_the_same_join(tmp_path: Path, least_bytes: int) -> None:
    bound, store = band_join(), stored(tmp_path, least_bytes=least_bytes)
    join = filled(bound, rows=ROWS)
    blob = join.save(store)
    assert bool(join.blocks) == (least_bytes < 1 << 40)
    assert set(store.blocks.names()) == join.blocks
    restored = WindowJoin.restored(bound, blob, store)
    assert restored.blocks == join.blocks
    assert restored.save(store) == blob
    batch = {s: tuples(bound, s, 200, start_us=4_000_000, seq=5000) for s in (0, 1)}
    assert [c.to_pylist() for c in restored.push(batch, 4_000_000)] == [
        c.to_pylist() for c in join.push(batch, 4_000_000)
    ]
    assert restored.save(store) == join.save(store)
    assert held(restored) == held(join)


def test_a_manifest_is_small_whatever_the_window_holds(tmp_path: Path) -> None:
    bound = band_join("1h")
    small, large = (filled(bound, rows=rows).save(stored(tmp_path)) for rows in (ROWS, 30_000))
    assert abs(len(large) - len(small)) < 200
    assert len(large) < 4096


def test_a_batch_writes_what_is_new(tmp_path: Path) -> None:
    bound, store = band_join("1h"), stored(tmp_path)
    join = filled(bound, pushes=3, rows=10_000)
    join.save(store)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    list(join.push({0: tuples(bound, 0, ROWS, start_us=3_000_000, seq=99_000)}, 0))
    join.save(store)
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    new = set(after) - set(before)
    assert len(new) == 1
    assert {name: after[name] for name in before} == before
    assert sum((tmp_path / name).stat().st_size for name in new) < 80_000


def test_cells_of_a_group_share_a_block(tmp_path: Path) -> None:
    bound = band_join()
    first, second = filled(bound, rows=ROWS), filled(bound, rows=ROWS)
    assert first.save(stored(tmp_path)) == second.save(stored(tmp_path))
    assert len(list(tmp_path.iterdir())) == len(first.blocks)


def test_a_run_is_mapped_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, store = band_join(), stored(tmp_path)
    blob = filled(bound, rows=ROWS).save(store)
    reads = []
    real = BlockStore.read
    monkeypatch.setattr(BlockStore, "read", lambda self, name: reads.append(name) or real(self, name))
    first, second = (WindowJoin.restored(bound, blob, store) for _ in range(2))
    assert sorted(reads) == sorted(first.blocks)
    assert [w.runs for w in first.windows] == [w.runs for w in second.windows]
    WindowJoin.restored(bound, blob, stored(tmp_path, owner="other kernels"))
    assert sorted(reads) == sorted([*first.blocks, *first.blocks])


def test_columns_lie_where_simd_wants_them(tmp_path: Path) -> None:
    bound, store = band_join(), stored(tmp_path)
    join = WindowJoin.restored(bound, filled(bound, rows=ROWS).save(store), store)
    columns = [column for window in join.windows for run in window.runs for column in run.tuples.columns]
    addresses = [column.buffers()[1].address for column in columns if pa.types.is_primitive(column.type)]
    assert len(addresses) >= 6, "both streams' _ts, _seq and a compared column"
    assert {address % 64 for address in addresses} == {0}


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "swapped"])
def test_damage_is_named_before_anything_is_joined(tmp_path: Path, damage: str) -> None:
    bound, store = band_join(), stored(tmp_path)
    join = filled(bound, rows=ROWS)
    blob = join.save(store)
    name, other = sorted(join.blocks)[:2]
    path = tmp_path / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 1
        damaged = {"truncated": data[:-9], "flipped": bytes(flipped), "swapped": (tmp_path / other).read_bytes()}
        path.write_bytes(damaged[damage])
    with pytest.raises(BlockMissingError if damage == "missing" else BlockCorruptError) as caught:
        WindowJoin.restored(bound, blob, store)
    assert caught.value.name == name
    assert caught.value.hint


def test_a_whole_block_of_another_run_is_refused(tmp_path: Path) -> None:
    # Its checksum is right, and its name is in the state. Only the facts tell that it is not the run that was saved.
    bound, store = band_join(), stored(tmp_path)
    join = filled(bound, rows=ROWS)
    blob = join.save(store)
    first, second = sorted(name for name in join.blocks if name.startswith("00"))[:2]
    forged = blob.replace(first.encode(), second.encode())
    head = struct.Struct("<8s16s")
    magic, _ = head.unpack_from(forged)
    rest = forged[head.size :]
    with pytest.raises(BlockCorruptError, match="another run"):
        WindowJoin.restored(bound, head.pack(magic, xxhash.xxh3_128_digest(rest)) + rest, store)


def test_blocks_without_a_folder(tmp_path: Path) -> None:
    bound = band_join()
    blob = filled(bound, rows=ROWS).save(stored(tmp_path))
    with pytest.raises(BlockMissingError, match="no folder"):
        WindowJoin.restored(bound, blob)


@examples(30, HealthCheck.function_scoped_fixture)
@given(
    st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)), min_size=1, max_size=12),
    st.sampled_from([0, 40_000, 60_000]),
    st.booleans(),
)
def test_saved_and_restored_between_any_pushes(
    tmp_path_factory: pytest.TempPathFactory, pushes: list[tuple[int, int]], least_bytes: int, warm: bool
) -> None:
    """A join restored from blocks after every push gives the results and the runs of one that is never saved."""
    bound, store = band_join("3s"), stored(tmp_path_factory.mktemp("blocks"), least_bytes=least_bytes)
    kept, moved = WindowJoin(bound), WindowJoin(bound)
    seq = 0
    for number, rows in enumerate(pushes):
        batch = {s: tuples(bound, s, count, start_us=number * 1_000_000, seq=seq) for s, count in enumerate(rows)}
        seq += max(SIZES)
        watermark_us = number * 1_000_000
        expected = [chunk.to_pylist() for chunk in kept.push(batch, watermark_us)]
        assert [chunk.to_pylist() for chunk in moved.push(batch, watermark_us)] == expected
        blob = moved.save(store)
        if not warm:
            run_store.worker_cache = Cache(1 << 30)
        moved = WindowJoin.restored(bound, blob, store)
    assert held(moved) == held(kept)


class _Meeting(BlockStore):
    """A store far away whose first two reads wait for each other."""

    def __init__(self, folder: Path, machine: str) -> None:
        there = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        super().__init__("far://blocks", folder=RemoteFolder("blocks", there, cache=folder / machine))
        self.meeting, self.readers = threading.Barrier(2), count()

    def read(self, name: str) -> pa.Table:
        if next(self.readers) < 2:
            self.meeting.wait(timeout=60)
        return super().read(name)


def test_blocks_that_are_far_away_are_fetched_side_by_side(tmp_path: Path) -> None:
    bound = band_join("1h")
    join = filled(bound, pushes=6, rows=4 * ROWS, merge_runs=100)
    writing = RunStore(_Meeting(tmp_path, "one"), STEMS, "")
    blob = join.save(writing)
    assert len(join.blocks) > 4
    reading = RunStore(_Meeting(tmp_path, "two"), STEMS, "")
    restored = WindowJoin.restored(bound, blob, reading, execution=Execution(merge_runs=100))
    assert held(restored) == held(join)
    assert restored.save(reading) == blob
    gone = max(join.blocks)
    writing.blocks.remove([gone])
    with pytest.raises(BlockMissingError, match=gone):
        WindowJoin.restored(bound, blob, RunStore(_Meeting(tmp_path, "three"), STEMS, "other"))


_AT_THE_LIMIT = """
import mmap, sys
from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.errors import MapLimitError
from streamjoin_ds.plan import Execution
from tests.engine.streams import band_join
folder, blob = sys.argv[1], open(sys.argv[2], "rb").read()
bound = band_join("1h")
store = RunStore(BlockStore(folder), ("00-0000", "01-0000"), "")
join = WindowJoin.restored(bound, blob, store, execution=Execution(merge_runs=100))
print(len(run_store.worker_cache) == len(join.blocks) > 8)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
file = open(sys.argv[2], "rb")
maps = []
while True:
    # Turn about readable or not: areas alike are one to the kernel.
    at = libc.mmap(None, 4096, len(maps) % 2, mmap.MAP_PRIVATE, file.fileno(), 0)
    if at == ctypes.c_void_p(-1).value:
        break
    maps.append(at)
for at in maps[:4]:  # The process maps for itself, too (the allocator's arenas): 4 is less than the blocks need.
    libc.munmap(at, 4096)
other = RunStore(BlockStore(folder), ("00-0000", "01-0000"), "another")
del join
again = WindowJoin.restored(bound, blob, other, execution=Execution(merge_runs=100))  # what the process had kept goes
print(len(again.blocks) - 4 <= len(run_store.worker_cache) <= len(again.blocks))
while libc.mmap(None, 4096, len(maps) % 2, mmap.MAP_PRIVATE, file.fileno(), 0) != ctypes.c_void_p(-1).value:
    maps.append(None)
third = RunStore(BlockStore(folder), ("00-0000", "01-0000"), "third")
try:
    WindowJoin.restored(bound, blob, third, execution=Execution(merge_runs=100))
except MapLimitError as error:
    print(error.code, error.name in again.blocks, "vm.max_map_count" in str(error))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux")
def test_a_process_that_may_map_no_more_lets_go_of_what_it_kept_and_then_says_so(tmp_path: Path) -> None:
    bound = band_join("1h")
    join = filled(bound, pushes=6, rows=ROWS, merge_runs=100)
    (tmp_path / "state").write_bytes(join.save(stored(tmp_path / "blocks")))
    command = [sys.executable, "-c", _AT_THE_LIMIT, str(tmp_path / "blocks"), str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["True", "True", "MAP_LIMIT True True"]
