"""The address of what is taken in, and the secrets that go with it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.kafka.settings import ON_DATA_LOSS, is_topic_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["SECRET_NAMES", "Address", "Secrets", "StoppedError", "secrets_of"]

_PORTS = {"mqtt": 1883, "mqtts": 8883, "http": 80, "https": 443, "kafka": 9092}
_KAFKA_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_KAFKA_PARAMETERS = ("settings", "settings_env", "start", "on_data_loss")
_KAFKA_EXAMPLE = "for example kafka://broker:9092,broker2:9092/topic?settings=FILE"
STARTS = ("earliest", "latest")
_SCHEMES = ", ".join(f"{scheme}://" for scheme in _PORTS)
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://(?:([^/@]*)@)?(\[[^\]/]*\]|[^:/@]*)(?::([^/]*))?(?:/(.*))?", re.DOTALL)

# Names in the file of secrets; in the environment they stand in capitals after this prefix.
SECRET_NAMES = ("user", "password", "token", "ca_file", "certificate_file", "key_file")
_PREFIX = "STREAMJOIN_INTAKE_"


class StoppedError(Exception):
    """The caller wants to stop, and what is at the address has not answered yet."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where messages come from.

    Parameters
    ----------
    scheme : {"mqtt", "mqtts", "http", "https", "kafka"}
        How they come; the ones with an s use TLS. Kafka's settings say whether it does.
    host, port : str, int
        The broker's, or what the server listens at. Of several brokers of Kafka the first one's.
    topic : str
        The topic filter of MQTT, the path of HTTP with its slash, or the topic of Kafka.
    servers : str
        ``host:port`` of Kafka's brokers, separated by commas; empty for others.
    parameters : mapping of str to str
        What follows ``?`` in an address of Kafka: "settings", "settings_env", "start", "on_data_loss".
    """

    scheme: str
    host: str
    port: int
    topic: str
    servers: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What the source is: "mqtt", "http" or "kafka"."""
        return self.scheme if self.scheme == "kafka" else "mqtt" if self.is_mqtt else "http"

    @property
    def is_mqtt(self) -> bool:
        """Whether the source is a broker; else messages are posted."""
        return self.scheme.startswith("mqtt")

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("mqtts", "https")

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in ``mqtt://HOST:PORT/TOPIC/FILTER``, ``http://HOST:PORT/PATH`` or ``kafka://.../TOPIC``.

        What follows the slash is MQTT's topic filter as it stands: ``+``, ``#`` and ``?`` mean nothing else, nothing
        is decoded. An address of Kafka is ``kafka://HOST:PORT,HOST:PORT/TOPIC?name=value``.

        Raises
        ------
        ArgumentError
            The text is no such address, or holds a user: secrets do not belong on a command line.
        """
        if text.startswith("kafka://"):
            return _kafka_address(text.removeprefix("kafka://"))
        read = _ADDRESS.fullmatch(text)
        if read is None:
            msg = "the address cannot be read"
            raise ArgumentError(msg, name="address", hint="for example mqtt://broker:1883/site/+/readings")
        scheme, user, host, port, topic = read.groups()
        if scheme not in _PORTS:
            msg = "the address has a scheme that is not known"
            raise ArgumentError(msg, name="address", hint=f"one of {_SCHEMES}")
        if user is not None:
            msg = "the address holds a user or password"
            hint = f"leave them out, and set {_PREFIX}USER and {_PREFIX}PASSWORD, or name a file by --secrets"
            raise ArgumentError(msg, name="address", hint=hint)
        number = _PORTS[scheme] if port is None else int(port) if re.fullmatch("[0-9]{1,5}", port) else -1
        if not host or not (0 < number < 65536 or (number == 0 and scheme in ("http", "https"))):
            msg = "the address lacks its host, or its port is none"
            example = _PORTS[scheme] + (8000 if scheme.startswith("http") else 0)  # at 80 and 443 only root may listen
            raise ArgumentError(msg, name="address", hint=f"for example {scheme}://127.0.0.1:{example}/topic")
        if scheme.startswith("mqtt"):
            _check_filter(topic or "")
        else:
            topic = f"/{topic or ''}"
        return cls(scheme, host.strip("[]"), number, topic or "")


def _kafka_address(text: str) -> Address:
    place, _, query = text.partition("?")
    brokers, _, topic = place.partition("/")
    if "@" in brokers:
        msg = "the address holds a user or password"
        raise ArgumentError(msg, name="address", hint="name a file of librdkafka's settings in it: ?settings=FILE")
    servers = []
    for broker in brokers.split(","):
        read = _KAFKA_SERVER.fullmatch(broker)
        port = int(read[2] or _PORTS["kafka"]) if read else 0
        if read is None or not 0 < port < 65536:
            msg = "the address does not name its brokers as host:port"
            raise ArgumentError(msg, name="address", hint=_KAFKA_EXAMPLE)
        servers.append((read[1], port))
    if not is_topic_name(topic):
        msg = "the address does not name one topic of Kafka"
        raise ArgumentError(msg, name="topic", hint=f"letters, digits, points, underscores, dashes; {_KAFKA_EXAMPLE}")
    said = ",".join(f"{host}:{port}" for host, port in servers)
    return Address("kafka", servers[0][0].strip("[]"), servers[0][1], topic, said, _kafka_parameters(query))


def _kafka_parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name not in _KAFKA_PARAMETERS or name in found or not value:
            msg = "the address has a parameter that is not known, said twice, or empty"
            hint = f"the parameters are {', '.join(_KAFKA_PARAMETERS)}; librdkafka's settings belong into settings=FILE"
            raise ArgumentError(msg, name=name if name in _KAFKA_PARAMETERS else "address", hint=hint)
        found[name] = unquote(value)
    for name, valid in (("start", STARTS), ("on_data_loss", ON_DATA_LOSS)):
        if found.get(name, valid[0]) not in valid:
            msg = f"{name} of the address is unknown"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(valid)}")
    return found


def _check_filter(topic: str) -> None:
    levels = topic.split("/")
    is_wrong = any(("#" in level and level != "#") or ("+" in level and level != "+") for level in levels)
    if not topic or is_wrong or "#" in levels[:-1] or "\0" in topic or len(topic.encode()) > 65_535:
        msg = "the address has no topic, or one that MQTT does not allow"
        raise ArgumentError(msg, name="topic", hint="for example site/+/readings, or site/#; # stands at the end only")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What proves who this is, and who may post. No text of this object shows it.

    Parameters
    ----------
    user, password : str or None
        What the broker asks for; of Kafka as a login by SASL, over TLS unless its settings say otherwise.
    token : str or None
        What each POST must send: ``Authorization: Bearer TOKEN``.
    ca_file : str or None
        Certificates that are trusted; by default the machine's.
    certificate_file, key_file : str or None
        This side's certificate and its key: a server's, or a client's where the broker asks for one.
    """

    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = field(default=None, repr=False)
    certificate_file: str | None = field(default=None, repr=False)
    key_file: str | None = field(default=None, repr=False)


def secrets_of(file: Path | None, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Return the secrets of a TOML file, and of the environment where the file does not say them.

    Raises
    ------
    ArgumentError
        The file cannot be read, holds another name, or a value that is no text.
    """
    facts: dict[str, object] = {}
    if file is not None:
        try:
            facts = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):  # their messages may show what is in it
            msg = "the file of secrets cannot be read as TOML"
            raise ArgumentError(msg, name="--secrets", hint=f"lines such as user = '...'; {_names()}") from None
    for name, value in facts.items():
        if name not in SECRET_NAMES or not isinstance(value, str):
            msg = "the file of secrets holds a name that is not known, or a value that is no text"
            raise ArgumentError(msg, name="--secrets", hint=_names())
    found = {name: facts.get(name, environment.get(_PREFIX + name.upper())) for name in SECRET_NAMES}
    return Secrets(**{name: str(value) for name, value in found.items() if value is not None})


def _names() -> str:
    return f"the names are {', '.join(SECRET_NAMES)}"
