"""The server that messages are posted to: a request is answered once its messages are in the spool."""

from __future__ import annotations

import asyncio
import errno
import heapq
import hmac
import ipaddress
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Callable, Generator
from http import HTTPStatus
from urllib.parse import parse_qs

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.http_body import (
    INFLUX,
    JSON_TYPE,
    PACK,
    PRECISIONS,
    STEP_BYTES,
    BodyError,
    Tally,
    check_readable,
    inflating,
    payloads_of,
)
from streamjoin_ds.spool.http_connection import Connection
from streamjoin_ds.spool.http_crowd import Crowd, HttpLimits, due
from streamjoin_ds.spool.writer import Counts, SpoolWriter

__all__ = ["HttpIntake"]

_log = logging.getLogger(__name__)

_INFLUX_PATHS = (b"/write", b"/api/v2/write")  # to which InfluxDB's clients post
_SENML_TYPES = ("application/senml+json", "application/sensml+json")
_LINES = ""  # the kind of a body of lines
_TICK_S = 0.2  # the longest wait before the caller is asked whether to stop
_FAREWELL_S = 1.0  # the longest wait at the end for answers to be sent
_GROUP_BYTES = 8 << 20  # bytes of one group of requests, at most, beyond its last request
_GROUP_MESSAGES = 50_000  # messages of one, likewise
_BACKLOG = (
    4096  # connections that wait to be accepted, at most: one more is not heard, and its sender tries again in 1 s
)
_LISTENING_HINTS = {
    errno.EADDRINUSE: "give another port, or end who has this one",
    errno.EACCES: "give a port of 1024 or more: smaller ones need rights",
}
_ACCEPTS = 1024  # connections that are accepted before others have their turn
_FULL_S = 0.02  # the wait before connections are accepted again where there is no room for one
_NO_FILES_S = 0.5  # the same where the process has no descriptor for one
_LIGHT = 2_000  # messages, or objects, of a request that is taken apart at once
_HEAVY = 128  # small bodies that may wait to be taken apart, beside the large ones


class HttpIntake:
    """Takes messages that are posted to one path.

    `payloads_of` says what messages a body has; it may be compressed. The answer is 200 with the number of messages and
    that of the first. Requests that come together are one group: one sync. One thread does all, so what is in memory is
    bounded by what `HttpLimits` let in and one body that is taken apart.

    Parameters
    ----------
    address : Address
        Where to listen, and the path. Port 0 is any free one, see `port`.
    secrets : Secrets
        The token that requests must send, if there is one, and the server's certificate for https.
    writer : SpoolWriter
        Where the messages go.
    counts : Counts
        What is counted.
    tick : callable
        Called at least five times a second, while the device is quick; returns whether to go on.
    accept : {"json", "lines", "influx", "senml", "anything"}
        What bodies hold, and so what is refused: "json" goes by their media types. "lines" are JSON lines whatever
        that says. "influx" is line protocol, as it is written to InfluxDB: also to the paths ``write`` and
        ``api/v2/write`` below the own one, with a precision, answered by 204. "senml": a pack of SenML each, which is
        one message. "anything" refuses no bytes.
    is_open : bool
        Whether others than this machine may post without a token and without TLS.
    limits : HttpLimits
        What senders may use up.
    """

    def __init__(
        self,
        address: Address,
        secrets: Secrets,
        writer: SpoolWriter,
        counts: Counts,
        tick: Callable[[], bool],
        *,
        accept: str = "json",
        is_open: bool = False,
        limits: HttpLimits | None = None,
    ) -> None:
        self._writer, self._counts, self._tick, self._accept = writer, counts, tick, accept
        self._limits = HttpLimits() if limits is None else limits
        self._topic = address.topic.encode()
        is_influx, below = accept == "influx", self._topic.rstrip(b"/")
        self._paths = {self._topic, *((below + path for path in _INFLUX_PATHS) if is_influx else ())}
        self._done = HTTPStatus.NO_CONTENT if is_influx else HTTPStatus.OK
        words = ("Bearer", "Token") if is_influx else ("Bearer",)
        self._tokens = [] if secrets.token is None else [f"{word} {secrets.token}".encode() for word in words]
        self._context = _context(secrets) if address.has_tls else None
        self._crowd = Crowd(self._limits, time.monotonic)
        # Heavy bodies that wait, a heap: when one is due, a number, and what to do; and the one that is taken apart.
        self._jobs: list[tuple[float, int, Connection, Generator[None, None, list[bytes]]]] = []
        self._job: tuple[Connection, Generator[None, None, list[bytes]]] | None = None
        self._numbers = itertools.count()
        self._group: list[tuple[Connection, list[bytes]]] = []
        self._group_bytes = self._group_messages = 0
        self._welcoming: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._socket = _listening(address, may_be_reached=is_open or bool(self._tokens) or address.has_tls)

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return int(self._socket.getsockname()[1])

    def run(self) -> None:
        """Take messages until `tick` returns False."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_say_fault)
        self._listen()
        _log.info("listening at port %d", self.port)
        try:
            while self._tick() and self._error is None:
                self._crowd.tick()
                await asyncio.sleep(_TICK_S)
        finally:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._commit()
            for connection in [*([self._job[0]] if self._job else []), *(each[2] for each in self._jobs)]:
                connection.answer(*_not_kept())
            self._job, self._jobs = None, []
            self._crowd.close()
            until_s = time.monotonic() + _FAREWELL_S
            while len(asyncio.all_tasks()) > 1 and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept_some)

    def _accept_some(self) -> None:
        """Accept some connections. Not by a server of asyncio, which accepts all that come, room or not."""
        for _ in range(_ACCEPTS):
            wait_s = _FULL_S
            if self._crowd.makes_room():
                try:
                    link = self._socket.accept()[0]
                except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                    return
                except OSError as error:
                    _log.warning("no connection can be accepted: %s", error.strerror)
                    wait_s = _NO_FILES_S
                else:
                    link.setblocking(False)
                    self._crowd.coming += 1
                    task = self._loop.create_task(self._welcome(link))
                    self._welcoming.add(task)
                    task.add_done_callback(self._welcoming.discard)
                    continue
            self._loop.remove_reader(self._socket)
            self._loop.call_later(wait_s, self._listen)
            return

    async def _welcome(self, link: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: Connection(self._crowd, self, self._context), link)
        except OSError:
            link.close()
        finally:
            self._crowd.coming -= 1

    def refused(self, method: bytes, path: bytes, token: bytes) -> tuple[HTTPStatus, str] | None:
        """See `Desk`."""
        if method != b"POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, "messages are posted"
        if self._tokens and not any([hmac.compare_digest(token, own) for own in self._tokens]):
            return HTTPStatus.UNAUTHORIZED, "send the header Authorization: Bearer TOKEN"
        if path.partition(b"?")[0] not in self._paths:
            return HTTPStatus.NOT_FOUND, "this path takes no messages"
        if self._accept == "influx" and _precision(path) not in PRECISIONS:
            return HTTPStatus.BAD_REQUEST, f"the precision is one of {', '.join(filter(None, PRECISIONS))}"
        return None

    def kind_of(self, path: bytes, media_type: str) -> str:
        """See `Desk`."""
        if self._accept == "influx":
            return INFLUX + _precision(path)
        is_pack = self._accept == "senml" or (self._accept == "json" and media_type in _SENML_TYPES)
        is_json = media_type == JSON_TYPE and self._accept != "lines"
        return PACK if is_pack else JSON_TYPE if is_json else _LINES

    def count_refused(self) -> None:
        """See `Desk`."""
        self._counts.refused += 1

    def take(self, connection: Connection, body: bytes, kind: str, encoding: str) -> None:
        """See `Desk`: a light body is taken apart at once, a heavy one a step at a time, the small ones first."""
        try:
            if encoding:
                first = inflating(body, encoding, self._tally(kind))
                try:
                    next(first)
                except StopIteration as done:
                    body, encoding = done.value, ""
            if not encoding and len(body) <= STEP_BYTES and body.count(b"\n") + body.count(b"{") <= _LIGHT:
                self._keep(connection, self._payloads(body, kind))
                return
        except BodyError as error:
            connection.answer(error.status, {"error": error.reason})
            return
        # What is inflated of a heavy body is let go: one of them at a time is in memory.
        if len(self._jobs) >= _HEAVY and not self._crowd.has_room(connection):
            connection.answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "too much is to be done: post again"})
            return
        when_s = due(time.monotonic(), len(body))
        job = self._taken_apart(body, kind, encoding)
        heapq.heappush(self._jobs, (when_s, next(self._numbers), connection, job))
        if self._job is None and len(self._jobs) == 1:
            self._crowd.turns.add(self._work)

    def _tally(self, kind: str) -> Tally:
        return Tally(kind, self._limits.messages)

    def _taken_apart(self, body: bytes, kind: str, encoding: str) -> Generator[None, None, list[bytes]]:
        if encoding:
            body = yield from inflating(body, encoding, self._tally(kind))
            yield
        return self._payloads(body, kind)

    def _work(self) -> None:
        """Do a step of a heavy body."""
        if self._job is None:
            if not self._jobs:
                return  # the server ends
            self._job = heapq.heappop(self._jobs)[2:]
        connection, job = self._job
        try:
            next(job)
        except StopIteration as done:
            self._job = None
            self._keep(connection, done.value)
        except BodyError as error:
            self._job = None
            connection.answer(error.status, {"error": error.reason})
        if self._job is not None or self._jobs:
            self._crowd.turns.add(self._work)

    def _payloads(self, body: bytes, kind: str) -> list[bytes]:
        payloads = payloads_of(body, kind)
        if not payloads and not body.strip():
            raise BodyError(HTTPStatus.BAD_REQUEST, "the body has no message")
        if self._accept != "anything":
            check_readable(payloads, kind)
        return payloads

    def _keep(self, connection: Connection, payloads: list[bytes]) -> None:
        """Add a request to the group that is written next."""
        if not payloads:  # an empty list is no fault of its sender, who would send it again
            connection.answer(self._done, {"messages": 0})
            return
        if not self._group:
            self._loop.call_soon(self._commit)
        self._group.append((connection, payloads))
        self._group_bytes += sum(map(len, payloads))
        self._group_messages += len(payloads)
        if self._group_bytes >= _GROUP_BYTES or self._group_messages >= _GROUP_MESSAGES:
            self._commit()

    def _commit(self) -> None:
        """Write the group, and answer its requests."""
        group, size_bytes, count = self._group, self._group_bytes, self._group_messages
        self._group, self._group_bytes, self._group_messages = [], 0, 0
        if not group:
            return
        topic, first = self._topic, -1
        if self._error is None:
            try:
                first = self._writer.append([(topic, payload) for _, payloads in group for payload in payloads])
            except BaseException as error:  # raised again where the server runs, once all senders have heard
                self._error = error
        if self._error is not None:
            for connection, _ in group:
                connection.answer(*_not_kept())
            return
        self._counts.messages += count
        self._counts.payload_bytes += size_bytes
        self._counts.syncs += 1
        self._counts.last_received_us = time.time_ns() // 1000
        for connection, payloads in group:
            connection.answer(self._done, {"messages": len(payloads), "first": first})
            first += len(payloads)


def _precision(path: bytes) -> str:
    """Return the precision that a request to InfluxDB names; empty for none."""
    query = parse_qs(path.partition(b"?")[2].decode("latin-1"))
    return query.get("precision", [""])[-1]


def _not_kept() -> tuple[HTTPStatus, dict[str, object]]:
    return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the messages were not kept: post them again"}


def _say_fault(loop: asyncio.AbstractEventLoop, facts: dict[str, object]) -> None:
    error = facts.get("exception")
    if isinstance(error, OSError):  # a connection that broke off, or too many files
        _log.debug("%s", facts.get("message"), exc_info=error)
    else:
        _log.error("%s", facts.get("message"), exc_info=error if isinstance(error, BaseException) else None)


def _listening(address: Address, *, may_be_reached: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if not may_be_reached and not all(_is_loopback(str(each[4][0])) for each in found):
            msg = f"others can reach {address.host}, and no token is asked for"
            hint = "set STREAMJOIN_INTAKE_TOKEN, use https://, or listen at 127.0.0.1; --open takes what anybody posts"
            raise IntakeError(msg, name="address", hint=hint)
        family, _, _, _, place = found[0]
        listening = socket.create_server(place[:2], family=family, backlog=_BACKLOG)
        listening.setblocking(False)
        return listening
    except OSError as error:
        reason = (error.strerror or type(error).__name__).partition(" (while ")[0]  # Python adds the address again
        msg = f"{address.host}:{address.port} cannot be listened at: {reason}"
        hint = _LISTENING_HINTS.get(error.errno or 0, "give an address of this machine, such as 127.0.0.1")
        raise IntakeError(msg, name="address", hint=hint) from None


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _context(secrets: Secrets) -> ssl.SSLContext:
    if secrets.certificate_file is None:
        msg = "https:// needs a certificate"
        raise IntakeError(msg, name="certificate_file", hint="name it, and key_file, in the file of --secrets")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(secrets.certificate_file, secrets.key_file)
    except OSError:  # ssl.SSLError is one
        msg = "the certificate or its key cannot be read"
        raise IntakeError(msg, name="certificate_file", hint="check certificate_file and key_file") from None
    return context
