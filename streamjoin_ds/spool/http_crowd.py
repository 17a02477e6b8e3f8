"""All connections of an intake: how many, how long each may take, whose bodies are in memory, and whose turn it is."""

from __future__ import annotations

import asyncio
import heapq
import resource
from collections import deque
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

__all__ = ["Crowd", "HttpLimits", "State", "Turns", "due"]

_BUFFER_BYTES = 32 << 10  # bytes that are read of a connection before others have their turn
_OWN_FILES = 64  # descriptors that are left to the process itself
_SAY_S = 0.15  # the least time that a connection has to say something, however many others come
_PACE = 8 << 20  # bytes a second that a large body must come with while others wait for its room
_GRACE_S = 1.0  # beyond that
_AGEING = 4 << 20  # bytes by which a body that waits may be larger for each second that it came earlier
_SLICE_S = 0.01  # the time of work that can wait before who says something is heard
_FEW = 32  # connections among which work that can wait does not rest


class HttpLimits(Struct, frozen=True):
    """What senders may use up.

    Parameters
    ----------
    connections : int
        Connections at a time, at most. One more ends another one.
    request_s : float
        A request is whole within so many seconds; a connection that says nothing is closed then.
    handshake_s, linger_s : float
        The longest that a handshake of TLS takes, and that a refused sender is listened to.
    messages : int
        Messages of a request, at most, blank lines and the objects within objects counted.
    small_bytes : int
        A body of so many bytes is read at once.
    held_bytes : int
        Bytes of all such bodies that are not whole, of larger ones too before they have room; more end the one that
        began first.
    large_bytes : int
        Bytes of all larger bodies together; others wait until there is room. One body must fit.
    """

    connections: int = 1024
    request_s: float = 60.0
    handshake_s: float = 5.0
    linger_s: float = 2.0
    messages: int = 100_000
    small_bytes: int = 64 << 10
    held_bytes: int = 16 << 20
    large_bytes: int = 40 << 20


class State(Enum):
    """What a connection is doing."""

    SECURING = "securing"  # the handshake of TLS
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


class Turns:
    """Work that can wait, in small steps: large bodies, and what a sender sends beyond one request.

    A little of it is done each time all who said something were heard. So a connection costs the others no more than
    its first bytes do, whatever follows them.

    Parameters
    ----------
    clock : callable
        Returns seconds that never go back.
    is_crowded : callable
        Returns whether work that can wait rests as long as it took, so that half of the time is others'.
    """

    def __init__(self, clock: Callable[[], float], is_crowded: Callable[[], bool]) -> None:
        self._clock, self._is_crowded = clock, is_crowded
        self._steps: deque[Callable[[], None]] = deque()
        self._is_due = False

    def add(self, step: Callable[[], None]) -> None:
        """Do a step soon, after those that were added before."""
        self._steps.append(step)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        loop, began_s = asyncio.get_running_loop(), self._clock()
        now_s = began_s
        try:
            while self._steps and now_s < began_s + _SLICE_S:
                self._steps.popleft()()
                now_s = self._clock()
        finally:
            self._is_due = bool(self._steps)
            if self._is_due:
                loop.call_later(now_s - began_s if self._is_crowded() else 0.0, self._take)


def due(now_s: float, size_bytes: int) -> float:
    """Return what waiting bodies are sorted by: the small before the large, unless these came much earlier."""
    return now_s + size_bytes / _AGEING


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
    """

    def __init__(self, limits: HttpLimits, clock: Callable[[], float]) -> None:
        self.limits, self.clock = limits, clock
        files, most = resource.getrlimit(resource.RLIMIT_NOFILE)[0], limits.connections
        self._most = most if files == resource.RLIM_INFINITY else max(min(most, files - _OWN_FILES), 8)
        self.turns = Turns(clock, lambda: len(self) > _FEW)
        self.coming = 0  # connections that are accepted and not yet begun
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        # Each in the order of `since_s`, so the first has waited longest.
        self._closing: dict[Guest, None] = {}
        self._new: dict[Guest, None] = {}
        self._known: dict[Guest, None] = {}
        self._busy: dict[Guest, None] = {}
        self._room: dict[Guest, tuple[int, float]] = {}  # bytes, and until when it must be whole if others wait
        self._queue: list[tuple[float, int, Guest, int]] = []  # a heap: when it is due, a number, who, and its bytes
        self._queued = 0
        self._free_bytes = limits.large_bytes
        self._held: dict[Guest, int] = {}  # bytes of bodies that have no room and are not whole; the first began first
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._closing) + len(self._new) + len(self._known) + len(self._busy)

    def makes_room(self) -> bool:
        """Whether one more may come; where there are too many, one is ended for it, if it had time to say something."""
        if len(self) + self.coming < self._most:
            return True
        most_s = self.clock() - _SAY_S
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
        connection.since_s = self.clock()
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
        self._held_bytes -= self._held.pop(connection, 0)

    def hold(self, connection: Guest, size_bytes: int) -> None:
        """Note how much there is of a body without room; where all are too much, the one that began first ends."""
        self._held_bytes += size_bytes - self._held.get(connection, 0)
        self._held[connection] = size_bytes
        while self._held_bytes > self.limits.held_bytes:
            next(iter(self._held)).cut(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many slow bodies: post again")

    def has_room(self, connection: Guest) -> bool:
        """Whether room for a large body is reserved."""
        return connection in self._room

    def reserve(self, connection: Guest, size_bytes: int) -> bool:
        """Reserve room for a large body. Where there is none, `Guest.admitted` is called once there is."""
        self._queued += 1
        heapq.heappush(self._queue, (due(self.clock(), size_bytes), self._queued, connection, size_bytes))
        self._admit(connection)
        return connection in self._room

    def release(self, connection: Guest) -> None:
        """Give back the room of a body, and admit who waits for it."""
        if connection in self._room:
            self._free_bytes += self._room.pop(connection)[0]
            self._admit(None)

    def _admit(self, asking: Guest | None) -> None:
        while self._queue:
            _, _, waiting, size_bytes = self._queue[0]
            if waiting.state is State.READING:
                if size_bytes > self._free_bytes:
                    return
                self._free_bytes -= size_bytes
                self._held_bytes -= self._held.pop(waiting, 0)
                self._room[waiting] = size_bytes, self.clock() + _GRACE_S + size_bytes / _PACE
            heapq.heappop(self._queue)
            if waiting in self._room and waiting is not asking:
                waiting.admitted()

    def tick(self) -> None:
        """End who takes too long."""
        now_s, limits = self.clock(), self.limits
        for connections, most_s in (
            (self._closing, limits.linger_s),
            (self._new, limits.request_s),
            (self._known, limits.request_s),
        ):
            while connections and next(iter(connections)).since_s + most_s <= now_s:
                next(iter(connections)).cut(HTTPStatus.REQUEST_TIMEOUT, f"the request took more than {most_s:g} s")
        for each in [each for each in self._new if each.state is State.SECURING]:
            if each.since_s + limits.handshake_s <= now_s:
                each.cut(HTTPStatus.REQUEST_TIMEOUT, "the handshake took too long")
        if self._queue:
            for each in [each for each, (_, until_s) in self._room.items() if until_s <= now_s]:
                if each.state is State.READING:
                    each.cut(HTTPStatus.REQUEST_TIMEOUT, "the body came slowly while others waited: post smaller ones")

    def close(self) -> None:
        """End all connections; answers that were given are still sent."""
        for each in [*self._closing, *self._new, *self._known, *self._busy]:
            each.cut(HTTPStatus.SERVICE_UNAVAILABLE, "the intake ends: post again")
