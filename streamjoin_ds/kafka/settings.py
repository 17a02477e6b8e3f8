"""librdkafka's settings: where they come from, and which of them a reader sets itself. Their values are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from streamjoin_ds.errors import ArgumentError

__all__ = ["ON_DATA_LOSS", "OWN_SETTINGS", "REGISTRY_PREFIX", "Settings", "SettingsSource", "is_topic_name"]

ON_DATA_LOSS = ("stop", "skip")  # what an address may say of messages that are gone before they were read
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

# Settings of the schema registry stand beside librdkafka's, with this before their names.
REGISTRY_PREFIX = "schema.registry."

# What reading ranges exactly needs. A user's value would change which messages are read, so it is refused.
OWN_SETTINGS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": "false",
}
# What a user may change.
_CLIENT_DEFAULTS = {
    # librdkafka's 10 s would let a reader wait long after its broker is up again.
    "reconnect.backoff.max.ms": "1000",
}
_CONSUMER_DEFAULTS = {
    # A consumer needs a group's name even where it joins none; brokers with access lists may want another.
    "group.id": "streamjoin",
    # A reader that is slower than its brokers finds the queue full, and librdkafka then pauses for 1 s. What is in the
    # queue is fetched in vain if another worker reads the partition's next range. A message takes some 300 bytes of
    # heap beside its own: with messages of 24 bytes and a queue that only 16 MiB of them bounded, a join took 7.4 GiB
    # and read 0.41 M messages/s; with 50 000 messages 2.6 to 3.3 GiB and 0.8 M (`python -m tests.bench kafka fixed`).
    "fetch.queue.backoff.ms": "10",
    # A reader that goes to another offset waits for the fetch that is under way, 500 ms by librdkafka's own value.
    "fetch.wait.max.ms": "100",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "16384",
}
_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_FROM_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def is_topic_name(text: str) -> bool:
    """Whether a text can be the name of a topic."""
    return bool(_TOPIC.fullmatch(text)) and text not in (".", "..")


class Settings(Mapping[str, str]):
    """Settings of a client by name. A text of it, and any pickle, is without their values.

    Parameters
    ----------
    values : mapping of str to str
        librdkafka's names and values, and those of the schema registry (`REGISTRY_PREFIX`).

    Raises
    ------
    ArgumentError
        A name cannot be a setting, or the setting is the reader's own. Whether librdkafka knows it is seen when a
        client is made.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        for name in values:
            if not _NAME.fullmatch(name):
                msg = "a Kafka setting has no valid name"
                raise ArgumentError(msg, name="settings", hint="a line each: name=value, as in librdkafka's list")
            if name in OWN_SETTINGS:
                msg = f"the Kafka setting {name} cannot be set"
                raise ArgumentError(msg, name=name, hint="leave it out: exact reading needs its own value")
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Settings({len(self)} of them, not shown)"

    def __reduce__(self) -> tuple[object, ...]:
        msg = "Kafka settings are not sent anywhere"
        raise TypeError(msg)

    def of_client(self, servers: str) -> dict[str, str]:
        """Return the settings of any client of these bootstrap servers."""
        own = {name: value for name, value in self._values.items() if not name.startswith(REGISTRY_PREFIX)}
        return {**_CLIENT_DEFAULTS, **own, "bootstrap.servers": servers}

    def of_consumer(self, servers: str) -> dict[str, str]:
        """Return the settings of a consumer that reads ranges exactly."""
        return {**_CONSUMER_DEFAULTS, **self.of_client(servers), **OWN_SETTINGS}


class SettingsSource(Struct, frozen=True):
    """Where settings are read from, on each machine anew. This, and not the settings, is what plans hold.

    Parameters
    ----------
    file : str
        Path of a text with lines ``name=value``; lines that begin with ``#`` are comments. A value ``${NAME}`` is the
        environment variable NAME. Empty: no file.
    variable : str
        Name of an environment variable that holds such a text. Its settings replace those of the file. Empty: none.
    """

    file: str = ""
    variable: str = ""

    def read(self, environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings as they are now.

        Raises
        ------
        ArgumentError
            The file cannot be read, a variable is not set, or a line is no ``name=value``.
        """
        environment = os.environ if environment is None else environment
        found: dict[str, str] = {}
        if self.file:
            try:
                text = Path(self.file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                msg = f"the file of Kafka settings cannot be read: {self.file}"
                raise ArgumentError(msg, name="settings", hint="a text file on every machine that reads") from None
            found |= _pairs(text, environment, "settings")
        if self.variable:
            found |= _pairs(_variable(environment, self.variable, "settings_env"), environment, "settings_env")
        return Settings(found)


def _pairs(text: str, environment: Mapping[str, str], name: str) -> dict[str, str]:
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not _NAME.fullmatch(key):
            msg = f"line {number} of the Kafka settings is not name=value"
            raise ArgumentError(msg, name=name, hint="for example security.protocol=SASL_SSL")
        from_environment = _FROM_ENVIRONMENT.fullmatch(value)
        found[key] = _variable(environment, from_environment[1], key) if from_environment else value
    return found


def _variable(environment: Mapping[str, str], variable: str, name: str) -> str:
    if variable not in environment:
        msg = f"the environment has no variable {variable}, which {name} is to come from"
        raise ArgumentError(msg, name=name, hint=f"export {variable}, also for Spark's executors")
    return environment[variable]
