"""A recovery: each reason to refuse it on its own, and the same cuts after a power cut has ended one."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.checkpoint import recovery
from streamjoin_ds.checkpoint.recovery import planned_recovery, recovered
from streamjoin_ds.errors import RecoveryError
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.tail import LogTail
from tests.checkpoint.conftest import CELLS, PowerCutError, Steps
from tests.faults.model.power import Device
from tests.sink.conftest import Join, ledger_rows
from tests.support.further import further


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, *, refusal: str) -> recovery.Recovery:
    """Return the plan for a checkpoint whose second offsets are torn, and tables that hold that batch."""
    (folder / "metadata").write_text(json.dumps({"id": "0" * 36}))
    for name, texts in (("offsets", ("v1\n{}\n{}", "v1\n{")), ("commits", ("v1\n{}",))):
        (folder / name).mkdir()
        for number, text in enumerate(texts):
            (folder / name / str(number)).write_text(text)

    def tail(path: str) -> LogTail:
        torn = ("00000000000000000009.json",) if refusal else ()
        return LogTail(path, 8, 1, torn, refusal=refusal)

    monkeypatch.setattr(recovery, "tail_of", tail)
    return recovery.planned_recovery(folder, TableSet(str(folder / "matches")), 0)


def test_offsets_that_are_torn_stop_a_restart_and_are_for_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, monkeypatch, refusal="")
    assert found.torn_offsets == "the offsets of batch 1 are torn, and the tables hold batches up to 1"
    assert not found.refusal
    with pytest.raises(RecoveryError, match="offsets of batch 1 are torn"):
        found.carry_out()


def test_a_change_that_no_join_made_is_refused_though_offsets_are_torn_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, monkeypatch, refusal="after that comes a change that no join made")
    assert "a change that no join made" in found.refusal
    assert found.torn_offsets
    with pytest.raises(RecoveryError, match="no join made"):
        found.carry_out()


@pytest.mark.parametrize(("late", "rejected", "batch"), [(0, 0, 2), (0, 1, 1), (1, 0, 2)])
def test_a_done_batch_lacks_its_rejects_only_where_the_ledger_counts_some(
    tmp_path: Path, late: int, rejected: int, batch: int
) -> None:
    """A torn entry of the rejects may be of a batch that is lost, and then there may be no state to go back to."""
    join = Join(f"{tmp_path}/matches")
    committer = join.committer()
    join.commit(committer, 0)
    ledger = ledger_rows(1, late=late, rejected=rejected, stored=10 - late - rejected)
    join.commit(committer, 1, join.write(1), ledger=ledger)
    (tmp_path / "matches_rejects" / "_delta_log" / f"{2:020d}.json").write_text('{"commitInfo":')
    (tmp_path / "metadata").write_text(json.dumps({"id": "0" * 36}))
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / str(number)).write_text("v1\n{}\n{}")
    found = recovery.planned_recovery(tmp_path, join.tables, 0)
    assert (found.batch, found.refusal) == (batch, "")
    assert [tail.torn for tail in found.tails] == [(f"{2:020d}.json",)]


def torn(made: Path, root: Path) -> None:
    """Copy the checkpoint, and tear the two newest versions of its state: two batches are done again."""
    shutil.copytree(made, root)
    state = root / "checkpoint" / "state" / "0" / "1"
    for path in sorted(state.glob("*.snapshot"), key=lambda path: int(path.stem))[-2:]:
        path.write_bytes(path.read_bytes()[:20])


def recover(root: Path) -> list[Any]:
    return recovered(root / "checkpoint", TableSet(str(root / "matches")), CELLS)


@pytest.mark.parametrize("dice", [*range(3), *further(*range(3, 8))])
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
