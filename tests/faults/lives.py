"""The queries of an endurance run: what a user's session starts and stops, each from where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from streamjoin_ds import Generator, Stream, StreamJoin, Table, band
from tests.support.kafka import KafkaBroker, new_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["KINDS", "Life"]

_ROWS = 1_000  # of a stream in a batch
_START_MS = 1_700_000_000_000


class Life(Protocol):
    """One kind of query.

    Attributes
    ----------
    left_files : int
        Open files, of all processes, that Spark 4.2 itself keeps of each query that ran, until its session ends.
    """

    left_files: int

    def start(self, session: SparkSession, batches: int) -> StreamingQuery:
        """Start the query, or go on with it; there is input for so many batches and some more."""

    def close(self) -> None:
        """End what it began beside Spark."""


class _OfGenerators:
    """Two generated streams."""

    # The connection of `foreachBatch`, at both ends, and what Java had for the source's planner: a socket, a selector.
    left_files = 5

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, session: SparkSession, batches: int) -> StreamingQuery:
        """See `Life`: generators have no end."""
        join = StreamJoin(
            [_generated(side) for side in "rs"], on=[band("r.x", "s.a", 10), band("r.y", "s.b", 10)], window="5s"
        )
        return join.start(session, self._folder / "matches", self._folder / "checkpoint", max_rows_per_batch=_ROWS)

    def close(self) -> None:
        """See `Life`."""


class _OfTables(_OfGenerators):
    """Two generated streams beside a Delta table, which has another version in each life."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._version = 0

    def start(self, session: SparkSession, batches: int) -> StreamingQuery:
        """See `Life`."""
        self._version += 1
        low = np.arange(0, 10_000, 500)
        zones = pa.table({"low": low, "high": low + 20, "zone": [f"{self._version}-{n}" for n in low]})
        write_deltalake(str(self._folder / "zones"), zones, mode="overwrite")
        join = StreamJoin(
            [_generated(side) for side in "rs"],
            on="abs(r.x - s.a) <= 10 AND abs(r.y - s.b) <= 10 AND r.x BETWEEN z.low AND z.high",
            tables=[Table("z", str(self._folder / "zones"), refresh="1s")],
            window="5s",
        )
        return join.start(session, self._folder / "matches", self._folder / "checkpoint", max_rows_per_batch=_ROWS)


class _OfFrames(_OfGenerators):
    """Two streaming DataFrames of Spark's own source."""

    left_files = 2  # the connection of `foreachBatch`

    def start(self, session: SparkSession, batches: int) -> StreamingQuery:
        """See `Life`: this source of Spark has no end."""
        reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS)
        reader = reader.option("startTimestamp", _START_MS).option("advanceMillisPerBatch", 1_000)
        frames = {
            side: reader.load().selectExpr(
                "timestamp AS ts", f"value * {step} % 997 AS x", "CAST(value % 2 AS INT) AS part", "value DIV 2 AS off"
            )
            for side, step in (("l", 3), ("r", 7))
        }
        join = StreamJoin([Stream("l", delay="1s"), Stream("r", delay="1s")], on=[band("l.x", "r.x", 1)], window="2s")
        to, checkpoint = self._folder / "matches", self._folder / "checkpoint"
        return join.start(session, to, checkpoint, frames=frames, order_by=("part", "off"))


class _OfTopics(_OfGenerators):
    """Two topics of a Kafka broker of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._broker = KafkaBroker(folder / "broker")
        self._topics = {side: new_topic(self._broker.servers) for side in "lr"}
        self._sent = 0

    def start(self, session: SparkSession, batches: int) -> StreamingQuery:
        """See `Life`: the messages are sent first."""
        count = _ROWS * (batches + 5)
        for side, step in (("l", 3), ("r", 7)):
            numbers = range(self._sent, self._sent + count)
            values = [b'{"ts": %d, "x": %d}' % (_START_MS + n, n * step % 997) for n in numbers]
            produce(self._broker.servers, self._topics[side], [*values])
        self._sent += count
        schema = {"ts": "timestamp[ms, tz=UTC]", "x": "int64"}
        streams = [
            Stream(side, f"kafka://{self._broker.servers}/{topic}?format=json", schema=schema, time_unit="ms")
            for side, topic in self._topics.items()
        ]
        join = StreamJoin(streams, on=[band("l.x", "r.x", 1)], window="2s")
        return join.start(session, self._folder / "matches", self._folder / "checkpoint", max_rows_per_batch=_ROWS)

    def close(self) -> None:
        """See `Life`."""
        self._broker.stop()


def _generated(side: str) -> Stream:
    return Stream(side, Generator("band2d", {"rate": _ROWS, "seed": 1, "side": side}))


KINDS: Mapping[str, Callable[[Path], Life]] = {
    "generators": _OfGenerators,
    "tables": _OfTables,
    "frames": _OfFrames,
    "topics": _OfTopics,
}
