"""Threads on cores of their own: cores are leased by lock files, so that workers of one machine do not share them.

::

    worker 1 ──► lock core 0, core 1 ──► affinity {0, 1} ──► kernel threads
    worker 2 ──► lock core 2, core 3 ──► affinity {2, 3} ──► kernel threads

A lease is a file lock (``flock``): the system gives it up when the process dies, whatever the cause. Cores are those
that this process may use (its affinity or cpuset), one of each physical core before its other hardware threads. Where
too few are free, or the system knows neither affinity nor such locks, or a control group allows less time than the
cores have (they are shared then with others, whose locks are not seen), threads run unpinned: slower perhaps, never
wrong.

In Spark threads are pinned to all cores of their lease, not one to each: a thread that waited for its one core, while
the Java process or the worker's own thread was on it, kept the whole batch waiting (2 cores, full windows, 60 000 rows
a batch: p90 of a cell 0.9 s, and 0.3 s without; p50 of small triggers the same). Where the join has its process for
itself the caller, who works too, stays on the first core while others are at work on the rest: virtual machines else
wake a thread on the core of the one that woke it (measured: no faster than one thread).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from streamjoin_ds.engine.threads.cores import control_group_cores

__all__ = [
    "cores_to_lease",
    "free_cores",
    "leased_cores",
    "pin_threads",
    "staying_on",
]

_FOLDER = "streamjoin-ds-cores"
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@contextlib.contextmanager
def pin_threads(count: int, folder: Path | None = None) -> Iterator[tuple[int, ...]]:
    """Pin this process to so many cores that no other holder of a lease has, while the context lasts.

    Threads that exist already keep their affinity; make thread pools inside.

    Parameters
    ----------
    count : int
    folder : Path, optional
        Of the lock files; the same for all that shall not share cores. Default: one of this user's.

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
    """Keep the calling thread, and threads that it makes, on these cores while the context lasts; none: wherever."""
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
def leased_cores(count: int, folder: Path | None = None) -> Iterator[tuple[int, ...]]:
    """Lease so many of the cores that this process may use; all of them or, where too few are free, none.

    A lease ends with the context, or with the process.
    """
    with contextlib.ExitStack() as stack:
        cores: list[int] = []
        try:
            place = _made(folder)
            for core in cores_to_lease():
                if len(cores) == count:
                    break
                if stack.enter_context(_locked(place, core)):
                    cores.append(core)
        except (ImportError, OSError):  # no such locks, nowhere to write
            cores = []
        if len(cores) < count:
            stack.close()
            cores = []
        yield tuple(sorted(cores))


def free_cores(folder: Path | None = None) -> tuple[int, ...]:
    """Those of `cores_to_lease` that nobody has leased at the moment; none where there can be no lease."""
    try:
        place, free = _made(folder), []
        for core in cores_to_lease():
            with _locked(place, core) as is_ours:
                free += [core] if is_ours else []
    except (ImportError, OSError):
        return ()
    return tuple(free)


def cores_to_lease() -> tuple[int, ...]:
    """The cores that this process may lease, in the order in which it does; none where threads run unpinned."""
    if not hasattr(os, "sched_setaffinity"):
        return ()
    usable = os.sched_getaffinity(0)
    allowed = control_group_cores()
    if allowed is not None and allowed < len(usable):
        return ()
    return tuple(sorted(usable, key=lambda core: (_rank_among_siblings(core, usable), core)))


def _rank_among_siblings(core: int, usable: set[int]) -> int:
    """How many usable hardware threads of the same physical core come before this one."""
    try:
        with open(_SIBLINGS.format(core), encoding="ascii") as file:
            siblings = _listed(file.read())
    except (OSError, ValueError):  # not Linux, or a sandbox that hides it
        return 0
    return sum(other < core for other in siblings & usable)


def _listed(text: str) -> set[int]:
    """``"0-2,8"`` as numbers."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return {core for low, *high in ends for core in range(int(low), int(high[0] if high else low) + 1)}


@contextlib.contextmanager
def _locked(place: Path, core: int) -> Iterator[bool]:
    """Hold a core's lock, if nobody else does."""
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
                # Said aloud: a process that was forked meanwhile has the descriptor too, and would go on holding it.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _made(folder: Path | None) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    place = folder if folder is not None else Path(tempfile.gettempdir()) / f"{_FOLDER}-{user}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place
