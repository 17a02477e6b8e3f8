"""The cores and threads of a batch: how many this process may use, how many a batch needs, which ones it leases.

::

    new tuples x cost of one  =  work  ──► one thread for each 20 ms of it, `most` at most      (demand)
         ▲             ▲
    of this batch   of the batches before, in this process

    worker 1 ──► lock core 0, core 1 ──► affinity {0, 1} ──► kernel threads                     (lease)
    worker 2 ──► lock core 2, core 3 ──► affinity {2, 3} ──► kernel threads

*Demand.* CellJoin compares the rate at which tuples come with the rate at which they are joined, and takes or frees a
processor (Gedik et al., 2007, section 7.3). A batch has all its tuples when it begins, so its work is known before it
is done: a stream that grows makes larger batches, and these ask for more threads. A number of threads is kept until it
is clearly too large or too small. What was measured is in memory only: a process that knows nothing begins with a usual
cost.

*Lease.* Cores are leased by lock files, so that workers of one machine do not share them. A lease is a file lock
(``flock``): the system ends it when the process dies, whatever the cause. The cores are those that this process may use
(its affinity or cpuset). One hardware thread of each physical core comes before the others.

Threads run unpinned, perhaps slower but never wrong, where too few cores are free, where the system lacks affinity or
such locks, and where a control group allows less time than the cores have. In the last case the cores are shared with
others, whose locks are not seen here. A cell's batch has fewer threads instead, where others have the cores
(`leased_threads`).

In Spark, threads are pinned to all cores of their lease, not one thread to each core. Else a thread that waited for its
one core, while the Java process or the worker's own thread was on it, kept the whole batch waiting (measured with 2
cores, full windows, 60 000 rows a batch: p90 of a cell was 0.9 s, and 0.3 s with all cores; p50 of small triggers was
the same). Where the join has the process to itself, the caller works too. It stays on the first core while the other
threads work on the rest. Else virtual machines wake a thread on the core of the thread that woke it (measured: no
faster than one thread).
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import tempfile
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from streamjoin_ds.engine.tuning import DEFAULT, ThreadTuning
from streamjoin_ds.machine import control_group_folders, is_private

__all__ = [
    "ThreadDemand",
    "control_group_cores",
    "cores_to_lease",
    "free_cores",
    "leased_cores",
    "leased_threads",
    "pin_threads",
    "staying_on",
    "usable_core_count",
]

_FOLDER = "streamjoin-ds-cores"
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable_core_count() -> int:
    """Return how many cores this process may use: its affinity, or what a control group allows if less; 1 at least."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_cores()
    return max(1, affinity if quota is None else min(affinity, math.ceil(quota)))


def control_group_cores() -> float | None:
    """Return how many cores' worth of time the control groups allow; None: no limit.

    It is the least that any group allows, of version 1 or 2, the outer ones too.
    """
    limits = [
        limit
        for folder in control_group_folders("cpu")
        for limit in (_cpu_max(folder / "cpu.max"), _cpu_quota(folder))
        if limit is not None
    ]
    return min(limits, default=None)


def _cpu_max(path: Path) -> float | None:
    try:
        quota_us, period_us = path.read_text(encoding="ascii").split()
        return None if quota_us == "max" else int(quota_us) / int(period_us)
    except (OSError, ValueError):
        return None


def _cpu_quota(folder: Path) -> float | None:
    """Return what a group of version 1 allows; None: no limit (a quota of -1)."""
    try:
        quota_us, period_us = (
            int((folder / name).read_text(encoding="ascii")) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        return quota_us / period_us if quota_us > 0 and period_us > 0 else None
    except (OSError, ValueError):
        return None


class ThreadDemand:
    """What the cells of one join asked for and cost so far, in this process.

    Parameters
    ----------
    tuning : ThreadTuning

    Attributes
    ----------
    row_ns : float
        What a new tuple costs, in nanoseconds of all threads together.
    """

    def __init__(self, tuning: ThreadTuning = DEFAULT.threads) -> None:
        self._tuning = tuning
        self.row_ns = tuning.first_row_ns
        self._is_known = False
        self._last: dict[int, int] = {}

    def wanted(self, cell: int, rows: int, most: int) -> int:
        """Return how many threads a cell's batch of so many new tuples asks for: 1 to `most`."""
        worth = rows * self.row_ns / self._tuning.worth_ns
        last = min(self._last.get(cell, 1), most)
        is_right = self._tuning.kept_share * last <= worth < last + 1
        self._last[cell] = wanted = last if is_right else max(1, min(int(worth), most))
        return wanted

    def did(self, rows: int, cpu_ns: int) -> None:
        """Learn what a batch of so many new tuples cost, in nanoseconds of all threads together."""
        if rows:
            row_ns = cpu_ns / rows
            weight = self._tuning.cost_weight if self._is_known else 1.0
            self.row_ns += weight * (row_ns - self.row_ns)
            self._is_known = True


@contextlib.contextmanager
def pin_threads(count: int, folder: Path | None = None) -> Iterator[tuple[int, ...]]:
    """Pin the calling thread to `count` cores that no other holder of a lease has, while the context lasts.

    Threads that it makes meanwhile are pinned too. Threads that exist already keep their affinity, so make thread pools
    inside.

    Parameters
    ----------
    count : int
    folder : Path, optional
        The folder of the lock files, the same for all processes that must not share cores. Default: one for each user.

    Yields
    ------
    tuple of int
        The cores; empty where threads run unpinned.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    with leased_cores(count, folder) as cores:
        if not cores:
            yield ()
            return
        try:
            os.sched_setaffinity(0, cores)
        except OSError:  # a cpuset that changed meanwhile
            yield ()
            return
        try:
            yield cores
        finally:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)


def _pin(cores: Set[int]) -> None:
    """Pin the calling thread alone."""
    with contextlib.suppress(AttributeError, OSError):  # no affinity here; a cpuset that changed meanwhile
        if cores:
            os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def staying_on(cores: Sequence[int]) -> Iterator[None]:
    """Keep the calling thread, and threads that it makes, on these cores while the context lasts; none: anywhere."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    _pin(frozenset(cores))
    try:
        yield
    finally:
        _pin(before)


@contextlib.contextmanager
def leased_cores(
    count: int, folder: Path | None = None, *, least: int | None = None, usable: Sequence[int] | None = None
) -> Iterator[tuple[int, ...]]:
    """Lease `count` of the cores that this process may use, or those that are free; where these are too few, none.

    A lease ends with the context, or with the process.

    Parameters
    ----------
    count : int
    folder : Path, optional
        As for `pin_threads`.
    least : int, optional
        How many cores are enough. Default: `count`.
    usable : sequence of int, optional
        The answer of `cores_to_lease`, where the caller has it.
    """
    with contextlib.ExitStack() as stack:
        cores: list[int] = []
        try:
            place = _made(folder)
            for core in cores_to_lease() if usable is None else usable:
                if len(cores) == count:
                    break
                if stack.enter_context(_locked(place, core)):
                    cores.append(core)
        except (ImportError, OSError):  # no such locks, nowhere to write
            cores = []
        if len(cores) < (count if least is None else least):
            stack.close()
            cores = []
        yield tuple(sorted(cores))


@contextlib.contextmanager
def leased_threads(wanted: int, fair: int, *, pin: bool = True) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Lease cores for several threads, as many as are free; yield how many threads there are to be, and their cores.

    No cores: the threads run unpinned. That is so for one thread, and where nothing can be leased. It is also so where
    others have so many cores that fewer than `fair`, or fewer than two, are free: then `fair` threads run beside them.

    Parameters
    ----------
    wanted : int
        How many threads have enough to do.
    fair : int
        How many may run whatever others do: the machine's cores, divided among all that may ask.
    pin : bool
        Whether to lease at all.
    """
    usable = cores_to_lease() if wanted > 1 and pin else ()
    if not usable:
        yield wanted, ()
        return
    unpinned = max(1, min(wanted, fair))
    with leased_cores(wanted, least=max(2, unpinned), usable=usable) as cores:
        yield len(cores) or unpinned, cores


def free_cores(folder: Path | None = None) -> tuple[int, ...]:
    """Return those of `cores_to_lease` that nobody has leased at the moment; none where there can be no lease."""
    try:
        place, free = _made(folder), []
        for core in cores_to_lease():
            with _locked(place, core) as is_ours:
                free += [core] if is_ours else []
    except (ImportError, OSError):
        return ()
    return tuple(free)


def cores_to_lease() -> tuple[int, ...]:
    """Return the cores that this process may lease, in the order of leasing; none where threads run unpinned."""
    if not hasattr(os, "sched_setaffinity"):
        return ()
    usable = os.sched_getaffinity(0)
    allowed = control_group_cores()
    if allowed is not None and allowed < len(usable):
        return ()
    return tuple(sorted(usable, key=lambda core: (_rank_among_siblings(core, usable), core)))


def _rank_among_siblings(core: int, usable: set[int]) -> int:
    """Return how many usable hardware threads of the same physical core come before this one."""
    try:
        with open(_SIBLINGS.format(core), encoding="ascii") as file:
            siblings = _listed(file.read())
    except (OSError, ValueError):  # not Linux, or a sandbox that hides it
        return 0
    return sum(other < core for other in siblings & usable)


def _listed(text: str) -> set[int]:
    """Return the numbers in a list such as ``"0-2,8"``."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return {core for low, *high in ends for core in range(int(low), int(high[0] if high else low) + 1)}


@contextlib.contextmanager
def _locked(place: Path, core: int) -> Iterator[bool]:
    """Hold a core's lock while the context lasts, if nobody else does; yield whether it is held."""
    import fcntl

    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(place / f"core-{core}.lock", flags, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            try:
                yield True
            finally:
                # Unlocked explicitly: a process that was forked meanwhile has the descriptor too, and would hold on.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _made(folder: Path | None) -> Path:
    """Return the folder of the locks; raise OSError where another user has made it, or may write to it."""
    has_users = hasattr(os, "getuid")
    user = os.getuid() if has_users else 0
    place = folder if folder is not None else Path(tempfile.gettempdir()) / f"{_FOLDER}-{user}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder is None and has_users and not is_private(place):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(place))
    return place
