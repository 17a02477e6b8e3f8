"""What the system tells of a process, for tests that watch what may grow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["ProcessFacts", "process_facts"]


@dataclass(frozen=True)
class ProcessFacts:
    """One look at a process.

    Attributes
    ----------
    maps : list of str
        The lines of ``/proc/PID/maps``.
    resident_bytes, threads, open_files : int
    """

    maps: list[str]
    resident_bytes: int
    threads: int
    open_files: int


def process_facts(process: psutil.Process) -> ProcessFacts | None:
    """Look at a process; None if it has just gone."""
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        return ProcessFacts(maps, process.memory_info().rss, process.num_threads(), process.num_fds())
    except (psutil.Error, OSError):
        return None
