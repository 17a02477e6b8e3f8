"""What the cells know of tuples that several of them decide, and how it is put together to rows.

::

    cell 0,0 (home)   a has no partner here   b has none   c has none   rows of a b c ──┐
    cell 0,1          a has no partner here   b has one    c has none   numbers of a c ─┴─► rows of a and c

A layout may deal a tuple's partners to several cells. Each of them decides the tuple at its horizon, in the same batch,
because all cells have the same watermark. A tuple has no partner if it has none in any of them; for `semi` it has one
if it has one in any. So a cell keeps such rows back and reports them: a few in the report itself, more of them as a
block of the checkpoint. The batch's commit puts them together.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.block import pack, unpack
from streamjoin_ds.errors import LedgerError
from streamjoin_ds.plan import Layout, Plan, copied_streams

__all__ = ["PartialAnswers", "whole_answers"]

INLINE_BYTES = 1 << 16  # bytes of rows that travel in the report itself; Spark moves and parses them as text


class PartialAnswers:
    """The rows that a cell keeps back in one batch.

    Parameters
    ----------
    plan : Plan
    layout : CellLayout
        The layout of the batch.
    cell : int
    label : str
        The batch and the cell, for the names of blocks.

    Attributes
    ----------
    blocks : list of str
        The blocks that `reported` wrote. Nobody needs them once the batch is committed.
    """

    def __init__(self, plan: Plan, layout: Any, cell: int, label: str) -> None:
        self._plan, self._label = plan, label
        self._streams = copied_streams(plan.bound, layout)
        self._whole = {stream: _gives_rows(plan, layout, cell, stream) for stream in self._streams}
        self._kept: dict[int, list[pa.Table]] = {stream: [] for stream in self._streams}
        self.blocks: list[str] = []

    def taken_from(self, chunk: pa.Table) -> pa.Table:
        """Keep back the rows of a chunk that other cells have a say in, and return the others."""
        for stream in self._streams:
            if not self._plan.bound.row_kind.has_pairs:  # all rows are about tuples of the one stream
                self._keep(stream, chunk, None)
                return chunk.slice(0, 0)
            lacking = chunk[self._number_of(1 - stream)]
            if lacking.null_count:
                is_lonely = pc.is_null(lacking)
                self._keep(stream, chunk, is_lonely)
                chunk = chunk.filter(pc.invert(is_lonely))
        return chunk

    def reported(self) -> dict[str, Any]:
        """Return what the cell's report says of the rows, by stream; write a block where there are many."""
        told = {}
        for stream, tables in self._kept.items():
            if not tables:
                continue
            table = pa.concat_tables(tables)
            facts: dict[str, Any] = {"rows": table.num_rows}
            if self._plan.state_root and table.nbytes > INLINE_BYTES:
                store = BlockStore(self._plan.state_root, durable=False)  # a batch that is done again writes it again
                facts["block"] = store.write(f"answers-{stream:02d}-{self._label}", table).name
                self.blocks.append(facts["block"])
            else:
                facts["bytes"] = base64.b64encode(pack(table)).decode()
            told[str(stream)] = facts
        return told

    def _keep(self, stream: int, chunk: pa.Table, mask: pa.ChunkedArray | None) -> None:
        kept = chunk if self._whole[stream] else chunk.select([self._number_of(stream)])
        kept = _copied(kept) if mask is None else kept.filter(mask)
        if kept.num_rows:
            self._kept[stream].append(kept)

    def _number_of(self, stream: int) -> str:
        return f"{self._plan.bound.names[stream]}_seq"


def whole_answers(plan: Plan, layout: Layout, answers: Mapping[int, Mapping[str, Any]]) -> list[tuple[int, pa.Table]]:
    """Return the rows that all cells' answers make together, each table with the home cell of its group.

    Parameters
    ----------
    plan : Plan
    layout : Layout
        The layout of the batch.
    answers : mapping of int to mapping
        What `PartialAnswers.reported` returned in each cell.

    Returns
    -------
    list of (int, pyarrow.Table)
        Only tables that have rows. A table has the columns of results without ``batch_id``, and each tuple once, in the
        order of the home cell (for `semi`, of the cells).

    Raises
    ------
    BlockMissingError, BlockCorruptError
        A cell's answer is not there, or damaged.
    LedgerError
        A tuple is twice in one cell's answer.
    """
    found = []
    for stream in copied_streams(plan.bound, layout):
        number = f"{plan.bound.names[stream]}_seq"
        for group in range(layout.counts[stream]):
            cells = layout.cells_of(stream, group)
            told = [answers[cell].get(str(stream)) for cell in cells]
            put = _any if stream not in plan.bound.row_kind.lonely else _all
            if (rows := put(plan, number, told)) is not None and rows.num_rows:
                found.append((cells[0], rows))
    return found


def _all(plan: Plan, number: str, told: Sequence[Mapping[str, Any] | None]) -> pa.Table | None:
    """Return the rows of the tuples that all cells tell of; the first has the rows."""
    if any(answer is None for answer in told):
        return None
    rows, *others = (_table(plan, answer) for answer in told if answer is not None)
    numbers = _numbers(rows, number)
    mask = np.ones(len(numbers), np.bool_)
    for other in others:
        mask &= np.isin(numbers, _numbers(other, number), assume_unique=True)
    return rows.filter(pa.array(mask))


def _any(plan: Plan, number: str, told: Sequence[Mapping[str, Any] | None]) -> pa.Table | None:
    """Return the rows of the tuples that any cell tells of, each once."""
    tables = [_table(plan, answer) for answer in told if answer is not None]
    if not tables:
        return None
    for table in tables:
        _numbers(table, number)
    rows = pa.concat_tables(tables)
    _, first = np.unique(rows[number].to_numpy(), return_index=True)
    return rows.take(pa.array(np.sort(first)))


def _table(plan: Plan, answer: Mapping[str, Any]) -> pa.Table:
    if "block" in answer:
        table = BlockStore(plan.state_root).read(answer["block"])
    else:
        table = unpack(base64.b64decode(answer["bytes"]))
    return table.replace_schema_metadata(None)


def _numbers(table: pa.Table, number: str) -> Any:
    """Return the numbers of the tuples in a cell's answer; no tuple is decided twice."""
    numbers = table[number].to_numpy()
    if len(np.unique(numbers)) != len(numbers):
        msg = "a cell has decided a tuple twice"
        raise LedgerError(msg, name=number, hint="nothing was committed; this is a defect, please report it")
    return numbers


def _gives_rows(plan: Plan, layout: Layout, cell: int, stream: int) -> bool:
    """Whether a cell gives the rows of a stream's tuples, not their numbers alone: one of all cells does.

    Of `semi` all do, since a partner may be in any of them.
    """
    return layout.is_home(cell, stream) or stream not in plan.bound.row_kind.lonely


def _copied(table: pa.Table) -> pa.Table:
    """Return a copy with memory of its own: the engine uses that of a chunk again."""
    return table.take(pa.array(np.arange(table.num_rows)))
