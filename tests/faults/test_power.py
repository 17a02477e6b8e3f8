"""Power cuts: what was not forced to the device is lost, torn or reordered, and a restart goes on exactly.

`python -m tests.faults.simulate --power-cuts 1000` runs more of the same, and shrinks what fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import pytest

from streamjoin_ds.sink.durability import Durability
from tests.faults.model.schedule import Fault, Schedule, power_schedule
from tests.faults.model.world import World
from tests.faults.planting import Bug, planted
from tests.faults.planting import bug as _bug
from tests.faults.simulate import minimal, outcome_of
from tests.support.further import further

SEEDS = 12
BASE = Schedule(3, layout="1x1", partitions=1, source="csv", rows=12, batch_rows=8, retain=2, workers=1, power=True)
EVERY = 29  # every 29th step is tried; the campaign takes each


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)  # a recovery warns about what it sets aside
    yield
    logging.disable(logging.NOTSET)


def cut_at(step: int, dice: int, schedule: Schedule = BASE) -> Schedule:
    return replace(schedule, faults=(Fault("cut", 0, "any", "step", step, dice),))


def check(schedules: Iterator[Schedule]) -> int:
    """Assert that all runs are exact; return how many power cuts they had."""
    cuts = 0
    for schedule in schedules:
        outcome = outcome_of(schedule)
        cuts += outcome.fired["cut"]
        if outcome.violations:
            least = minimal(outcome.schedule)
            pytest.fail("\n".join([outcome.violations[0], "at least:", str(least.schedule), *least.violations[:3]]))
    return cuts


def steps() -> int:
    """Return the number of steps of the run that nothing disturbs."""
    from tests.faults.model.simulation import simulated

    with simulated(BASE) as world:
        assert not world.violations
        return world.ticks


@pytest.mark.slow
def test_seeds_with_power_cuts_are_exact() -> None:
    assert check(power_schedule(seed) for seed in range(SEEDS)) > SEEDS


@pytest.mark.campaign
def test_many_seeds_with_power_cuts_are_exact() -> None:
    assert check(power_schedule(seed) for seed in range(SEEDS, 600)) > 600


@pytest.mark.slow
def test_a_cut_at_steps_of_every_batch() -> None:
    last = steps()
    assert last > 200
    assert check(cut_at(step, step) for step in range(1, last, EVERY)) == len(range(1, last, EVERY))


@pytest.mark.campaign
@pytest.mark.parametrize("dice", range(4))
def test_a_cut_at_every_step(dice: int) -> None:
    last = steps()
    assert check(cut_at(step, step * 4 + dice) for step in range(1, last)) == last - 1


# A torn entry of the rejects was of a lost batch (1762037, 1900000), a late attempt wrote the newest state (1900185),
# and the power went between an entry of the offsets and its checksums (1760151). One was the model's: a cut brought the
# state of a former attempt back, of other settings (2030040).
LATELY = [1760151, 1762037, 1900000, 1900185, 2030040]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*LATELY, *further(36, 112, 119, 150, 157, 229, 275, 318, 336, 507, 746, 766, 787, 60188, 800029)]
)
def test_seeds_that_found_a_bug(seed: int) -> None:
    assert not outcome_of(power_schedule(seed)).violations


_COMMIT = "sink:Committer."
_DURABILITY = "sink:Durability."
_RECOVERY = "checkpoint:"
BUGS = (
    _bug("nothing is forced", (f"{_DURABILITY}flush", "_forced(files)", "pass")),
    _bug("names are not", (f"{_DURABILITY}flush", "_forced(folders)", "pass")),
    _bug(
        "Spark's files are not",
        (f"{_COMMIT}commit_before", "self.durability.checkpoint(", "(lambda anew: None)("),
    ),
    _bug(
        "the entry of the matches is not, before the punctuation",
        (f"{_COMMIT}_append", "self.durability.flush()", "name == 'punctuations' or self.durability.flush()"),
    ),
    _bug(
        "what cells write without Spark is not",
        ("stream:BatchCommit.__call__", "if self.forces:", "if False:"),
    ),
    _bug("a torn entry of a log stays", (f"{_RECOVERY}Recovery.carry_out", "tail.set_aside()", "pass")),
    _bug("torn states stay", (f"{_RECOVERY}_go_back", "*spark.torn_state(batch), ", "")),
    _bug(
        "logs are not, before files go",
        (f"{_DURABILITY}log", "self.opened(table_path)", "return"),
    ),
    _bug("states of lost batches stay", (f"{_RECOVERY}_go_back", ", *spark.later_state(found.last + 1)", "")),
)


# One of these, or the cut at one of these steps or near the first, finds each bug as long as steps stay.
FIND_ONE = (0, 1, 2, 18, 56, 2030020)
NEAR = (262, 514)
UPKEPT = 800027  # its upkeep forces logs at once


def after_logs(monkeypatch: pytest.MonkeyPatch) -> list[Schedule]:
    """Return cuts in the steps after a table's log was forced at once, in a run that looks after its tables."""
    schedule, worlds, steps = replace(power_schedule(UPKEPT), faults=()), list[World](), list[int]()
    run, log = World.run, Durability.log

    def running(world: World) -> None:
        worlds.append(world)
        run(world)

    def logged(durability: Durability, table_path: str) -> None:
        steps.append(worlds[0].ticks)
        log(durability, table_path)

    with monkeypatch.context() as patch:
        patch.setattr(World, "run", running)
        patch.setattr(Durability, "log", logged)
        assert not outcome_of(schedule).violations
    return [cut_at(step + later, 4 * step + later, schedule) for step in steps for later in range(1, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("bug", [*BUGS[::3], *further(*BUGS[1::3], *BUGS[2::3])], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = after_logs(monkeypatch)
    with planted(bug):
        steps = (*NEAR, *sorted(range(1, 2 * NEAR[0]), key=lambda step: abs(step - NEAR[0])))
        near = (cut_at(step, step * 4 + 50) for step in steps)
        first = chain(islice(near, len(NEAR)), map(power_schedule, FIND_ONE))
        seeds = first, logs, islice(near, 60), map(power_schedule, range(150))
        if any(outcome_of(schedule).violations for schedule in chain.from_iterable(seeds)):
            return
    pytest.fail(f"{bug.name}: not found by 60 cuts and 150 seeds")
