"""Messages in Avro, with a registry that this process serves."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from email.message import Message

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, KafkaAccessError, KafkaSchemaError, KafkaUnreachableError
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.formats.registered_messages import SchemaRegistry
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.member.stream import Stream
from tests.source.kafka.formats.messages import messages_of
from tests.source.kafka.formats.registry import registry
from tests.support.examples import examples
from tests.support.kafka import free_port

fastavro = pytest.importorskip("fastavro")

LOGIN = {"schema.registry.basic.auth.user.info": "me:pa55word"}
RECORD = {"type": "record", "name": "r"}
FIRST = {**RECORD, "fields": [{"name": "ts", "type": "long"}, {"name": "x", "type": ["null", "double"]}]}
SECOND = {
    **RECORD,
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "name", "type": "string"},
        {"name": "more", "type": {"type": "array", "items": "int"}},
    ],
}
WRONG = {**RECORD, "fields": [{"name": "ts", "type": "long"}, {"name": "x", "type": "string"}]}
MILLIS = ("timestamp-millis", "local-timestamp-millis")
ZONED, ZONELESS = (
    {
        **RECORD,
        "fields": [
            {"name": "ts", "type": ["string", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "seen", "type": {"type": "long", "logicalType": kind}},
        ],
    }
    for kind in MILLIS
)
SCHEMAS = {
    1: {"schema": json.dumps(FIRST)},
    2: {"schema": json.dumps(SECOND), "schemaType": "AVRO"},
    3: {"schema": json.dumps(WRONG)},
    4: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
    5: {"schema": '"long"'},
    6: {"schema": "{"},
    7: {"schema": json.dumps(ZONED)},
    8: {"schema": json.dumps(ZONELESS)},
}
DECLARED = pa.schema([("ts", pa.int64()), ("x", pa.float64()), ("name", pa.string())])


ASKED: list[str] = []


def answer(path: str, headers: Message) -> tuple[int, dict[str, object]]:
    """Confluent's ``GET /schemas/ids/ID``."""
    ASKED.append(path)
    number = int(path.rpartition("/")[2])
    if headers.get("Authorization") == "Basic bWU6d3Jvbmc=":  # me:wrong
        return 401, {}
    found: dict[str, object] = SCHEMAS.get(number, {"error_code": 40403})
    return 500 if number == 500 else 200 if number in SCHEMAS else 404, found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with registry(answer) as served:
        yield served


def avro(number: int, schema: object, value: object) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + data.getvalue()


class Clock:
    """Time that passes while somebody waits; then a schema may be registered."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, 0
        self.registered: dict[float, int] = {}

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now, self.waits = self.now + seconds, self.waits + 1
        SCHEMAS.update({number: SCHEMAS[1] for at, number in self.registered.items() if at <= self.now})


def records_of(url: str, clock: Clock | None = None, reject_schemas: tuple[int, ...] = ()) -> MessageRecords:
    stream, clock = Stream("e", time="ts", schema=DECLARED), clock or Clock()
    asked = SchemaRegistry(url, LOGIN, clock=clock, wait=clock.wait)
    return MessageRecords("avro", stream, DECLARED, "t", asked, reject_schemas)


def rows(chunk: Chunk) -> list[dict[str, object]]:
    return chunk.tuples.to_pylist()


def test_each_message_goes_by_the_schema_of_its_writer(url: str) -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    values = [
        avro(1, FIRST, {"ts": 5, "x": 1.5}),
        avro(2, SECOND, {"ts": at, "name": "n", "more": [1, 2]}),
        avro(1, FIRST, {"ts": 6, "x": None}),
    ]
    ASKED.clear()
    chunk = records_of(url).chunk(messages_of(values), 0, 0)
    assert rows(chunk) == [
        {"_ts": 5, "_seq": 0, "x": 1.5, "name": None},
        {"_ts": 1_767_225_600_000_000, "_seq": 1, "x": None, "name": "n"},
        {"_ts": 6, "_seq": 2, "x": None, "name": None},
    ]
    assert sorted(ASKED) == ["/schemas/ids/1", "/schemas/ids/2"]  # each once


def test_what_cannot_be_read_is_a_reject(url: str) -> None:
    good = avro(1, FIRST, {"ts": 5, "x": 1.5})
    values = [
        good,
        None,
        b"",
        b'{"ts": 5}',
        good[:-1],
        good + b"\0",
        avro(3, WRONG, {"ts": 5, "x": "no"}),
        b"\0" + (4).to_bytes(4, "big"),
        b"\0" + (5).to_bytes(4, "big") + b"\2",
        b"\0" + (6).to_bytes(4, "big"),
        b"\0" + (77).to_bytes(4, "big"),
        good,
    ]
    values += [b"\0" + (1 << 31).to_bytes(4, "big")]  # no registry's id
    chunk = records_of(url, reject_schemas=(77,)).chunk(messages_of(values), 0, 0)
    assert [row["_seq"] for row in rows(chunk)] == [0, 11]
    assert [(reject.seq, reject.column, reject.reason) for reject in chunk.rejects] == [
        (1, "", "a message without a value"),
        (2, "", "no schema's id before the value"),
        (3, "", "no schema's id before the value"),
        (4, "", "not a value of schema 1"),
        (5, "", "more bytes than a value of schema 1"),
        (6, "x", "the value is not of type double"),
        (7, "", "schema 4 is not Avro"),
        (8, "", "schema 5 is not a record"),
        (9, "", "schema 6 cannot be read"),
        (10, "", "schema 77 is in reject_schemas"),
        (12, "", "no schema's id before the value"),
    ]


@examples(60)
@given(st.lists(st.sampled_from(["first", "second", "wrong", "torn"]) | st.binary(max_size=12), max_size=8))
def test_a_message_is_what_it_is_alone(url: str, drawn: list[str | bytes]) -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    said = {
        "first": avro(1, FIRST, {"ts": 5, "x": 1.5}),
        "second": avro(2, SECOND, {"ts": at, "name": "n", "more": []}),
        "wrong": avro(3, WRONG, {"ts": 5, "x": "no"}),
        "torn": avro(1, FIRST, {"ts": 5, "x": 1.5})[:-2],
    }
    values = [said[value] if isinstance(value, str) else value for value in drawn]
    values = [value for value in values if len(value) < 5 or value[:4] != bytes(4) or value[4] in SCHEMAS]
    records = records_of(url)
    whole = records.chunk(messages_of(values), 0, 0)
    alone = [records.chunk(messages_of([value]), 0, 0) for value in values]
    assert [{**row, "_seq": 0} for row in rows(whole)] == [row for chunk in alone for row in rows(chunk)]
    assert [reject.seq for reject in whole.rejects] == [place for place, chunk in enumerate(alone) if chunk.rejects]


def test_times_of_a_column_in_another_zone_need_one_of_their_own(url: str) -> None:
    zone = pa.timestamp("us", tz="Europe/Berlin")
    stream = Stream("e", f"kafka://b:1/t?format=avro&registry={url}", schema=pa.schema([("ts", zone), ("seen", zone)]))
    utc = pa.timestamp("us", tz="UTC")
    made = MessageRecords("avro", stream, pa.schema([("ts", utc), ("seen", utc)]), "t", SchemaRegistry(url, LOGIN))
    at = datetime(2024, 3, 5, 9, 0, 7, tzinfo=timezone.utc)
    local = datetime(2024, 3, 5, 10, 0, 7)
    values = [
        avro(7, ZONED, {"ts": at, "seen": at}),
        avro(7, ZONED, {"ts": "2024-03-05T10:00:07+01:00", "seen": at}),
        avro(7, ZONED, {"ts": "2024-03-05T10:00:07", "seen": at}),
        avro(8, ZONELESS, {"ts": at, "seen": local}),
    ]
    chunk = made.chunk(messages_of(values), 0, 0)
    assert chunk.tuples.column("_ts").to_pylist() == [int(at.timestamp() * 1e6)] * 2
    assert [(reject.seq, reject.column) for reject in chunk.rejects] == [(2, "ts"), (3, "seen")]


@pytest.mark.parametrize(
    ("written", "kind", "values", "taken"),
    [
        ("double", pa.int64(), [5.0, 5.5], []),
        ("boolean", pa.float64(), [True], []),
        ("long", pa.timestamp("us", tz="UTC"), [5], []),
        ("int", pa.date32(), [5], []),
        ("bytes", pa.list_(pa.int32()), [b"a"], []),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, pa.int64(), [Decimal("1.50")], []),
        ({"type": "array", "items": "double"}, pa.list_(pa.int32()), [[1.5], []], [1]),
        ({"type": "map", "values": "double"}, pa.struct([("x", pa.int64())]), [{"x": 1.5}, {"y": 1.5}], [1]),
        ("long", pa.float64(), [5, 2**53 + 1], [0]),
        ("long", pa.decimal128(5, 2), [5], [0]),
        ("bytes", pa.string(), [b"a", b"\xff"], [0]),
        ("string", pa.binary(), ["a"], [0]),
    ],
    ids=str,
)
def test_a_value_of_another_kind_than_its_column_is_a_reject(
    written: object, kind: pa.DataType, values: list[object], taken: list[int]
) -> None:
    schema = {**RECORD, "fields": [{"name": "ts", "type": "long"}, {"name": "v", "type": written}]}
    declared = pa.schema([("ts", pa.int64()), ("v", kind)])
    with registry(lambda path, headers: (200, {"schema": json.dumps(schema)})) as served:
        made = MessageRecords("avro", Stream("e", schema=declared), declared, "t", SchemaRegistry(served, {}))
        messages = [avro(1, schema, {"ts": 5, "v": value}) for value in values]
        chunk = made.chunk(messages_of(messages), 0, 0)
    assert [row["_seq"] for row in rows(chunk)] == taken
    assert {(reject.column, reject.reason) for reject in chunk.rejects} <= {("v", f"the value is not of type {kind}")}
    assert len(chunk.rejects) + len(taken) == len(values)


def read_with(schema: object, *data: bytes) -> Chunk:
    """Read messages that have the bytes after the frame of a schema."""
    declared = pa.schema([("ts", pa.int64())])
    with registry(lambda path, headers: (200, {"schema": json.dumps(schema)})) as served:
        made = MessageRecords("avro", Stream("e", schema=declared), declared, "t", SchemaRegistry(served, {}))
        return made.chunk(messages_of([b"\0\0\0\0\1" + one for one in data]), 0, 0)


def test_a_number_of_more_than_64_bits_is_a_reject_and_a_text_that_looks_so_is_none() -> None:
    text = {**RECORD, "fields": [{"name": "ts", "type": "long"}, {"name": "s", "type": "string"}]}
    said = "\u0441\u043e\u043b\u043d\u0446\u0435 a".encode()
    chunk = read_with(text, b"\x0a" + bytes([2 * len(said)]) + said, b"\xfe" + b"\xff" * 9 + b"\x01\x00")
    assert [row["_ts"] for row in rows(chunk)] == [5]
    assert [reject.reason for reject in chunk.rejects] == ["not a value of schema 1"]


def test_a_type_that_holds_itself_ends_no_process() -> None:
    tree = {**RECORD, "fields": [{"name": "ts", "type": "long"}, {"name": "next", "type": ["null", "r"]}]}
    chunk = read_with(tree, b"\x0a\x02\x0a\x00", b"\x0a\x02" * 50_000 + b"\x0a\x00")
    assert [row["_seq"] for row in rows(chunk)] == [0]
    assert [reject.reason for reject in chunk.rejects] == ["not a value of schema 1"]


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "f", "size": 0}, {"type": "record", "name": "e", "fields": []}], ids=str
)
def test_five_bytes_are_no_hundred_million_items(items: object) -> None:
    lists = {"type": "map", "values": {"type": "array", "items": items}}
    schema = {**RECORD, "fields": [{"name": "ts", "type": "long"}, {"name": "l", "type": ["null", lists]}]}
    chunk = read_with(schema, b"\x0a\x02\x02\x02a\x80\xc2\xd7\x2f\0\0")
    assert [reject.reason for reject in chunk.rejects] == ["schema 1 has lists of values that take no bytes"]


def test_a_registry_that_does_not_answer_rejects_nothing(url: str) -> None:
    values = [avro(1, FIRST, {"ts": 5, "x": 1.5})]
    with pytest.raises(KafkaUnreachableError) as caught:
        records_of(f"http://127.0.0.1:{free_port()}").chunk(messages_of(values), 0, 0)
    assert caught.value.name == "registry"
    with pytest.raises(KafkaUnreachableError, match="HTTP 500"):
        records_of(url).chunk(messages_of([b"\0" + (500).to_bytes(4, "big")]), 0, 0)


def test_a_schema_that_the_registry_learns_later_rejects_nothing(url: str) -> None:
    # Of several registries the ones that follow say 404 in the moment after a producer registered at another one.
    clock = Clock()
    clock.registered = {1.5: 201, 3.0: 202}
    values = [avro(number, FIRST, {"ts": number, "x": 1.5}) for number in (202, 1, 201)]
    chunk = records_of(url, clock).chunk(messages_of(values), 0, 0)
    assert [row["_ts"] for row in rows(chunk)] == [202, 1, 201]
    assert not chunk.rejects
    assert 3.0 <= clock.now < 6.0


def test_what_the_registry_does_not_have_is_an_error_that_nobody_keeps(url: str) -> None:
    values = [avro(number, FIRST, {"ts": number, "x": 1.5}) for number in (211, 1, 212, 211)]
    clock = Clock()
    records = records_of(url, clock)
    with pytest.raises(KafkaSchemaError, match="does not have schemas 211,212") as caught:
        records.chunk(messages_of(values), 0, 0)
    assert 10 <= clock.now <= 15
    assert clock.waits < 20
    assert caught.value.name == "registry"
    # Another reader, to whom the registry answered, takes them all; and so does this one when it is asked again.
    for number in (211, 212):
        SCHEMAS[number] = SCHEMAS[1]
    assert rows(records.chunk(messages_of(values), 0, 0)) == rows(records_of(url).chunk(messages_of(values), 0, 0))
    # The hint works where no schema is to come: then all readers reject, whatever a registry says.
    assert "reject_schemas=211,212 in the URL" in caught.value.hint
    for known in (True, False):
        if not known:
            del SCHEMAS[211], SCHEMAS[212]
        chunk = records_of(url, reject_schemas=(211, 212)).chunk(messages_of(values), 0, 0)
        assert [(reject.seq, reject.reason) for reject in chunk.rejects] == [
            (0, "schema 211 is in reject_schemas"),
            (2, "schema 212 is in reject_schemas"),
            (3, "schema 211 is in reject_schemas"),
        ]


def test_a_flood_of_unknown_ids_is_asked_for_in_bounds(url: str) -> None:
    values = [b"\0" + number.to_bytes(4, "big") for number in range(10_000, 12_000)]
    ASKED.clear()
    with pytest.raises(KafkaSchemaError):
        records_of(url).chunk(messages_of(values), 0, 0)
    assert len(ASKED) < 500


def test_a_wrong_login_is_named_and_not_shown(url: str) -> None:
    stranger = SchemaRegistry(url, {"schema.registry.basic.auth.user.info": "me:wrong"})
    with pytest.raises(KafkaAccessError) as caught:
        stranger.schema(1)
    assert caught.value.name == "schema.registry.basic.auth.user.info"
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("text", ["registry:8081", "ftp://registry", "http://me:pa55word@registry", "http://"])
def test_a_url_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        SchemaRegistry(text, {})
    assert caught.value.name == "registry"
    assert "pa55word" not in str(caught.value)
