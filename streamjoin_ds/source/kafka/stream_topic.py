"""The topic of a stream: its URL with the headers that the stream's columns need, and the columns that it holds."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, KafkaTopicError
from streamjoin_ds.source.kafka.formats.message_records import MESSAGE_COLUMNS, header_of
from streamjoin_ds.source.kafka.topic import KafkaTopic
from streamjoin_ds.source.kafka.url import KafkaUrl
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["newest_values", "stream_url", "with_message_time"]

# Messages of a partition that types are inferred from, at most. All of them are read before a join begins.
_NEWEST = 2_000


def stream_url(stream: Stream) -> KafkaUrl:
    """Return the URL of a stream's topic. Its headers are those named there, and those that declared columns hold.

    Raises
    ------
    ArgumentError
        A part of the URL is missing, unknown or has no valid form.
    """
    assert isinstance(stream.source, str)
    url = KafkaUrl.parse(stream.source)
    declared = stream.schema.names if isinstance(stream.schema, pa.Schema) else []
    wanted = [name for column in declared if (name := header_of(column)) is not None]
    return replace(url, headers=tuple(dict.fromkeys((*url.headers, *wanted))))


def newest_values(stream: Stream) -> list[bytes]:
    """Return values of the newest messages of each partition, for the inference of columns.

    Raises
    ------
    ArgumentError
        The messages' format tells no types.
    KafkaTopicError
        The topic is empty, or is not there.
    KafkaAccessError, KafkaUnreachableError
    """
    url = stream_url(stream)
    if url.format != "json":
        msg = f"the columns of stream {stream.name} cannot be inferred: messages in {url.format} tell no types"
        raise ArgumentError(msg, name="schema", hint="declare the columns in their order: schema")
    found: list[bytes] = []
    with KafkaTopic(replace(url, on_data_loss="skip")) as topic:
        partitions = topic.facts().partitions
        firsts, ends = topic.first_offsets(partitions), topic.end_offsets(partitions)
        for partition in partitions:
            begin = max(firsts[partition], ends[partition] - _NEWEST)
            for messages in topic.read(partition, begin, ends[partition]) if begin < ends[partition] else ():
                found += [value for value in messages.column("value").to_pylist() if value is not None]
    if not found:
        msg = f"the columns of stream {stream.name} cannot be inferred: topic {url.topic} has no message"
        raise KafkaTopicError(msg, name=url.topic, hint="send one, or declare the schema")
    return found


def with_message_time(schema: pa.Schema, stream: Stream) -> pa.Schema:
    """Return inferred columns, and the message's own time where it is the event time."""
    kind = MESSAGE_COLUMNS.get(stream.time)
    if kind is None or stream.time in schema.names:
        return schema
    return schema.append(pa.field(stream.time, kind))
