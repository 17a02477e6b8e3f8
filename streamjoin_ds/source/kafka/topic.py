"""A topic: its URL, what its partitions hold, and their messages.

The URL is ``kafka://broker:9092,broker2:9092/topic?format=json&settings=FILE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import NoReturn
from urllib.parse import parse_qsl, unquote

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.kafka.settings import ON_DATA_LOSS, Settings, SettingsSource, is_topic_name
from streamjoin_ds.source.kafka.broker import Broker, TopicFacts, check_same
from streamjoin_ds.source.kafka.formats.registered_messages import SchemaRegistry
from streamjoin_ds.source.kafka.message_sources import NativeSource, PythonSource, native_messages
from streamjoin_ds.source.kafka.range_read import MessageSource, RangeRead, RangeReader
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.member.location import KAFKA_PREFIX, check_location
from streamjoin_ds.spec.nested_path import METRIC_LINES
from streamjoin_ds.spec.time_text import event_times

__all__ = ["JSON_FORMATS", "MESSAGE_FORMATS", "REGISTERED_FORMATS", "TOPIC_PARAMETERS", "KafkaTopic", "KafkaUrl"]

MESSAGE_FORMATS = ("json", "csv", "influx", "prometheus", "fixed", "raw", "avro", "protobuf")
JSON_FORMATS = ("json", *METRIC_LINES)  # those whose records are JSON objects, or are made such
REGISTERED_FORMATS = ("avro", "protobuf")  # those whose schemas a registry keeps
TOPIC_PARAMETERS = {
    "format": f"what a message's value holds: {', '.join(MESSAGE_FORMATS)} (required)",
    "settings": "a file of librdkafka's settings, logins among them",
    "settings_env": "the name of an environment variable that holds such settings",
    "start": "earliest, latest, the time of the first message, as 2026-01-01T00:00:00Z, or offsets by partition, "
    "0:120,1:95; of several topics topic/0:120 (earliest)",
    "on_data_loss": f"what happens where messages are gone that were not read yet: {', '.join(ON_DATA_LOSS)} (stop)",
    "headers": "names of headers to read, with commas between them",
    "registry": "the URL of the schema registry, for avro and protobuf; with json messages have its frame (JSON_SR)",
    "reject_schemas": "ids that the registry does not have: messages that name one are rejects",
    "group": "a consumer group that is told the positions of committed batches, for dashboards; none is read of it",
}
_EXAMPLE = "for example kafka://broker:9092/topic?format=json"
_PATTERN = "~"  # before a regular expression of topics' names
_OFFSETS = re.compile(r"(?:[A-Za-z0-9._-]+/)?[0-9]{1,7}:[0-9]{1,18}(?:,(?:[A-Za-z0-9._-]+/)?[0-9]{1,7}:[0-9]{1,18})*")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:([0-9]{1,5}))?")
_DEFAULT_PORT = 9092
# Markers of transactions are the last offsets of some partitions, so more than one is read.
_NEWEST_OFFSETS = 32
_NEWEST_LOOKS, _NEWEST_WAIT_SECONDS = 5, 0.1


@dataclass(frozen=True, slots=True)
class KafkaUrl:
    """A topic, where its brokers are, and how its messages are read.

    Parameters
    ----------
    servers : str
        ``host:port`` of one or more brokers, separated by commas.
    topic : str
        The topic's name; several with commas between them; or ``~`` and a regular expression that the whole of a name
        matches.
    format : {"json", "csv", "influx", "prometheus", "fixed", "raw", "avro", "protobuf"}
        What a message's value holds.
    settings : SettingsSource
        Where librdkafka's settings come from.
    start : str
        "earliest", "latest", the time of the first message (ISO 8601), or offsets by partition ("0:120,1:95").
    on_data_loss : {"stop", "skip"}
        What happens where offsets are gone that were not read yet.
    headers : tuple of str
        Names of the headers to read.
    registry : str
        The URL of the schema registry, for "avro" and "protobuf"; with "json" the messages have its frame.
    reject_schemas : tuple of int
        Ids that the registry does not have: messages that name one are rejects.
    group : str
        A consumer group to which the positions of committed batches are told; empty for none.
    """

    servers: str
    topic: str
    format: str
    settings: SettingsSource = field(default_factory=SettingsSource)
    start: str = "earliest"
    on_data_loss: str = "stop"
    headers: tuple[str, ...] = ()
    registry: str = ""
    reject_schemas: tuple[int, ...] = ()
    group: str = ""

    @classmethod
    def parse(cls, text: str) -> KafkaUrl:
        """Return what a URL says.

        Raises
        ------
        ArgumentError
            A part is missing, unknown or has no valid form; `name` is the part. No part is repeated in the message but
            names of parameters, since people write passwords into URLs.
        """
        if not text.startswith(KAFKA_PREFIX):
            _refuse("the URL does not begin with kafka://", "url", _EXAMPLE)
        check_location(text, "the topic")
        place, _, query = text.removeprefix(KAFKA_PREFIX).partition("?")
        brokers, _, topic = place.partition("/")
        topic = unquote(topic)
        _check_topics(topic)
        said = _parameters(query)
        kind = said.get("format", "")
        if kind not in MESSAGE_FORMATS:
            what = "does not say what messages hold" if not kind else "has an unknown format"
            hint = f"format=json, or one of {', '.join(MESSAGE_FORMATS)}; streamjoin look kafka://... finds it"
            _refuse(f"the URL of the topic {what}", "format", hint)
        loss = said.get("on_data_loss", "stop")
        if loss not in ON_DATA_LOSS:
            _refuse("on_data_loss is unknown", "on_data_loss", f"one of {', '.join(ON_DATA_LOSS)}")
        headers = tuple(name for name in said.get("headers", "").split(",") if name)
        if len(set(headers)) != len(headers):
            _refuse("a header is named twice", "headers", "name each header once: headers=trace,device")
        if kind in REGISTERED_FORMATS and "registry" not in said:
            hint = f"format={kind}&registry=http://registry:8081"
            _refuse(f"messages of the format {kind} need a schema registry", "registry", hint)
        if kind not in (*REGISTERED_FORMATS, "json") and "registry" in said:
            hint = "leave it out, or format=avro&registry=http://registry:8081"
            _refuse("registry= is for Avro, Protobuf and JSON with its frame", "registry", hint)
        if "reject_schemas" in said and "registry" not in said:
            _refuse("reject_schemas= is for messages of a registry", "reject_schemas", "leave it out")
        url = cls(
            servers=",".join(_server(part) for part in brokers.split(",")),
            topic=topic,
            format=kind,
            settings=SettingsSource(said.get("settings", ""), said.get("settings_env", "")),
            start=said.get("start", "earliest"),
            on_data_loss=loss,
            headers=headers,
            registry=said.get("registry", ""),
            reject_schemas=_schema_ids(said.get("reject_schemas", "")),
            group=said.get("group", ""),
        )
        if url.start not in ("earliest", "latest") and url.start_us is None and not url.start_at:
            hint = "earliest, latest, a time as 2026-01-01T00:00:00Z, or offsets by partition, 0:120,1:95"
            _refuse("start is no time", "start", hint)
        return url

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it names; none where it has a pattern."""
        return () if self.pattern is not None else tuple(self.topic.split(","))

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What the names of its topics match as a whole; None where it names them."""
        return re.compile(self.topic.removeprefix(_PATTERN)) if self.topic.startswith(_PATTERN) else None

    @property
    def is_one(self) -> bool:
        """Whether it is of one topic, whose partitions are called by their numbers alone."""
        return len(self.topics) == 1

    @property
    def start_at(self) -> dict[str, int]:
        """The offsets of `start`, by partition; empty where it is something else."""
        if not _OFFSETS.fullmatch(self.start):
            return {}
        pairs = (part.rpartition(":") for part in self.start.split(","))
        return {name: int(offset) for name, _, offset in pairs}

    @property
    def start_us(self) -> int | None:
        """The time of `start` in microseconds UTC; None where it is none."""
        if self.start_at:
            return None
        ts, valid = event_times(pa.array([self.start]), "us")
        return int(ts[0]) if valid[0] else None


def _parameters(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        _refuse("the parameters of the URL cannot be read", "url", "name=value&name=value")
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in TOPIC_PARAMETERS:
            # A password may stand here. A setting's name is shown, as it says what to do; its value is not.
            hint = names_hint(name, [*TOPIC_PARAMETERS], "the parameters are")
            if "." in name:
                hint += "; settings of librdkafka belong into a file or a variable: settings=FILE, settings_env=NAME"
            _refuse("the URL has an unknown parameter", name, hint)
        if name in found:
            _refuse(f"the URL says {name} twice", name, "say it once")
        if not value:
            _refuse(f"the URL says nothing after {name}=", name, "give it a value, or leave it out")
        found[name] = value
    return found


def _check_topics(text: str) -> None:
    """Refuse what names no topic; a pattern that is none, or names a topic twice."""
    if text.startswith(_PATTERN):
        try:
            re.compile(text.removeprefix(_PATTERN) or "(")
        except re.error:
            hint = "kafka://broker/~sensors-.*?format=json; a ? within it is written %3F, a slash is no part of a name"
            _refuse("the pattern of topics is no regular expression", "topic", hint)
        return
    names = text.split(",")
    if not all(map(is_topic_name, names)) or len(set(names)) < len(names):
        hint = "letters, digits, points, underscores and dashes; several: a,b,c; those that match: ~sensors-.*; "
        _refuse("the URL does not name a topic, or several that differ", "topic", f"{hint}{_EXAMPLE}")


def _schema_ids(text: str) -> tuple[int, ...]:
    ids = [part for part in text.split(",") if part]
    if not all(part.isascii() and part.isdecimal() and len(part) < 11 for part in ids):
        _refuse("reject_schemas names no ids", "reject_schemas", "ids of schemas: reject_schemas=77,1634952")
    return tuple(sorted(set(map(int, ids))))


def _server(text: str) -> str:
    match = _HOST.fullmatch(text)
    port = int(match[3] or _DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        _refuse("the URL does not name its brokers as host:port", "url", _EXAMPLE)
    return f"{match[1]}:{port}"


def _refuse(message: str, name: str, hint: str) -> NoReturn:
    # From nothing: an error of the parser would show the URL.
    raise ArgumentError(message, name=name, hint=hint) from None


class KafkaTopic:
    """One topic, as its URL says. It connects when it is first asked, and keeps a consumer for each partition read.

    Parameters
    ----------
    url : KafkaUrl
    source : callable, optional
        What makes the source of a partition's messages from ``(servers, settings, topic, partition, headers)``. By
        default `NativeSource`, or `PythonSource` where the package was not compiled.
    broker : Broker, optional
        A connection that is there.
    """

    def __init__(
        self, url: KafkaUrl, source: Callable[..., MessageSource] | None = None, broker: Broker | None = None
    ) -> None:
        self.url = url
        self._source = source
        self._settings: Settings | None = None
        self._broker = broker
        self._readers: dict[int, RangeReader] = {}

    def __enter__(self) -> KafkaTopic:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def broker(self) -> Broker:
        """The connection by which the brokers are asked."""
        if self._broker is None:
            self._broker = Broker(self.url.servers, self._read_settings())
        return self._broker

    def registry(self) -> SchemaRegistry | None:
        """Return the schema registry that the URL names; None if it names none."""
        return SchemaRegistry(self.url.registry, self._read_settings()) if self.url.registry else None

    def facts(self, known: TopicFacts | None = None) -> TopicFacts:
        """Return the topic's id and partitions; refuse a topic that is not the `known` one (`check_same`)."""
        now = self.broker.topic(self.url.topic)
        if known is not None:
            check_same(self.url.topic, known, now)
        return now

    def first_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset that each partition still holds."""
        return self.broker.first_offsets(self.url.topic, partitions)

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the last stable offset of each partition: ranges end there at most."""
        return self.broker.end_offsets(self.url.topic, partitions)

    def offsets_of_time(self, partitions: Iterable[int], time_us: int) -> dict[int, int]:
        """Return for each partition the first offset whose message is not older than a time."""
        return self.broker.offsets_of_time(self.url.topic, partitions, time_us)

    def start_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return where a new stream begins in each partition, as the URL says: where that is not said, at its first."""
        partitions = tuple(partitions)
        if said := self.url.start_at:
            own = (said.get(str(number), said.get(f"{self.url.topic}/{number}")) for number in partitions)
            at = {number: offset for number, offset in zip(partitions, own, strict=True) if offset is not None}
            return self.first_offsets(number for number in partitions if number not in at) | at
        if self.url.start_us is not None:
            return self.offsets_of_time(partitions, self.url.start_us)
        return self.end_offsets(partitions) if self.url.start == "latest" else self.first_offsets(partitions)

    def read(self, partition: int, begin: int, end: int, known: TopicFacts | None = None, epoch: int = -1) -> RangeRead:
        """Return ``[begin, end)`` of a partition: batches of messages, as they come (`RangeRead`).

        With `known`, the topic must still be that one when the last of them has come. `epoch` is the leader epoch of
        the last message before `begin`; -1 where it is not known.
        """
        if partition not in self._readers:
            self._readers[partition] = RangeReader(
                self._made(partition), self.broker, self.url.topic, partition, on_data_loss=self.url.on_data_loss
            )
        return self._readers[partition].read(begin, end, known, epoch)

    def newest(self, partition: int, end: int) -> list[pa.RecordBatch]:
        """Return some of the last messages before an offset, or none if they do not come at once: it is for people.

        They are read by a consumer of their own, so that the one that reads on keeps what it has fetched.
        """
        source = self._made(partition)
        found: list[pa.RecordBatch] = []
        try:
            source.seek(max(end - _NEWEST_OFFSETS, 0))
            for _ in range(_NEWEST_LOOKS):
                fetched = source.fetch(end, _NEWEST_WAIT_SECONDS)
                if fetched.messages is not None:
                    found.append(fetched.messages)
                if fetched.position >= end:
                    break
        finally:
            source.close()
        return found

    def _made(self, partition: int) -> MessageSource:
        source = self._source or (PythonSource if native_messages() is None else NativeSource)
        return source(self.url.servers, self._read_settings(), self.url.topic, partition, headers=self.url.headers)

    def close(self) -> None:
        """Leave the brokers; the topic may be read again."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._broker = None

    def _read_settings(self) -> Settings:
        if self._settings is None:
            self._settings = self.url.settings.read()
        return self._settings
