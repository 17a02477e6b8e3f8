"""The topics of a stream: their partitions, new ones among them, and the columns that their messages hold.

A URL names a topic, several, or a pattern. A partition of one topic is called by its number, ``3``, else by both,
``sensors/3``; each is a partition of the stream. The brokers are asked in each plan, so a topic that comes and matches
joins as a partition that comes does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamjoin_ds.errors import (
    ArgumentError,
    KafkaSchemaError,
    KafkaTopicChangedError,
    KafkaTopicError,
    StreamJoinError,
    malformed_offset,
)
from streamjoin_ds.kafka.settings import is_topic_name
from streamjoin_ds.source.kafka.broker import Broker
from streamjoin_ds.source.kafka.formats.message_formats import Unfolding
from streamjoin_ds.source.kafka.formats.message_records import MESSAGE_COLUMNS
from streamjoin_ds.source.kafka.formats.registered_columns import registered_columns
from streamjoin_ds.source.kafka.formats.registered_messages import schema_id, unframing
from streamjoin_ds.source.kafka.topic import JSON_FORMATS, REGISTERED_FORMATS, KafkaTopic, KafkaUrl
from streamjoin_ds.source.kafka.topic_feed import TopicFeed, TopicPlan, shared_topic, stream_url
from streamjoin_ds.source.kafka.topic_scan import KafkaPosition
from streamjoin_ds.source.position import Position
from streamjoin_ds.spec.join_parts import named_columns
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["TopicPartitions", "newest_messages", "newest_values", "registered", "tell_group", "with_message_columns"]

_log = logging.getLogger(__name__)

# Messages of a partition that types are inferred from, at most. All of them are read before a join begins.
_NEWEST = 2_000
_MOST_SAMPLED = 64  # topics of which messages are read for that
_MOST_THREADS = 4  # reading and parsing of JSON let others run meanwhile


def newest_values(stream: Stream) -> list[bytes]:
    """Return values of the newest messages of each partition, for the inference of columns; the records within them.

    Raises
    ------
    ArgumentError
        The messages' format tells no types, or they have no records within.
    KafkaTopicError
        The topic is empty, or is not there.
    KafkaAccessError, KafkaUnreachableError
    """
    url = stream_url(stream)
    unfolding = Unfolding.of(stream, url.format, unframing(bool(url.registry), url.reject_schemas))
    if url.format not in (*JSON_FORMATS, *REGISTERED_FORMATS):
        msg = f"the columns of stream {stream.name} cannot be inferred: messages in {url.format} tell no types"
        raise ArgumentError(msg, name="schema", hint="declare the columns in their order: schema")
    found = newest_messages(url)
    if not found and not url.registry:
        msg = f"the columns of stream {stream.name} cannot be inferred: topic {url.topic} has no message"
        raise KafkaTopicError(msg, name=url.topic, hint="send one, or declare the schema")
    if unfolding is None:
        return found
    return [line for lines in unfolding.lines(pa.array(found, pa.binary())) for line in lines if line is not None]


def newest_messages(url: KafkaUrl) -> list[bytes]:
    """Return values of the newest messages of each partition, whatever their format; see `newest_values`."""
    found: list[bytes] = []
    for name in topics_of(url, None)[:_MOST_SAMPLED]:
        with KafkaTopic(replace(url, topic=name, on_data_loss="skip")) as topic:
            partitions = topic.facts().partitions
            firsts, ends = topic.first_offsets(partitions), topic.end_offsets(partitions)
            for partition in partitions:
                begin = max(firsts[partition], ends[partition] - _NEWEST)
                for messages in topic.read(partition, begin, ends[partition]) if begin < ends[partition] else ():
                    found += [value for value in messages.column("value").to_pylist() if value is not None]
    return found


def registered(stream: Stream, values: Sequence[bytes]) -> pa.Schema | None:
    """Return the columns that a registry tells of a stream's newest messages; None: it names none, or not of records.

    Raises
    ------
    KafkaSchemaError
        The registry has no schema of theirs, nor one of a topic's values, or it tells no columns.
    KafkaAccessError, KafkaUnreachableError
    """
    url = stream_url(stream)
    registry = None if Unfolding.of(stream, url.format) is not None else KafkaTopic(url).registry()
    if registry is None:
        return None
    ids = [value for value in values if schema_id(value) not in url.reject_schemas]
    found = registered_columns(url.format, ids, topics_of(url, None), registry)
    if found is None:
        msg = f"the columns of stream {stream.name} cannot be told: the schema registry has none for {url.topic}"
        hint = "send a message, register a schema of the format for its values, or declare the schema"
        raise KafkaSchemaError(msg, name="registry", hint=hint)
    return found


def topics_of(url: KafkaUrl, broker: Broker | None) -> Sequence[str]:
    """Return the topics that a URL names, or those there are that match its pattern."""
    pattern = url.pattern
    if pattern is None:
        return url.topics
    names = (broker or KafkaTopic(url).broker).topics()
    return [name for name in names if pattern.fullmatch(name)]


def with_message_columns(schema: pa.Schema, stream: Stream) -> pa.Schema:
    """Return inferred columns, and those of the message that the stream's options name, or that tell topics apart."""
    wanted = named_columns(stream) | (set() if stream_url(stream).is_one else {"kafka_topic"})
    added = [name for name in MESSAGE_COLUMNS if name in wanted and name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, MESSAGE_COLUMNS[name]) for name in added)])


def _place_of(name: str, url: KafkaUrl, stream: str) -> tuple[str, int]:
    """Return the topic and the number of a partition; refuse a name that is none: the offset was edited."""
    topic, slash, number = name.rpartition("/")
    is_number = number.isascii() and number.isdecimal() and str(int(number)) == number
    if not is_number or bool(slash) == url.is_one or (slash and not is_topic_name(topic)):
        raise malformed_offset(name="partitions", stream=stream)
    return topic if slash else url.topic, int(number)


def tell_group(stream: Stream, facts: Mapping[str, Any]) -> None:
    """Tell the consumer group that a stream's URL names, if any, where a committed batch has ended: best effort.

    Parameters
    ----------
    stream : Stream
        A stream whose source is a topic.
    facts : mapping
        Its position as plain JSON values.
    """
    url = stream_url(stream)
    if not url.group:
        return
    partitions = facts["partitions"].items()
    offsets = {_place_of(name, url, stream.name): one["at"]["offset"] for name, one in partitions}
    try:
        if offsets:
            shared_topic(url).broker.tell_group(url.group, offsets)
    except StreamJoinError as error:  # this machine lacks the settings, or its login is refused
        _log.warning("the group %s of stream %s is not told: %s", url.group, stream.name, error)


class TopicPartitions:
    """The partitions of a stream's topics (see `partitions.Inputs`).

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
        if not isinstance(stream.schema, pa.Schema):  # inferred: what is read for what travels is all that there is
            stream = replace(stream, schema=read_columns(stream, schema))
        self._stream, self._schema = stream, schema
        self._url = stream_url(stream)
        self._broker: Broker | None = None
        self._plans: dict[str, TopicPlan] = {}
        self._begins: dict[str, KafkaPosition] = {}
        self._leader: TopicPartitions | None = None

    def follow(self, leader: TopicPartitions) -> None:
        """See `partitions.Inputs.follow`: the brokers are asked once, and the end offsets are the same too."""
        self._leader = leader

    def names(self, *, fresh: bool = False) -> Sequence[str]:
        """See `partitions.Inputs.names`: by topic, ascending as numbers. The brokers are asked each time.

        Raises
        ------
        KafkaTopicError, KafkaAccessError, KafkaUnreachableError
        """
        del fresh
        if self._leader is None:
            plans = [self._plan(topic) for topic in self._topics()]
            if len(plans) < 2:
                for plan in plans:
                    plan.ask()
            else:
                with ThreadPoolExecutor(_MOST_THREADS) as pool:
                    list(pool.map(TopicPlan.ask, plans))
        else:
            for topic, plan in self._leader._plans.items():
                own = self._plan(topic)
                own.facts, own.ends = plan.facts, plan.ends
        count = sum(len(plan.facts.partitions) for plan in self._plans.values())
        for plan in self._plans.values():
            plan.partitions = count
        return [self._name(topic, number) for topic, plan in self._plans.items() for number in plan.facts.partitions]

    def _topics(self) -> Sequence[str]:
        if self._url.pattern is None:
            return self._url.topics
        if self._broker is None:
            self._broker = KafkaTopic(self._url).broker
        patient = next(iter(self._plans.values()), None)
        found = topics_of(self._url, self._broker) if patient is None else patient.patiently(self._matching)
        return sorted({*found, *self._plans})  # one that is gone is missed by name

    def _matching(self) -> Sequence[str]:
        return topics_of(self._url, self._broker)

    def _plan(self, topic: str) -> TopicPlan:
        if topic not in self._plans:
            url = replace(self._url, topic=topic)
            made = KafkaTopic(url) if self._broker is None else KafkaTopic(url, broker=self._broker)
            if not self._url.is_one and self._broker is None:
                self._broker = made.broker
            self._plans[topic] = TopicPlan(made)
            self._plans = dict(sorted(self._plans.items()))
        return self._plans[topic]

    def _name(self, topic: str, number: int) -> str:
        return str(number) if self._url.is_one else f"{topic}/{number}"

    def _place(self, name: str) -> tuple[str, int]:
        return _place_of(name, self._url, self._stream.name)

    def feed(self, name: str) -> TopicFeed:
        """See `partitions.Inputs.feed`.

        Raises
        ------
        OffsetError
            The name is none of a partition: the offset was edited, or the URL named other topics.
        """
        topic, number = self._place(name)
        return TopicFeed(self._stream, self._schema, number, self._plan(topic))

    def begins(self, names: Sequence[str], *, at_start: bool) -> Mapping[str, Position]:
        """See `partitions.Inputs.begins`.

        The URL says where a stream begins. A partition that came later is read from its first offset on: nobody has
        seen what it holds. What was said once holds as long as this process plans.
        """
        if self._leader is not None:
            return self._leader.begins(names, at_start=at_start)
        is_first = at_start and not self._begins
        asked: dict[str, list[int]] = {}
        for name in names:
            if name not in self._begins:
                topic, number = self._place(name)
                asked.setdefault(topic, []).append(number)
        for topic, numbers in asked.items():
            plan = self._plan(topic)
            found = plan.topic.start_offsets(numbers) if is_first else plan.topic.first_offsets(numbers)
            for number, offset in found.items():
                at = KafkaPosition(offset=offset, first=offset, topic=plan.facts.topic_id)
                self._begins[self._name(topic, number)] = at
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
        topic, number = self._place(name)
        msg = f"the topic {topic} of stream {self._stream.name} has fewer partitions than before: {number} is gone"
        hint = "it was deleted and made again: begin with a new checkpoint and a new table"
        return KafkaTopicChangedError(msg, name=topic, hint=hint)
