"""A checkpoint that is moved to another number of cells: a power cut at any step loses nothing, and a start goes on."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.move import moved
from streamjoin_ds.checkpoint.recovery import recovered
from streamjoin_ds.checkpoint.spark_files import SparkFiles
from streamjoin_ds.sink.tables import TableSet
from tests.checkpoint.conftest import PowerCutError, Steps
from tests.faults.model.power import Device


def restarted(root: Path, cells: int) -> CheckpointIdentity:
    """Do to the checkpoint what a start with so many cells does before its query."""
    checkpoint = root / "checkpoint"
    identity = CheckpointIdentity.load(checkpoint)
    assert identity is not None
    recovered(identity.spark_folder(checkpoint), TableSet(str(root / "matches")), identity.partitions)
    return identity if identity.partitions == cells else moved(checkpoint, identity, cells)


def facts_of(root: Path, identity: CheckpointIdentity) -> object:
    """Return all that a query would go on from."""
    spark = SparkFiles.of(identity.spark_folder(root / "checkpoint"), identity.partitions)
    last = max(spark.offsets)
    batch = last + 1 if last in spark.commits else last
    assert spark.has_state(batch)
    newest = {number: text for number, text in spark.offsets.items() if number >= last - 1}
    return spark.query_id, batch, newest, spark.state(batch), identity.join_id, identity.partitions


@pytest.fixture(scope="module")
def chain(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, object]:
    """What there is after each move of the chain from 4 cells to 6 and then to 2."""
    root = tmp_path_factory.mktemp("chain") / "disk"
    shutil.copytree(made, root)
    return {cells: facts_of(root, restarted(root, cells)) for cells in (6, 2)}


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("dice", [0, 1, 12])
@pytest.mark.parametrize("cells", [6, 2])
def test_a_power_cut_at_any_step_of_a_move(
    cells: int, dice: int, made: Path, chain: dict[int, object], tmp_path: Path, steps: Steps
) -> None:
    """The second move is one out of a generation's folder, which lies elsewhere than the first checkpoint's files."""
    root, attic = tmp_path / "disk", tmp_path / "attic"
    last, cut_at = 1, 1
    while cut_at <= last:
        steps.cut_at = 0
        shutil.rmtree(root)
        shutil.copytree(made, root)
        if cells == 2:
            restarted(root, 6)
        shutil.rmtree(attic)
        steps.device = Device(root, attic)
        steps.done, steps.cut_at = 0, cut_at
        try:
            restarted(root, cells)
        except PowerCutError:
            last = cut_at + 1
            steps.cut_at = 0
            steps.device.cut(random.Random(f"{dice} {cut_at}"))
        steps.cut_at = 0
        assert facts_of(root, restarted(root, cells)) == chain[cells], f"a cut at step {cut_at}"
        cut_at += 1
    assert last > 20


def test_a_move_keeps_what_the_query_goes_on_from(chain: dict[int, object]) -> None:
    (query_id, batch, _, six, join_id, _), (again, also, _, two, same, _) = chain[6], chain[2]
    assert (query_id, batch, join_id) == (again, also, same)
    assert batch > 0
    assert len(six) == 6
    assert len(two) >= 2
