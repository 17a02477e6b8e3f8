"""MQTT's packets: the same messages wherever a connection cuts them; anything else is refused by name."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.mqtt_packets import (
    V5,
    V311,
    Connected,
    Disconnected,
    Login,
    Packets,
    Subscribed,
    acks,
    connect,
    subscribe,
)
from tests.support.examples import examples

Message = tuple[str, bytes, int, bool]
MESSAGES = st.lists(
    st.tuples(st.text("abc/ä", min_size=1, max_size=9), st.binary(max_size=300), st.integers(0, 1), st.booleans()),
    max_size=8,
)


def length(size: int) -> bytes:
    parts = b""
    while True:
        size, byte = divmod(size, 128)
        parts += bytes([byte | (128 if size else 0)])
        if not size:
            return parts


def publish(message: Message, number: int, version: int, properties: bytes = b"") -> bytes:
    topic, payload, qos, is_again = message
    body = struct.pack(">H", len(topic.encode())) + topic.encode()
    body += struct.pack(">H", number) if qos else b""
    body += length(len(properties)) + properties if version == V5 else b""
    body += payload
    return bytes([0x30 | qos << 1 | (8 if is_again and qos else 0)]) + length(len(body)) + body


@pytest.mark.parametrize("version", [V5, V311])
@examples(80)
@given(MESSAGES, st.data())
def test_messages_are_the_same_wherever_they_are_cut(
    version: int, messages: list[Message], data: st.DataObject
) -> None:
    text = b""
    for number, message in enumerate(messages, 1):
        # A content type, a user's pair and a time that the message expires in.
        properties = data.draw(
            st.sampled_from([b"", b"\x03\0\x01j", b"&\0\x01k\0\x02vv\x02\0\0\0\x09", b"\x0b\x81\x01"])
        )
        text += publish(message, number, version, properties) + data.draw(st.sampled_from([b"", b"\xd0\0"]))
    packets, found, numbers, repeated = Packets(version), [], [], 0
    while text:
        cut = data.draw(st.integers(1, len(text)))
        taken = packets.take(text[:cut])
        found += taken.messages
        numbers += taken.acks
        repeated += taken.repeated
        assert not taken.packets
        text = text[cut:]
    assert found == [(topic.encode(), payload) for topic, payload, _, _ in messages]
    expected = [struct.pack(">H", number) for number, (_, _, qos, _) in enumerate(messages, 1) if qos]
    assert numbers == expected
    assert repeated == sum(1 for _, _, qos, is_again in messages if qos and is_again)
    assert acks(numbers) == b"".join(b"\x40\x02" + number for number in expected)


def test_the_brokers_answers_are_read() -> None:
    found = Packets(V311).take(b"\x20\x02\x01\x00" + b"\x90\x03\x00\x01\x01").packets
    assert found == [Connected(0, True), Subscribed(1)]
    properties = (
        b"\x21\x00\x14" + b"\x13\x00\x1e" + b"\x24\x00" + b"\x11\x00\x00\x00\x09" + b"\x1f\x00\x02no" + b"\x12\x00\x01c"
    )
    body = b"\x00\x87" + bytes([len(properties)]) + properties
    found = Packets(V5).take(b"\x20" + bytes([len(body)]) + body + b"\xe0\x02\x8e\x00" + b"\xe0\x00").packets
    assert found == [Connected(0x87, False, 30, 0, 9), Disconnected(0x8E), Disconnected(0)]


@examples(200)
@given(st.binary(max_size=60), st.sampled_from([V5, V311]))
def test_any_bytes_are_read_or_refused_by_name(data: bytes, version: int) -> None:
    with contextlib.suppress(IntakeError):
        Packets(version).take(data)


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9, b"\x15\x03\x01\x00\x02\x02\x46", b"\x34\x05\0\1a\0\1"]
)
def test_what_is_not_mqtt_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(IntakeError, match="does not speak MQTT"):
        Packets(V311).take(data)


def test_requests_say_what_they_should() -> None:
    login = Login("name", "user", "sEcReT")
    assert "sEcReT" not in repr(login)
    assert connect(login, V311, keep_alive_s=60) == (
        b"\x10\x1e\x00\x04MQTT\x04\xc0\x00\x3c" + b"\x00\x04name" + b"\x00\x04user" + b"\x00\x06sEcReT"
    )
    v5 = connect(Login("n"), V5, keep_alive_s=1, in_flight=7, maximum_bytes=9)
    assert (
        v5 == b"\x10\x1b\x00\x04MQTT\x05\x00\x00\x01\x0d\x11\xff\xff\xff\xff\x21\x00\x07\x27\x00\x00\x00\x09\x00\x01n"
    )
    assert subscribe("a/#", V311) == b"\x82\x08\x00\x01\x00\x03a/#\x01"
    assert subscribe("a/#", V5) == b"\x82\x09\x00\x01\x00\x00\x03a/#\x11"
