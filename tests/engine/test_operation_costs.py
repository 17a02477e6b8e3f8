"""Costs as plain values and back, and which of them can be believed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from streamjoin_ds.engine.cost_model import USUAL_COSTS, OperationCosts


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
