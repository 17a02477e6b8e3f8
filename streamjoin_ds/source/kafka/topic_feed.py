"""A topic as a stream: what the planner knows of it, and the feed of one partition.

Each partition of the topic is one of its stream, for `source.partitioned_feed`.

::

    planner: end offsets ─► messages ─► event times alone ─► frontier ─► position: count, next offset, largest time
    task:    [offset, offset) of the topic of this id ─► messages ─► records ─► tuples, rejects, lost offsets

The planner reads messages for their event times, and a task reads them again: what came of a plan is a function of the
two positions. Kafka's messages do not change, so a position needs no digest, but compaction and retention may remove
what was planned. The number of messages shows that.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import (
    KafkaDataLostError,
    KafkaTopicChangedError,
    KafkaUnreachableError,
    malformed_offset,
)
from streamjoin_ds.source.feed import ArrayFrontier, Backlog, Frontier, StreamClock, known_backlog
from streamjoin_ds.source.kafka.broker import TopicFacts, check_same
from streamjoin_ds.source.kafka.formats.message_formats import RECORD, byte_ends
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords, header_of
from streamjoin_ds.source.kafka.range_read import LostRange, log_was_cut
from streamjoin_ds.source.kafka.topic import KafkaTopic, KafkaUrl
from streamjoin_ds.source.kafka.topic_scan import KafkaPosition, TopicScan
from streamjoin_ds.source.records import Chunk, Reject, record_times, time_schema
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, too_far_ahead
from streamjoin_ds.spec.inside import inside_schema
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.time_zone import SeenTimes

__all__ = [
    "MOST_BYTES",
    "NEWEST_SECONDS",
    "PATIENCE_SECONDS",
    "TopicFeed",
    "TopicPlan",
    "shared_topic",
    "stream_url",
]

_log = logging.getLogger(__name__)

# Offsets of one read by the planner, at least; twice as many with each read that brings too few messages.
_LEAST_OFFSETS = 1 << 10
# Bytes of a batch's messages of one stream, at most, or a message of each partition: a task holds its part in memory.
MOST_BYTES = 256 << 20
# How long a plan waits for brokers that do not answer any more. After that the query ends, and its restart goes on.
PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 1.0
# How often the newest messages of a partition are read, to tell how far its reading is behind.
NEWEST_SECONDS = 10.0
AnswerT = TypeVar("AnswerT")


def stream_url(stream: Stream) -> KafkaUrl:
    """Return the URL of a stream's topic. Its headers are those named there, and those that declared columns hold.

    Raises
    ------
    ArgumentError
        A part of the URL is missing, unknown or has no valid form.
    """
    url = KafkaUrl.parse(str(stream.source))
    declared = stream.schema.names if isinstance(stream.schema, pa.Schema) else []
    wanted = [name for column in declared if (name := header_of(column)) is not None]
    return replace(url, headers=tuple(dict.fromkeys((*url.headers, *wanted))))


@lru_cache(maxsize=256)
def shared_topic(url: KafkaUrl) -> KafkaTopic:
    """Return the topic as this process reads it: a worker keeps its consumers from one task to the next."""
    return KafkaTopic(url)


@dataclass
class TopicPlan:
    """What the planner knows of a topic: all of its partitions' feeds share it.

    It is patient with brokers that have answered before: one that restarts is away for some seconds.

    Attributes
    ----------
    facts : TopicFacts
        The topic's id and partitions, as they were asked last.
    ends : dict of int to int
        The last stable offset of each partition.
    partitions : int
        How many partitions the stream has in all of its topics.
    """

    topic: KafkaTopic
    facts: TopicFacts = field(default_factory=lambda: TopicFacts("", ()))
    ends: dict[int, int] = field(default_factory=dict)
    partitions: int = 0
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep

    def ask(self) -> None:
        """Ask the brokers for the topic's partitions and how far they can be read now."""

        def ask() -> tuple[TopicFacts, dict[int, int]]:
            facts = self.topic.facts()
            return facts, self.topic.end_offsets(facts.partitions)

        self.facts, self.ends = self.patiently(ask)

    def patiently(self, ask: Callable[[], AnswerT]) -> AnswerT:
        """Return an answer of the brokers; ask again for `PATIENCE_SECONDS` if they have answered before.

        Raises
        ------
        KafkaUnreachableError
        """
        until = self.clock() + PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except KafkaUnreachableError as error:
                if not self.ends or self.clock() >= until:
                    raise
                _log.warning("%s; asked again", error)
            self.wait(_PAUSE_SECONDS)


class TopicFeed:
    """One partition of a topic as a feed.

    Parameters
    ----------
    stream : Stream
        Declares its columns.
    schema : pyarrow.Schema
        The columns that travel.
    partition : int
        The partition's number in the topic.
    plan : TopicPlan
        Is used by the planner alone.
    """

    endless = False
    held_back_bytes = 0
    passed_over: Sequence[str] = ()

    def __init__(self, stream: Stream, schema: pa.Schema, partition: int, plan: TopicPlan) -> None:
        self._stream, self._schema, self._partition = stream, schema, partition
        self._plan = plan
        self._url = plan.topic.url
        registry = plan.topic.registry()
        assert isinstance(stream.schema, pa.Schema)
        # The type that travels is the one that was seen first.
        declared = schema if stream.time in schema.names else stream.schema
        of_time = pa.schema([declared.field(name) for name in time_schema(stream).names])
        url, rejected = self._url, self._url.reject_schemas
        self._times = MessageRecords(url.format, stream, of_time, url.topic, registry, rejected)
        self._records = MessageRecords(url.format, stream, schema, url.topic, registry, rejected)
        self._scan: TopicScan | None = None
        self._newest, self._asks_again_s = NO_TIME, float("-inf")

    def initial(self) -> KafkaPosition:
        """Return the position at the first offset that there can be. Where a stream begins, `Inputs.begins` says."""
        return KafkaPosition()

    def position(self, facts: object) -> KafkaPosition:
        """See `Feed.position`."""
        at = KafkaPosition.from_facts(facts, self._stream.name)
        if self._records.unfolding is None and (at.within or at.seq > at.offset - at.first):
            raise malformed_offset("within" if at.within else "offset", self._stream.name)
        return at

    # ------------------------------------------------------------------ the planner

    def frontier(self, start: KafkaPosition, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """See `Feed.frontier`: up to the last stable offset, as it was asked last.

        Raises
        ------
        KafkaTopicChangedError
            The topic is another one, or ends before `start`.
        KafkaDataLostError
            Messages are gone that were not read, and ``on_data_loss`` is "stop".
        """
        check_same(self._url.topic, TopicFacts(start.topic, (self._partition,)), self._plan.facts)
        end = self._plan.ends[self._partition]
        # Where nothing was read, the beginning was asked after the end, or lies in a transaction that is open.
        if end < start.offset + bool(start.within) and start.seq:
            raise self._shorter(end, start.offset + bool(start.within))
        if self._scan is None or not self._scan.begin_at(start):
            self._scan = TopicScan(start, has_local_times=self._stream.has_local_times)
        scan, most = self._scan, MOST_BYTES // max(self._plan.partitions, len(self._plan.ends), 1)
        step = _LEAST_OFFSETS
        while scan.rows < limit and scan.size_bytes <= most and scan.at < end:
            before = scan.rows
            until = min(end, scan.at + step)
            self._plan.patiently(partial(self._look, scan, until))
            if scan.rows - before < step // 2:
                step *= 2  # most offsets have no message
            else:
                fitting = (most - scan.size_bytes) * scan.rows // max(scan.size_bytes, 1)
                step = max(min(limit - scan.rows, fitting), _LEAST_OFFSETS)
        scan.judge(ahead)
        rows = min(scan.rows_within(most), limit)
        return ArrayFrontier(scan.running[:rows], is_cut=rows < limit and (rows < scan.rows or scan.at < end))

    def _look(self, scan: TopicScan, until: int) -> None:
        """Scan the offsets up to `until`."""
        asked = self._plan.topic.read(self._partition, scan.at, until, epoch=scan.epoch)
        told = 0
        offsets, sizes, epochs, within = ([np.empty(0, np.int64)] for _ in range(4))
        times = [SeenTimes.none(0)]

        def note_lost() -> None:
            # One record stands for each stretch of lost offsets, and ends with the last of them. `TopicScan.add` puts
            # stretches of several looks together.
            offsets.append(np.array([lost.end - 1 for lost in asked.lost[told:]], np.int64))
            times.append(SeenTimes.none(len(asked.lost) - told))
            sizes.append(np.zeros(len(asked.lost) - told, np.int64))
            epochs.append(np.full(len(asked.lost) - told, -1, np.int64))
            within.append(np.zeros(len(asked.lost) - told, np.int64))

        for messages in self._unfolded(asked, scan.start):
            note_lost()
            told = len(asked.lost)
            offsets.append(messages.column("offset").to_numpy())
            times.append(self._seen(messages))
            sizes.append(np.diff(byte_ends(messages.column("value"))[1]).astype(np.int64))
            epochs.append(np.full(len(messages), asked.epoch, np.int64))
            within.append(self._within(messages))
        note_lost()
        goes_on = bool(asked.lost) and asked.lost[0].begin == scan.at
        told_offsets, told_sizes, told_epochs, told_within = map(np.concatenate, (offsets, sizes, epochs, within))
        scan.add(told_offsets, SeenTimes.joined(times), told_sizes, told_epochs, told_within, goes_on=goes_on)
        scan.at = until
        scan.ends_lost = bool(asked.lost) and asked.lost[-1].end == until

    def _unfolded(
        self, asked: Iterable[pa.RecordBatch], start: KafkaPosition, end: KafkaPosition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield messages; where each may hold many records these, without those that lie before `start` or after `end`.

        The records of a message are in one batch (`Unfolding.unfolded`).
        """
        unfolding = self._records.unfolding
        for messages in asked:
            if unfolding is None:
                yield messages
                continue
            for records in unfolding.unfolded(messages):
                offsets, numbers = records.column("offset").to_numpy(), records.column(RECORD).to_numpy()
                kept = (offsets != start.offset) | (numbers >= start.within)
                if end is not None:
                    kept &= (offsets < end.offset) | (numbers < end.within)
                yield records if kept.all() else records.filter(pa.array(kept))

    def _within(self, messages: pa.RecordBatch) -> np.ndarray:
        """Return how many records of its message are read after each; 0 after the last one."""
        if self._records.unfolding is None:
            return np.zeros(len(messages), np.int64)
        offsets, numbers = messages.column("offset").to_numpy(), messages.column(RECORD).to_numpy()
        is_last = np.append(offsets[1:] != offsets[:-1], True)
        return np.where(is_last, 0, numbers + 1)

    def _event_times(self, messages: pa.RecordBatch) -> np.ndarray:
        """Return the event time of each message, and the smallest int64 where it has none."""
        chunk = self._times.chunk(messages, self._partition, 0)
        times = np.full(len(messages), NO_TIME, np.int64)
        times[chunk.tuples.column(SEQ).to_numpy()] = chunk.tuples.column(TS).to_numpy()
        return times

    def _seen(self, messages: pa.RecordBatch) -> SeenTimes:
        """Return the event times of messages, some of which may have two meanings."""
        if not self._stream.has_local_times:
            times = self._event_times(messages)
            return SeenTimes(times, times != NO_TIME)
        return record_times(self._times.records(messages, self._partition), self._stream)

    def _shorter(self, end: int, offset: int) -> KafkaTopicChangedError:
        msg = (
            f"partition {self._partition} of topic {self._url.topic} ends at offset {end}, and was read up to {offset}"
        )
        hint = "the topic was truncated or made again: begin with a new checkpoint and a new table"
        return KafkaTopicChangedError(msg, name=self._url.topic, hint=hint)

    def advance(self, start: KafkaPosition, rows: int) -> KafkaPosition:
        """See `Feed.advance`."""
        if not rows:
            return start
        assert self._scan is not None
        return self._scan.after(rows)

    def time_before(self, position: KafkaPosition) -> int | None:
        """See `Feed.time_before`."""
        return position.time_us

    def backlog(self, end: KafkaPosition, known: Backlog) -> Backlog:
        """See `Feed.backlog`: messages, where the planner has looked at all; else offsets, up to the last stable one.

        There the newest messages are read for their event times, now and then.
        """
        scan, last = self._scan, self._plan.ends[self._partition]
        assert scan is not None, "frontier has planned the batch"
        rows = scan.start.seq + scan.rows - end.seq
        newest = int(scan.running[-1]) if scan.rows else NO_TIME
        if scan.at < last:
            rows, newest = last - end.offset, max(newest, self._newest_time())
        return known_backlog(rows, None if newest == NO_TIME else newest, end.time_us)

    def _newest_time(self) -> int:
        """Return the largest event time among the partition's last messages, as it was not long ago."""
        now = self._plan.clock()
        if now >= self._asks_again_s:
            self._asks_again_s = now + NEWEST_SECONDS
            messages = self._plan.topic.newest(self._partition, self._plan.ends[self._partition])
            records = self._unfolded(messages, KafkaPosition())
            times = np.concatenate([np.empty(0, np.int64), *(self._event_times(batch) for batch in records)])
            if (max_us := self._stream.max_ahead_us) is not None:  # what lies before them was not looked at
                times = times[~too_far_ahead(times, times != NO_TIME, NO_TIME, AheadLimit(max_us))]
            self._newest = int(times.max(initial=self._newest))
        return self._newest

    def freeze(self) -> None:
        """See `Feed.freeze`: the end offsets are asked with the partitions, which are frozen."""

    def files_between(self, start: KafkaPosition, end: KafkaPosition) -> tuple[str, ...]:
        """See `Feed.files_between`: none."""
        del start, end
        return ()

    def split(self, start: KafkaPosition, end: KafkaPosition, parts: int) -> list[tuple[KafkaPosition, KafkaPosition]]:
        """See `Feed.split`: a partition is one range."""
        del parts
        return [(start, end)] if end.seq > start.seq else []

    # ------------------------------------------------------------------ tasks

    def running_max(
        self,
        start: KafkaPosition,
        end: KafkaPosition,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> np.ndarray:
        """Refuse: `read` tells the largest time before each tuple itself, with the messages at hand."""
        raise NotImplementedError

    def read(
        self,
        start: KafkaPosition,
        end: KafkaPosition | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """See `Feed.read`. Each chunk has `Chunk.before`.

        ``_seq`` is the message's offset. Where a message may hold many records, it is the record's number in the
        stream's partition: `KafkaPosition.seq` before it.

        Raises
        ------
        KafkaDataLostError
            There are fewer messages than were planned, and ``on_data_loss`` is "stop".
        KafkaTopicChangedError
            The topic is another one, its log was cut and has grown again, or there are more messages than were planned.
        """
        assert end is not None, "a batch has an end"
        known = TopicFacts(end.topic, (self._partition,))
        until = end.offset + bool(end.within)
        asked = shared_topic(self._url).read(self._partition, start.offset, until, known, start.epoch)
        largest, seq = start.time, start.seq
        clock = StreamClock.of(self._stream, start, ahead) if self._stream.has_local_times else None
        for messages in self._unfolded(asked, start, end):
            if len(messages):
                chunk, largest, ahead = self._chunk(messages, seq, largest, ahead, clock)
                yield chunk
            seq += len(messages)
        gone = end.seq - seq
        differs = asked.epoch > end.epoch or (asked.epoch != end.epoch and gone <= 0)  # the last may be what is gone
        if min(asked.epoch, end.epoch) >= 0 and asked.messages and differs:
            raise log_was_cut(self._url.topic, self._partition, end.offset)
        if gone < 0:
            msg = f"partition {self._partition} of topic {self._url.topic} holds more messages than were planned"
            hint = "the topic was made again, or its brokers lost what they had acknowledged: begin anew"
            raise KafkaTopicChangedError(msg, name=self._url.topic, hint=hint)
        if gone:
            yield self._lost(start, end, asked.lost, gone)

    def _chunk(
        self, messages: pa.RecordBatch, seq: int, largest: int, ahead: AheadLimit | None, clock: StreamClock | None
    ) -> tuple[Chunk, int, AheadLimit | None]:
        """Return messages as a chunk, and the largest event time and the limit after them.

        `seq` records are before them; `clock` is of local times.
        """
        # A record that is broken in another column is no tuple, but its event time counts.
        if clock is not None:
            ordered = clock.ordered(self._seen(messages))
            chunk = self._records.chunk(messages, self._partition, 0, ordered.far, ordered.later)
            times = np.where(ordered.counts, ordered.ts, NO_TIME)
            return self._numbered(messages, seq, chunk, times, largest, ahead)
        chunk = self._records.chunk(messages, self._partition, 0)
        times = self._event_times(messages) if chunk.rejects else chunk.tuples.column(TS).to_numpy()
        if ahead is not None:
            far = too_far_ahead(times, times != NO_TIME, largest, ahead)
            if far.any():
                chunk = self._records.chunk(messages, self._partition, 0, far)
                times = np.where(far, NO_TIME, times)
            ahead = ahead.after(largest, max(largest, int(times.max(initial=NO_TIME))))
        return self._numbered(messages, seq, chunk, times, largest, ahead)

    def _numbered(
        self,
        messages: pa.RecordBatch,
        seq: int,
        chunk: Chunk,
        times: np.ndarray,
        largest: int,
        ahead: AheadLimit | None,
    ) -> tuple[Chunk, int, AheadLimit | None]:
        """Return a chunk with the numbers of its tuples, and what is largest before each."""
        is_counted = self._records.unfolding is not None
        numbers = np.arange(seq, seq + len(messages)) if is_counted else messages.column("offset").to_numpy()
        places = chunk.tuples.column(SEQ).to_numpy()
        running = np.empty(len(times) + 1, np.int64)
        running[0], running[1:] = largest, times
        np.maximum.accumulate(running, out=running)
        before = running[:-1][places] if chunk.rejects else running[:-1]
        field_of = chunk.tuples.schema.get_field_index(SEQ)
        tuples = chunk.tuples.set_column(field_of, chunk.tuples.schema.field(field_of), pa.array(numbers[places]))
        rejects = [replace(reject, seq=int(numbers[reject.seq])) for reject in chunk.rejects]
        return Chunk(int(numbers[0]), chunk.count, tuples, rejects, before), int(running[-1]), ahead

    def _lost(self, start: KafkaPosition, end: KafkaPosition, lost: Sequence[LostRange], gone: int) -> Chunk:
        """Return the records that stand for messages that are gone: a reject for each that was planned.

        What retention took is counted in offsets too. What compaction takes are gaps, as a transaction leaves them.
        """
        if self._url.on_data_loss != "skip":
            msg = (
                f"{gone} messages of partition {self._partition} of topic {self._url.topic} are gone since they were "
                f"planned, between the offsets {start.offset} and {end.offset - 1}"
            )
            hint = "compaction removed them, or retention; to go on without them: on_data_loss=skip"
            raise KafkaDataLostError(msg, name=self._url.topic, hint=hint)
        places = [(one.begin, f"offsets {one.begin} to {one.end - 1} were gone before they were read") for one in lost]
        stretch = f"one of {gone} messages that were gone between offsets {start.offset} and {end.offset - 1}"
        places = (places + [(start.offset, stretch)] * gone)[:gone]
        file = f"kafka:{self._url.topic}/{self._partition}"
        numbers = itertools.count(end.seq - gone) if self._records.unfolding is not None else None
        rejects = [
            Reject(file, offset, "", reason, "", offset if numbers is None else next(numbers))
            for offset, reason in places
        ]
        nothing = pa.RecordBatch.from_pylist([], schema=inside_schema(self._schema, self._stream.time))
        offsets = sum(one.end - one.begin for one in lost[:gone])
        return Chunk(start.offset, gone, nothing, rejects, np.empty(0, np.int64), lost_offsets=offsets)
