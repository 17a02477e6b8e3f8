"""The limits of a process, read from fake /proc and control groups like those of machines and containers."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from streamjoin_ds.engine import core_lease
from streamjoin_ds.machine import (
    control_group_folders,
    map_limit,
    memory_limit_bytes,
    open_files_hint,
    worker_count,
)

MIB = 1 << 20


def made(folder: Path, mounts: list[str], groups: list[str], files: dict[str, str]) -> Path:
    """Make a /proc whose mounts lie in `folder`, and return its path."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/mountinfo").write_text("".join(f"{line.format(at=folder)}\n" for line in mounts))
    (proc / "self/cgroup").write_text("".join(f"{line}\n" for line in groups))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc


V2 = "31 23 0:28 / {at}/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw"
V1 = "35 31 0:32 / {at}/cg/memory rw,relatime - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "limit_mib"),
    [
        ([V2], ["0::/a/b"], {"cg/a/memory.max": "max\n", "cg/a/b/memory.max": f"{300 * MIB}\n"}, 300),
        # The outer group is the narrower one.
        ([V2], ["0::/a/b"], {"cg/a/memory.max": f"{200 * MIB}\n", "cg/a/b/memory.max": f"{300 * MIB}\n"}, 200),
        ([V2], ["0::/a"], {"cg/a/memory.high": f"{100 * MIB}\n", "cg/a/memory.max": f"{300 * MIB}\n"}, 100),
        (
            [V1, V2.replace("/cg ", "/cg/unified ")],
            ["4:memory:/x/y", "0::/"],
            {"cg/memory/x/memory.limit_in_bytes": f"{64 * MIB}\n", "cg/memory/memory.limit_in_bytes": f"{1 << 62}\n"},
            64,
        ),
        # In a container the group is the mount's root, but /proc gives the name that the group has outside.
        (
            [V1.replace(" / ", " /docker/1f ")],
            ["4:memory:/docker/1f"],
            {"cg/memory/memory.limit_in_bytes": f"{MIB}"},
            1,
        ),
        ([V1.replace(" / ", " /docker/1f ")], ["4:memory:/other"], {"cg/memory/memory.limit_in_bytes": f"{MIB}"}, 1),
        ([V1], ["7:cpu,cpuacct:/x"], {"cg/memory/memory.limit_in_bytes": f"{MIB}"}, None),
        (["torn"], ["0::/"], {}, None),
    ],
)
def test_memory_is_that_of_the_narrowest_group_around(
    tmp_path: Path, mounts: list[str], groups: list[str], files: dict[str, str], limit_mib: int | None
) -> None:
    found = memory_limit_bytes(made(tmp_path, mounts, groups, files))
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found == (whole if limit_mib is None else min(whole, limit_mib * MIB))


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert map_limit(tmp_path) == 65_530
    assert worker_count(tmp_path) == 1
    assert list(control_group_folders("cpu", tmp_path)) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cg/cpu/a/cpu.cfs_quota_us": "150000", "cg/cpu/a/cpu.cfs_period_us": "100000"}, 1.5),
        ({"cg/cpu/cpu.cfs_quota_us": "50000", "cg/cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cg/cpu/a/b/cpu.cfs_quota_us": "-1", "cg/cpu/a/b/cpu.cfs_period_us": "100000"}, None),
        ({"cg/cpu/a/b/cpu.max": "250000 100000"}, 2.5),
    ],
)
def test_cores_are_those_of_the_narrowest_group_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: float | None
) -> None:
    mount = "35 31 0:32 / {at}/cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
    proc = made(tmp_path, [mount], ["4:cpu,cpuacct:/a/b"], files)
    monkeypatch.setattr(core_lease, "control_group_folders", lambda name: control_group_folders(name, proc))
    assert core_lease.control_group_cores() == expected


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not tell")
def test_workers_of_one_daemon_are_counted() -> None:
    sleepers = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)]
    try:
        assert worker_count(parent=os.getpid()) >= 3
    finally:
        for sleeper in sleepers:
            sleeper.communicate(b"\n")
    assert worker_count() >= 1


def test_too_many_open_files_are_told_from_other_errors() -> None:
    assert "ulimit -n" in open_files_hint(OSError(errno.EMFILE, "Too many open files"))
    assert "file-max" in open_files_hint(OSError(errno.ENFILE, "Too many open files in system"))
    assert open_files_hint(OSError(errno.ENOSPC, "No space left on device")) == ""
    assert open_files_hint(OSError("of no number")) == ""


HEAPS = """
import ctypes, sys, threading
from streamjoin_ds.machine import share_heap

if sys.argv[1:]:
    assert share_heap()
gate = threading.Barrier(9)

def allocate():
    kept = ctypes.create_string_buffer(1 << 12)  # by malloc, in this thread's heap
    gate.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
gate.wait()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems have other heaps")
def test_threads_share_one_heap() -> None:
    def heaps(*arguments: str) -> int:
        told = subprocess.check_output([sys.executable, "-c", HEAPS, *arguments], text=True)
        return told.count("<heap nr=")

    assert heaps("shared") == 1
    assert heaps() > 2


FREED = """
import numpy as np, sys
from streamjoin_ds.blocks import reuse_freed_memory
from streamjoin_ds.machine import FreedMemory, resident_bytes

assert reuse_freed_memory()
freed, before = FreedMemory(), resident_bytes()
freed.give_back()
arrays = [np.ones(1 << 20) for _ in range(20)]
del arrays
held = resident_bytes()
freed.give_back()
print(held - before, resident_bytes() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems have other heaps")
def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    held, left = map(int, subprocess.check_output([sys.executable, "-c", FREED], text=True).split())
    assert held > 150 << 20 > 30 << 20 > left
