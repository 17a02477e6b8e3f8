"""Packs the rows of DataFrames into blocks: of any source that Spark can read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.blocks import pack
from streamjoin_ds.exchange.outbox import NOTHING, Outbox, exchange_batch, layout_row
from streamjoin_ds.exchange.row_order import partition_bits, steps_of
from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.source.partitioned_position import MOST_PARTITIONS, SEQ_BITS
from streamjoin_ds.source.records import Chunk, Reject, record_text
from streamjoin_ds.spec.columns import INT64_MAX, SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.inside import InsideRows, to_inside
from streamjoin_ds.spec.key_values import content_hash

__all__ = ["Packer", "foreign_columns", "pack_foreign", "pack_frame"]

Packer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


_log = logging.getLogger(__name__)


def foreign_columns(plan: Plan, stream: int) -> list[str]:
    """Return the columns of a DataFrame that are needed: those that are read, and those that number its rows."""
    names = plan.bound.written_schemas[stream].names
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
            chunk = _framed(plan, stream, batch).chunk
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
    tuples are rejects. Where rows are judged in their order (`Plan.in_order`), those are late here that are late by the
    task's own rows. Every cell gets the rows' steps, by which it judges the others. Elsewhere the cells judge all rows,
    by the watermark at the batch's start.
    """
    text = plan.to_json()

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = Plan.from_json(text)
        columns, task = plan.judging_order(stream), _task_number()
        outbox = Outbox(plan, stream, task, judge_lateness=bool(columns))
        read = 0
        waiting: list[_Framed] = []
        for batch in batches:
            framed = _framed(plan, stream, batch)
            read += batch.num_rows
            if columns:
                waiting.append(framed)
            else:
                outbox.add(framed.chunk)
        steps = _judged(waiting, outbox, partition_bits(columns)) if waiting else None
        yield from outbox.rows(0, read)
        if steps is not None and steps.num_rows:
            yield _step_rows(plan, stream, task, steps)

    return packed


def _step_rows(plan: Plan, stream: int, part: int, steps: pa.Table) -> pa.RecordBatch:
    """Return a row for every cell with the steps of a task's rows (`row_order.steps_of`)."""
    payload = pack(steps, {"kind": "steps", "stream": plan.bound.names[stream]})
    return exchange_batch(
        [(label, "steps", stream, part, 0, 0, 0, 0, NO_TIME, *NOTHING, "", payload) for label in plan.labels]
    )


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


class _Framed(Struct, frozen=True):
    """A batch of a DataFrame's rows.

    Attributes
    ----------
    chunk : Chunk
        The rows' tuples and rejects.
    seqs, times_us : ndarray, shape (n,), int64
        The numbers and event times of the rows that have a number, rejects among them; empty where columns give none. A
        row without an event time has `NO_TIME`.
    is_tuple : ndarray, shape (n,), bool
        Which of those are tuples.
    """

    chunk: Chunk
    seqs: np.ndarray
    times_us: np.ndarray
    is_tuple: np.ndarray


def _framed(plan: Plan, stream: int, batch: pa.RecordBatch) -> _Framed:
    schema = plan.bound.read_schema(stream)
    batch = batch.rename_columns(foreign_columns(plan, stream))
    read = plan.bound.read_schemas[stream]
    of_stream = plan.bound.join.streams[stream]
    brought = to_inside(lambda wanted: batch.column(wanted.name), read, of_stream)
    numbers, is_numbered = _numbered(_order(plan, stream), batch, brought)
    times = np.where(brought.is_timed, brought.ts, NO_TIME)[is_numbered]
    seqs, is_tuple = numbers[is_numbered], brought.is_kept[is_numbered]
    rejects = [
        Reject("", 0, name, reason, record_text(pa.Table.from_batches([batch]), int(place)), int(place))
        for mask, name, reason in brought.refused
        for place in np.flatnonzero(mask)
    ]
    own, ts, count = [brought.columns[f.name] for f in schema if f.name not in (TS, SEQ)], brought.ts, batch.num_rows
    if rejects:
        kept = np.flatnonzero(brought.is_kept)
        batch, own, ts = batch.take(pa.array(kept)), [values.take(pa.array(kept)) for values in own], ts[kept]
    ordered = seqs[is_tuple]
    if not _order(plan, stream):
        telling = [batch.column(field.name).cast(field.type, safe=False) for field in _identity(plan, stream)]
        ordered = content_hash(telling or [pa.array(ts), *own])
    tuples = pa.RecordBatch.from_arrays([pa.array(ts), pa.array(ordered), *own], schema=schema)
    return _Framed(Chunk(0, count, tuples, rejects), seqs, times, is_tuple)


def _judged(batches: Sequence[_Framed], outbox: Outbox, bits: int) -> pa.Table:
    """Put a task's rows into the outbox, each with the largest time before it; return the rows' steps."""
    seqs, times_us = (np.concatenate([getattr(one, name) for one in batches]) for name in ("seqs", "times_us"))
    before_us, steps = steps_of(seqs, times_us, bits)
    begin = 0
    for one in batches:
        before = before_us[begin : begin + len(one.seqs)][one.is_tuple]
        outbox.add(replace(one.chunk, before=before))
        begin += len(one.seqs)
    return steps


def _order(plan: Plan, stream: int) -> tuple[str, ...]:
    return plan.order_by[stream] if plan.order_by else ()


def _numbered(columns: Sequence[str], batch: pa.RecordBatch, brought: InsideRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows' numbers by the columns that give them, and which rows have one; refuse the others.

    One column is the number. Of two the first is a partition's number, and the second the row's in the partition. Where
    there are no columns no row has a number, and none is refused.
    """
    numbers, has_one = np.zeros(batch.num_rows, np.int64), np.full(batch.num_rows, bool(columns))
    limits = (INT64_MAX,) if len(columns) < 2 else (MOST_PARTITIONS - 1, (1 << SEQ_BITS) - 1)
    for name, most in zip(columns, limits, strict=False):
        given = batch.column(name)
        known = pc.fill_null(given.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        brought.refuse(known < 0, name, "no number, or one below zero, in a column that orders the rows")
        brought.refuse(known > most, name, f"a number above {most} in a column that orders the rows")
        has_one &= (known >= 0) & (known <= most)
        numbers = numbers << SEQ_BITS | known if len(columns) == 2 else known
    return numbers, has_one


def _identity(plan: Plan, stream: int) -> list[pa.Field]:
    """Return the columns whose hash is a tuple's ``_seq`` where several streams read one DataFrame; else none."""
    bound = plan.bound
    inputs = bound.same_inputs
    sharing = [other for other, first in enumerate(inputs) if first == inputs[stream]]
    if len(sharing) == 1:
        return []
    fields = {field.name: field for other in reversed(sharing) for field in bound.written_schemas[other]}
    return [fields[name] for name in sorted(fields)]
