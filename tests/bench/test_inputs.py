from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.bench.suites.paths.inputs import SlicedInput, slice_input
from tests.bench.suites.workloads import make_workload

_DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def workload():
    return make_workload("band2d-small", None, 1_000)


def test_slices_are_cut_at_the_same_event_times(workload, tmp_path):
    given = slice_input(workload, tmp_path)
    assert SlicedInput.load(str(tmp_path)) == given
    assert given.row_count(workload.slices) == 2_000
    for stream in ("r", "s"):
        whole = given.table(stream, workload.slices)
        assert whole.num_rows == 1_000
        assert pc.all(pc.equal(whole["ts"], whole.sort_by("ts")["ts"])).as_py()
        for number, end_us in enumerate(given.ends_us):
            before = given.table(stream, number + 1)["ts"].cast(pa.int64())
            assert pc.max(before).as_py() < end_us
            assert len(before) == pc.sum(pc.less(whole["ts"].cast(pa.int64()), end_us)).as_py()


def test_the_window_in_tuples_counts_both_streams(workload, tmp_path):
    # 1 000 tuples a second for half a second, both ends included, are 501 tuples of each stream.
    assert slice_input(workload, tmp_path).window_rows == 1_002


def test_the_peers_part_is_the_beginning_of_the_whole(workload, tmp_path):
    whole = slice_input(workload, tmp_path / "whole")
    part = slice_input(replace(workload, peer_rows=300), tmp_path / "part")
    assert (whole.whole, part.whole) == (True, False)
    for stream in ("r", "s"):
        assert part.table(stream, workload.slices) == whole.table(stream, workload.slices).slice(0, 300)


@pytest.mark.shared
@pytest.mark.skipif(not _DATA.is_dir(), reason="../shared/data is not here")
def test_recorded_data_are_taken_whole(tmp_path):
    workload = make_workload("flights", _DATA)
    assert slice_input(workload, tmp_path).row_count(workload.slices) == 60_015 + 79_083
