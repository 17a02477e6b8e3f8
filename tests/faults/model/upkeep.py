"""The upkeep of tables as a part of a run: each driver does it itself, by a clock that is days ahead.

Its steps are points (``matches compact``, ``ledger clean``, ...). Its files come to the points of their table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from streamjoin_ds.delta.log_files import filesystem_of
from streamjoin_ds.sink import compaction, maintenance
from streamjoin_ds.sink.maintenance import Maintenance
from streamjoin_ds.sink.tables import TableSet
from tests.faults.model import disk

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["NoUpkeep", "looked_after", "upkeep_of"]

# 3 days: longer than a table keeps anything (6 hours), shorter than files of no known batch are kept (168 hours).
_AHEAD_S = 3 * 86_400.0
_EVERY_STEPS = 40


class NoUpkeep:
    """Stands for the upkeep in most runs, which have none: upkeep costs more than all the rest."""

    def after_commit(self) -> None:
        """Do nothing."""


def upkeep_of(world: World, tables: TableSet) -> Maintenance:
    """Return the upkeep of one driver: a round after every second or third batch, which small tables call for too."""
    return Maintenance(
        tables,
        every_batches=2 + world.schedule.seed % 2,
        small_files=2,
        checkpoint_entries=3,
        kept_entries=1,
        vacuum_every_s=_EVERY_STEPS,
        background=False,
        clock=lambda: time.time() + _AHEAD_S + world.ticks,
    )


class _Files:
    """A file system whose removals are points."""

    def __init__(self, filesystem: Any, table: str) -> None:
        self._filesystem, self._table = filesystem, table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def delete_file(self, path: str) -> None:
        disk.at(f"{self._table} remove")
        self._filesystem.delete_file(path)


@contextmanager
def looked_after() -> Iterator[None]:
    """Make the steps of the upkeep points, for as long as the context lasts."""

    def at_points(step: str, function: Callable[..., Any], path_of: Callable[[Any], str]) -> Callable[..., Any]:
        def hooked(first: Any, *arguments: Any, **options: Any) -> Any:
            table = disk.table_name(path_of(first))
            disk.at(f"{table} {step}", writes=step in ("replace", "summary"))
            done = function(first, *arguments, **options)
            disk.at(f"{table} {step} done")
            return done

        return hooked

    def files_of(table_path: str) -> tuple[Any, str]:
        filesystem, folder = filesystem_of(table_path)
        return _Files(filesystem, disk.table_name(table_path)), folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maintenance, "_ENTRY_BYTES", 1 << 20)
        patch.setattr(maintenance, "compact", at_points("compact", maintenance.compact, str))
        patch.setattr(maintenance, "_checkpoint", at_points("summary", maintenance._checkpoint, str))
        patch.setattr(maintenance, "vacuum", at_points("vacuum", maintenance.vacuum, str))
        patch.setattr(maintenance, "clean_log", at_points("clean", maintenance.clean_log, lambda table: table.path))
        patch.setattr(compaction, "_replaced", at_points("replace", compaction._replaced, lambda log: log.path))
        patch.setattr(maintenance, "filesystem_of", files_of)
        yield
