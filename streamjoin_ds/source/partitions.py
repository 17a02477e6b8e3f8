"""The partitions of a stream: what finds them, and those that the stream has forgotten.

`Inputs` is what a feed of many partitions needs of files, sub-folders or the partitions of a topic. Partitions that
were read to their ends and are idle are forgotten: they stand in blocks and not in each offset.

::

    offset    partitions: those that may have records    forgotten: names of blocks, the next number, the largest time
    blocks    forgotten/<stream>/<number>-<checksum>     a row a partition: name, position and clock, stamp of its files

A block is larger than those after it together, as in a log-structured merge tree, so an offset names few of them,
however many partitions there are. A partition in an offset stands above its rows in blocks, and a later block above
earlier ones. The planner knows names and stamps, and looks at some of the stamps in each plan: a partition whose files
have changed comes back as it was, with its number. So no tuple depends on what is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.blocks import BlockStore, NamedBlocks
from streamjoin_ds.blocks.place import below
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.source.feed import Feed, Frontier
from streamjoin_ds.source.partitioned_position import Forgotten, PartitionAt, PartitionedPosition
from streamjoin_ds.source.position import Position

__all__ = ["ForgottenPartitions", "Inputs"]

# So many idle partitions are forgotten together: until then they stand in each offset, and are looked at in each plan.
_TOGETHER = 64
_NO_FILES = 0  # the stamp of a partition that has vanished, as it may
_SCHEMA = pa.schema([("name", pa.string()), ("at", pa.string()), ("stamp", pa.int64())])


class Inputs(Protocol):
    """The partitions of a stream as they are now. Files are one kind (`FilePartitions`)."""

    @property
    def threads(self) -> int:
        """How many partitions the planner may look at side by side."""

    @property
    def passed_over(self) -> Sequence[str]:
        """Names that lie where the partitions do and are none."""

    @property
    def looks(self) -> int:
        """How many stamps of forgotten partitions a plan asks for; 0: there are no stamps, and none is forgotten."""

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """Return the names of the partitions that are there, sorted."""

    def follow(self, leader: Any) -> None:
        """From now on tell the names that others over the same input were told last, and the same beginnings."""

    def feed(self, name: str) -> Feed[Any]:
        """Return the feed of one partition."""

    def begins(self, names: Sequence[str], *, at_start: bool) -> Mapping[str, Position]:
        """Return where partitions that are new begin; `at_start`: nothing of the stream has been read."""

    def begin_of(self, name: str, at: Position) -> Position:
        """Return where a partition began that has been read up to here."""

    def stamp(self, name: str) -> int | None:
        """Return a digest of how a partition's files look: one that has more to be read has another.

        None: there are no files.
        """

    def may_be_gone(self, at: Position) -> bool:
        """Whether a partition that was read up to here may have vanished."""

    def gone(self, name: str) -> StreamJoinError:
        """Return the error for a partition that has vanished."""


class ForgottenPartitions:
    """The forgotten partitions of one stream, in the process that plans.

    Parameters
    ----------
    inputs : Inputs
        The stream's partitions.
    checkpoint : str
        The checkpoint's folder, under which the blocks are.
    stream : str
        The stream's name.
    retain_batches : int
        How many batches Spark can go back by.
    durable : bool
        Whether a block is on the device before its name is in an offset.
    """

    def __init__(
        self, inputs: Inputs, checkpoint: str, stream: str, retain_batches: int, *, durable: bool = True
    ) -> None:
        self._inputs, self._stream = inputs, stream
        self._store = BlockStore(below(checkpoint, "forgotten"), durable=durable)
        self._blocks = NamedBlocks(self._store, retain_batches, f"{stream}/")
        self._of = Forgotten()  # what `_known` is of
        self._known: dict[str, int] = {}  # the stamp of each, by its name
        self._turn = 0
        self._looks_at_all = False
        self._stamps: dict[str, int] = {}  # of idle partitions, before this plan looked at their files

    def look_at_all(self) -> None:
        """Look at all stamps in the next plan: the query ends with the input that is there."""
        self._looks_at_all = True

    def known(self, told: Forgotten) -> Mapping[str, int]:
        """Return the forgotten partitions by their names, those that came back among them.

        Raises
        ------
        BlockMissingError, BlockCorruptError
            A block that the offset names is not whole.
        """
        if told.blocks != self._of.blocks:
            before = len(self._of.blocks)
            if self._of.blocks != told.blocks[:before]:
                self._known, before = {}, 0
            for name, _ in told.blocks[before:]:
                rows = self._store.read(name)
                self._known.update(zip(rows["name"].to_pylist(), rows["stamp"].to_pylist(), strict=True))
            self._of = told
        return self._known

    def with_back(self, start: PartitionedPosition, position: Callable[[str, object], Position]) -> PartitionedPosition:
        """Return where a batch begins, with the forgotten partitions whose files have changed, as they were.

        One whose files are gone has nothing more to be read, and stays forgotten.

        Parameters
        ----------
        start : PartitionedPosition
        position : callable
            Returns the position of the partition of a name from its facts.
        """
        idle = [name for name, at in start.partitions.items() if at.clock.idle]
        self._stamps = {}
        if self._inputs.looks and len(idle) >= _TOGETHER:
            self._stamps = {name: self._inputs.stamp(name) or _NO_FILES for name in idle}
        known = self.known(start.forgotten)
        asked = [name for name in self._asked(known) if name not in start.partitions]
        stamps = {name: self._inputs.stamp(name) for name in asked}
        changed = [name for name, stamp in stamps.items() if stamp not in (None, known[name])]
        if not changed:
            return start
        found = {**start.partitions, **self._read(start.forgotten, changed, position)}
        return replace(start, partitions=dict(sorted(found.items(), key=lambda item: item[1].number)))

    def _asked(self, known: Collection[str]) -> Iterable[str]:
        """Return the names whose stamps are looked at in this plan."""
        if self._looks_at_all or self._inputs.looks >= len(known):
            self._looks_at_all, self._turn = False, 0
            return known
        first, self._turn = self._turn, self._turn + self._inputs.looks
        if self._turn >= len(known):
            self._turn = 0
        return islice(known, first, first + self._inputs.looks)

    def _read(
        self, told: Forgotten, names: Collection[str], position: Callable[[str, object], Position]
    ) -> dict[str, PartitionAt]:
        found: dict[str, PartitionAt] = {}
        for block, _ in reversed(told.blocks):
            wanted = pa.array([name for name in names if name not in found], pa.string())
            rows = self._store.read(block) if len(wanted) else _SCHEMA.empty_table()
            for row in rows.filter(pc.is_in(rows["name"], wanted)).to_pylist():
                at = json.loads(row["at"])
                found[row["name"]] = PartitionAt.from_facts(at, self._stream, row["name"], position)
        return found

    def forgetting(
        self, end: PartitionedPosition, seen: PartitionedPosition, frontiers: Mapping[str, Frontier]
    ) -> PartitionedPosition:
        """Return the end of a batch without partitions that are idle and have no more records, once there are enough.

        Parameters
        ----------
        end : PartitionedPosition
        seen : PartitionedPosition
            Where the batch begins, with the partitions that are new or come back.
        frontiers : mapping
            What was seen of each partition.

        Raises
        ------
        BlockWriteError
            Their block cannot be written.
        """
        done = {
            name: at
            for name, at in end.partitions.items()
            if name in self._stamps and at.clock.idle and at.at.seq == seen.partitions[name].at.seq
            if name not in frontiers or not frontiers[name].rows
        }
        if len(done) < _TOGETHER:
            return end
        forgotten = self._with_more(end.forgotten, done)
        rest = {name: at for name, at in end.partitions.items() if name not in done}
        return replace(end, partitions=rest, forgotten=forgotten)

    def _with_more(self, told: Forgotten, done: Mapping[str, PartitionAt]) -> Forgotten:
        self.known(told)
        facts = {name: json.dumps(at.to_facts(), separators=(",", ":")) for name, at in done.items()}
        stamps = {name: self._stamps[name] for name in done}
        rows = pa.table([list(facts), list(facts.values()), list(stamps.values())], schema=_SCHEMA)
        blocks = list(told.blocks)
        while blocks and blocks[-1][1] < 2 * rows.num_rows:
            rows = _merged(self._store.read(blocks.pop()[0]), rows)
        numbers = max(told.numbers, *(at.number + 1 for at in done.values()))
        ref = self._store.write(f"{self._stream}/{numbers}", rows, {"stream": self._stream})
        times = [time_us for time_us in (told.time_us, *(at.time_us for at in done.values())) if time_us is not None]
        self._of = Forgotten((*blocks, (ref.name, ref.rows)), numbers, max(times, default=None))
        self._known.update(stamps)
        return self._of

    def committed(self, told: Forgotten) -> None:
        """Hear that a batch is committed whose offset says this; remove the blocks that no offset needs any more."""
        if told.blocks:
            self._blocks.committed({name for name, _ in told.blocks})


def _merged(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the rows of two blocks; of a partition in both the later one's."""
    again = pc.is_in(before["name"], pa.array(after["name"].to_pylist(), pa.string()))
    return pa.concat_tables([before.filter(pc.invert(again)), after]).combine_chunks()
