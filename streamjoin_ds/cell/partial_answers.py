"""What the cells know of tuples that several of them decide.

::

    join            a cell reports                                     for the tuples
    ─────────────   ────────────────────────────────────────────────   ──────────────────────────────────
    left, anti ..   home: the row;      others: the number             that have no partner in it
    semi            the row                                            that have one in it
    nearest         the rows, and how near each partner is             that have one; home: all of `left`
    sums            home: the row, and what aggregates are made of     that have a partner in it;
                    others of `left`: the number, and these            all of `left`

A layout may deal a tuple's partners to several cells. Each of them decides the tuple at its horizon, in the same batch,
because all cells have the same watermark. So a cell keeps the rows of such tuples back and reports them: a few in the
report itself, more of them as a block of the checkpoint. The batch's commit puts them together (`whole_answers`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.block import pack, unpack
from streamjoin_ds.plan import Plan, copied_streams

__all__ = ["PartialAnswers", "answer_of"]

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
        self._is_home = {stream: layout.is_home(cell, stream) for stream in self._streams}
        # Where a partner may be in any cell, and makes the row, each cell gives rows; else one of all cells does.
        all_give = plan.bound.distance is not None
        lonely = plan.bound.row_kind.lonely
        self._whole = {stream: all_give or stream not in lonely or self._is_home[stream] for stream in self._streams}
        sums = [one.name for one in plan.bound.aggregates]
        self._told = {stream: [self._number_of(stream), *sums] for stream in self._streams}
        self._kept: dict[int, list[pa.Table]] = {stream: [] for stream in self._streams}
        self.blocks: list[str] = []

    def taken_from(self, chunk: pa.Table) -> pa.Table:
        """Keep back the rows of a chunk that other cells have a say in, and return the others."""
        for stream in self._streams:
            if not self._plan.bound.row_kind.has_pairs:  # all rows are about tuples of the one stream
                self._keep(stream, chunk, self._told_of(stream, chunk))
                return self._plan.bound.result_schema.empty_table().drop_columns("batch_id")
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

    def _told_of(self, stream: int, chunk: pa.Table) -> pa.ChunkedArray | None:
        """Return which rows of a join without pairs are reported; None: all. Home alone tells that there is none."""
        bound = self._plan.bound
        if bound.distance is None or stream not in bound.row_kind.lonely or self._is_home[stream]:
            return None
        return pc.is_valid(chunk[self._number_of(1 - stream)])

    def _keep(self, stream: int, chunk: pa.Table, mask: pa.ChunkedArray | None) -> None:
        kept = chunk if self._whole[stream] else chunk.select(self._told[stream])
        kept = _copied(kept) if mask is None else kept.filter(mask)
        if kept.num_rows:
            self._kept[stream].append(kept)

    def _number_of(self, stream: int) -> str:
        return f"{self._plan.bound.names[stream]}_seq"


def answer_of(plan: Plan, told: Mapping[str, Any]) -> pa.Table:
    """Return the rows that `PartialAnswers.reported` told of, for one stream.

    Raises
    ------
    BlockMissingError, BlockCorruptError
    """
    if "block" in told:
        table = BlockStore(plan.state_root).read(told["block"])
    else:
        table = unpack(base64.b64decode(told["bytes"]))
    return table.replace_schema_metadata(None)


def _copied(table: pa.Table) -> pa.Table:
    """Return a copy with memory of its own: the engine uses that of a chunk again."""
    return table.take(pa.array(np.arange(table.num_rows)))
