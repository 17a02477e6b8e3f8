"""Trials of layouts of cells: exact, as shipped and as many as DP-Join's equations say, and measured per result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamjoin_ds.plan import Execution, Layout, Load, layout_cost
from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.cell_load import filled_engine, layout_load, pair_s
from tests.bench.suites.figures.layout_trials import dropping, latency, offered, sustained
from tests.bench.suites.figures.trial import Trial

STREAMS = BandStreams((1_500, 1_500), (4, 4), domain=200, seed=7)
TRIAL = Trial("offered", push_rows=256, index="scan", size=10, runs=2, run_s=0.02, streams=STREAMS)


def test_a_trial_of_streams_travels_as_json():
    trial = replace(TRIAL, layout="2x3", fill=0.5, output="sorted")
    assert Trial.from_facts(trial.to_facts()) == trial
    assert Trial.from_facts(Trial().to_facts()) == Trial()


@pytest.mark.parametrize("layout", ["1x1", "2x2", "2x3", "1x5", "4x1"])
@pytest.mark.parametrize("streams", [STREAMS, BandStreams((300, 1_700), (2, 5), domain=60, seed=2)])
def test_cells_find_every_result_once_and_are_sent_what_the_layout_costs(layout, streams):
    load = layout_load(replace(TRIAL, layout=layout, streams=streams))
    assert load.found == load.expected > 0
    assert load.found <= load.results[0]
    cost = layout_cost(Layout.parse(layout, 2), streams.load)
    for shipped in load.shipped:
        assert shipped / load.stretch_s == pytest.approx(cost.shipped_rows_per_s, rel=0.02)


@pytest.mark.parametrize("output", ["plain", "punctuated", "sorted"])
@pytest.mark.parametrize("index", ["scan", "auto"])
def test_what_becomes_of_results_changes_none(output, index):
    load = layout_load(replace(TRIAL, layout="2x1", output=output, index=index))
    assert load.found == load.expected > 0


@pytest.mark.parametrize("layout", ["1x1", "2x2", "1x4", "2x3"])
def test_the_bandwidth_is_what_the_equations_predict(layout):
    """DP-Join, equations 2 to 4; the measured results are within 2 %."""
    trial = replace(TRIAL, layout=layout)
    outcome = offered(trial)
    assert outcome.found == outcome.expected
    (rate, _), (window_s, _), numbers = STREAMS.rates, STREAMS.windows_s, outcome.numbers
    most = 2 * rate * rate * window_s * STREAMS.hit_rate
    cells = Layout.parse(layout, 2).cells
    assert numbers["predicted_most_results"] == pytest.approx([most] * 2)
    assert numbers["predicted_could"] == pytest.approx([cells / pair_s(trial) * STREAMS.hit_rate] * 2)
    assert numbers["predicted_results"] == [min(most, numbers["predicted_could"][0])] * 2
    assert numbers["most_results"] == pytest.approx([most] * 2, rel=0.02)
    assert numbers["shipped"] == pytest.approx(numbers["predicted_shipped"], rel=0.02)


def test_windows_are_as_full_as_is_said():
    for fill in (0.25, 1.0, 3.0):
        join = filled_engine(STREAMS, Layout((2, 2)), 3, STREAMS.warm_us, fill, execution=Execution(index="scan"))
        assert join.state_rows == pytest.approx(2 * 1_500 * 4 / 2 * min(fill, 1), abs=4)


@pytest.mark.parametrize("fill", [0.5, 1.0, 2.0])
def test_latency_is_measured_for_each_result(fill):
    trial = replace(TRIAL, kind="latency", push_rows=1, layout="2x1", fill=fill)
    outcome = latency(trial)
    numbers = outcome.numbers
    assert outcome.found == outcome.expected == numbers["given"][0] > 0
    for mean, largest, p99 in zip(numbers["mean_ms"], numbers["largest_ms"], numbers["p99_ms"], strict=True):
        assert 0 < mean <= largest
        assert p99 <= largest
    rows = 1_500 * 4 * min(fill, 1.0)
    # Equations 5 and 6: half of the tuples scan half of a window of r, half of them a window of s.
    mean_ms = pair_s(trial, 1) * 1e3 * (0.5 * rows / 2 + 0.5 * rows / 2 / 2)
    assert numbers["predicted_ms"] == pytest.approx([mean_ms] * 2)
    assert numbers["predicted_end_ms"] == pytest.approx([2 * mean_ms] * 2)


def test_a_batch_waits_for_its_last_tuple():
    """64 tuples at 1,500 a second take 43 ms to come: the first of them waits for all of that, half on average."""
    numbers = latency(replace(TRIAL, push_rows=64, run_s=0.2)).numbers
    assert min(numbers["largest_ms"]) > 40
    assert min(numbers["mean_ms"]) > 10
    assert min(numbers["median_ms"]) > 10


def test_the_highest_rate_is_one_that_is_kept():
    outcome = sustained(replace(TRIAL, layout="1x2", size=20))
    assert outcome.found == outcome.expected > 0
    rates, predicted = outcome.numbers["rate"], outcome.numbers["predicted_rate"]
    assert all(0 < rate < 3 * predicted[0] for rate in rates)


def test_nothing_is_dropped_where_the_engine_keeps_up_and_much_where_it_cannot():
    slow = dropping(replace(TRIAL, streams=replace(STREAMS, rates=(200, 200))))
    assert slow.numbers["dropped"] == [0.0, 0.0]
    # Windows of a day at a thousand tuples a second would take many cores; here a busy engine is asked for too much.
    fast = dropping(replace(TRIAL, streams=replace(STREAMS, rates=(60_000, 60_000)), size=200))
    assert fast.found == fast.expected
    assert min(fast.numbers["dropped"]) > 0


def test_load_scales_the_windows_of_a_prediction():
    half = Load(STREAMS.rates, tuple(rows / 2 for rows in STREAMS.load.held_rows))
    whole, less = (layout_cost(Layout((2, 2)), load).probed_rows for load in (STREAMS.load, half))
    assert less == pytest.approx(whole / 2)
