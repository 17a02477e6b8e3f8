"""A thousand schedules: whatever dies, stops or fills up, the tables are the contract's.

`make test` runs those of the newest seeds that show what was not met yet: a kind of fault, of ask, of row.
``pytest -m campaign`` runs a thousand of the first seeds, and `python -m tests.faults.simulate --seeds 100000` more of
the same, and shrinks what fails.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.model.case import case_of
from tests.faults.model.schedule import ASKS, KINDS, TURNS_WITH_ALL_FROM, Schedule, asking, random_schedule
from tests.faults.simulate import Outcome, minimal, outcome_of

SEEDS = 1_000
PART = 250
# Of the newest seeds, how many are looked at for schedules that show something that was not met yet.
LOOKED_AT = 400
# What a row of a result may be about.
ROWS = ("inner", "left", "right", "full", "semi", "anti", "semi of each", "anti of each", "nearest", "reduce")
# For each ask how many schedules of it alone the campaign runs.
MORE = {
    "self": 125,
    "idle": 80,
    "future": 80,
    "quarantine": 50,
    "settings": 60,
    "upkeep": 12,
    "ranges": 80,
    "parted": 80,
    "found": 80,
    "tables": 80,
    "unique": 80,
    "each": 80,
    "self parted": 80,
    "values": 80,
    "devices": 80,
    "unique devices": 80,
    "local": 80,
}


@pytest.mark.slow
def test_every_fault_ask_and_kind_of_row_is_exact() -> None:
    wanted = {*KINDS, *ASKS, *ROWS}
    for schedule in map(random_schedule, newest()):
        shows = {*schedule.asks, *(fault.kind for fault in schedule.faults)}
        if wanted & {*ROWS}:
            shows.add(row_of(schedule))
        if shows & wanted and (fired := checked(schedule).fired):
            wanted -= {name for name in shows if name in fired or name not in KINDS}
    assert not wanted


@pytest.mark.long
def test_every_ask_and_kind_of_row_is_exact_without_faults() -> None:
    wanted = {*ASKS, *ROWS, ""}
    for schedule in map(random_schedule, newest()):
        shows = {*schedule.asks, row_of(schedule)}
        if shows & wanted:
            assert not checked(replace(schedule, faults=())).fired
            wanted -= shows
    assert not wanted


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_every_further_schedule_is_exact(first: int) -> None:
    for seed in range(first, first + PART):
        checked(random_schedule(seed))


@pytest.mark.campaign
@pytest.mark.parametrize("ask", MORE)
def test_schedules_that_ask_for_more_are_exact(ask: str) -> None:
    for seed in range(MORE[ask]):
        checked(also(seed, ask))


def also(seed: int, ask: str) -> Schedule:
    schedule = random_schedule(seed)
    asks = (ask, "relaid", "cores")[: 1 + seed % 3] if ask == "ranges" else ask.split()
    return asking(schedule, (*schedule.asks, *asks))


def row_of(schedule: Schedule) -> str:
    """Return what the results of a schedule are about; "" where it has none."""
    case = case_of(replace(schedule, faults=()))
    if not case.results:
        return ""
    join = case.join
    rows = "reduce" if join.reduce else "nearest" if join.nearest is not None else join.how
    return f"{rows} of each" if join.row_kind.of_each else rows


def newest() -> range:
    return range(TURNS_WITH_ALL_FROM + 230, TURNS_WITH_ALL_FROM + 230 + LOOKED_AT)


def checked(schedule: Schedule) -> Outcome:
    """Return the outcome of a schedule, which may not fail."""
    outcome = outcome_of(schedule)
    if outcome.violations:
        least = minimal(schedule)
        texts = [f"seed {schedule.seed}: {outcome.violations[0]}", "at least:", str(least.schedule), *least.violations]
        pytest.fail("\n".join(texts))
    return outcome
