"""MQTT's packets, versions 5 and 3.1.1, as far as a subscriber at QoS 1 needs them; no connection.

A read from a connection holds many packets, and one write answers them all. paho-mqtt reads each packet by three system
calls and answers by one, which is 19 000 messages per CPU second: too few.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from msgspec import Struct

from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES, MAX_TOPIC_BYTES, TOLD

__all__ = [
    "DISCONNECT",
    "PING",
    "V5",
    "V311",
    "Connected",
    "Disconnected",
    "Login",
    "MalformedPacketError",
    "Packet",
    "Packets",
    "Subscribed",
    "Taken",
    "acks",
    "connect",
    "subscribe",
]

V5, V311 = 5, 4
PING, DISCONNECT = b"\xc0\x00", b"\xe0\x00"

_CONNACK, _PUBLISH, _SUBACK, _PINGRESP, _DISCONNECT = 0x20, 0x30, 0x90, 0xD0, 0xE0
_ANSWERS = {_CONNACK, _SUBACK, _PINGRESP, _DISCONNECT}
_MAX_HEAD_BYTES = MAX_TOPIC_BYTES + (64 << 10)  # bytes of a message's topic and properties that are in memory, at most
_MAX_ANSWER_BYTES = 1 << 20  # bytes of another packet, at most: reasons and pairs of texts
# Sizes of the properties of version 5 whose size is fixed. Those of type text or pair begin with their size.
_FIXED = {1: 1, 2: 4, 17: 4, 19: 2, 23: 1, 24: 4, 25: 1, 33: 2, 34: 2, 35: 2, 36: 1, 37: 1, 39: 4, 40: 1, 41: 1, 42: 1}
_TEXTS = {3, 8, 9, 18, 21, 22, 26, 28, 31}
_SESSION_EXPIRY, _SERVER_KEEP_ALIVE, _RECEIVE_MAXIMUM, _MAXIMUM_QOS, _PAIR = 17, 19, 33, 36, 38
_SUBSCRIPTION_NUMBER = 11
_short = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Login:
    """Who connects: the session's name, and user and password, which no text of this object shows."""

    client: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


class Connected(Struct, frozen=True):
    """The broker's answer to `connect`: 0 is yes, else the reason's number in the version's own table."""

    reason: int
    has_session: bool
    keep_alive_s: int | None = None
    maximum_qos: int = 2
    session_expiry_s: int | None = None


class Subscribed(Struct, frozen=True):
    """The broker's answer to `subscribe`: the QoS that it grants, or a reason from 128 on."""

    reason: int


class Disconnected(Struct, frozen=True):
    """The broker says that it ends the connection, and why (version 5)."""

    reason: int


Packet = Connected | Subscribed | Disconnected


class MalformedPacketError(ConnectionError):
    """Bytes of a connection are no MQTT of the version that was asked for: where the next packet begins is unknown."""

    def __init__(self) -> None:
        super().__init__(0, "a packet of the broker is malformed")


@dataclass(slots=True)
class Taken:
    """What some bytes of a connection hold.

    Attributes
    ----------
    messages : list of (topic, payload)
        The messages, in their order.
    oversized : list of (topic, int)
        Messages that are larger than a spool takes, and how many bytes they have with topic and properties.
    acks : list of bytes
        For each message at QoS 1, oversized or not, the two bytes of its packet's number.
    repeated : int
        How many of `messages` the broker calls sent again.
    unsafe : int
        How many of `messages` came at QoS 0.
    flags : bytearray
        Those of the messages' frames in a spool: the QoS and whether they were retained.
    packets : list
        The other packets.
    """

    messages: list[tuple[bytes, bytes]] = field(default_factory=list)
    oversized: list[tuple[bytes, int]] = field(default_factory=list)
    acks: list[bytes] = field(default_factory=list)
    repeated: int = 0
    unsafe: int = 0
    flags: bytearray = field(default_factory=bytearray)
    packets: list[Packet] = field(default_factory=list)


def connect(login: Login, version: int, *, keep_alive_s: int, in_flight: int = 65_535) -> bytes:
    """Return the packet that begins a connection in a session that stays when the connection ends.

    It sets no limit to the size of packets (version 5): a broker drops a larger message without a word.

    Parameters
    ----------
    login : Login
        Who connects.
    version : {5, 4}
        4 is MQTT 3.1.1.
    keep_alive_s : int, keyword-only
        After so many seconds without a packet the broker may end the connection.
    in_flight : int, keyword-only
        How many messages the broker may send before the first of them is acknowledged (version 5).
    """
    flags = (0x80 if login.user is not None else 0) | (0x40 if login.password is not None else 0)
    variable = _text("MQTT") + bytes([version, flags]) + _short.pack(keep_alive_s)
    if version == V5:
        properties = struct.pack(">BIBH", _SESSION_EXPIRY, 0xFFFFFFFF, _RECEIVE_MAXIMUM, in_flight)
        variable += _length(len(properties)) + properties
    variable += _text(login.client)
    variable += b"".join(_text(each) for each in (login.user, login.password) if each is not None)
    return b"\x10" + _length(len(variable)) + variable


def subscribe(topic: str, version: int) -> bytes:
    """Return the packet that subscribes to a topic filter at QoS 1.

    Retained messages come where the session has no such subscription yet (version 5), or each time (version 3.1.1).
    They alone are called retained: a broker takes the flag off what is published while the subscription stands.
    """
    options = 0x11 if version == V5 else 0x01
    variable = b"\0\x01" + (b"\0" if version == V5 else b"") + _text(topic) + bytes([options])
    return b"\x82" + _length(len(variable)) + variable


def acks(numbers: list[bytes]) -> bytes:
    """Return the packets that acknowledge messages, by `Taken.acks`."""
    return b"".join([b"@\x02" + number for number in numbers])


class Packets:
    """Takes bytes as a connection gives them, and returns the packets that they complete.

    Each byte is copied a fixed number of times, however the packets are cut. A message that is larger than a spool
    takes is passed over as it comes: only its beginning is in memory.

    Parameters
    ----------
    version : {5, 4}
        The version that was asked for in `connect`.
    max_payload_bytes : int
        A message with a larger payload is too large.

    Attributes
    ----------
    error : MalformedPacketError or None
        What comes after the packets that were returned is malformed: nothing more can be read.
    """

    def __init__(self, version: int, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._version, self._max_payload_bytes = version, max_payload_bytes
        self.error: MalformedPacketError | None = None
        self._held = bytearray()  # the beginning of a packet
        self._wanted = 0  # size of `held` before which there is nothing to read
        self._passing = 0  # bytes to come of a message that is too large
        self._passed: tuple[bytes, int, bytes] = b"", 0, b""  # its topic, size, and number or nothing

    def take(self, data: bytes) -> Taken:
        """Return the messages and packets that are complete now, those before a malformed one too."""
        found = Taken()
        if self.error is not None:
            return found
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return found
            data, self._held = bytes(self._held), bytearray()
        at = len(data)
        try:
            at = self._take(data, self._pass_over(data, 0, found) if self._passing else 0, found)
        except (IndexError, struct.error, KeyError, MalformedPacketError):
            self.error = MalformedPacketError()
        self._held = bytearray(data[at:])
        return found

    def _take(self, data: bytes, at: int, found: Taken) -> int:
        """Read the packets from a place on, and return where the first one begins that is not complete."""
        messages, numbers, flags = found.messages.append, found.acks.append, found.flags.append
        size, is_v5, self._wanted = len(data), self._version == V5, 0
        max_payload = self._max_payload_bytes
        max_message = max_payload + _MAX_HEAD_BYTES
        while at + 2 <= size:
            first, length, begin = data[at], data[at + 1], at + 2
            if length >= 128:
                read = _number(data, at + 1)
                if read is None:
                    break
                length, begin = read
            end = begin + length
            if first & 0xF0 == _PUBLISH:
                if first & 6 > 2:
                    raise MalformedPacketError
                if length > max_message:
                    body_at = self._begin_to_pass(data, at, begin, length)
                    if body_at is None:
                        break
                    at = self._pass_over(data, body_at, found)
                    continue
                if end > size:
                    self._wanted = end - at
                    break
                topic_end = begin + 2 + (data[begin] << 8 | data[begin + 1])
                payload_at = topic_end + 2 if first & 6 else topic_end
                if is_v5:
                    properties = data[payload_at]
                    if properties:
                        read = _number(data, payload_at)
                        payload_at = end + 1 if read is None else sum(read)
                    else:
                        payload_at += 1
                if payload_at > end:
                    raise MalformedPacketError
                if end - payload_at > max_payload:
                    found.oversized.append((data[begin + 2 : topic_end], length))
                else:
                    messages((data[begin + 2 : topic_end], data[payload_at:end]))
                    flags(TOLD | first & 7)
                    if not first & 6:
                        found.unsafe += 1
                    elif first & 8:
                        found.repeated += 1
                if first & 6:
                    numbers(data[topic_end : topic_end + 2])
            else:
                if first not in _ANSWERS or length > _MAX_ANSWER_BYTES:
                    raise MalformedPacketError
                if end > size:
                    self._wanted = end - at
                    break
                packet = self._other(first, data[begin:end])
                found.packets += [] if packet is None else [packet]
            at = end
        return at

    def _begin_to_pass(self, data: bytes, at: int, begin: int, length: int) -> int | None:
        """Read topic and number of a message that is too large, and return where they end; None if they are cut."""
        topic_at = topic_end = number_end = begin + 2
        if len(data) >= topic_at:
            topic_end = topic_at + (data[begin] << 8 | data[begin + 1])
            number_end = topic_end + 2 if data[at] & 6 else topic_end
        if len(data) < number_end:
            self._wanted = number_end - at
            return None
        self._passing = begin + length - number_end
        self._passed = data[topic_at:topic_end], length, data[topic_end:number_end]
        return number_end

    def _pass_over(self, data: bytes, at: int, found: Taken) -> int:
        """Pass over what is there of a message that is too large, and return where it ends. It counts at its end."""
        passed = min(len(data) - at, self._passing)
        self._passing -= passed
        if not self._passing:
            topic, size, number = self._passed
            found.oversized.append((topic, size))
            found.acks += [number] if number else []
        return at + passed

    def _other(self, first: int, body: bytes) -> Packet | None:
        is_v5 = self._version == V5
        if first == _PINGRESP:
            return None
        if first == _CONNACK:
            facts = _properties(body[2:])[0] if is_v5 and len(body) > 2 else {}
            return Connected(
                body[1],
                body[0] & 1 != 0,
                facts.get(_SERVER_KEEP_ALIVE),
                facts.get(_MAXIMUM_QOS, 2),
                facts.get(_SESSION_EXPIRY),
            )
        if first == _SUBACK:
            return Subscribed(body[2 + (_properties(body[2:])[1] if is_v5 else 0)])
        return Disconnected(body[0] if body else 0)


def _number(data: bytes, at: int) -> tuple[int, int] | None:
    """Return the number of one to four bytes at a place, and where it ends; None where it is cut off."""
    value = 0
    for shift in range(0, 28, 7):
        if at >= len(data):
            return None
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise MalformedPacketError


def _properties(data: bytes) -> tuple[dict[int, int], int]:
    """Return the properties of version 5 that are numbers, and where all of them end."""
    length, at = _number(data, 0) or (0, len(data) + 1)
    end = at + length
    if end > len(data):
        raise MalformedPacketError
    found: dict[int, int] = {}
    while at < end:
        kind = data[at]
        at += 1
        if kind in _TEXTS:
            at += 2 + _short.unpack_from(data, at)[0]
        elif kind == _PAIR:
            at += 2 + _short.unpack_from(data, at)[0]
            at += 2 + _short.unpack_from(data, at)[0]
        elif kind == _SUBSCRIPTION_NUMBER:
            at = (_number(data, at) or (0, end + 1))[1]
        else:
            size = _FIXED[kind]
            found[kind] = int.from_bytes(data[at : at + size], "big")
            at += size
    if at > end:
        raise MalformedPacketError
    return found, end


def _text(text: str) -> bytes:
    data = text.encode()
    return _short.pack(len(data)) + data


def _length(size: int) -> bytes:
    parts = bytearray()
    while True:
        size, byte = divmod(size, 128)
        parts.append(byte | (128 if size else 0))
        if not size:
            return bytes(parts)
