"""DuckDB's side in this process, and the process, protocol and measurement of any side."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from streamjoin_ds.errors import DependencyMissingError
from tests.bench.suites.oracle import count_matches
from tests.bench.suites.paths.inputs import slice_input
from tests.bench.suites.paths.side_process import SideProcess
from tests.bench.suites.processes import BenchError, TreeUse, load_psutil
from tests.bench.suites.sides import LOCAL, SideTask, make_side
from tests.bench.suites.workloads import make_workload

_ROWS = 3_000


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return slice_input(make_workload("band2d-small", None, _ROWS), tmp_path_factory.mktemp("input"))


@pytest.fixture
def task(given, tmp_path):
    return SideTask("band2d-small", None, _ROWS, given.folder, str(tmp_path), 8, 60)


def _expected(given, slices):
    workload = make_workload("band2d-small", None, _ROWS)
    return count_matches(workload.join, *(given.table(stream, slices) for stream in given.streams))


@pytest.mark.parametrize("side", ["duckdb", "duckdb-large"])
@pytest.mark.parametrize("slices", [1, 3, 8])
def test_duckdb_finds_the_matches_of_the_slices_it_is_given(given, task, slices, side):
    outcome = make_side(side).run(replace(task, slices=slices))
    assert outcome.rows == given.row_count(slices)
    assert outcome.matches == _expected(given, slices)
    assert outcome.until_us == given.ends_us[slices - 1]
    if side == "duckdb-large":
        assert outcome.batches == slices


def test_ours_without_spark_finds_the_matches_of_all_slices(given, task):
    outcome = make_side(LOCAL).run(task)
    assert (outcome.rows, outcome.matches, outcome.until_us) == (given.row_count(8), _expected(given, 8), None)
    assert outcome.batches == 8
    assert 0 < outcome.seconds < 60


def test_duckdb_stops_when_its_time_is_over(given, task):
    outcome = make_side("duckdb").run(replace(task, limit_s=0))
    assert (outcome.rows, outcome.batches, outcome.matches) == (0, 0, 0)


@pytest.mark.slow
def test_a_side_in_its_own_process_answers_and_is_measured(given, task, tmp_path):
    with SideProcess("duckdb", tmp_path / "log") as process:
        run = process.run(task, within_s=120)
    assert run.outcome.matches == _expected(given, 8)
    assert run.cpu_seconds > 0
    assert run.peak_mib > 20
    assert run.rows_per_second == run.outcome.rows / run.outcome.seconds


@pytest.mark.slow
def test_a_side_that_fails_says_so_and_where_its_words_are(task, tmp_path):
    with (
        SideProcess("duckdb", tmp_path / "log") as process,
        pytest.raises(BenchError, match=r"the side duckdb failed: .*no-such-folder") as failed,
    ):
        process.run(replace(task, input_folder="/no-such-folder"), within_s=120)
    assert str(tmp_path / "log") in failed.value.hint
    assert "Traceback" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_side_that_does_not_start_is_told_from_one_that_does(tmp_path):
    with pytest.raises(BenchError, match="no-such-side"), SideProcess("no-such-side", tmp_path / "log"):
        pass


@pytest.mark.slow
def test_a_side_that_takes_too_long_is_ended(task, tmp_path):
    with SideProcess("duckdb", tmp_path / "log") as process:
        with pytest.raises(BenchError, match="not ready within 0 s"):
            process.run(task, within_s=0)
        process_id = process._child.process_id
    assert not load_psutil().pid_exists(process_id)


def test_the_use_of_a_tree_is_that_of_its_children():
    """The root's use includes the 200 MiB and the CPU time of its child, though the child has ended."""
    burn = (
        "import time; kept = b'x' * (200 << 20); end = time.process_time() + 0.6\nwhile time.process_time() < end: pass"
    )
    root = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('done', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", root], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with TreeUse(process.pid) as use:
            process.stdout.readline()
        process.communicate(b"\n")
    assert use.peak_bytes > 200 << 20
    assert 0.5 < use.cpu_seconds < 60


def test_the_use_of_a_tree_that_idles_is_little():
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        began = time.process_time()
        with TreeUse(process.pid) as use:
            while time.process_time() < began + 0.3:
                pass
        process.communicate(b"\n")
    assert use.cpu_seconds < 0.2  # the CPU time of this process does not count as the tree's,
    assert use.others_cores > 0.1  # but as that of other programs


def test_without_psutil_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(DependencyMissingError, match="make bench"):
        load_psutil()
