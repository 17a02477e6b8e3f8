"""A run of a schedule, in a folder of its own that goes when the run is over."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tests.faults.model.schedule import Schedule
from tests.faults.model.world import World
from tests.support.scratch import memory_folder

__all__ = ["simulated"]


@contextmanager
def simulated(schedule: Schedule, delta: str = "log") -> Iterator[World]:
    """Run a schedule; the run's folder is there until the context ends."""
    pa.set_cpu_count(1)
    folder = Path(tempfile.mkdtemp(prefix="streamjoin-faults-", dir=memory_folder()))
    try:
        world = World(schedule, folder, delta)
        world.run()
        yield world
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for beside in ("attic", "beside"):
            shutil.rmtree(folder.with_name(f"{folder.name}.{beside}"), ignore_errors=True)
