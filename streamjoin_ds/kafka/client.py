"""confluent_kafka, which brings librdkafka: imported where it is needed, quiet, and its errors as this package's.

librdkafka's own texts hold addresses, and of a setting that it refuses the value. So only the *names* of its errors are
used. They say which setting is wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from streamjoin_ds.errors import (
    ArgumentError,
    DependencyMissingError,
    KafkaAccessError,
    KafkaTopicError,
    KafkaUnreachableError,
    StreamJoinError,
)

__all__ = ["ALL_AWAY", "PASSING", "ClientErrors", "confluent", "made", "refusal", "refused_setting"]

_QUIET = logging.getLogger("streamjoin_ds.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False

ALL_AWAY = "_ALL_BROKERS_DOWN"  # a client hears it at once, when its last connection broke off
_LOGIN = "sasl.username, sasl.password, sasl.mechanism and security.protocol"
_TLS = "ssl.ca.location, ssl.certificate.location, ssl.key.location and security.protocol"
# Of several errors the first of these tells the cause; the others follow from it.
_CAUSES = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "_RESOLVE", "_TRANSPORT", "_ALL_BROKERS_DOWN")
_ACCESS = {
    "_AUTHENTICATION": ("sasl.password", f"correct {_LOGIN}"),
    "SASL_AUTHENTICATION_FAILED": ("sasl.password", f"correct {_LOGIN}"),
    "UNSUPPORTED_SASL_MECHANISM": ("sasl.mechanism", f"correct {_LOGIN}"),
    "_SSL": ("ssl.ca.location", f"correct {_TLS}"),
    "TOPIC_AUTHORIZATION_FAILED": ("topic", "this user needs the rights READ and DESCRIBE for the topic"),
    "GROUP_AUTHORIZATION_FAILED": ("group.id", "set group.id to a group that this user may READ; none is joined"),
    "CLUSTER_AUTHORIZATION_FAILED": ("sasl.username", "this user may not read from this cluster"),
}
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")
# While a broker starts, or partitions and groups move to another one: who asks again is answered. librdkafka finds the
# new broker by itself, and yet gives some of these to who asked first.
PASSING = frozenset(
    {
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
        "UNSTABLE_OFFSET_COMMIT",
        "_DESTROY_BROKER",
        "_TRANSPORT",
        "_WAIT_CACHE",
        "_WAIT_COORD",
    }
)
_NOT_REACHED = ("_RESOLVE", "_TRANSPORT")
# How librdkafka begins an error about a broker whose address is not of the settings: it is then told with its id.
_ADVERTISED = re.compile(r"(?:\w+://)?([^/\s]+:\d+)/\d+: ")
_SETTING = re.compile(r"configuration property[: ]*\"?([a-z][a-z0-9._]*)|\b(ssl(?:\.[a-z]+)+|sasl(?:\.[a-z]+)+)\b")


def confluent(module: str = "confluent_kafka") -> Any:
    """Return the module of the extra ``kafka``; raise `DependencyMissingError` where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        msg = "reading from Kafka needs confluent-kafka"
        raise DependencyMissingError(
            msg, name="confluent_kafka", hint="pip install 'streamjoin-ds[kafka]'; on Spark's executors too"
        ) from error


class ClientErrors:
    """The names of the errors that a client told beside its answers: no login, no connection."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.advertised: str | None = None  # the address of a broker that another one told, and that is not reached

    def __call__(self, error: Any) -> None:
        """Keep the name of an error; librdkafka calls this."""
        self.names.add(str(error.name()))
        if error.name() in _NOT_REACHED and (found := _ADVERTISED.match(str(error.str()))):
            self.advertised = found[1]

    @property
    def is_refused(self) -> bool:
        """Whether waiting longer does not help: the brokers refuse this client."""
        return any(name in _ACCESS for name in self.names)

    def cause(self, name: str = "_TIMED_OUT") -> str:
        """Return the error that explains the others; `name` where none was told."""
        refused = [told for told in self.names if told in _ACCESS]
        known = [told for told in _CAUSES if told in self.names]
        return (refused or known or [name])[0]

    def refusal(self, topic: str, name: str | None = None) -> StreamJoinError:
        """Return the error for one of librdkafka's names, by default for the cause, with the address that was told."""
        return refusal(self.cause() if name is None else name, topic, self.advertised)


def made(kind: Callable[..., Any], settings: dict[str, str], errors: ClientErrors) -> Any:
    """Return a client; raise `ArgumentError` with the name of a setting that librdkafka refuses."""
    quiet = {"log_level": "0", "error_cb": errors, "logger": _QUIET}
    try:
        return kind({**quiet, **settings})
    except Exception as error:  # KafkaException, or TypeError for a value of a wrong kind
        told = str(error)
    raise refused_setting(told)  # outside of the handler: the first error's text may hold the value


def refused_setting(text: str) -> ArgumentError:
    """Return the error for librdkafka's text about a setting. Of the text it has the setting's name alone."""
    match = _SETTING.search(text)
    name = (match[1] or match[2]) if match else ""
    msg = f"librdkafka refuses the setting {name}" if name else "librdkafka refuses the settings"
    return ArgumentError(msg, name=name or "settings", hint="its names and values: librdkafka's CONFIGURATION.md")


def refusal(name: str, topic: str, advertised: str | None = None) -> StreamJoinError:
    """Return the error for one of librdkafka's, by its name; `advertised` as of `ClientErrors`."""
    if name in _ACCESS:
        setting, hint = _ACCESS[name]
        return KafkaAccessError(f"the brokers refuse to let topic {topic} be read: {name}", name=setting, hint=hint)
    if name in _NO_TOPIC:
        hint = "correct the topic's name in the URL, or make the topic first"
        return KafkaTopicError(f"the brokers have no topic {topic}, or not the partition", name=topic, hint=hint)
    msg = f"no broker answers for topic {topic}: {name}"
    hint = (
        "correct the URL's host:port (bootstrap.servers), or start the broker; where it wants TLS or a login, "
        "set security.protocol"
    )
    if advertised is not None:
        hint = (
            f"the cluster tells {advertised} as a broker's address (its advertised.listeners), which is not reached "
            "from here: make that name known, start that broker, or have it advertise an address that is reached"
        )
    return KafkaUnreachableError(msg, name="bootstrap.servers", hint=hint)
