"""Two thousand schedules: whatever dies, stops or fills up, the tables are the contract's.

`python -m tests.faults.simulate --seeds 100000` runs more of the same, and shrinks what fails.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.model.schedule import KINDS, random_schedule
from tests.faults.simulate import minimal, outcome_of

SEEDS = 2_000
_CHUNK = 250


@pytest.mark.parametrize("first", range(0, SEEDS, _CHUNK))
def test_every_schedule_is_exact(first: int) -> None:
    fired: Counter[str] = Counter()
    for seed in range(first, first + _CHUNK):
        outcome = outcome_of(random_schedule(seed))
        fired += outcome.fired
        if outcome.violations:
            least = minimal(outcome.schedule)
            texts = [f"seed {seed}: {outcome.violations[0]}", "at least:", str(least.schedule), *least.violations]
            pytest.fail("\n".join(texts))
    assert set(fired) == set(KINDS)
