"""A thousand schedules: whatever dies, stops or fills up, the tables are the contract's.

`make test` runs the first tenth, in which every kind of fault fires, and some for each thing that a schedule may ask
for; ``pytest -m campaign`` the others.
`python -m tests.faults.simulate --seeds 100000` runs more of the same, and shrinks what fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.faults.model.schedule import KINDS, Schedule, asking, random_schedule
from tests.faults.simulate import minimal, outcome_of

SEEDS = 1_000
CHUNK = 100
REST = 225
# For each ask, how many schedules `make test` runs, and how many there are with the campaign's: self-joins, silence
# and futures, bad files, other settings, upkeep, ranges of a band attribute, streams of many partitions, conditions
# that find, tables beside streams, tuples that come twice, partners in each of two streams, and self-joins over
# partitions.
MORE = {
    "self": (9, 125),
    "idle": (9, 80),
    "future": (9, 80),
    "quarantine": (9, 50),
    "settings": (9, 60),
    "upkeep": (3, 12),
    "ranges": (9, 80),
    "parted": (9, 80),
    "found": (9, 80),
    "tables": (9, 80),
    "unique": (9, 80),
    "each": (9, 80),
    "self parted": (9, 80),
}


@pytest.mark.slow
def test_every_schedule_is_exact() -> None:
    check(0)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(CHUNK, SEEDS, REST))
def test_every_further_schedule_is_exact(first: int) -> None:
    check(first, count=REST)


@pytest.mark.slow
@pytest.mark.parametrize("ask", MORE)
def test_schedules_that_ask_for_more_are_exact(ask: str) -> None:
    check(0, lambda seed: also(seed, ask), MORE[ask][0])


@pytest.mark.campaign
@pytest.mark.parametrize("ask", MORE)
def test_further_schedules_that_ask_for_more_are_exact(ask: str) -> None:
    begin, end = MORE[ask]
    check(begin, lambda seed: also(seed, ask), end - begin)


def also(seed: int, ask: str) -> Schedule:
    schedule = random_schedule(seed)
    asks = (ask, "relaid", "cores")[: 1 + seed % 3] if ask == "ranges" else ask.split()
    return asking(schedule, (*schedule.asks, *asks))


def check(first: int, schedule_of: Callable[[int], Schedule] = random_schedule, count: int = CHUNK) -> None:
    fired: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = outcome_of(schedule_of(seed))
        fired += outcome.fired
        if outcome.violations:
            least = minimal(outcome.schedule)
            texts = [f"seed {seed}: {outcome.violations[0]}", "at least:", str(least.schedule), *least.violations]
            pytest.fail("\n".join(texts))
    assert set(fired) == set(KINDS) or count < CHUNK
