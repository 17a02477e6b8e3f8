"""The connection to an MQTT broker: messages are acknowledged once they are in the spool."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.address import Address, Secrets, StoppedError
from streamjoin_ds.spool.mqtt_packets import (
    DISCONNECT,
    PING,
    V5,
    V311,
    Connected,
    Disconnected,
    Login,
    MalformedPacketError,
    Packet,
    Packets,
    Subscribed,
    Taken,
    acks,
    connect,
    subscribe,
)

__all__ = ["MqttClient", "client_name"]

_log = logging.getLogger(__name__)

_RECEIVE_BYTES = 1 << 20  # bytes that are taken at a time: one group of messages, and one sync
_TICK_S = 0.2  # the longest wait for messages before the caller is asked whether to stop
_ANSWER_S = 20.0  # the longest wait for an answer of the broker
_GOODBYE_S = 2.0  # the longest wait for the broker to end the connection
_KEEP_ALIVE_S = 60
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0  # between two attempts to connect again

_WRONG_VERSION = {1, 0x84}
_WRONG_USER = {4, 5, 0x86, 0x87}
_WRONG_NAME = {2, 0x85}
_TAKEN_OVER = 0x8E
_ENDED_BY_ADMINISTRATOR = 0x98
_NOT_ALLOWED = 0x87

# Brokers drop what is published to a session whose queue is full, and tell neither side.
_QUEUES = (
    "the broker keeps only so many messages for this intake while it is away or behind, and drops the others: raise "
    "max_queued_messages of Mosquitto (1000 by default), mqtt.max_mqueue_len of EMQX, "
    "mqtt.queued-messages.max-queue-size of HiveMQ, or what your broker calls it"
)

# Takes a group of messages, and returns when they are on the device.
Keep = Callable[[Taken], None]


def client_name(folder_id: str, topic: str) -> str:
    """Return the name of the broker's session for a folder and a topic filter: 23 letters and digits (MQTT 3.1.1)."""
    return "sj" + hashlib.sha256(f"{folder_id}/{topic}".encode()).hexdigest()[:21]


class MqttClient:
    """Takes messages of one topic filter in a session that the broker keeps while nobody is connected.

    Parameters
    ----------
    address : Address
        Broker and topic filter.
    secrets : Secrets
        User, password and certificates.
    client : str
        The session's name. It must be the same at each start, and no other client's.
    keep : callable
        Called with each group of messages. They are acknowledged when it returns.
    tick : callable
        Called at least twice a second while nothing comes; returns whether to go on.
    """

    def __init__(self, address: Address, secrets: Secrets, client: str, keep: Keep, tick: Callable[[], bool]) -> None:
        self._address, self._secrets, self._client = address, secrets, client
        self._keep, self._tick = keep, tick
        self._version = V5
        self._packets = Packets(V5)
        self._answers: deque[Packet] = deque()  # packets that came together with an earlier answer
        self._keep_alive_s = _KEEP_ALIVE_S
        self._is_broker = False  # whether what is at the address has answered as a broker does
        self._away_since_s: float | None = None
        self.connects = 0

    def run(self) -> None:
        """Take messages until `tick` returns False. A connection that breaks off is made again.

        So is one in which something is malformed; messages before that are kept.

        Raises
        ------
        IntakeError
            The broker refuses user, session or topic; or it cannot be reached at the start.
        """
        pause_s = _FIRST_PAUSE_S
        while self._tick():
            began_s = time.monotonic()
            try:
                with self._connected() as connection:
                    self._receive(connection)
                    return
            except StoppedError:
                return
            except OSError as error:
                is_known = self._is_broker if isinstance(error, MalformedPacketError) else self.connects
                if not is_known:
                    raise self._unreachable(error) from None
                if self._away_since_s is None:  # said once, and not at each try
                    self._away_since_s = time.monotonic()
                    _log.warning("the connection to the broker broke off: %s", error.strerror or type(error).__name__)
            pause_s = _FIRST_PAUSE_S if time.monotonic() - began_s > _LONGEST_PAUSE_S else pause_s
            until_s = time.monotonic() + pause_s
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            while time.monotonic() < until_s and self._tick():
                time.sleep(_TICK_S)

    def _connected(self) -> socket.socket:
        """Return a connection that is subscribed."""
        connection = self._opened()
        try:
            login = Login(self._client, self._secrets.user, self._secrets.password)
            connection.sendall(connect(login, self._version, keep_alive_s=_KEEP_ALIVE_S))
            self._packets = Packets(self._version)
            self._answers.clear()
            answer = self._answer(connection, Connected)
            assert isinstance(answer, Connected)
            if answer.reason in _WRONG_VERSION and self._version == V5:
                _log.info("the broker does not speak MQTT 5: 3.1.1 is used")
                connection.close()
                self._version = V311
                return self._connected()
            self._check(answer)
            self._is_broker = True
            self._keep_alive_s = answer.keep_alive_s or _KEEP_ALIVE_S
            connection.sendall(subscribe(self._address.topic, self._version))
            granted = self._answer(connection, Subscribed)
            assert isinstance(granted, Subscribed)
            if granted.reason != 1:
                refused = "refuses the topic" if granted.reason >= 128 else "grants only QoS 0 for the topic"
                msg = f"the broker {refused} (reason {granted.reason})"
                raise IntakeError(msg, name="topic", hint="check the topic, and what the broker lets this user read")
            if not self.connects:
                _log.warning(_QUEUES)
            self.connects += 1
            if self._away_since_s is not None:
                _log.warning("the broker is back, after %.0f s", time.monotonic() - self._away_since_s)
                self._away_since_s = None
            _log.info("connected to the broker; the session was %s", "there" if answer.has_session else "begun")
            return connection
        except BaseException:
            connection.close()
            raise

    def _opened(self) -> socket.socket:
        address, secrets = self._address, self._secrets
        plain = socket.create_connection((address.host, address.port), timeout=_ANSWER_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.has_tls:
            return plain
        try:
            context = ssl.create_default_context(cafile=secrets.ca_file)
            if secrets.certificate_file is not None:
                context.load_cert_chain(secrets.certificate_file, secrets.key_file)
            return context.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLCertVerificationError:
            plain.close()
            msg = "the broker's certificate is not trusted, or is another host's"
            raise IntakeError(msg, name="ca_file", hint="give the certificates to trust as ca_file") from None
        except (ssl.SSLError, OSError) as error:
            plain.close()
            if self.connects or isinstance(error, (ConnectionError, TimeoutError)):
                raise
            msg = "TLS with the broker fails, or a file of a certificate cannot be read"
            hint = "check the port, ca_file, certificate_file and key_file"
            raise IntakeError(msg, name="address", hint=hint) from None

    def _answer(self, connection: socket.socket, kind: type) -> object:
        """Return the broker's next answer of a kind. Messages that come before it are kept and acknowledged."""
        until_s = time.monotonic() + _ANSWER_S
        while time.monotonic() < until_s:
            while self._answers:
                packet = self._answers.popleft()
                if isinstance(packet, kind):
                    return packet
            self._check_packets()
            if not self._tick():
                self._say_goodbye(connection)
                raise StoppedError
            data = self._received(connection)
            if data:
                taken = self._packets.take(data)
                self._answers += taken.packets
                self._take(connection, taken)
                until_s = time.monotonic() + _ANSWER_S  # large messages may come before it
            elif data is not None:
                break
        msg = "the broker closed the connection without an answer"
        raise ConnectionAbortedError(0, msg)

    def _check(self, answer: Connected) -> None:
        if answer.reason in _WRONG_USER:
            msg = f"the broker refuses the user (reason {answer.reason})"
            hint = "check user and password: in the environment, or in the file of --secrets"
            raise IntakeError(msg, name="user", hint=hint)
        if answer.reason in _WRONG_NAME:
            msg = f"the broker refuses the session's name {self._client} (reason {answer.reason})"
            raise IntakeError(msg, name="client", hint="allow it in the broker's settings")
        if answer.reason:
            msg = f"refused by the broker, reason {answer.reason}"
            raise ConnectionRefusedError(0, msg)
        if answer.maximum_qos < 1:
            msg = "the broker allows QoS 0 only, at which messages are lost"
            raise IntakeError(msg, name="address", hint="allow QoS 1 in the broker's settings")
        if answer.session_expiry_s is not None:
            _log.warning("the broker forgets what waits for this intake after %d s", answer.session_expiry_s)

    def _receive(self, connection: socket.socket) -> None:
        heard_s = said_s = time.monotonic()
        while self._tick():
            self._check_packets()
            data = self._received(connection)
            now_s = time.monotonic()
            if data is None:
                if now_s - heard_s > 1.5 * self._keep_alive_s:
                    msg = "the broker is silent"
                    raise TimeoutError(0, msg)
            elif not data:
                msg = "the broker closed the connection"
                raise ConnectionResetError(0, msg)
            else:
                heard_s = now_s
                taken = self._packets.take(data)
                if self._take(connection, taken):
                    said_s = now_s
            if now_s - said_s > self._keep_alive_s / 2:
                self._send(connection, PING)
                said_s = now_s
        self._say_goodbye(connection)

    def _say_goodbye(self, connection: socket.socket) -> None:
        """End the connection so that the broker reads every acknowledgement.

        To close a connection with messages that were not read resets it, and the broker then drops what it has not
        read itself. Messages that still come are not acknowledged: they come again.
        """
        self._send(connection, DISCONNECT)
        until_s = time.monotonic() + _GOODBYE_S
        with contextlib.suppress(OSError):
            if not isinstance(connection, ssl.SSLSocket):
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(_GOODBYE_S)
            while connection.recv(_RECEIVE_BYTES) and time.monotonic() < until_s:
                pass

    def _take(self, connection: socket.socket, taken: Taken) -> bool:
        """Keep a group of messages, then acknowledge them. Return whether anything was sent."""
        if taken.messages or taken.oversized:
            self._keep(taken)
            if taken.acks:
                self._send(connection, acks(taken.acks))
        for packet in taken.packets:
            if isinstance(packet, Disconnected):
                self._ended(packet.reason)
        return bool(taken.acks)

    def _check_packets(self) -> None:
        if self._packets.error is not None:
            raise self._packets.error

    def _ended(self, reason: int) -> None:
        if reason == _TAKEN_OVER:
            msg = "another client has taken over this intake's session"
            raise IntakeError(msg, name="client", hint="is a copy of the folder taken in elsewhere? Use a new folder")
        if reason in (_NOT_ALLOWED, _ENDED_BY_ADMINISTRATOR):
            msg = f"the broker ends the session (reason {reason})"
            raise IntakeError(msg, name="user", hint="check what the broker lets this user do")
        msg = f"the broker ended the connection, reason {reason}"
        raise ConnectionResetError(0, msg)

    def _received(self, connection: socket.socket) -> bytes | None:
        """Return what has come: one group. None where nothing came for a while, empty at the connection's end."""
        connection.settimeout(_TICK_S)
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except (TimeoutError, ssl.SSLWantReadError):
            return None
        if isinstance(connection, ssl.SSLSocket):  # one record of TLS at a time
            parts = [data]
            while connection.pending() and len(parts) < 64:
                parts.append(connection.recv(connection.pending()))
            return b"".join(parts)
        return data

    def _send(self, connection: socket.socket, data: bytes) -> None:
        connection.settimeout(_ANSWER_S)
        connection.sendall(data)

    def _unreachable(self, error: OSError) -> IntakeError:
        if isinstance(error, MalformedPacketError):
            msg = "what answers at the broker's address does not speak MQTT 5 or 3.1.1"
            return IntakeError(msg, name="address", hint="check host and port; a port with TLS needs mqtts://")
        where = f"{self._address.host}:{self._address.port}"
        msg = f"the broker at {where} cannot be reached: {error.strerror or type(error).__name__}"
        return IntakeError(msg, name="address", hint="check host and port, and that the broker runs")
