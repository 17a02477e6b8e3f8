"""The address of what is taken in, and the secrets that go with it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamjoin_ds.errors import ArgumentError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["SECRET_NAMES", "Address", "Secrets", "secrets_of"]

_PORTS = {"mqtt": 1883, "mqtts": 8883, "http": 80, "https": 443}
_SCHEMES = ", ".join(f"{scheme}://" for scheme in _PORTS)
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://(?:([^/@]*)@)?(\[[^\]/]*\]|[^:/@]*)(?::([^/]*))?(?:/(.*))?", re.DOTALL)

# Names in the file of secrets; in the environment they stand in capitals after this prefix.
SECRET_NAMES = ("user", "password", "token", "ca_file", "certificate_file", "key_file")
_PREFIX = "STREAMJOIN_INTAKE_"


@dataclass(frozen=True, slots=True)
class Address:
    """Where messages come from.

    Parameters
    ----------
    scheme : {"mqtt", "mqtts", "http", "https"}
        How they come; the ones with an s use TLS.
    host, port : str, int
        The broker's, or what the server listens at.
    topic : str
        The topic filter of MQTT, or the path of HTTP with its slash.
    """

    scheme: str
    host: str
    port: int
    topic: str

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
        """Return the address in ``mqtt://HOST:PORT/TOPIC/FILTER`` or ``http://HOST:PORT/PATH``.

        What follows the slash is the topic filter as it stands: ``+``, ``#`` and ``?`` mean nothing else, and nothing
        is decoded.

        Raises
        ------
        ArgumentError
            The text is no such address, or holds a user: secrets do not belong on a command line.
        """
        read = _ADDRESS.fullmatch(text)
        if read is None:
            msg = "the address cannot be read"
            raise ArgumentError(msg, name="address", hint="for example mqtt://broker:1883/site/+/readings")
        scheme, user, host, port, topic = read.groups()
        if scheme == "kafka":
            msg = "kafka:// is not taken in yet"
            raise ArgumentError(msg, name="address", hint=f"one of {_SCHEMES}")
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
            raise ArgumentError(msg, name="address", hint=f"for example {scheme}://127.0.0.1:{_PORTS[scheme]}/topic")
        if scheme.startswith("mqtt"):
            _check_filter(topic or "")
        else:
            topic = f"/{topic or ''}"
        return cls(scheme, host.strip("[]"), number, topic or "")


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
        What the broker asks for.
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
