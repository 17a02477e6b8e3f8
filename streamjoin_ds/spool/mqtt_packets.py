"""MQTT's packets, versions 5 and 3.1.1, as far as a subscriber at QoS 1 needs them; no connection.

A read from a connection holds many packets, and one write answers them all. paho-mqtt reads each packet by three system
calls and answers by one, which is 19 000 messages per CPU second: too few.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from streamjoin_ds.errors import IntakeError

__all__ = [
    "DISCONNECT",
    "PING",
    "V5",
    "V311",
    "Connected",
    "Disconnected",
    "Login",
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
_MAX_PACKET_BYTES = 268_435_455 + 5
# Sizes of the properties of version 5 whose size is fixed. Those of type text or pair begin with their size.
_FIXED = {1: 1, 2: 4, 17: 4, 19: 2, 23: 1, 24: 4, 25: 1, 33: 2, 34: 2, 35: 2, 36: 1, 37: 1, 39: 4, 40: 1, 41: 1, 42: 1}
_TEXTS = {3, 8, 9, 18, 21, 22, 26, 28, 31}
_SESSION_EXPIRY, _SERVER_KEEP_ALIVE, _RECEIVE_MAXIMUM, _MAXIMUM_QOS, _PAIR, _MAXIMUM_PACKET = 17, 19, 33, 36, 38, 39
_SUBSCRIPTION_NUMBER = 11
_short = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Login:
    """Who connects: the session's name, and user and password, which no text of this object shows."""

    client: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker's answer to `connect`: 0 is yes, else the reason's number in the version's own table."""

    reason: int
    has_session: bool
    keep_alive_s: int | None = None
    maximum_qos: int = 2
    session_expiry_s: int | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The broker's answer to `subscribe`: the QoS that it grants, or a reason from 128 on."""

    reason: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The broker says that it ends the connection, and why (version 5)."""

    reason: int


Packet = Connected | Subscribed | Disconnected


@dataclass(slots=True)
class Taken:
    """What some bytes of a connection hold.

    Attributes
    ----------
    messages : list of (topic, payload)
        The messages, in their order.
    acks : list of bytes
        For each message at QoS 1 the two bytes of its packet's number.
    repeated : int
        How many of the messages the broker calls sent again.
    packets : list
        The other packets.
    """

    messages: list[tuple[bytes, bytes]] = field(default_factory=list)
    acks: list[bytes] = field(default_factory=list)
    repeated: int = 0
    packets: list[Packet] = field(default_factory=list)


def connect(login: Login, version: int, *, keep_alive_s: int, in_flight: int = 65_535, maximum_bytes: int = 0) -> bytes:
    """Return the packet that begins a connection in a session that stays when the connection ends.

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
    maximum_bytes : int, keyword-only
        Size of a packet, at most (version 5); 0 is no limit.
    """
    flags = (0x80 if login.user is not None else 0) | (0x40 if login.password is not None else 0)
    variable = _text("MQTT") + bytes([version, flags]) + _short.pack(keep_alive_s)
    if version == V5:
        properties = struct.pack(">BIBH", _SESSION_EXPIRY, 0xFFFFFFFF, _RECEIVE_MAXIMUM, in_flight)
        properties += struct.pack(">BI", _MAXIMUM_PACKET, maximum_bytes) if maximum_bytes else b""
        variable += _length(len(properties)) + properties
    variable += _text(login.client)
    variable += b"".join(_text(each) for each in (login.user, login.password) if each is not None)
    return b"\x10" + _length(len(variable)) + variable


def subscribe(topic: str, version: int) -> bytes:
    """Return the packet that subscribes to a topic filter at QoS 1.

    Retained messages come where the session has no such subscription yet (version 5), or each time (version 3.1.1).
    """
    options = 0x11 if version == V5 else 0x01
    variable = b"\0\x01" + (b"\0" if version == V5 else b"") + _text(topic) + bytes([options])
    return b"\x82" + _length(len(variable)) + variable


def acks(numbers: list[bytes]) -> bytes:
    """Return the packets that acknowledge messages, by `Taken.acks`."""
    return b"".join([b"@\x02" + number for number in numbers])


class Packets:
    """Takes bytes as a connection gives them, and returns the packets that they complete.

    Parameters
    ----------
    version : {5, 4}
        The version that was asked for in `connect`.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._rest = b""

    def take(self, data: bytes) -> Taken:
        """Return the messages and packets that are complete now.

        Raises
        ------
        IntakeError
            The bytes are not MQTT of this version.
        """
        try:
            return self._take(self._rest + data if self._rest else data)
        except (IndexError, struct.error, KeyError):
            raise _not_mqtt() from None

    def _take(self, data: bytes) -> Taken:
        found = Taken()
        messages, numbers = found.messages.append, found.acks.append
        at, size, is_v5 = 0, len(data), self._version == V5
        while at + 2 <= size:
            first, length, begin = data[at], data[at + 1], at + 2
            if length >= 128:
                read = _number(data, at + 1)
                if read is None:
                    break
                length, begin = read
            end = begin + length
            if end > size:
                break
            if first & 0xF0 == _PUBLISH:
                topic_end = begin + 2 + (data[begin] << 8 | data[begin + 1])
                payload_at = topic_end + 2 if first & 6 else topic_end
                if is_v5:
                    properties = data[payload_at]
                    if properties:
                        read = _number(data, payload_at)
                        payload_at = end + 1 if read is None else sum(read)
                    else:
                        payload_at += 1
                if payload_at > end or first & 6 > 2:
                    raise _not_mqtt()
                messages((data[begin + 2 : topic_end], data[payload_at:end]))
                if first & 6:
                    numbers(data[topic_end : topic_end + 2])
                    found.repeated += first >> 3 & 1
            else:
                packet = self._other(first, data[begin:end])
                found.packets += [] if packet is None else [packet]
            at = end
        self._rest = data[at:]
        return found

    def _other(self, first: int, body: bytes) -> Packet | None:
        if first == _PINGRESP:
            return None
        if first == _CONNACK:
            facts = _properties(body[2:]) if self._version == V5 and len(body) > 2 else {}
            return Connected(
                body[1],
                body[0] & 1 != 0,
                facts.get(_SERVER_KEEP_ALIVE),
                facts.get(_MAXIMUM_QOS, 2),
                facts.get(_SESSION_EXPIRY),
            )
        if first == _SUBACK:
            return Subscribed(body[-1])
        if first == _DISCONNECT:
            return Disconnected(body[0] if body else 0)
        raise _not_mqtt()


def _not_mqtt() -> IntakeError:
    msg = "what answers at the broker's address does not speak MQTT 5 or 3.1.1"
    return IntakeError(msg, name="address", hint="check host and port; a port with TLS needs mqtts://")


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
    raise _not_mqtt()


def _properties(data: bytes) -> dict[int, int]:
    """Return the properties of version 5 that are numbers."""
    read = _number(data, 0)
    assert read is not None
    length, at = read
    end, found = at + length, {}
    while at < end:
        kind = data[at]
        at += 1
        if kind in _TEXTS:
            at += 2 + _short.unpack_from(data, at)[0]
        elif kind == _PAIR:
            at += 2 + _short.unpack_from(data, at)[0]
            at += 2 + _short.unpack_from(data, at)[0]
        elif kind == _SUBSCRIPTION_NUMBER:
            at = (_number(data, at) or (0, end))[1]
        else:
            size = _FIXED[kind]
            found[kind] = int.from_bytes(data[at : at + size], "big")
            at += size
    return found


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
