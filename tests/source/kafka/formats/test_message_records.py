from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.member.stream import Stream
from tests.source.kafka.formats.messages import messages_of
from tests.support.examples import examples

DECLARED = pa.schema([("ts", pa.int64()), ("x", pa.float64()), ("name", pa.string())])


def records_of(
    kind: str, schema: pa.Schema = DECLARED, time: str = "ts", travels: Sequence[str] = ()
) -> MessageRecords:
    stream = Stream("e", None, time=time, schema=schema)
    wanted = pa.schema([schema.field(name) for name in travels]) if travels else schema
    return MessageRecords(kind, stream, wanted, "t")


def rows(chunk: Chunk) -> list[dict[str, object]]:
    return chunk.tuples.to_pylist()


def test_json_messages_become_tuples_and_rejects() -> None:
    values = [
        b'{"ts": 1, "x": 1.5, "name": "a", "more": [1]}',
        b'{"ts": 2, "x": 2}{"ts": 3, "x": 3}',
        b'{"ts": 4',
        b',"x": 5}',
        b'{"ts": 6,\n "x": 6\r\n}',
        None,
        b"",
        b'{"ts": 7, "x": "seven"}',
        b'{"x": 8}',
        b"\xff\xfe",
        b'{"ts": 9, "name": "\xff"}',
        b'{"ts": 10}',
        b"null",
    ]
    chunk = records_of("json").chunk(messages_of(values), partition=3, first_seq=1000)
    assert chunk.count == len(values)
    assert [(row["_ts"], row["_seq"], row["x"]) for row in rows(chunk)] == [
        (1, 1000, 1.5),
        (6, 1004, 6.0),
        (10, 1011, None),
    ]
    assert [(reject.seq - 1000, reject.line, reject.column, reject.reason) for reject in chunk.rejects] == [
        (1, 102, "", "more than one JSON object"),
        (2, 104, "", "the JSON object does not end"),
        (3, 106, "", "not a JSON object"),
        (5, 110, "", "a message without a value"),
        (6, 112, "", "an empty message"),
        (7, 114, "x", "the value is not of type double"),
        (8, 116, "ts", "no event time"),
        (9, 118, "", "not a JSON object"),
        (10, 120, "", "not JSON"),
        (12, 124, "", "not a JSON object"),
    ]
    assert {reject.file for reject in chunk.rejects} == {"kafka:t/3"}
    texts = {reject.seq - 1000: reject.text for reject in chunk.rejects}
    assert texts[1] == values[1].decode()
    assert texts[9] == "0xfffe"
    assert texts[8] == '{"x": 8}'


BROKEN = [
    b'{"ts":1',
    b',"x":2}',
    b'{"ts":1}{"ts":2}',
    b'{"ts":1}\n{"ts":2}',
    b"{",
    b"}",
    b'"',
    b'{"ts":"}',
    b'{"ts":1,}',
    b'{"ts":1]',
    b"[1]",
    b"null",
    b"",
    b"\n",
    b'{"x":"no"}',
    b'{"ts":1}null',
    b"\0",
    b'{"ts":1\0}',
    b'{"name":"\n"}',
    b'{"name":"\\\n"}',
]
GOOD = st.builds(
    lambda ts, name, indent: json.dumps({"ts": ts, "x": 1.5, "name": name}, indent=indent).encode(),
    st.integers(0, 10**15),
    st.text(max_size=4).filter(lambda text: text.isprintable()),
    st.sampled_from([None, 1]),
)


@examples(200)
@given(st.lists(GOOD | st.sampled_from(BROKEN), max_size=12))
def test_a_message_is_what_it_is_alone(values: list[bytes]) -> None:
    """Whatever its neighbours hold; and each whole object is a tuple, and nothing else is."""
    records = records_of("json")
    whole = records.chunk(messages_of(values), 0, 0)
    alone = [records.chunk(messages_of([value]), 0, 0) for value in values]
    assert [row["_seq"] for row in rows(whole)] == [place for place, chunk in enumerate(alone) if rows(chunk)]
    assert [{**row, "_seq": 0} for row in rows(whole)] == [row for chunk in alone for row in rows(chunk)]
    found = [(reject.seq, reject.column, reject.reason, reject.text) for reject in whole.rejects]
    assert found == [
        (place, reject.column, reject.reason, reject.text)
        for place, chunk in enumerate(alone)
        for reject in chunk.rejects
    ]
    for value, chunk in zip(values, alone, strict=True):
        assert bool(rows(chunk)) == (value not in BROKEN)
        if value not in BROKEN:
            said = json.loads(value)
            assert rows(chunk)[0] == {"_ts": said["ts"], "_seq": 0, "x": said["x"], "name": said["name"]}


TIMES = [
    b"5",
    b"1.5",
    b'"5"',
    b'"2026-01-01T00:00:00Z"',
    b'"2026-01-01"',
    b"1e3",
    b"1700000000000000",
    b'""',
    b"true",
    b"9" * 20,
]


@examples(150)
@given(st.lists(st.sampled_from(TIMES).map(lambda time: b'{"ts":%s,"x":1}' % time), max_size=10))
def test_a_time_is_what_it_is_alone_however_its_neighbours_write_it(values: list[bytes]) -> None:
    together = records_of("json")
    for _ in range(2):  # the second time it knows how times were written
        whole = together.chunk(messages_of(values), 0, 0)
        alone = [records_of("json").chunk(messages_of([value]), 0, 0) for value in values]
        assert [row["_ts"] for row in rows(whole)] == [row["_ts"] for chunk in alone for row in rows(chunk)]
        assert [reject.seq for reject in whole.rejects] == [place for place, chunk in enumerate(alone) if chunk.rejects]


FIXED = pa.schema(
    [
        ("ts", pa.int64()),
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("at", TIMESTAMP),
        ("day", pa.date32()),
        ("id", pa.binary(3)),
    ]
)
FORM = "<qBhdfqi3s"


@examples(100)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**15), st.booleans(), st.integers(-(2**15), 2**15 - 1), st.floats())
        | st.binary(max_size=40),
        max_size=20,
    )
)
def test_fixed_messages_are_as_struct_reads_them(drawn: list[tuple[int, bool, int, float] | bytes]) -> None:
    values = [
        value if isinstance(value, bytes) else struct.pack(FORM, *value, 0.5, value[0], 19_000, b"abc")
        for value in drawn
    ]
    chunk = records_of("fixed", FIXED).chunk(messages_of(values), 0, 0)
    size = struct.calcsize(FORM)
    expected = []
    for place, value in enumerate(values):
        if len(value) == size and value[8] < 2:
            ts, flag, small, x, y, at, day, name = struct.unpack(FORM, value)
            expected.append((ts, place, bool(flag), small, x, y, at, day, name))
    arrays = chunk.tuples
    found = list(
        zip(
            *(arrays.column(name).to_pylist() for name in ("_ts", "_seq", "flag", "small", "x", "y")),
            arrays.column("at").view(pa.int64()).to_pylist(),
            arrays.column("day").view(pa.int32()).to_pylist(),
            arrays.column("id").to_pylist(),
            strict=True,
        )
    )
    np.testing.assert_equal(found, expected)
    assert len(chunk.rejects) == len(values) - len(expected)


def test_a_fixed_message_of_another_length_is_a_reject() -> None:
    good = struct.pack("<qd", 5, 1.0)
    schema = pa.schema([("ts", pa.int64()), ("x", pa.float64())])
    chunk = records_of("fixed", schema).chunk(messages_of([good, good[:-1], None, good + good]), 0, 0)
    assert [reject.reason for reject in chunk.rejects] == [
        "15 bytes instead of 16",
        "a message without a value",
        "32 bytes instead of 16",
    ]
    assert [row["_seq"] for row in rows(chunk)] == [0]


def test_csv_messages_are_lines() -> None:
    values = [
        b"1,1.5,a",
        b"2,2.5,b\r\n",
        b"3,x,c",
        b"4,4.5",
        b"5,5.5,a\n6,6.5,b",
        b'7,7.5,"open',
        b"",
        None,
        b'8,8.5,"q,r"',
        b"\xff,1,a",
    ]
    chunk = records_of("csv").chunk(messages_of(values), 0, 0)
    assert [(row["_ts"], row["x"], row["name"], row["_seq"]) for row in rows(chunk)] == [
        (1, 1.5, "a", 0),
        (2, 2.5, "b", 1),
        (8, 8.5, "q,r", 8),
    ]
    assert [reject.seq for reject in chunk.rejects] == [2, 3, 4, 5, 6, 7, 9]
    assert chunk.rejects[2].reason == "a line end inside the message"
    assert chunk.rejects[3].reason == "quotes that do not match"


@examples(60)
@given(
    st.lists(
        st.sampled_from([b"1,1,a", b'2,2,"', b'"', b'3,3,"b', b"4,4,c\r5,5,d", b",,", b"x", b"6,6,e\n"]), max_size=10
    )
)
def test_a_csv_message_is_what_it_is_alone(values: list[bytes]) -> None:
    records = records_of("csv")
    whole = records.chunk(messages_of(values), 0, 0)
    alone = [records.chunk(messages_of([value]), 0, 0) for value in values]
    assert [{**row, "_seq": 0} for row in rows(whole)] == [row for chunk in alone for row in rows(chunk)]
    assert [reject.seq for reject in whole.rejects] == [place for place, chunk in enumerate(alone) if chunk.rejects]


def test_raw_messages_and_the_columns_of_the_message() -> None:
    schema = pa.schema(
        [
            ("body", pa.string()),
            ("kafka_timestamp", TIMESTAMP),
            ("kafka_key", pa.string()),
            ("kafka_partition", pa.int32()),
            ("kafka_offset", pa.int64()),
            ("kafka_timestamp_type", pa.string()),
            ("kafka_header_trace", pa.binary()),
        ]
    )
    messages = messages_of(
        [b"a", b"\xff", b"c", None],
        keys=[b"k", b"k", b"\xff", None],
        headers={"trace": [b"1", b"2", None, b""]},
    )
    chunk = records_of("raw", schema, time="kafka_timestamp").chunk(messages, 7, 0)
    assert rows(chunk) == [
        {
            "_ts": 1_700_000_000_000_000,
            "_seq": 0,
            "body": "a",
            "kafka_key": "k",
            "kafka_partition": 7,
            "kafka_offset": 100,
            "kafka_timestamp_type": "create",
            "kafka_header_trace": b"1",
        },
        {
            "_ts": 1_700_000_003_000_000,
            "_seq": 3,
            "body": None,
            "kafka_key": None,
            "kafka_partition": 7,
            "kafka_offset": 106,
            "kafka_timestamp_type": "append",
            "kafka_header_trace": b"",
        },
    ]
    assert [(reject.seq, reject.column, reject.text) for reject in chunk.rejects] == [
        (1, "body", "0xff"),
        (2, "kafka_key", "c"),
    ]


def test_only_columns_that_travel_are_read() -> None:
    schema = pa.schema([*FIXED, pa.field("kafka_offset", pa.int64())])
    value = struct.pack(FORM, 5, True, 7, 1.0, 2.0, 0, 0, b"abc")
    records = records_of("fixed", schema, travels=["kafka_offset", "small", "ts"])
    assert rows(records.chunk(messages_of([value]), 0, 0)) == [{"_ts": 5, "_seq": 0, "kafka_offset": 100, "small": 7}]


@pytest.mark.parametrize("value", [b'{"ts": "%s"}', b'{"ts": 1, "x": "%s"}'])
def test_a_long_text_is_cut_once_and_says_what_was_left_out(value: bytes) -> None:
    told = value % (b"9" * 5000)
    (reject,) = records_of("json").chunk(messages_of([told]), 0, 0).rejects
    assert reject.text == f"{told[:4096].decode()} ... ({len(told) - 4096} more characters)"


@pytest.mark.parametrize("kind", ["json", "csv", "fixed", "raw"])
def test_no_message_is_no_record(kind: str) -> None:
    schema = pa.schema([("kafka_timestamp", TIMESTAMP), ("v", pa.binary())])
    if kind == "json":
        schema = pa.schema([("kafka_timestamp", TIMESTAMP), ("v", pa.string())])
    if kind == "fixed":
        schema = pa.schema([("kafka_timestamp", TIMESTAMP), ("v", pa.int32())])
    chunk = records_of(kind, schema, time="kafka_timestamp").chunk(messages_of([]), 0, 0)
    assert (chunk.count, chunk.tuples.num_rows, list(chunk.rejects)) == (0, 0, [])


@pytest.mark.parametrize(
    ("kind", "schema", "name"),
    [
        ("fixed", pa.schema([("ts", pa.int64()), ("s", pa.string())]), "s"),
        ("raw", pa.schema([("ts", pa.int64())]), "ts"),
        ("raw", pa.schema([("ts", pa.int64()), ("a", pa.binary())]), "ts"),
        ("json", pa.schema([("ts", pa.int64()), ("kafka_key", pa.int64())]), "kafka_key"),
        ("json", pa.schema([("ts", pa.int64()), ("kafka_offset", pa.int32())]), "kafka_offset"),
    ],
)
def test_a_column_that_a_format_cannot_hold_is_refused(kind: str, schema: pa.Schema, name: str) -> None:
    with pytest.raises(ColumnError) as caught:
        records_of(kind, schema)
    assert caught.value.name == name


def test_an_unknown_format_and_an_undeclared_schema_are_refused() -> None:
    with pytest.raises(ArgumentError, match="unknown format"):
        records_of("xml")
    with pytest.raises(ArgumentError, match="does not declare"):
        MessageRecords("json", Stream("e"), DECLARED, "t")
