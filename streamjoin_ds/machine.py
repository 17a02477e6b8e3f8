"""What this process may use of its machine, as the system and its control groups allow, and how a process is named.

It also keeps from a process of our own what that does not need (`share_heap`, `spare_pandas`), and gives free memory
back (`FreedMemory`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from streamjoin_ds.errors import MALFORMED

__all__ = [
    "FreedMemory",
    "control_group_folders",
    "give_back",
    "is_private",
    "mallopt",
    "map_limit",
    "memory_limit_bytes",
    "open_files_hint",
    "process_began",
    "process_facts",
    "process_told",
    "resident_bytes",
    "share_heap",
    "spare_pandas",
    "worker_count",
]

_PROC = Path("/proc")
_UNKNOWN_MEMORY_BYTES = 8 << 30  # 8 GiB, assumed where the system does not tell the machine's memory
_LONGEST_TOLD = 400  # a host has at most 255 characters
_M_ARENA_MAX = -8  # glibc's malloc.h
_MUCH_BYTES = 64 << 20  # of memory that a process holds more, from which on it looks what of it is free
_USUAL_MAPS = 65_530  # Linux's default of vm.max_map_count


def memory_limit_bytes(proc: Path = _PROC) -> int:
    """Return how many bytes of memory this process may use.

    This is the machine's memory, or the smallest limit of the control groups around this process where that is less.

    Parameters
    ----------
    proc : Path
        Where the proc file system is mounted.
    """
    try:
        limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (ValueError, OSError):
        limits = [_UNKNOWN_MEMORY_BYTES]
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    found = (_number(folder / name) for folder in control_group_folders("memory", proc) for name in names)
    return min([*limits, *(limit for limit in found if limit)])


def map_limit(proc: Path = _PROC) -> int:
    """Return how many files and areas the system lets one process map (Linux's ``vm.max_map_count``)."""
    return _number(proc / "sys/vm/max_map_count") or _USUAL_MAPS


def process_began(process_id: int, proc: Path = _PROC) -> str:
    """Return when a process began, as the system counts it; empty where there is no such process, or nobody tells.

    It tells two processes that had the same number apart.
    """
    try:
        return (proc / str(process_id) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_private(folder: Path) -> bool:
    """Whether a path is a folder, no link to one, that belongs to this user, and that nobody else may look into.

    So it is for folders with known names where others may write, such as that for temporary files: whoever is first
    there makes them.
    """
    try:
        facts = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def open_files_hint(error: OSError) -> str:
    """Return what to do where an error says that no more files may be open; "" for any other error."""
    hints = {
        errno.EMFILE: "this process has as many files open as it may: ulimit -n says how many, lsof which; start anew",
        errno.ENFILE: "all processes have as many files open as the system allows (fs.file-max): raise it; start anew",
    }
    return hints.get(error.errno or 0, "")


def worker_count(proc: Path = _PROC, parent: int | None = None) -> int:
    """Return how many living processes the parent of this process has started, this one included.

    In Spark the parent is the Python daemon, and these are its workers. Where the system does not tell, the answer
    is 1.
    """
    parent = os.getppid() if parent is None else parent
    try:
        return max(1, len((proc / f"{parent}/task/{parent}/children").read_text(encoding="ascii").split()))
    except (OSError, ValueError):
        return 1


@cache
def control_group_folders(controller: str, proc: Path = _PROC) -> tuple[Path, ...]:
    """Return the folders of the control groups that this process is in, of versions 1 and 2, innermost groups first.

    They are looked for once: each batch asks what the groups allow.

    Parameters
    ----------
    controller : str
        "cpu" or "memory": which hierarchy of version 1 to look in. Version 2 has one hierarchy for all controllers.
    """
    return tuple(_group_folders(controller, proc))


def _group_folders(controller: str, proc: Path) -> Iterator[Path]:
    try:
        mounts = (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines()
        groups = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in groups:
        _, controllers, group = line.split(":", 2)
        for root, mounted in _mounts(mounts, controllers.split(",") if controllers else None, controller):
            # A container sees its own group as the mount's root. The name it is told may still be the one outside.
            inside = group.removeprefix(root) if group == root or group.startswith(f"{root.rstrip('/')}/") else ""
            folder = mounted / inside.lstrip("/")
            yield from (path for path in (folder, *folder.parents) if path.is_relative_to(mounted))


def _mounts(lines: list[str], controllers: list[str] | None, wanted: str) -> Iterator[tuple[str, Path]]:
    """Yield root and mount point of each mount of one hierarchy.

    `controllers` are the hierarchy's controllers in version 1, None for version 2. Nothing is yielded for a hierarchy
    of version 1 without the controller `wanted`.
    """
    if controllers is not None and wanted not in controllers:
        return
    for line in lines:
        head, _, tail = line.partition(" - ")
        facts, kind = head.split(), tail.split()
        if len(facts) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" if controllers is None else kind[0] == "cgroup" and wanted in kind[2].split(","):
            yield facts[3], Path(facts[4])


def _number(path: Path) -> int | None:
    """Return the whole number in a file, or None where there is none: the file says "max", or does not exist."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def process_facts() -> dict[str, object]:
    """Return by which facts others find this process, and since when it has what they are left in, as JSON values."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since}


def process_told(facts: bytes) -> str:
    """Return which process it is, for messages, from the JSON text of its `process_facts`."""
    try:
        known = json.loads(facts)
        since = f", since {known['since']}" if known.get("since") else ""  # older versions did not say
        told = f"process {int(known['pid'])} on {known['host']}{since}"
        return told if told.isprintable() and len(told) < _LONGEST_TOLD else "another process"
    except MALFORMED:
        return "another process"


class _NoPandas:
    """A finder of modules by which there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            msg = "No module named 'pandas'"
            raise ModuleNotFoundError(msg, name=name)


def spare_pandas() -> None:
    """Keep pandas out of this process, which must be one that uses none: it looks from now on as if not installed.

    Arrow imports it for its first array, where it is installed: a fifth of the CPU time of a short ``run --local``
    (measured: 2.3 to 1.9 s), and 30 MB. Where it was imported before, it stays.
    """
    if "pandas" not in sys.modules and _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


def share_heap() -> bool:
    """Have the threads that this process makes from now on share its heap. Return whether that took effect.

    By default glibc has eight heaps for each core, gives a new thread one that is free, and keeps in each what was
    freed there. A batch has threads of its own. And the heaps of threads give memory back, whatever the thresholds are
    (`reuse_freed_memory`): with one heap, from which runs come too, ``run --local`` takes an eighth less CPU time and
    memory where the input is the limit (measured). Without glibc this does nothing.
    """
    return mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Give the system the free memory that the allocators hold: after a rebuild that is half as much as a window."""
    import ctypes

    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


class FreedMemory:
    """What a process holds that reuses freed memory, given back while it has nothing to do.

    After a backlog it holds what the largest batch took.
    """

    def __init__(self) -> None:
        self._held_bytes = 0

    def give_back(self) -> None:
        """Give free memory back, if much has come since the last time."""
        if resident_bytes() - self._held_bytes > _MUCH_BYTES:
            give_back()
            self._held_bytes = resident_bytes()


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def mallopt(option: int, value: int) -> bool:
    """Set an option of glibc's allocator, a number of its malloc.h. Return whether that took effect."""
    import ctypes

    try:
        return bool(ctypes.CDLL(None).mallopt(option, value) == 1)
    except (OSError, AttributeError):  # not glibc
        return False
