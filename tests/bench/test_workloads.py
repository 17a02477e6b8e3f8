from __future__ import annotations

import pytest

from streamjoin_ds.errors import ArgumentError
from tests.bench.suites.sides.sql import axes
from tests.bench.suites.workloads import WORKLOADS, make_workload


@pytest.mark.parametrize("name", ["band2d-small", "input-bound"])
def test_a_generated_workload_has_its_target_in_its_fixed_size_only(name):
    fixed, small = make_workload(name, None), make_workload(name, None, 500)
    assert fixed.target is not None
    assert fixed.matches is not None
    assert (small.target, small.matches, small.peer_rows) == (None, None, None)


def test_the_window_is_half_the_input():
    for rows in (None, 1_000):
        workload = make_workload("band2d-small", None, rows)
        source = workload.join.streams[0].source
        span_us = source.parameters["rows"] / source.parameters["rate"] * 1e6
        assert workload.join.window.extent(0) == workload.join.window.extent(1) == span_us / 2


@pytest.mark.parametrize("name", ["flights", "air"])
def test_recorded_data_that_are_not_there_leave_a_workload_out(name, tmp_path):
    assert make_workload(name, None) is None
    assert make_workload(name, tmp_path) is None


def test_an_unknown_workload_is_refused_by_name():
    with pytest.raises(ArgumentError, match="no workload 'band3d'") as refused:
        make_workload("band3d", None)
    assert all(name in refused.value.hint for name in WORKLOADS)


def test_cells_hold_every_partner():
    """A tuple is sent to the cell of every partner that it can have, also at the edges of cells."""
    [axis, _] = axes(make_workload("band2d-small", None).join, 1)
    assert axis.left_cell("v") == "floor(v / 10.0)"
    first, last = axis.right_cells("v")
    for value in (0.0, 9.999999, 10.0, 10.000001, 123.4, -10.0):
        lowest, highest = (eval(text, {"v": value, "floor": lambda x: x // 1}) for text in (first, last))
        for partner in (value - 10, value, value + 10):
            assert lowest <= partner // 10 <= highest
