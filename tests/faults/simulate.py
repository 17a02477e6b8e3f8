"""Run schedules by the thousand, and say which failed, shrunk to the least that still fails.

python -m tests.faults.simulate --seeds 100000 --workers 2
python -m tests.faults.simulate --power-cuts 1000
python -m tests.faults.simulate --replay '{"seed": 17, ...}'     (as printed of a failure)
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

from tests.faults.model.invariants import violations
from tests.faults.model.schedule import (
    ASKS,
    CRASH_POINTS,
    KINDS,
    Fault,
    Schedule,
    plain_schedule,
    power_schedule,
    random_schedule,
    shrunk,
)
from tests.faults.model.simulation import simulated

__all__ = ["Outcome", "exhaustive", "minimal", "outcome_of"]

_BATCHES = 3
_COLLECTED_SEEDS = 16  # seeds between two collections of what circles keep


@dataclass(frozen=True)
class Outcome:
    """What came of one schedule."""

    schedule: Schedule
    violations: tuple[str, ...]
    fired: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    batches: int = 0


def outcome_of(schedule: Schedule, delta: str = "log") -> Outcome:
    """Run a schedule; an exception of the model itself is a violation too."""
    try:
        with simulated(schedule, delta) as world:
            fired = Counter(fault.kind for fault in world.fired)
            return Outcome(schedule, tuple(violations(world)), fired, len(world.drivers), len(world.committed))
    except Exception:
        return Outcome(schedule, (traceback.format_exc(limit=-3),))


def minimal(schedule: Schedule, delta: str = "log") -> Outcome:
    """Return the outcome of the smallest schedule that still fails."""
    return outcome_of(shrunk(schedule, lambda smaller: bool(outcome_of(smaller, delta).violations)), delta)


def exhaustive(
    kinds: tuple[str, ...] = ("crash",), layout: str = "1x2", seed: int = 7, asks: tuple[str, ...] = ()
) -> Iterator[Schedule]:
    """Yield schedules of three batches with faults of these kinds at C1 to C8: none, one place, each pair of places.

    A place that is in a pair twice is a fault, and the same one again during the recovery from it.
    """
    # Generated streams have no bound on how far records are ahead, no bad files, and no partitions.
    source = "csv" if {"future", "quarantine", "parted", "devices"} & {*asks} else "listed"
    plain = Schedule(seed, layout=layout, source=source, rows=18, batch_rows=12, asks=asks)
    if "three" in asks:
        plain = replace(plain, rows=12)
    places = [
        Fault(kind, batch + (name == "C8"), *CRASH_POINTS[name], delay=30 if kind == "freeze" else 0)
        for kind in kinds
        for batch in range(_BATCHES)
        for name in CRASH_POINTS
    ]
    yield plain
    for place in places:
        yield replace(plain, faults=(place,))
    for pair in combinations_with_replacement(places, 2):
        yield replace(plain, faults=pair)


def _collect_rarely() -> None:
    """Look for circles between seeds only: a seed makes many objects and few circles."""
    gc.disable()


def _of_seed(seed: int) -> Outcome:
    return _outcome(random_schedule(seed))


def _of_plain_seed(seed: int) -> Outcome:
    return _outcome(plain_schedule(seed))


def _of_power_seed(seed: int) -> Outcome:
    return _outcome(power_schedule(seed))


def _outcome(schedule: Schedule) -> Outcome:
    logging.disable(logging.WARNING)  # warnings name what is set aside, and who is idle
    if schedule.seed % _COLLECTED_SEEDS == 0:
        gc.collect()
    return outcome_of(schedule)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many (2000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--plain", action="store_true", help="two streams, bands, time windows: seeds of 2026-11-20")
    parser.add_argument("--workers", type=int, default=2, help="processes (2); 1: this one")
    parser.add_argument("--replay", help="a schedule as it was printed: run it alone")
    parser.add_argument("--power-cuts", type=int, default=0, help="seeds with power cuts, until so many have fired")
    given = parser.parse_args(arguments)
    logging.getLogger("streamjoin_ds").setLevel(logging.ERROR)
    if given.replay:
        outcome = outcome_of(Schedule.from_text(given.replay))
        print(outcome.schedule, *outcome.violations, sep="\n")
        return bool(outcome.violations)
    began = time.monotonic()
    fired: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    drivers = batches = 0
    failures: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        seeds = range(given.first, given.first + given.seeds)
        run = _of_plain_seed if given.plain else _of_seed
        if given.power_cuts:
            run, seeds = _of_power_seed, range(given.first, given.first + 10 * given.power_cuts)
        outcomes: Iterator[Outcome] = map(run, seeds)
        if given.workers > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(given.workers, _collect_rarely))
            outcomes = pool.imap_unordered(run, seeds, chunksize=16)
        for number, outcome in enumerate(outcomes, 1):
            fired += outcome.fired
            asked.update(outcome.schedule.asks)
            drivers += outcome.drivers
            batches += outcome.batches
            if outcome.violations:
                failures.append(outcome)
                print(f"seed {outcome.schedule.seed}: {outcome.violations[0]}", flush=True)
            if given.power_cuts and fired["cut"] >= given.power_cuts:
                given.seeds = number
                break
            if number % 1000 == 0:
                rate = number / (time.monotonic() - began)
                print(f"{number} seeds, {len(failures)} failed, {rate:.1f} seeds/s", flush=True)
    took = time.monotonic() - began
    print(
        f"{given.seeds} seeds in {took:.0f} s ({given.seeds / took:.1f} seeds/s), {drivers} drivers, {batches} batches"
    )
    for kind, meaning in (KINDS | {"cut": "the power goes"}).items():
        print(f"  {fired[kind]:7d} {kind:7s} {meaning}")
    for name, meaning in ASKS.items():
        print(f"  {asked[name]:7d} {name:8s} {meaning}")
    print(f"{len(failures)} failed")
    for outcome in failures[:5]:
        least = minimal(outcome.schedule)
        print(f"\nseed {outcome.schedule.seed}, at least:\n{least.schedule}", *least.violations[:5], sep="\n  ")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
