"""The version of a table that a batch joins, as the batch's offset says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.errors import malformed_offset

__all__ = ["TableVersion", "versions_from", "versions_told"]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table.

    Attributes
    ----------
    version : str
        Its name: the version of a Delta table, or the digest of a file.
    block : str
        The name of the block under the checkpoint that holds its rows, which carries their checksum.
    rows : int
        How many rows the block has.
    """

    version: str
    block: str
    rows: int

    def to_facts(self) -> dict[str, Any]:
        """Return the version as plain JSON values."""
        return {"block": self.block, "rows": self.rows, "version": self.version}

    @classmethod
    def from_facts(cls, facts: object) -> TableVersion:
        """Return what `to_facts` wrote; raise `OffsetError` for anything else."""
        if not isinstance(facts, Mapping) or {name: type(value) for name, value in facts.items()} != _KINDS:
            raise malformed_offset(name="tables")
        return cls(**facts)


_KINDS = {"block": str, "rows": int, "version": str}


def versions_told(versions: Mapping[str, TableVersion]) -> dict[str, Any]:
    """Return versions by the tables' names as plain JSON values."""
    return {name: version.to_facts() for name, version in versions.items()}


def versions_from(facts: object) -> dict[str, TableVersion]:
    """Return what `versions_told` wrote; raise `OffsetError` for anything else."""
    if not isinstance(facts, Mapping):
        return {"": TableVersion.from_facts(facts)}  # raises
    return {str(name): TableVersion.from_facts(of) for name, of in facts.items()}
