"""Sizes of runs by costs: they may change at any time, and across a restore, and no row depends on them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine import sizing
from streamjoin_ds.engine.cost_model import OperationCosts, RunSizes, best_sizes
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.sizing import WORTH_TAILS, MeasuredSizing
from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.tuning import DEFAULT, TailTuning, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine.scenarios import Scenario, assert_values, cuts_of, numbers_of, scenarios
from tests.engine.streams import band_join, engine_options, pairs, tuples
from tests.support.examples import examples

KERNELS = [name for name in kernel_names() if name != "auto"]
INT_COSTS = OperationCosts(scanned_row_ns=0.45, probed_run_ns=40.0, sealed_run_ns=3e5)


class RandomSizing:
    """Other sizes after each sealed tail, so small that a handful of rows fills several tails."""

    def __init__(self, seed: int) -> None:
        self._chooser = random.Random(seed)

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        if sealed_tails and self._chooser.random() < 0.3:
            return None
        rows = self._chooser.randint(1, 12)
        return RunSizes(
            rows, self._chooser.randint(0, rows), self._chooser.randint(0, rows), self._chooser.randint(2, 5)
        )

    def described(self) -> str:
        return "at random"


@pytest.mark.slow
@examples(150)
@given(
    scenario=scenarios(rows=60),
    seed=st.integers(0, 1000),
    bucket_rows=st.sampled_from([30, None]),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 1, 2]),
)
def test_no_row_depends_on_costs_that_change_while_it_runs_and_at_restores(
    scenario: Scenario, seed: int, bucket_rows: int | None, kernel: str, threads: int
) -> None:
    cuts, chooser = cuts_of(scenario, seed), random.Random(seed)
    options: Any = {"kernel": kernel, "threads": threads, "cores": (), "chunk_rows": 64, "bucket_rows": bucket_rows}
    engine, found = JoinEngine(scenario.join, costs=RandomSizing(seed), **engine_options(**options)), []
    for number in range(max(len(pieces) for pieces in cuts.values())):
        found.append(engine.push({name: pieces[number] for name, pieces in cuts.items() if number < len(pieces)}))
        if chooser.random() < 0.4:
            blob = engine.save()
            engine = JoinEngine(engine.bound, costs=RandomSizing(seed + number + 1), **engine_options(**options))
            engine.restore(blob)
    result = pa.concat_tables(found)
    assert numbers_of(scenario.join, result) == oracle_numbers(scenario.join, scenario.tables)
    assert_values(scenario, result)


def pushed(join: WindowJoin, rows: int, step: int, first: int = 0) -> list[tuple[int, int]]:
    found = []
    for place in range(first, rows, step):
        batch = {s: tuples(join.bound, s, step, start_us=place * 1000, seq=place) for s in (0, 1)}
        found += pairs(list(join.push(batch)))
    return sorted(found)


@pytest.mark.parametrize(("saved_rows", "restored_rows"), [(4096, 600), (600, 4096), (4096, 50)])
def test_a_tail_saved_under_other_costs_is_restored(saved_rows: int, restored_rows: int) -> None:
    bound = band_join(window="1h")
    sizes = [Tuning(tail=TailTuning(rows, min(rows, 1024))) for rows in (saved_rows, restored_rows)]
    join = WindowJoin(bound, tuning=sizes[0])
    found = pushed(join, 1000, 50)
    again = WindowJoin.restored(bound, join.save(), tuning=sizes[1])
    assert again.state_rows == join.state_rows
    assert all(window.tail.rows <= restored_rows for window in again.windows)
    assert sum(run.rows for run in again.windows[0].runs) == 1000
    found += pushed(again, 2000, 50, 1000)
    assert sorted(found) == pushed(WindowJoin(bound), 2000, 50)


def test_a_longer_tail_than_there_is_room_for_goes_to_a_larger_buffer() -> None:
    bound = band_join(window="1h")

    class Growing(RandomSizing):
        def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
            return RunSizes(64 << sealed_tails, 64, 64, 4)

    join = WindowJoin(bound, costs=Growing(1))
    assert pushed(join, 2000, 50) == pushed(WindowJoin(bound), 2000, 50)
    assert [run.rows for run in join.windows[0].runs][:3] == [50, 100, 250]


def test_given_costs_hold_from_the_start() -> None:
    bound = band_join(window="1h")
    join = WindowJoin(bound, costs=INT_COSTS)
    sizes = best_sizes(INT_COSTS)
    assert (join.forms[0].tail_rows, join.forms[0].tailed_rows) == (sizes.seal_rows, sizes.most_arrived_rows)
    assert sizes.seal_rows < DEFAULT.tail.rows
    told = join.explain()[1]
    assert told.startswith(f"merge ratio {sizes.ratio}, up to {sizes.seal_rows} newest rows unsorted: by costs that")
    assert "a row of the tail 0.45 ns" in told
    assert "a sealed run 300 us" in told


def test_a_forced_merge_ratio_stays_and_windows_in_blocks_keep_the_usual_sizes() -> None:
    bound = band_join(window="1h")
    join = WindowJoin(bound, execution=Execution(merge_runs=9), costs=INT_COSTS)
    assert join.explain()[1].startswith("merge ratio 9,")
    assert join.forms[0].tail_rows == best_sizes(INT_COSTS, 9).seal_rows
    in_blocks = WindowJoin(bound, costs=INT_COSTS, block_bytes=1 << 16)
    assert in_blocks.forms[0].tail_rows == DEFAULT.tail.rows
    assert in_blocks.explain()[1] == WindowJoin(bound, block_bytes=1 << 16).explain()[1]


def test_costs_are_measured_when_a_stream_has_filled_some_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(bound: object, kernel: str) -> OperationCosts:
        asked.append(kernel)
        return INT_COSTS

    monkeypatch.setattr(sizing, "fitted_costs", measured)
    source = MeasuredSizing(band_join(), "scalar")
    assert [source.sizes(tails, 9000, is_grid=False) for tails in range(WORTH_TAILS)] == [None] * WORTH_TAILS
    assert source.costs is None
    assert not asked
    assert f"measured once a stream has filled {WORTH_TAILS} tails" in source.described()
    assert source.sizes(WORTH_TAILS, 50_000, is_grid=False) == best_sizes(INT_COSTS, None, 50_000)
    assert source.sizes(WORTH_TAILS + 1, 90_000, is_grid=True) == best_sizes(INT_COSTS, is_grid=True)
    asked = asked[:1] if len(set(asked)) == 1 else asked  # a process measures once, whoever asks
    assert asked == ["scalar"]
    assert "measured in this process" in source.described()


def test_where_costs_cannot_be_measured_the_usual_sizes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "fitted_costs", lambda *_: None)
    source = MeasuredSizing(band_join(), "auto")
    assert source.sizes(WORTH_TAILS, 9000, is_grid=False) is None
    assert "the usual sizes" in source.described()


def test_an_engine_measures_unless_it_is_given_other_numbers() -> None:
    bound = band_join(window="1h")
    assert "costs are measured once" in JoinEngine(bound).explain()[1]
    assert JoinEngine(bound, costs=None).explain()[1] == "merge ratio 4, up to 4096 newest rows unsorted"
    small = Tuning(tail=TailTuning(8, 4))
    assert JoinEngine(bound, tuning=small).explain()[1] == "merge ratio 4, up to 8 newest rows unsorted"
    assert isinstance(WindowJoin(bound).windows[0].tail, Tail)
