"""The server that messages are posted to: a request is answered once its messages are in the spool."""

from __future__ import annotations

import hmac
import json
import logging
import queue
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.frame import MAX_PAYLOAD_BYTES
from streamjoin_ds.spool.http_body import ENCODINGS, BodyError, inflated, payloads_of
from streamjoin_ds.spool.metrics import Counts
from streamjoin_ds.spool.writer import SpoolWriter

__all__ = ["HttpIntake"]

_log = logging.getLogger(__name__)

_TICK_S = 0.2  # the longest wait for requests before the caller is asked whether to stop
_IDLE_S = 60.0  # a connection that says nothing for so long is closed
_GROUP_BYTES = 8 << 20  # bytes of one group of requests, at most, beyond the first request
_BODIES = 16  # requests whose bodies are in memory at a time, at most


@dataclass(slots=True)
class _Posted:
    """The messages of one request, and what became of them."""

    messages: list[tuple[bytes, bytes]]
    size_bytes: int
    first: int = -1
    is_kept: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class HttpIntake:
    """Takes messages that are posted to one path.

    `payloads_of` says what messages a body has; it may be compressed. The answer is 200 with the number of messages and
    that of the first. Requests that wait together are one group: one sync.

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
        Called at least five times a second; returns whether to go on.
    """

    def __init__(
        self, address: Address, secrets: Secrets, writer: SpoolWriter, counts: Counts, tick: Callable[[], bool]
    ) -> None:
        self._writer, self._counts, self._tick = writer, counts, tick
        self._waiting: queue.SimpleQueue[_Posted] = queue.SimpleQueue()
        self._bodies = threading.BoundedSemaphore(_BODIES)
        self._is_open = True
        self._topic = address.topic.encode()
        self._token = None if secrets.token is None else f"Bearer {secrets.token}".encode()
        context = _context(secrets) if address.has_tls else None
        try:
            self._server = _Server((address.host, address.port), _handler(self))
        except OSError as error:
            msg = f"{address.host}:{address.port} cannot be listened at: {error.strerror}"
            raise IntakeError(msg, name="address", hint="give another port, or end who has this one") from None
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return int(self._server.server_address[1])

    def run(self) -> None:
        """Take messages until `tick` returns False."""
        serving = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="intake-http", daemon=True)
        serving.start()
        _log.info("listening at port %d", self.port)
        try:
            while self._tick():
                self._commit(_TICK_S)
        finally:
            self._is_open = False
            self._server.shutdown()
            self._server.server_close()
            self._refuse_rest()

    def _commit(self, wait_s: float) -> None:
        """Write the requests that wait, as one group."""
        try:
            group = [self._waiting.get(timeout=wait_s)]
        except queue.Empty:
            return
        size_bytes = 0
        while size_bytes < _GROUP_BYTES:
            try:
                group.append(self._waiting.get_nowait())
            except queue.Empty:
                break
            size_bytes += group[-1].size_bytes
        try:
            first = self._writer.append([message for posted in group for message in posted.messages])
            for posted in group:
                posted.first, posted.is_kept = first, True
                first += len(posted.messages)
                self._counts.messages += len(posted.messages)
                self._counts.payload_bytes += posted.size_bytes
            self._counts.syncs += 1
            self._counts.last_received_us = time.time_ns() // 1000
        finally:
            for posted in group:
                posted.done.set()

    def _refuse_rest(self) -> None:
        """Let the requests that still wait fail: their senders post them again."""
        while not self._waiting.empty():  # no other thread takes any
            self._waiting.get_nowait().done.set()

    def refused(self, path: str, token: str | None) -> tuple[HTTPStatus, str] | None:
        """Return why a request is refused; None where it is taken."""
        if self._token is not None and not hmac.compare_digest((token or "").encode(), self._token):
            return HTTPStatus.UNAUTHORIZED, "send the header Authorization: Bearer TOKEN"
        if path.partition("?")[0].encode() != self._topic:
            return HTTPStatus.NOT_FOUND, "this path takes no messages"
        return None

    def keep(self, payloads: list[bytes]) -> tuple[HTTPStatus, dict[str, object]]:
        """Return the answer to a request, once its messages are on the device or cannot be."""
        posted = _Posted([(self._topic, payload) for payload in payloads], sum(map(len, payloads)))
        self._waiting.put(posted)
        while not posted.done.wait(_TICK_S) and self._serves():
            pass
        if not posted.is_kept:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the messages were not kept: post them again"}
        return HTTPStatus.OK, {"messages": len(payloads), "first": posted.first}

    def _serves(self) -> bool:
        return self._is_open

    def body(
        self, read: Callable[[int], bytes], size: int, kind: str, encoding: str
    ) -> tuple[HTTPStatus, dict[str, object]]:
        """Read a body and return the answer; few bodies are in memory at a time."""
        with self._bodies:
            data = read(size)
            if len(data) < size:
                return HTTPStatus.BAD_REQUEST, {"error": "the body is shorter than its Content-Length"}
            try:
                data = inflated(data, encoding)
            except BodyError as error:
                return error.status, {"error": error.reason}
            payloads = payloads_of(data, kind)
            if not payloads and not data.strip():
                return HTTPStatus.BAD_REQUEST, {"error": "the body has no message"}
            # An empty list is no fault of its sender, who would send it again.
            return self.keep(payloads) if payloads else (HTTPStatus.OK, {"messages": 0})

    def count_refused(self) -> None:
        """Count a request that was answered with an error."""
        self._counts.refused += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say in the log alone that a connection broke off."""
        _log.debug("a connection broke off", exc_info=True)


def _handler(intake: HttpIntake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "streamjoin", ""
        timeout = _IDLE_S
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            refusal = intake.refused(self.path, self.headers.get("Authorization"))
            length = self.headers.get("Content-Length", "")
            if refusal is None and (not length.isascii() or not length.isdigit()):
                refusal = HTTPStatus.LENGTH_REQUIRED, "send the header Content-Length"
            if refusal is None and int(length) > MAX_PAYLOAD_BYTES:
                refusal = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MAX_PAYLOAD_BYTES} bytes at most"
            if refusal is not None:
                self.close_connection = True  # the body is not read
                self._say(refusal[0], {"error": refusal[1]})
                return
            kind, encoding = self.headers.get_content_type(), self.headers.get("Content-Encoding", "")
            self._say(*intake.body(self.rfile.read, int(length), kind, encoding))

        def do_GET(self) -> None:
            self.close_connection = True
            self._say(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "messages are posted"})

        do_PUT = do_GET

        def _say(self, status: HTTPStatus, facts: dict[str, object]) -> None:
            if status is not HTTPStatus.OK:
                intake.count_refused()
            data = json.dumps(facts).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status is HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
                self.send_header("Accept-Encoding", ", ".join(ENCODINGS))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *values: object) -> None:
            """Log nothing: a request's line may hold a secret."""

    return Handler


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
