"""The queries of an endurance run: what a user's session starts and stops, each from where it was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
_STEPS = {"l": 3, "r": 7}  # by which the values of frames and messages go on


class Life:
    """One kind of query, of two generated streams; the other kinds say what they join in its place.

    Parameters
    ----------
    folder : Path
        Where its files are to lie; it is made.

    Attributes
    ----------
    left_files : int
        Open files, of all processes, that Spark 4.2 itself keeps of each query that ran, until its session ends.
    """

    # The connection of `foreachBatch`, at both ends, and what Java had for the source's planner: a socket, a selector.
    left_files = 5

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def start(self, session: SparkSession, batches: int) -> StreamingQuery:
        """Start the query, or go on with it; there is input for so many batches and some more."""
        options = self.options(session)
        return self.join(batches).start(session, self.folder / "matches", self.folder / "checkpoint", **options)

    def join(self, batches: int) -> StreamJoin:
        """Return the join, and see to its input."""
        del batches  # generators have no end
        on = [band("r.x", "s.a", 10), band("r.y", "s.b", 10)]
        return StreamJoin(_generated(), on=on, window="5s")

    def options(self, session: SparkSession) -> dict[str, Any]:
        """Return the options of the start."""
        del session
        return {"max_rows_per_batch": _ROWS}

    def close(self) -> None:
        """End what it began beside Spark."""


class _OfTables(Life):
    """Two generated streams beside a Delta table, which has another version in each life."""

    def join(self, batches: int) -> StreamJoin:
        """See `Life`."""
        del batches
        low = np.arange(0, 10_000, 500)
        write_deltalake(str(self.folder / "zones"), pa.table({"low": low, "high": low + 20}), mode="overwrite")
        return StreamJoin(
            _generated(),
            on="abs(r.x - s.a) <= 10 AND abs(r.y - s.b) <= 10 AND r.x BETWEEN z.low AND z.high",
            tables=[Table("z", str(self.folder / "zones"), refresh="1s")],
            window="5s",
        )


class _OfFrames(Life):
    """Two streaming DataFrames of Spark's own source, which has no end."""

    left_files = 2  # the connection of `foreachBatch`

    def join(self, batches: int) -> StreamJoin:
        """See `Life`."""
        del batches
        return StreamJoin([Stream(side, delay="1s") for side in _STEPS], on=[band("l.x", "r.x", 1)], window="2s")

    def options(self, session: SparkSession) -> dict[str, Any]:
        """See `Life`."""
        reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS)
        reader = reader.option("startTimestamp", _START_MS).option("advanceMillisPerBatch", 1_000)
        frames = {
            side: reader.load().selectExpr(
                "timestamp AS ts", f"value * {step} % 997 AS x", "CAST(value % 2 AS INT) AS part", "value DIV 2 AS off"
            )
            for side, step in _STEPS.items()
        }
        return {"frames": frames, "order_by": ("part", "off")}


class _OfTopics(Life):
    """Two topics of a Kafka broker of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._broker = KafkaBroker(folder / "broker")
        self._topics = {side: new_topic(self._broker.servers) for side in _STEPS}
        self._sent = 0

    def join(self, batches: int) -> StreamJoin:
        """See `Life`: the messages are sent."""
        numbers = range(self._sent, self._sent + _ROWS * (batches + 5))
        self._sent = numbers.stop
        for side, topic in self._topics.items():
            values = [b'{"ts": %d, "x": %d}' % (_START_MS + n, n * _STEPS[side] % 997) for n in numbers]
            produce(self._broker.servers, topic, [*values])
        schema = {"ts": "timestamp[ms, tz=UTC]", "x": "int64"}
        streams = [
            Stream(side, f"kafka://{self._broker.servers}/{topic}?format=json", schema=schema, time_unit="ms")
            for side, topic in self._topics.items()
        ]
        return StreamJoin(streams, on=[band("l.x", "r.x", 1)], window="2s")

    def close(self) -> None:
        """See `Life`."""
        self._broker.stop()


def _generated() -> list[Stream]:
    return [Stream(side, Generator("band2d", {"rate": _ROWS, "seed": 1, "side": side})) for side in "rs"]


KINDS: Mapping[str, type[Life]] = {
    "generators": Life,
    "tables": _OfTables,
    "frames": _OfFrames,
    "topics": _OfTopics,
}
