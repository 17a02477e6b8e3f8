"""The feed of a stream of many partitions: a feed for each, merged by event time (ARCHITECTURE.md, "Partitions").

::

    partitions   ┌ feed 0 ─ frontier ─┐
    (`Inputs`) ──┼ feed 1 ─ frontier ─┼─► merge ─► a position a partition ─► offset ─► tasks read them one by one
                 └ feed 2 ─ frontier ─┘            (number, place, clock)               (number, place) ─► _seq

A batch is a prefix of the order by the running maximum of each partition, so a partition that is far ahead waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.delta.delta_feed import DeltaFeed
from streamjoin_ds.source.feed import (
    ArrayFrontier,
    Backlog,
    Feed,
    Frontier,
    TimesBefore,
    first_cut,
    known_backlog,
    total_of,
)
from streamjoin_ds.source.idleness import ClockFacts
from streamjoin_ds.source.partitioned_position import (
    MOST_PARTITIONS,
    PartitionAt,
    PartitionedPosition,
)
from streamjoin_ds.source.partitions import ForgottenPartitions, Inputs
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.event_time import AheadLimit
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.member.source import numbering_of
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["PartitionedFeed", "begin_alike"]

# So many records of each partition are looked at first; more of those that are not far enough ahead.
_LEAST_LOOK = 1 << 10

# Between the names of a partition and of its file; both may hold one slash after the other only alone.
_BETWEEN = "//"


class PartitionedFeed:
    """The feed of a stream of many partitions.

    Parameters
    ----------
    stream : Stream
    inputs : Inputs
        The partitions.
    """

    endless = False

    def __init__(self, stream: Stream, inputs: Inputs) -> None:
        self._stream = stream
        self._inputs = inputs
        self._feeds: dict[str, Feed[Any]] = {}
        self._frozen: Sequence[str] | None = None
        # What `frontier` saw: where it began, with the partitions that are new, and what each can give.
        self._seen = PartitionedPosition()
        self._frontiers: dict[str, Frontier] = {}
        self._merged = np.empty(0, np.int64)
        self._gone: set[str] = set()
        self._forgotten: ForgottenPartitions | None = None
        self._back: Set[str] = frozenset()  # partitions that come back in this plan, at their old places

    @property
    def held_back_bytes(self) -> int:
        """See `Feed.held_back_bytes`."""
        return sum(feed.held_back_bytes for feed in self._feeds.values())

    @property
    def passed_over(self) -> Sequence[str]:
        """See `Feed.passed_over`."""
        return self._inputs.passed_over

    def follow(self, leader: PartitionedFeed) -> None:
        """Number partitions as another feed over the same input does, which is asked first in each plan."""
        self._inputs.follow(leader._inputs)

    def forget_in(self, checkpoint: str, retain_batches: int, *, durable: bool) -> None:
        """Forget partitions from now on; see `ForgottenPartitions`."""
        kept = checkpoint, self._stream.name, retain_batches
        self._forgotten = ForgottenPartitions(self._inputs, *kept, durable=durable)

    def initial(self) -> PartitionedPosition:
        """See `Feed.initial`."""
        return PartitionedPosition()

    def position(self, facts: object) -> PartitionedPosition:
        """See `Feed.position`."""
        return PartitionedPosition.from_facts(facts, self._stream.name, lambda name, at: self._feed(name).position(at))

    def frontier(self, start: PartitionedPosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`. Of each partition only so much is looked at as the order by event time needs.

        Raises
        ------
        ArgumentError
            There are too many partitions.
        FileMissingError
            One has vanished. What else is wrong with one, its feed says.
        """
        self._seen = self._with_new(start)
        there = [name for name in self._seen.partitions if name not in self._gone and name not in self._back]
        looks = dict.fromkeys(there, min(limit, max(_LEAST_LOOK, 2 * limit // max(len(there), 1))))
        self._frontiers, wanting = {}, there
        while wanting:
            self._frontiers.update(self._looked(wanting, looks, ahead))
            wanting = self._wanting(looks, limit)
        arrays = [frontier.running_max for frontier in self._frontiers.values()]
        self._merged = np.sort(np.concatenate(arrays), kind="stable")[:limit] if arrays else np.empty(0, np.int64)
        cut = first_cut(self._frontiers.values())
        if cut is not None:  # what comes after is not known
            self._merged = self._merged[: np.searchsorted(self._merged, cut, side="right")]
        return ArrayFrontier(self._merged, is_cut=cut is not None)

    def _looked(
        self, names: Sequence[str], looks: Mapping[str, int], ahead: AheadLimit | None
    ) -> Iterator[tuple[str, Frontier]]:
        """Yield what each of these partitions can give: several at once where they are apart (`Inputs.threads`)."""

        def ask(name: str) -> Frontier:
            at = self._seen.partitions[name]
            return self._feeds[name].frontier(at.at, looks[name], at.limited(ahead))

        for name in names:
            self._feed(name)  # opens it
        if len(names) < 2 or self._inputs.threads < 2:
            yield from ((name, ask(name)) for name in names)
            return
        with ThreadPoolExecutor(self._inputs.threads) as pool:
            yield from zip(names, pool.map(ask, names), strict=True)

    def _wanting(self, looks: dict[str, int], limit: int) -> list[str]:
        """Return the partitions of which more must be looked at; raise their `looks`.

        The first `limit` records of the order are known once so many are older than what is not known.
        """
        lasts = {
            name: last
            for name, frontier in self._frontiers.items()
            if looks[name] < limit and frontier.rows >= looks[name] and (last := frontier.last_time()) is not None
        }
        if not lasts:
            return []
        known_to = min(lasts.values())
        cut = first_cut(self._frontiers.values())
        if cut is not None and cut < known_to:
            return []
        if sum(frontier.rows_until(known_to - 1) for frontier in self._frontiers.values()) >= limit:
            return []
        wanting = [name for name, last in lasts.items() if last == known_to]
        looks.update({name: min(2 * looks[name], limit) for name in wanting})
        return wanting

    def _with_new(self, start: PartitionedPosition) -> PartitionedPosition:
        """Return `start` with the partitions that are new: they get the next numbers, in the order of their names.

        It has those that come back too, whose files have changed since they were forgotten. They come back at their old
        places, and are read from the next batch on: it begins where they are known.
        """
        names = self._inputs.names() if self._frozen is None else self._frozen
        there, before = set(names), start.partitions.keys()
        if self._forgotten is not None:
            start = self._forgotten.with_back(start, lambda name, at: self._feed(name).position(at))
        self._back = start.partitions.keys() - before
        missing = start.partitions.keys() - there
        for name in sorted(missing):
            at = start.partitions[name]
            if at.has_joined and not self._inputs.may_be_gone(at.at):
                raise self._inputs.gone(name)
        self._gone = missing
        unknown = there - start.partitions.keys()
        if self._forgotten is not None:
            unknown -= self._forgotten.known(start.forgotten).keys()
        if not unknown:
            return start
        new = [name for name in names if name in unknown]
        first = start.next_number
        if first + len(new) > MOST_PARTITIONS:
            msg = f"stream {self._stream.name} has more than {MOST_PARTITIONS} partitions"
            raise ArgumentError(msg, name=self._stream.name, hint="use partition_by=folder, or a new checkpoint")
        begins = self._inputs.begins(new, at_start=not first)
        found = {name: PartitionAt(first + i, begins[name]) for i, name in enumerate(new)}
        return replace(start, partitions={**start.partitions, **found})

    def forgetting(self, end: PartitionedPosition) -> PartitionedPosition:
        """Return the end of a batch without partitions that are idle and read to their ends, once there are enough.

        `advance` and `clocked` have returned it.
        """
        if self._forgotten is None:
            return end
        found = self._forgotten.forgetting(end, self._seen, self._frontiers)
        for name in end.partitions.keys() - found.partitions.keys():
            self._feeds.pop(name, None)
        return found

    def committed(self, end: PartitionedPosition) -> None:
        """Hear that a batch is committed."""
        if self._forgotten is not None:
            self._forgotten.committed(end.forgotten)

    def advance(self, start: PartitionedPosition, rows: int) -> PartitionedPosition:
        """See `Feed.advance`. The position has the partitions that are new, also those without a record yet."""
        counts = self._counts(rows)
        partitions = {}
        for name, before in self._seen.partitions.items():
            count = counts.get(name, 0)
            if count:
                feed = self._feed(name)
                at = feed.advance(before.at, count)
                before = replace(before, at=at, time_us=feed.time_before(at))
            partitions[name] = before
        return PartitionedPosition(start.seq + rows, partitions, self._seen.forgotten)

    def _counts(self, rows: int) -> dict[str, int]:
        """Return how many of the next `rows` records each partition has.

        The order is by running maximum, then by the partition's number, then by the record's.
        """
        if not rows:
            return {}
        last_us = int(self._merged[rows - 1])
        counts = {name: frontier.rows_until(last_us - 1) for name, frontier in self._frontiers.items()}
        left = rows - sum(counts.values())
        for name, frontier in self._frontiers.items():
            more = min(left, frontier.rows_until(last_us) - counts[name])
            counts[name], left = counts[name] + more, left - more
        return counts

    def clocked(
        self,
        end: PartitionedPosition,
        decide: Callable[[Mapping[str, ClockFacts], Mapping[str, bool], Mapping[str, bool]], Mapping[str, ClockFacts]],
    ) -> PartitionedPosition:
        """Return the end of a batch with what is decided about the partitions' clocks. `advance` has returned it.

        A partition that has vanished, as it may, is idle at once.

        Parameters
        ----------
        decide : callable
            Returns the clocks of the partitions that have joined, given the clocks before, which of the partitions have
            records now, and whose largest event time the batch moves.
        """
        joined = {name: at.clock for name, at in end.partitions.items() if at.has_joined}
        arrived = {name: name in self._frontiers and self._frontiers[name].rows > 0 for name in joined}
        moved = {name: end.partitions[name].time_us != self._seen.partitions[name].time_us for name in joined}
        clocks = dict(decide(joined, arrived, moved))
        clocks.update({name: replace(clocks[name], idle=True) for name in joined if name in self._gone})
        found = {name: replace(at, clock=clocks.get(name, at.clock)) for name, at in end.partitions.items()}
        return replace(end, partitions=found)

    def time_before(self, position: PartitionedPosition) -> int | None:
        """See `Feed.time_before`: the largest of all partitions."""
        return position.largest_us

    def backlog(self, end: PartitionedPosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`: that of the partitions, and their sum."""
        found = {}
        for name, frontier in self._frontiers.items():
            at = end.partitions[name]
            taken = at.at.seq - self._seen.partitions[name].at.seq
            own = known_backlog(frontier.rows - taken, frontier.last_time(), at.time_us)
            if own := self._feeds[name].backlog(at.at, own):
                found[name] = own
        return total_of(found.values(), found)

    def freeze(self) -> None:
        """See `Feed.freeze`."""
        self._frozen = tuple(self._inputs.names(fresh=True))
        if self._forgotten is not None:
            self._forgotten.look_at_all()
        for feed in self._feeds.values():
            feed.freeze()  # others are frozen when they are opened: most may be forgotten

    def files_between(self, start: PartitionedPosition, end: PartitionedPosition) -> tuple[str, ...]:
        """See `Feed.files_between`: the names of the partition and of the file, with `_BETWEEN` between them."""
        found = []
        for name, first, last in self._stretches(start, end):
            found += [f"{name}{_BETWEEN}{file}" for file in self._feed(name).files_between(first.at, last.at)]
        return tuple(found)

    def running_max(
        self,
        start: PartitionedPosition,
        end: PartitionedPosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """Refuse: the records have no one order. A count window over partitions is refused before anything is read."""
        raise NotImplementedError

    def split(
        self, start: PartitionedPosition, end: PartitionedPosition, parts: int
    ) -> list[tuple[PartitionedPosition, PartitionedPosition]]:
        """See `Feed.split`: each partition is in one range, because its order decides what is late."""
        stretches = list(self._stretches(start, end))
        most = max(-(-(end.seq - start.seq) // max(parts, 1)), 1)
        ranges, first, seq = [], 0, start.seq
        rows = 0
        for place, (_, before, after) in enumerate(stretches):
            rows += after.at.seq - before.at.seq
            if rows >= most or place == len(stretches) - 1:
                taken = stretches[first : place + 1]
                low = PartitionedPosition(seq, {name: at for name, at, _ in taken})
                ranges.append((low, PartitionedPosition(seq + rows, {name: at for name, _, at in taken})))
                first, seq, rows = place + 1, seq + rows, 0
        return ranges

    def read(
        self,
        start: PartitionedPosition,
        end: PartitionedPosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`: one partition after the other, in the order of their numbers.

        ``_seq`` is the partition's number and what the partition's feed calls the record, so it does not depend on how
        the stream was cut into batches, nor on partitions that come later. A chunk has `Chunk.before`.
        """
        if end is None:
            end = self.advance(start, self.frontier(start, 1 << 62).rows)
        of_partition: dict[str, list[str]] | None = None
        if files is not None:
            of_partition = {}
            for file in files:
                name, _, own = file.partition(_BETWEEN)
                of_partition.setdefault(name, []).append(own)
        for name, first, last in self._stretches(start, end):
            feed, names = self._feed(name), None if of_partition is None else of_partition.get(name, [])
            limited = first.limited(ahead), names
            yield from map(TimesBefore(feed, first, last, *limited).numbered, feed.read(first.at, last.at, *limited))

    def _stretches(
        self, start: PartitionedPosition, end: PartitionedPosition
    ) -> Iterator[tuple[str, PartitionAt, PartitionAt]]:
        """Yield the partitions with records between two positions: name, where they begin and where they end."""
        numbers = start.next_number
        for name, last in end.partitions.items():
            first = start.partitions.get(name)
            if first is None and last.number < numbers:
                continue  # it came back in this batch, at its old place
            if first is None:
                first = PartitionAt(last.number, self._inputs.begin_of(name, last.at))
            if last.at.seq > first.at.seq:
                yield name, first, last

    def _feed(self, name: str) -> Feed[Any]:
        if name not in self._feeds:
            self._feeds[name] = self._inputs.feed(name)
            if self._frozen is not None and name in self._frozen:  # one that is gone holds nothing
                self._feeds[name].freeze()
        return self._feeds[name]


def begin_alike(streams: Sequence[Stream], feeds: Sequence[Feed[Any]]) -> bool:
    """Let feeds over one input number its rows alike: a self-join knows a tuple by its number.

    Feeds over one table begin at the same version. Those over the same partitions find the same new ones in each plan.

    Returns
    -------
    bool
        Whether the feeds must be asked one after the other, as one finds what another found.
    """
    follows = False
    first: dict[str, DeltaFeed] = {}
    leaders: dict[object, PartitionedFeed] = {}
    for stream, feed in zip(streams, feeds, strict=True):
        if isinstance(feed, DeltaFeed):
            feed.beginning = first.setdefault(feed.path, feed).beginning
        if isinstance(feed, PartitionedFeed):
            form = stream.source.format if isinstance(stream.source, Files) else ""
            kind = stream.location, form, *numbering_of(stream.source).values()
            leader = leaders.setdefault(kind, feed)
            if leader is not feed:
                feed.follow(leader)
                follows = True
    return follows
