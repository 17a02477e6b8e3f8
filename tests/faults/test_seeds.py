"""A thousand schedules: whatever dies, stops or fills up, the tables are the contract's.

`make test` runs the first tenth, in which every kind of fault fires; ``pytest -m campaign`` the others.
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
FEW = 20
CHANGES = {"quarantine": 15, "settings": 20, "upkeep": 5}


@pytest.mark.slow
def test_every_schedule_is_exact() -> None:
    check(0)


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(CHUNK, SEEDS, CHUNK))
def test_every_further_schedule_is_exact(first: int) -> None:
    check(first)


@pytest.mark.slow
def test_every_self_join_is_exact() -> None:
    check(0, selves, 30)


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["idle", "future"])
def test_silence_and_futures_are_exact(ask: str) -> None:
    check(0, lambda seed: asking(random_schedule(seed), (*random_schedule(seed).asks, ask)), FEW)


@pytest.mark.slow
@pytest.mark.parametrize("ask", CHANGES)
def test_bad_files_other_settings_and_upkeep_are_exact(ask: str) -> None:
    check(0, lambda seed: asking(random_schedule(seed), (*random_schedule(seed).asks, ask)), CHANGES[ask])


def selves(seed: int) -> Schedule:
    schedule = random_schedule(seed)
    return asking(schedule, (*schedule.asks, "self"))


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
