"""Schedules: each is a function of its seed, reads back as it was printed, and is shrunk to the least that fails."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.model.case import case_of
from tests.faults.model.input_files import Folders
from tests.faults.model.invariants import _Tables, violations
from tests.faults.model.local_clock import Turn
from tests.faults.model.schedule import (
    ALIKE_FROM,
    ASKS,
    BOTH_FROM,
    CHANGES_FROM,
    CLOCKS_FROM,
    CORES_FROM,
    DEALT_FROM,
    EACH_FROM,
    ENVELOPES_FROM,
    FOUND_FROM,
    HOWS_FROM,
    LAYOUTS_FROM,
    LOCALS_FROM,
    NEAREST_FROM,
    PARTS_FROM,
    POINTS,
    RANGES_FROM,
    REDUCES_FROM,
    SELVES_FROM,
    SERVED_FROM,
    SPLIT_FROM,
    TABLES_FROM,
    TURNS_FROM,
    UNIQUES_FROM,
    UPKEEP_POINTS,
    VALUES_FROM,
    WRITES,
    Fault,
    Schedule,
    asking,
    plain_schedule,
    random_schedule,
    shrunk,
)
from tests.faults.model.simulation import simulated
from tests.faults.model.world import World
from tests.faults.planted import BUGS
from tests.faults.planting import planted
from tests.faults.simulate import minimal, outcome_of
from tests.support.local_times import meanings

HOUR_US = 3_600_000_000


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_is_a_function_of_its_seed_and_reads_back(seed: int) -> None:
    schedule = random_schedule(seed)
    assert schedule == random_schedule(seed)
    assert Schedule.from_text(schedule.to_text()) == schedule
    assert schedule.to_text() in str(schedule)


# Seed 13 as it was printed before schedules had asks; the test also knows some results of its join.
OF_OLD = (
    '{"seed":13,"layout":"1x2","partitions":1,"exchange":"packed","source":"csv","rows":24,"batch_rows":10,"blocks":0,'
    '"retain":1,"workers":1,"grows":true,"tailed":3,"faults":['
    '{"kind":"freeze","batch":0,"actor":"driver","point":"metrics rename","nth":0,"delay":60},'
    '{"kind":"back","batch":2,"actor":"cell","point":"state put","nth":3,"delay":2},'
    '{"kind":"freeze","batch":3,"actor":"cell","point":"late write","nth":0,"delay":5},'
    '{"kind":"full","batch":3,"actor":"cell","point":"late write","nth":2,"delay":0}]}'
)


def test_a_schedule_printed_before_there_were_asks_is_what_it_was() -> None:
    schedule = Schedule.from_text(OF_OLD)
    assert schedule == plain_schedule(13)
    assert schedule.to_text() == OF_OLD[:-1] + ',"asks":[]}'
    pairs = [(result["l_seq"], result["r_seq"]) for result in case_of(replace(schedule, faults=())).results]
    assert (len(pairs), pairs[-3:]) == (46, [(10, 22), (13, 20), (13, 21)])


def test_seeds_draw_every_ask_and_many_together() -> None:
    seeds = range(SELVES_FROM - 150, SELVES_FROM + 150)
    asked = {seed: random_schedule(seed).asks for seed in seeds}
    clocks = {name for seed in range(CLOCKS_FROM, CLOCKS_FROM + 60) for name in random_schedule(seed).asks}
    changes = {"quarantine", "settings", "upkeep"}
    before = set(ASKS) - {
        "relaid",
        "cores",
        "ranges",
        "parted",
        "found",
        "how",
        "nearest",
        "tables",
        "reduce",
        "unique",
        "each",
        "split",
        "values",
        "devices",
        "served",
        "local",
    }
    assert {name for asks in asked.values() for name in asks} == before - {"idle", "future"} - changes
    assert clocks == before - changes
    drawn = {
        first: {name for seed in range(first, first + 600) for name in random_schedule(seed).asks}
        for first in (
            CHANGES_FROM,
            LAYOUTS_FROM,
            CORES_FROM,
            RANGES_FROM,
            PARTS_FROM,
            FOUND_FROM,
            HOWS_FROM,
            NEAREST_FROM,
            TABLES_FROM,
            REDUCES_FROM,
            UNIQUES_FROM,
            EACH_FROM,
            SPLIT_FROM,
            VALUES_FROM,
            ENVELOPES_FROM,
            LOCALS_FROM,
            SERVED_FROM,
        )
    }  # fmt: skip
    relaid, moved = before | {"relaid"}, before | {"relaid", "cores"}
    local = set(ASKS) - {"served"}
    devices = local - {"local"}
    values = devices - {"devices"}
    split = values - {"values"}
    each = split - {"split"}
    uniques = each - {"each"}
    reduces = uniques - {"unique"}
    tables = reduces - {"reduce"}
    nearest = tables - {"tables"}
    decided = nearest - {"nearest"}
    found = decided - {"how"}
    parted = found - {"found"}
    ranges = parted - {"parted"}
    expected = {CHANGES_FROM: before, LAYOUTS_FROM: relaid, CORES_FROM: moved, RANGES_FROM: ranges}
    expected |= {PARTS_FROM: parted, FOUND_FROM: found, HOWS_FROM: decided, NEAREST_FROM: nearest, TABLES_FROM: tables}
    expected |= {REDUCES_FROM: reduces, UNIQUES_FROM: uniques, EACH_FROM: each, SPLIT_FROM: split}
    expected |= {VALUES_FROM: values, ENVELOPES_FROM: devices, LOCALS_FROM: local, SERVED_FROM: set(ASKS)}
    assert drawn == expected
    for seed in range(DEALT_FROM - 600, DEALT_FROM):
        asks = {*random_schedule(seed).asks}
        assert "cores" not in asks or not asks & {"how", "nearest", "reduce"}
    assert any({"cores", "how"} <= {*random_schedule(seed).asks} for seed in range(DEALT_FROM, DEALT_FROM + 60))
    for other, before, since in (
        ("unique", UNIQUES_FROM, BOTH_FROM),
        ("future", UNIQUES_FROM, BOTH_FROM),
        ("self", EACH_FROM, ALIKE_FROM),
    ):
        both = {
            first: any({other, "parted"} <= {*random_schedule(seed).asks} for seed in range(first, first + 60))
            for first in (before, since)
        }
        assert both == {before: False, since: True}
    assert max(map(len, asked.values())) >= 3
    assert sum(not asks for asks in asked.values()) > 60
    assert sum("self" in asks for asks in asked.values()) > 20
    for seed, asks in asked.items():
        assert asks or random_schedule(seed) == plain_schedule(seed)
        assert asking(plain_schedule(seed), asks) == random_schedule(seed)
        assert seed >= SELVES_FROM or "self" not in asks


@pytest.mark.slow
@pytest.mark.parametrize("ask", ASKS)
def test_runs_that_ask_for_more_have_results(ask: str) -> None:
    """Each kind of join has results: an oracle that expects nothing would agree with a join that finds nothing."""
    cases = [case_of(asking(plain_schedule(seed), (ask,))) for seed in range(24)]
    assert sum(bool(case.results) for case in cases) > (9 if ask == "each" else 18)
    if ask == "self":
        assert all(case.rows["l"] is case.rows["r"] for case in cases)
        assert 2 < sum(case.join.include_self_pairs for case in cases) < 12
    if ask == "where":
        assert sum(any(case.filtered.values()) for case in cases) > 18
    if ask == "each":
        assert {case.join.how for case in cases if case.results} == {"semi", "anti"}
    if ask == "unique":
        assert sum(any(case.duplicates.values()) for case in cases) > 21
    if ask == "devices":
        assert sum(any(case.late.values()) for case in cases) > 9


def test_new_seeds_write_their_input_in_every_form_and_a_record_is_there_when_it_is_whole() -> None:
    forms = set()
    for seed in range(ENVELOPES_FROM, ENVELOPES_FROM + 40):
        case = case_of(replace(random_schedule(seed), faults=()))
        forms |= {envelope.form for envelope in case.envelopes.values()}
        for name in {*case.inputs.values()} - {*case.devices, *case.files}:
            written = case.text(name)
            assert written.ends == sorted(written.ends)
            assert written.ends[-1] == len(written.data) - (case.envelopes[name].form == "unfolded")
            assert [written.there(size) for size in (0, len(written.data))] == [0, len(case.rows[name])]
    assert forms == {"", "columns", "nested", "unfolded"}


def test_in_a_self_join_of_three_two_or_all_streams_are_one_input() -> None:
    inputs = [case_of(asking(plain_schedule(seed), ("three", "self"))).inputs for seed in range(40)]
    assert {len(set(found.values())) for found in inputs} == {1, 2}
    assert {name for found in inputs for name, source in found.items() if name != source} == {"r", "s"}


def test_streams_over_one_input_have_the_same_partitions() -> None:
    cases = [case_of(asking(plain_schedule(seed), ("three", "self", "parted"))) for seed in range(40)]
    for case in cases:
        for name, first in case.inputs.items():
            assert case.devices.get(name) == case.devices.get(first)
    assert sum(any(name != case.inputs[name] for name in case.devices) for case in cases) > 20
    assert sum(bool(case.results) for case in cases) > 30


def test_count_windows_over_files_that_grow_go_by_batches() -> None:
    schedule = asking(plain_schedule(1), ("count",))
    assert schedule.grows
    with simulated(schedule) as world:
        assert not violations(world)
        rows = [row for _, commit in _Tables(world).commits["matches"] for row in commit]
        found = {(row["l_seq"], row["r_seq"]) for row in rows}
        at_once = {(result["l_seq"], result["r_seq"]) for result in world.case.results}
    assert found
    assert found != at_once


def test_shrinking_leaves_out_what_need_not_be_asked() -> None:
    schedule = replace(random_schedule(0), asks=("count", "three", "residual"))
    assert shrunk(schedule, lambda smaller: "residual" in smaller.asks).asks == ("residual",)


def trace(schedule: Schedule) -> tuple[object, ...]:
    def facts(world: World) -> tuple[object, ...]:
        return world.ticks, len(world.drivers), dict(world.seen), world.checkpoint, tuple(world.fired)

    with simulated(schedule) as world:
        return facts(world)


@pytest.mark.parametrize("seed", [3, 13, 18, 64])
def test_a_run_is_a_function_of_its_schedule(seed: int) -> None:
    # Without the state: it has the fingerprint, and the fingerprint has the folder of the files.
    schedule = replace(random_schedule(seed), source="listed", blocks=None)
    assert trace(schedule) == trace(schedule)


@pytest.mark.slow
@pytest.mark.long
def test_every_point_that_a_fault_can_name_is_one_that_processes_come_to() -> None:
    seen = {actor: set[str]() for actor in POINTS}
    for seed in range(60):
        with simulated(replace(random_schedule(seed), faults=())) as world:
            for actor, point in world.seen:
                seen[actor].add(point)
    for actor, points in POINTS.items():
        assert set(points) | set(WRITES[actor]) <= seen[actor], actor


@pytest.mark.slow
def test_every_step_of_the_upkeep_is_one_that_drivers_come_to() -> None:
    seen = set[tuple[str, str]]()
    for seed in range(6):
        with simulated(replace(asking(plain_schedule(seed), ("upkeep",)), faults=(), rows=30, batch_rows=6)) as world:
            seen |= set(world.seen)
    assert {("driver", point) for point in UPKEEP_POINTS} <= seen


@pytest.mark.slow
def test_files_come_late_and_change_and_lives_have_settings_of_their_own() -> None:
    """The runs really meet what they must be exact under."""
    happened = Counter[str]()
    for seed in range(12):
        with simulated(asking(plain_schedule(seed), ("quarantine", "settings"))) as world:
            assert isinstance(world.input, Folders)
            happened["late"] += sum(map(len, world.input.late.values()))
            happened["changed"] += len(world.input.changed)
            happened["refused"] += sum(settings.must_refuse is not None for settings in world.lives.values())
            happened["stops"] += sum(bool(settings.may_refuse) for settings in world.lives.values())
            happened["ways"] += len({settings.plan.exchange for settings in world.lives.values()}) > 1
    assert all(happened[name] for name in ("late", "changed", "refused", "stops", "ways")), happened


def test_shrinking_keeps_what_is_needed_and_no_more() -> None:
    faults = tuple(Fault("crash", batch, "driver", "sink", 0, 0) for batch in range(5))
    big = Schedule(1, layout="2x2", rows=30, faults=faults)
    small = shrunk(big, lambda schedule: schedule.rows >= 6 and any(fault.batch >= 3 for fault in schedule.faults))
    assert (small.rows, small.layout, [fault.batch for fault in small.faults]) == (6, "1x1", [3])


@pytest.mark.slow
@pytest.mark.long
def test_a_failure_is_shrunk_to_a_schedule_that_fails() -> None:
    bug = next(bug for bug in BUGS if bug.name == "no transaction check")
    with planted(bug):
        schedule = next(s for s in map(random_schedule, range(400)) if outcome_of(s).violations)
        least = minimal(schedule)
        assert least.violations
        assert len(least.schedule.faults) == 1
    assert not outcome_of(least.schedule).violations


def test_clocks_change_within_runs_and_a_dense_series_has_the_moments_that_it_was_drawn_with() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(TURNS_FROM, TURNS_FROM + 100):
        case = case_of(random_schedule(seed))
        for name, envelope in case.envelopes.items():
            times = [row["ts"] for row in case.rows[name]]
            for ts, at in zip(times, envelope.clock or (), strict=False):
                told = None if at is None else meanings(envelope.head["timezone"], at)
                kinds["skipped"] += told is not None and told[1] < 0
                kinds["later"] += told is not None and ts not in (None, told[0])
            known = [ts for ts in times if ts is not None]
            kinds["hourly"] += max(known) - min(known) > HOUR_US
    assert min(kinds["skipped"], kinds["later"], kinds["hourly"]) > 5
    dense = Turn("Europe/Berlin", 1_729_990_800_000_000, 1_729_990_797_000_000, 0)
    rows = [{"ts": number * 250_000 - number % 3 * 500_000} for number in range(60)]
    moved = dense.moved(rows, 0, 250_000)
    assert dense.written(moved, random.Random(1))[0] == moved
