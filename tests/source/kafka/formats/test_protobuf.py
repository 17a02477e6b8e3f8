"""Messages in Protobuf, with a registry that this process serves."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, KafkaSchemaError, KafkaUnreachableError
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.formats.registered_messages import SchemaRegistry
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.member.stream import Stream
from tests.source.kafka.formats.messages import messages_of
from tests.source.kafka.formats.registry import registry
from tests.support.examples import examples
from tests.support.kafka import free_port

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

Field = descriptor_pb2.FieldDescriptorProto
DECLARED = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("code", pa.int32()),
    ]
)


def file_of(name: str, package: str = "t") -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def field(message: Any, name: str, kind: int, type_name: str = "", label: int = Field.LABEL_OPTIONAL) -> Any:
    number = len(message.field) + 1
    return message.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=label)


def reading() -> Any:
    """Return a file with the type ``Reading`` second, and ``Inner`` within it; it needs two others."""
    file = file_of("reading.proto")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "common/kinds.proto"])
    file.message_type.add(name="Other")
    message = file.message_type.add(name="Reading")
    field(message, "ts", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    field(message, "x", Field.TYPE_MESSAGE, ".google.protobuf.DoubleValue")
    field(message, "n", Field.TYPE_SINT64)
    maybe = field(message, "name", Field.TYPE_STRING)
    message.oneof_decl.add(name="_name")
    maybe.oneof_index, maybe.proto3_optional = 0, True
    field(message, "kind", Field.TYPE_ENUM, ".t.Kind")
    field(message, "code", Field.TYPE_ENUM, ".t.Kind")
    inner = message.nested_type.add(name="Inner")
    field(inner, "ts", Field.TYPE_INT64)
    field(inner, "n", Field.TYPE_STRING)
    field(inner, "x", Field.TYPE_DOUBLE, label=Field.LABEL_REPEATED)
    return file


def kinds() -> Any:
    file = file_of("default")  # the name that the registry gives; it is needed as common/kinds.proto
    kind = file.enum_type.add(name="Kind")
    for number, name in ((0, "NONE"), (3, "WIND")):
        kind.value.add(name=name, number=number)
    return file


def text_of(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


NEEDED = [{"name": "common/kinds.proto", "subject": "kinds/of all", "version": 2}]
ANSWERS: dict[str, dict[str, Any]] = {
    "/schemas/ids/1?format=serialized": {
        "schema": text_of(reading()), "schemaType": "PROTOBUF", "references": NEEDED,
    },
    "/subjects/kinds%2Fof%20all/versions/2?format=serialized": {"schema": text_of(kinds()), "schemaType": "PROTOBUF"},
    "/schemas/ids/2?format=serialized": {"schema": '{"type": "long"}'},
    "/schemas/ids/3?format=serialized": {"schema": text_of(reading()), "schemaType": "PROTOBUF"},  # lacks its need
    "/schemas/ids/4?format=serialized": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
}  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with registry(
        lambda path, _: (200 if path in ANSWERS else 404, ANSWERS.get(path, {"error_code": 40403}))
    ) as served:
        yield served


def made(type_name: str, **values: Any) -> bytes:
    """Return a message as its writer encodes it."""
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    needed = kinds()
    needed.name = "common/kinds.proto"
    for file in (needed, reading()):
        pool.AddSerializedFile(file.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(type_name))
    message = kind()
    for name, value in values.items():
        if name == "ts" and type_name == "t.Reading":
            message.ts.FromMicroseconds(value)
        elif name == "x" and type_name == "t.Reading":
            message.x.value = value
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return bytes(message.SerializeToString())


READING, INNER = b"\x02\x02", b"\x04\x02\x00"  # the second type; the first one within it


def framed(number: int, place: bytes, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + place + data


def records_of(url: str, schema: pa.Schema = DECLARED, **timing: Any) -> MessageRecords:
    asked = SchemaRegistry(url, {}, **timing)
    return MessageRecords("protobuf", Stream("e", time="ts", schema=schema), schema, "t", asked)


def rows(chunk: Chunk) -> list[dict[str, object]]:
    return chunk.tuples.to_pylist()


WHOLE = {"ts": 5_000_001, "x": 1.5, "n": -7, "name": "a", "kind": 3, "code": 3}


def test_each_message_goes_by_its_type_in_the_schema_of_its_writer(url: str) -> None:
    values = [
        framed(1, READING, made("t.Reading", **WHOLE)),
        framed(1, READING, made("t.Reading", ts=7)),
    ]
    chunk = records_of(url).chunk(messages_of(values), 0, 0)
    assert not chunk.rejects
    assert rows(chunk) == [
        {"_ts": 5_000_001, "_seq": 0, "x": 1.5, "n": -7, "name": "a", "kind": "WIND", "code": 3},
        {"_ts": 7, "_seq": 1, "x": None, "n": 0, "name": None, "kind": "NONE", "code": 0},
    ]
    inner = pa.schema([("ts", pa.int64()), ("n", pa.string())])
    chunk = records_of(url, inner).chunk(messages_of([framed(1, INNER, made("t.Reading.Inner", ts=3, n="z"))]), 0, 0)
    assert rows(chunk) == [{"_ts": 3, "_seq": 0, "n": "z"}]


def test_what_cannot_be_read_is_a_reject(url: str) -> None:
    good = framed(1, READING, made("t.Reading", **WHOLE))
    values = [
        good,
        None,
        b"{}",
        good[:-1],
        framed(1, b"\x02\x08", b""),  # a fifth type
        framed(1, b"", b""),
        framed(1, b"\xff" * 11, b""),
        framed(1, INNER, made("t.Reading.Inner", ts=3, n="z")),
        framed(2, b"\0", b""),
        framed(3, READING, b""),
        framed(1, b"\0", b""),  # another type, without a time
        framed(1, READING, made("t.Reading", ts=5, kind=9)),  # a number without a name
        good,
    ]
    chunk = records_of(url).chunk(messages_of(values), 0, 0)
    assert [row["_seq"] for row in rows(chunk)] == [0, 12]
    told = {reject.seq: (reject.column, reject.reason) for reject in chunk.rejects}
    assert told[1] == ("", "a message without a value")
    assert told[2] == ("", "no schema's id before the value")
    assert told[3] == told[5] == told[6] == ("", "not a value of schema 1")
    assert told[4] == ("", "schema 1 has no such type of message")
    assert told[7] == ("x", "the value is not of type double")  # it is repeated there
    assert told[8] == ("", "schema 2 is not Protobuf")
    assert told[9] == ("", "schema 3 cannot be read")
    assert told[10][0] == "ts"
    assert told[11] == ("kind", "the value is not of type string")


@examples(40)
@given(st.lists(st.sampled_from(["whole", "inner", "torn"]) | st.binary(max_size=12), max_size=6))
def test_a_message_is_what_it_is_alone(url: str, drawn: list[str | bytes]) -> None:
    whole = framed(1, READING, made("t.Reading", **WHOLE))
    said = {
        "whole": whole, "inner": framed(1, INNER, made("t.Reading.Inner", ts=3, n="z")), "torn": whole[:-2],
    }  # fmt: skip
    values = [said[value] if isinstance(value, str) else value for value in drawn]
    records = records_of(url)
    together = records.chunk(messages_of(values), 0, 0)
    alone = [records.chunk(messages_of([value]), 0, 0) for value in values]
    assert [{**row, "_seq": 0} for row in rows(together)] == [row for chunk in alone for row in rows(chunk)]
    assert [reject.seq for reject in together.rejects] == [place for place, chunk in enumerate(alone) if chunk.rejects]


def test_a_file_that_a_schema_needs_may_come_later(url: str) -> None:
    registered = {**ANSWERS["/schemas/ids/1?format=serialized"], "references": [{**NEEDED[0], "version": 3}]}
    needed = "/subjects/kinds%2Fof%20all/versions/3?format=serialized"
    values = messages_of([framed(7, READING, made("t.Reading", **WHOLE))])
    ANSWERS["/schemas/ids/7?format=serialized"] = registered

    def wait(_: float) -> None:
        ANSWERS[needed] = {"schema": text_of(kinds()), "schemaType": "PROTOBUF"}

    chunk = records_of(url, wait=wait).chunk(values, 0, 0)
    assert len(rows(chunk)) == 1
    assert not chunk.rejects
    del ANSWERS[needed]
    with pytest.raises(KafkaSchemaError, match="does not have schema 7"):
        records_of(url, wait=lambda _: None, clock=iter(range(100)).__next__).chunk(values, 0, 0)


def test_a_registry_that_cannot_help_rejects_nothing(url: str) -> None:
    values = messages_of([framed(4, READING, b"")])
    with pytest.raises(ArgumentError, match="not its descriptor") as caught:
        records_of(url).chunk(values, 0, 0)
    assert caught.value.name == "registry"
    with pytest.raises(KafkaUnreachableError):
        records_of(f"http://127.0.0.1:{free_port()}", wait=lambda _: None).chunk(values, 0, 0)
