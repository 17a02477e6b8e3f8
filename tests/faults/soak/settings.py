"""The settings that may change at each start of a driver, and at each stop; and how fast time goes in the tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink import tables as retention
from streamjoin_ds.sink.tables import DELETED_FILE_RETENTION, LOG_RETENTION, TableSet
from tests.support.kinds import Kind

__all__ = ["drawn", "hasten", "other_retention"]

_RETENTION = ("interval 1 minute", "interval 2 minutes")  # two minutes at 20 batches a second are 2 400 entries


def drawn(dice: random.Random, kind: Kind, **more: Any) -> dict[str, Any]:
    """Return the settings of one life of a kind, as `life.Life` takes them; `more` are settings that are wanted."""
    names = kind.names + "z" * kind.has_table
    return {
        "exchange": dice.choice(("reference", "reference", "packed")),
        "durable": dice.choice((True, True, True, False)),
        "execution": {
            "kernel": dice.choice(("auto", "auto", "scalar", "reference")),
            "threads": dice.choice((1, 1, 2)),
            "pin": dice.choice((True, False)),
            "index": dice.choice(("auto", "auto", "scan")),
            "order": dice.choice(("auto", [*names], [*reversed(names)])),
            "merge_runs": dice.choice((None, None, 2, 5)),
        },
        "source": {
            "max_rows_per_batch": str(dice.choice((40, 60, 200, 1000))),
            "parts": str(dice.choice((1, 2, 3))),
            "max_block_rows": str(dice.choice((7, 100, 100_000))),
        },
    } | more


def hasten(patch: pytest.MonkeyPatch) -> None:
    """Have new tables keep for a minute what they no longer need, and be cleaned as often, in place of six hours."""
    for option in (LOG_RETENTION, DELETED_FILE_RETENTION):
        patch.setitem(retention._CHOSEN, option, _RETENTION[0])


def other_retention(root: Path, dice: random.Random) -> None:
    """Let the tables keep for another time what they no longer need; no driver may run."""
    tables = TableSet(str(root / "matches"))
    properties = {LOG_RETENTION: dice.choice(_RETENTION), DELETED_FILE_RETENTION: dice.choice(_RETENTION)}
    for name in TableSet.names():
        if DeltaTable.is_deltatable(tables.path_of(name)):
            DeltaTable(tables.path_of(name)).alter.set_table_properties(properties)
