"""The answers of cells about tuples that several of them decide: reports, and the rows that they make together.

::

    join            a cell reports                                     for the tuples
    ─────────────   ────────────────────────────────────────────────   ──────────────────────────────────
    left, anti ..   home: the row;      others: the number             that have no partner in it
    semi            the row                                            that have one in it
    nearest         the rows, and how near each partner is             that have one; home: all of `left`
    sums            home: the row, and what aggregates are made of     that have a partner in it;
                    others of `left`: the number, and these            all of `left`

    left, right, full, anti   the home cell's rows of the tuples that all cells report
    semi                      each tuple once that any cell reports; of several streams if all of them have a partner
    nearest                   of all rows of a tuple the k nearest, ranked anew
    sums                      the row of the home cell, of the first that has one for "inner", and the aggregates of all

A layout may deal a tuple's partners to several cells. Each of them decides the tuple at its horizon, in the same batch,
because all cells have the same watermark. So a cell keeps the rows of such tuples back and reports them
(`PartialAnswers`): a few in the report itself, more of them as a block of the checkpoint. The batch's commit puts them
together (`whole_answers`).

Every pair meets in exactly one cell. So a tuple has no partner if it has none in any cell, and its partners are those
of all cells, none of them twice.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.block import pack, unpack
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.probe.aggregates import whole_aggregates
from streamjoin_ds.engine.probe.nearest import NEARNESS
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.errors import LedgerError
from streamjoin_ds.plan import Layout, Plan, copied_streams
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.columns import Int64
from streamjoin_ds.spec.row_kind import RANK

__all__ = ["PartialAnswers", "answer_of", "whole_answers"]

INLINE_BYTES = 1 << 16  # bytes of rows that travel in the report itself; Spark moves and parses them as text
_DEFECT = "nothing was committed; this is a defect, please report it"


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
        self._told = {stream: [_number_of(plan.bound, stream), *sums] for stream in self._streams}
        self._kept: dict[int, list[pa.Table]] = {stream: [] for stream in self._streams}
        self.blocks: list[str] = []

    def taken_from(self, chunk: pa.Table) -> pa.Table:
        """Keep back the rows of a chunk that other cells have a say in, and return the others."""
        for stream in self._streams:
            if not self._plan.bound.row_kind.has_pairs:  # all rows are about tuples of the one stream
                self._keep(stream, chunk, self._told_of(stream, chunk))
                return self._plan.bound.result_schema.empty_table().drop_columns("batch_id")
            lacking = chunk[_number_of(self._plan.bound, 1 - stream)]
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
        return pc.is_valid(chunk[_number_of(self._plan.bound, 1 - stream)])

    def _keep(self, stream: int, chunk: pa.Table, mask: pa.ChunkedArray | None) -> None:
        kept = chunk if self._whole[stream] else chunk.select(self._told[stream])
        kept = _copied(kept) if mask is None else kept.filter(mask)
        if kept.num_rows:
            self._kept[stream].append(kept)


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


def whole_answers(
    plan: Plan, layout: Layout, answers: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows that all cells' answers make together, each table with the home cell of its group.

    Parameters
    ----------
    plan : Plan
    layout : Layout
        The layout of the batch.
    answers : mapping of int to mapping
        What `PartialAnswers.reported` returned in each cell.

    Yields
    ------
    (int, pyarrow.Table)
        Only tables that have rows, with the columns of results without ``batch_id``. A tuple's rows are in one table:
        by the tuples' order in the cells, first the home cell; of nearest partners by the tuples' numbers, then ranks.

    Raises
    ------
    BlockMissingError, BlockCorruptError
        A cell's answer is not there, or damaged.
    AggregateOverflowError
        A sum over the partners in all cells does not fit its column.
    LedgerError
        A tuple is twice in one cell's answer, or a pair in all; or the cells do not tell of the same tuples.
    """
    for stream in copied_streams(plan.bound, layout):
        put = _way(plan.bound, stream)
        for group in range(layout.counts[stream]):
            cells = layout.cells_of(stream, group)
            told = [answers[cell].get(str(stream)) for cell in cells]
            tables = [None if answer is None else answer_of(plan, answer) for answer in told]
            if any(table is not None for table in tables):
                yield from ((cells[0], rows) for rows in put(plan.bound, stream, tables) if rows.num_rows)


def _way(bound: BoundJoin, stream: int) -> Callable[[BoundJoin, int, Sequence[pa.Table | None]], Iterator[pa.Table]]:
    if bound.distance is not None:
        return _nearest
    if bound.aggregates:
        return _summed
    if stream in bound.row_kind.lonely:
        return _all
    return _each if bound.row_kind.of_each else _any


def _all(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield the rows of the tuples that all cells tell of; the first has the rows."""
    if any(table is None for table in tables):
        return
    rows, *others = (table for table in tables if table is not None)
    numbers = _numbers(bound, stream, rows)
    mask = np.ones(len(numbers), np.bool_)
    for other in others:
        mask &= np.isin(numbers, _numbers(bound, stream, other), assume_unique=True)
    yield rows.filter(pa.array(mask))


def _any(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield the rows of the tuples that any cell tells of, each once."""
    given = [table for table in tables if table is not None]
    numbers = np.concatenate([_numbers(bound, stream, table) for table in given])
    yield pa.concat_tables(given).take(pa.array(_firsts(numbers)))


def _each(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield the rows of the tuples that have partners in each of the other streams, in whatever cells."""
    given = [table for table in tables if table is not None]
    rows = pa.concat_tables(given)
    numbers = np.concatenate([_numbers(bound, stream, table) for table in given])
    _, first, tuples = np.unique(numbers, return_index=True, return_inverse=True)
    met, (told,), rows = np.zeros(len(first), np.int64), *_split(rows, 1)
    np.bitwise_or.at(met, tuples, told.to_numpy())
    is_met = met == (1 << (len(bound.names) - 1)) - 1
    yield rows.take(pa.array(np.sort(first[is_met])))


def _nearest(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield each tuple with the nearest of the partners that all cells found for it."""
    assert bound.join.nearest is not None, "the join has nearest partners"
    nearness, rows = _split(pa.concat_tables([table for table in tables if table is not None]), len(NEARNESS))
    numbers = rows[_number_of(bound, stream)].to_numpy()
    partner = rows[_number_of(bound, 1 - stream)]
    is_lonely = partner.is_null().to_numpy()
    partners = partner.fill_null(-1).to_numpy()
    near, *ties = (column.fill_null(0).to_numpy() for column in nearness)
    order = np.lexsort((partners, *reversed(ties), near, is_lonely, numbers))
    numbers, partners = numbers[order], partners[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = numbers[1:] != numbers[:-1]
    if np.any(~is_first[1:] & (partners[1:] == partners[:-1])):
        msg = "two cells have found one pair"
        raise LedgerError(msg, name=_number_of(bound, stream), hint=_DEFECT)
    begins = np.flatnonzero(is_first)
    ranks = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    # A tuple is lonely where no other row comes before that which says so.
    is_kept = np.where(is_lonely[order], ranks == 0, ranks < bound.join.nearest.k)
    kept = rows.take(pa.array(order[is_kept]))
    if bound.has_ranks:
        made = pa.array(ranks[is_kept] + 1, mask=is_lonely[order][is_kept])
        kept = kept.set_column(kept.schema.get_field_index(RANK), kept.schema.field(RANK), made)
    yield kept


def _summed(bound: BoundJoin, stream: int, tables: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
    """Yield a row for each tuple with the aggregates over the partners that all cells found for it, in slices."""
    given = [table for table in tables if table is not None]
    numbers = [_numbers(bound, stream, table) for table in given]
    if stream in bound.row_kind.lonely:
        rows = given[0]
        if len(given) < len(tables) or any(not np.array_equal(np.sort(numbers[0]), np.sort(of)) for of in numbers[1:]):
            msg = "the cells have not decided the same tuples"
            raise LedgerError(msg, name=_number_of(bound, stream), hint=_DEFECT)
    else:
        rows = pa.concat_tables(given).take(pa.array(_firsts(np.concatenate(numbers))))
    places = _Places(rows[_number_of(bound, stream)].to_numpy())
    parts = [(table, *places.ordered(of)) for table, of in zip(given, numbers, strict=True)]
    schema = pa.schema([field for field in bound.result_schema if field.name != "batch_id"])
    module, most = load_kernels("auto").module, DEFAULT.waiting
    step = most.held_rows if bound.holds_values else most.summed_rows
    for begin in range(0, rows.num_rows, step):
        some = rows.slice(begin, step)
        partials = []
        for table, of, order in parts:
            low, high = np.searchsorted(of, [begin, begin + step])
            partials.append(((of[low:high] - begin).astype(np.int32), table.take(pa.array(order[low:high]))))
        made = whole_aggregates(bound, some.num_rows, partials, module)
        columns = [made[field.name] if field.name in made else some[field.name] for field in schema]
        yield pa.Table.from_arrays(columns, schema=schema)


class _Places:
    """Where tuples are, by their numbers."""

    def __init__(self, numbers: Int64) -> None:
        self._order = np.argsort(numbers)
        self._sorted = numbers[self._order]

    def ordered(self, numbers: Int64) -> tuple[Int64, Int64]:
        """Return the places of tuples with these numbers, ascending, and the order that makes them so."""
        places = self._order[np.searchsorted(self._sorted, numbers)]
        order = np.argsort(places)
        return places[order], order


def _split(rows: pa.Table, count: int) -> tuple[list[pa.ChunkedArray], pa.Table]:
    """Return the last columns, and the others. A column of the result may have the name of one of the last."""
    whole = rows.num_columns - count
    return rows.columns[whole:], rows.select(range(whole))


def _firsts(numbers: Int64) -> Int64:
    """Return where each number is for the first time, ascending."""
    _, first = np.unique(numbers, return_index=True)
    return np.sort(first)


def _number_of(bound: BoundJoin, stream: int) -> str:
    return f"{bound.names[stream]}_seq"


def _numbers(bound: BoundJoin, stream: int, table: pa.Table) -> Int64:
    """Return the numbers of the tuples in a cell's answer; no tuple is decided twice."""
    numbers: Int64 = table[_number_of(bound, stream)].to_numpy()
    in_order = np.sort(numbers)
    if np.any(in_order[1:] == in_order[:-1]):
        msg = "a cell has decided a tuple twice"
        raise LedgerError(msg, name=_number_of(bound, stream), hint=_DEFECT)
    return numbers
