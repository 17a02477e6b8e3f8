"""Mutated packets of a broker, read by the parser in any pieces and by the client over a pair of sockets.

::

    .venv/bin/python -m tests.spool.mqtt_fuzz --cases 100000 --seed 1

A case is what a broker may send, with some bytes changed, cut out, repeated or put elsewhere. `expected` reads it a
second time, packet by packet, as the standard says it. A case is a function of the seed and its number.
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.mqtt_client import MqttClient
from streamjoin_ds.spool.mqtt_packets import V5, V311, Packets, Taken, acks

MAX_PAYLOAD = 200  # a small bound, so that many messages are too large
_HEAD = 65_535 + 65_536  # of topic and properties
_ANSWER = 1 << 20
_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x20, 0x30, 0x32, 0x34, 0x3A, 0x90, 0xD0, 0xE0)
# Kinds of properties: their sizes, or how their size is told.
_KINDS = {
    **dict.fromkeys((1, 23, 25, 36, 37, 40, 41, 42), 1),
    **dict.fromkeys((19, 33, 34, 35), 2),
    **dict.fromkeys((2, 17, 24, 39), 4),
    **dict.fromkeys((3, 8, 9, 18, 21, 22, 26, 28, 31), "text"),
    38: "pair",
    11: "number",
}


@dataclass
class Expected:
    """What bytes hold: each message with the number that acknowledges it, and whether something malformed follows."""

    messages: list[tuple[bytes, bytes]] = field(default_factory=list)
    oversized: list[tuple[bytes, int]] = field(default_factory=list)
    numbers: list[bytes] = field(default_factory=list)
    answers: int = 0
    is_malformed: bool = False


class _CutError(Exception):
    """The bytes end."""


class _WrongError(Exception):
    """The bytes are malformed."""


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise _CutError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        value = 0
        for place in range(4):
            (byte,) = self.take(1)
            value += (byte & 127) * 128**place
            if byte < 128:
                return value
        raise _WrongError

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))


def expected(data: bytes, version: int, max_payload: int = MAX_PAYLOAD) -> Expected:
    """Return what the bytes of a connection hold."""
    found, rest = Expected(), _Bytes(data)
    while True:
        try:
            (first,) = rest.take(1)
            size = rest.number()
            kind = first >> 4
            if (kind == 3 and first >> 1 & 3 > 1) or (kind != 3 and (first not in (0x20, 0x90, 0xD0, 0xE0))):
                raise _WrongError
            if kind != 3 and size > _ANSWER:
                raise _WrongError
            body = _Bytes(rest.take(size))
        except _CutError:
            return found
        except _WrongError:
            found.is_malformed = True
            return found
        try:
            if kind == 3:
                topic = body.text()
                number = body.take(2) if first & 6 else b""
                if size <= max_payload + _HEAD:
                    if version == V5:
                        body.take(body.number())
                    payload = body.data[body.at :]
                else:  # nothing but its beginning is looked at
                    payload = bytes(max_payload + 1)
                if len(payload) > max_payload:
                    found.oversized.append((topic, size))
                else:
                    found.messages.append((topic, payload))
                found.numbers += [number] if number else []
            elif kind != 13:
                _read_answer(kind, body, version)
                found.answers += 1
        except (_CutError, _WrongError):
            found.is_malformed = True
            return found


def _read_answer(kind: int, body: _Bytes, version: int) -> None:
    if kind == 14:
        return
    body.take(2)
    if version == V5 and (kind == 9 or body.at < len(body.data)):
        properties = _Bytes(body.take(body.number()))
        while properties.at < len(properties.data):
            (name,) = properties.take(1)
            told = _KINDS.get(name)
            if told is None:
                raise _WrongError
            if isinstance(told, int):
                properties.take(told)
            elif told == "number":
                properties.number()
            else:
                for _ in range(2 if told == "pair" else 1):
                    properties.text()
    if kind == 9:
        body.take(1)


def packet(first: int, body: bytes) -> bytes:
    """Return a packet, whatever its size."""
    size, head = len(body), b""
    while True:
        size, byte = divmod(size, 128)
        head += bytes([byte | (128 if size else 0)])
        if not size:
            return bytes([first]) + head + body


def session(draw: random.Random, version: int) -> list[bytes]:
    """Return what a broker sends in a session: answers, messages, sometimes an end."""
    is_v5 = version == V5
    facts = [b"\x21\x00\x14", b"\x13\x00\x1e", b"\x11\0\0\0\x09", b"\x1f\x00\x02no", b"&\0\x01k\0\x02vv", b"\x24\x01"]
    properties = b"".join(draw.sample(facts, draw.randrange(3)))
    found = [packet(0x20, bytes([draw.randrange(2), 0]) + (packet(0, properties)[1:] if is_v5 else b""))]
    found.append(packet(0x90, b"\0\1" + (b"\0" if is_v5 else b"") + b"\1"))
    for number in range(1, draw.randrange(2, 9)):
        topic = draw.choice([b"a", b"site/7/readings", b"\xc3\xa4/x", b"t" * 200])
        size = draw.choice([0, 1, 30, MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 1000])
        if draw.random() < 0.01:
            size = draw.choice([_HEAD, _HEAD + MAX_PAYLOAD, 300_000])
        said = draw.choice([b"\0", b"\0", b"\x05\x03\0\x02js", b"\x05\x02\0\0\0\x09", b"\x03\x0b\x81\x01"])
        qos = draw.choice([0, 1, 1, 1])
        body = struct.pack(">H", len(topic)) + topic + (struct.pack(">H", number) if qos else b"")
        body += (said if is_v5 else b"") + draw.randbytes(size)
        found.append(packet(0x30 | qos << 1 | draw.choice([0, 1, 8 * qos]), body))
        found += [b"\xd0\0"] if draw.random() < 0.1 else []
    found += [packet(0xE0, draw.choice([b"", b"\x8b\0", b"\x8e\0"]))] if draw.random() < 0.1 else []
    return found


def mutated(draw: random.Random, packets: list[bytes]) -> bytes:
    """Return packets with some of them moved, and some bytes changed."""
    if draw.random() < 0.2:
        draw.shuffle(packets)
    data = bytearray(b"".join(packets))
    for _ in range(draw.choice([0, 1, 1, 2, 4, 9])):
        if not data:
            break
        # Heads of packets are few bytes among many: half of the changes are made there.
        heads = [0]
        for each in packets:
            heads.append(heads[-1] + len(each))
        at = min(
            draw.choice(heads) + draw.randrange(9) if draw.random() < 0.5 else draw.randrange(len(data)), len(data) - 1
        )
        end = at + draw.choice([1, 2, 7, 40])
        match draw.randrange(7):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at] = draw.choice(_BYTES)
            case 2:
                data[at:end] = b""
            case 3:
                data[at:at] = data[at:end]
            case 4:
                data[at:at] = draw.randbytes(draw.choice([1, 2, 9]))
            case 5:
                del data[at:]
            case _:
                data[at:at] = draw.choice(packets)[: draw.choice([2, 5, 1 << 20])]
    return bytes(data)


def read_in_pieces(draw: random.Random, data: bytes, version: int) -> None:
    """Let the parser read bytes in any pieces, and compare."""
    wanted, packets, found = expected(data, version), Packets(version, MAX_PAYLOAD), Taken()
    pieces, at = draw.choice([1, 3, 50, 5000, 1 << 20]), 0
    while at < len(data):
        size = draw.randint(1, pieces)
        taken = packets.take(data[at : at + size])
        for name in ("messages", "oversized", "acks", "packets"):
            getattr(found, name).extend(getattr(taken, name))
        at += size
    assert found.messages == wanted.messages
    assert found.oversized == wanted.oversized
    assert found.acks == wanted.numbers
    assert len(found.packets) == wanted.answers
    assert (packets.error is not None) == wanted.is_malformed


class _Wire(socket.socket):
    """The client's end of a pair; it knows when the connection is over."""

    is_over = False

    def recv(self, *options: int) -> bytes:
        data = super().recv(*options)
        self.is_over |= not data
        return data

    def close(self) -> None:
        self.is_over = True
        super().close()


@dataclass
class _Connection:
    data: bytes
    version: int
    kept: list[tuple[bytes, bytes]] = field(default_factory=list)
    oversized: list[tuple[bytes, int]] = field(default_factory=list)
    unsent: list[bytes] = field(default_factory=list)

    def check(self, heard: bytes) -> None:
        """Compare what was kept and acknowledged with what the broker sent."""
        wanted = expected(self.data, self.version, 32 << 20)
        assert self.kept == wanted.messages[: len(self.kept)]
        assert self.oversized == wanted.oversized[: len(self.oversized)]
        said = acks(wanted.numbers[: len(self.unsent)])
        assert self.unsent == wanted.numbers[: len(self.unsent)]
        # After CONNECT and SUBSCRIBE, acknowledgements of what was kept, and nothing else but pings.
        assert said == b"" or said in heard


def run_client(scripts: list[bytes]) -> str:
    """Let the client read what a broker sends, a connection after another, and return how it ended."""
    connections: list[_Connection] = []
    peers: list[socket.socket] = []
    wire: list[_Wire] = []

    def keep(taken: Taken) -> None:
        connections[-1].kept += taken.messages
        connections[-1].oversized += taken.oversized
        connections[-1].unsent += taken.acks

    client = MqttClient(Address("mqtt", "", 0, "a"), Secrets(), "me", keep, lambda: not wire or not wire[-1].is_over)

    def opened() -> socket.socket:
        if len(connections) == len(scripts):
            raise ConnectionRefusedError
        ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        theirs.settimeout(10)
        theirs.sendall(scripts[len(connections)])
        theirs.shutdown(socket.SHUT_WR)
        peers.append(theirs)
        wire.append(_Wire(fileno=ours.detach()))
        connections.append(_Connection(scripts[len(connections)], client._version))
        return wire[-1]

    client._opened = opened  # type: ignore[method-assign]
    try:
        client.run()
        ended = "ended"
    except IntakeError as error:
        ended = error.name or ""
    for connection, peer in zip(connections, peers, strict=True):
        peer.setblocking(False)
        heard = b""
        try:
            while data := peer.recv(1 << 20):
                heard += data
        except OSError:
            pass
        peer.close()
        connection.check(heard)
    return ended


def cases(seed: int, first: int, count: int) -> Iterator[tuple[random.Random, bytes, int]]:
    """Yield cases: what draws for each, its bytes, and its version."""
    for number in range(first, first + count):
        draw = random.Random(f"{seed}/{number}")
        version = draw.choice([V5, V311])
        yield draw, mutated(draw, session(draw, version)), version


def run_case(draw: random.Random, data: bytes, version: int) -> str:
    """Run one case, and return how the client ended."""
    read_in_pieces(draw, data, version)
    scripts = [data, mutated(draw, session(draw, V311))]
    return run_client(scripts if version == V5 else [b"\x20\x02\x00\x01", data])


def main() -> None:
    """Run a campaign, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.spool.mqtt_fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case; a case that failed: --cases 1")
    asked = parser.parse_args()
    logging.getLogger("streamjoin_ds").setLevel(logging.CRITICAL)
    ends: dict[str, int] = {}
    slowest = (0.0, 0)
    began_s = time.process_time()
    before = 0
    for number, case in enumerate(cases(asked.seed, asked.first, asked.cases), asked.first):
        case_s = time.process_time()
        try:
            end = run_case(*case)
        except BaseException:
            print(f"case {number} of seed {asked.seed} failed: --seed {asked.seed} --first {number} --cases 1")
            raise
        ends[end] = ends.get(end, 0) + 1
        slowest = max(slowest, (time.process_time() - case_s, number))
        if number == asked.first + min(1000, asked.cases // 2):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    told = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
    print(f"{asked.cases} cases of seed {asked.seed}: {time.process_time() - began_s:.1f} CPU s; {told}")
    print(
        f"slowest case {slowest[1]}: {slowest[0] * 1e3:.1f} ms; memory grew by {grown / 1024:.1f} MiB after the first"
    )
    assert slowest[0] < 2
    assert grown < 64 << 10


if __name__ == "__main__":
    main()
