"""Reading ``[begin, end)`` of one partition: when it is finished, what is lost, and when waiting has no sense."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import KafkaDataLostError, KafkaTopicChangedError
from streamjoin_ds.kafka.client import PASSING, refusal
from streamjoin_ds.source.kafka.broker import Broker, TopicFacts, check_same

__all__ = ["Fetched", "LostRange", "MessageSource", "RangeRead", "RangeReader", "log_was_cut"]

_log = logging.getLogger(__name__)

# How long nothing may come of a range that is not finished. A broker that restarts is away for some seconds.
SILENCE_SECONDS = 30.0
# Offsets without a message are passed silently: a look at the position this often finds the end of a range.
_LOOK_SECONDS = 0.02
# Errors that a client tells while it goes on trying.
_UNREACHED = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
_GOES_ON = frozenset({*PASSING, *_UNREACHED, "_TIMED_OUT", "_PARTITION_EOF", ""})


class Fetched(Struct, frozen=True):
    """What one look brought.

    Attributes
    ----------
    messages : pyarrow.RecordBatch or None
        Messages of the range, in order.
    position : int
        All before this offset has been handed over, or has no message. -1 while it is not known.
    error : str
        The name of an error of librdkafka; empty if there is none.
    epoch : int
        The leader epoch of the messages, of which all have the same; -1 where it is not known.
    """

    messages: pa.RecordBatch | None
    position: int
    error: str = ""
    epoch: int = -1


def log_was_cut(topic: str, partition: int, offset: int) -> KafkaTopicChangedError:
    """Return the error for a partition in which other messages lie where some were read or planned."""
    msg = f"partition {partition} of topic {topic} holds other messages before offset {offset} than were read there"
    hint = (
        "an unclean election cut its log, or another cluster has its place: begin with a new checkpoint and a new table"
    )
    return KafkaTopicChangedError(msg, name=topic, hint=hint)


class MessageSource(Protocol):
    """Reads one partition from an offset on. It keeps what it has fetched beyond the end of a range."""

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Go to an offset, before which the last message has a leader epoch; forget what was fetched."""

    def fetch(self, end: int, wait_seconds: float) -> Fetched:
        """Return the next messages before `end`, or none after a wait."""

    def close(self) -> None:
        """Leave the brokers."""


class LostRange(Struct, frozen=True):
    """Offsets ``[begin, end)`` of a partition that were gone before they were read."""

    partition: int
    begin: int
    end: int


class RangeReader:
    """Reads ranges of one partition, best one after the other: then nothing is fetched twice.

    Parameters
    ----------
    source : MessageSource
    broker : Broker
        Is asked where the source says that an offset is not there.
    topic, partition : str, int
    on_data_loss : {"stop", "skip"}
        Whether offsets that are gone are an error, or counted and passed over.
    silence_seconds : float
        How long nothing may come.
    clock : callable
        Seconds that only grow.
    """

    def __init__(
        self,
        source: MessageSource,
        broker: Broker,
        topic: str,
        partition: int,
        on_data_loss: str = "stop",
        silence_seconds: float = SILENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.broker = broker
        self.topic, self.partition = topic, partition
        self.on_data_loss = on_data_loss
        self.silence_seconds = silence_seconds
        self.clock = clock
        self.next_offset: int | None = None  # where the source stands; None: it has to be told

    def read(self, begin: int, end: int, known: TopicFacts | None = None, epoch: int = -1) -> RangeRead:
        """Return ``[begin, end)`` of the topic that is `known`, whose messages come as it is iterated, once.

        `epoch` is the leader epoch of the last message before `begin`; -1 where it is not known.
        """
        return RangeRead(self, begin, end, known, epoch)

    def close(self) -> None:
        """Leave the brokers."""
        self.source.close()


class RangeRead:
    """One range being read: an iterator of batches of messages.

    Attributes
    ----------
    messages : int
        Messages so far.
    epoch : int
        The leader epoch of the last message so far, and of what was handed over last; -1 where it is not known.
    lost : list of LostRange
        What was gone (``on_data_loss="skip"``).
    """

    def __init__(
        self, reader: RangeReader, begin: int, end: int, known: TopicFacts | None = None, epoch: int = -1
    ) -> None:
        self._reader = reader
        self._known = known
        self._begin, self._end = begin, end
        self.messages, self.epoch = 0, epoch
        self.lost: list[LostRange] = []

    @property
    def empty_offsets(self) -> int:
        """Offsets of the range that held no message and were not lost, once it is finished.

        Markers of transactions, aborted messages, and what compaction removed look alike here.
        """
        lost = sum(part.end - part.begin for part in self.lost)
        return self._end - self._begin - self.messages - lost

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the range in the order of their offsets.

        Raises
        ------
        KafkaDataLostError
            Offsets of the range are gone, and `on_data_loss` is "stop".
        KafkaTopicChangedError
            The log was cut before `begin` or within the range, and has grown again; the partition ends before the range
            does, or the topic is not the known one. It is asked when all messages have come: ids never come back, so
            they were all of the known topic if it is still there.
        KafkaAccessError, KafkaTopicError, KafkaUnreachableError
        """
        reader, at = self._reader, self._begin
        if at < self._end and reader.next_offset != at:
            reader.source.seek(at, self.epoch)
        reader.next_offset = None  # until this range is finished
        heard, told, refused = reader.clock(), "", 0
        while at < self._end:
            fetched = reader.source.fetch(self._end, _LOOK_SECONDS)
            if fetched.messages is not None:
                if 0 <= fetched.epoch < self.epoch:  # they never go back: another log lies there now
                    raise log_was_cut(reader.topic, reader.partition, at)
                self.epoch = max(self.epoch, fetched.epoch)
                self.messages += len(fetched.messages)
                yield fetched.messages
            if fetched.position > at:
                at, heard, told, refused = fetched.position, reader.clock(), "", 0
            told = fetched.error or told
            if fetched.error == "_AUTO_OFFSET_RESET":
                found = self._after_loss(at)
                if found > at:
                    at, heard = found, reader.clock()
                elif refused and self.epoch >= 0:  # the offset is there, and the leader knows no such epoch before it
                    raise log_was_cut(reader.topic, reader.partition, at)
                refused += 1
                if at < self._end:
                    reader.source.seek(at, self.epoch)
            elif fetched.error == "_LOG_TRUNCATION":
                raise log_was_cut(reader.topic, reader.partition, at)
            elif fetched.error not in _GOES_ON:
                raise refusal(fetched.error, reader.topic)
            if at < self._end and reader.clock() - heard > reader.silence_seconds:
                self._check_end(at)
                raise refusal(told if told in _UNREACHED else "_TIMED_OUT", reader.topic)
        if self._known is not None:
            check_same(reader.topic, self._known, reader.broker.topic(reader.topic))
        reader.next_offset = self._end

    def _after_loss(self, at: int) -> int:
        """Return the first offset of the range that is still there; its end if none is."""
        reader = self._reader
        first = reader.broker.first_offsets(reader.topic, [reader.partition])[reader.partition]
        self._check_end(at)
        if first <= at:  # it was there again when the broker was asked
            return at
        lost = LostRange(reader.partition, at, min(first, self._end))
        place = f"partition {reader.partition} of topic {reader.topic}, offsets {lost.begin} to {lost.end - 1}"
        if reader.on_data_loss != "skip":
            msg = f"messages are gone that were not read yet: {place}"
            hint = "keep messages longer (retention.ms, retention.bytes); to go on without them: on_data_loss=skip"
            raise KafkaDataLostError(msg, name=reader.topic, hint=hint)
        _log.warning("lost and passed over: %s", place)
        self.lost.append(lost)
        return lost.end

    def _check_end(self, at: int) -> None:
        reader = self._reader
        end = reader.broker.end_offsets(reader.topic, [reader.partition])[reader.partition]
        if end < self._end:
            msg = (
                f"partition {reader.partition} of topic {reader.topic} ends at offset {end}, "
                f"and was read or planned up to {max(at, self._end)}"
            )
            hint = "the topic was truncated or made again: begin with a new checkpoint and a new table"
            raise KafkaTopicChangedError(msg, name=reader.topic, hint=hint)
