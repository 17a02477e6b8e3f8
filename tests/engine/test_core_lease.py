"""How many cores there are, and leases of them: never shared, and given back; else threads are not pinned."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamjoin_ds.engine import core_lease as module
from streamjoin_ds.engine import core_lease as pinning
from streamjoin_ds.engine.core_lease import (
    cores_to_lease,
    free_cores,
    leased_cores,
    pin_threads,
    staying_on,
    usable_core_count,
)
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution

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


def test_locks_in_a_folder_that_others_may_write_to_are_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with leased_cores(1) as cores:
        assert len(cores) == 1
    [place] = tmp_path.iterdir()
    place.chmod(0o777)
    with leased_cores(1) as cores:
        assert cores == ()
    assert free_cores() == ()


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
        "import sys, pathlib; from streamjoin_ds.engine.core_lease import leased_cores\n"
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


def test_a_lease_ends_with_its_context_though_a_child_lives_on(tmp_path: Path) -> None:
    """The forked child has the lock's descriptor too, but the lease is the context's."""
    with leased_cores(1, tmp_path) as cores:
        assert len(free_cores(tmp_path)) == len(os.sched_getaffinity(0)) - 1
        child = os.fork()
        if not child:
            threading.Event().wait()
    try:
        assert set(free_cores(tmp_path)) >= set(cores)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_lease_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), leased_cores(1, tmp_path):
        raise ZeroDivisionError
    assert len(free_cores(tmp_path)) == len(os.sched_getaffinity(0))


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    core = cores_to_lease()[0]
    (tmp_path / f"core-{core}.lock").symlink_to(tmp_path / "elsewhere")
    with leased_cores(1, tmp_path) as cores:
        assert cores == ()
    assert not (tmp_path / "elsewhere").exists()


def test_each_physical_core_comes_before_its_second_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for core, siblings in enumerate(["0-1", "0-1", "2,3", "2,3", "4", "5,7", "6"]):
        (tmp_path / str(core)).write_text(f"{siblings}\n")
    monkeypatch.setattr(pinning, "_SIBLINGS", f"{tmp_path}/{{}}")
    monkeypatch.setattr(pinning, "control_group_cores", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5, 9})
    # 7, the sibling of 5, is not ours. Of 9 the system says nothing.
    assert cores_to_lease() == (0, 2, 4, 5, 9, 1, 3)


@pytest.mark.parametrize(("allowed", "is_any"), [(None, True), (0.5, False), (1e6, True)])
def test_time_shared_with_others_is_unpinned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: float | None, is_any: bool
) -> None:
    monkeypatch.setattr(pinning, "control_group_cores", lambda: allowed)
    assert bool(cores_to_lease()) == is_any
    with leased_cores(1, tmp_path) as cores:
        assert bool(cores) == is_any


@pytest.mark.parametrize("bucket_rows", [None, 1])
def test_a_join_pins_its_kernel_threads_and_its_caller_only_while_it_joins(bucket_rows: int | None) -> None:
    from tests.bench.suites.engine.feeds import band2d

    feed, usable = band2d(40_000), os.sched_getaffinity(0)
    cores = (min(usable), max(usable))
    before = {int(thread) for thread in os.listdir("/proc/self/task")}
    join = WindowJoin(feed.bound, execution=Execution(threads=2), cores=cores, bucket_rows=bucket_rows)
    pool = {int(thread) for thread in os.listdir("/proc/self/task")} - before
    assert len(pool) == 1
    # A join with bucket grids has the process for itself, and keeps each thread on a core of its own.
    expected = set(cores) if bucket_rows is None else set(cores[1:])
    assert all(os.sched_getaffinity(thread) == expected for thread in pool)
    for place in range(0, 80_000, 20_000):
        for _ in join.push({stream: feed.batch(stream, place, 20_000) for stream in (0, 1)}):
            assert os.sched_getaffinity(0) == usable
    assert os.sched_getaffinity(0) == usable
    # Arrow's own pool lives as long as the process: a pinned thread must not have started any of its threads.
    fresh = {int(thread) for thread in os.listdir("/proc/self/task")} - before
    assert all(os.sched_getaffinity(thread) == usable for thread in fresh - pool)


def test_a_thread_stays_on_a_core_for_as_long_as_the_context_lasts() -> None:
    before, core = os.sched_getaffinity(0), max(os.sched_getaffinity(0))
    with staying_on((core,)):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    for nothing in ((), (1 << 14,)):
        with staying_on(nothing):
            assert os.sched_getaffinity(0) == before


def test_an_engine_leases_its_cores_for_as_long_as_it_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.bench.suites.engine.feeds import band2d

    monkeypatch.setattr(pinning, "control_group_cores", lambda: None)
    monkeypatch.setattr(pinning.tempfile, "gettempdir", lambda: str(tmp_path))
    usable, bound = cores_to_lease(), band2d(1000).bound
    engines = [JoinEngine(bound, threads=len(usable) + 1), JoinEngine(bound), JoinEngine(bound, threads=2, cores=())]
    assert free_cores() == usable
    engines.append(JoinEngine(bound, threads=max(2, len(usable))))
    assert len(usable) < 2 or free_cores() == ()
    engines.clear()
    gc.collect()
    assert free_cores() == usable


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_cores_follow_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_core_count() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert 1 <= usable_core_count() <= len(allowed)


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (1.5, 2), (0.2, 1), (64.0, 4)])
def test_a_quota_counts_where_it_is_less(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(module, "control_group_cores", lambda: quota)
    assert usable_core_count() == cores


@pytest.mark.parametrize(("text", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("torn", None)])
def test_control_group_limit(tmp_path: Path, text: str, cores: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert module._cpu_max(tmp_path / "cpu.max") == cores
    assert module._cpu_max(tmp_path / "absent") is None
