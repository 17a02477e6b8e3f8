"""The simulator finds each of these bugs, planted alone, within a few seeds."""

from __future__ import annotations

import pytest

from tests.faults.model.schedule import ASKS, asking, plain_schedule
from tests.faults.planted import BUGS
from tests.faults.planting import Bug, planted
from tests.faults.simulate import outcome_of
from tests.faults.test_seeds import CHUNK

# Seeds that `test_seeds` passes without a bug in every run.
MOST_SEEDS = 100


def test_there_are_enough() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
    assert {name for bug in BUGS for name in bug.asks} == set(ASKS)
    assert MOST_SEEDS <= CHUNK


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with planted(bug):
        for seed in range(MOST_SEEDS):
            if outcome_of(asking(plain_schedule(seed), bug.asks)).violations:
                return
    pytest.fail(f"{MOST_SEEDS} seeds did not notice: {bug.name}")


def test_planting_leaves_nothing_behind() -> None:
    for bug in BUGS:
        with planted(bug):
            pass
    assert not outcome_of(plain_schedule(0)).violations


def test_a_bug_that_cannot_be_planted_is_told_of() -> None:
    edit = BUGS[0].edits[0]
    with (
        pytest.raises(AssertionError, match="does not hold once"),
        planted(Bug("x", (type(edit)(edit.where, "@", ""),))),
    ):
        pass
