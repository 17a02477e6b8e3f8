"""What decides which runs of a window become blocks, and when blocks are merged: the same for all cells of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["BLOCK_BYTES", "USUAL_SIZING", "BlockSizing"]

# Runs of at least this many bytes are blocks. A file costs 0.5 ms with its fsync, once. A MB in the state row costs
# about 15 ms, in every batch.
BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class BlockSizing:
    """The settings of a batch that decide when a block leaves the windows.

    Cells that are given the same tuples share their blocks, and the first one that finds a block due removes it. So
    they must merge alike, also where two drivers with unlike settings have left the states of one batch. For that
    reason the settings of a batch are in its offset: whoever does the batch again does it under the same ones
    (ARCHITECTURE.md, "State and blocks").

    Attributes
    ----------
    block_bytes : int
        As in `Plan`.
    merge_runs : int or None
        As in `Execution`.
    """

    block_bytes: int = BLOCK_BYTES
    merge_runs: int | None = None

    def to_facts(self) -> dict[str, int]:
        """Return what differs from `USUAL_SIZING`, as plain JSON values."""
        facts = {} if self.block_bytes == BLOCK_BYTES else {"block_bytes": self.block_bytes}
        return facts if self.merge_runs is None else {**facts, "merge_runs": self.merge_runs}

    @classmethod
    def from_facts(cls, facts: object) -> BlockSizing:
        """Return what `to_facts` wrote; raise `ValueError` for anything else."""
        known: dict[str, Any] = dict(facts) if isinstance(facts, Mapping) else {"": None}
        if set(known) - {"block_bytes", "merge_runs"} or any(type(n) is not int or n < 0 for n in known.values()):
            msg = "these are no settings of blocks"
            raise ValueError(msg)
        return cls(**known)


USUAL_SIZING = BlockSizing()
