"""Windows in blocks, batch by batch: each block that a manifest names is there, and goes once no restart needs it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamjoin_ds.blocks import BlockStore, Cache
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.errors import BlockMissingError, FingerprintMismatchError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind
from tests.support.microbatch import MicroBatches


def sensors(extent: str = "3s", band: float = 5.0) -> BoundJoin:
    streams = [
        Stream(name, Generator("sensor", {"rows": 400, "rate": 40, "seed": seed}), time="ts", delay="1s")
        for name, seed in (("l", 1), ("r", 2))
    ]
    join = Join(streams, f"abs(l.temperature - r.temperature) <= {band}", extent)
    return bind(join, {stream.name: infer_schema(stream) for stream in streams})


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_store, "worker_cache", Cache(1 << 30))
    tuning = Tuning(tail=TailTuning(most_arrived_rows=0))  # so that small batches become runs too
    monkeypatch.setattr(CellWindows, "tuning", tuning)


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["1x1", "1x2", "2x2"])
@pytest.mark.parametrize("retain_batches", [0, 1, 3])
def test_a_block_goes_when_no_manifest_can_come_back_that_names_it(
    tmp_path: Path, layout: str, retain_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = MicroBatches(
        sensors(), tmp_path / "c", Layout.parse(layout, 2), max_rows_per_batch=60, retain_batches=retain_batches
    )
    store = BlockStore(batches.plan.state_root)
    batches.reader.prepareForTriggerAvailableNow()
    manifests: list[dict[int, bytes]] = []
    removed = 0
    while batches.step():
        manifests.append(dict(batches.states))
        # A restart at batch n - retain_batches begins with the state that the batch before it left.
        reachable = manifests[-(retain_batches + 2) :]
        monkeypatch.setattr(run_store, "worker_cache", Cache(1 << 30))
        named = {
            name
            for states in reachable
            for cell, blob in states.items()
            for name in CellWindows(batches.plan, cell, blob).engine.blocks
        }
        assert set(store.names()) == named
        removed += len(manifests) > retain_batches + 4
    assert removed
    with pytest.raises(BlockMissingError):
        CellWindows(batches.plan, 0, manifests[0][0])


def test_a_manifest_stays_small_and_the_rest_is_written_once(tmp_path: Path) -> None:
    batches = MicroBatches(sensors("1h"), tmp_path / "c", Layout.parse("1x1", 2), max_rows_per_batch=50)
    batches.reader.prepareForTriggerAvailableNow()
    written: dict[str, int] = {}
    while batches.step():
        for path in Path(batches.plan.state_root).iterdir():
            moment = path.stat().st_mtime_ns
            assert written.setdefault(path.name, moment) == moment
    assert len(batches.states[0]) < 20_000


@pytest.mark.slow
def test_windows_without_a_folder_stay_inline(tmp_path: Path) -> None:
    inline, blocks = (
        MicroBatches(sensors(), tmp_path / name, Layout.parse("1x2", 2), max_rows_per_batch=80, blocks=kind)
        for name, kind in (("inline", False), ("blocks", True))
    )
    assert sorted(map(str, inline.run().to_pylist())) == sorted(map(str, blocks.run().to_pylist()))
    assert not (tmp_path / "inline" / "blocks").exists()
    assert list((tmp_path / "blocks" / "blocks").iterdir())


def test_large_windows_without_a_folder_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamjoin_ds.cell.cell_windows._LARGE_INLINE_BYTES", 5_000)
    MicroBatches(sensors(), tmp_path / "c", Layout.parse("1x1", 2), blocks=False).run()
    assert "MB and pass through Spark's state store" in caplog.text
    assert "blocks=FOLDER" in caplog.text


def test_the_state_of_another_join_is_refused(tmp_path: Path) -> None:
    batches = MicroBatches(sensors(), tmp_path / "c", Layout.parse("1x1", 2))
    batches.run()
    other = MicroBatches(sensors(band=6.0), tmp_path / "d", Layout.parse("1x1", 2))
    with pytest.raises(FingerprintMismatchError):
        CellWindows(other.plan, 0, batches.states[0])


def deleted_maps(folder: Path) -> list[str]:
    """Return this process's mappings of deleted files below a folder."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(folder) in line and line.endswith("(deleted)")]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped")
def test_a_worker_lets_go_of_what_retired_though_the_cells_moved_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = sensors("2s")
    batches = MicroBatches(
        bound, tmp_path / "c", Layout.parse("2x2", 2), max_rows_per_batch=40, retain_batches=1, block_bytes=0
    )
    batches.reader.prepareForTriggerAvailableNow()
    # Two workers, each with a cache of its own mapped runs. Cells move between them at random, as Spark's tasks do.
    workers = [Cache[SealedRun](1 << 30), Cache[SealedRun](1 << 30)]
    chance = random.Random(1)
    real = run_store.RunStore.begin

    def begin(self: run_store.RunStore, cells: int) -> None:
        run_store.worker_cache = workers[chance.randrange(2)]
        real(self, cells)

    monkeypatch.setattr(run_store.RunStore, "begin", begin)
    number, most = 0, 0
    while batches.step():
        number += 1
        most = max(most, len(deleted_maps(tmp_path)))
    assert number >= 15
    for worker in workers:
        monkeypatch.setattr(run_store, "worker_cache", worker)
        monkeypatch.setattr(run_store.RunStore, "begin", real)
        named = CellWindows(batches.plan, 0, batches.states[0]).engine.blocks
        groups = {name[:7] for name in named}
        assert {key.name for key in worker.names() if key.name[:7] in groups} == named
    assert deleted_maps(tmp_path) == []
    assert most < 40
