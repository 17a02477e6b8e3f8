"""The tasks of ``format("sensors")``: what one reads of a stream, in plain values, and the rows that it gives Spark.

In a join these are rows of the exchange. Outside a join they are the stream's records as ordinary rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

from streamjoin_ds.blocks import reuse_freed_memory
from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.exchange.outbox import Outbox, batch_row
from streamjoin_ds.plan import Epochs
from streamjoin_ds.source.device_feed import DeviceFeed
from streamjoin_ds.source.feed import Feed, precedents, stamped
from streamjoin_ds.source.partitioned_feed import PartitionedFeed, begin_alike
from streamjoin_ds.source.records import Chunk, Reject
from streamjoin_ds.source.repeats import told_repeats
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import AheadLimit
from streamjoin_ds.stream.query_options import SourceOptions

__all__ = ["REJECTED", "ReadTask", "SensorsTasks", "plain_rows", "plain_schema"]


REJECTED = "_rejected"

_BATCH_ROWS = 1 << 16  # most rows of one record batch given to Spark


def plain_schema(options: SourceOptions) -> pa.Schema:
    """Return the columns of the rows: ``_seq``, the stream's columns, and ``_rejected`` if broken records are kept."""
    columns = [column.with_nullable(True) for column in options.schemas[0]]
    fields = [pa.field(SEQ, pa.int64(), nullable=False), *columns]
    return pa.schema([*fields, pa.field(REJECTED, pa.string())] if options.keep_broken else fields)


def plain_rows(chunks: Iterator[Chunk], options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give rows of `schema`, in the stream's order.

    Raises
    ------
    FileFormatError
        A record is broken, and broken records are not kept.
    """
    time = options.streams[0].time
    for chunk in chunks:
        if chunk.rejects and not options.keep_broken:
            first = chunk.rejects[0]
            where = f"line {first.line}" + (f", column '{first.column}'" if first.column else "")
            msg = f"a record of {first.file} cannot be read: {where}: {first.reason}"
            hint = "correct the file, or use broken_rows=keep, which marks such rows"
            raise FileFormatError(msg, name=first.file, hint=hint)
        table = _rows(chunk, time, schema)
        if chunk.rejects:
            table = pa.concat_tables([table, _broken(chunk.rejects, schema)]).sort_by(SEQ).combine_chunks()
        yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _rows(chunk: Chunk, time: str, schema: pa.Schema) -> pa.Table:
    arrays = []
    for column in schema:
        if column.name == REJECTED:
            arrays.append(pa.nulls(chunk.tuples.num_rows, pa.string()))
        elif column.name == time:
            arrays.append(chunk.tuples.column(TS).view(column.type))
        else:
            arrays.append(chunk.tuples.column(column.name))
    return pa.Table.from_arrays(arrays, schema=schema)


def _broken(rejects: Sequence[Reject], schema: pa.Schema) -> pa.Table:
    arrays = []
    for column in schema:
        if column.name == SEQ:
            arrays.append(pa.array([reject.seq for reject in rejects], pa.int64()))
        elif column.name == REJECTED:
            texts = [f"{reject.file}:{reject.line}: {reject.column or 'record'}: {reject.reason}" for reject in rejects]
            arrays.append(pa.array(texts))
        else:
            arrays.append(pa.nulls(len(rejects), column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class ReadTask:
    """What one task reads, in plain values only.

    It is the part of a `BatchPlan` that the task needs. The whole plan of a stream of a thousand partitions has 290 KB,
    and such a batch has a thousand tasks.

    Attributes
    ----------
    stream, part : int
        The stream whose records are read, and the number of the part among the stream's parts in this batch. A task
        with the stream -1 reads nothing.
    start, end : dict or None
        Positions of ``[start, end)`` as plain JSON values; an `end` of None: to the end of what is there.
    ahead : tuple of ((int, bool) or None)
        For each stream the arguments of its `AheadLimit`; None: a record may be ahead as far as it likes. Empty: no
        stream has a limit.
    batch : tuple of (dict, dict, tuple of str)
        For each stream the positions of the batch's ``[start, end)`` and the names of the files that hold it. Empty if
        the window does not need the order of the streams' records.
    files : tuple of str, or None
        Names of the files that hold the part; None: all files that are there.
    epochs : str
        The batch's epochs as JSON; empty while there is only the first.
    of_cells : str
        The `CellBatch` that this task sends every cell, as JSON; empty in all tasks of a batch but the first.
    waypoint : (int, dict) or None
        In a stream of one order with a key of unique rows: from where keys are gathered again (`Waypoint`). None: from
        its first record.
    """

    stream: int
    part: int
    start: dict[str, Any]
    end: dict[str, Any] | None
    batch: tuple[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]], ...] = ()
    ahead: tuple[tuple[int, bool] | None, ...] = ()
    files: tuple[str, ...] | None = None
    epochs: str = ""
    of_cells: str = ""
    waypoint: tuple[int, dict[str, Any]] | None = None


class SensorsTasks:
    """The feeds of some streams, and what a task reads of them; both readers have one.

    Parameters
    ----------
    options : SourceOptions
        The reader's options.
    schema : pyarrow.Schema
        Columns of the rows given to Spark.

    Attributes
    ----------
    in_order : bool
        Whether the feeds must be asked one after the other (`begin_alike`), once they are opened.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self.in_order = True
        self.names = [stream.name for stream in options.streams]
        self._opened: list[Feed[Any]] | None = None

    @property
    def feeds(self) -> list[Feed[Any]]:
        """The feeds of all streams, opened at the first use."""
        if self._opened is None:
            pairs = zip(self._options.streams, self._options.schemas, strict=True)
            self._opened = [open_feed(*pair, ignore_missing=self._options.ignore_missing) for pair in pairs]
            inputs = [feed.inner if isinstance(feed, DeviceFeed) else feed for feed in self._opened]
            self.in_order = begin_alike(self._options.streams, inputs)
            plan = self._options.plan
            for feed in self._opened:
                if plan is not None and isinstance(feed, PartitionedFeed):
                    feed.forget_in(plan.block_root, plan.retain_batches, durable=plan.durable)
        return self._opened

    def refuse_endless(self, why: str) -> None:
        """Refuse a generated stream without end, by name; `why` says what reads to the end."""
        for stream, feed in zip(self._options.streams, self.feeds, strict=True):
            if feed.endless:
                msg = f"stream {stream.name} is generated without end, and {why}"
                raise ArgumentError(msg, name=stream.name, hint="give the generator a number of rows (rows=1000000)")

    def read(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        reuse_freed_memory()
        options, plan = self._options, self._options.plan
        epochs = Epochs.from_facts(json.loads(task.epochs), len(self.names)) if task.epochs else None
        if task.of_cells:
            assert plan is not None
            yield batch_row(plan, task.of_cells, epochs)
        if task.stream < 0:
            return
        feed = self.feeds[task.stream]
        start = feed.position(task.start)
        end = None if task.end is None else feed.position(task.end)
        aheads = [None if limit is None else AheadLimit(*limit) for limit in task.ahead] or [None] * len(self.names)
        chunks = feed.read(start, end, aheads[task.stream], task.files)
        if plan is None:
            yield from plain_rows(chunks, options, self._schema)
            return
        assert end is not None
        if task.batch:
            pairs = zip(self.feeds, task.batch, strict=True)
            batch = [(other.position(first), other.position(last), files) for other, (first, last, files) in pairs]
            part = (start, end, task.files or ())
            stamps = precedents(plan.bound, task.stream, part, batch, self.feeds, aheads)
            chunks = stamped(chunks, start.seq, stamps)
        of_part = plan, task.stream, task.part
        key = options.keys[task.stream]
        if key is not None:
            root = xxhash.xxh3_64_hexdigest(plan.block_root.encode())  # it may be a URI that holds a secret
            name = (root, plan.join_id, plan.bound.fingerprint, task.stream)
            chunks = told_repeats(chunks, key, feed, name, start, end, task.waypoint)
        outbox = Outbox(*of_part, max_block_rows=options.max_block_rows, epochs=epochs)
        for chunk in chunks:
            outbox.add(chunk)
        yield from outbox.rows(start.seq, end.seq)
