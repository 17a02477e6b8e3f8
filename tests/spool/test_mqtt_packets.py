"""MQTT's packets: the same messages wherever a connection cuts them; anything else is refused by name."""

from __future__ import annotations

import random
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.spool.mqtt_fuzz import cases, packet, read_in_pieces, run_case
from tests.support.examples import examples

Message = tuple[str, bytes, int, bool]
MESSAGES = st.lists(
    st.tuples(st.text("abc/ä", min_size=1, max_size=9), st.binary(max_size=300), st.integers(0, 1), st.booleans()),
    max_size=8,
)


def publish(message: Message, number: int, version: int, properties: bytes = b"") -> bytes:
    topic, payload, qos, is_again = message
    body = struct.pack(">H", len(topic.encode())) + topic.encode()
    body += struct.pack(">H", number) if qos else b""
    body += packet(0, properties)[1:] if version == V5 else b""
    return packet(0x30 | qos << 1 | (8 if is_again and qos else 0), body + payload)


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
@given(st.binary(max_size=60), st.sampled_from([V5, V311]), st.integers(0, 9))
def test_any_bytes_are_read_as_the_standard_says(data: bytes, version: int, seed: int) -> None:
    read_in_pieces(random.Random(seed), data, version)


def test_mutated_packets_are_read_as_the_standard_says_by_parser_and_client() -> None:
    for case in cases(seed=34, first=0, count=100):
        run_case(*case)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9,
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"\x34\x05\0\1a\0\1",
        packet(0x20, b"\0"),
        packet(0x20, b"\0\0\x80"),  # the size of its properties is cut off
        packet(0x20, b"\0\0\x03\x13\0"),
        packet(0x20, b"\0\0\x02\x13\0\x1e"),  # a property goes on after their end
        packet(0x90, b"\0\1"),
        packet(0x90, b"\0\1\0"),
        b"\x20\xff\xff\xff\x7f",  # 256 MiB are announced, and not waited for
        b"\x70\xff\xff\xff\x7f",
    ],
)
def test_what_is_malformed_is_an_error_and_what_came_before_it_is_there(data: bytes) -> None:
    packets = Packets(V5)
    before = publish(("a", b"1", 1, False), 7, V5)
    assert packets.take(before + data).messages == [(b"a", b"1")]
    assert packets.error is not None
    assert "malformed" in str(packets.error.strerror)
    assert not packets.take(before).messages


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("piece", [7000, 1 << 20])
def test_a_message_that_is_too_large_is_passed_over_and_acknowledged(version: int, qos: int, piece: int) -> None:
    """As large as may be, a byte more, and so large that it is not kept together."""
    packets, sizes = Packets(version, 1000), (1000, 1001, 1000 + (1 << 17), 5_000_000)
    data = b"".join(
        publish((f"t/{size}", bytes(size), qos, True), number, version) for number, size in enumerate(sizes)
    )
    data += publish(("t", b"last", 1, False), 9, version)
    messages, oversized, numbers, counted = [], [], [], [0, 0]
    for at in range(0, len(data), piece):
        taken = packets.take(data[at : at + piece])
        messages += taken.messages
        oversized += taken.oversized
        numbers += taken.acks
        counted = [counted[0] + taken.repeated, counted[1] + taken.unsafe]
        assert len(packets._held) < 1 << 18
    assert messages == [(b"t/1000", bytes(1000)), (b"t", b"last")]
    assert [topic for topic, _ in oversized] == [b"t/%d" % size for size in sizes[1:]]
    assert all(0 < told - size < 20 for (_, told), size in zip(oversized, sizes[1:], strict=True))
    assert numbers == [struct.pack(">H", number) for number in ([0, 1, 2, 3, 9] if qos else [9])]
    assert counted == ([1, 0] if qos else [0, 1])


def test_a_large_message_is_not_copied_for_each_piece_that_comes() -> None:
    """0.06 CPU s here; 10 where what came before is copied for each piece of 4 KiB."""
    data = publish(("a", bytes(16 << 20), 1, False), 1, V5)
    packets, began_s = Packets(V5), time.process_time()
    found = [packets.take(data[at : at + 4096]).messages for at in range(0, len(data), 4096)]
    assert time.process_time() - began_s < 1
    assert found[-1] == [(b"a", bytes(16 << 20))]


def test_requests_say_what_they_should() -> None:
    login = Login("name", "user", "sEcReT")
    assert "sEcReT" not in repr(login)
    assert connect(login, V311, keep_alive_s=60) == (
        b"\x10\x1e\x00\x04MQTT\x04\xc0\x00\x3c" + b"\x00\x04name" + b"\x00\x04user" + b"\x00\x06sEcReT"
    )
    v5 = connect(Login("n"), V5, keep_alive_s=1, in_flight=7)
    assert v5 == b"\x10\x16\x00\x04MQTT\x05\x00\x00\x01\x08\x11\xff\xff\xff\xff\x21\x00\x07\x00\x01n"
    assert subscribe("a/#", V311) == b"\x82\x08\x00\x01\x00\x03a/#\x01"
    assert subscribe("a/#", V5) == b"\x82\x09\x00\x01\x00\x00\x03a/#\x11"
