"""Columns by a registry's schemas: what a join reads of Avro, Protobuf and JSON where it declares none."""

from __future__ import annotations

import base64
import io
import json
from email.message import Message
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.errors import ArgumentError, KafkaSchemaError
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.formats.registered_columns import registered_columns
from streamjoin_ds.source.kafka.formats.registered_messages import SchemaRegistry
from streamjoin_ds.source.kafka.topic import KafkaUrl
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.member.stream import Stream
from tests.source.kafka.formats.messages import messages_of
from tests.source.kafka.formats.registry import registry
from tests.support.topics import fake_topics

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "reading",
    "namespace": "t",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "x", "type": ["null", "double"]},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "dec", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "record", "name": "place", "fields": [{"name": "lat", "type": "float"}]}},
        {"name": "was", "type": {"type": "array", "items": "place"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {"name": "several", "type": ["null", "int", "string"]},
        {"name": "next", "type": ["null", "reading"]},
    ],
}
AVRO_COLUMNS = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("x", pa.float64()),
        ("id", pa.string()),
        ("dec", pa.decimal128(9, 2)),
        ("at", pa.struct([("lat", pa.float32())])),
        ("was", pa.list_(pa.struct([("lat", pa.float32())]))),
    ]
)
JSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ts": {"type": "string", "format": "date-time"},
        "x": {"type": ["number", "null"]},
        "n": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
        "at": {"$ref": "#/definitions/place"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {},
        "self": {"$ref": "#"},
    },
    "definitions": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
}
JSON_COLUMNS = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("at", pa.struct([("lat", pa.float64())])),
        ("tags", pa.list_(pa.string())),
    ]
)


def protobuf_file() -> str:
    """Return the descriptor of a file with a message type ``Reading``."""
    from google.protobuf import descriptor_pb2

    kind = descriptor_pb2.FieldDescriptorProto
    needs = ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="t", syntax="proto3", dependency=needs)
    message = file.message_type.add(name="Reading")
    told = [
        ("ts", kind.TYPE_MESSAGE, ".google.protobuf.Timestamp", kind.LABEL_OPTIONAL),
        ("x", kind.TYPE_MESSAGE, ".google.protobuf.DoubleValue", kind.LABEL_OPTIONAL),
        ("raw", kind.TYPE_BYTES, None, kind.LABEL_OPTIONAL),
        ("n", kind.TYPE_UINT32, None, kind.LABEL_REPEATED),
        ("within", kind.TYPE_MESSAGE, ".t.Reading", kind.LABEL_OPTIONAL),
    ]
    for number, (name, one, type_name, label) in enumerate(told, 1):
        message.field.add(name=name, number=number, type=one, type_name=type_name, label=label)
    return base64.b64encode(file.SerializeToString()).decode()


PROTOBUF_COLUMNS = pa.schema(
    [("ts", TIMESTAMP), ("x", pa.float64()), ("raw", pa.binary()), ("n", pa.list_(pa.int64()))]
)
SCHEMAS: dict[int, dict[str, object]] = {
    1: {"schema": json.dumps({"type": "record", "name": "old", "fields": [{"name": "ts", "type": "long"}]})},
    7: {"schema": json.dumps(AVRO)},
    8: {"schema": protobuf_file(), "schemaType": "PROTOBUF"},
    9: {"schema": json.dumps(JSON), "schemaType": "JSON"},
}


def answer(path: str, headers: Message) -> tuple[int, dict[str, object]]:
    del headers
    words = path.partition("?")[0].strip("/").split("/")
    number = {"avro-value": 7, "protobuf-value": 8, "json-value": 9}.get(words[1]) if words[0] == "subjects" else None
    found = SCHEMAS.get(int(words[2]) if words[0] == "schemas" else number or 0)
    return (404, {}) if found is None else (200, found)


def frame(number: int, value: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


@pytest.mark.parametrize(
    ("kind", "number", "columns"),
    [("avro", 7, AVRO_COLUMNS), ("protobuf", 8, PROTOBUF_COLUMNS), ("json", 9, JSON_COLUMNS)],
)
def test_the_newest_schema_tells_the_columns_and_where_there_is_no_message_that_of_the_subject(
    kind: str, number: int, columns: pa.Schema
) -> None:
    with registry(answer) as url:
        asked = SchemaRegistry(url, {})
        for values in ([frame(1), frame(number), b"no frame"], []):
            assert registered_columns(kind, values, ["other", kind], asked) == columns
        assert registered_columns(kind, [], ["other"], asked) is None
        assert registered_columns("avro" if kind == "json" else "json", [frame(number)], [], asked) is None
        with pytest.raises(KafkaSchemaError):
            registered_columns(kind, [frame(77)], [], asked)


def test_a_stream_over_a_topic_has_the_columns_of_its_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = fake_topics(monkeypatch, readings=1)
    with registry(answer) as url:
        monkeypatch.setattr(topics, "registry", lambda self: SchemaRegistry(url, {}))
        stream = Stream("e", f"kafka://broker/readings?format=avro&registry={url}")
        with pytest.raises(KafkaSchemaError, match="readings"):
            infer_schema(stream)
        topics.logs["readings"][0].append(frame(7))
        assert infer_schema(stream) == AVRO_COLUMNS


def test_values_of_inferred_columns_are_read() -> None:
    row = {"ts": 1_700_000_000_000_000, "x": 1.5, "id": "0b5b1b1c-59b7-4a0f-9f6b-0d4f6fdb3c1d", "dec": b"\x01\xff"}
    row |= {"at": {"lat": 2.0}, "was": [], "time": 5, "more": {}, "several": None, "next": None}
    plain = json.loads(json.dumps(AVRO).replace('"logicalType"', '"doc"'))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, plain, row)
    with registry(answer) as url:
        stream = Stream("e", "kafka://b/t?format=avro", schema=AVRO_COLUMNS)
        records = MessageRecords("avro", stream, AVRO_COLUMNS, "t", SchemaRegistry(url, {}))
        chunk = records.chunk(messages_of([frame(7, body.getvalue())]), 0, 0)
    assert not chunk.rejects
    assert chunk.tuples.column("id").to_pylist() == ["0b5b1b1c-59b7-4a0f-9f6b-0d4f6fdb3c1d"]
    assert str(chunk.tuples.column("dec")[0]) == "5.11"


def test_json_with_the_frame_of_a_registry_is_read_as_json_without() -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.float64())])
    stream = Stream("e", "kafka://b/t?format=json&registry=http://r", schema=schema)
    values = [
        frame(9, b'{"ts": 1, "x": 2}'),
        b'{"ts": 1}',
        frame(5, b'{"ts": 2}'),
        None,
        frame(9, b"{"),
        frame(9, b" {\n}"),
    ]
    records = MessageRecords("json", stream, schema, "t", SchemaRegistry("http://r", {}), (5,))
    chunk = records.chunk(messages_of(values), 0, 0)
    assert chunk.tuples.column("_seq").to_pylist() == [0]
    reasons = {reject.seq: reject.reason for reject in chunk.rejects}
    assert (reasons[1], reasons[2]) == ("no schema's id before the value", "schema 5 is in reject_schemas")
    assert reasons[3] == "a message without a value"
    assert sorted(reasons) == [1, 2, 3, 4, 5]


def test_a_registry_is_for_formats_that_it_keeps() -> None:
    assert KafkaUrl.parse("kafka://a/t?format=json&registry=http://r").registry == "http://r"
    with pytest.raises(ArgumentError) as caught:
        KafkaUrl.parse("kafka://a/t?format=csv&registry=http://r")
    assert caught.value.name == "registry"
