"""Schedules: a function of their seed, read back as they were printed, shrunk to the least that fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.model.schedule import POINTS, WRITES, Fault, Schedule, random_schedule, shrunk
from tests.faults.model.world import World, simulated
from tests.faults.planted import BUGS, planted
from tests.faults.simulate import minimal, outcome_of


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_is_a_function_of_its_seed_and_reads_back(seed: int) -> None:
    schedule = random_schedule(seed)
    assert schedule == random_schedule(seed)
    assert Schedule.from_text(schedule.to_text()) == schedule
    assert schedule.to_text() in str(schedule)


def trace(schedule: Schedule) -> tuple[object, ...]:
    def facts(world: World) -> tuple[object, ...]:
        return world.ticks, len(world.drivers), dict(world.seen), world.checkpoint, tuple(world.fired)

    with simulated(schedule) as world:
        return facts(world)


@pytest.mark.parametrize("seed", [3, 13, 18, 64])
def test_a_run_is_a_function_of_its_schedule(seed: int) -> None:
    # But for the state: it has the fingerprint, and that the folder of files.
    schedule = replace(random_schedule(seed), source="listed", blocks=None)
    assert trace(schedule) == trace(schedule)


def test_every_point_that_a_fault_can_name_is_one_that_processes_come_to() -> None:
    seen = {actor: set[str]() for actor in POINTS}
    for seed in range(60):
        with simulated(replace(random_schedule(seed), faults=())) as world:
            for actor, point in world.seen:
                seen[actor].add(point)
    for actor, points in POINTS.items():
        assert set(points) | set(WRITES[actor]) <= seen[actor], actor


def test_shrinking_keeps_what_is_needed_and_no_more() -> None:
    faults = tuple(Fault("crash", batch, "driver", "sink", 0, 0) for batch in range(5))
    big = Schedule(1, layout="2x2", rows=30, faults=faults)
    small = shrunk(big, lambda schedule: schedule.rows >= 6 and any(fault.batch >= 3 for fault in schedule.faults))
    assert (small.rows, small.layout, [fault.batch for fault in small.faults]) == (6, "1x1", [3])


def test_a_failure_is_shrunk_to_a_schedule_that_fails() -> None:
    bug = next(bug for bug in BUGS if bug.name == "no transaction check")
    with planted(bug):
        schedule = next(s for s in map(random_schedule, range(400)) if outcome_of(s).violations)
        least = minimal(schedule)
        assert least.violations
        assert len(least.schedule.faults) == 1
    assert not outcome_of(least.schedule).violations
