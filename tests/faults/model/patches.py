"""Puts the model below and around the package, for as long as a run lasts."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from streamjoin_ds.blocks import cache as memory
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.storage import run_store
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.source import partitions, repeats
from streamjoin_ds.source.files.file_feed import FilePartitions
from streamjoin_ds.stream import commit as commit_room
from tests.faults.model import disk
from tests.faults.model.delta_log import pointed
from tests.faults.model.parsing import remembering_csv
from tests.faults.model.poison import LONGEST_LINE
from tests.faults.model.process import CacheOfCurrent
from tests.faults.model.upkeep import looked_after

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["go_to_a_zone", "installed"]

# What a worker may use of its machine. It is the same for all workers, and asked once instead of by each task.
_limits = cache(run_store._limits)


class _OfDriver(dict[Any, Any]):
    """What a driver keeps in its memory: each driver is a process."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def setdefault(self, key: Any, default: Any = None) -> Any:
        assert self._world.current is not None
        return super().setdefault((self._world.current.root.name, key), default)


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Put Spark, the file system and the clocks of a run in place of the real ones."""
    with contextlib.ExitStack() as stack:
        stack.callback(_go_to, os.environ.get("TZ"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        stack.enter_context(disk.watched(world))
        stack.enter_context(pointed(world.delta))
        if "upkeep" in world.schedule.asks:
            stack.enter_context(looked_after())
        if "local" in world.schedule.asks:
            stack.enter_context(disk.logged())
            every = random.Random(f"purged {world.schedule.seed}").choice((1, 2, 20))
            patch.setattr("streamjoin_ds.checkpoint.batch_log._PURGE_EVERY", every)
        if world.case.files:
            patch.setattr("streamjoin_ds.source.files.text_blocks.MAX_LINE_BYTES", LONGEST_LINE)
        patch.setattr(run_store, "worker_cache", CacheOfCurrent(world))
        patch.setattr(run_store, "_limits", _limits)
        patch.setattr(repeats, "kept_keys", CacheOfCurrent(world))
        # The workers of a run are one Python process, whose imports are frozen once.
        memory.freeze_imports()
        patch.setattr(memory, "_freezes", memory._MOST_FREEZES)
        patch.setattr(commit_room, "committer_for", world.committer_for)
        patch.setattr(commit_room, "_keys", _OfDriver(world))
        patch.setattr("streamjoin_ds.plan.layout_kind.LEAST_KEYS", 1)  # a run has few tuples
        patch.setattr("streamjoin_ds.plan.plan.CHOICE_CELLS", 2)
        tail = TailTuning(most_arrived_rows=world.schedule.tailed)
        patch.setattr(CellWindows, "tuning", Tuning(tail=tail))
        if random.Random(f"answers {world.schedule.seed}").random() < 0.7:  # all answers are blocks
            patch.setattr("streamjoin_ds.cell.answers.INLINE_BYTES", 0)
        patch.setattr("streamjoin_ds.source.files.csv_dialect.arrow_csv", remembering_csv())
        together = random.Random(f"forgotten {world.schedule.seed}").choice((1, 1, 2, 64))
        patch.setattr(partitions, "_TOGETHER", together)
        if {"self", "parted"} <= {*world.schedule.asks}:
            patch.setattr(FilePartitions, "names", _growing(world, FilePartitions.names))
        yield


def _growing(world: World, names: Callable[..., Sequence[str]]) -> Callable[..., Sequence[str]]:
    """Return a listing of partitions before which more may come: several streams look at one folder in one plan."""

    def listed(inputs: FilePartitions, *, fresh: bool = False) -> Sequence[str]:
        world.input.feed(world)
        return names(inputs, fresh=fresh)

    return listed


# Where a driver and its tasks are: in UTC, where clocks go back amid the input's times, or beside the whole hour.
_ZONES = (None, "CET-1CEST,M3.5.0,M10.5.0/3", "NST3:30NDT,M3.2.0,M11.1.0", "<+0545>-5:45")


def go_to_a_zone(seed: str) -> None:
    """Set the zone of this process. No row may depend on it."""
    _go_to(random.Random(f"zone {seed}").choice(_ZONES))


def _go_to(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()
