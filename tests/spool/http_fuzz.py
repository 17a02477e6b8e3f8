"""Mutated HTTP requests at an intake: none ends it, none hangs it, and no message is in the spool that none sent.

``python -m tests.spool.http_fuzz --requests 100000 --seed 1``. Half go to the parser in this process, by cuts that are
drawn; the others over sockets to an intake in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from streamjoin_ds.spool.http_connection import Connection
from streamjoin_ds.spool.http_crowd import Crowd, HttpLimits, State
from tests.spool.spools import certificate_of, held
from tests.support.broker import free_port

ANSWER_S = 20.0
_LINES = b'{"a": 1}\n{"a": 2}\n'
_ZIPPED = gzip.compress(_LINES)
VALID = (
    b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n" + _LINES,
    b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    + b'[{"a": 1}, {"b": 2}]',
    b"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n"
    + _LINES[:9]
    + b"\r\n9;x=y\r\n"
    + _LINES[9:]
    + b"\r\n0\r\nT: 1\r\n\r\n",
    b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_ZIPPED) + _ZIPPED,
    b"POST /in HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n" + b'{"a": 1}',
    b"POST /in HTTP/1.0\r\nContent-Length: 8\r\nConnection: keep-alive\r\n\r\n" + b'{"a": 1}',
    b"GET /in HTTP/1.1\r\nHost: x\r\n\r\n",
)
_TOKENS = (
    b"\r\n", b"\n", b"\r", b"\0", b": ", b" ", b"chunked", b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n",
    b"-1", b"9" * 30, b"HTTP/1.1", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\xff\xfe", b"{", b"}", b"[", b'"', b"a: b\r\n" * 70, b"x" * 9_000,
)  # fmt: skip


def mutated(draw: random.Random) -> bytes:
    """Return valid requests, one or some, with some bytes that are not."""
    data = bytearray(b"".join(draw.choices(VALID, k=draw.choice((1, 1, 1, 2, 5)))))
    for _ in range(draw.choice((0, 1, 1, 2, 4, 16))):
        place = draw.randrange(len(data) + 1)
        end = min(place + draw.choice((1, 2, 8, 40)), len(data))
        kind = draw.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[place:end] = b""
        elif kind == 2:
            data[place:place] = draw.choice(_TOKENS)
        elif kind == 3:
            data[place:end] = draw.choice(_TOKENS)
        elif kind == 4:
            data[place:place] = data[place:end]
        else:
            del data[place:]
    return bytes(data)


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written, self.is_closed, self.is_read = bytearray(), False, True

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass


@dataclass
class Taken:
    """A desk that takes all requests at once."""

    bodies: list[bytes] = field(default_factory=list)

    def refused(self, method: bytes, path: bytes, token: bytes) -> tuple[HTTPStatus, str] | None:
        return None

    def kind_of(self, path: bytes, media_type: str) -> str:
        return media_type

    def take(self, connection: Connection, body: bytes, kind: str, encoding: str) -> None:
        self.bodies.append(body)
        connection.answer(HTTPStatus.OK, {"messages": 0})

    def count_refused(self) -> None:
        pass


async def parsed(data: bytes, draw: random.Random, crowd: Crowd) -> tuple[bytes, list[bytes]]:
    """Give a connection the bytes in pieces; return what it wrote, and the bodies. It must end."""
    desk, wire = Taken(), Wire()
    connection = Connection(crowd, desk)
    connection.connection_made(cast(Any, wire))
    while data and not wire.is_closed:
        for _ in range(1_000):
            if wire.is_read or wire.is_closed:
                break
            await asyncio.sleep(0)
        else:
            msg = "it never reads on"
            raise AssertionError(msg)
        size = min(draw.choice((1, 3, 50, 1_000, 32 << 10)), len(data))
        connection.get_buffer(-1)[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]
    await asyncio.sleep(0)
    if not wire.is_closed and not connection.eof_received():
        wire.close()
    for _ in range(1_000):
        if connection.state is State.CLOSED or wire.is_closed or connection.state is State.CLOSING:
            break
        await asyncio.sleep(0)
    else:
        msg = "it does not end"
        raise AssertionError(msg)
    connection.connection_lost(None)
    return bytes(wire.written), desk.bodies


def fuzz_parser(count: int, seed: int) -> Counter[str]:
    """Parse mutated requests in pieces that are drawn, and again as a whole: both must give the same bodies."""
    outcomes: Counter[str] = Counter()

    async def all_of_them() -> None:
        crowd = Crowd(HttpLimits(), time.monotonic)
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: faults.append(facts))
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            data = mutated(draw)
            written, bodies = await parsed(data, draw, crowd)
            _, whole = await parsed(data, random.Random(0), crowd)
            assert not faults, (seed, number, faults)
            assert len(crowd) == 0, (seed, number)
            shorter = min(len(bodies), len(whole))
            assert bodies[:shorter] == whole[:shorter], (seed, number)
            assert sum(map(len, bodies)) <= len(data), (seed, number)
            outcomes[written[9:12].decode() or "none"] += 1

    asyncio.run(all_of_them())
    return outcomes


def fuzz_tls(count: int, seed: int, folder: Path) -> Counter[str]:
    """Give a connection the bytes of a client of TLS, some of them changed or cut: it ends, or is answered."""
    certificate, key = certificate_of(folder)
    context, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=certificate)
    context.load_cert_chain(certificate, key)
    outcomes: Counter[str] = Counter()

    async def all_of_them() -> None:
        crowd = Crowd(HttpLimits(), time.monotonic)
        for number in range(count):
            outcomes[await _secured(random.Random(f"{seed} {number}"), crowd, context, trusting)] += 1
            assert len(crowd) == 0, (seed, number)

    asyncio.run(all_of_them())
    return outcomes


async def _secured(draw: random.Random, crowd: Crowd, context: ssl.SSLContext, trusting: ssl.SSLContext) -> str:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, wire, desk = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost"), Wire(), Taken()
    connection = Connection(crowd, desk, context)
    connection.connection_made(cast(Any, wire))
    spoils_at, is_sent, outcome = draw.choice((-1, 0, 1, 2)), False, "none"
    for turn in range(6):
        with contextlib.suppress(ssl.SSLError):
            if not is_sent:
                client.do_handshake()
                client.write(VALID[0])
                is_sent = True
            outcome = client.read(100)[9:12].decode()
        data = bytearray(outgoing.read())
        if turn == spoils_at and data:
            place = draw.randrange(len(data))
            data[place : place + draw.choice((0, 1, 9))] = draw.choice((b"", b"\0", draw.randbytes(20)))
        while data and not wire.is_closed:
            size = min(draw.choice((1, 5, 300, 32 << 10)), len(data))
            connection.get_buffer(-1)[:size] = data[:size]
            connection.buffer_updated(size)
            del data[:size]
        await asyncio.sleep(0)
        incoming.write(bytes(wire.written))
        wire.written.clear()
    assert desk.bodies in ([], [_LINES])
    connection.connection_lost(None)
    return outcome


def fuzz_sockets(count: int, seed: int, folder: Path) -> tuple[Counter[str], int, float]:
    """Send mutated requests to an intake; return the first answers, its peak of memory in bytes, and its CPU s."""
    port = free_port()
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "intake", f"http://127.0.0.1:{port}/in"]
    intake = subprocess.Popen([*command, "--to", str(folder), "--quiet"])
    outcomes: Counter[str] = Counter()
    sent: list[bytes] = []
    try:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            data = mutated(draw)
            sent.append(data)
            with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as link:
                answer = b""
                with contextlib.suppress(ConnectionError):
                    link.sendall(data)
                    link.shutdown(socket.SHUT_WR)
                    while piece := link.recv(1 << 16):  # a timeout is a hang
                        answer += piece
            outcomes[answer[9:12].decode("latin-1") or "none"] += 1
        status = Path(f"/proc/{intake.pid}/status").read_text()
        peak_bytes = int(status.partition("VmHWM:")[2].split()[0]) << 10
    finally:
        intake.send_signal(signal.SIGTERM)
        _, code, used = os.wait4(intake.pid, 0)
    assert code == 0
    place = 0
    for _, topic, payload in held(folder):
        # In the order of the requests, and bytes of one of them in their order: chunks have others between them.
        while payload not in _LINES and not _holds(sent[place], payload):
            place += 1
            assert place < len(sent), f"nobody sent {payload!r}"
        assert topic == b"/in"
    return outcomes, peak_bytes, used.ru_utime + used.ru_stime


def _holds(data: bytes, payload: bytes) -> bool:
    if payload in data:
        return True
    rest = iter(data)
    return all(byte in rest for byte in payload)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    half = chosen.requests // 2
    print("parser:", json.dumps(fuzz_parser(half, chosen.seed)))
    with tempfile.TemporaryDirectory() as folder:
        print("TLS:", json.dumps(fuzz_tls(half // 10, chosen.seed, Path(folder))))
        outcomes, peak_bytes, cpu_s = fuzz_sockets(chosen.requests - half, chosen.seed + 1, Path(folder) / "spool")
    own = resource.getrusage(resource.RUSAGE_SELF)
    print("sockets:", json.dumps(outcomes))
    print(
        f"{chosen.requests} requests, seed {chosen.seed}: no crash, hang or invented message; "
        f"{peak_bytes / 2**20:.0f} MiB at most; CPU {cpu_s:.0f} s of the intake, "
        f"{own.ru_utime + own.ru_stime:.0f} s of the fuzzer"
    )


if __name__ == "__main__":
    main()
