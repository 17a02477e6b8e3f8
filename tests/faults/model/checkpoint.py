"""What Spark keeps of a query: its logs of offsets and commits, and versions of its state.

The rules are those of Spark 4. An entry of a log is put if absent. Version n + 1 of the state is what batch n left;
every attempt writes it under that name. What lies more than `retain` batches back is purged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamjoin_ds.checkpoint import move
from streamjoin_ds.plan import CellLayout, Layout
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.spec import BoundJoin

__all__ = ["Checkpoint", "ConcurrentWriteError", "NoRoomError", "StateDiffersError", "StateMissingError"]


class NoRoomError(Exception):
    """Spark found no room for a file of its own."""


class ConcurrentWriteError(Exception):
    """Spark's CONCURRENT_STREAM_LOG_UPDATE: another driver has written this entry."""


class StateMissingError(Exception):
    """Spark does not find a version of the state, or an entry of its log, since it was purged meanwhile."""


class StateDiffersError(Exception):
    """Two attempts left different bytes under one name, so that it is a matter of luck which of them counts."""


@dataclass
class Checkpoint:
    """The folder of one query; offsets are texts, as Spark logs them.

    Attributes
    ----------
    states : dict of (partition, version) to dict of cell to bytes
    kinds : dict of (partition, version, hash of the state) to object
        The settings under which a version was written, and those of the versions before it: under other settings the
        bytes may differ. A power cut may bring the bytes of a former attempt back.
    """

    retain: int
    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    states: dict[tuple[int, int], dict[int, bytes]] = field(default_factory=dict)
    kinds: dict[tuple[int, int, int], object] = field(default_factory=dict)
    cells: int = 0
    partitions: int = 0
    layout: CellLayout | None = None

    def moved(self, bound: BoundJoin, cells: int, partitions: int, first: CellLayout) -> Checkpoint:
        """Return the query's next checkpoint, with other cells; nothing more can be planned in this one.

        What `streamjoin_ds.checkpoint.move` does with Spark's files.
        """
        last = max(self.offsets, default=-1)
        batch = last + 1 if last in self.commits else max(last, 0)
        new = Checkpoint(self.retain, cells=cells, partitions=partitions, layout=first)
        new.offsets = {number: text for number, text in self.offsets.items() if number >= last - 1}
        new.commits = {number for number in self.commits if number >= last - 1}
        if batch:
            parts = [self.states.get((partition, batch)) for partition in range(self.partitions)]
            if None in parts:
                msg = f"version {batch}"
                raise StateMissingError(msg)
            states = {cell: blob for part in parts for cell, blob in (part or {}).items()}
            if bound.decided:
                assert isinstance(self.layout, Layout), "joins that decide tuples have grids"
                assert isinstance(first, Layout), "joins that decide tuples have grids"
                states = move.dealt_states(bound, states, self.layout, first, batch)
            else:
                heard = max(self._cells(batch - 1, first, bound.names), self.cells)
                wanted = max(self._cells(last, first, bound.names), cells)
                states = move.states_of_cells(states, heard, wanted)
            for partition in range(partitions):
                of_partition = {cell: blob for cell, blob in states.items() if cell % partitions == partition}
                new.states[partition, batch] = of_partition
        self.log_offsets(last + 1, "the fence")
        return new

    def _cells(self, batch: int, first: CellLayout, names: Sequence[str]) -> int:
        """Return how many cells heard of a batch, by its offsets."""
        return BatchPlan.from_offset(json.loads(self.offsets[batch]), names).layout.epochs_from(first).cells

    def log_offsets(self, batch: int, text: str) -> None:
        if batch in self.offsets:
            msg = f"offsets/{batch} is there"
            raise ConcurrentWriteError(msg)
        self.offsets[batch] = text

    def log_commit(self, batch: int) -> None:
        if batch in self.commits:
            msg = f"commits/{batch} is there"
            raise ConcurrentWriteError(msg)
        self.commits.add(batch)

    def keep_state(self, partition: int, version: int, state: dict[int, bytes], kind: object = None) -> None:
        """Write a version, also over one that is there, as Spark's first format of checkpoints does.

        A version that nobody can come back to may differ. A driver that stopped before it logged its offsets finds
        nothing that fences it once these are purged, and then cuts batches of its own. A version goes with the offsets
        of the batch that left it. These are purged when a batch is planned, before there is a newer version.
        """
        there = self.states.get((partition, version))
        differs = there is not None and there != state and self.kind_of(partition, version) == kind
        if differs and version - 1 >= max(self.offsets, default=0) - self.retain:
            msg = f"partition {partition} version {version}"
            raise StateDiffersError(msg)
        self.states[partition, version] = state
        self.kinds[partition, version, _hash(state)] = kind

    def kind_of(self, partition: int, version: int) -> object:
        """Return the settings under which the version that is there was written; None where there is none."""
        state = self.states.get((partition, version))
        return None if state is None else self.kinds.get((partition, version, _hash(state)))

    def purge(self, batch: int, retain: int) -> None:
        """Remove what Spark removes at the start of `batch`, and what its maintenance of the state removes later."""
        first = batch - retain
        self.offsets = {n: text for n, text in self.offsets.items() if n >= first}
        self.commits = {n for n in self.commits if n >= first}
        newest = max((version for _, version in self.states), default=0)
        self.states = {key: state for key, state in self.states.items() if key[1] >= newest - retain}

    def taken_back(self, batches: int) -> int:
        """Take the query back by up to so many batches, as far as everything for it is kept; return how many it was.

        The entries after the batch that is to be repeated go, as an operator removes them. Newer versions of the state
        stay, and are written over.
        """
        if not self.offsets:
            return 0
        last = max(self.offsets)
        possible = [
            batch
            for batch in self.offsets
            if last - min(batches, self.retain) <= batch and (batch == 0 or self._has(batch))
        ]
        if not possible:  # after a move the version that is newest is the only one
            return 0
        first = min(possible)
        self.offsets = {n: text for n, text in self.offsets.items() if n <= first}
        self.commits = {n for n in self.commits if n < first}
        return last - first

    def _has(self, version: int) -> bool:
        """Whether the state of this version is there, and the offsets with which it goes."""
        partitions = {partition for partition, _ in self.states}
        return version - 1 in self.offsets and all((partition, version) in self.states for partition in partitions)


def _hash(state: dict[int, bytes]) -> int:
    return hash(frozenset(state.items()))
