"""Threads on cores of their own: cores are leased by lock files, so that workers of one machine do not share them.

::

    worker 1 ──► lock core 0, core 1 ──► affinity {0, 1} ──► kernel threads
    worker 2 ──► lock core 2, core 3 ──► affinity {2, 3}

A lease is a file lock (``flock``): the system gives it up when the process dies, whatever the cause. Cores are those
that this process may use (its affinity or cpuset). Where too few are free, or the system knows neither affinity nor
such locks, threads run unpinned: slower perhaps, never wrong.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["leased_cores", "pin_threads"]

_FOLDER = "streamjoin-ds-cores"


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


@contextlib.contextmanager
def leased_cores(count: int, folder: Path | None = None) -> Iterator[tuple[int, ...]]:
    """Lease so many of the cores that this process may use; all of them or, where too few are free, none."""
    with contextlib.ExitStack() as stack:
        cores: list[int] = []
        try:
            import fcntl

            place = folder if folder is not None else _default_folder()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            for core in sorted(os.sched_getaffinity(0)):
                if len(cores) == count:
                    break
                descriptor = os.open(place / f"core-{core}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(descriptor)
                    continue
                stack.callback(os.close, descriptor)
                cores.append(core)
        except (ImportError, AttributeError, OSError):  # no such locks, no affinity, nowhere to write
            cores = []
        if len(cores) < count:
            stack.close()
            cores = []
        yield tuple(cores)


def _default_folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"{_FOLDER}-{user}"
