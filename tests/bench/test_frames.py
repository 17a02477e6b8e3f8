"""The benchmark over DataFrames: its count, and one real run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.bench.results import bench
from tests.bench.suites.frames.frame_load import FrameLoad


def test_the_count_is_that_of_every_pair() -> None:
    load = FrameLoad(20_000, 3, 500)  # all of them are in one window
    left, right = (load.table(side) for side in (0, 1))
    found = 0
    for at in range(0, 20_000, 1_000):
        own = left.slice(at, 1_000)
        near = [abs(own[name].to_numpy()[:, None] - right[name].to_numpy()[None, :]) <= 10 for name in ("x", "y")]
        found += np.count_nonzero(near[0] & near[1])
    assert load.matches() == found > 0


def test_the_files_hold_the_tuples_in_the_order_of_their_times(tmp_path: Path) -> None:
    load = FrameLoad(100, 3, 500)
    load.write(tmp_path)
    files = sorted((tmp_path / "s").iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(files) == 3
    assert pq.read_table(files).equals(load.table(1))


@pytest.mark.campaign
@pytest.mark.spark
def test_a_quick_run(tmp_path: Path) -> None:
    done = bench("frames", "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)
    assert [one["measure"] for one in findings] == ["rows_per_second"] * 2 + ["start_over_dataframe"]
    assert all(one["value"] > 0 for one in findings)
