"""The connection to a broker: a real one, and a scripted one for what a real one seldom says."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.intake import Intake
from streamjoin_ds.spool.mqtt_client import MqttClient, client_name
from streamjoin_ds.spool.mqtt_packets import Taken
from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES, TOLD
from streamjoin_ds.spool.writer import STATUS_FILE, Counts, SpoolLimits, SpoolWriter
from tests.spool.spools import certificate_of, held
from tests.support.broker import free_port, mosquitto, publisher


class Kept:
    """What a client kept, until so many messages have come."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.messages, self.ticks = wanted, list[tuple[bytes, bytes]](), itertools.count()
        self.flags = bytearray()

    def keep(self, taken: Taken) -> None:
        self.messages += taken.messages
        self.flags += taken.flags

    def tick(self) -> bool:
        assert next(self.ticks) < 100
        return len(self.messages) < self.wanted


def client_of(address: Address, kept: Kept, secrets: Secrets | None = None, name: str = "me") -> MqttClient:
    return MqttClient(address, secrets or Secrets(), name, kept.keep, kept.tick)


def begin_session(address: Address, name: str = "me") -> None:
    """Subscribe once, so that the broker keeps what comes from now on."""
    connect_once(address, name=name)


def connect_once(address: Address, secrets: Secrets | None = None, name: str = "me") -> None:
    """Connect, subscribe, and end."""
    client = MqttClient(address, secrets or Secrets(), name, lambda _: None, lambda: not client.connects)
    client.run()
    assert client.connects == 1


def test_a_sessions_messages_come_once_each_and_in_order(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        address = Address("mqtt", "127.0.0.1", port, "a/+/x")
        begin_session(address)
        sender = publisher(port)
        for number in range(500):
            sent = sender.publish(f"a/{number % 3}/x", str(number), qos=1)
        sender.publish("a/1/y", "of another topic", qos=1)
        sent.wait_for_publish(30)
        first = Kept(500)
        client_of(address, first).run()
        assert [int(payload) for _, payload in first.messages] == [*range(500)]
        assert {topic for topic, _ in first.messages} == {b"a/0/x", b"a/1/x", b"a/2/x"}
        sender.publish("a/1/x", "last", qos=1).wait_for_publish(30)
        second = Kept(1)
        client_of(address, second).run()
        assert [payload for _, payload in second.messages] == [b"last"]
        sender.disconnect()


def test_a_message_that_the_broker_had_retained_is_told_from_a_new_one_and_so_is_its_qos(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        sender = publisher(port)
        sender.publish("a/old", "1", qos=1, retain=True).wait_for_publish(30)
        begun, kept = Kept(1), Kept(2)
        address = Address("mqtt", "127.0.0.1", port, "a/+")
        client_of(address, begun).run()
        assert list(begun.flags) == [TOLD | 3]
        sender.publish("a/old", "2", qos=1, retain=True)
        sender.publish("a/new", "3", qos=1).wait_for_publish(30)
        client_of(address, kept).run()
        sender.publish("a/new", "4", qos=1).wait_for_publish(30)
        last = Kept(2)
        is_sent = False

        def tick() -> bool:
            nonlocal is_sent
            if last.messages and not is_sent:  # subscribed by now
                sender.publish("a/new", "5", qos=0)
                is_sent = True
            return last.tick()

        MqttClient(address, Secrets(), "me", last.keep, tick).run()
        assert list(last.flags) == [TOLD | 2, TOLD]
        assert [payload for _, payload in kept.messages] == [b"2", b"3"]
        assert list(kept.flags) == [TOLD | 2, TOLD | 2]  # published to a subscription, kept by the broker or not
        first = Kept(1)
        client_of(address, first, name="another").run()
        assert (first.messages, list(first.flags)) == ([(b"a/old", b"2")], [TOLD | 3])
        sender.disconnect()


def test_what_was_not_kept_is_not_acknowledged_and_comes_again(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        address = Address("mqtt", "127.0.0.1", port, "a")
        begin_session(address)
        sender = publisher(port)
        sender.publish("a", "1", qos=1).wait_for_publish(30)

        def fails(taken: Taken) -> None:
            raise RuntimeError(taken.messages)

        with pytest.raises(RuntimeError):
            MqttClient(address, Secrets(), "me", fails, lambda: True).run()
        again = Kept(1)
        client_of(address, again).run()
        assert again.messages == [(b"a", b"1")]
        sender.disconnect()


def test_wrong_secrets_are_named(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    tool = "/usr/bin/mosquitto_passwd"
    if not Path(tool).exists():
        pytest.skip("no mosquitto_passwd here")
    subprocess.run([tool, "-b", str(passwords), "me", "sEcReT"], check=True, capture_output=True)
    passwords.chmod(0o644)
    settings = (f"password_file {passwords}", "user root")
    with mosquitto(tmp_path, *settings, access="allow_anonymous false") as port:
        address = Address("mqtt", "127.0.0.1", port, "a")
        for wrong in (Secrets(), Secrets(user="me", password="sEcReT2"), Secrets(user="you", password="sEcReT")):
            with pytest.raises(IntakeError, match="refuses the user") as refused:
                client_of(address, Kept(1), wrong).run()
            assert refused.value.name == "user"
            assert "sEcReT" not in str(refused.value)
        right = Secrets(user="me", password="sEcReT")
        connect_once(address, right)


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(IntakeError, match=f"the broker at 127.0.0.1:{port} cannot be reached"):
        client_of(Address("mqtt", "127.0.0.1", port, "a"), Kept(1)).run()


def test_tls_is_checked(tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path)
    settings = (f"certfile {certificate}", f"keyfile {key}", "user root")
    with mosquitto(tmp_path, *settings) as port:
        address = Address("mqtts", "localhost", port, "a")
        with pytest.raises(IntakeError, match="certificate is not trusted"):
            client_of(address, Kept(1)).run()
        connect_once(address, Secrets(ca_file=certificate))
        with pytest.raises(IntakeError, match=r"does not speak MQTT|cannot be reached"):
            client_of(Address("mqtt", "localhost", port, "a"), Kept(1)).run()


def packet(kind: int, body: bytes) -> bytes:
    return bytes([kind, len(body)]) + body


CONNACK, SUBACK, SUBACK5 = packet(0x20, b"\0\0"), packet(0x90, b"\0\1\1"), packet(0x90, b"\0\1\0\1")
CONNACK5 = packet(0x20, b"\0\0\0")


@contextlib.contextmanager
def scripted(*connections: list[Callable[[bytes], bytes]]) -> Iterator[tuple[Address, list[bytes]]]:
    """Serve connections one after another. Each answers what comes by its next function, and then closes."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answers in connections:
                connection, _ = server.accept()
                with connection:
                    for answer in answers:
                        heard.append(connection.recv(65_536))
                        connection.sendall(answer(heard[-1]))

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address("mqtt", "127.0.0.1", server.getsockname()[1], "a"), heard
        thread.join(30)
        assert not thread.is_alive()


def publish(number: int, version: int) -> bytes:
    return packet(0x32, b"\0\1a" + struct.pack(">H", number) + (b"\0" if version == 5 else b"") + b"m%d" % number)


def test_a_broker_without_version_5_is_spoken_to_in_3_1_1_and_a_lost_connection_is_made_again() -> None:
    old = [lambda _: CONNACK, lambda _: SUBACK + publish(1, 4)]
    with scripted(
        [lambda _: packet(0x20, b"\0\1")],  # the version is refused
        [*old, lambda heard: b""],  # closed after the acknowledgement
        [lambda _: CONNACK, lambda _: SUBACK + publish(2, 4), lambda heard: b"", lambda heard: b""],
    ) as (address, heard):
        kept = Kept(2)
        client = client_of(address, kept)
        client.run()
    assert [payload for _, payload in kept.messages] == [b"m1", b"m2"]
    assert client.connects == 2
    assert b"MQTT\x05" in heard[0]
    assert b"MQTT\x04" in heard[1]
    assert heard[3] == b"\x40\x02\0\1"
    assert b"".join(heard[6:]).startswith(b"\x40\x02\0\2")


def test_a_broker_that_is_away_and_back_is_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fails in between: the second connection ends before the broker has said that it takes it."""
    with scripted(
        [lambda _: CONNACK5, lambda _: SUBACK5 + publish(1, 5), lambda heard: b""],
        [lambda _: b""],
        [lambda _: CONNACK5, lambda _: SUBACK5 + publish(2, 5), lambda heard: b"", lambda heard: b""],
    ) as (address, _):
        client = client_of(address, Kept(2))
        client.run()
    told = [re.sub("after [0-9]+ s", "after N s", line) for line in caplog.messages if "messages" not in line]
    assert told == [
        "the connection to the broker broke off: the broker closed the connection", "the broker is back, after N s",
    ]  # fmt: skip
    assert client.connects == 2


def test_messages_before_the_answer_to_subscribe_are_kept_too() -> None:
    with scripted([lambda _: CONNACK5 + publish(7, 5), lambda _: SUBACK5, lambda _: b"", lambda _: b""]) as (
        address,
        _,
    ):
        kept = Kept(1)
        client_of(address, kept).run()
    assert kept.messages == [(b"a", b"m7")]


def test_something_malformed_ends_the_connection_and_not_the_intake(caplog: pytest.LogCaptureFixture) -> None:
    """Also where it comes together with the broker's first answer; what came before it is acknowledged."""
    torn = packet(0x32, b"\0\x09a")
    with scripted(
        [lambda _: CONNACK5 + publish(1, 5) + torn, lambda heard: b""],
        [lambda _: CONNACK5, lambda _: SUBACK5 + publish(2, 5) + torn, lambda heard: b""],
        [lambda _: CONNACK5, lambda _: SUBACK5 + publish(3, 5), lambda heard: b"", lambda heard: b""],
    ) as (address, heard):
        kept = Kept(3)
        client = client_of(address, kept)
        client.run()
    assert [payload for _, payload in kept.messages] == [b"m1", b"m2", b"m3"]
    assert client.connects == 2
    assert [line for line in caplog.messages if "malformed" in line] == [
        "the connection to the broker broke off: a packet of the broker is malformed"
    ] * 2
    assert b"\x40\x02\0\1" in heard[1]
    assert heard[4] == b"\x40\x02\0\2"


def test_tls_that_fails_while_a_broker_starts_again_is_tried_again(tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path)
    settings = (f"certfile {certificate}", f"keyfile {key}", "user root")
    with mosquitto(tmp_path, *settings) as port, scripted([lambda _: b"no TLS"]) as (other, _):
        places = iter([port, other.port, port])
        address = Address("mqtts", "localhost", port, "a")
        client = MqttClient(address, Secrets(ca_file=certificate), "me", lambda _: None, lambda: client.connects < 2)
        opened = client._opened

        def elsewhere() -> socket.socket:
            client._address = replace(address, port=next(places))
            return opened()

        def breaks_off(connection: socket.socket) -> None:
            if client.connects < 2:
                raise ConnectionResetError

        client._opened, client._receive = elsewhere, breaks_off  # type: ignore[method-assign]
        client.run()
        assert client.connects == 2


def test_a_message_that_is_too_large_is_counted_and_does_not_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One byte more than a spool takes, and one that even its packet is too large for, between others."""
    with mosquitto(tmp_path) as port:
        address = Address.parse(f"mqtt://127.0.0.1:{port}/site/#")
        taken_in(address, tmp_path / "spool", 0)
        assert any("max_queued_messages of Mosquitto" in line for line in caplog.messages)
        sender = publisher(port)
        sizes = [5, MAX_PAYLOAD_BYTES + 1, MAX_PAYLOAD_BYTES + (1 << 20), 6]
        for size in sizes:
            sender.publish(f"site/{size}", bytes(size), qos=1).wait_for_publish(30)
        counts = taken_in(address, tmp_path / "spool", 2)
        assert (counts.messages, counts.oversized, counts.unsafe) == (2, 2, 0)
        assert [len(data) for _, _, data in held(tmp_path / "spool")] == [5, 6]
        told = [line for line in caplog.messages if "is left out" in line]
        assert [f"'site/{size}'" in line for size, line in zip(sizes[1:3], told, strict=True)] == [True, True]
        assert json.loads((tmp_path / "spool" / STATUS_FILE).read_text())["oversized"] == 2
        sender.publish("site/last", b"last", qos=1).wait_for_publish(30)
        counts = taken_in(address, tmp_path / "spool", 1)
        assert (counts.messages, counts.oversized, counts.repeated) == (1, 0, 0)
        sender.disconnect()


def taken_in(address: Address, folder: Path, messages: int) -> Counts:
    """Run an intake until it has connected and taken so many messages."""
    lines: list[str] = []
    intake = Intake(address, folder, Secrets(), SpoolLimits(), say=lines.append)
    before = intake._tick

    def tick(writer: SpoolWriter) -> bool:
        if intake.counts.connects and intake.counts.messages >= messages:
            intake.stop()
        return before(writer)

    intake._tick = tick  # type: ignore[method-assign]
    counts = intake.run()
    assert not counts.oversized or f"{counts.oversized} too large" in lines[-1]
    return counts


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (packet(0x20, b"\0\x85\0"), "refuses the session's name"),
        (packet(0x20, b"\0\0\2\x24\0"), "allows QoS 0 only"),
        (CONNACK5 + packet(0x90, b"\0\1\0\0"), "grants only QoS 0"),
        (CONNACK5 + packet(0x90, b"\0\1\0\x8f"), "refuses the topic"),
        (CONNACK5 + SUBACK5 + packet(0xE0, b"\x8e"), "has taken over"),
        (packet(0x20, b"\0\x97\0"), "reason 151"),
        (packet(0x20, b"\0\0\x80"), "does not speak MQTT"),
        (b"", "without an answer"),
    ],
)
def test_what_a_broker_refuses_is_named(answer: bytes, words: str) -> None:
    with scripted([lambda _: answer]) as (address, _), pytest.raises(IntakeError, match=words):
        client_of(address, Kept(1)).run()


def test_a_sessions_name_is_short_and_its_own() -> None:
    names = {client_name(folder, topic) for folder in ("a", "b") for topic in ("x", "y")}
    assert len(names) == 4
    assert all(len(name) == 23 and name.isalnum() for name in names)
