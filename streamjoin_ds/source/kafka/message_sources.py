"""Messages of one partition as Arrow columns, by two sources that are twins.

`NativeSource` reads by librdkafka's batch call from C, and copies messages once into Arrow's buffers. `PythonSource` is
the readable twin: it reads by confluent_kafka's own consumer, an object each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.kafka.client import ClientErrors, confluent, made, refused_setting
from streamjoin_ds.kafka.settings import Settings
from streamjoin_ds.source.kafka.range_read import Fetched

__all__ = [
    "HEADER_PREFIX",
    "TIMESTAMP_TYPE",
    "TIMESTAMP_TYPES",
    "NativeSource",
    "PythonSource",
    "librdkafka_path",
    "message_schema",
    "native_messages",
]

HEADER_PREFIX = "header_"
# librdkafka's codes 1 and 2: the producer set the time, or the broker did when it appended the message.
TIMESTAMP_TYPES = ("create", "append")
TIMESTAMP_TYPE = pa.dictionary(pa.int8(), pa.string())
# Room of one batch. Sensors' messages have some 100 bytes: then both are used up at about the same time.
_BATCH_MESSAGES = 65_536
_VALUE_BYTES = 8 << 20
_KEY_BYTES = 1 << 20
_HEADER_BYTES = 1 << 20
_MAX_BYTES = (1 << 31) - 1  # of one column of a batch: Arrow's offsets are 32 bits
# A column that uses less of its room than this part is copied, so that a small batch does not keep a large buffer.
_SPARSE = 4


def message_schema(headers: Sequence[str] = ()) -> pa.Schema:
    """Return the columns of messages.

    ``offset``; ``timestamp_us`` (microseconds UTC; null if the message has none) and ``timestamp_type``; ``key`` and
    ``value`` (null if the message has none); and ``header_<name>`` for each of `headers`: the last value of that name.
    """
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp_us", pa.int64()),
            pa.field("timestamp_type", TIMESTAMP_TYPE),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            *(pa.field(HEADER_PREFIX + name, pa.binary()) for name in headers),
        ]
    )


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


@lru_cache(maxsize=1)
def native_messages() -> Any:
    """Return the compiled module with librdkafka's functions found; None where either is not there."""
    confluent()
    try:
        module = import_module("streamjoin_ds._kernels.messages")
    except ImportError:  # a package that was not compiled
        return None
    path = librdkafka_path()
    return module if path and module.load_librdkafka(path) is None else None


def librdkafka_path() -> str:
    """Return the library that confluent_kafka uses in this process; empty where it cannot be told.

    The wheel has its own copy, whose name has a hash; other packages link the system's.
    """
    confluent("confluent_kafka.cimpl")
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count(" ") >= 5 and "/" in line)
    return next((path for path in paths if Path(path).name.startswith("librdkafka")), "")


class NativeSource:
    """One partition, read by the compiled consumer; see `MessageSource`.

    Parameters
    ----------
    servers, settings, topic, partition
        Where to read.
    headers : sequence of str
        Names of the headers to read.
    batch_messages, value_bytes : int
        Room of a batch. A message that needs more gets a batch of its own.

    Raises
    ------
    ArgumentError
        librdkafka refuses a setting.
    """

    def __init__(
        self,
        servers: str,
        settings: Settings,
        topic: str,
        partition: int,
        headers: Sequence[str] = (),
        batch_messages: int = _BATCH_MESSAGES,
        value_bytes: int = _VALUE_BYTES,
    ) -> None:
        self._module = native_messages()
        if self._module is None:
            msg = "the compiled reader of messages is not there"
            raise ArgumentError(msg, name="source", hint="build the package, or use PythonSource")
        self._errors = ClientErrors()
        self._schema = message_schema(headers)
        self._rows = batch_messages
        self._room = [_KEY_BYTES, value_bytes, *(_HEADER_BYTES for _ in headers)]
        self._seek_error = told = ""
        try:
            made = {"log_level": "0", **settings.of_consumer(servers)}
            self._consumer = self._module.Consumer(made, topic, partition, tuple(headers))
        except ValueError as error:
            told = str(error) or "?"
        if told:
            raise refused_setting(told)  # outside of the handler: the first error's text may hold the value

    def seek(self, offset: int, epoch: int = -1) -> None:
        """See `MessageSource.seek`."""
        self._seek_error = self._consumer.seek(offset, epoch)

    def fetch(self, end: int, wait_seconds: float) -> Fetched:
        """See `MessageSource.fetch`."""
        if self._seek_error:
            return Fetched(None, -1, self._seek_error)
        room = list(self._room)
        while True:
            into = self._module.Messages(self._rows, room)
            position, error = self._consumer.fetch(end, int(wait_seconds * 1000), into)
            if into.short is None:
                break
            column, needed = into.short
            room[column] = min(max(needed, 2 * room[column]), _MAX_BYTES)
        if not error:
            self._errors.names.update(self._consumer.errors())
            error = self._errors.cause("") if self._errors.is_refused else ""
        return Fetched(self._batch(into) if into.count else None, position, error, into.epoch)

    def close(self) -> None:
        """See `MessageSource.close`."""
        self._consumer.close()

    def _batch(self, into: Any) -> pa.RecordBatch:
        count = into.count
        valid = pa.py_buffer(into.times_valid) if into.times_nulls else None
        times = [valid, pa.py_buffer(_kept(into.times_us, count))]
        types = [valid, pa.py_buffer(_kept(into.time_types, count))]
        codes = pa.Array.from_buffers(pa.int8(), count, types, into.times_nulls)
        columns = [
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(_kept(into.offsets, count))], 0),
            pa.Array.from_buffers(pa.int64(), count, times, into.times_nulls),
            pa.DictionaryArray.from_arrays(codes, pa.array(TIMESTAMP_TYPES)),
            *(self._bytes(into, column) for column in range(len(self._room))),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _bytes(self, into: Any, column: int) -> pa.Array:
        count, nulls = into.count, into.nulls(column)
        ends = _kept(into.ends[column], count + 1)
        buffers = [
            pa.py_buffer(into.valid[column]) if nulls else None,
            pa.py_buffer(ends),
            pa.py_buffer(_kept(into.data[column], int(ends[count]))),
        ]
        return pa.Array.from_buffers(pa.binary(), count, buffers, nulls)


def _kept(values: np.ndarray, count: int) -> np.ndarray:
    """Return the first values; as a copy where they are few, so that the rest can be freed."""
    return values[:count].copy() if count * _SPARSE < len(values) else values[:count]
