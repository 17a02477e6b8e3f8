"""A thousand schedules: whatever dies, stops or fills up, the tables are the contract's.

`make test` runs the first tenth, in which every kind of fault fires, and of the newest seeds some hundred with faults
and some hundred without, in which every kind of row is; ``pytest -m campaign`` the others.
`python -m tests.faults.simulate --seeds 100000` runs more of the same, and shrinks what fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.model.case import case_of
from tests.faults.model.schedule import ASKS, KINDS, TURNS_WITH_ALL_FROM, Schedule, asking, random_schedule
from tests.faults.simulate import minimal, outcome_of

SEEDS = 1_000
CHUNK = 100
REST = 225
# Of the newest seeds, those from here on, in which each kind of row is met often enough: how many `make test` runs with
# their faults, and how many before them without.
NEWEST, FAULTED, UNDISTURBED = TURNS_WITH_ALL_FROM + 230, 200, 120
# What a row of a result may be about; each is met with a fault, and with results, this often at least.
ROWS = ("inner", "left", "right", "full", "semi", "anti", "semi of each", "anti of each", "nearest", "reduce")
LEAST = 3
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
def test_every_schedule_is_exact() -> None:
    assert set(check(0)[1]) == set(KINDS)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(CHUNK, SEEDS, REST))
def test_every_further_schedule_is_exact(first: int) -> None:
    check(first, count=REST)


@pytest.mark.slow
def test_every_kind_of_row_is_exact_under_faults() -> None:
    met, fired = check(NEWEST, count=FAULTED)
    assert set(fired) == set(KINDS)
    asked = {name for schedule in met for name in schedule.asks}
    assert asked == set(ASKS)
    rows = Counter(row_of(schedule) for schedule, is_disturbed in met.items() if is_disturbed)
    assert {name for name, count in rows.items() if count >= LEAST and name} == set(ROWS), rows


@pytest.mark.slow
def test_every_kind_of_row_is_exact_without_faults() -> None:
    met, fired = check(NEWEST - UNDISTURBED, lambda seed: replace(random_schedule(seed), faults=()), UNDISTURBED)
    assert not fired
    assert {*map(row_of, met)} == {*ROWS, ""}


@pytest.mark.campaign
@pytest.mark.parametrize("ask", MORE)
def test_schedules_that_ask_for_more_are_exact(ask: str) -> None:
    check(0, lambda seed: also(seed, ask), MORE[ask])


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


def check(
    first: int, schedule_of: Callable[[int], Schedule] = random_schedule, count: int = CHUNK
) -> tuple[dict[Schedule, bool], Counter[str]]:
    """Run schedules, of which none may fail; return each with whether a fault fired, and all that fired."""
    met: dict[Schedule, bool] = {}
    fired: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = outcome_of(schedule_of(seed))
        fired += outcome.fired
        met[outcome.schedule] = bool(outcome.fired)
        if outcome.violations:
            least = minimal(outcome.schedule)
            texts = [f"seed {seed}: {outcome.violations[0]}", "at least:", str(least.schedule), *least.violations]
            pytest.fail("\n".join(texts))
    return met, fired
