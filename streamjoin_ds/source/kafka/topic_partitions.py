"""The partitions of a topic, each of which is one of its stream."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from streamjoin_ds.errors import KafkaTopicChangedError, OffsetError, StreamJoinError
from streamjoin_ds.source.kafka.kafka_position import KafkaPosition
from streamjoin_ds.source.kafka.stream_topic import stream_url
from streamjoin_ds.source.kafka.topic import KafkaTopic
from streamjoin_ds.source.kafka.topic_feed import TopicFeed, TopicPlan
from streamjoin_ds.source.position import Position
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["TopicPartitions"]

_MOST_THREADS = 4  # reading and parsing of JSON let others run meanwhile


class TopicPartitions:
    """The partitions of a topic (see `partitions.Inputs`). A partition's name is its number.

    Parameters
    ----------
    stream : Stream
        A stream whose source is a topic.
    schema : pyarrow.Schema
        The columns that travel.
    """

    passed_over: Sequence[str] = ()
    looks = 0
    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)

    def __init__(self, stream: Stream, schema: pa.Schema) -> None:
        if not isinstance(stream.schema, pa.Schema):  # inferred: what travels is all that there is
            stream = replace(stream, schema=schema)
        self._stream, self._schema = stream, schema
        self._plan = TopicPlan(KafkaTopic(stream_url(stream)))
        self._begins: dict[str, KafkaPosition] = {}
        self._leader: TopicPartitions | None = None

    def follow(self, leader: TopicPartitions) -> None:
        """See `partitions.Inputs.follow`: the brokers are asked once, and the end offsets are the same too."""
        self._leader = leader

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """See `partitions.Inputs.names`: ascending as numbers. The brokers are asked each time.

        Raises
        ------
        KafkaTopicError, KafkaAccessError, KafkaUnreachableError
        """
        del fresh
        if self._leader is None:
            self._plan.ask()
        else:
            self._plan.facts, self._plan.ends = self._leader._plan.facts, self._leader._plan.ends
        return [str(partition) for partition in self._plan.facts.partitions]

    def feed(self, name: str) -> TopicFeed:
        """See `partitions.Inputs.feed`.

        Raises
        ------
        OffsetError
            The name is no number: the offset was edited.
        """
        if not (name.isascii() and name.isdecimal()) or str(int(name)) != name:
            msg = f"the logged offset of stream {self._stream.name} is malformed: partitions"
            hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
            raise OffsetError(msg, name="partitions", hint=hint)
        return TopicFeed(self._stream, self._schema, int(name), self._plan)

    def begins(self, names: Sequence[str], *, at_start: bool) -> Mapping[str, Position]:
        """See `partitions.Inputs.begins`.

        The URL says where a stream begins. A partition that came later is read from its first offset on: nobody has
        seen what it holds. What was said once holds as long as this process plans.
        """
        if self._leader is not None:
            return self._leader.begins(names, at_start=at_start)
        topic = self._plan.topic
        asked = [int(name) for name in names if name not in self._begins]
        if asked:
            is_first = at_start and not self._begins
            found = topic.start_offsets(asked) if is_first else topic.first_offsets(asked)
            topic_id = self._plan.facts.topic_id
            self._begins |= {
                str(number): KafkaPosition(offset=offset, first=offset, topic=topic_id)
                for number, offset in found.items()
            }
        return self._begins

    def begin_of(self, name: str, at: Position) -> KafkaPosition:
        """See `partitions.Inputs.begin_of`."""
        del name
        assert isinstance(at, KafkaPosition)
        return KafkaPosition(offset=at.first, first=at.first, topic=at.topic)

    def stamp(self, name: str) -> None:
        """See `partitions.Inputs.stamp`: a partition of a topic has no end."""
        del name

    def may_be_gone(self, at: Position) -> bool:
        """See `partitions.Inputs.may_be_gone`: never, Kafka has no fewer partitions than before."""
        del at
        return False

    def gone(self, name: str) -> StreamJoinError:
        """See `partitions.Inputs.gone`."""
        topic = self._plan.topic.url.topic
        msg = f"the topic {topic} of stream {self._stream.name} has fewer partitions than before: {name} is gone"
        hint = "it was deleted and made again: begin with a new checkpoint and a new table"
        return KafkaTopicChangedError(msg, name=topic, hint=hint)
