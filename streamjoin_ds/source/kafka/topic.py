"""A topic: what its partitions hold, and their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType

import pyarrow as pa

from streamjoin_ds.kafka.settings import Settings
from streamjoin_ds.source.kafka.broker import Broker, TopicFacts, check_same
from streamjoin_ds.source.kafka.message_sources import NativeSource, native_messages
from streamjoin_ds.source.kafka.python_source import PythonSource
from streamjoin_ds.source.kafka.range_read import MessageSource, RangeRead, RangeReader
from streamjoin_ds.source.kafka.registry import SchemaRegistry
from streamjoin_ds.source.kafka.url import KafkaUrl

__all__ = ["KafkaTopic"]

# Markers of transactions are the last offsets of some partitions, so more than one is read.
_NEWEST_OFFSETS = 32
_NEWEST_LOOKS, _NEWEST_WAIT_SECONDS = 5, 0.1


class KafkaTopic:
    """One topic, as its URL says. It connects when it is first asked, and keeps a consumer for each partition read.

    Parameters
    ----------
    url : KafkaUrl
    source : callable, optional
        What makes the source of a partition's messages from ``(servers, settings, topic, partition, headers)``. By
        default `NativeSource`, or `PythonSource` where the package was not compiled.
    """

    def __init__(self, url: KafkaUrl, source: Callable[..., MessageSource] | None = None) -> None:
        self.url = url
        self._source = source
        self._settings: Settings | None = None
        self._broker: Broker | None = None
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
        """Return where a new stream begins in each partition, as the URL says."""
        partitions = tuple(partitions)
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
