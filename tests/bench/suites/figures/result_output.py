"""What becomes of an engine's results: counted, told with punctuations, or put in order between punctuations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.engine.intake.lateness import StreamClock, low_watermark
from streamjoin_ds.sink.reader import ordered
from streamjoin_ds.sink.tables import TIMESTAMP

__all__ = ["OUTPUTS", "ResultOutput"]

# What is done with the results of a push, besides taking them: nothing; the punctuation is told; results are held until
# a punctuation has passed them, and are then given in order.
OUTPUTS = ("plain", "punctuated", "sorted")


class ResultOutput:
    """Takes the results of one engine, push by push.

    Parameters
    ----------
    kind : str
        One of `OUTPUTS`.
    schema : pyarrow.Schema
        The results' columns.

    Attributes
    ----------
    given : int
        Results that were given.
    punctuation_us : int or None
        Every result that is older was given.
    """

    def __init__(self, kind: str, schema: pa.Schema) -> None:
        self._kind = kind
        self._clocks = [StreamClock(0), StreamClock(0)]
        self._held = schema.empty_table()
        self.given = 0
        self.punctuation_us: int | None = None

    def take(self, fresh: Mapping[int, pa.RecordBatch], chunks: Iterable[pa.Table]) -> None:
        """Take the results of a push, whose new tuples are `fresh`."""
        if self._kind != "sorted":
            for chunk in chunks:
                self.given += chunk.num_rows
        else:
            self._held = pa.concat_tables([self._held, *chunks])
        if self._kind == "plain":
            return
        for stream, batch in fresh.items():
            if batch.num_rows:
                self._clocks[stream].advance(pc.max(batch.column("_ts")).as_py())
        self.punctuation_us = low_watermark(self._clocks, self.punctuation_us)
        if self._kind == "sorted" and self.punctuation_us is not None:
            passed = pc.less(self._held[EVENT_TIME], pa.scalar(self.punctuation_us, pa.int64()).cast(TIMESTAMP))
            self.given += ordered(self._held.filter(passed)).num_rows
            self._held = self._held.filter(pc.invert(passed)).combine_chunks()

    @property
    def results(self) -> int:
        """Results that were given, and those that are held."""
        return self.given + int(self._held.num_rows)
