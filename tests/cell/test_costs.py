"""Costs on their way to the cells: the driver measures where windows stay inline, and every cell has what it sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamjoin_ds.cell import cell_windows
from streamjoin_ds.cell.cell_windows import CellWindows, costs_of, measured_costs
from streamjoin_ds.engine.cost_model import OperationCosts, best_sizes
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.plan import Execution, Layout, Plan
from tests.engine.streams import band_join, tuples

COSTS = OperationCosts(scanned_row_ns=0.6, probed_run_ns=40.0, sealed_run_ns=3e5)
OTHER = OperationCosts(scanned_row_ns=4.0, probed_run_ns=40.0, sealed_run_ns=3e5)


def plan_with(costs: OperationCosts | None, **more: object) -> Plan:
    told = () if costs is None else tuple(sorted(costs.to_facts().items()))
    return Plan(band_join(window="1h"), Layout((1, 1)), 1, "packed", costs=told, **more)  # type: ignore[arg-type]


def test_cells_have_the_sizes_of_the_costs_that_the_plan_carries() -> None:
    plan = Plan.from_json(plan_with(COSTS).to_json())
    assert costs_of(plan) == COSTS
    assert CellWindows(plan, 0, None).engine.forms[0].tail_rows == best_sizes(COSTS).seal_rows < DEFAULT.tail.rows
    assert costs_of(plan_with(None)) is None
    assert CellWindows(plan_with(None), 0, None).engine.forms[0].tail_rows == DEFAULT.tail.rows


def test_windows_in_blocks_keep_the_usual_sizes(tmp_path: Path) -> None:
    in_blocks = plan_with(COSTS, state_root=str(tmp_path))
    assert CellWindows(in_blocks, 0, None).engine.forms[0].tail_rows == DEFAULT.tail.rows


@pytest.mark.parametrize(("before", "after"), [(None, OTHER), (COSTS, OTHER), (OTHER, None)])
def test_a_start_goes_on_from_a_state_of_other_costs(
    before: OperationCosts | None, after: OperationCosts | None
) -> None:
    plan = plan_with(before)
    first = CellWindows(plan, 0, None)
    batch = {s: tuples(plan.bound, s, 900) for s in (0, 1)}
    list(first.engine.push(batch))
    blob = first.saved(0, [10**6, 10**6], None)
    later = CellWindows(plan_with(after), 0, blob)
    assert later.engine.state_rows == 1800
    assert later.engine.counters["matches"] == first.engine.counters["matches"]
    assert sum(chunk.num_rows for chunk in later.engine.push({0: tuples(plan.bound, 0, 50, seq=900)})) > 0


def test_costs_are_measured_only_where_a_choice_depends_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fitted(bound: object, kernel: str) -> OperationCosts:
        asked.append(kernel)
        return COSTS

    monkeypatch.setattr(cell_windows, "fitted_costs", fitted)
    bound = band_join()
    assert measured_costs(bound, Execution(), "/somewhere/blocks") == ()
    foreign = Execution(kernel="avx512")
    monkeypatch.setattr(cell_windows, "kernel_names", lambda: ("auto", "reference"))
    assert measured_costs(bound, foreign, "") == ()
    assert not asked
    assert dict(measured_costs(bound, Execution(), "")) == COSTS.to_facts()
    assert asked == ["auto"]
    monkeypatch.setattr(cell_windows, "fitted_costs", lambda *_: None)
    assert measured_costs(bound, Execution(), "") == ()
