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
# The first seed that finds a bug, of those that many seeds miss: it is tried first. Where it no longer finds the bug,
# the others are tried.
FINDERS = {
    "the commit through a fresh snapshot": 16,
    "a replay skips the drain": 8,
    "the list of the retired is forgotten": 13,
    "the state stays as it was where a cell has no tuples": 27,
    "the state in the order of arrival": 30,
    "a replay finds late files anew": 9,
    "blocks of another exchange stay": 36,
    "guests are never late": 27,
    "a new cell does not know the time": 16,
    "what other cells still name is removed with what an old cell has left": 99,
    "compaction does not check that replaced files are there": 9,
    "a partner in the home cell is the only one that counts": 17,
    "a tuple without a partner in its home cell is alone": 15,
    "the home cell says which tuples have partners that are summed up": 5,
    "each of two streams over one folder lists it for itself": 19,
}


def test_there_are_enough() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
    assert {name for bug in BUGS for name in bug.asks} == set(ASKS)
    assert MOST_SEEDS <= CHUNK
    assert set(FINDERS) <= {bug.name for bug in BUGS}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with planted(bug):
        for seed in dict.fromkeys((FINDERS.get(bug.name, 0), *range(MOST_SEEDS))):
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
