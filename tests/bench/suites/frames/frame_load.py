"""Two streaming DataFrames of a benchmark: files of Parquet, one of each in a batch, and the join over them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamjoin_ds.spec import Stream
from streamjoin_ds.stream.join import StreamJoin
from tests.bench.suites.oracle import count_matches

__all__ = ["FrameLoad"]

_START_US = 1_800_000_000_000_000
_STEP_US = 10  # between two tuples of a stream
_WINDOW_US = 1_000_000
_EPS = 10
_MTIME_S = 1_700_000_000  # Spark's file source goes by the files' times


@dataclass(frozen=True, slots=True)
class FrameLoad:
    """Two streams of equal rates, in the order of their event times.

    Attributes
    ----------
    rows : int
        Tuples of each stream.
    batches : int
        Files of each stream.
    keys : int
        Keys are uniform below this number: the more there are, the fewer match.
    """

    rows: int
    batches: int
    keys: int

    def table(self, side: int) -> pa.Table:
        """Return all tuples of a stream."""
        random = np.random.default_rng([2, side])
        number = np.arange(self.rows, dtype=np.int64)
        keys = random.integers(0, self.keys, (2, self.rows), np.int32)
        times = pa.array(_START_US + side + number * _STEP_US).cast(pa.timestamp("us", tz="UTC"))
        return pa.table({"ts": times, "number": number, "x": keys[0], "y": keys[1], "value": random.random(self.rows)})

    def write(self, folder: Path) -> None:
        """Write the files of both streams below a folder."""
        size = -(-self.rows // self.batches)
        for side, name in enumerate(("r", "s")):
            (folder / name).mkdir(parents=True)
            table = self.table(side)
            for number in range(self.batches):
                path = folder / name / f"{number:05d}.parquet"
                pq.write_table(table.slice(number * size, size), path)
                os.utime(path, (_MTIME_S + number,) * 2)

    def join(self) -> StreamJoin:
        """Return the join."""
        on = f"abs(r.x - s.x) <= {_EPS} AND abs(r.y - s.y) <= {_EPS}"
        return StreamJoin([Stream(name, time="ts") for name in ("r", "s")], on, f"{_WINDOW_US}us")

    def matches(self) -> int:
        """Return how many matches there are, by an independent count."""
        tables = [self.table(side).select(["ts", "x", "y"]) for side in (0, 1)]
        return count_matches(self.join(), *tables)
