"""The outbox of a read task: it sends a part's tuples to the cells, as blocks and as rows that name or carry them.

An `Outbox` deals a part's tuples to groups, one block each, with a row of `EXCHANGE_SCHEMA` for each block and cell. A
name of a block carries the range of records that it holds, so no process has to remember which blocks it wrote. What
was decided about the batch (`CellBatch`) is one row more for each cell, and the batch's first task sends it.
"""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.blocks import BlockStore, pack, unpack
from streamjoin_ds.blocks.place import below
from streamjoin_ds.plan import USUAL_SIZING, BlockSizing, Epochs, Plan
from streamjoin_ds.plan.epochs import Epoch
from streamjoin_ds.plan.key_samples import SampledRows, sample_rows
from streamjoin_ds.source.batch_plan import TableVersion, versions_from
from streamjoin_ds.source.records import Chunk, rejects_table
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME

__all__ = [
    "EXCHANGE_DDL",
    "EXCHANGE_SCHEMA",
    "LARGEST_TS",
    "LAYOUT_KEY",
    "NOTHING",
    "CellBatch",
    "Outbox",
    "batch_row",
    "exchange_batch",
    "exchange_folder",
    "exchange_rows",
    "exchange_store",
    "is_committed_block",
    "late_schema",
    "layout_row",
    "open_block",
    "remove_committed",
]

_BLOCK_NAME = re.compile(r"x(\d{2})-\d{19}-(\d{19})-\d{4}-(tuples|late|rejects)-[0-9a-f]{32}\.arrow")
# `epoch` is the number of the epoch by whose layout the tuples are dealt.
# `end_seq` is the number after the part's last record, broken ones counted. It is 0 for a stream
# that has no part in the batch.
EXCHANGE_SCHEMA = pa.schema(
    [
        pa.field("cell", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("end_seq", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("largest_ts", pa.int64(), nullable=False),
        pa.field("read", pa.int64(), nullable=False),
        pa.field("late", pa.int64(), nullable=False),
        pa.field("rejected", pa.int64(), nullable=False),
        pa.field("filtered", pa.int64(), nullable=False),
        pa.field("duplicates", pa.int64(), nullable=False),
        pa.field("lost_offsets", pa.int64(), nullable=False),
        pa.field("block", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
_EXCHANGE_TYPES = tuple(field.type for field in EXCHANGE_SCHEMA)
_DDL_TYPES = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.string(): "STRING", pa.binary(): "BINARY"}
# The state's key is declared NOT NULL in every way of the exchange: Spark refuses a restart where that has changed.
EXCHANGE_DDL = ", ".join(
    f"{field.name} {_DDL_TYPES[field.type]}{' NOT NULL' * (field.name == 'cell')}" for field in EXCHANGE_SCHEMA
)
# A late row's column for the largest event time before it in its part, and once a cell has seen it, in its stream.
LARGEST_TS = "_largest_ts"
# The key, in place of a cell's label, under which a query over DataFrames keeps its layout of cells.
LAYOUT_KEY = -1
NOTHING = (0, 0, 0, 0, 0, 0)  # `_Totals.counts` of a row that counts nothing


def exchange_folder(checkpoint: object) -> str:
    """Return the folder of the blocks of a checkpoint's exchange."""
    return below(checkpoint, "exchange")


def exchange_store(plan: Plan) -> BlockStore:
    """Return the store of a plan's exchange blocks."""
    return _store_of(plan.block_root)


@lru_cache(maxsize=16)  # called for every block
def _store_of(checkpoint: str) -> BlockStore:
    return BlockStore(exchange_folder(checkpoint))


def open_block(plan: Plan, block: str, payload: bytes) -> pa.Table | None:
    """Return the table that an exchange row names or carries, its checksum verified; None where it has no rows."""
    if block:
        return exchange_store(plan).read(block)
    return unpack(payload) if payload else None


def remove_committed(plan: Plan, seqs: Sequence[int]) -> int:
    """Remove the blocks of records before ``seqs[stream]``, whose batches are committed; return how many are left.

    The names carry the range of records, so no process has to remember which blocks it wrote.
    """
    store = exchange_store(plan)
    names = list(store.names("x"))
    gone = [name for name in names if is_committed_block(name, seqs)]
    store.remove(gone)
    return len(names) - len(gone)


def is_committed_block(name: str, seqs: Sequence[int]) -> bool:
    """Whether `name` is that of an exchange block whose records all lie before ``seqs[stream]``."""
    match = _BLOCK_NAME.fullmatch(name)
    return match is not None and int(match[1]) < len(seqs) and int(match[2]) <= seqs[int(match[1])]


def late_schema(tuples: pa.Schema) -> pa.Schema:
    """Return the columns of a block of late rows: those of the tuples, and `LARGEST_TS`."""
    return tuples.append(pa.field(LARGEST_TS, pa.int64(), nullable=False))


class _Totals(Struct, frozen=True):
    """The largest event time and the counts of a whole part.

    Only one row of the first cell has the counts, so that sums over all rows are right.
    """

    largest_ts: int
    read: int
    late: int
    rejected: int
    filtered: int
    duplicates: int
    lost_offsets: int

    @property
    def counts(self) -> tuple[int, ...]:
        """What is counted, in the order of `EXCHANGE_SCHEMA`."""
        return self.read, self.late, self.rejected, self.filtered, self.duplicates, self.lost_offsets


class _Block(NamedTuple):
    """Tuples of a part that go to the same cells: by reference or with their bytes."""

    first_seq: int
    rows: int
    name: str
    payload: bytes


class Outbox:
    """Takes a part's chunks in order, sets aside what is late within the part, and makes the exchange rows.

    Parameters
    ----------
    plan : Plan
        The layout of cells, the labels, and the way of the exchange.
    stream, part : int
        Numbers of the stream, and of the part among the stream's parts of the batch.
    max_block_rows : int
        Tuples in one packed block, at most.
    judge_lateness : bool
        False where the order of the rows means nothing (foreign DataFrames).
    epochs : Epochs, optional
        The epochs by whose layouts tuples are dealt. By default there is one, with the plan's layout.
    """

    def __init__(
        self,
        plan: Plan,
        stream: int,
        part: int,
        *,
        max_block_rows: int = 1 << 18,
        judge_lateness: bool = True,
        epochs: Epochs | None = None,
    ) -> None:
        self._plan = plan
        self._epochs = epochs or Epochs.first(plan.layout)
        self._stream = stream
        self._part = part
        self._range = (0, 0)
        self._max_block_rows = max_block_rows
        self._judge = judge_lateness
        self._delay_us = plan.bound.join.streams[stream].delay_us
        self._schema = plan.bound.tuple_schema(stream)
        self.largest_ts = NO_TIME
        self._tuples: list[pa.RecordBatch] = []
        self._late: list[pa.RecordBatch] = []
        self._rejects: list[pa.Table] = []
        self.rejected = 0  # records that are no tuples, also those that are only counted
        self.filtered = 0  # tuples that the stream's filters leave out
        self.duplicates = 0  # tuples that repeat one before them, and are not filtered
        self.lost_offsets = 0  # offsets of a topic that were gone before they were read

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk of the part. Its tuples have the stream's `read_schema`.

        A tuple that a filter leaves out still tells the time, and is never late. Nor is a duplicate.
        """
        if chunk.rejects:
            self._rejects.append(rejects_table(chunk.rejects))
            self.rejected += len(chunk.rejects)
        self.lost_offsets += chunk.lost_offsets
        tuples = chunk.tuples
        if not tuples.num_rows:
            return
        ts = tuples.column(TS).to_numpy()
        before = np.empty(len(ts) + 1, np.int64)
        before[0] = self.largest_ts
        np.maximum.accumulate(ts, out=before[1:])
        if self.largest_ts > before[1]:
            np.maximum(before, self.largest_ts, out=before)
        self.largest_ts = int(before[-1])
        if chunk.before is not None:  # of several partitions, each with an order of its own
            before[:-1] = chunk.before
        # A tuple is late iff it is older than the largest time before it minus the delay. The first one is not late.
        late = (before[:-1] > ts + self._delay_us) if self._judge else np.zeros(len(ts), bool)
        repeats = chunk.repeats
        kept = self._plan.bound.let_through(self._stream, tuples)
        if kept is not None:
            self.filtered += int(np.count_nonzero(~kept))
            late, before = late[kept], before[:-1][kept]
            repeats = None if repeats is None else repeats[kept]
            tuples = tuples.take(pa.array(np.flatnonzero(kept)))
        if kept is not None or repeats is not None or chunk.before is not None:  # columns may be read for these alone
            tuples = tuples.select(self._schema.names)
        if repeats is not None and repeats.any():
            self.duplicates += int(np.count_nonzero(repeats))
            late, before = late[~repeats], before[: len(repeats)][~repeats]
            tuples = tuples.take(pa.array(np.flatnonzero(~repeats)))
        if late.any():
            where = np.flatnonzero(late)
            aside = tuples.take(pa.array(where))
            columns = [*aside.columns, pa.array(before[where])]
            self._late.append(pa.RecordBatch.from_arrays(columns, schema=late_schema(self._schema)))
            tuples = tuples.take(pa.array(np.flatnonzero(~late)))
        if tuples.num_rows:
            self._tuples.append(tuples)

    def rows(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the exchange rows of the part: each cell's tuples, then late rows and rejects for the first cell.

        ``[first, last)`` is the part's range of records. The names of the blocks carry it, and it says how many records
        were read.
        """
        self._range = (first, last)
        late = sum(batch.num_rows for batch in self._late)
        counts = last - first, late, self.rejected, self.filtered, self.duplicates, self.lost_offsets
        totals = _Totals(self.largest_ts, *counts)
        labels, current = self._plan.labels_of(self._epochs.cells), self._epochs.current
        table = pa.Table.from_batches(self._tuples, schema=self._schema)
        none = _Totals(self.largest_ts, *NOTHING)
        waiting: list[tuple[object, ...]] = []  # rows that go into one batch: all those without a payload
        silent = set(range(self._epochs.cells))  # cells that have no row of the kind "tuples" yet
        for epoch, group, blocks in self._dealt(table):
            is_own = epoch is current
            for cell in epoch.layout.cells_of(self._stream, group):
                told = totals if is_own and cell == 0 and cell in silent else none
                waiting += self._for_cell(labels[cell], "tuples" if is_own else "guests", blocks, told, epoch.number)
                if is_own:
                    silent.discard(cell)
                if self._plan.exchange != "reference":
                    yield exchange_batch(waiting)
                    waiting = []
        for cell in sorted(silent):
            # No tuple is for this cell; it may even keep only older tuples. An empty row moves its clocks on.
            nothing, told = [_Block(first, 0, "", b"")], none if cell else totals
            waiting += self._for_cell(labels[cell], "tuples", nothing, told, current.number)
        yield from self._sample(table, labels[0])
        aside = [("late", pa.Table.from_batches(self._late, schema=late_schema(self._schema)))] if self._late else []
        if self._rejects:
            aside.append(("rejects", pa.concat_tables(self._rejects)))
        for kind, rows in aside:
            waiting += self._for_cell(labels[0], kind, list(self._blocks(kind, 0, rows)), none, current.number)
        if waiting:
            yield exchange_batch(waiting)

    def _sample(self, table: pa.Table, label: int) -> Iterator[pa.RecordBatch]:
        """Yield a row for the first cell with some of the part's keys, where ranges may be chosen by them."""
        plan, attributes = self._plan, self._plan.attributes
        if not attributes or not table.num_rows:
            return
        sample = SampledRows.of(plan.bound, attributes, self._stream, table, sample_rows(plan.cells))
        facts = {"threshold": repr(sample.threshold)}
        none = _Totals(NO_TIME, *NOTHING)
        block = _Block(self._range[0], 0, "", pack(sample.rows, facts))
        yield exchange_batch(self._for_cell(label, "keys", [block], none, self._epochs.current.number))

    def _dealt(self, table: pa.Table) -> Iterator[tuple[Epoch, int, list[_Block]]]:
        """Yield for each epoch and group with tuples its blocks; they are written once where epochs deal alike.

        A tuple that matches nothing goes to its own epoch, where it is counted, and is nobody's guest.
        """
        alike: dict[Hashable, list[Epoch]] = {}
        for epoch in reversed(self._epochs.live):
            alike.setdefault(epoch.layout.deals_like(self._stream), []).append(epoch)
        for epochs in alike.values():
            layout = epochs[0].layout
            for group, rows in layout.shares(self._plan.bound, self._stream, table):
                if not rows.num_rows:
                    continue
                wanting = epochs
                if layout.matches_nothing(self._stream, group):
                    wanting = [epoch for epoch in epochs if epoch is self._epochs.current]
                blocks = list(self._blocks("tuples", group, rows)) if wanting else []
                for epoch in wanting:
                    yield epoch, group, blocks

    def _blocks(self, kind: str, group: int, table: pa.Table) -> Iterator[_Block]:
        """Yield the blocks of a group, which has rows."""
        first, last = self._range
        facts = {"kind": kind, "stream": self._plan.bound.names[self._stream], "group": str(group)}
        seqs = table.column(SEQ) if kind != "rejects" else None
        if self._plan.exchange == "reference":
            stem = f"x{self._stream:02d}-{first:019d}-{last:019d}-{group:04d}-{kind}"
            ref = exchange_store(self._plan).write(stem, table, facts)
            yield _Block(first if seqs is None else seqs[0].as_py(), table.num_rows, ref.name, b"")
            return
        for begin in range(0, table.num_rows, self._max_block_rows):
            piece = table.slice(begin, self._max_block_rows)
            first_seq = first if seqs is None else seqs[begin].as_py()
            yield _Block(first_seq, piece.num_rows, "", pack(piece, facts))

    def _for_cell(
        self, label: int, kind: str, blocks: Sequence[_Block], totals: _Totals, epoch: int
    ) -> list[tuple[object, ...]]:
        once = [totals.counts] + [NOTHING] * (len(blocks) - 1)
        return [
            (
                label,
                kind,
                self._stream,
                self._part,
                epoch,
                block.first_seq,
                self._range[1],
                block.rows,
                totals.largest_ts,
                *sums,
                block.name,
                block.payload,
            )
            for block, sums in zip(blocks, once, strict=True)
        ]


def layout_row(stream: int) -> pa.RecordBatch:
    """Return a row for `LAYOUT_KEY`, the key that keeps the layout of cells."""
    return exchange_batch([(LAYOUT_KEY, "grid", stream, 0, 0, 0, 0, 0, NO_TIME, *NOTHING, "", b"")])


_ExchangeRow = namedtuple("_ExchangeRow", EXCHANGE_SCHEMA.names)  # type: ignore[misc]  # the names are the schema's


def exchange_rows(batch: pa.RecordBatch) -> list[Any]:
    """Return the rows of a batch of `EXCHANGE_SCHEMA`, with its columns as attributes."""
    return [_ExchangeRow(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def exchange_batch(rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Return rows of `EXCHANGE_SCHEMA`."""
    pairs = zip(zip(*rows, strict=True), _EXCHANGE_TYPES, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in pairs], schema=EXCHANGE_SCHEMA)


@dataclass(frozen=True, slots=True)
class CellBatch:
    """The part of a `BatchPlan` that the cells need: all of it but the streams' positions.

    Attributes
    ----------
    epochs : Epochs or None
        None while there is only the first.
    idle : tuple of int
        Streams that do not hold the watermark.
    lows_us : mapping of int to int or None
        For each stream of many partitions the smallest time of those that are not idle
        (`PartitionedPosition.low_us`); None where it is not known.
    tables : mapping of str to TableVersion
        The version of each table that the batch joins.
    sizing : BlockSizing
    backlog_rows, backlog_us : int or None
        What the planner knew of the backlog of all streams, on its way to Spark's progress. None where Spark plans.
    """

    epochs: Epochs | None = None
    idle: tuple[int, ...] = ()
    lows_us: Mapping[int, int | None] = field(default_factory=dict)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    sizing: BlockSizing = USUAL_SIZING
    backlog_rows: int | None = None
    backlog_us: int | None = None

    def to_json(self) -> str:
        """Return this as JSON."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        facts |= {"lows_us": list(self.lows_us.items()), "tables": dict(self.tables)}
        return json.dumps(facts, default=methodcaller("to_facts"), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, streams: int) -> CellBatch:
        """Return what `to_json` wrote, of a join of so many streams."""
        facts = json.loads(text)
        facts["epochs"] = facts["epochs"] and Epochs.from_facts(facts["epochs"], streams)
        facts["tables"], facts["sizing"] = versions_from(facts["tables"]), BlockSizing.from_facts(facts["sizing"])
        return cls(**facts | {"idle": tuple(facts["idle"]), "lows_us": dict(facts["lows_us"])})


def batch_row(plan: Plan, text: str, epochs: Epochs | None) -> pa.RecordBatch:
    """Return the row of kind "batch" for every cell; `text` is that of a `CellBatch`, and `epochs` are its own.

    A cell has it in each batch, so it expires, reports and saves its state also where it is sent no tuples.
    """
    labels = plan.labels_of(plan.layout.cells if epochs is None else epochs.cells)
    return exchange_batch(
        [(label, "batch", 0, 0, 0, 0, 0, 0, NO_TIME, *NOTHING, "", text.encode()) for label in labels]
    )
