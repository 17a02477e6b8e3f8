"""Leases of cores: never shared, given back, and nothing worse than unpinned threads where they cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streamjoin_ds.engine.pinning import leased_cores, pin_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")


def test_cores_are_not_leased_twice_and_come_back(tmp_path):
    usable = sorted(os.sched_getaffinity(0))
    with leased_cores(1, tmp_path) as first:
        assert first == (usable[0],)
        with leased_cores(len(usable), tmp_path) as all_of_them:
            assert all_of_them == ()
        with leased_cores(len(usable) - 1, tmp_path) as others:
            assert set(others) == set(usable[1:])
    with leased_cores(len(usable), tmp_path) as again:
        assert again == tuple(usable)


def test_affinity_is_set_and_restored(tmp_path):
    before = os.sched_getaffinity(0)
    with pin_threads(1, tmp_path) as cores:
        assert os.sched_getaffinity(0) == set(cores)
        assert len(cores) == 1
    assert os.sched_getaffinity(0) == before


def test_too_many_or_nowhere_to_lock_is_unpinned(tmp_path):
    before = os.sched_getaffinity(0)
    with pin_threads(len(before) + 1, tmp_path) as cores:
        assert cores == ()
        assert os.sched_getaffinity(0) == before
    (tmp_path / "file").write_text("")
    with pin_threads(1, tmp_path / "file" / "below") as cores:
        assert cores == ()


def test_a_process_that_dies_gives_its_lease_back(tmp_path):
    code = (
        "import sys, pathlib; from streamjoin_ds.engine.pinning import leased_cores\n"
        "with leased_cores(1, pathlib.Path(sys.argv[1])) as cores: print(len(cores), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    usable = len(os.sched_getaffinity(0))
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    with leased_cores(usable, tmp_path) as cores:
        assert cores == ()
    process.kill()
    process.communicate()
    with leased_cores(usable, tmp_path) as cores:
        assert len(cores) == usable
