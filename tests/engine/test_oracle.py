"""The engine against the contract in plain Python: any join, any types, any cuts, every kernel."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.tuning import DEFAULT, LayoutTuning, ProbeTuning, TailTuning, Tuning
from streamjoin_ds.plan import Execution
from streamjoin_ds.testing.arrivals import filtered_rows, late_rows, random_batches, shuffled_within
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine.scenarios import Scenario, assert_values, cuts_of, numbers_of, plain, run_engine, scenarios
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
QUICK = examples(40)


# With this tuning a few rows are too many for the tail, and are indexed.
SMALL = Tuning(
    probe=ProbeTuning(scan_pairs=0),
    tail=TailTuning(rows=4, most_arrived_rows=2),
    layout=LayoutTuning(least_sorted_rows=1, gain_share=100.0, bucket_cost=0.0),
)


@pytest.fixture(scope="module", params=["small runs are indexed", "as always"])
def tuning(request: pytest.FixtureRequest) -> Tuning:
    return SMALL if request.param == "small runs are indexed" else DEFAULT


@QUICK
@given(scenario=scenarios(), seed=st.integers(0, 1000), kernel=st.sampled_from(KERNELS))
def test_results_are_the_contracts(tuning: Tuning, scenario: Scenario, seed: int, kernel: str) -> None:
    cuts = cuts_of(scenario, seed)
    result, engine = run_engine(scenario, cuts, kernel=kernel, chunk_rows=64, tuning=tuning)
    assert numbers_of(scenario.join, result) == oracle_numbers(scenario.join, scenario.tables)
    assert_values(scenario, result)
    counters = engine.counters
    for name, table in scenario.tables.items():
        assert counters["late_rows"][name] == len(late_rows(scenario.join, name, table))
        stored = counters["stored_rows"][name]
        assert counters["filtered_rows"][name] == len(filtered_rows(scenario.join, name, table))
        gone = (counters[f"{what}_rows"][name] for what in ("late", "rejected", "filtered"))
        assert counters["read_rows"][name] == stored + sum(gone)


@QUICK
@given(scenario=scenarios(), seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_cuts_change_nothing(tuning: Tuning, scenario: Scenario, seeds: tuple[int, int]) -> None:
    found = []
    for seed in seeds:
        cuts = cuts_of(scenario, seed, 5)
        found.append(numbers_of(scenario.join, run_engine(scenario, cuts, tuning=tuning)[0]))
    assert found[0] == found[1]


@QUICK
@given(scenario=scenarios(extreme_times=False, kinds=("time", "periodic")), seed=st.integers(0, 99))
def test_order_of_arrival_within_the_delay_changes_nothing(tuning: Tuning, scenario: Scenario, seed: int) -> None:
    everything = oracle_numbers(scenario.join, scenario.tables, lateness=False)
    tables, orders = {}, {}
    for n, stream in enumerate(scenario.join.streams):
        table = scenario.tables[stream.name]
        orders[stream.name] = shuffled_within(table["t"].to_pylist(), stream.delay_us, seed + n)
        tables[stream.name] = table.take(pa.array(orders[stream.name], pa.int64()))
        assert late_rows(scenario.join, stream.name, tables[stream.name]) == []
    cuts = {name: list(random_batches(table, seed, 6)) for name, table in tables.items()}
    result, _ = run_engine(scenario, cuts, tuning=tuning)
    names = scenario.join.names
    found = sorted(
        tuple(orders[name][number] for name, number in zip(names, numbers, strict=True))
        for numbers in numbers_of(scenario.join, result)
    )
    assert found == everything


@QUICK
@given(scenario=scenarios(), seed=st.integers(0, 99))
def test_every_kernel_gives_the_same_rows_in_the_same_order_and_the_same_state(
    tuning: Tuning, scenario: Scenario, seed: int
) -> None:
    cuts = {name: list(random_batches(table, seed, 4)) for name, table in scenario.tables.items()}
    first, engine = run_engine(scenario, cuts, kernel=KERNELS[0], chunk_rows=64, tuning=tuning)
    for kernel in KERNELS[1:]:
        other, other_engine = run_engine(scenario, cuts, kernel=kernel, chunk_rows=64, tuning=tuning)
        assert plain(other) == plain(first)
        assert other_engine.save() == engine.save()


@QUICK
@given(scenario=scenarios(), seed=st.integers(0, 99), kernel=st.sampled_from(KERNELS))
def test_a_restart_anywhere_is_no_restart(tuning: Tuning, scenario: Scenario, seed: int, kernel: str) -> None:
    cuts = {name: list(random_batches(table, seed, 4)) for name, table in scenario.tables.items()}
    pushes = max(len(pieces) for pieces in cuts.values())
    straight = JoinEngine(scenario.join, execution=Execution(kernel=kernel), tuning=tuning)
    blob = JoinEngine(scenario.join, tuning=tuning).save()
    for n in range(pushes):
        batch = {name: pieces[n] for name, pieces in cuts.items() if n < len(pieces)}
        restarted = JoinEngine(scenario.join, execution=Execution(kernel=kernel), tuning=tuning)
        restarted.restore(blob)
        assert restarted.save() == blob
        expected, found = straight.push(batch), restarted.push(batch)
        assert plain(found) == plain(expected)
        blob = restarted.save()
        assert blob == straight.save()
        tested = ("candidates", "partials")  # these count since the object was made
        assert {k: v for k, v in restarted.counters.items() if k not in tested} == {
            k: v for k, v in straight.counters.items() if k not in tested
        }
