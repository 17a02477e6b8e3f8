"""Admission control of a stream in Python: who says where a batch begins, and how many rows it may have.

::

    Spark 4.2         latestOffset(start, limit)      Spark says both, and when an available-now run has to end
    Spark 4.0, 4.1    latestOffset()                  `SelfLimitedReader` says them, and `end_when_read` ends the query

An offset says all of a batch, so a batch that is done again is the same, whoever cut it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from streamjoin_ds.spark.release import has_admission

if TYPE_CHECKING or has_admission():
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit of a batch, for releases of Spark that have none."""

    @dataclass(frozen=True)
    class ReadAllAvailable(ReadLimit):
        """All rows that are there."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):
        """At most so many rows."""

        max_rows: int

    @dataclass(frozen=True)
    class ReadMinRows(ReadLimit):
        """No batch with fewer rows."""

        min_rows: int

    class SupportsTriggerAvailableNow:
        """Marks a reader that can end an available-now run."""


if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    class LimitedReader(Protocol):
        """A reader as Spark 4.2 asks one."""

        def initialOffset(self) -> dict[str, Any]: ...
        def getDefaultReadLimit(self) -> ReadLimit: ...
        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...
        def prepareForTriggerAvailableNow(self) -> None: ...
        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]: ...
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...
        def commit(self, end: dict[str, Any]) -> None: ...
        def stop(self) -> None: ...


__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SelfLimitedReader",
    "SupportsTriggerAvailableNow",
    "end_when_read",
]


class SelfLimitedReader(DataSourceStreamReader):
    """Has Spark 4.0 and 4.1 use a reader that was written for 4.2.

    These releases do not say where a batch begins. It begins where the last planned one ends, which they name in
    `partitions`: before each batch, and at a restart with an empty range, before they ask for anything.

    Parameters
    ----------
    reader : LimitedReader
        Cuts the batches.
    available_now : bool
        Whether only what is there at the first question is read.
    limit : ReadLimit, optional
        Of each batch; by default the reader's own.
    """

    def __init__(self, reader: LimitedReader, *, available_now: bool = False, limit: ReadLimit | None = None) -> None:
        self.reader = reader
        self._limit = limit or reader.getDefaultReadLimit()
        self._freezes = available_now
        self._end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first record."""
        return self.reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as 4.0 and 4.1 ask
        """Return the end of the next batch; if there is nothing new, the end of the last one."""
        if self._freezes:
            self.reader.prepareForTriggerAvailableNow()
            self._freezes = False
        start = self.reader.initialOffset() if self._end is None else self._end
        return self.reader.latestOffset(start, self._limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch, behind which the next one begins."""
        self._end = end
        return self.reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        return self.reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Let go of what lies before `end`."""
        self.reader.commit(end)

    def stop(self) -> None:
        """End with the query."""
        self.reader.stop()


def end_when_read(query: StreamingQuery) -> None:
    """Stop a query, in the background, when its source has nothing more: an available-now run of 4.0 and 4.1.

    To these releases such a run is a single batch where a source is written in Python. So the query runs without end,
    over a reader that takes only what is there.
    """

    def wait() -> None:
        with contextlib.suppress(Exception):  # the query has ended by an error, which it tells whoever waits for it
            query.processAllAvailable()
            query.stop()

    threading.Thread(target=wait, name="streamjoin-available-now", daemon=True).start()
