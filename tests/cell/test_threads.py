"""The threads of a cell's batch: as its work asks, on cores that others left; no row depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamjoin_ds.cell import cell_windows
from streamjoin_ds.cell.cell_windows import CellWindows, Staff, demand_of
from streamjoin_ds.engine import core_lease
from streamjoin_ds.engine.core_lease import free_cores, leased_cores, leased_threads
from streamjoin_ds.engine.tuning import ThreadTuning, Tuning
from streamjoin_ds.plan import Execution, Layout, Plan
from tests.engine.streams import band_join

POOL = (0, 1, 2, 3)
MS = 1_000_000


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Four cores that nobody else leases, whatever this machine has."""
    monkeypatch.setattr(core_lease, "cores_to_lease", lambda: POOL)
    monkeypatch.setattr(core_lease.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cell_windows, "usable_core_count", lambda: len(POOL))
    monkeypatch.setattr(cell_windows, "_demands", cell_windows.OrderedDict())
    return tmp_path


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Two cells, up to four threads in each; a thread for each 20 ms of work."""
    monkeypatch.setattr(CellWindows, "tuning", Tuning(threads=ThreadTuning(worth_ns=20 * MS, first_row_ns=1000.0)))
    return Plan(band_join(), Layout.parse("1x2", 2), 2, "packed", join_id="join", execution=Execution(threads=4))


def test_one_thread_leases_nothing(pool: Path) -> None:
    with leased_threads(1, 4) as (threads, cores):
        assert (threads, cores) == (1, ())
        assert free_cores() == POOL


def test_as_many_threads_as_cores_are_free(pool: Path) -> None:
    with leased_threads(4, 1) as (threads, cores):
        assert (threads, cores) == (4, POOL)
    with leased_cores(1), leased_threads(4, 1) as (threads, cores):
        assert (threads, cores) == (3, (1, 2, 3))


def test_others_have_the_cores_and_the_fair_part_runs_beside_them(pool: Path) -> None:
    with leased_cores(3):
        for fair, expected in ((0, 1), (1, 1), (2, 2), (9, 4)):
            with leased_threads(4, fair) as (threads, cores):
                assert (threads, cores) == (expected, ())
                assert len(free_cores()) == 1


@pytest.mark.parametrize("pin", [True, False])
def test_where_nothing_can_be_leased_threads_run_unpinned(
    pool: Path, monkeypatch: pytest.MonkeyPatch, pin: bool
) -> None:
    if pin:
        monkeypatch.setattr(core_lease, "cores_to_lease", tuple)
    with leased_threads(3, 1, pin=pin) as (threads, cores):
        assert (threads, cores) == (3, ())


def test_two_cells_of_unlike_load_share_the_cores(pool: Path, plan: Plan) -> None:
    """The quiet cell leases nothing, so the busy one has all four cores, and gives them back with its batch."""
    quiet, busy = (CellWindows(plan, cell, None) for cell in (0, 1))
    with quiet.staffed(1000) as few, busy.staffed(200_000) as many:
        assert (few.threads, many.threads) == (1, 4)
        assert free_cores() == ()
        assert [each.engine.threads for each in (quiet, busy)] == [1, 4]
    assert free_cores() == POOL
    assert [each.engine.threads for each in (quiet, busy)] == [1, 1]


def test_two_busy_cells_have_half_of_the_cores_each_at_least(pool: Path, plan: Plan) -> None:
    first, second = (CellWindows(plan, cell, None) for cell in (0, 1))
    with first.staffed(40_000) as one, second.staffed(200_000) as other:
        assert (one.threads, other.threads) == (2, 2)
        assert free_cores() == ()
    demand_of(plan, first.tuning.threads).row_ns = 1000.0
    with first.staffed(200_000) as one, second.staffed(200_000) as other:
        assert (one.threads, other.threads) == (4, 2)  # the second's beside the first's, unpinned


def test_a_cell_asks_by_what_its_batches_cost(pool: Path, plan: Plan) -> None:
    windows = CellWindows(plan, 0, None)
    demand = demand_of(plan, windows.tuning.threads)
    with windows.staffed(10_000) as staff:
        assert staff.threads == 1
        staff.cpu_ns += 100 * MS
    assert demand.row_ns >= 10_000
    with windows.staffed(10_000) as staff:
        assert staff.threads == 4
        assert free_cores() == ()


def test_a_batch_that_fails_gives_its_cores_back_and_teaches_nothing(pool: Path, plan: Plan) -> None:
    windows = CellWindows(plan, 0, None)
    with pytest.raises(ZeroDivisionError), windows.staffed(200_000):
        raise ZeroDivisionError
    assert free_cores() == POOL
    assert demand_of(plan, windows.tuning.threads).row_ns == 1000.0


def test_only_the_time_of_the_join_counts(pool: Path) -> None:
    now = 0

    def joined() -> Iterator[int]:
        nonlocal now
        for chunk in range(3):
            now += 7
            yield chunk
        now += 5

    staff = Staff(1, lambda: now)
    for _ in staff.timed(joined()):
        now += 1000  # the reader writes the chunk
    assert staff.cpu_ns == 26


def test_few_joins_are_remembered(pool: Path, plan: Plan) -> None:
    tuning = CellWindows.tuning.threads
    first = demand_of(plan, tuning)
    assert demand_of(plan, tuning) is first
    others = [demand_of(replace(plan, join_id=str(number)), tuning) for number in range(40)]
    assert len({id(demand) for demand in others}) == 40
    assert demand_of(plan, tuning) is not first
