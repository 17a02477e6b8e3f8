"""Trials of whole queries in this process: exact, shipped as the layouts cost, and read in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.query_trials import changing, moving, reading_in_order
from tests.bench.suites.figures.trial import Trial

# In a half-life of the rates' estimates, a sixteenth of a window, the slower stream must have 100 records.
STREAMS = BandStreams((60, 1_200), (20, 20), eps=200, seed=3)
MOVING = Trial("moving", streams=STREAMS, cells=4, size=6_000, layout="2x2", runs=1)
EQUAL = replace(MOVING, streams=BandStreams((100, 100), (4, 4), eps=300, seed=3), size=200)


@pytest.fixture(scope="module")
def fixed():
    return moving(MOVING)


def test_a_fixed_layout_ships_what_it_costs(fixed):
    assert fixed.found == fixed.expected > 0
    read = 3 * 20 * 60 * 2 + 6 * 20 * (60 + 1_200)
    assert fixed.numbers["read"] == [read]
    assert fixed.numbers["predicted_shipped"] == [2.0 * read]
    assert fixed.numbers["shipped"] == pytest.approx(fixed.numbers["predicted_shipped"], rel=0.02)
    assert 0 < fixed.numbers["seconds"][0] <= fixed.numbers["all_seconds"][0]


def test_an_adaptive_layout_finds_the_same_and_ships_less(fixed):
    adaptive = moving(replace(MOVING, layout="adaptive"))
    assert adaptive.found == adaptive.expected == fixed.found
    assert adaptive.numbers["read"] == fixed.numbers["read"]
    assert adaptive.numbers["predicted_shipped"][0] <= adaptive.numbers["shipped"][0]
    assert adaptive.numbers["shipped"][0] < 0.95 * fixed.numbers["shipped"][0]


def test_a_change_of_layout_has_its_batches():
    outcome = changing(replace(EQUAL, kind="changing", layout="1x4"))
    assert outcome.found == outcome.expected > 0
    assert set(outcome.numbers) == {"before_ms", "change_ms", "both_ms", "after_ms"}
    assert all(values[0] > 0 for values in outcome.numbers.values())


def test_the_reader_in_order_holds_about_a_batch():
    outcome = reading_in_order(replace(EQUAL, kind="reading"))
    assert outcome.found == outcome.expected > 0
    numbers = {name: values[0] for name, values in outcome.numbers.items()}
    assert numbers["batch"] <= numbers["buffer"] < 2 * numbers["batch"]
    assert numbers["buffer"] < numbers["window"] <= outcome.found
