"""A recovery that a second power cut ends: the next start does the rest, and cuts the same batches."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.checkpoint.recovery import planned_recovery, recovered
from streamjoin_ds.sink.tables import TableSet
from tests.checkpoint.conftest import CELLS, PowerCutError, Steps
from tests.faults.model.power import Device


def torn(made: Path, root: Path) -> None:
    """Copy the checkpoint, and tear the two newest versions of its state: two batches are done again."""
    shutil.copytree(made, root)
    state = root / "checkpoint" / "state" / "0" / "1"
    for path in sorted(state.glob("*.snapshot"), key=lambda path: int(path.stem))[-2:]:
        path.write_bytes(path.read_bytes()[:20])


def recover(root: Path) -> list[Any]:
    return recovered(root / "checkpoint", TableSet(str(root / "matches")), CELLS)


@pytest.mark.parametrize("dice", range(8))
def test_a_power_cut_at_any_step_of_a_recovery(made: Path, tmp_path: Path, steps: Steps, dice: int) -> None:
    root, attic = tmp_path / "disk", tmp_path / "attic"
    shutil.rmtree(root)
    torn(made, root)
    assert planned_recovery(root / "checkpoint", TableSet(str(root / "matches")), CELLS).kept
    expected = recover(root)
    assert len(expected) > 1
    last, cut_at = 1, 1
    while cut_at <= last:
        steps.cut_at = 0
        shutil.rmtree(root)
        torn(made, root)
        shutil.rmtree(attic)
        steps.device = Device(root, attic)
        steps.done, steps.cut_at = 0, cut_at
        try:
            recover(root)
        except PowerCutError:
            last = cut_at + 1
            steps.cut_at = 0
            steps.device.cut(random.Random(f"{dice} {cut_at}"))
        steps.cut_at = 0
        assert recover(root) == expected, f"a cut at step {cut_at}"
        cut_at += 1
    assert last > 5
