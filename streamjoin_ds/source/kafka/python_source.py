"""Messages by confluent_kafka's own consumer, an object each: the readable twin of `native_source`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.kafka.client import ClientErrors, confluent, made
from streamjoin_ds.kafka.settings import Settings
from streamjoin_ds.source.kafka.messages import TIMESTAMP_TYPES, message_schema
from streamjoin_ds.source.kafka.range_read import Fetched

__all__ = ["PythonSource"]


class PythonSource:
    """One partition, read by `confluent_kafka.Consumer`; see `MessageSource`.

    Parameters
    ----------
    servers, settings, topic, partition
        Where to read.
    headers : sequence of str
        Names of the headers to read.
    batch_messages : int
        Messages of one look, at most. librdkafka holds them in memory anyway.
    """

    def __init__(
        self,
        servers: str,
        settings: Settings,
        topic: str,
        partition: int,
        headers: Sequence[str] = (),
        batch_messages: int = 10_000,
    ) -> None:
        self._kafka = confluent()
        self._errors = ClientErrors()
        self._consumer = made(self._kafka.Consumer, settings.of_consumer(servers), self._errors)
        self._topic, self._partition = topic, partition
        self._headers = tuple(headers)
        self._schema = message_schema(headers)
        self._batch_messages = batch_messages
        self._ahead: deque[Any] = deque()  # fetched, not handed over

    def seek(self, offset: int, epoch: int = -1) -> None:
        """See `MessageSource.seek`."""
        self._ahead.clear()
        of_epoch = {"leader_epoch": epoch} if epoch >= 0 else {}
        self._consumer.assign([self._kafka.TopicPartition(self._topic, self._partition, offset, **of_epoch)])

    def fetch(self, end: int, wait_seconds: float) -> Fetched:
        """See `MessageSource.fetch`."""
        if not self._ahead:
            first = self._consumer.poll(wait_seconds)
            if first is not None:
                self._ahead.append(first)
                self._ahead.extend(self._consumer.consume(self._batch_messages - 1, timeout=0))
        taken: list[Any] = []
        while self._ahead:
            message = self._ahead[0]
            if message.error() is not None:
                # What came before the error is handed over first.
                if not taken:
                    self._ahead.popleft()
                    return Fetched(None, self._eof(message), str(message.error().name()))
                break
            if message.offset() >= end or (taken and _epoch(message) != _epoch(taken[0])):
                break
            taken.append(self._ahead.popleft())
        epoch = _epoch(taken[0]) if taken else -1
        return Fetched(self._batch(taken) if taken else None, self._position(taken), self._refused(), epoch)

    def close(self) -> None:
        """See `MessageSource.close`."""
        self._ahead.clear()
        self._consumer.close()

    def _eof(self, message: Any) -> int:
        return int(message.offset()) if message.error().name() == "_PARTITION_EOF" else -1

    def _position(self, taken: list[Any]) -> int:
        if self._ahead:
            head = self._ahead[0]
            if head.error() is None:
                return int(head.offset())
            return int(taken[-1].offset()) + 1 if taken else -1
        place = self._consumer.position([self._kafka.TopicPartition(self._topic, self._partition)])[0]
        return int(place.offset)

    def _refused(self) -> str:
        return self._errors.cause("") if self._errors.is_refused else ""

    def _batch(self, taken: list[Any]) -> pa.RecordBatch:
        times = [message.timestamp() for message in taken]
        codes = pa.array([kind - 1 if kind else None for kind, _ in times], pa.int8())
        columns = [
            pa.array([message.offset() for message in taken], pa.int64()),
            pa.array([ms * 1000 if kind else None for kind, ms in times], pa.int64()),
            pa.DictionaryArray.from_arrays(codes, pa.array(TIMESTAMP_TYPES)),
            pa.array([message.key() for message in taken], pa.binary()),
            pa.array([message.value() for message in taken], pa.binary()),
        ]
        if self._headers:
            held = [dict(message.headers() or ()) for message in taken]  # of several of one name, the last
            columns += [pa.array([found.get(name) for found in held], pa.binary()) for name in self._headers]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)
