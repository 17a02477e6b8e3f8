"""The settings of blocks are a batch's, not a start's: whoever does a batch again leaves the same states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.plan import USUAL_SIZING, BlockSizing, Execution, Layout, Plan
from streamjoin_ds.source.batch_plan import BatchPlan
from tests.cell.test_cell_windows import sensors
from tests.support.microbatch import MicroBatches


@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_a_batch_done_again_by_a_start_with_other_settings_leaves_the_same_states(
    tmp_path: Path, exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CellWindows, "tuning", Tuning(tail=TailTuning(most_arrived_rows=0)))
    first, other = Execution(merge_runs=2), Execution()
    run = MicroBatches(
        sensors(), tmp_path, Layout.parse("1x2", 2), exchange, 60, first, block_bytes=200, retain_batches=1
    )
    run.reader.prepareForTriggerAvailableNow()
    for _ in range(4):
        assert run.step()
    before, states, start = run.offset, dict(run.states), dict(run.states)
    assert run.step()
    expected, end = dict(run.states), run.offset
    assert BatchPlan.from_offset(end, run.bound.names).sizing == BlockSizing(200, 2)
    # Another start does the batch again: other settings, the logged offsets.
    run.execution, run.block_bytes = other, 1500
    run._connect()
    run.states, run.batch_id = states, run.batch_id - 1
    run.cells(run.exchanged(before, end))
    assert run.states == expected
    # Only then do its own settings count.
    run.offset, run.batch_id = end, run.batch_id + 1
    assert run.step()
    assert BatchPlan.from_offset(run.offset, run.bound.names).sizing == BlockSizing(1500)
    assert start != expected


def test_the_usual_settings_are_not_told(tmp_path: Path) -> None:
    run = MicroBatches(sensors(), tmp_path, Layout.parse("1x2", 2), max_rows_per_batch=60, block_bytes=64 << 10)
    run.reader.prepareForTriggerAvailableNow()
    assert run.step()
    assert run.plan.sizing == USUAL_SIZING
    assert "blocks" not in run.offset
    assert "merge_runs" not in json.dumps(run.offset)


def test_windows_that_no_cell_shares_keep_their_start_s_settings(tmp_path: Path) -> None:
    run = MicroBatches(sensors(), tmp_path, Layout.parse("1x2", 2), execution=Execution(merge_runs=3), blocks=False)
    assert run.plan.sizing == USUAL_SIZING
    assert run.plan.sized(BlockSizing(0, 9)) is run.plan


def test_a_plan_takes_a_batch_s_settings(tmp_path: Path) -> None:
    run = MicroBatches(sensors(), tmp_path, Layout.parse("1x2", 2), execution=Execution(merge_runs=3))
    sized = run.plan.sized(USUAL_SIZING)
    assert (sized.block_bytes, sized.execution.merge_runs) == (64 << 10, None)
    assert Plan.from_json(sized.to_json()) == sized
    assert run.plan.sized(run.plan.sizing) is run.plan
