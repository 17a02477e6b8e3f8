"""Many bad senders and a few good ones at one HTTP intake: what the good ones wait, and what memory it takes.

``python -m tests.spool.http_crowd --bad 1000 --tls``. All are on 127.0.0.1, and bounded in number and time.
The bad ones are processes of their own and give way to the intake and the good ones, as if they were on other machines:
else one would measure who gets the processor. A wait begins before the sender connects.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import http.client
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
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.spool.spools import certificate_of, held
from tests.support.broker import free_port

PROCESSES = 2  # of bad senders
PAUSE_S = 0.1  # of a bad sender between two connections
STAYS_S = 5.0  # how long one stays where it does nothing
BAD = b'{"bad": 1}'
_HEAD = b"POST /in HTTP/1.1\r\nHost: x\r\n"


def _posted(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    lines = b"".join(each + b"\r\n" for each in headers)
    return _HEAD + lines + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


_ONES = gzip.compress(b"1\n" * 16_000_000)
_BLANK = gzip.compress(b" " * (33 << 20))
_LINE = gzip.compress(b'{"bad": "' + b"x" * (31 << 20) + b'"}')
_MEMBERS = gzip.compress(b"") * 200_000
_LARGE = b'{"bad": "' + b"x" * (20 << 20) + b'"}'
_GZIP = b"Content-Encoding: gzip"
_JSON = b"Content-Type: application/json"
# What is sent at once. Whether the answer is read, and how long the sender stays, is drawn.
ATTACKS: dict[str, bytes] = {
    "idle": b"",
    "half a head": _HEAD,
    "half a small body": _posted(BAD * 5_000, length=60_000),
    "half a large body": _posted(b"x" * (16 << 20), length=32 << 20),
    "half a head of TLS": bytes.fromhex("16030100a5010000a10303"),
    "huge length": _posted(b"", length=1 << 40),
    "4300 digits": _HEAD + b"Content-Length: " + b"9" * 4_300 + b"\r\n\r\n",
    "huge head": _HEAD + b"X: " + b"y" * (1 << 20),
    "many headers": _HEAD + b"a:b\r\n" * 100_000,
    "large": _posted(_LARGE, _JSON),
    "large lines": _posted(b'{"bad":1}\n' * 90_000),
    "tiny lines": _posted(b"1\n" * (16 << 20)),
    "broken lines": _posted(b"{\n" * 30_000),
    "objects in a list": _posted(b"[" + b"{}," * 5_000_000 + b"{}]", _JSON),
    "lists in an object": _posted(b'{"bad":[' + b"[]," * 5_000_000 + b"[]]}", _JSON),
    "deep": _posted(b"[" * 60_000, _JSON),
    "ones inflated": _posted(_ONES, _GZIP),
    "blanks inflated": _posted(_BLANK, _GZIP),
    "a line inflated": _posted(_LINE, _GZIP),
    "members inflated": _posted(_MEMBERS, _GZIP),
    "pipelined": _posted(BAD) * 3_000,
    "tiny chunks": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 500_000,
    "half of large chunks": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n20000\r\n" + b"x" * 100_000,
    "long chunk line": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 500_000,
    "a form": _posted(b"a=1&b=2", b"Content-Type: application/x-www-form-urlencoded"),
    "line protocol": _posted(b"weather,site=a x=20.5 1700000000000000000\n" * 1_000),
    "noise": random.Random(1).randbytes(100_000),
}
NO_TLS = ("idle", "half a head of TLS", "noise")  # sent as they are, where the others come by TLS


@dataclass
class Outcome:
    """What was seen: waits of requests for which their sender connected, and of those on a connection that was kept."""

    fresh_s: list[float] = field(default_factory=list)
    kept_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    repeated: int = 0  # requests sent again, as a connection that was kept had ended
    sent: Counter[str] = field(default_factory=Counter)
    peak_bytes: int = 0
    end_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def waits_s(self) -> list[float]:
        return self.fresh_s + self.kept_s

    def __str__(self) -> str:
        return (
            f"good requests: {_shares(self.fresh_s)} connected, {_shares(self.kept_s)} on a kept connection; "
            f"{len(self.failures)} failed {self.failures[:3]}, {self.repeated} sent again; "
            f"{self.sent.total()} bad connections; {self.peak_bytes / 2**20:.0f} MiB at most; "
            f"{self.cpu_s:.1f} CPU s; ended in {self.end_s:.2f} s"
        )


def _shares(waits_s: list[float]) -> str:
    waits = sorted(waits_s) or [float("nan")]
    median, late, most = [waits[min(int(len(waits) * part), len(waits) - 1)] for part in (0.5, 0.99, 1.0)]
    return f"{len(waits_s)} (median {median:.3f} s, 99 % {late:.3f} s, most {most:.3f} s)"


class _Line:
    """A connection of a bad sender, with TLS or without."""

    def __init__(self, link: socket.socket, context: ssl.SSLContext | None) -> None:
        self._link, self._loop = link, asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if context is None else context.wrap_bio(self._incoming, self._outgoing)

    async def secure(self) -> None:
        while self._tls is not None and not self._is_secured(self._tls):
            await self._loop.sock_sendall(self._link, self._outgoing.read())
            self._incoming.write(await self._loop.sock_recv(self._link, 1 << 16) or b"no TLS")
        await self._loop.sock_sendall(self._link, self._outgoing.read())

    @staticmethod
    def _is_secured(tls: ssl.SSLObject) -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def send(self, data: bytes) -> None:
        if self._tls is None:
            await self._loop.sock_sendall(self._link, data)
            return
        for place in range(0, len(data), 1 << 18):
            self._tls.write(data[place : place + (1 << 18)])
            await self._loop.sock_sendall(self._link, self._outgoing.read())

    async def receive(self) -> bytes:
        return await self._loop.sock_recv(self._link, 1 << 16)


async def _stranger(
    port: int, name: str, seed: int, sent: Counter[str], is_on: Callable[[], bool], context: ssl.SSLContext | None
) -> None:
    draw, loop, data = random.Random(seed), asyncio.get_running_loop(), ATTACKS[name]
    while is_on():
        with contextlib.suppress(OSError, asyncio.TimeoutError), socket.socket() as link:
            link.setblocking(False)
            await asyncio.wait_for(loop.sock_connect(link, ("127.0.0.1", port)), STAYS_S)
            sent[name] += 1
            line = _Line(link, None if name in NO_TLS else context)

            async def act(line: _Line = line) -> None:
                await line.secure()
                if draw.random() < 0.3 and len(data) < 1 << 17:
                    for place in range(len(data)):  # slow
                        await line.send(data[place : place + 1])
                        await asyncio.sleep(0.05)
                await line.send(data)
                while draw.random() < 0.9 and await line.receive():
                    pass
                await asyncio.sleep(STAYS_S)

            await asyncio.wait_for(act(), STAYS_S)
        await asyncio.sleep(PAUSE_S)


def strangers(port: int, count: int, seconds: float, seed: int, *, has_tls: bool) -> Counter[str]:
    """Send what is bad from `count` connections at a time, and return how many connections were made."""
    until_s, sent = time.monotonic() + seconds, Counter[str]()
    context = ssl._create_unverified_context() if has_tls else None

    async def all_of_them() -> None:
        names = list(ATTACKS)
        chosen = [names[number % len(names)] for number in range(count)]
        each: list[Awaitable[None]] = [
            _stranger(port, name, seed + number, sent, lambda: time.monotonic() < until_s, context)
            for number, name in enumerate(chosen)
        ]
        await asyncio.gather(*each)

    asyncio.run(all_of_them())
    return sent


def _answer(link: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Post a body; return status and text, 0 and an error where there is no answer."""
    try:
        link.request("POST", "/in", body, headers)
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        link.close()
        return 0, repr(error)


def _good(
    link: http.client.HTTPConnection, number: int, is_on: Callable[[], bool], outcome: Outcome, kept: Counter[bytes]
) -> None:
    """Post requests of 1 to 1 000 messages, plain and compressed, some on a connection that is kept."""
    draw, turn = random.Random(number), 0
    while is_on():
        count = draw.choice((1, 10, 1_000))
        lines = [b'{"good": "%d-%d-%d", "x": 20.5}' % (number, turn, place) for place in range(count)]
        body, headers = b"\n".join(lines), {}
        if draw.random() < 0.3:
            body, headers = gzip.compress(body), {"Content-Encoding": "gzip"}
        turn += 1
        if draw.random() < 0.5:
            link.close()
        is_fresh, began_s = link.sock is None, time.monotonic()
        status, text = _answer(link, body, headers)
        if not status and not is_fresh:  # one that was kept may be closed by the server at any time
            outcome.repeated += 1
            status, text = _answer(link, body, headers)
        (outcome.fresh_s if is_fresh else outcome.kept_s).append(time.monotonic() - began_s)
        if status == 200 and json.loads(text)["messages"] == count:
            kept.update(lines)
        else:
            outcome.failures.append(f"{status} {text[:100]}")
        threading.Event().wait(0.02)


def crowd(folder: Path, bad: int, seconds: float, *, good: int = 4, seed: int = 1, has_tls: bool = False) -> Outcome:
    """Run an intake beside bad and good senders; check that all that was acknowledged is there, and nothing else."""
    port, outcome, kept = free_port(), Outcome(), Counter[bytes]()
    scheme, context, environment = "http", None, dict(os.environ)
    if has_tls:
        folder.parent.mkdir(parents=True, exist_ok=True)
        certificate, key = certificate_of(folder.parent)
        scheme, context = "https", ssl.create_default_context(cafile=certificate)
        environment |= {"STREAMJOIN_INTAKE_CERTIFICATE_FILE": certificate, "STREAMJOIN_INTAKE_KEY_FILE": key}
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "intake", f"{scheme}://127.0.0.1:{port}/in"]
    intake = subprocess.Popen([*command, "--to", str(folder), "--quiet"], env=environment)
    try:
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            threading.Event().wait(0.05)
        command = ["nice", "-n", "10", sys.executable, "-m", "tests.spool.http_crowd", "--seconds", str(seconds)]
        command += ["--port", str(port), "--bad", str(bad // PROCESSES), *(["--tls"] if has_tls else [])]
        others = [
            subprocess.Popen([*command, "--seed", str(seed + number * bad)], stdout=subprocess.PIPE)
            for number in range(PROCESSES)
        ]
        senders = []
        for number in range(good):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            if context is not None:
                link = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
            arguments = (link, number, lambda: any(each.poll() is None for each in others), outcome, kept)
            senders.append(threading.Thread(target=_good, args=arguments))
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        for other in others:
            outcome.sent.update(json.loads(other.communicate()[0]))
        status = Path(f"/proc/{intake.pid}/status").read_text()
        outcome.peak_bytes = int(status.partition("VmHWM:")[2].split()[0]) << 10
    finally:
        began_s = time.monotonic()
        intake.send_signal(signal.SIGTERM)
        _, code, used = os.wait4(intake.pid, 0)
        outcome.end_s, outcome.cpu_s = time.monotonic() - began_s, used.ru_utime + used.ru_stime
    assert code == 0
    found = Counter(payload for _, _, payload in held(folder) if b"good" in payload)
    assert not kept - found, "what was acknowledged is there"
    assert max(found.values(), default=0) <= 1 + outcome.repeated, "and is there once"
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bad", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--port", type=int)
    chosen = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8_192)), hard))
    if chosen.port:
        print(json.dumps(strangers(chosen.port, chosen.bad, chosen.seconds, chosen.seed, has_tls=chosen.tls)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(crowd(Path(folder) / "spool", chosen.bad, chosen.seconds, seed=chosen.seed, has_tls=chosen.tls))


if __name__ == "__main__":
    main()
