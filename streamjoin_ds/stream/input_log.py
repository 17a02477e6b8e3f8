"""What a driver logs about a join's inputs, by what its cells saw, and what `explain` says of the first records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.records import NO_TIME, Chunk
from streamjoin_ds.source.stream_source import SourceColumns, first_records
from streamjoin_ds.spec import BoundJoin, Generator
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import running_maximum
from streamjoin_ds.spec.input_warnings import InputWarnings, LateSeen, TimesSeen

__all__ = ["InputLog", "first_warnings"]

_log = logging.getLogger(__name__)

_FIRST_RECORDS = 20_000  # that `explain` looks at, of each stream: as many as its rate is found by
_FAR_US = (1 << 63) - 1


class InputLog:
    """What was logged of one query's inputs, so that it is not logged again.

    Parameters
    ----------
    bound : BoundJoin
    tables : TableSet
        Where the query's late records and rejects are.
    clock : callable
        Returns seconds since 1970.
    """

    def __init__(self, bound: BoundJoin, tables: TableSet, clock: Callable[[], float] = time.time) -> None:
        self._warnings = InputWarnings(bound, SourceColumns(), clock=clock)
        self._tables = tables

    def tell(self, reports: Collection[CellReport], ledger: Sequence[Mapping[str, Any]]) -> None:
        """Log what is new after a batch.

        Parameters
        ----------
        reports : collection of CellReport
            Those of the batch's cells.
        ledger : sequence of mapping
            The batch's rows of the ledger.
        """
        rows: dict[str, Mapping[str, Any]] = {row["stream"]: row for row in ledger}
        rejected, read, largest = (
            {name: row[what] for name, row in rows.items()} for what in ("rejected", "read", "largest_ts")
        )
        reasons = {stream: (at, why) for report in reports for stream, (at, why) in report.rejects_for.items()}
        found = [*self._warnings.rejects(reasons, rejected, read, self._tables.rejects)]
        for number, name in enumerate(rows):
            late = LateSeen()
            for report in reports:
                late.join(LateSeen.from_facts(report.late_by.get(name, ())).buckets)
            # Of what is late by the watermark alone, the log of silent streams tells; no delay would have kept it.
            if late.rows > sum(report.overtaken[number] for report in reports):
                found += self._warnings.late(name, late, read[name], largest[name], self._tables.late)
        seen = {name: [report.times[name] for report in reports if name in report.times] for name in rows}
        times = {name: TimesSeen.together(map(TimesSeen.from_facts, parts)) for name, parts in seen.items()}
        known = {name: one for name, one in times.items() if one is not None}
        found += self._warnings.times(known, largest)
        for text in found:
            _log.warning("%s", text)


def first_warnings(bound: BoundJoin, clock: Callable[[], float] = time.time) -> list[str]:
    """Return what the first records of the inputs show that a user may want to know before a join runs.

    An input that cannot be read, or has no records yet, shows nothing.
    """
    warnings = InputWarnings(bound, SourceColumns(), "its first {} records", clock)
    found: list[str] = []
    seen: dict[str, TimesSeen] = {}
    for stream, schema in zip(bound.join.streams, bound.read_schemas, strict=False):
        if stream.source is None or isinstance(stream.source, Generator):
            continue
        try:
            chunks = first_records(stream, schema, _FIRST_RECORDS)
        except (StreamJoinError, OSError, pa.ArrowException):  # the join's own reader reports it
            continue
        read = sum(chunk.count for chunk in chunks)
        rejects = [reject for chunk in chunks for reject in chunk.rejects]
        reasons = {stream.name: (rejects[0].column, rejects[0].reason)} if rejects else {}
        found += warnings.rejects(reasons, {stream.name: len(rejects)}, {stream.name: read})
        late, largest = _late(chunks, stream.delay_us)
        found += warnings.late(stream.name, late, read, largest)
        times = TimesSeen.together(TimesSeen.of(*_times(chunk)) for chunk in chunks)
        if times is not None:  # of what was not read it is not known how far it reaches
            seen[stream.name] = replace(times, most_us=_FAR_US) if read >= _FIRST_RECORDS else times
    return [*found, *warnings.times(seen)]


def _times(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    return chunk.tuples.column(TS).to_numpy(), chunk.tuples.column(SEQ).to_numpy()


def _late(chunks: Sequence[Chunk], delay_us: int) -> tuple[LateSeen, int | None]:
    """Return which records are late, in the order of their own stream or partition, and the largest event time."""
    seen, largest = LateSeen(), NO_TIME
    for chunk in chunks:
        times, _ = _times(chunk)
        if not len(times):
            continue
        running = running_maximum(times, None, largest)
        before = np.concatenate([[largest], running[:-1]]) if chunk.before is None else chunk.before
        late = before > times + delay_us
        seen.add((before - times)[late])
        largest = int(running[-1])
    return seen, None if largest == NO_TIME else largest
