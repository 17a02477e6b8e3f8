"""The cost model: its optimum is that of every size and ratio tried; which costs can be believed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.cost_model import (
    RATIOS,
    SEAL_ROWS,
    USUAL_COSTS,
    OperationCosts,
    best_sizes,
    mean_ns,
    tuple_ns,
    unmerged_ns,
)
from streamjoin_ds.engine.tuning import DEFAULT
from tests.support.examples import examples


def around(usual: float) -> st.SearchStrategy[float]:
    return st.floats(usual / 50, usual * 50)


COSTS = st.builds(OperationCosts, *(around(cost) for cost in USUAL_COSTS.to_facts().values()))


@examples(40)
@given(
    costs=COSTS,
    ratio=st.sampled_from([None, 2, 4, 16]),
    octave=st.sampled_from([None, 13, 14.25, 16, 18]),
    is_grid=st.booleans(),
)
def test_no_other_size_and_ratio_is_clearly_better(
    costs: OperationCosts, ratio: int | None, octave: float | None, is_grid: bool
) -> None:
    rows = 0 if octave is None or is_grid else round(2**octave)
    sizes = best_sizes(costs, ratio, rows, is_grid=is_grid)
    own = mean_ns(costs, sizes.seal_rows, sizes.ratio, rows, is_grid=is_grid)
    tried = RATIOS if ratio is None else (ratio,)
    least = min(mean_ns(costs, seal, k, rows, is_grid=is_grid) for seal in SEAL_ROWS for k in tried)
    assert own * 0.8 <= least * (1 + 1e-9)
    kept = DEFAULT.merging.ratio if ratio is None else ratio
    usual = mean_ns(costs, DEFAULT.tail.rows, kept, rows, is_grid=is_grid)
    assert own < 0.9 * usual or (sizes.seal_rows, own) == (DEFAULT.tail.rows, usual)
    assert 0 <= sizes.most_gridded_rows <= sizes.most_arrived_rows <= sizes.seal_rows / 2
    assert sizes.ratio == ratio or ratio is None


@examples(40)
@given(costs=COSTS, ratio=st.sampled_from(RATIOS), seal_rows=st.integers(256, 4096), grown=st.integers(2, 6))
def test_runs_and_copies_are_those_of_merges_done_one_by_one(
    costs: OperationCosts, ratio: int, seal_rows: int, grown: int
) -> None:
    """The model counts what merging tails level by level gives: runs that are there, and rows that are copied."""
    window_rows = seal_rows * 4 * ratio**2 * grown
    counts, copied, merges, seen, tails = [0] * 8, 0, 0, 0.0, ratio**4
    for _ in range(tails):
        counts[0] += 1
        for level in range(7):
            if counts[level] == ratio and seal_rows * ratio ** (level + 1) * 4 <= window_rows:
                counts[level], counts[level + 1] = 0, counts[level + 1] + 1
                copied, merges = copied + ratio ** (level + 1), merges + 1
        levels = max(level for level in range(8) if seal_rows * ratio**level * 4 <= window_rows)
        seen += sum(counts[:levels])  # the runs that wait; those of the last level are what the window has room for
    last_rows = seal_rows * ratio**levels
    no_costs = dict.fromkeys(USUAL_COSTS.to_facts(), 0.0)
    probed = OperationCosts(**{**no_costs, "probed_run_ns": 1.0})
    assert tuple_ns(probed, seal_rows, ratio, window_rows) == pytest.approx(seen / tails + window_rows / last_rows)
    rows = OperationCosts(**{**no_costs, "merged_row_ns": 1.0})
    assert tuple_ns(rows, seal_rows, ratio, window_rows) == pytest.approx(copied / tails)
    runs = OperationCosts(**{**no_costs, "merged_run_ns": 1.0})
    assert tuple_ns(runs, seal_rows, ratio, window_rows) == pytest.approx(merges / tails / seal_rows)


@examples(30)
@given(costs=COSTS, window_rows=st.integers(1 << 12, 1 << 24))
def test_without_merges_the_best_size_is_that_of_celljoin(costs: OperationCosts, window_rows: int) -> None:
    # CellJoin, eq. 4
    best = math.sqrt(2 * (costs.sealed_run_ns + window_rows * costs.probed_run_ns) / costs.scanned_row_ns)
    if 1.1 * best <= window_rows:  # a tail that is larger than the window is scanned no further
        least = unmerged_ns(costs, best, window_rows)
        others = [unmerged_ns(costs, best * factor, window_rows) for factor in (0.25, 0.9, 1.1)]
        assert least <= min(others) * (1 + 1e-9)


def test_sizes_follow_the_costs() -> None:
    usual = best_sizes(USUAL_COSTS)
    assert best_sizes(replace(USUAL_COSTS, scanned_row_ns=5.0)).seal_rows < usual.seal_rows
    assert best_sizes(replace(USUAL_COSTS, scanned_row_ns=0.05)).seal_rows == DEFAULT.tail.rows
    assert best_sizes(replace(USUAL_COSTS, probed_run_ns=5000.0)).ratio < usual.ratio
    assert best_sizes(replace(USUAL_COSTS, merged_row_ns=1200.0, probed_run_ns=1.0)).ratio > usual.ratio
    assert best_sizes(replace(USUAL_COSTS, gridded_batch_ns=400_000.0)).most_gridded_rows > usual.most_gridded_rows


def test_a_push_goes_to_the_tail_where_the_scan_costs_less_than_a_run() -> None:
    for costs in (USUAL_COSTS, replace(USUAL_COSTS, scanned_row_ns=0.07), replace(USUAL_COSTS, scanned_row_ns=1.0)):
        sizes = best_sizes(costs)
        tailed_ns = mean_ns(costs, sizes.seal_rows, sizes.ratio)
        unscanned = replace(costs, scanned_row_ns=0.0)
        assert mean_ns(unscanned, sizes.most_arrived_rows / 1.5, sizes.ratio) > tailed_ns
        assert mean_ns(unscanned, sizes.most_arrived_rows, sizes.ratio) < tailed_ns or (
            sizes.most_arrived_rows == sizes.seal_rows // 2
        )


def test_the_model_by_hand() -> None:
    costs = OperationCosts(0.5, 10.0, 1000.0, 3.0, 600.0, 20.0)
    scanned, sealed = 1024 / 2 * 0.5, 1000 / 1024 + 3
    merged = 2 * 20 + (1 / 4 + 1 / 16) / 1024 * 600  # 1 024 become 4 096 and these 16 384, a quarter of the window
    runs = 65_536 / 16_384 + 2 * 1.5
    assert tuple_ns(costs, 1024, 4, 65_536) == pytest.approx(scanned + sealed + runs * 10 + merged)
    assert unmerged_ns(costs, 1024, 65_536) == pytest.approx(scanned + sealed + 64 * 10)


def test_they_come_back_from_json() -> None:
    costs = OperationCosts(0.1, 2.0, 3e5, 4.0, 5e5, 6.0)
    assert OperationCosts.from_facts(json.loads(json.dumps(costs.to_facts()))) == costs


def test_those_of_another_version_come_back_as_far_as_they_are_known() -> None:
    found = OperationCosts.from_facts({"scanned_row_ns": 0.1, "gone_ns": 1.0})
    assert found == replace(USUAL_COSTS, scanned_row_ns=0.1)


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("scanned_row_ns", 0.0),
        ("scanned_row_ns", -1.0),
        ("scanned_row_ns", 1e3),
        ("probed_run_ns", 0.0),
        ("sealed_run_ns", -5.0),
        ("sealed_run_ns", math.inf),
        ("sealed_run_ns", math.nan),
        ("merged_row_ns", 1e6),
    ],
)
def test_what_no_machine_costs_is_not_believed(name: str, cost: float) -> None:
    assert USUAL_COSTS.are_sane
    assert not replace(USUAL_COSTS, **{name: cost}).are_sane


def test_a_row_that_costs_too_little_to_be_seen_is_believed() -> None:
    assert replace(USUAL_COSTS, sealed_row_ns=0.0, merged_row_ns=0.01, merged_run_ns=0.0).are_sane
