"""Entries of Delta logs: before each entry the process that writes it can die, stop, or find no room.

The log is the package's own (`streamjoin_ds.sink.log`, ``snapshot``). Around `put_entry` there are two points,
``<table> log`` and ``<table> logged``. With ``delta-rs`` entries are put as on an object store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamjoin_ds.sink import log, snapshot, target
from tests.faults.model import disk

__all__ = ["pointed"]


@contextmanager
def pointed(delta: str) -> Iterator[None]:
    """Make a point before and after each entry, for as long as the context lasts."""
    put_entry = log.put_entry

    def at_points(table_path: str, version: int, entry: log.LogEntry) -> bool:
        name = disk.table_name(table_path)
        if version:
            disk.at(f"{name} log", writes=True)
        done = put_entry(table_path, version, entry)
        if done and version:
            disk.at(f"{name} logged")
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "put_entry", at_points)
        if delta == "delta-rs":
            for room in (log, snapshot, target):
                patch.setattr(room, "is_local", lambda _path: False)
        yield
