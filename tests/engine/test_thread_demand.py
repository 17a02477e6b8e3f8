"""How many threads a batch asks for: those that have enough to do, with no change for a load that hardly changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.core_lease import ThreadDemand
from streamjoin_ds.engine.tuning import DEFAULT, ThreadTuning

MS = 1_000_000
# A thread for each 20 ms of work; a tuple costs 1 us.
TUNING = ThreadTuning(worth_ns=20 * MS, kept_share=0.5, first_row_ns=1000.0, cost_weight=0.5)


def wanted(demand: ThreadDemand, *loads_ms: float, most: int = 8) -> list[int]:
    """Return what batches ask for that take one thread so long, while a tuple costs a microsecond."""
    return [demand.wanted(0, int(load * 1000), most) for load in loads_ms]


def test_small_batches_ask_for_one_thread_and_large_ones_for_all() -> None:
    assert wanted(ThreadDemand(TUNING), 0, 1, 19, 39) == [1, 1, 1, 1]
    assert wanted(ThreadDemand(TUNING), 40, 80, 10_000) == [2, 4, 8]
    assert wanted(ThreadDemand(TUNING), 10_000, most=1) == [1]


def test_a_load_near_a_limit_changes_nothing() -> None:
    assert wanted(ThreadDemand(TUNING), 61, 59, 61, 50, 70, 79) == [3] * 6
    # Half of the work, or work for one thread more, changes it.
    assert wanted(ThreadDemand(TUNING), 61, 29) == [3, 1]
    assert wanted(ThreadDemand(TUNING), 61, 81) == [3, 4]


def test_it_follows_the_measured_cost() -> None:
    demand = ThreadDemand(TUNING)
    assert demand.wanted(0, 10_000, 8) == 1
    demand.did(10_000, 200 * MS)  # twenty times what was expected, which no measurement backed
    assert demand.row_ns == 20_000
    assert demand.wanted(0, 10_000, 8) == 8
    for _ in range(8):
        demand.did(10_000, 1 * MS)
    assert 100 < demand.row_ns < 200
    assert demand.wanted(0, 10_000, 8) == 1


def test_batches_without_tuples_teach_nothing() -> None:
    demand = ThreadDemand(TUNING)
    demand.did(0, 500 * MS)
    assert demand.row_ns == TUNING.first_row_ns


def test_cells_share_the_cost_and_not_the_number_of_threads() -> None:
    demand = ThreadDemand(TUNING)
    assert demand.wanted(0, 100_000, 4) == 4
    assert demand.wanted(1, 1000, 4) == 1
    demand.did(1000, 100 * MS)
    assert [demand.wanted(cell, 1000, 4) for cell in (0, 1)] == [4, 4]


def test_a_restart_may_allow_fewer() -> None:
    demand = ThreadDemand(TUNING)
    assert [demand.wanted(0, 160_000, most) for most in (8, 2, 8)] == [8, 2, 8]


@given(rows=st.lists(st.integers(0, 10**7), max_size=30), most=st.integers(1, 64), cpu=st.integers(0, 10**12))
def test_it_is_always_one_to_most_and_a_steady_load_settles_at_once(rows: list[int], most: int, cpu: int) -> None:
    demand = ThreadDemand(DEFAULT.threads)
    for count in rows:
        found = demand.wanted(0, count, most)
        assert 1 <= found <= most
        assert demand.wanted(0, count, most) == found
        # No thread is asked for that has less than half of what is worth one.
        assert found == 1 or count * demand.row_ns >= found * DEFAULT.threads.worth_ns / 2
        demand.did(count, cpu)
