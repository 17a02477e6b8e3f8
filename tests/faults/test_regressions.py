"""Schedules that found a bug, as small as they could be made."""

from __future__ import annotations

import pytest

from tests.faults.model.schedule import Fault, Schedule, plain_schedule
from tests.faults.planted import COMES_BACK, planted
from tests.faults.simulate import outcome_of

# A merged run that expiry thinned out was, to the byte, a block that had left before; its old entry among the retired
# removed it one batch after it left for good, while Spark could still come back to who named it. Merged level by level:
# runs that are merged once are seldom thinned out.
BACK_AGAIN = Schedule(
    4828,
    layout="2x2",
    partitions=1,
    rows=25,
    batch_rows=96,
    grows=True,
    workers=1,
    faults=(Fault("freeze", 4, "driver", "punctuations logged"),),
    merge_runs=4,
)


def test_a_block_that_comes_back_has_not_left() -> None:
    assert not outcome_of(BACK_AGAIN).violations
    with planted(COMES_BACK):
        assert any("BLOCK_MISSING" in text for text in outcome_of(BACK_AGAIN).violations)


@pytest.mark.parametrize("seed", [2792, 4381, 4553, 4828, 5284])
def test_schedules_that_found_a_flaw_of_the_model(seed: int) -> None:
    assert not outcome_of(plain_schedule(seed)).violations
