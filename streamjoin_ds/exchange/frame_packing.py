"""Packs the rows of DataFrames into blocks: of any source that Spark can read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.exchange.outbox import Outbox, layout_row
from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.source.event_time import event_times, event_times_ns
from streamjoin_ds.source.partitioned_position import MOST_PARTITIONS, SEQ_BITS
from streamjoin_ds.source.records import Chunk, Reject, record_text
from streamjoin_ds.spec.bound import SEQ, TS
from streamjoin_ds.spec.content_hash import content_hash
from streamjoin_ds.spec.inside import InsideRows, to_inside

__all__ = ["Packer", "foreign_columns", "pack_foreign", "pack_frame"]

Packer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# DataFrames may have their event times as text.
_TIMES = (event_times, event_times_ns)
_MOST = (1 << 63) - 1

_log = logging.getLogger(__name__)


def foreign_columns(plan: Plan, stream: int) -> list[str]:
    """Return the columns of a DataFrame that are needed: those that are read, and those that number its rows."""
    names = plan.bound.read_schemas[stream].names
    telling = _order(plan, stream) or [field.name for field in _identity(plan, stream)]
    return [*names, *(name for name in telling if name not in names)]


def pack_foreign(placed: Callable[[], Plan], stream: int, *, keeps_grid: bool = False) -> Packer:
    """Return a function for ``mapInArrow`` over a DataFrame's `foreign_columns` (by place), which makes exchange rows.

    This is for `dataframe()`. The rows of a DataFrame have no order, so none is late here. ``_seq`` is a hash of a
    row's values, which equal rows share, and it deals the rows to groups. Where several streams read one DataFrame the
    hash is over all columns that any of them reads, so that a tuple has the same ``_seq`` in each. A row without an
    event time, or with another time out of range, is counted in `rejected`, logged, and goes no further.

    Parameters
    ----------
    placed : callable
        Returns the plan, as the task sees it.
    keeps_grid : bool
        Whether to make a row for `LAYOUT_KEY` too.
    """

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = placed()
        outbox = Outbox(plan, stream, 0, judge_lateness=False)
        read = 0
        for batch in batches:
            chunk = _chunk(plan, stream, batch)
            read += batch.num_rows
            outbox.rejected += len(chunk.rejects)
            outbox.add(replace(chunk, rejects=()))
        if not read:
            return
        if outbox.rejected:
            name = plan.bound.names[stream]
            _log.warning("%d rows of stream %s have no event time, or a time out of range", outbox.rejected, name)
        yield from outbox.rows(0, read)
        if keeps_grid:
            yield layout_row(stream)

    return packed


def pack_frame(plan: Plan, stream: int) -> Packer:
    """Return a function for ``mapInArrow`` over a DataFrame's `foreign_columns` (by place), which makes exchange rows.

    This is for ``start(frames=...)``: every cell hears of every task, also of one without rows, and rows that cannot be
    tuples are rejects. No row is late here: the cells judge that, by the watermark at the batch's start.
    """
    text = plan.to_json()

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = Plan.from_json(text)
        outbox = Outbox(plan, stream, _task_number(), judge_lateness=False)
        read = 0
        for batch in batches:
            outbox.add(_chunk(plan, stream, batch))
            read += batch.num_rows
        yield from outbox.rows(0, read)

    return packed


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _chunk(plan: Plan, stream: int, batch: pa.RecordBatch) -> Chunk:
    schema = plan.bound.read_schema(stream)
    batch = batch.rename_columns(foreign_columns(plan, stream))
    read = plan.bound.read_schemas[stream]
    brought = to_inside(lambda wanted: batch.column(wanted.name), read, plan.bound.join.streams[stream], _TIMES)
    ordered = _ordered(_order(plan, stream), batch, brought)
    rejects = [
        Reject("", 0, name, reason, record_text(pa.Table.from_batches([batch]), int(place)), int(place))
        for mask, name, reason in brought.refused
        for place in np.flatnonzero(mask)
    ]
    own, ts, count = [brought.columns[f.name] for f in schema if f.name not in (TS, SEQ)], brought.ts, batch.num_rows
    if rejects:
        kept = np.flatnonzero(brought.is_kept)
        batch, own, ts = batch.take(pa.array(kept)), [values.take(pa.array(kept)) for values in own], ts[kept]
        ordered = None if ordered is None else ordered[kept]
    if ordered is None:
        telling = [batch.column(field.name).cast(field.type, safe=False) for field in _identity(plan, stream)]
        ordered = content_hash(telling or [pa.array(ts), *own])
    tuples = pa.RecordBatch.from_arrays([pa.array(ts), pa.array(ordered), *own], schema=schema)
    return Chunk(0, count, tuples, rejects)


def _order(plan: Plan, stream: int) -> tuple[str, ...]:
    return plan.order_by[stream] if plan.order_by else ()


def _ordered(columns: Sequence[str], batch: pa.RecordBatch, brought: InsideRows) -> np.ndarray | None:
    """Return the rows' numbers by the columns that give them, and refuse rows without; None: there are no columns.

    One column is the number. Of two the first is a partition's number, and the second the row's in the partition.
    """
    if not columns:
        return None
    numbers = np.zeros(batch.num_rows, np.int64)
    limits = (_MOST,) if len(columns) == 1 else (MOST_PARTITIONS - 1, (1 << SEQ_BITS) - 1)
    for name, most in zip(columns, limits, strict=True):
        given = batch.column(name)
        known = pc.fill_null(given.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        brought.refuse(known < 0, name, "no number, or one below zero, in a column that orders the rows")
        brought.refuse(known > most, name, f"a number above {most} in a column that orders the rows")
        numbers = numbers << SEQ_BITS | known if len(columns) == 2 else known
    return numbers


def _identity(plan: Plan, stream: int) -> list[pa.Field]:
    """Return the columns whose hash is a tuple's ``_seq`` where several streams read one DataFrame; else none."""
    bound = plan.bound
    inputs = bound.same_inputs
    sharing = [other for other, first in enumerate(inputs) if first == inputs[stream]]
    if len(sharing) == 1:
        return []
    fields = {field.name: field for other in reversed(sharing) for field in bound.read_schemas[other]}
    return [fields[name] for name in sorted(fields)]
