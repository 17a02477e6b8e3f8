"""One connection that messages are posted on: requests are read and answered one after another."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
import ssl
from http import HTTPStatus
from typing import Protocol, cast

import h11

from streamjoin_ds.spool.http_body import ENCODINGS, BodyError, Tally
from streamjoin_ds.spool.http_crowd import Crowd, State
from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES

__all__ = ["Connection", "Desk"]

_log = logging.getLogger(__name__)

_HEAD_BYTES = 8 << 10  # bytes of a request's line and headers, at most; of a chunk's line too
_HEAD_LINES = 64  # lines of them, at most
_EVENTS = 16  # pieces of a body that are read before other connections have their turn
_GOODBYE_BYTES = 1 << 20  # bytes that a refused sender may still send before the connection is cut
_RECORD_BYTES = 16 << 10  # bytes of a record of TLS, at most
_FEED_BYTES = 4 << 10  # bytes that are given to TLS at a time: it keeps so much memory for the next ones
_HEAD_END = re.compile(rb"\n\r?\n")


class Desk(Protocol):
    """Where requests go."""

    def refused(self, method: bytes, path: bytes, token: bytes) -> tuple[HTTPStatus, str] | None:
        """Return why a request is refused before its body is read; None where it is taken."""

    def kind_of(self, path: bytes, media_type: str) -> str:
        """Return the kind of a request's body (`payloads_of`)."""

    def take(self, connection: Connection, body: bytes, kind: str, encoding: str) -> None:
        """Take a whole request, and call `answer` of its connection then or later."""

    def count_refused(self) -> None:
        """Count a request that was answered with an error."""


class Cipher:
    """TLS of one connection, from bytes to bytes.

    That of asyncio takes 256 KiB a connection, and gives its handshake to others before it can be counted.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_secured = self.is_ended = False

    def opened(self, data: bytes) -> bytes:
        """Return what the sender's bytes say; `is_ended` once it said that nothing follows.

        Raises
        ------
        ssl.SSLError
            They are no TLS, or of no version or cipher that is known here.
        """
        parts: list[bytes] = []
        for place in range(0, len(data), _FEED_BYTES):
            self._incoming.write(data[place : place + _FEED_BYTES])
            try:
                if not self.is_secured:
                    self._tls.do_handshake()
                    self.is_secured = True
                while piece := self._tls.read(_RECORD_BYTES):
                    parts.append(piece)
                self.is_ended = True
            except ssl.SSLWantReadError:
                pass
        return b"".join(parts)

    def sealed(self, data: bytes) -> bytes:
        """Return what to send, so that the sender reads `data`; what TLS itself has to say goes before it."""
        if data:
            self._tls.write(data)
        return self._outgoing.read()

    def farewell(self) -> bytes:
        """Return what to send at the end."""
        with contextlib.suppress(ssl.SSLError):
            if self.is_secured:
                self._tls.unwrap()  # does not wait for the answer
        return self._outgoing.read()


class Connection(asyncio.BufferedProtocol):
    """Reads one request at a time; what follows it waits unread.

    Parameters
    ----------
    crowd : Crowd
        All connections, and what they may use.
    desk : Desk
        Where requests go.
    context : ssl.SSLContext or None
        The server's certificate, for https.
    """

    def __init__(self, crowd: Crowd, desk: Desk, context: ssl.SSLContext | None = None) -> None:
        self._crowd, self._desk, self._context = crowd, desk, context
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._transport: asyncio.Transport
        self._cipher: Cipher | None = None
        self._body = io.BytesIO()
        self._tally: Tally | None = None
        self._kind = self._encoding = ""
        self._has_begun = self._is_blocked = self._waits = False
        self._said_bytes = 0  # after a refusal
        self.state = State.READING if context is None else State.SECURING
        self.is_known = False  # its last request was taken
        self.since_s = 0.0  # when its request began, or nothing did

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(0)
        self._crowd.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self._ended()

    def _ended(self) -> None:
        self.state = State.CLOSED
        self._body = io.BytesIO()
        self._crowd.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`: all connections share one buffer, as each is emptied at once."""
        return self._crowd.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if self.state is State.CLOSING:
            self._said_bytes += nbytes
            if self._said_bytes > _GOODBYE_BYTES:
                self._transport.abort()
            return
        data: bytes = bytes(self._crowd.buffer[:nbytes])
        if self._context is not None:
            data = self._opened(data, self._context)
        if data and self.state is not State.CLOSED:
            if not self._has_begun:
                self._begin()
            self._parser.receive_data(data)
            self._advance()
        if self._cipher is not None and self._cipher.is_ended and not self.eof_received():
            self._transport.close()

    def _opened(self, data: bytes, context: ssl.SSLContext) -> bytes:
        self._cipher = cipher = self._cipher or Cipher(context)
        try:
            data = cipher.opened(data)
        except ssl.SSLError as error:
            _log.debug("no TLS: %s", error)
            self._transport.write(cipher.farewell())
            self._transport.close()
            self._ended()
            return b""
        if cipher.is_secured and self.state is State.SECURING:
            self.state = State.READING
        self._transport.write(cipher.sealed(b""))
        return data

    def eof_received(self) -> bool:
        """See `asyncio.BaseProtocol`: a sender may end its side first, and still be answered."""
        if self.state in (State.READING, State.ANSWERING):
            self._parser.receive_data(b"")
            self._advance()
        return self.state in (State.ANSWERING, State.READING) and not self._transport.is_closing()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`: who does not read answers is not read either."""
        self._is_blocked = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._is_blocked = False
        if self._may_read():
            self._go_on()

    def _begin(self) -> None:
        self._has_begun = True
        self._crowd.begin(self)

    def _advance(self) -> None:
        """Read on, until the request is whole or more bytes must come."""
        if not self._may_read():
            return
        try:
            for _ in range(_EVENTS):
                if self._parser.their_state is h11.IDLE and self._has_many_lines():
                    self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"{_HEAD_LINES} lines of headers at most")
                    return
                event = self._parser.next_event()
                if event is h11.NEED_DATA:
                    self._read_on()
                    return
                if isinstance(event, h11.Request):
                    self._open(event)
                elif isinstance(event, h11.Data):
                    self._add(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self._hand_over()
                elif isinstance(event, h11.ConnectionClosed):
                    self._close()
                    return
                if not self._may_read():
                    return
        except h11.RemoteProtocolError as error:
            self.refuse(HTTPStatus(error.error_status_hint), str(error))
            return
        except BodyError as error:
            self.refuse(error.status, error.reason)
            return
        # A body in tiny chunks: the others first.
        self._transport.pause_reading()
        self._crowd.turns.add(self._advance)

    def _may_read(self) -> bool:
        return self.state is State.READING and not self._waits

    def _has_many_lines(self) -> bool:
        held = self._parser.trailing_data[0]
        end = _HEAD_END.search(held)
        return held.count(b"\n", 0, end.start() if end else len(held)) > _HEAD_LINES

    def _open(self, request: h11.Request) -> None:
        headers = dict(request.headers)  # names are in small letters
        refusal = self._desk.refused(request.method, request.target, headers.get(b"authorization", b""))
        length = int(headers.get(b"content-length", b"0"))  # h11 let digits pass, 20 at most
        if refusal is None and length > MAX_PAYLOAD_BYTES:
            refusal = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MAX_PAYLOAD_BYTES} bytes at most"
        if refusal is not None:
            self.refuse(*refusal)
            return
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        self._kind = self._desk.kind_of(request.target, media_type)
        self._encoding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1")
        self._encoding = "" if self._encoding == "identity" else self._encoding
        self._tally = None if self._encoding else Tally(self._kind, self._crowd.limits.messages)
        if length > self._crowd.limits.small_bytes:
            self._wait_for_room(length)

    def _add(self, data: bytes) -> None:
        if self._tally is not None:
            self._tally.add(data)
        self._body.write(data)
        size = self._body.tell()
        if size > MAX_PAYLOAD_BYTES:
            raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MAX_PAYLOAD_BYTES} bytes at most")
        if not self._crowd.has_room(self):
            self._crowd.hold(self, size)
            if size > self._crowd.limits.small_bytes and self.state is State.READING:
                self._wait_for_room(MAX_PAYLOAD_BYTES)  # chunks, which do not say how much comes

    def _wait_for_room(self, size_bytes: int) -> None:
        if not self._crowd.reserve(self, size_bytes):
            self._waits = True
            self._transport.pause_reading()

    def admitted(self) -> None:
        """Read on: there is room for the body now."""
        self._waits = False
        self._crowd.turns.add(self._advance)

    def _read_on(self) -> None:
        if self._parser.they_are_waiting_for_100_continue:
            self._send(self._parser.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        if not self._is_blocked:
            self._transport.resume_reading()

    def _hand_over(self) -> None:
        self.state = State.ANSWERING
        self._transport.pause_reading()
        self._crowd.busy(self)
        body, self._body = self._body, io.BytesIO()
        self._desk.take(self, body.getvalue(), self._kind, self._encoding)  # shares its bytes

    def answer(self, status: HTTPStatus, facts: dict[str, object]) -> None:
        """Answer the request that was handed over, and go on with the next one."""
        self._crowd.release(self)
        if self.state is not State.ANSWERING:
            return  # its sender has gone
        self.is_known = status < HTTPStatus.BAD_REQUEST
        self._say(status, facts)
        if self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE:
            self._close()
            return
        self._parser.start_next_cycle()
        self.state, self._has_begun = State.READING, False
        self._crowd.begin(self)
        if not self._is_blocked:
            self._go_on()

    def _go_on(self) -> None:
        data, is_ended = self._parser.trailing_data
        if data or is_ended:
            if data and not self._has_begun:
                self._begin()
            self._crowd.turns.add(self._advance)
        else:
            self._transport.resume_reading()

    def refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer a request that is not whole, and end the connection once its sender has heard."""
        self._crowd.release(self)
        self._body = io.BytesIO()
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._say(status, {"error": reason}, is_last=True)
        self.state = State.CLOSING
        self._crowd.begin(self)
        if self._cipher is not None:
            self._transport.write(self._cipher.farewell())
        self._transport.write_eof()
        self._transport.resume_reading()  # a connection that is closed with bytes unread loses its answer

    def cut(self, status: HTTPStatus, reason: str) -> None:
        """End the connection now, with an answer where a request had begun."""
        if self.state is State.READING and self._has_begun and self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._say(status, {"error": reason}, is_last=True)
        if self.state is State.CLOSING or self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._close()
        self._ended()

    def _close(self) -> None:
        if self._cipher is not None:
            self._transport.write(self._cipher.farewell())
        self._transport.close()

    def _send(self, data: bytes) -> None:
        self._transport.write(data if self._cipher is None else self._cipher.sealed(data))

    def _say(self, status: HTTPStatus, facts: dict[str, object], *, is_last: bool = False) -> None:
        if status >= HTTPStatus.BAD_REQUEST:
            self._desk.count_refused()
        has_body = status is not HTTPStatus.NO_CONTENT
        data = json.dumps(facts).encode() + b"\n" if has_body else b""
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))] if has_body else []
        if status is HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
            headers.append(("Accept-Encoding", ", ".join(ENCODINGS)))
        if is_last:
            headers.append(("Connection", "close"))
        send = self._parser.send
        response = h11.Response(status_code=status, reason=status.phrase.encode(), headers=headers)
        parts = (send(response), send(h11.Data(data=data)), send(h11.EndOfMessage()))
        self._send(b"".join([part or b"" for part in parts]))
