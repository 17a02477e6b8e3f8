"""The rows of a join's tables, whatever their order and the time of the commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned

__all__ = ["contents"]


def contents(root: Path, suffixes: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables ``<root><suffix>`` by suffix, sorted, without the times of the commits."""
    found = {}
    for suffix in suffixes:
        table = scanned(DeltaTable(f"{root}{suffix}")).to_table()
        table = table.drop_columns([column for column in ("committed_at",) if column in table.column_names])
        found[suffix] = table.sort_by([(column, "ascending") for column in table.column_names]).to_pylist()
    return found
