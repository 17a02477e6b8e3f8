"""Two topics of a benchmark: what their messages hold, how they come to the broker, and the join over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin_ds.kafka.client import confluent
from streamjoin_ds.spec import Stream
from streamjoin_ds.stream.join import StreamJoin
from tests.bench.suites.oracle import count_matches

__all__ = ["TopicLoad"]

_START_US = 1_800_000_000_000_000
_STEP_US = 10  # between two events of a topic
_WINDOW_US = 10_000_000
_LARGEST_KEY = 200_000
_EPS = 10
_SCHEMA = pa.schema([("ts", pa.int64()), ("number", pa.int64()), ("x", pa.int32()), ("y", pa.int32())])
# As `format=fixed` reads the columns: packed, little-endian, in the order of the schema.
_RECORD = np.dtype([("ts", "<i8"), ("number", "<i8"), ("x", "<i4"), ("y", "<i4")])
_SENT_WITHIN_S = 120.0
_AT_ONCE = 100_000  # messages that the producer is given before it is asked to send


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """Two topics of equal rates, dealt to their partitions in turn, each partition in the order of event times.

    Attributes
    ----------
    servers : str
        ``host:port`` of the brokers.
    name : str
        The topics are called so, with ``-r`` and ``-s``.
    format : {"json", "fixed"}
        What messages hold.
    messages : int
        Messages of each topic.
    partitions : int
        Partitions of each topic.
    """

    servers: str
    name: str
    format: str
    messages: int
    partitions: int = 4

    @property
    def topics(self) -> tuple[str, str]:
        """The names of the topics."""
        return f"{self.name}-r", f"{self.name}-s"

    def columns(self, side: int) -> dict[str, np.ndarray]:
        """Return the columns of one topic's tuples: keys are uniform, so that few of them match."""
        random = np.random.default_rng([1, side])
        number = np.arange(self.messages, dtype=np.int64)
        keys = random.integers(1, _LARGEST_KEY, (2, self.messages), np.int32, endpoint=True)
        return {"ts": _START_US + side + number * _STEP_US, "number": number, "x": keys[0], "y": keys[1]}

    def values(self, side: int) -> Iterator[bytes]:
        """Yield the messages of one topic, in the order of their event times."""
        columns = self.columns(side)
        if self.format == "fixed":
            records = np.empty(self.messages, _RECORD)
            for name, values in columns.items():
                records[name] = values
            whole, size = records.tobytes(), _RECORD.itemsize
            yield from (whole[at : at + size] for at in range(0, len(whole), size))
            return
        rows = zip(*(columns[name].tolist() for name in _SCHEMA.names), strict=True)
        yield from (b'{"ts":%d,"number":%d,"x":%d,"y":%d}' % row for row in rows)

    def send(self) -> None:
        """Make the topics, and send all messages to them."""
        admin = confluent("confluent_kafka.admin")
        made = admin.AdminClient({"bootstrap.servers": self.servers})
        for future in made.create_topics([admin.NewTopic(name, self.partitions, 1) for name in self.topics]).values():
            future.result(30)
        producer = confluent().Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 50, "queue.buffering.max.messages": 2 * _AT_ONCE}
        )
        for side, topic in enumerate(self.topics):
            for number, value in enumerate(self.values(side)):
                producer.produce(topic, value, partition=number % self.partitions)
                if number % _AT_ONCE == 0:
                    producer.flush(_SENT_WITHIN_S)
        left = producer.flush(_SENT_WITHIN_S)
        assert not left, f"{left} messages were not sent"

    def remove(self) -> None:
        """Delete the topics."""
        made = confluent("confluent_kafka.admin").AdminClient({"bootstrap.servers": self.servers})
        for future in made.delete_topics(list(self.topics)).values():
            future.exception(30)

    def join(self) -> StreamJoin:
        """Return the join over the topics."""
        sides = [
            Stream(side, f"kafka://{self.servers}/{topic}?format={self.format}", schema=_SCHEMA)
            for side, topic in zip(("r", "s"), self.topics, strict=True)
        ]
        on = f"abs(r.x - s.x) <= {_EPS} AND abs(r.y - s.y) <= {_EPS}"
        return StreamJoin(sides, on, f"{_WINDOW_US}us")

    def matches(self) -> int:
        """Return how many matches there are, by an independent count."""
        tables = []
        for side in (0, 1):
            columns = self.columns(side)
            times = pa.array(columns["ts"]).cast(pa.timestamp("us", tz="UTC"))
            tables.append(pa.table({"ts": times, **{name: columns[name] for name in ("x", "y")}}))
        return count_matches(self.join(), *tables)
