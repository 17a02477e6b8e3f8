"""Messages as records of a stream: what the value holds, and the columns of the message itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.source.kafka.formats.message_formats import (
    NO_VALUE,
    RECORD,
    CsvMessages,
    FixedMessages,
    JsonMessages,
    MessageFormat,
    RawMessages,
    Unfolding,
    bytes_or_text,
    message_text,
    utf8_values,
    value_text,
)
from streamjoin_ds.source.kafka.formats.registered_messages import (
    Codec,
    RegisteredMessages,
    SchemaRegistry,
    unframing,
)
from streamjoin_ds.source.kafka.formats.schema_codecs import AvroCodec, ProtobufCodec
from streamjoin_ds.source.kafka.message_sources import HEADER_PREFIX
from streamjoin_ds.source.kafka.topic import JSON_FORMATS, MESSAGE_FORMATS, REGISTERED_FORMATS
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form
from streamjoin_ds.spec.columns import TIMESTAMP, as_declared
from streamjoin_ds.spec.member.computed_columns import read_columns
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["MESSAGE_COLUMNS", "MessageRecords", "header_of", "is_message_column"]

_PREFIX = "kafka_"
# Columns of the message itself, which a schema may name; and kafka_header_<name>, bytes or text.
MESSAGE_COLUMNS = {
    "kafka_partition": pa.int32(),
    "kafka_offset": pa.int64(),
    "kafka_timestamp": TIMESTAMP,
    "kafka_timestamp_type": pa.string(),
    "kafka_key": pa.binary(),
    "kafka_topic": pa.string(),
}


def is_message_column(name: str) -> bool:
    """Whether a column is one of the message itself, and not of its value."""
    return name in MESSAGE_COLUMNS or name.startswith(_PREFIX + HEADER_PREFIX)


def header_of(name: str) -> str | None:
    """Return the name of the header that a column holds; None where it holds none."""
    prefix = _PREFIX + HEADER_PREFIX
    return name.removeprefix(prefix) if name.startswith(prefix) else None


class MessageRecords:
    """Makes records of messages.

    Parameters
    ----------
    format : {"json", "csv", "influx", "prometheus", "fixed", "raw", "avro", "protobuf"}
        What a value holds.
    stream : Stream
        The stream. Its `schema` declares all columns of a value in their order, and those of `MESSAGE_COLUMNS` that are
        wanted; ``kafka_timestamp`` may be its time.
    schema : pyarrow.Schema
        The columns that travel, with their inside types.
    topic : str
        The topic's name, for rejects.
    registry : SchemaRegistry, optional
        Where schemas come from; "avro" and "protobuf" need it.
    reject_schemas : collection of int
        Ids that are no schema's (`KafkaUrl.reject_schemas`).

    Raises
    ------
    ArgumentError
        The format is unknown, or the stream declares no columns.
    ColumnError
        The format cannot hold a column.

    Attributes
    ----------
    unfolding : Unfolding or None
        What makes messages of the records that a message holds, before `chunk` and `records` are given them; None:
        each message is a record.
    """

    def __init__(
        self,
        format: str,
        stream: Stream,
        schema: pa.Schema,
        topic: str,
        registry: SchemaRegistry | None = None,
        reject_schemas: Collection[int] = (),
    ) -> None:
        if not isinstance(stream.schema, pa.Schema):
            msg = f"stream {stream.name} does not declare its columns"
            raise ArgumentError(msg, name="schema", hint="a topic has no types: declare them with schema")
        self._stream, self._schema, self._topic = stream, schema, topic
        self._read = read_columns(stream, schema)
        self._own = [field for field in self._read if is_message_column(field.name)]
        for field in self._own:
            _check_own(field)
        of_value = pa.schema([field for field in self._read if not is_message_column(field.name)])
        of_value = as_declared(of_value, stream.schema)
        declared = pa.schema([field for field in stream.schema if not is_message_column(field.name)])
        unframed = unframing(registry is not None, reject_schemas)
        self.unfolding = Unfolding.of(stream, format, unframed)
        if format in JSON_FORMATS:
            left = unframed if self.unfolding is None else None
            self._format: MessageFormat = JsonMessages(of_value, stream.written_time, stream.nested, left)
        else:
            self._format = _format(format, stream, declared, of_value, registry, reject_schemas)

    def chunk(
        self,
        messages: pa.RecordBatch,
        partition: int,
        first_seq: int,
        far: np.ndarray | None = None,
        later: np.ndarray | None = None,
    ) -> Chunk:
        """Return messages as tuples and rejects, numbered from `first_seq` in their order.

        A reject's `file` names topic and partition, its `line` is the message's offset, and its `text` the message's
        bytes (`value_text`). Of an unfolded message it is the record's, and the reason tells its place.
        """
        values = messages.column("value")
        chunk = inside_form(
            self.records(messages, partition),
            self._stream,
            self._schema,
            first_seq,
            f"kafka:{self._topic}/{partition}",
            messages.column("offset").to_numpy(),
            text_of=lambda place: value_text(values[place].as_py()),
            far=far,
            later=later,
        )
        return chunk if self.unfolding is None or not chunk.rejects else _with_places(chunk, messages)

    def records(self, messages: pa.RecordBatch, partition: int) -> RawRecords:
        """Return messages as records with the columns that are read for the schema."""
        raw = self._format.read(messages.column("value"))
        if self.unfolding is not None:
            raw = raw.with_reason(self.unfolding.no_record, but=NO_VALUE)
        if not self._own:
            return RawRecords(raw.table.select(self._read.names), raw.count, raw.index, raw.broken)
        broken = list(raw.broken)
        index = np.arange(raw.count, dtype=np.int64) if raw.index is None else raw.index
        found: dict[str, pa.Array] = {}
        lost = np.zeros(raw.count, np.bool_)  # readable values whose key or header is not
        for field in self._own:
            column, wrong = _own_column(messages, self._topic, partition, field)
            for place in sorted(set(wrong) & set(index[~lost[index]].tolist())):
                text = message_text(messages.column("value")[place].as_py())
                broken.append((place, field.name, "not UTF-8", text))
                lost[place] = True
            found[field.name] = column
        table, kept = raw.table, index
        if lost.any():
            is_kept = ~lost[index]
            table, kept = table.filter(pa.array(is_kept)), index[is_kept]
        places = pa.array(kept)
        columns = [
            found[name].take(places) if name in found else table.column(name).combine_chunks()
            for name in self._read.names
        ]
        whole = pa.table(columns, names=self._read.names)
        return RawRecords(whole, raw.count, kept if broken else None, sorted(broken))


def _format(
    kind: str,
    stream: Stream,
    declared: pa.Schema,
    wanted: pa.Schema,
    registry: SchemaRegistry | None,
    reject_schemas: Collection[int],
) -> MessageFormat:
    made: dict[str, Callable[[], MessageFormat]] = {
        "csv": lambda: CsvMessages(declared.names, wanted, stream),
        "fixed": lambda: FixedMessages(declared, wanted.names),
        "raw": lambda: RawMessages(wanted),
    }
    if kind not in MESSAGE_FORMATS:
        msg = f"stream {stream.name} has an unknown format of messages"
        raise ArgumentError(msg, name="format", hint=f"one of {', '.join(MESSAGE_FORMATS)}")
    if kind in REGISTERED_FORMATS:
        if registry is None:
            msg = f"stream {stream.name} has messages of the format {kind} and no schema registry"
            raise ArgumentError(msg, name="registry", hint="registry=http://registry:8081 in the URL")
        codec: Codec = AvroCodec() if kind == "avro" else ProtobufCodec(wanted)
        return RegisteredMessages(wanted, stream.written_time, registry, codec, reject_schemas)
    return made[kind]()


def _with_places(chunk: Chunk, messages: pa.RecordBatch) -> Chunk:
    """Return the records of unfolded messages, of which a reject tells which one of its message it is."""
    numbers = (messages.column(RECORD).to_numpy() + 1).tolist()
    told = [
        replace(one, reason=f"{one.reason} (record {numbers[one.seq - chunk.first_seq]} of its message)")
        for one in chunk.rejects
    ]
    return replace(chunk, rejects=told)


def _check_own(field: pa.Field) -> None:
    wanted = MESSAGE_COLUMNS.get(field.name, pa.binary())
    fits = bytes_or_text(field.type) if pa.types.is_binary(wanted) else field.type == wanted
    if not fits:
        msg = f"column '{field.name}' of a message cannot be of type {field.type}"
        hint = "binary, or string where it is UTF-8" if pa.types.is_binary(wanted) else f"its type is {wanted}"
        raise ColumnError(msg, name=field.name, hint=hint)


def _own_column(messages: pa.RecordBatch, topic: str, partition: int, field: pa.Field) -> tuple[pa.Array, list[int]]:
    """Return a column of the messages themselves, and the places of values that are not what the schema says."""
    name = field.name.removeprefix(_PREFIX)
    if name == "topic":
        return pa.repeat(pa.scalar(topic, pa.string()), len(messages)), []
    if name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), len(messages)), []
    if name == "timestamp":
        return messages.column("timestamp_us").cast(pa.timestamp("us")).cast(TIMESTAMP), []
    values = messages.column(name)
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode(), []
    return utf8_values(values) if pa.types.is_string(field.type) and pa.types.is_binary(values.type) else (values, [])
