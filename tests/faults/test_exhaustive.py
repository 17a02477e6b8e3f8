"""Faults at every place of three batches, C1 to C8: none, one and two of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.model.schedule import ASKS, CRASH_POINTS
from tests.faults.simulate import exhaustive, outcome_of
from tests.support.further import further

# Schedules: one without faults, one for each place, one for each pair. A place twice is a fault during recovery.
PLACES = 3 * len(CRASH_POINTS)
RUNS = 1 + PLACES + PLACES * (PLACES + 1) // 2


def run_all(
    kinds: tuple[str, ...], layout: str, *, most_faults: int, asks: tuple[str, ...] = ()
) -> tuple[int, Counter[int]]:
    runs, fired = 0, Counter[int]()
    for schedule in exhaustive(kinds, layout, asks=asks):
        if len(schedule.faults) > most_faults:
            continue
        outcome = outcome_of(schedule)
        assert not outcome.violations, f"{schedule}\n{outcome.violations[0]}"
        # Silence may take a batch of its own, in which time goes on. Bad files add records.
        assert outcome.batches in ((3, 4) if {"idle", "quarantine"} & {*asks} else (3,))
        runs += 1
        fired[sum(outcome.fired.values())] += 1
    return runs, fired


@pytest.mark.campaign
def test_crashes_at_every_pair_of_places() -> None:
    runs, fired = run_all(("crash",), "1x2", most_faults=2)
    assert runs == RUNS == 325
    assert fired[2] > 290  # in few pairs one fault hides the other: C8 of a batch comes before C1 of the next


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["crash", "kill", *further("freeze", "back", "stall")],
)
@pytest.mark.parametrize("layout", [pytest.param("1x1", marks=pytest.mark.campaign), "2x2"])
def test_one_fault_of_each_kind_at_every_place(kind: str, layout: str) -> None:
    runs, fired = run_all((kind,), layout, most_faults=1)
    assert runs == 1 + PLACES
    # A task can stop at C3 only; the other places are the driver's.
    assert fired[1] >= (3 if kind == "stall" else PLACES - 1)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("ask", ASKS)
def test_a_crash_at_every_place_of_every_kind_of_join(ask: str) -> None:
    runs, fired = run_all(("crash",), "1x2", most_faults=1, asks=(ask,))
    assert runs == 1 + PLACES
    assert fired[1] == PLACES


@pytest.mark.campaign
@pytest.mark.parametrize("layout", ["1x1", "1x2", "2x2"])
def test_crashes_and_zombie_drivers_at_every_pair_of_places(layout: str) -> None:
    runs, fired = run_all(("crash", "freeze"), layout, most_faults=2)
    assert runs == 1 + 2 * PLACES + 2 * PLACES * (2 * PLACES + 1) // 2
    assert fired[2] > 1000
