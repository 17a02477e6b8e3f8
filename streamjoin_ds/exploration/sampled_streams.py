"""What is read of each stream for an exploration: its first tuples, how late they are, and the stretch that all cover.

::

    e  ├───────────────────────────────────┤         the tuples that were read
    w       ├──────────────────────────────────┤
            ├ window ├── stretch ──┤ window ┤        tuples of e are drawn here: all their partners were read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.duration import duration_text
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.records import Chunk, RawRecords, inside_form
from streamjoin_ds.source.stream_source import first_records
from streamjoin_ds.spec import BoundJoin, Stream
from streamjoin_ds.spec.columns import SEQ, TIMESTAMP, TS, Int64
from streamjoin_ds.spec.event_time import NO_TIME, running_maximum
from streamjoin_ds.spec.member.computed_columns import read_columns

__all__ = ["ROW", "SampledStream", "Stretch", "lateness_of", "sampled_streams", "stretch_of"]

ROW = "exploration_row"
"""The column with the place of a tuple in its sample."""


@dataclass(frozen=True, slots=True)
class SampledStream:
    """The first tuples of a stream.

    Attributes
    ----------
    stream : Stream
        The stream, as the sample's rows can be pushed: its columns are computed, its rows are in order.
    rows : pyarrow.Table
        The tuples, by event time, with their event time and `ROW`.
    times_us : ndarray
        Their event times.
    late_us : ndarray
        By how much each is older than the largest event time before it, in the order of the source.
    is_cut : bool
        Whether the source may have more.
    """

    stream: Stream
    rows: pa.Table
    times_us: Int64
    late_us: Int64
    is_cut: bool

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.stream.name


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of event time, with both ends."""

    first_us: int
    last_us: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.last_us - self.first_us) / 1e6

    def count(self, times_us: Int64) -> int:
        """Return how many times lie in it."""
        return int(((times_us >= self.first_us) & (times_us <= self.last_us)).sum())


def sampled_streams(bound: BoundJoin, frames: Mapping[str, pa.Table], rows: int) -> list[SampledStream]:
    """Return the first tuples of each stream.

    Parameters
    ----------
    bound : BoundJoin
    frames : mapping of stream name to pyarrow.Table
        Rows of the streams that have no source.
    rows : int
        Records of each that are read, at most.

    Raises
    ------
    ArgumentError
        A stream has no tuples.
    """
    found = []
    for stream, schema in zip(bound.join.streams, bound.read_schemas, strict=False):
        given = frames.get(stream.name)
        chunks = first_records(stream, schema, rows) if given is None else [_of_table(given, stream, schema, rows)]
        tuples = [chunk for chunk in chunks if chunk.tuples.num_rows]
        if not tuples:
            msg = f"stream {stream.name} has no tuples to look at"
            raise ArgumentError(msg, name=stream.name, hint="streamjoin look shows what its records are")
        read = sum(chunk.count for chunk in chunks)
        found.append(_sampled(stream, tuples, is_cut=read >= rows if given is None else given.num_rows > rows))
    return found


def _of_table(table: pa.Table, stream: Stream, schema: pa.Schema, rows: int) -> Chunk:
    read = table.slice(0, rows).select(read_columns(stream, schema).names)
    return inside_form(RawRecords(read, read.num_rows), stream, schema, 0, stream.name, np.arange(read.num_rows) + 1)


def _sampled(stream: Stream, chunks: Sequence[Chunk], *, is_cut: bool) -> SampledStream:
    table = pa.Table.from_batches([chunk.tuples for chunk in chunks])
    times_us = table.column(TS).to_numpy()
    order = np.argsort(times_us, kind="stable")
    columns = {name: table.column(name).take(order) for name in table.column_names if name not in (TS, SEQ)}
    times_us = times_us[order]
    columns[stream.time] = pa.array(times_us, TIMESTAMP)
    columns[ROW] = pa.array(np.arange(len(order)))
    plain = Stream(stream.name, time=stream.time, where=stream.where)
    return SampledStream(plain, pa.table(columns), times_us, lateness_of(chunks), is_cut)


def lateness_of(chunks: Sequence[Chunk]) -> Int64:
    """Return by how many microseconds each tuple is older than the largest event time before it; 0 where it is not."""
    found, largest = [], NO_TIME
    for chunk in chunks:
        times_us = chunk.tuples.column(TS).to_numpy()
        running = running_maximum(times_us, None, largest)
        known = np.concatenate([[largest], running[:-1]]) if chunk.before is None else chunk.before
        found.append(np.where(known == NO_TIME, 0, np.maximum(known - times_us, 0)))
        largest = int(running[-1])
    return np.concatenate(found)


def stretch_of(samples: Sequence[SampledStream], before_us: int, after_us: int) -> Stretch:
    """Return the stretch whose tuples of the first stream have all their partners in the samples.

    Parameters
    ----------
    samples : sequence of SampledStream
        Two.
    before_us, after_us : int
        How much older and newer a partner may be.

    Raises
    ------
    ArgumentError
        The samples are too short, or do not overlap.
    """
    first, second = samples
    begin, end = int(second.times_us[0]) + before_us, int(second.times_us[-1]) - after_us
    begin, end = max(begin, int(first.times_us[0])), min(end, int(first.times_us[-1]))
    if begin < end:
        return Stretch(begin, end)
    shared = min(int(one.times_us[-1]) for one in samples) - max(int(one.times_us[0]) for one in samples)
    told = f"overlap for {duration_text(shared)}" if shared >= 0 else f"are {duration_text(-shared)} apart"
    msg = (
        f"the {len(first.times_us):,} and {len(second.times_us):,} tuples that were read {told}, and a window is longer"
    )
    hint = "read more (rows), give a shorter window, or look at both sources: streamjoin look E W"
    raise ArgumentError(msg, name="rows", hint=hint)


def with_rows(sample: SampledStream, places: Int64) -> SampledStream:
    """Return a sample with the tuples of these places alone."""
    return replace(sample, rows=sample.rows.take(np.sort(places)))
