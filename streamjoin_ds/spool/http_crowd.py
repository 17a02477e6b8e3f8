"""All connections of an intake: how many there are, how long each may take, and whose bodies may be in memory."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Protocol

__all__ = ["Crowd", "HttpLimits", "State"]

_BUFFER_BYTES = 32 << 10  # bytes that are read of a connection before others have their turn
_OWN_FILES = 64  # descriptors that are left to the process itself
_SAY_S = 0.15  # the least time that a connection has to say something, however many others come
_PACE = 8 << 20  # bytes a second that a large body must come with while others wait for its room
_GRACE_S = 1.0  # beyond that


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What senders may use up.

    Parameters
    ----------
    connections : int
        Connections at a time, at most; TLS halves it, as each then holds a third of a MiB. One more ends another one.
    request_s : float
        A request is whole within so many seconds; a connection that says nothing is closed then.
    handshake_s, linger_s : float
        The longest that a handshake of TLS takes, and that a refused sender is listened to.
    messages : int
        Messages of a request, at most, blank lines and the objects within objects counted.
    small_bytes : int
        A body of so many bytes is read at once; there are never more of them than connections.
    large_bytes : int
        Bytes of all larger bodies together; others wait until there is room. One body must fit.
    """

    connections: int = 256
    request_s: float = 60.0
    handshake_s: float = 5.0
    linger_s: float = 2.0
    messages: int = 100_000
    small_bytes: int = 64 << 10
    large_bytes: int = 40 << 20


class State(Enum):
    """What a connection is doing."""

    READING = "reading"  # nothing, or a request that is not whole
    ANSWERING = "answering"  # its request is whole, and is being kept
    CLOSING = "closing"  # it was refused: what still comes is passed over, so that the answer arrives
    CLOSED = "closed"


class Guest(Protocol):
    """What a crowd knows of a connection: its state, whether its last request was taken, and since when it waits."""

    state: State
    is_known: bool
    since_s: float

    def admitted(self) -> None:
        """There is room for the body now."""

    def cut(self, status: HTTPStatus, reason: str) -> None:
        """End the connection now, with an answer where a request had begun."""


class Crowd:
    """Who is connected.

    A connection more than `limits` allow ends another one: of those that were refused the oldest, else of those whose
    requests were never taken, unless there are fewer of them than of the others. So who comes is always heard, and who
    comes only to stay makes room. A connection whose request is whole is never ended.

    Parameters
    ----------
    limits : HttpLimits
    clock : callable
        Returns seconds that never go back.
    has_tls : bool
        Whether connections are encrypted.
    """

    def __init__(self, limits: HttpLimits, clock: Callable[[], float], *, has_tls: bool = False) -> None:
        self.limits, self._clock = limits, clock
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = limits.connections // 2 if has_tls else limits.connections
        self._most = most if files == resource.RLIM_INFINITY else max(min(most, files - _OWN_FILES), 8)
        self.coming = 0  # connections that are accepted and not yet begun
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        # Each in the order of `since_s`, so the first has waited longest.
        self._closing: dict[Guest, None] = {}
        self._new: dict[Guest, None] = {}
        self._known: dict[Guest, None] = {}
        self._busy: dict[Guest, None] = {}
        self._room: dict[Guest, tuple[int, float]] = {}  # bytes, and until when it must be whole if others wait
        self._queue: deque[tuple[Guest, int]] = deque()
        self._free_bytes = limits.large_bytes

    def __len__(self) -> int:
        return len(self._closing) + len(self._new) + len(self._known) + len(self._busy)

    def makes_room(self) -> bool:
        """Whether one more may come; where there are too many, one is ended for it, if it had time to say something."""
        if len(self) + self.coming < self._most:
            return True
        most_s = self._clock() - _SAY_S
        order = (self._known, self._new) if len(self._known) > len(self._new) else (self._new, self._known)
        for each in (self._closing, *order):
            first = next(iter(each), None)
            if first is not None and first.since_s <= most_s:
                first.cut(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many connections: post again")
                return True
        return False

    def begin(self, connection: Guest) -> None:
        """Note that a connection begins a request, or waits for one, or is refused."""
        self._forget(connection)
        if connection.state is State.CLOSED:
            return
        connection.since_s = self._clock()
        is_closing = connection.state is State.CLOSING
        (self._closing if is_closing else self._known if connection.is_known else self._new)[connection] = None

    def busy(self, connection: Guest) -> None:
        """Note that a connection's request is whole."""
        self._forget(connection)
        self._busy[connection] = None

    def remove(self, connection: Guest) -> None:
        """Forget a connection that has ended; the room of its body is kept while the body is."""
        is_busy = connection in self._busy
        self._forget(connection)
        if not is_busy:
            self.release(connection)

    def _forget(self, connection: Guest) -> None:
        for each in (self._closing, self._new, self._known, self._busy):
            each.pop(connection, None)

    def has_room(self, connection: Guest) -> bool:
        """Whether room for a large body is reserved."""
        return connection in self._room

    def reserve(self, connection: Guest, size_bytes: int) -> bool:
        """Reserve room for a large body. Where there is none, `Guest.admitted` is called once there is."""
        if self._queue or size_bytes > self._free_bytes:
            self._queue.append((connection, size_bytes))
            return False
        self._grant(connection, size_bytes)
        return True

    def _grant(self, connection: Guest, size_bytes: int) -> None:
        self._free_bytes -= size_bytes
        self._room[connection] = size_bytes, self._clock() + _GRACE_S + size_bytes / _PACE

    def release(self, connection: Guest) -> None:
        """Give back the room of a body, and admit who waits for it."""
        if connection in self._room:
            self._free_bytes += self._room.pop(connection)[0]
        while self._queue:
            waiting, size_bytes = self._queue[0]
            if waiting.state is State.READING and waiting is not connection:
                if size_bytes > self._free_bytes:
                    return
                self._queue.popleft()
                self._grant(waiting, size_bytes)
                waiting.admitted()
            else:
                self._queue.popleft()

    def tick(self) -> None:
        """End who takes too long."""
        now_s, limits = self._clock(), self.limits
        for connections, most_s in (
            (self._closing, limits.linger_s),
            (self._new, limits.request_s),
            (self._known, limits.request_s),
        ):
            while connections and next(iter(connections)).since_s + most_s <= now_s:
                next(iter(connections)).cut(HTTPStatus.REQUEST_TIMEOUT, f"the request took more than {most_s:g} s")
        if self._queue:
            slow = [each for each, (_, until_s) in self._room.items() if until_s <= now_s]
            for each in slow:
                if each.state is State.READING:
                    each.cut(HTTPStatus.REQUEST_TIMEOUT, "the body came slowly while others waited: post smaller ones")

    def close(self) -> None:
        """End all connections; answers that were given are still sent."""
        for each in [*self._closing, *self._new, *self._known, *self._busy]:
            each.cut(HTTPStatus.SERVICE_UNAVAILABLE, "the intake ends: post again")
