"""What Spark keeps of a query: its logs of offsets and commits, and versions of its state.

As Spark 4: an entry of a log is put if absent; version n + 1 of the state is what batch n left, written under that name
by every attempt; what lies more than `retain` batches back is purged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Checkpoint", "ConcurrentWriteError", "StateDiffersError"]


class ConcurrentWriteError(Exception):
    """Spark's CONCURRENT_STREAM_LOG_UPDATE: another driver has written this entry."""


class StateDiffersError(Exception):
    """Two attempts left different bytes under one name: which of them counts is then a matter of luck."""


@dataclass
class Checkpoint:
    """The folder of one query; offsets are texts, as Spark logs them.

    Attributes
    ----------
    states : dict of (partition, version) to dict of cell to bytes
    kinds : dict of (partition, version) to object
        Under which settings each was written: states of two need not be the same bytes.
    """

    retain: int
    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    states: dict[tuple[int, int], dict[int, bytes]] = field(default_factory=dict)
    kinds: dict[tuple[int, int], object] = field(default_factory=dict)

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
        """Write a version; over one that is there, as Spark's first format of checkpoints does.

        One that nobody can come back to may differ: a driver that stopped before it logged its offsets finds, once they
        are purged, nothing that fences it, and cuts batches of its own. A version goes with the offsets of the batch
        that left it, and these are purged when a batch is planned, before there is a newer version.
        """
        there = self.states.get((partition, version))
        differs = there is not None and there != state and self.kinds.get((partition, version)) == kind
        if differs and version - 1 >= max(self.offsets, default=0) - self.retain:
            msg = f"partition {partition} version {version}"
            raise StateDiffersError(msg)
        self.states[partition, version], self.kinds[partition, version] = state, kind

    def purge(self, batch: int, retain: int) -> None:
        """What Spark does at the start of `batch`, and its maintenance of the state some time later."""
        first = batch - retain
        self.offsets = {n: text for n, text in self.offsets.items() if n >= first}
        self.commits = {n for n in self.commits if n >= first}
        newest = max((version for _, version in self.states), default=0)
        self.states = {key: state for key, state in self.states.items() if key[1] >= newest - retain}

    def taken_back(self, batches: int) -> int:
        """Take the query back by up to so many batches, as far as everything for it is kept; how many it was.

        The entries after the batch that is to be repeated go, as an operator removes them; versions of the state that
        are newer stay, and are written over.
        """
        if not self.offsets:
            return 0
        last = max(self.offsets)
        possible = [
            batch
            for batch in self.offsets
            if last - min(batches, self.retain) <= batch and (batch == 0 or self._has(batch))
        ]
        first = min(possible, default=last)
        self.offsets = {n: text for n, text in self.offsets.items() if n <= first}
        self.commits = {n for n in self.commits if n < first}
        return last - first

    def _has(self, version: int) -> bool:
        """Whether the state of this version is there, and the offsets that it goes with."""
        partitions = {partition for partition, _ in self.states}
        return version - 1 in self.offsets and all((partition, version) in self.states for partition in partitions)
