"""Topics in memory, in the place of `KafkaTopic`: a test says what each partition holds, keeps and loses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from streamjoin_ds.errors import KafkaDataLostError, KafkaUnreachableError
from streamjoin_ds.source.kafka import topic_feed, topic_partitions
from streamjoin_ds.source.kafka.broker import TopicFacts, check_same
from streamjoin_ds.source.kafka.message_sources import HEADER_PREFIX, message_schema
from streamjoin_ds.source.kafka.range_read import LostRange
from streamjoin_ds.source.kafka.topic import KafkaTopic, KafkaUrl

__all__ = ["FakeTopic", "Log", "Message", "fake_topics"]


@dataclass(frozen=True)
class Message:
    """A message, with its offset."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes] = field(default_factory=dict)
    time_us: int = 0
    epoch: int = 0


@dataclass
class Log:
    """A partition: its messages, its first offset and its last stable one."""

    messages: list[Message] = field(default_factory=list)
    first: int = 0
    end: int = 0
    epoch: int = 0

    def append(self, value: bytes | None, **facts: Any) -> int:
        """Append a message; return its offset."""
        self.messages.append(Message(self.end, value, epoch=self.epoch, **facts))
        self.end += 1
        return self.end - 1

    def retain(self, first: int) -> None:
        """Forget what is before an offset, as retention does."""
        self.first, self.messages = first, [m for m in self.messages if m.offset >= first]

    def cut(self, offset: int) -> None:
        """Forget what is at an offset and after it, as the leader of an unclean election does."""
        self.messages, self.end = [m for m in self.messages if m.offset < offset], offset
        self.epoch += 1

    def compact(self, *offsets: int) -> None:
        """Forget these messages, as compaction does."""
        self.messages = [m for m in self.messages if m.offset not in offsets]


class FakeTopic:
    """A `KafkaTopic` over `logs`."""

    logs: ClassVar[dict[str, list[Log]]] = {}
    ids: ClassVar[dict[str, str]] = {}
    batch: ClassVar[int] = 3
    down: ClassVar[int] = 0  # how often nobody will answer
    reads: ClassVar[list[tuple[str, int, int, int]]] = []

    told: ClassVar[list[tuple[str, dict[tuple[str, int], int]]]] = []

    def __init__(self, url: KafkaUrl, broker: FakeTopic | None = None) -> None:
        self.url, self._broker = url, broker

    @property
    def broker(self) -> FakeTopic:
        return self._broker or self

    def topics(self) -> list[str]:
        return sorted(name for name in self.logs if not name.startswith("__"))

    def tell_group(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        self.told.append((group, offsets))

    def __enter__(self) -> FakeTopic:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def registry(self) -> None:
        return None

    def facts(self, known: TopicFacts | None = None) -> TopicFacts:
        name = self.url.topic
        if self.down:
            type(self).down -= 1
            msg = "no broker answers"
            raise KafkaUnreachableError(msg, name="bootstrap.servers")
        return TopicFacts(self.ids.get(name, "id"), tuple(range(len(self.logs[name]))))

    def first_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return {number: self.logs[self.url.topic][number].first for number in partitions}

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return {number: self.logs[self.url.topic][number].end for number in partitions}

    def start_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return KafkaTopic.start_offsets(self, partitions)  # type: ignore[arg-type]

    def newest(self, partition: int, end: int) -> list[pa.RecordBatch]:
        found = [m for m in self.logs[self.url.topic][partition].messages if m.offset < end][-2:]
        return [_batch(found, self.url.headers)] if found else []

    def read(self, partition: int, begin: int, end: int, known: TopicFacts | None = None, epoch: int = -1) -> _Read:
        self.reads.append((self.url.topic, partition, begin, end))
        return _Read(self, partition, begin, end, known, epoch)


class _Read:
    """As `RangeRead`."""

    def __init__(
        self, topic: FakeTopic, partition: int, begin: int, end: int, known: TopicFacts | None, epoch: int
    ) -> None:
        self._topic, self._partition, self._begin, self._end, self._known = topic, partition, begin, end, known
        self.messages, self.epoch = 0, epoch
        self.lost: list[LostRange] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        url = self._topic.url
        log = self._topic.logs[url.topic][self._partition]
        if log.first > self._begin:
            if url.on_data_loss != "skip":
                msg = "messages are gone that were not read yet"
                raise KafkaDataLostError(msg, name=url.topic)
            self.lost.append(LostRange(self._partition, self._begin, min(log.first, self._end)))
        found = [m for m in log.messages if self._begin <= m.offset < self._end]
        for self.epoch, of_epoch in groupby(found, key=lambda message: message.epoch):
            alike = list(of_epoch)
            for first in range(0, len(alike), self._topic.batch):
                piece = alike[first : first + self._topic.batch]
                self.messages += len(piece)
                yield _batch(piece, url.headers)
        if self._known is not None:
            check_same(url.topic, self._known, self._topic.facts())


def _batch(messages: list[Message], headers: tuple[str, ...]) -> pa.RecordBatch:
    schema = message_schema(headers)
    columns: dict[str, list[Any]] = {
        "offset": [m.offset for m in messages],
        "timestamp_us": [m.time_us for m in messages],
        "timestamp_type": ["create"] * len(messages),
        "key": [m.key for m in messages],
        "value": [m.value for m in messages],
        **{HEADER_PREFIX + name: [m.headers.get(name) for m in messages] for name in headers},
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name]).cast(f.type) for f in schema], schema=schema)


def fake_topics(patch: pytest.MonkeyPatch, **partitions: int) -> type[FakeTopic]:
    """Put `FakeTopic` in the place of `KafkaTopic`, with topics of so many partitions."""
    for module in (topic_feed, topic_partitions):
        patch.setattr(module, "KafkaTopic", FakeTopic)
    topic_feed.shared_topic.cache_clear()
    patch.setattr(FakeTopic, "logs", {name: [Log() for _ in range(count)] for name, count in partitions.items()})
    patch.setattr(FakeTopic, "ids", {})
    patch.setattr(FakeTopic, "down", 0)
    patch.setattr(FakeTopic, "reads", [])
    patch.setattr(FakeTopic, "told", [])
    return FakeTopic
