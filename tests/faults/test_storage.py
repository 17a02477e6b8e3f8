"""No room, and damaged blocks: a named error, nothing in the tables, and exact results once it is put right."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from streamjoin_ds.errors import BlockWriteError, ForeignCheckpointError, StreamJoinError, TableWriteError
from streamjoin_ds.sink.snapshot import LogSnapshot
from tests.faults.model.invariants import violations
from tests.faults.model.patches import installed
from tests.faults.model.process import Killed
from tests.faults.model.schedule import WRITES, Fault, Schedule
from tests.faults.model.simulation import simulated
from tests.faults.model.world import World

BASE = Schedule(11, layout="1x2", rows=24, batch_rows=12, source="csv", retain=3)
BATCH = 2
DAMAGE = ("missing", "truncated", "empty", "flipped", "foreign")


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """The errors with which drivers ended."""
    seen: list[BaseException] = []
    judged = World._judged

    def noted(self: World, process: object, error: BaseException | None) -> BaseException | None:
        if error is not None:
            seen.append(error)
        return judged(self, process, error)  # type: ignore[arg-type]

    monkeypatch.setattr(World, "_judged", noted)
    return seen


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize(("actor", "point"), [(actor, point) for actor in WRITES for point in WRITES[actor]])
@pytest.mark.parametrize("delta", ["log", "delta-rs"])
def test_a_full_disk_stops_by_name_and_goes_on_when_there_is_room(
    actor: str, point: str, delta: str, errors: list[BaseException]
) -> None:
    fault = Fault("full", 0 if point.startswith("late") else BATCH, actor, point)
    with simulated(replace(BASE, faults=(fault,)), delta) as world:
        assert not violations(world), violations(world)
        assert world.fired == [fault]
        assert len(world.drivers) == 3  # the first one stopped, the second went on, the third found all done
    (error,) = errors
    assert isinstance(error, BlockWriteError if actor == "read" or point.startswith("block") else TableWriteError)
    assert "space" in str(error)


class Interrupted(World):
    """A run whose driver dies at one place, so that a test can do something to its files."""

    def table_versions(self) -> dict[str, int]:
        return {
            path.name: LogSnapshot(str(path)).version for path in self.folder.iterdir() if path.name[:7] == "matches"
        }

    def attempted(self) -> BaseException | None:
        """Run the next driver; return the error with which it ends."""
        before = len(self.violations)
        self.drive()
        del self.violations[before:]  # here an error is what is wanted
        fiber = self.drivers[-1].fiber
        assert fiber is not None
        return fiber.error


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[Interrupted]:
    """A run that is killed when all state of a batch is kept, and nothing of the batch is in the tables."""
    (tmp_path / "run").mkdir()
    # The second fault never fires; with a fault of this kind every driver cuts its batches alike.
    faults = (Fault("crash", BATCH, "driver", "sink"), Fault("back", 99, "driver", "plan"))
    schedule = replace(BASE, batch_rows=8, workers=1, faults=faults)
    world = Interrupted(schedule, tmp_path / "run")
    with installed(world):
        assert isinstance(world.attempted(), Killed)
        world.workers.clear()  # a new process has nothing in its cache
        world.workers += [type(world.drivers[0].cache)(1 << 26)]
        yield world


def live_blocks(world: World) -> list[Path]:
    """Return the blocks that the batch needs that is to be done again."""
    from streamjoin_ds.cell.cell_windows import CellWindows

    names = set()
    for (_, version), state in world.checkpoint.states.items():
        if version == BATCH:
            for cell, blob in state.items():
                names |= CellWindows(world.plan, cell, blob).named_blocks
    return [world.folder / "blocks" / name for name in sorted(names)]


def damaged(path: Path, damage: str, other: Path) -> None:
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.touch()
    elif damage == "flipped":
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    elif damage == "foreign":
        shutil.copy(other, path)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_block_is_named_and_nothing_is_written(interrupted: Interrupted, damage: str, which: int) -> None:
    world = interrupted
    blocks = live_blocks(world)
    assert len(blocks) >= 2
    path, before = blocks[which], world.table_versions()
    good = path.read_bytes()
    damaged(path, damage, blocks[which - 1])
    for _ in range(2):  # the same at every start
        error = world.attempted()
        assert isinstance(error, StreamJoinError)
        assert error.code == ("BLOCK_MISSING" if damage == "missing" else "BLOCK_CORRUPT")
        assert error.name == path.name
        assert world.table_versions() == before
    path.write_bytes(good)
    world.settle()
    assert not violations(world), violations(world)


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_exchange_block_stops_the_batch_and_is_written_again(interrupted: Interrupted, damage: str) -> None:
    world = interrupted
    before = world.table_versions()
    point = World.point

    def struck(self: World, name: str, *, writes: bool = False) -> None:
        if name == "begin" and self.current is not None and self.current.actor == "cell" and not done:
            paths = sorted(path for path in (world.folder / "exchange").iterdir() if "tuples" in path.name)
            damaged(paths[-1], damage, paths[0])
            done.append(paths[-1].name)
        point(self, name, writes=writes)

    done: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "point", struck)
        error = world.attempted()
    assert isinstance(error, StreamJoinError)
    assert error.name == done[0]
    assert world.table_versions() == before
    world.settle()
    assert not violations(world), violations(world)


def test_a_checkpoint_taken_back_whose_batches_are_cut_anew_is_refused(interrupted: Interrupted) -> None:
    """The run is done. A copy of two batches before comes back, and the next batch is planned with more records."""
    world = interrupted
    world.settle()
    assert not violations(world)
    versions, log = world.table_versions(), world.checkpoint
    assert log.taken_back(2) == 2
    first = max(log.offsets)
    log.states = {key: state for key, state in log.states.items() if key[1] <= first}
    spare = deepcopy(log)
    cut = world.schedule
    world.schedule = replace(cut, batch_rows=cut.batch_rows + 5)
    error = world.attempted()
    assert isinstance(error, ForeignCheckpointError)
    assert f"batch {first + 1} holds other records" in error.message
    assert world.table_versions() == versions
    # When they are cut as they were, the same batches are done again, and nothing is written.
    world.checkpoint, world.schedule = spare, cut
    assert world.attempted() is None
    assert world.table_versions() == versions
    # The blocks of the refused attempt stay as orphans, for `streamjoin vacuum`.
    assert not [text for text in violations(world) if not text.endswith("leaks")]


def test_what_a_killed_writer_leaves_is_no_block(interrupted: Interrupted) -> None:
    world = interrupted
    aside = world.folder / "blocks" / ".00-half.arrow.1-x"
    aside.write_bytes(b"half")
    world.settle()
    assert os.path.exists(aside)  # `streamjoin vacuum` removes it
    assert not [text for text in violations(world) if "half" in text]
    newest = max(world.checkpoint.offsets)
    assert set(json.loads(world.checkpoint.offsets[newest])) == {"version", "streams", "layout", "blocks"}
